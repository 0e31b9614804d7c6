#!/usr/bin/env bash
# Builds RaptorQ's driver and those of nanorq and wirehair, and runs codes.py, which says what is measured. By hand, on a quiet machine; needs
# git, make, cmake and a C++ compiler. wirehair is measured twice: as it is now, and as it was in 2023, when it decoded faster.
# NANORQ_SOURCE (with its submodule) and WIREHAIR_SOURCE name clones; without them GitHub is cloned. A library whose source is not there is not
# measured, and the script says so.
#
#   tests/speed/codes.sh [--help | codes.py's options]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

FOLDER=$(mktemp -d "${TMPDIR:-/tmp}/headwater-codes-XXXXXXXX")
trap 'rm -rf "$FOLDER"' EXIT
trap 'exit 130' INT TERM

# fetch NAME SOURCE: a clone of SOURCE, or of NAME's repository.
fetch() {
    if [ -n "$2" ]; then
        cp -a "$2" "$FOLDER/$1"
    else
        case $1 in nanorq) owner=sleepybishop ;; wirehair) owner=catid ;; esac
        GIT_TERMINAL_PROMPT=0 git clone --quiet --recurse-submodules "https://github.com/$owner/$1" "$FOLDER/$1" || {
            echo "codes.sh: $1 is NOT MEASURED: cloning https://github.com/$owner/$1 failed; ${1^^}_SOURCE may name a clone" >&2
            return 1
        }
    fi
    echo "$1 at $(git -C "$FOLDER/$1" log -1 --format='%h of %cs' HEAD)"
}

# Last commit before receivers of wirehair took fingerprints of symbols, which halves their speed.
WIREHAIR_2023=557c00c
CFLAGS="-O3 -std=gnu11 -Wall -Wextra -Werror"
drivers=()
case "$*" in
*--help*) drivers=(none=none) ;;
*)
    cargo build --locked --release -p headwater-fec --example codes
    drivers=("headwater=${CARGO_TARGET_DIR:-target}/release/examples/codes")
    if fetch nanorq "${NANORQ_SOURCE:-}"; then
        # Its own options without those that slow it: -fno-inline, -fstack-protector-all.
        flags="-D_DEFAULT_SOURCE -O3 -std=c99 -march=native -funroll-loops -ftree-vectorize"
        make -s -C "$FOLDER/nanorq/deps/oblas" clean
        make -s -C "$FOLDER/nanorq/deps/oblas" CFLAGS="$flags" CPPFLAGS="-DOBLAS_AVX -DOCTMAT_ALIGN=32"
        make -s -C "$FOLDER/nanorq" libnanorq.a CFLAGS="$flags -I. -Iinclude -Ideps/oblas"
        # shellcheck disable=SC2086
        cc $CFLAGS -I"$FOLDER/nanorq/include" -o "$FOLDER/nanorq.driver" tests/speed/nanorq.c "$FOLDER/nanorq/libnanorq.a"
        drivers+=("nanorq=$FOLDER/nanorq.driver")
    fi
    if fetch wirehair "${WIREHAIR_SOURCE:-}"; then
        git clone --quiet "$FOLDER/wirehair" "$FOLDER/wirehair-2023"
        git -C "$FOLDER/wirehair-2023" checkout --quiet "$WIREHAIR_2023"
        for name in wirehair wirehair-2023; do
            (
                cd "$FOLDER/$name"
                CXX="c++ -DNDEBUG" cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DMARCH_NATIVE=ON -DBUILD_TESTS=OFF
                cmake --build build --target wirehair
            ) >/dev/null 2>&1 || { echo "codes.sh: building $name failed" >&2 && exit 1; }
            # shellcheck disable=SC2086
            cc $CFLAGS -I"$FOLDER/$name/include" -c -o "$FOLDER/$name.o" tests/speed/wirehair.c
            c++ -o "$FOLDER/$name.driver" "$FOLDER/$name.o" "$FOLDER/$name/build/libwirehair.a" -lpthread
            drivers+=("$name=$FOLDER/$name.driver")
        done
    fi
    ;;
esac
python3 -B tests/speed/codes.py "$@" "${drivers[@]}"
