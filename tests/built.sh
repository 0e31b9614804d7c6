# Read by scripts that stand in the tree's root: HEADWATER and LAB are the commands to test. Set already, they are taken as they are; else
# both are built. LAB runs the `headwater` that stands beside it.
if [ -z "${HEADWATER:-}" ] || [ -z "${LAB:-}" ]; then
    cargo build --locked --release -p headwater-cli -p headwater-lab
    HEADWATER=${HEADWATER:-$(realpath "${CARGO_TARGET_DIR:-target}/release/headwater")}
    LAB=${LAB:-$(realpath "${CARGO_TARGET_DIR:-target}/release/headwater-lab")}
fi
