#!/usr/bin/env bash
# Builds the wheel of the Python package: the extension for Python 3.11 and later (stable ABI), and the commands headwater and
# headwater-lab. Needs Python and pip.
#
#   packaging/wheel.sh [--binaries FOLDER] [FOLDER]
#
# The wheel goes to FOLDER (default: target/packages). --binaries takes programs that are built already.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/help.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

MATURIN=1.16.0

programs=
if [ "${1:-}" = --binaries ]; then
    programs=$(realpath "$2")
    shift 2
fi
out=$(realpath -m "${1:-target/packages}")
if [ -z "$programs" ]; then
    cargo build --locked --release -p headwater-cli -p headwater-lab
    programs=$(realpath "${CARGO_TARGET_DIR:-target}/release")
fi
work=$(mktemp -d)
trap 'rm -rf "$work" python/headwater.data' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "maturin==$MATURIN"

rm -rf python/headwater.data
for program in headwater headwater-lab; do
    install -D -m 755 "$programs/$program" "python/headwater.data/scripts/$program"
    strip --strip-unneeded "python/headwater.data/scripts/$program"
done
mkdir -p "$out"
PATH="$work/venv/bin:$PATH" maturin build --locked --release --manifest-path python/Cargo.toml --out "$out" --compatibility "${COMPATIBILITY:-linux}"
