#!/usr/bin/env bash
# Builds everything of a release: sources, Debian package, OCI image, wheel, packages for cargo, a bill of materials (CycloneDX), and
# SHA256SUMS. The same commit gives the same bytes; --check builds all of it twice, in two clones, compares, and tries
# the packages by packaging/check.sh.
#
#   packaging/release.sh [--check] [FOLDER]
#
# The release goes to FOLDER (default: target/release-VERSION). The commit that is checked out is built, not the files of the folder.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/help.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CYCLONEDX=0.5.9

is_check=
if [ "${1:-}" = --check ]; then
    is_check=yes
    shift
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
out=$(realpath -m "${1:-target/release-$version}")
grep -qE "^## \[($version|Unreleased)\]" CHANGELOG.md || {
    echo "release: CHANGELOG.md has no section for $version" >&2
    exit 1
}
cargo cyclonedx --version >/dev/null 2>&1 || cargo install --locked --quiet "cargo-cyclonedx@$CYCLONEDX"

# Each build has a clone of its own, of this commit. Paths do not go into programs.
commit=$(git rev-parse HEAD)
build() {
    local clone=$1/headwater-$version out=$2
    git clone --quiet --no-hardlinks . "$clone"
    git -C "$clone" checkout --quiet --detach "$commit"
    (
        cd "$clone"
        SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
        export SOURCE_DATE_EPOCH CARGO_TARGET_DIR=$1/target CARGO_INCREMENTAL=0
        export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$1=/build --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
        git archive --format=tar --prefix="headwater-$version/" HEAD | gzip -9n >"$out/headwater-$version.tar.gz"
        cargo build --locked --release -p headwater-cli -p headwater-lab
        packaging/deb.sh --binary "$CARGO_TARGET_DIR/release/headwater" "$out"
        packaging/wheel.sh --binaries "$CARGO_TARGET_DIR/release" "$out"
        packaging/oci.sh "$out"
        cargo package --quiet --locked --no-verify -p headwater-wire -p headwater-fec -p headwater-media -p headwater-proto -p headwater -p headwater-web -p headwater-cli
        cp "$CARGO_TARGET_DIR"/package/*.crate "$out"
        cargo cyclonedx --quiet --manifest-path crates/cli/Cargo.toml --format json --override-filename "headwater-$version.cdx"
        # Identifiers of the clone's packages have its path.
        sed "s#$1#/build#g" "crates/cli/headwater-$version.cdx.json" >"$out/headwater-$version.cdx.json"
    )
    (cd "$out" && rm -f SHA256SUMS && sha256sum -- * >"$2/SHA256SUMS")
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/one"
build "$work/one" "$out"
if [ -n "$is_check" ]; then
    mkdir -p "$work/another/out"
    build "$work/another" "$work/another/out"
    diff "$out/SHA256SUMS" "$work/another/out/SHA256SUMS" || {
        echo "release: two builds of one commit differ" >&2
        exit 1
    }
    echo "release: two builds of one commit are equal"
    packaging/check.sh "$out"
fi
ls -l "$out"
