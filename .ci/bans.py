#!/usr/bin/env python3
"""Proves that the bans of clippy.toml bite, and that no pure crate escapes them.

A throwaway crate uses every banned path once: clippy must refuse it and name each of them. A ban without a
line in USES fails, so a misspelt path, which clippy would silently never match, cannot stay.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PURE = ["wire", "fec", "proto", "media"]

# Banned path -> a Rust item body that uses it.
USES = {
    "std::time::Instant::now": "let _ = std::time::Instant::now();",
    "std::time::Instant::elapsed": "let _ = std::time::Instant::elapsed;",
    "std::time::SystemTime::now": "let _ = std::time::SystemTime::now();",
    "std::time::SystemTime::elapsed": "let _ = std::time::SystemTime::elapsed;",
    "std::thread::spawn": "std::thread::spawn(|| ());",
    "std::thread::scope": "std::thread::scope(|_| ());",
    "std::thread::sleep": "let _ = std::thread::sleep;",
    "std::thread::Builder::spawn": "let _ = std::thread::Builder::new().spawn(|| ());",
    "std::fs::File::open": 'let _ = std::fs::File::open("");',
    "std::fs::File::create": 'let _ = std::fs::File::create("");',
    "std::fs::OpenOptions::open": 'let _ = std::fs::OpenOptions::new().open("");',
    "std::fs::read": 'let _ = std::fs::read("");',
    "std::fs::read_to_string": 'let _ = std::fs::read_to_string("");',
    "std::fs::write": 'let _ = std::fs::write("", "");',
    "std::env::args": "let _ = std::env::args();",
    "std::env::var": 'let _ = std::env::var("");',
    "std::env::var_os": 'let _ = std::env::var_os("");',
    "std::process::id": "let _ = std::process::id();",
    "std::process::Command::new": 'let _ = std::process::Command::new("");',
    "std::net::UdpSocket": "let _: Option<std::net::UdpSocket> = None;",
    "std::net::TcpStream": "let _: Option<std::net::TcpStream> = None;",
    "std::net::TcpListener": "let _: Option<std::net::TcpListener> = None;",
    "std::net::ToSocketAddrs::to_socket_addrs":
        'let _ = std::net::ToSocketAddrs::to_socket_addrs("");',
    "std::collections::HashMap": "let _: Option<std::collections::HashMap<u8, u8>> = None;",
    "std::collections::HashSet": "let _: Option<std::collections::HashSet<u8>> = None;",
    "std::hash::RandomState": "let _: Option<std::hash::RandomState> = None;",
    "std::time::Instant": "let _: Option<std::time::Instant> = None;",
    "std::time::SystemTime": "let _: Option<std::time::SystemTime> = None;",
}

MANIFEST = """[package]
name = "purity-probe"
edition = "2024"
[workspace]
"""


def banned_paths():
    """Every path that the root clippy.toml bans."""
    config = tomllib.loads((ROOT / "clippy.toml").read_text())
    return [ban["path"] for key in ("disallowed-methods", "disallowed-types") for ban in config[key]]


def clippy_on(body):
    """Exit code and messages of clippy, warnings as errors, on a crate whose one function has this body."""
    with tempfile.TemporaryDirectory() as folder:
        crate = pathlib.Path(folder)
        (crate / "src").mkdir()
        (crate / "Cargo.toml").write_text(MANIFEST)
        (crate / "src/lib.rs").write_text(f"//! Probe.\n\n/// Probe.\npub fn probe() {{\n{body}\n}}\n")
        environment = {**os.environ, "CLIPPY_CONF_DIR": str(ROOT), "CARGO_TARGET_DIR": str(crate / "target")}
        done = subprocess.run(["cargo", "clippy", "--quiet", "--offline", "--", "-D", "warnings"], cwd=crate,
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def toothless_bans():
    """Bans that the probe cannot show to bite."""
    banned = banned_paths()
    untried = [path for path in banned if path not in USES]
    if untried:
        return [f"{path} is banned, but USES has no line that tries it" for path in untried]
    code, output = clippy_on("let _ = 1 + 1;")
    if code != 0:
        return [f"the innocent probe is refused too, so a refusal proves nothing:\n{output}"]
    code, output = clippy_on("\n".join(USES[path] for path in banned))
    named = set(re.findall(r"use of a disallowed (?:method|type) `([^`]+)`", output))
    problems = [f"{path} is banned, but clippy let it pass:\n{output}" for path in banned if path not in named]
    if code == 0:
        problems.append("clippy accepted a crate that uses every banned path")
    return problems


def escapes():
    """Ways by which a pure crate would not meet the bans."""
    for name in PURE:
        crate = ROOT / "crates" / name
        for own in ("clippy.toml", ".clippy.toml"):
            if (crate / own).exists():
                yield f"{crate / own} hides the bans of the root clippy.toml"
        if not tomllib.loads((crate / "Cargo.toml").read_text()).get("lints", {}).get("workspace"):
            yield f"{crate / 'Cargo.toml'} does not take the workspace's lints"
        for source in sorted((crate / "src").rglob("*.rs")):
            if "clippy::disallowed_" in source.read_text():
                yield f"{source} excepts itself from a ban"


def main():
    problems = [*escapes(), *toothless_bans()]
    for problem in problems:
        print(f"bans: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"bans: clippy refuses all {len(banned_paths())} banned paths; {', '.join(PURE)} are under them")


if __name__ == "__main__":
    main()
