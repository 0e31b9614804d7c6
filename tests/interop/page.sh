#!/usr/bin/env bash
# The live page in headless Chromium, metrics in Prometheus, and the cost of both. page.py says what must hold. --full: all bounds.
# Parts whose tools cannot be installed are reported as not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

PLAYWRIGHT=1.65.0
PARSER=0.26.0

. tests/built.sh
FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-page-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM
export XDG_STATE_HOME="$FOLDER/state" XDG_CONFIG_HOME="$FOLDER/config"

have() { command -v "$1" >/dev/null 2>&1; }
lacks() { echo "page.sh: NOT RUN: $*"; }
install() { have "$1" || DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=60 install -y -q --no-install-recommends "$1" >/dev/null 2>&1; }

tools=()
CHROMIUM=$(command -v chromium || command -v chromium-browser || true)
[ -n "$CHROMIUM" ] || { install chromium && CHROMIUM=$(command -v chromium) || true; }
if [ -z "$CHROMIUM" ] || ! { have node && have npm; }; then
    lacks "the page in a browser: chromium, node or npm cannot be installed"
elif ! npm install --prefix "$FOLDER/node" --no-audit --no-fund --silent "playwright-core@$PLAYWRIGHT" >/dev/null 2>&1; then
    lacks "the page in a browser: playwright-core $PLAYWRIGHT cannot be installed"
else
    cp tests/interop/page.mjs "$FOLDER/node/page.mjs"
    tools+=(--chromium "$CHROMIUM" --script "$FOLDER/node/page.mjs")
fi
page() { PYTHONPATH=tests python3 -B tests/interop/page.py "$HEADWATER" "${tools[@]}" "$@"; }
browser=
if [ $# -eq 0 ]; then
    # The browser waits for 300 samples, half a minute: the other parts have this time.
    page browser >"$FOLDER/browser.log" 2>&1 &
    browser=$!
fi
if install prometheus; then tools+=(--prometheus "$(command -v prometheus)"); else lacks "Prometheus cannot be installed"; fi
if python3 -m venv "$FOLDER/venv" 2>/dev/null && "$FOLDER/venv/bin/pip" install --quiet --disable-pip-version-check "prometheus-client==$PARSER" 2>/dev/null; then
    tools+=(--parser "$FOLDER/venv/bin/python")
else
    lacks "the parser of OpenMetrics: prometheus-client $PARSER cannot be installed"
fi
if [ -z "$browser" ]; then
    page "$@"
else
    page prometheus clients flooded
    wait "$browser" || { cat "$FOLDER/browser.log"; exit 1; }
    cat "$FOLDER/browser.log"
fi
