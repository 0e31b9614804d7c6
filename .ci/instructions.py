"""Counts the instructions of the hot paths for each packet, by callgrind, and compares them with .ci/instructions.toml.

A path that takes more than TOLERANCE above its bound fails. A path that takes less than TOLERANCE below its bound asks for a lower
bound: bounds only fall. Counts do not depend on the load of the machine; a new compiler may move them.

usage: instructions.py [--write]
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

BOUNDS = Path(__file__).with_name("instructions.toml")
TOLERANCE = 0.05
SESSIONS = ("fixed", "layers")
PATHS = {"send": "counted_send", "receive": "counted_receive"}


def count(binary, session, folder):
    """Instructions for each packet, by path."""
    data = f"{folder}/{session}"
    toggles = [f"--toggle-collect=*{function}*" for function in PATHS.values()]
    words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={data}", *toggles, binary, session]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    sent, received = map(int, re.match(r"(\d+) sent, (\d+) received", ran.stdout).groups())
    table = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", data], capture_output=True, text=True, check=True)
    counts = {}
    for path, packets in (("send", sent), ("receive", received)):
        found = re.search(rf"^\s*([\d,]+) .*{PATHS[path]}", table.stdout, re.MULTILINE)
        counts[f"{path}-{session}"] = round(int(found[1].replace(",", "")) / packets)
    return counts


def main():
    # Beside the packages of the other release builds, so that the libraries have the same features and are compiled once.
    beside = [word for package in ("cli", "lab", "python", "netsim") for word in ("-p", f"headwater-{package}")]
    build = ["cargo", "build", "--locked", "--release", *beside, "-p", "headwater-proto", "--example", "hot_paths", "--message-format=json"]
    # Optimisation across crates moves the counts.
    environment = os.environ | {"CARGO_PROFILE_RELEASE_LTO": "off"}
    built = subprocess.run(build, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    binary = re.findall(r'"executable":"([^"]*hot_paths)"', built.stdout)[-1]
    bounds = tomllib.loads(BOUNDS.read_text()) if BOUNDS.exists() else {}
    counts = {}
    with tempfile.TemporaryDirectory() as folder:
        for session in SESSIONS:
            counts |= count(binary, session, folder)
    failed = False
    for path, instructions in counts.items():
        bound = bounds.get(path, 0)
        verdict = "within the bound"
        if instructions > bound * (1 + TOLERANCE):
            failed, verdict = True, "ABOVE THE BOUND"
        elif instructions < bound * (1 - TOLERANCE):
            verdict = "below the bound: lower the bound in .ci/instructions.toml (--write)"
        print(f"{path}: {instructions} instructions a packet, bound {bound}: {verdict}")
    if "--write" in sys.argv:
        lines = [f"{path} = {instructions}\n" for path, instructions in counts.items()]
        BOUNDS.write_text("# Instructions for each packet, counted by instructions.py: no more than 5 % above.\n" + "".join(lines))
    elif failed:
        sys.exit("instructions: a hot path takes more instructions than its bound")


if __name__ == "__main__":
    main()
