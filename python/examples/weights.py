"""Model weights to 20 processes: one sender, each receiver verifies its copy.

    python examples/weights.py --interface lo [--processes 20] [FILE]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import headwater as hw

GROUP = "239.255.72.91:7291"


def receive(number: int, folder: Path, interface: str | None, done: multiprocessing.Queue[tuple[int, float, int]]) -> None:
    """Receives the weights in a process of its own."""
    began = time.monotonic()
    received = hw.receive(folder / str(number), group=GROUP, interface=interface, timeout=60)
    done.put((number, time.monotonic() - began, received.files[0].bytes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interface")
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("file", nargs="?", type=Path)
    options = parser.parse_args()
    # A forked process has no threads of sessions: start processes anew.
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        file: Path = options.file or folder / "weights.bin"
        if options.file is None:
            file.write_bytes(os.urandom(5_000_000))
        done: multiprocessing.Queue[tuple[int, float, int]] = context.Queue()
        arguments = (folder, options.interface, done)
        processes = [context.Process(target=receive, args=(number, *arguments)) for number in range(options.processes)]
        for process in processes:
            process.start()
        with hw.Sender(file, group=GROUP, interface=options.interface, rate="40M") as sender:
            for _ in processes:
                number, seconds, received = done.get(timeout=120)
                print(f"process {number}: {received} bytes, whole and verified after {seconds:.1f} s")
        print(f"sent {sender.progress['bytes'] / 1e6:.0f} MB for {len(processes)} copies of {file.stat().st_size / 1e6:.0f} MB")
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
