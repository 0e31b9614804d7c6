#!/usr/bin/env bash
# A long session over loopback multicast: content of many gigabytes, and the memory of both ends, which may not be above
# 256 MiB each. By hand, but for 1 GiB (tests/interop/memory.sh): 16 GiB take 34 GiB of disk, or 26 in window order, and at
# least the content's length over the rate. lab/notebook/speed.md says what it took.
#
# The content is one random file under several names (hard links), so that it is no zeros on the wire and takes little
# disk at the sender.
set -euo pipefail

usage() {
    cat <<EOF
usage: tests/large/loopback.sh [GIB [RATE [FOLDER]]]

  GIB     length of the content, a multiple of 2, or 1 (default 16)
  RATE    of the sender (default 800M)
  FOLDER  where to work (default \${TMPDIR:-/tmp}); what is made there is deleted

HEADWATER names the command to test (default: target/release/headwater, built if need be). SEND holds more options of the
sender: with SEND="--order window" its repair symbols take half of the content on disk, in spread order all of it.
EOF
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
gib=${1:-16} rate=${2:-800M} folder=${3:-${TMPDIR:-/tmp}}
limit_kib=$((256 * 1024))
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [ -z "${HEADWATER:-}" ]; then
    cargo build --release --manifest-path "$root/Cargo.toml" -p headwater-cli
    HEADWATER=${CARGO_TARGET_DIR:-$root/target}/release/headwater
fi
[ -x /usr/bin/time ] || { echo "large: /usr/bin/time is missing: install the package 'time'" >&2; exit 1; }

work=$(mktemp -d "$folder/headwater-large.XXXXXX")
sender=
finish() {
    if [ -n "$sender" ]; then kill -INT "$sender" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap finish EXIT

part=$((gib < 2 ? gib : 2))
mkdir "$work/content"
head -c "${part}G" /dev/urandom >"$work/content/part0"
for ((number = 1; number < gib / part; number++)); do ln "$work/content/part0" "$work/content/part$number"; done

group=239.255.77.$((RANDOM % 250 + 1)):$((RANDOM % 20000 + 20000))
cd "$work"
TMPDIR=$work /usr/bin/time -o sender.time -f '%M %e %U %S' \
    "$HEADWATER" send --interface lo --quiet --rate "$rate" --group "$group" ${SEND:-} content &
sender_time=$!
/usr/bin/time -o receiver.time -f '%M %e %U %S' \
    "$HEADWATER" receive --interface lo --quiet --timeout 10m --group "$group" --out out
sender=$(pgrep -P $sender_time)
kill -INT "$sender"
sender=
wait $sender_time || true

status=0
for file in out/content/part*; do
    cmp "$file" content/part0 || status=1
    rm "$file"
done
report() {
    read -r kib elapsed user system < <(tail -n 1 "$1.time")
    printf '%-8s %4d MiB of memory (at most 256), %s s elapsed, %s s user, %s s system\n' \
        "$1" $((kib / 1024)) "$elapsed" "$user" "$system"
    if ((kib > limit_kib)); then status=1; fi
}
printf '%d GiB at %s\n' "$gib" "$rate"
report sender
report receiver
exit $status
