#!/usr/bin/env bash
# Builds an OCI image of the statically linked command alone, as an archive for `docker load` or `podman load`. The same
# sources and SOURCE_DATE_EPOCH give the same bytes.
#
#   packaging/oci.sh [--binary FILE] [FOLDER]
#
# The image goes to FOLDER (default: target/packages). --binary takes a static program that is built already.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/help.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. packaging/common.sh
if [ -z "$binary" ]; then
    # A target of its own, so that build scripts and macros are not linked statically.
    triple=$(rustc -vV | sed -n 's/^host: //p')
    RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" cargo build --locked --release -p headwater-cli --target "$triple"
    binary=$(realpath "${CARGO_TARGET_DIR:-target}/$triple/release/headwater")
fi
mkdir -p "$out"
python3 packaging/oci.py "$binary" "$version" "$out/headwater_$version.oci.tar"
