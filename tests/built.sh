# Read by scripts that stand in the tree's root: HEADWATER is the command to test. Set already, it is taken as it is; else it is built.
if [ -z "${HEADWATER:-}" ]; then
    cargo build --locked --release -p headwater-cli
    HEADWATER=$(realpath "${CARGO_TARGET_DIR:-target}/release/headwater")
fi
