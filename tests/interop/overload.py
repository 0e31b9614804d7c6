"""Senders that are asked for more than the machine can send: the receiver is whole, and the sender says what it sends instead.

  sender === veth pair, offloads on === receiver

usage: overload.py BINARY [--full] [PART...]

The parts of the default demand, in which the sender sends what a receiver asks for, judge that it is whole with a bounded loss, and that the
sender warns once at most; the others that it does warn, too.

parts: levels two three rate six
"""

import filecmp
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import parts
from network import Failed, Network, require_root

MB = 1_000_000
# Far more than either end needs alone on two cores: the machine may do other things.
PATIENCE_SECONDS = 120
# Part of the packets that a receiver of many levels may lose, all in its own machine: it leaves the levels that the machine does not read.
LOST_MAX = 0.1
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


def transfer(binary, folder, options, asked, megabytes, lost_max=1.0):
    """One file to one receiver at a rate beyond the machine's; what must hold."""
    file = content(folder, megabytes)
    with tempfile.TemporaryDirectory(dir=folder) as work, Network("hwover") as network:
        work = Path(work)
        network.add_host("sender")
        network.add_host("receiver")
        network.add_pair("sender", "receiver", "10.86.0", offloads=True)
        common = ["--json", "--interface", "eth0"]
        command = [*parts.NICE, binary, "receive", *common, "--out", work / "in", "--timeout", "60s"]
        receiver = network.start("receiver", "receive", work, command)
        receiver.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
        began = time.monotonic()
        sender = network.start("sender", "send", work, [*parts.NICE, binary, "send", *common, *options, file])
        is_whole = receiver.end(PATIENCE_SECONDS) == 0
        seconds = time.monotonic() - began
        if not is_demanded(options):
            # Short files may be whole before the sender knows.
            until = time.monotonic() + 10
            while not limited(sender.events()) and time.monotonic() < until:
                time.sleep(0.1)
        sender.signal(signal.SIGINT)
        sender.end()
        is_same = is_whole and filecmp.cmp(file, work / "in" / file.name, shallow=False)
        ended = receiver.events()[-1]
        lost = ended["lost"] / max(1, ended["lost"] + ended["packets"])
        print(
            f"  {' '.join(options)}: whole after {seconds:.1f} s, {100 * lost:.1f} % of {ended['lost'] + ended['packets']} packets lost, "
            f"{ended['kernel_drops']} dropped at the receiver's socket, highest rate {highest_rate(sender) / 1e9:.2f} Gbit/s, "
            f"said {[event['rate'] for event in limited(sender.events())]}",
            flush=True,
        )
        return [
            ("the receiver is whole", is_same),
            (f"at most {lost_max:.0%} of the packets are lost", lost <= lost_max),
            *said(sender, options, asked),
        ]


def said(sender, options, asked):
    """What must hold of what a sender says."""
    events = limited(sender.events())
    warned = sender.complaint().count("this machine cannot send")
    yield "it warns once if it logs that it sends less", warned == min(1, len(events))
    holds = all(event["asked"] == asked for event in events) and all(event["rate"] < asked for event in events[:1])
    yield "what it says is less than what was asked for", holds
    if not is_demanded(options):
        yield "the sender logs what it sends, or sends what it was asked for", bool(events) or highest_rate(sender) >= NEARLY * asked


def is_demanded(options):
    """Whether the sender follows what receivers ask for."""
    return "--rate" not in options and "--demand" not in options


def highest_rate(sender):
    """Highest rate that a sender has reported after its start, in bit/s."""
    rates = [event["rate"] for event in sender.events() if event["event"] == "session:progress"][10:]
    return max(rates, default=0)


def levels(binary, folder, full):
    """All levels of the default control up to 10 Gbit/s."""
    return transfer(binary, folder, ["--demand", "off", "--max-rate", "10G"], 10_000_000_000, 1_000 if full else 60, LOST_MAX)


def two(binary, folder, full):
    """The default control and demand up to 2 Gbit/s."""
    return transfer(binary, folder, ["--max-rate", "2G"], 2_000_000_000, 1_000 if full else 200, LOST_MAX)


def three(binary, folder, full):
    """The default control and demand up to 3 Gbit/s."""
    return transfer(binary, folder, ["--max-rate", "3G"], 3_000_000_000, 1_000 if full else 200, LOST_MAX)


def rate(binary, folder, full):
    """One rate of 13 Gbit/s."""
    return transfer(binary, folder, ["--rate", "13G"], 13_000_000_000, 1_000 if full else 200)


def six(binary, folder, full):
    """One rate of 6 Gbit/s."""
    return transfer(binary, folder, ["--rate", "6G"], 6_000_000_000, 1_000 if full else 200)


PARTS = {part.__name__: part for part in (levels, two, three, rate, six)}


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
