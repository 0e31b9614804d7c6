#!/usr/bin/env bash
# The Windows program under Wine: makes keys; then transfers over the loopback interface, also with the
# program of Linux if given. Wine 8 refuses an option that quinn-udp reads of each socket (IPV6_V6ONLY of an IPv4 socket),
# so that no transfer can be tried there, and the last line says so.
#
#   tests/wine.sh HEADWATER.EXE [HEADWATER]
set -euo pipefail

GROUP=239.255.72.91:7291
exe=$(realpath "$1")
linux=${2:+$(realpath "$2")}
wine=$(command -v wine64 || command -v wine || echo /usr/lib/wine/wine64)
folder=$(mktemp -d)
export WINEPREFIX=$folder/prefix WINEDEBUG=${WINEDEBUG:--all} WINEDLLOVERRIDES="mscoree,mshtml="
export XDG_STATE_HOME=$folder/state XDG_CONFIG_HOME=$folder/config

at_exit() {
    local code=$? pid
    for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
    if [ $code != 0 ]; then tail -n 20 "$folder"/*.log; fi
    "$(dirname "$wine")/wineserver" -k 2>/dev/null || wineserver -k 2>/dev/null || true
    rm -rf "$folder"
}
trap at_exit EXIT

# transfer NAME SENDER... -- RECEIVER...: both get the folder's files.
transfer() {
    local name=$1 sender=() receiver
    shift
    while [ "$1" != -- ]; do sender+=("$1") && shift; done
    shift
    receiver=("$@")
    mkdir "$folder/$name"
    (cd "$folder" && "${receiver[@]}" receive --interface 127.0.0.1 --group "$GROUP" --out "$name" --timeout 90s --quiet >"$name-receive.log" 2>&1) &
    local receiving=$!
    (cd "$folder" && "${sender[@]}" send --interface 127.0.0.1 --group "$GROUP" --rate 20M --until 1 --quiet source >"$name-send.log" 2>&1) &
    local sending=$!
    if ! wait $receiving && grep -q "report addresses and ECN" "$folder/$name-receive.log"; then
        kill $sending 2>/dev/null || true
        echo "wine: NOT RUN: transfers: this Wine refuses options of sockets"
        exit 0
    fi
    wait $sending
    diff -r "$folder/source" "$folder/$name/source"
    echo "wine: $name: the copies are identical"
}

# Wine before version 9 lacks a library that the standard library of Rust takes random numbers from.
mkdir -p "$folder/program" "$folder/source/deep"
cp "$exe" "$folder/program/headwater.exe"
exe=$folder/program/headwater.exe
x86_64-w64-mingw32-gcc -shared -O1 -x c - -o "$folder/program/bcryptprimitives.dll" -ladvapi32 <<'SOURCE'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T bytes) { return SystemFunction036(data, (ULONG)bytes); }
SOURCE
head -c 3000000 /dev/urandom >"$folder/source/one"
head -c 1234 /dev/urandom >"$folder/source/deep/two"
: >"$folder/source/empty"
"$wine" "$exe" --version
(cd "$folder" && "$wine" "$exe" keygen wine.key && grep -q ssh-ed25519 wine.key.pub)
echo "wine: a key was made"
env -u XDG_STATE_HOME -u XDG_CONFIG_HOME "$wine" "$exe" keygen >"$folder/keygen.log" 2>&1
[ -n "$(find "$WINEPREFIX/drive_c/users" -path '*/.config/headwater/id_ed25519.pub')" ]
echo "wine: without variables, a key was made in the home folder"
transfer windows-to-windows "$wine" "$exe" -- "$wine" "$exe"
if [ -n "$linux" ]; then
    transfer windows-to-linux "$wine" "$exe" -- "$linux"
    transfer linux-to-windows "$linux" -- "$wine" "$exe"
fi
