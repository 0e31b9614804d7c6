"""Senders that are asked for more than the machine can send: the receiver is whole, and the sender says what it sends instead.

  sender === veth pair, offloads on === receiver

usage: overload.py BINARY [--full] [PART...]

parts: levels rate
"""

import filecmp
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import parts
from network import Failed, Network, check, require_root

MB = 1_000_000
# Far more than either end needs alone on two cores: the machine may do other things.
PATIENCE_SECONDS = 120
# Part of the packets that a receiver of many levels may lose in its own machine: it leaves the levels that the machine does not read.
DROPPED_MAX = 0.1
# A machine that sends this part of what was asked for need not say anything.
NEARLY = 0.7


def content(folder, megabytes):
    file = folder / f"{megabytes}.bin"
    if not file.exists():
        draw = random.Random(megabytes)
        with open(file, "wb") as out:
            for _ in range(megabytes):
                out.write(draw.randbytes(MB))
    return file


def limited(events):
    return [event for event in events if event["event"] == "rate:limited"]


def transfer(binary, folder, options, asked, megabytes, dropped_max=1.0):
    """One file to one receiver at a rate beyond the machine's; what must hold."""
    file = content(folder, megabytes)
    with tempfile.TemporaryDirectory(dir=folder) as work, Network("hwover") as network:
        work = Path(work)
        network.add_host("sender")
        network.add_host("receiver")
        network.add_pair("sender", "receiver", "10.86.0", offloads=True)
        common = ["--json", "--interface", "eth0"]
        command = [binary, "receive", *common, "--out", work / "in", "--timeout", "60s"]
        receiver = network.start("receiver", "receive", work, command)
        receiver.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
        began = time.monotonic()
        sender = network.start("sender", "send", work, [binary, "send", *common, *options, file])
        is_whole = receiver.end(PATIENCE_SECONDS) == 0
        seconds = time.monotonic() - began
        # Short files may be whole before the sender knows.
        until = time.monotonic() + 10
        while not limited(sender.events()) and time.monotonic() < until:
            time.sleep(0.1)
        sender.signal(signal.SIGINT)
        sender.end()
        said, sent, ended = limited(sender.events()), sender.events(), receiver.events()[-1]
        rates = [event["rate"] for event in sent if event["event"] == "session:progress"][10:]
        reached = max(rates, default=0)
        print(
            f"  {' '.join(options)}: whole after {seconds:.1f} s, {ended['lost']} of {ended['lost'] + ended['packets']} packets lost, "
            f"{ended['kernel_drops']} dropped at the receiver's socket, said {[event['rate'] for event in said]}",
            flush=True,
        )
        warned = sender.complaint().count("this machine cannot send")
        dropped = ended["kernel_drops"] / max(1, ended["kernel_drops"] + ended["packets"])
        return [
            ("the receiver is whole", is_whole and filecmp.cmp(file, work / "in" / file.name, shallow=False)),
            ("the sender logs what it sends, or sends what it was asked for", bool(said) or reached >= NEARLY * asked),
            ("it warns once if it logs that", warned == min(1, len(said))),
            ("what it says is less than what was asked for", all(event["asked"] == asked for event in said)
             and all(event["rate"] < asked for event in said[:1])),
            (f"at most {dropped_max:.0%} of the packets are dropped at the receiver's socket", dropped <= dropped_max),
        ]


def levels(binary, folder, full):
    """All levels of the default control up to 10 Gbit/s."""
    return transfer(binary, folder, ["--demand", "off", "--max-rate", "10G"], 10_000_000_000, 1_000 if full else 60, DROPPED_MAX)


def rate(binary, folder, full):
    """One rate of 13 Gbit/s."""
    return transfer(binary, folder, ["--rate", "13G"], 13_000_000_000, 1_000 if full else 200)


PARTS = {part.__name__: part for part in (levels, rate)}


def main():
    options = parts.chosen(PARTS, "m2c")
    require_root("ip", "ethtool")
    with tempfile.TemporaryDirectory(prefix="headwater-overload-", dir="/dev/shm") as folder:
        def call(part):
            return part(options.binary, Path(folder), options.full)
        missed = parts.run(PARTS, options.parts or list(PARTS), "over a veth pair", call, options.full)
    return missed


if __name__ == "__main__":
    try:
        if missed := main():
            sys.exit("overload: missed " + "; ".join(missed))
    except Failed as error:
        sys.exit(f"overload: {error}")
