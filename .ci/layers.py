#!/usr/bin/env python3
"""Checks the direction of dependencies, between crates and inside `proto`, and the purity of the protocol crates.

    product (crates/):  wire, fec <- proto <- headwater <- web <- cli, fec <- media <- cli
    laboratory (lab/):  proto <- baselines <- netsim <- testbed, and lab/cli may use all of them

Direction is read from what each Cargo.toml declares, of every kind (normal, dev, build), so that a test
cannot turn an arrow round either. Purity is read from what Cargo resolves for one pure crate alone:
in the whole workspace, features that other crates ask for would be mixed in.

A congestion control is a folder and an entry in `proto/src/controls/mod.rs`: few other production files may name it.

Inside `proto`, a top-level module may import only modules that stand before it in PROTO_MODULES, so that no cycle can
arise. Unit tests are exempt: tests of a control drive it through `delivery` and `described`, which stand above it.
"""

import json
import pathlib
import re
import subprocess
import sys

# Crate -> the workspace crates it may depend on. A new crate is added here when it is added to the workspace.
MAY_USE = {
    "headwater-wire": set(),
    "headwater-fec": set(),
    "headwater-proto": {"headwater-wire", "headwater-fec"},
    "headwater-baselines": {"headwater-wire", "headwater-proto"},
    "headwater-netsim": {"headwater-wire", "headwater-fec", "headwater-proto", "headwater-baselines"},
    "headwater": {"headwater-wire", "headwater-fec", "headwater-proto"},
    "headwater-media": {"headwater-fec"},
    "headwater-web": {"headwater-proto", "headwater"},
    "headwater-testbed": {"headwater-proto", "headwater-netsim"},
    "headwater-attacks": {"headwater-wire"},
    "headwater-cli": {"headwater-wire", "headwater-fec", "headwater-proto", "headwater", "headwater-media", "headwater-web"},
}
for end in ("headwater-lab", "headwater-python"):
    MAY_USE[end] = set(MAY_USE)

# The crate with an async runtime, and the runtime's crates.
ASYNC_CRATE = "headwater-web"
ASYNC = {"async-std", "axum", "hyper", "hyper-util", "smol", "tokio"}

# Top-level modules of `proto`, from the bottom up. Neither the seam (`control`) nor `delivery` and `stream` can name a
# control, because all controls stand above them.
PROTO_MODULES = [
    "time", "rate", "rng", "machine", "measure", "pacing", "queue", "egress", "admission", "rtt", "roster", "amt", "auth", "crypt",
    "control", "layering", "delivery", "stream",
    "fixed", "m2c", "webrc", "flid", "sim", "le_sbcc", "pgm", "bcfs", "rainbow",
    "controls", "described", "eventlog",
]
PROTO = pathlib.Path(__file__).resolve().parent.parent / "crates/proto/src"
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*([;{])")

# Most production files outside a control's folders that may name the control, the table included.
NAMED_MOST = 3
# Controls whose names mean something else, too: LE-SBCC is a control of `headwater pgm` with options of its own, `--sim` is
# an option of relays, and "fixed" stands for the lack of a control. These bounds may fall, never rise.
NAMED_MORE = {"LE_SBCC": 4, "SIM": 4, "FIXED": 13}
# Folders of `proto` that are a control's own, where their name is not that of the control.
CONTROL_FOLDERS = {"FLID_DL": ["flid"], "LE_SBCC": ["le_sbcc", "pgm"], "DEDICATED": ["fixed"]}

PURE = ["headwater-wire", "headwater-fec", "headwater-proto", "headwater-media", "headwater-baselines", "headwater-netsim"]
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
            if used in ASYNC and name != ASYNC_CRATE:
                yield f"{name} depends on {used}: {ASYNC_CRATE} alone has an async runtime"
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


def group_end(code, start):
    """Index behind the brace that closes the one at `start`."""
    depth = 0
    for index in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[index], 0)
        if depth == 0:
            return index + 1
    return len(code)


def production_code(path):
    """Code of a file without comments and unit tests, and the names of its test modules in files of their own."""
    code = re.sub(r"//[^\n]*", "", path.read_text())
    tests = []
    while found := TEST_MODULE.search(code):
        if found[2] == ";":
            tests.append(found[1])
        end = found.end() if found[2] == ";" else group_end(code, found.end() - 1)
        code = code[: found.start()] + "\n" * code.count("\n", found.start(), end) + code[end:]
    return code, tests


