#!/usr/bin/env bash
# Every check of Headwater, for people and for .ci/run. `./ci.sh --help` lists them.
# A step that lacks a tool installs it and says so; no step is ever skipped for want of a tool.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

STEPS=(fmt prose clippy docs wasm test instructions macos windows python verdict deny fuzz interop)
PRODUCT=(-p headwater-wire -p headwater-fec -p headwater-proto -p headwater-media -p headwater -p headwater-web -p headwater-cli)
PURE=(-p headwater-wire -p headwater-fec -p headwater-proto -p headwater-media)
WASM=wasm32-unknown-unknown
# Features are those of all named packages together. Named beside each other in every release build, these have their libraries compiled
# once; the Python package's own build has the same.
RELEASED=(-p headwater-cli -p headwater-lab -p headwater-python)
CARGO_DENY=0.20.2
MKDOCS_MATERIAL=9.8.2

export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin:/usr/sbin:/sbin"
# A run from clean gains nothing from incremental builds, which double the size of target/; line numbers of
# backtraces and optimisation across crates take minutes.
if [ "${CI:-}" = true ]; then export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_LTO=off; fi

usage() {
    cat <<EOF
usage: ./ci.sh [STEP...]

  fmt      the code is formatted
  prose    comments keep to the language of CONTRIBUTING.md, as far as .ci/prose.toml has it
  clippy   no warnings; crates depend in one direction; clippy refuses clocks, sockets, threads in the pure crates
  docs     links, captions and lengths of the pages; the Rust documentation builds without warnings
  wasm     the pure crates build for $WASM
  test     cargo test --workspace, the trace digests again in release, and the tests of sockets with HEADWATER_PORTABLE=1
  instructions  a packet takes at most 5 % more instructions on the hot paths than .ci/instructions.toml has (callgrind)
  macos    cargo check of the product crates for macOS; reported as not run where no standard library can be had
  windows  the same for Windows; with mingw-w64 the command is linked, and with Wine run
  python   the wheel is built, installed in a fresh environment, and tested; types by mypy --strict
  verdict  every published value has a criterion with a day and a reason; the experiments run in their short form and give their tables
  deny     licences, bans and sources of the dependencies; advisories when their database can be had
  fuzz     every fuzz target for FUZZ_SECONDS (default 10)
  interop  tests/interop/*.sh: stock tshark, namespaces with lossy receivers, ZeroMQ's subscribers, run-time faults, video in Chromium, and the attacks of tests/attacks
  long     the forms that take too long for each change: queues by theory, resumption with every code, loss in bursts,
           overload, each in full, memory of a receiver of video, virtual machines that boot by PXE; not part of all
  explore  the property tests with SEEDS (default 10) seeds of their own; not part of all, whose seed is fixed
  site     the pages and the Rust documentation as a site in target/site; not part of all
  all      all of these in this order (also without any argument)

Exit code: 0 all passed, 2 unknown step, otherwise that of the step that failed.
EOF
}

say() { echo "ci: $*"; }

die() {
    echo "ci: $*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# ---- steps ----------------------------------------------------------------------------------------------------

step_fmt() {
    need_component rustfmt
    cargo fmt --all --check
    # Its own workspace, because it needs compiler flags that the others must not have.
    cargo fmt --manifest-path fuzz/Cargo.toml --check
}

step_prose() {
    have python3 || need_apt python3
    python3 .ci/prose.py
}

step_clippy() {
    need_component clippy
    have python3 || need_apt python3
    python3 .ci/layers.py
    python3 .ci/bans.py
    cargo clippy --locked --workspace --all-targets -- -D warnings
}

step_docs() {
    have python3 || need_apt python3
    python3 .ci/docs.py
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
}

step_site() {
    local target=${CARGO_TARGET_DIR:-target}
    local python=$target/site-tools/bin/python
    if ! "$python" -c 'import material' 2>/dev/null; then
        have python3 || need_apt python3
        python3 -c 'import ensurepip' 2>/dev/null || need_apt python3-venv
        say "installing mkdocs-material $MKDOCS_MATERIAL (pip)"
        python3 -m venv "$target/site-tools"
        "$python" -m pip install --quiet --disable-pip-version-check "mkdocs-material==$MKDOCS_MATERIAL"
    fi
    cargo doc --locked --workspace --no-deps
    NO_MKDOCS_2_WARNING=1 "$python" .ci/site.py "$target/doc"
}

step_wasm() {
    local -x RUSTFLAGS="${RUSTFLAGS:-} -D warnings"
    if has_std $WASM || add_std $WASM; then
        cargo build --locked "${PURE[@]}" --target $WASM
    elif [ -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
        say "no $WASM standard library can be had: building it from rust-src"
        RUSTC_BOOTSTRAP=1 cargo build --locked -Z build-std=std,panic_abort "${PURE[@]}" --target $WASM
    else
        die "no standard library for $WASM: run 'rustup target add $WASM'," \
            "or add the component rust-src, with a network that reaches the Rust release server"
    fi
}

step_test() {
    tests_log=$scratch/test.log
    have strace || need_apt strace
    have python3 || need_apt python3
    beside test
    # Debug and release must put the same bytes on the wire, and the simulator must do the same in both.
    local packages=("${RELEASED[@]}" -p headwater-proto -p headwater-netsim)
    cargo test --locked --release "${packages[@]}" --test trace 2>&1 | tee -a "$tests_log"
    cargo test --locked --release "${packages[@]}" --test engine traces 2>&1 | tee -a "$tests_log"
}

step_macos() {
    local target
    for target in aarch64-apple-darwin x86_64-apple-darwin; do
        has_std $target || add_std $target || {
            notes+=("macos: NOT RUN for $target: its standard library cannot be had (rustup target add $target)")
            continue
        }
        check_for $target
    done
}

step_windows() {
    local target=x86_64-pc-windows-gnu
    has_std $target || add_std $target || {
        notes+=("windows: NOT RUN: the standard library of $target cannot be had (rustup target add $target)")
        return 0
    }
    if have x86_64-w64-mingw32-gcc || (need_apt gcc-mingw-w64-x86-64); then
        RUSTFLAGS="${RUSTFLAGS:-} -D warnings" cargo build --locked --target $target -p headwater-cli
    else
        check_for $target
        notes+=("windows: not linked, mingw-w64 cannot be installed")
        return 0
    fi
    if have wine64 || have wine || [ -x /usr/lib/wine/wine64 ] || (need_apt wine64); then
        bash tests/wine.sh "${CARGO_TARGET_DIR:-target}/$target/debug/headwater.exe" | tee "$scratch/wine.log"
        notes+=("windows: built, not run on Windows; $(tail -n 1 "$scratch/wine.log")")
    else
        notes+=("windows: built and NOT RUN: Wine cannot be installed")
    fi
}

step_instructions() {
    have python3 || need_apt python3
    have valgrind || need_apt valgrind
    python3 .ci/instructions.py
}

step_python() {
    have python3 || need_apt python3
    python3 -c 'import venv, ensurepip' 2>/dev/null || need_apt python3-venv
    have strip || need_apt binutils
    . tests/built.sh
    packaging/wheel.sh --binaries "$(dirname "$HEADWATER")" "$scratch/wheel"
    local venv=$scratch/venv wheels=("$scratch"/wheel/*.whl)
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${wheels[0]}[test]"
    # A large wheel, and not on every platform.
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${wheels[0]}[ray]" ||
        notes+=("python: Ray cannot be installed, sweeps were not tried on it")
    export XDG_STATE_HOME="$scratch/state" XDG_CONFIG_HOME="$scratch/config"
    "$venv/bin/pytest" -q -p no:cacheprovider -c python/pyproject.toml python/tests
    # From another folder: in the checkout, the sources would take the place of the installed package.
    (cd "$scratch" && venv/bin/pytest -q -p no:cacheprovider --doctest-modules --pyargs headwater)
    (cd python && "$venv/bin/mypy" --strict --cache-dir "$scratch/mypy" headwater examples)
    "$venv/bin/python" python/examples/weights.py --interface lo
    notes+=("python: the wheel of $(cd "$scratch/wheel" && du -h *.whl | cut -f1) with $("$venv/bin/python" --version)")
}

# A failure prints its seed: run it again with PROPTEST_RNG_SEED in front of the command that is shown.
step_verdict() {
    have python3 || need_apt python3
    python3 lab/experiments/test_check.py
    python3 lab/experiments/verdict.py --check --out "$scratch"
    # The release build, which the interop step needs too, simulates several times as fast as the debug build.
    . tests/built.sh
    # Whether the numbers hold is for the full form to say.
    python3 lab/experiments/verdict.py --form short --lab "$LAB" --out "$scratch"
    python3 lab/experiments/verdict.py --check --form short --out "$scratch"
}

step_long() {
    HEADWATER_LONG=1 cargo test --locked --release -p headwater-proto --lib reports_stay_few -- --nocapture
    HEADWATER_LONG=1 cargo test --locked --release -p headwater-proto --test roster a_hundred_thousand -- --nocapture
    HEADWATER_LONG=1 cargo test --locked --release -p headwater-proto --test roster_mutations -- --nocapture
    HEADWATER_LONG=1 cargo test --locked --release -p headwater-netsim --test theory queues_are -- --nocapture
    . tests/built.sh
    bash tests/interop/resume.sh --long
    bash tests/interop/bursts.sh --full
    bash tests/interop/overload.sh --full
    bash tests/interop/video.sh memory
    for package in qemu-system-x86 ipxe-qemu dnsmasq-base busybox-static cpio kmod; do
        (need_apt "$package") || notes+=("long: $package cannot be installed, machines that boot from the network were not tried")
    done
    bash packaging/pxe/boot.sh
}

step_explore() {
    local seed
    for seed in $(shuf -i 1-4294967295 -n "${SEEDS:-10}"); do
        say "explore: PROPTEST_RNG_SEED=$seed cargo test --locked --workspace --lib --tests"
        PROPTEST_RNG_SEED=$seed cargo test --locked --workspace --lib --tests
    done
}

step_deny() {
    have cargo-deny || need_cargo cargo-deny "$CARGO_DENY"
    cargo deny --locked check bans licenses sources
    if timeout 120 cargo deny fetch db >/dev/null 2>&1; then
        cargo deny --locked check --disable-fetch advisories
    else
        say "ADVISORIES WERE NOT CHECKED: their database cannot be reached from here"
        notes+=("deny: advisories not checked, their database cannot be reached")
    fi
}

step_fuzz() {
    have python3 || need_apt python3
    beside fuzz
}

step_interop() {
    have tshark || need_apt tshark
    have tcpdump || need_apt tcpdump
    have strace || need_apt strace
    have systemd-analyze || need_apt systemd
    have ip || need_apt iproute2
    have ethtool || need_apt ethtool
    have nginx || need_apt nginx-light
    # Without it sessions of many rates run over bridges instead of routers.
    [ -x /usr/lib/frr/pimd ] || (need_apt frr) || notes+=("interop: FRR cannot be installed, bridges were used")
    # Without it AMT is tried with messages by hand instead of another implementation.
    [ -e /usr/include/event.h ] || (need_apt libevent-dev) || notes+=("interop: libevent cannot be installed, AMT's other implementation was left out")
    # Without these video is not played.
    local program
    for program in ffmpeg chromium mpv; do
        have $program || (need_apt $program) || notes+=("interop: $program cannot be installed, the job video (tests/interop/video.sh) was not run in full")
    done
    [ -x /usr/bin/time ] || need_apt time
    have python3 || need_apt python3
    /usr/bin/python3 -c 'import zmq' 2>/dev/null || need_apt python3-zmq
    # Built once, before the scripts look.
    . tests/built.sh
    cargo build --locked --release "${RELEASED[@]}" -p headwater-attacks --bin headwater-forger
    cargo build --locked --workspace --bin headwater --example sample_capture --example sample_pgm
    export HEADWATER LAB
    beside interop
}

# ---- helpers of the steps -------------------------------------------------------------------------------------

# beside STEP: runs the jobs of a step beside each other, and takes over their notes.
beside() {
    python3 .ci/beside.py "$1" "$scratch/$1" 2>&1 | tee "$scratch/$1.log"
    mapfile -t -O ${#notes[@]} notes <"$scratch/$1/notes"
}

# check_for TARGET: `cargo check` of the product crates. Nothing is linked, so that dependencies' C code needs
# no compiler of the target: a stand-in makes empty objects.
check_for() {
    local name=${1//-/_}
    env "CC_$name=$PWD/.ci/no-cc" SDKROOT=/ RUSTFLAGS="${RUSTFLAGS:-} -D warnings" \
        cargo check --locked --target "$1" "${PRODUCT[@]}"
}

# has_std TARGET
has_std() { [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ]; }

# add_std TARGET
add_std() {
    have rustup || return 1
    say "adding the target $1 (rustup)"
    rustup target add "$1" && has_std "$1"
}

# need_component NAME: NAME is rustfmt or clippy, cargo's own commands are `fmt` and `clippy`.
need_component() {
    if cargo "${1#rust}" --version >/dev/null 2>&1; then return; fi
    have rustup || die "$1 is missing and there is no rustup to add it: install the Rust toolchain with rustup"
    say "adding the component $1 (rustup)"
    rustup component add "$1"
}

# need_cargo CRATE VERSION: unoptimised, because building the tool takes longer than its work.
need_cargo() {
    say "installing $1 $2 (cargo install)"
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0 \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 cargo install --quiet --locked "$1@$2"
}

need_apt() {
    local sudo=()
    if [ "$(id -u)" != 0 ]; then
        have sudo || die "$1 is missing, and installing it needs root or sudo"
        sudo=(sudo)
    fi
    say "installing $1 (apt)"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

# ---- running them ---------------------------------------------------------------------------------------------

step=
scratch=
tests_log=
notes=()
table=()

run_step() {
    local started=$SECONDS
    step=$1
    printf '\n==== %s\n' "$step"
    "step_$step"
    table+=("$(printf '%-12s ok %5d s' "$step" $((SECONDS - started)))")
    printf '==== %s: ok, %d s\n' "$step" $((SECONDS - started))
    step=
}

# Called on any exit: names the step that failed, if one did, and the times of those before.
at_exit() {
    local code=$?
    rm -rf "$scratch"
    if [ -n "$step" ]; then
        printf '%s\n' ${table[@]+"${table[@]}"}
        printf '\n==== %s: FAILED (exit code %d) after %d s in all\n' "$step" "$code" "$SECONDS" >&2
    fi
}

# The sum over all test binaries, in one line that a reader, or a program, can take for the whole.
tests_total() {
    awk '/^test result:/ { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) passed += $(i - 1)
                                                      if ($i ~ /^failed/) failed += $(i - 1)
                                                      if ($i ~ /^ignored/) ignored += $(i - 1) } }
         END { printf "tests: %d passed, %d failed, %d skipped\n", passed, failed, ignored }' "$tests_log"
    grep '^not run: ' "$tests_log" | sort | uniq -c || true
}

summary() {
    printf '\n==== summary\n'
    printf '%s\n' "${table[@]}"
    for note in ${notes[@]+"${notes[@]}"}; do echo "note: $note"; done
    printf 'total           %5d s\n' "$SECONDS"
    if [ -n "$tests_log" ]; then tests_total; fi
}

main() {
    local wanted=() name
    for name in "${@:-all}"; do
        case $name in
        -h | --help)
            usage
            exit 0
            ;;
        all) wanted+=("${STEPS[@]}") ;;
        explore | long | site) wanted+=("$name") ;;
        *)
            [[ " ${STEPS[*]} " == *" $name "* ]] || {
                echo "ci: unknown step '$name'" >&2
                usage >&2
                exit 2
            }
            wanted+=("$name")
            ;;
        esac
    done
    scratch=$(mktemp -d)
    trap at_exit EXIT
    for name in "${wanted[@]}"; do run_step "$name"; done
    summary
}

main "$@"
