"""Loss in bursts at 1 Gbit/s: the receiver is whole; with --full within 1.3 times the packets that no order can undercut.

  sender === veth pair, 10 % lost in bursts on arrival === receiver

Bursts and the gaps between them are exponential (Gilbert). Counted are packets sent, over content / 0.9: on a busy machine a
second says little. The short form judges that the file arrives, and shows the rest: beside builds two transfers of six took 1.9 and 2.1 times the least, with duplicates. The full form,
on a quiet machine, judges both limits; until nothing is missing against the loss of the run if that was more than 10 %.

usage: bursts.py BINARY [--full] [PART...]

parts: short (256 MB, bursts of 10 and 30 ms) long (1 GB, 10 to 300 ms) large (10.7 GB, 100 ms, from disk to disk, in $SCRATCH or /var/tmp: 40 GB); by
default the short one
"""

import os
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import parts
from network import Failed, Hole, Network, check, require_root

MB = 1_000_000
RATE = "1G"
LOSS = 0.1
LIMIT = 1.3
# Content, received content, symbols in slots, and the sender's repair symbols: at most so many times the content.
DISK_TIMES = 3.7
# Few bursts fall into a short session, and where they fall decides.
SHORT_LIMIT = 1.6
PATIENCE_SECONDS = 400
LARGE = 10_700


class Bursts:
    """Drops all that arrives at a host, burst after burst, until it is left."""

    def __init__(self, network, host, mean_seconds, seed):
        self.hole = Hole(network, host)
        self.mean_seconds, self.draw = mean_seconds, random.Random(seed)
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        self.hole.__exit__()

    def run(self):
        at, is_bad = time.monotonic(), False
        while not self.is_over.is_set():
            mean = self.mean_seconds if is_bad else self.mean_seconds * (1 - LOSS) / LOSS
            at += self.draw.expovariate(1 / mean)
            self.is_over.wait(max(0.0, at - time.monotonic()))
            is_bad = not is_bad
            self.hole.set(is_bad)


def content(folder, megabytes):
    """Noise that is repeated: no code gains by that. Holes would not be sent."""
    file = folder / f"{megabytes}.bin"
    if not file.exists():
        noise = random.Random(megabytes).randbytes(16 * MB + 3)
        left = megabytes * MB
        with open(file, "wb") as out:
            while left > 0:
                left -= out.write(noise[:left])
            out.flush()
            os.fsync(out.fileno())
    return file


def transfer(binary, folder, megabytes, burst_seconds, seed, limit):
    """One file to one receiver; what must hold."""
    file = content(folder, megabytes)
    with tempfile.TemporaryDirectory(dir=folder) as work, Network("hwburst") as network:
        work = Path(work)
        network.add_host("sender")
        network.add_host("receiver")
        network.add_pair("sender", "receiver", "10.85.0", offloads=True)
        common = ["--json", "--interface", "eth0"]
        receiver = network.start("receiver", "receive", work, [binary, "receive", *common, "--out", work / "in", "--timeout", "60s"])
        receiver.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
        with Bursts(network, "receiver", burst_seconds, seed):
            sender = network.start("sender", "send", work, ["env", f"TMPDIR={work}", binary, "send", *common, "--rate", RATE, file])
            is_whole = receiver.end(PATIENCE_SECONDS) == 0
        sender.kill()
        events = receiver.events()
        ended = events[-1]
        check(is_whole and "lost" in ended, f"the receiver is not whole: {receiver.complaint()}")
        began = next(event["time"] for event in events if event["event"] == "session:found")
        # As the receiver counts them, until it needs no more: without what a burst of more than 2^15 packets takes.
        needed = ended["packets"] + ended["lost"]
        loss = ended["lost"] / needed
        # As the sender counts them, ten times a second, until the file has its name: with the time that the last blocks take.
        reports = [event for event in sender.events() if event["event"] == "session:progress" and event["time"] <= ended["time"]]
        check(reports, "the sender says nothing")
        # The payload share of the session: a signed packet carries fewer bytes.
        symbols = ended["symbols_total"]
        over, whole = needed * (1 - max(LOSS, loss)) / symbols, reports[-1]["packets"] * (1 - LOSS) / symbols
        print(
            f"  {megabytes} MB, bursts of {1e3 * burst_seconds:.0f} ms, seed {seed}: {over:.3f} of the least packets until nothing was missing, "
            f"{whole:.3f} until it was whole, after {(ended['time'] - began) / 1e3:.1f} s; {100 * loss:.1f} % lost, {ended['duplicates']} duplicates, "
            f"{ended['surplus']} surplus, {ended['kernel_drops']} dropped at the socket",
            flush=True,
        )
        about = f"{megabytes} MB, bursts of {1e3 * burst_seconds:.0f} ms"
        return [
            (f"{about}: the file arrives", True),
            (f"{about}: nothing is missing within {limit} of the least", over <= limit, parts.BUSY),
            (f"{about}: whole within {limit} of the least", whole <= limit, parts.BUSY),
        ]


def short(binary, folder, _full):
    """256 MB, bursts of 10 and 30 ms."""
    return [line for burst in (0.01, 0.03) for line in transfer(binary, folder, 256, burst, 1, SHORT_LIMIT)]


def long(binary, folder, full):
    """1 GB, bursts of 10, 30, 100 and 300 ms; the last is beyond what window order bears, and is shown only."""
    seeds = range(1, 4 if full else 2)
    held = [line for burst in (0.01, 0.03, 0.1) for seed in seeds for line in transfer(binary, folder, 1_000, burst, seed, LIMIT)]
    for seed in seeds:
        transfer(binary, folder, 1_000, 0.3, seed, LIMIT)
    return held


def large(binary, _folder, _full):
    """10.7 GB from disk to disk, bursts of 100 ms."""
    with tempfile.TemporaryDirectory(prefix="headwater-bursts-", dir=os.environ.get("SCRATCH", "/var/tmp")) as folder:
        check(shutil.disk_usage(folder).free >= DISK_TIMES * LARGE * MB, f"{folder} lacks room for {DISK_TIMES} times {LARGE} MB")
        return transfer(binary, Path(folder), LARGE, 0.1, 1, LIMIT)


PARTS = {part.__name__: part for part in (short, long, large)}


def main():
    options = parts.chosen(PARTS, "fixed")
    require_root("ip", "ethtool", "tc")
    with tempfile.TemporaryDirectory(prefix="headwater-bursts-", dir="/dev/shm") as folder:
        def call(part):
            return part(options.binary, Path(folder), options.full)
        return parts.run(PARTS, options.parts or ["short"], "over a veth pair", call, options.full)


if __name__ == "__main__":
    try:
        if missed := main():
            sys.exit("bursts: missed " + "; ".join(missed))
    except Failed as error:
        sys.exit(f"bursts: {error}")
