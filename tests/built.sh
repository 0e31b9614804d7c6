# Read by scripts that stand in the tree's root: HEADWATER and LAB are the commands to test. Set already, they are taken as they are; else
# both are built. LAB runs the `headwater` that stands beside it.
if [ -z "${HEADWATER:-}" ] || [ -z "${LAB:-}" ]; then
    # The Python package is named for its features: its wheel then has the same libraries, compiled once.
    cargo build --locked --release -p headwater-cli -p headwater-lab -p headwater-python --bin headwater --bin headwater-lab
    HEADWATER=${HEADWATER:-$(realpath "${CARGO_TARGET_DIR:-target}/release/headwater")}
    LAB=${LAB:-$(realpath "${CARGO_TARGET_DIR:-target}/release/headwater-lab")}
fi