def production_files(path, module, crate=PROTO):
    """A module's files with their code and their depth below the crate, without unit tests. lib.rs is at depth 0."""
    code, tests = production_code(path)
    yield path, code, len(module)
    folder = crate.joinpath(*module)
    for name in re.findall(r"\bmod\s+(\w+)\s*;", code):
        if name not in tests:
            inner = folder / f"{name}.rs"
            inner = inner if inner.exists() else folder / name / "mod.rs"
            yield from production_files(inner, [*module, name], crate)


def names_at_root(code, depth):
    """Names that code takes from the root of the crate, each with its line."""
    root = re.compile(r"(?<![\w:])(?:crate::|" + "super::" * depth + r"(?!super))(\w+|\{)")
    for found in root.finditer(code):
        names = [found[1]]
        if found[1] == "{":
            group = code[found.end() : group_end(code, found.end() - 1) - 1]
            while "{" in group:
                group = re.sub(r"\{[^{}]*\}", "", group)
            names = re.findall(r"(?:^|,)\s*(\w+)", group)
        for name in names:
            yield name, code.count("\n", 0, found.start()) + 1


def wrong_imports():
    """Imports between top-level modules of `proto` that run against PROTO_MODULES."""
    files = list(production_files(PROTO / "lib.rs", []))
    root = files[0][1]
    modules = set(re.findall(r"\bmod\s+(\w+)\s*;", root))
    for name in sorted(modules.symmetric_difference(PROTO_MODULES)):
        yield f"module {name} of headwater-proto and PROTO_MODULES in {__file__} do not agree"
    home = {}
    for module, names in re.findall(r"pub use (\w+)::\{?([^;}]*)\}?;", root):
        home.update((name, module) for name in re.findall(r"\w+", names))
    place = {name: index for index, name in enumerate(PROTO_MODULES)}
    for path, code, depth in files[1:]:
        user = path.relative_to(PROTO).parts[0].removesuffix(".rs")
        for name, line in names_at_root(code, depth):
            used = home.get(name, name)
            if place.get(used, 0) > place.get(user, len(place)):
                yield f"{path.relative_to(PROTO)}:{line}: {user} imports {used}, which stands above it in PROTO_MODULES"


def controls_named_elsewhere():
    """Controls that too many production files name: by their word, by their entry, or by their variant."""
    root = PROTO.parent.parent.parent
    table = (PROTO / "controls/mod.rs").read_text()
    entries = re.findall(r"\w+", re.search(r"CONTROLS: &\[Control\] =\s+&\[([^\]]*)\]", table)[1])
    sources = {}
    for crate in sorted([*root.glob("crates/*/src"), *root.glob("lab/*/src")]):
        for start in (crate / "lib.rs", crate / "main.rs"):
            if start.exists():
                sources.update((path, code) for path, code, _ in production_files(start, [], crate))
    for entry in entries:
        word, variant = entry.lower().replace("_", "-"), entry.title().replace("_", "")
        folders = [PROTO / folder for folder in CONTROL_FOLDERS.get(entry, [entry.lower()])]
        named = re.compile(rf'"{word}"|\b(?:controls::|pub const ){entry}\b|\bCongestionControl::{variant}\b')
        own = re.compile(rf"\benum CongestionControl\b.*\bSelf::{variant}\b", re.DOTALL)
        most = NAMED_MORE.get(entry, NAMED_MOST)
        files = [
            str(path.relative_to(root)) for path, code in sources.items()
            if (named.search(code) or own.search(code)) and not any(path.is_relative_to(folder) for folder in folders)
        ]
        if len(files) > most:
            yield f"{len(files)} production files name {word}, at most {most} may: {', '.join(files)}"


def main():
    metadata = json.loads(cargo("metadata", "--locked", "--no-deps", "--format-version", "1"))
    packages = metadata["packages"]
    missing = [f"{name} is not in the workspace" for name in PURE if name not in {p["name"] for p in packages}]
    problems = missing or [*wrong_arrows(packages), *wrong_imports(), *controls_named_elsewhere(), *impure_dependencies()]
    for problem in problems:
        print(f"layers: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"layers: {len(packages)} crates and {len(PROTO_MODULES)} modules of proto in their layers; {', '.join(PURE)} reach nothing impure")


if __name__ == "__main__":
    main()
