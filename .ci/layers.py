#!/usr/bin/env python3
"""Checks the direction of dependencies and the purity of the protocol crates.

    product (crates/):  wire, fec <- proto <- headwater <- cli
    laboratory (lab/):  proto <- netsim <- testbed, and lab/cli may use all of them

Direction is read from what each Cargo.toml declares, of every kind (normal, dev, build), so that a test
cannot turn an arrow round either. Purity is read from what Cargo resolves for one pure crate alone:
in the whole workspace, features that other crates ask for would be mixed in.
"""

import json
import subprocess
import sys

# Crate -> the workspace crates it may depend on. A new crate is added here when it is added to the workspace.
MAY_USE = {
    "headwater-wire": set(),
    "headwater-fec": set(),
    "headwater-proto": {"headwater-wire", "headwater-fec"},
    "headwater-netsim": {"headwater-wire", "headwater-fec", "headwater-proto"},
    "headwater": {"headwater-wire", "headwater-fec", "headwater-proto"},
    "headwater-testbed": {"headwater-proto", "headwater-netsim"},
    "headwater-cli": {"headwater-wire", "headwater-fec", "headwater-proto", "headwater"},
}
for end in ("headwater-lab", "headwater-python"):
    MAY_USE[end] = set(MAY_USE)

PURE = ["headwater-wire", "headwater-fec", "headwater-proto", "headwater-netsim"]
# Built for wasm, a crate may hide what it does on a real machine behind cfg: both are looked at.
TARGETS = ["wasm32-unknown-unknown", "x86_64-unknown-linux-gnu"]
IMPURE = {
    "getrandom": "entropy",
    "rand_os": "entropy",
    "fastrand": "entropy",
    "ahash": "entropy (hash seeds)",
    "chrono": "a clock",
    "quanta": "a clock",
    "time": "a clock",
    "web-time": "a clock",
    "mio": "sockets",
    "quinn-udp": "sockets",
    "socket2": "sockets",
    "rustix": "system calls",
    "nix": "system calls",
    "async-std": "an async runtime",
    "smol": "an async runtime",
    "tokio": "an async runtime",
    "crossbeam-channel": "threads",
    "rayon": "threads",
    "rayon-core": "threads",
}


def cargo(*args):
    """The standard output of a cargo command; its errors go to the terminal."""
    return subprocess.run(["cargo", *args], check=True, stdout=subprocess.PIPE, text=True).stdout


def wrong_arrows(packages):
    """Problems with the direction of dependencies between workspace crates."""
    names = {package["name"] for package in packages}
    for package in packages:
        name = package["name"]
        if name not in MAY_USE:
            yield f"{name} has no place in the layers: add it to MAY_USE in {__file__}"
            continue
        for dependency in package["dependencies"]:
            used = dependency["name"]
            if used in names and used != name and used not in MAY_USE[name]:
                yield f"{name} depends on {used} ({dependency['kind'] or 'normal'}): the layers forbid it"


def impure_dependencies():
    """Crates in reach of the pure crates that bring a clock, a socket, a thread or entropy."""
    for crate in PURE:
        for target in TARGETS:
            tree = cargo("tree", "--locked", "--package", crate, "--edges", "normal", "--target", target,
                         "--prefix", "none", "--format", "{p}")
            for used in sorted({line.split()[0] for line in tree.splitlines() if line}):
                if used in IMPURE:
                    yield f"{crate} reaches {used} on {target}, which brings {IMPURE[used]}"


def main():
    metadata = json.loads(cargo("metadata", "--locked", "--no-deps", "--format-version", "1"))
    packages = metadata["packages"]
    missing = [f"{name} is not in the workspace" for name in PURE if name not in {p["name"] for p in packages}]
    problems = missing or [*wrong_arrows(packages), *impure_dependencies()]
    for problem in problems:
        print(f"layers: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"layers: {len(packages)} crates in their layers; {', '.join(PURE)} reach nothing impure")


if __name__ == "__main__":
    main()
