# Arguments of a package's script: sets `binary` (empty without --binary), `out`, `version` and SOURCE_DATE_EPOCH. Sourced
# at the root of the checkout.
binary=
if [ "${1:-}" = --binary ]; then
    binary=$(realpath "$2")
    shift 2
fi
out=$(realpath -m "${1:-target/packages}")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
