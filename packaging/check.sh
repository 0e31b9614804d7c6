#!/usr/bin/env bash
# Tries packages as their users would. Debian package: lintian without errors; the units are valid, and expose their
# services little. OCI image: at most 15 MB; `doctor` runs in its root folder alone. Needs root, lintian and systemd.
#
#   packaging/check.sh FOLDER
#
# FOLDER has the packages of packaging/release.sh, or of deb.sh and oci.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/help.sh"

IMAGE_BYTES_MAX=15000000
# In tenths, as systemd-analyze counts.
EXPOSURE_MAX=20

fail() {
    echo "check: $*" >&2
    exit 1
}
[ $# = 1 ] || fail "name the folder with the packages"
[ "$(id -u)" = 0 ] || fail "needs root, to enter the image"
for tool in lintian dpkg-deb systemd-analyze; do
    command -v "$tool" >/dev/null || fail "'$tool' is missing (packages lintian, systemd)"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

deb=$(echo "$1"/headwater_*.deb)
[ -f "$deb" ] || fail "no Debian package in $1"
# Run as root, as the packages of root's folder are.
lintian --allow-root --fail-on error "$deb" || fail "lintian finds errors in $deb"
dpkg-deb -x "$deb" "$work/deb"
mkdir "$work/units"
# A unit without a program shows that faults are found here.
printf '[Service]\nExecStart=/no/such/program\n' >"$work/units/faulty.service"
complaints=$(systemd-analyze verify --man=no "$work/units/faulty.service" 2>&1 || true)
grep -qF faulty <<<"$complaints" || fail "systemd-analyze verify finds no faults here: $complaints"
for unit in "$work"/deb/lib/systemd/system/*.service; do
    name=$(basename "$unit")
    # The program is where the package was unpacked.
    sed "s#/usr/bin/headwater#$work/deb&#" "$unit" >"$work/units/$name"
    complaints=$(systemd-analyze verify --man=no "$work/units/$name" 2>&1 | grep -F "${name%.service}" || true)
    [ -z "$complaints" ] || fail "$complaints"
    systemd-analyze security --offline=true --threshold=$EXPOSURE_MAX "$unit" >/dev/null || fail "$name exposes its service too much"
done
echo "check: $(basename "$deb"): lintian finds no error; $(ls "$work"/deb/lib/systemd/system | wc -l) units are valid"

image=$(echo "$1"/headwater_*.oci.tar)
[ -f "$image" ] || fail "no image in $1"
bytes=$(stat -c %s "$image")
[ "$bytes" -le $IMAGE_BYTES_MAX ] || fail "the image has $bytes bytes, at most $IMAGE_BYTES_MAX are allowed"
mkdir "$work/oci" "$work/root"
tar -C "$work/oci" -xf "$image"
# The names of docker's manifest lead to the layer that a runtime unpacks.
layer=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["Layers"][0])' "$work/oci/manifest.json")
tar -C "$work/root" -xzf "$work/oci/$layer"
files=$(find "$work/root" -type f -printf '%P\n')
[ "$files" = usr/bin/headwater ] || fail "the image has other files than the command: $files"
said=$(chroot "$work/root" /usr/bin/headwater doctor --interface lo 2>&1) || fail "doctor ends with $? in the image: $said"
echo "check: $(basename "$image"): $bytes bytes; doctor runs:"
sed 's/^/    /' <<<"$said"
