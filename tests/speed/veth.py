"""How fast Headwater, its peers and bare loops of system calls move a file over a veth pair: one table for each part.

All take turns in each round, so that another load on the machine slows all alike; the median of the rounds counts. A
program whose rate is given runs at the one, of RATES, at which its receiver is done soonest. Goodput is content over the
time from the first data on the receiver's interface until the file is whole under its final name; processor time is all
that a program took from start to end, hashing and set-up included, with what the kernel did in its name.
"""

import argparse
import filecmp
import os
import random
import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from contenders import GB, PACKET_BYTES, SYMBOL_BYTES, Bare, Headwater, Norm, Udpcast, Uftp
from network import LOOK_SECONDS, Failed, Network, check, require_root

PARTS = ("pairs", "alone", "completion", "receivers")
# Rates tried, in percent of what the bare pair carries. The search ends where more brings less than FALLING of the best.
RATES = (15, 25, 40, 55, 70, 85, 100, 130, 170, 250, 400)
FALLING = 0.8
# A transfer that takes longer than it would at this rate, and this long beside, has failed.
RATE_LEAST_BITS = 100_000_000
SET_UP_SECONDS = 10
# Data, not announcements: more than any program sends before the content.
DATA_BYTES = 100_000
COMPLETION_RATE_BITS, COMPLETION_LOSS_PERCENT = 1_000_000_000, 0.5
# What the project asks for.
PAIR_LEAST, SEGMENTED_LEAST, LOSS_LEAST, ALONE_LEAST = 0.7, 1.0, 0.5, 0.5
COMPLETION_MOST, SPREAD_MOST = 1.06, 0.10
SENDER_GROWTH_MOST = 1.1


@dataclass
class Transfer:
    """What a transfer came to; processor time in seconds per GB of content."""

    seconds: list[float]
    bits: float
    sender_cpu: float
    receiver_cpu: float


class Bed:
    """A sender's and a receiver's host, and the content."""

    def __init__(self, network, binary, folder, megabytes):
        self.network, self.binary, self.folder = network, binary, folder
        network.add_host("sender")
        network.add_host("receiver")
        network.add_pair("sender", "receiver", "10.88.0", offloads=False)
        self.content = make_content(folder / "content.bin", megabytes)
        self.bytes = self.content.stat().st_size

    def set_offloads(self, on):
        for host in ("sender", "receiver"):
            self.network.set_offloads(host, on)

    def transfer(self, contender, rate_bits, receivers=1):
        """One file to so many receivers; `None` when one of them does not get it."""
        for number in range(1, receivers + 1):
            shutil.rmtree(contender.result(number).parent, ignore_errors=True)
            contender.result(number).parent.mkdir()
        receiving = [contender.receive(number) for number in range(1, receivers + 1)]
        try:
            self.wait_until_listening(contender, receiving)
            before = receiving[0].received_bytes()
            sender = contender.send(rate_bits, receivers)
            seconds = self.watch(contender, sender, receiving, before)
            if seconds is None:
                return None
            contender.stop_sender(sender)
            for receiver in receiving:
                contender.stop_receiver(receiver)
            for number in range(1, receivers + 1):
                same = filecmp.cmp(self.content, contender.result(number), shallow=False)
                check(same, f"{contender.name}: the file that receiver {number} wrote differs")
            cpu = [program.cpu_seconds * GB / self.bytes for program in (sender, *receiving)]
            return Transfer(seconds, self.bytes * 8 / max(seconds), cpu[0], statistics.mean(cpu[1:]))
        finally:
            for program in self.network.programs:
                program.kill()
            self.network.programs.clear()

    def wait_until_listening(self, contender, receiving):
        until = time.monotonic() + SET_UP_SECONDS
        while not contender.is_listening(receiving):
            for receiver in receiving:
                check(not receiver.has_ended(), f"{receiver.name} ended: {receiver.complaint()}")
            check(time.monotonic() < until, f"{contender.name}: the receivers do not join")
            time.sleep(LOOK_SECONDS)

    def watch(self, contender, sender, receiving, before):
        """Seconds from the first data until each receiver has the file; `None` when one does not get it."""
        until = time.monotonic() + SET_UP_SECONDS + self.bytes * 8 / RATE_LEAST_BITS
        interface = open(f"/proc/{receiving[0].process.pid}/net/dev")
        began, ended = None, {}
        while len(ended) < len(receiving):
            now = time.monotonic()
            if began is None and eth0_bytes(interface) > before + DATA_BYTES:
                began = now
            for number, receiver in enumerate(receiving, start=1):
                if number in ended:
                    continue
                if self.is_whole(contender.result(number)):
                    ended[number] = now
                elif receiver.has_ended() and not self.is_whole(contender.result(number)):
                    return None
            if now > until:
                return None
            sender.has_ended()
            time.sleep(LOOK_SECONDS)
        return [at - began for at in ended.values()]

    def is_whole(self, file):
        try:
            return file.stat().st_size == self.bytes
        except FileNotFoundError:
            return False

    def best_rate(self, contender, bare_bits):
        """The rate at which the receiver is done soonest, in bit/s."""
        best, best_bits = int(bare_bits * RATES[0] / 100), 0.0
        for percent in RATES if contender.rates else ():
            rate = int(bare_bits * percent / 100)
            # What is better than all before must be so twice: close to what the receiver can take, luck decides.
            bits = self.bits_at(contender, rate)
            if bits > best_bits:
                bits = min(bits, self.bits_at(contender, rate))
            if bits > best_bits:
                best, best_bits = rate, bits
            elif bits < FALLING * best_bits:
                break
        return best

    def bits_at(self, contender, rate_bits):
        """Bit/s of one transfer at a rate; 0 when it fails."""
        transfer = self.transfer(contender, rate_bits)
        return transfer.bits if transfer else 0.0


def eth0_bytes(interface):
    interface.seek(0)
    return int(interface.read().split("eth0:")[1].split()[0])


def make_content(path, megabytes):
    """A file that is the same in every run."""
    chance = random.Random(megabytes)
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(chance.randbytes(1_000_000))
    return path


def pairs(bed, options):
    """One sender, one receiver: ours, peers and bare loops."""
    for on in (False, True):
        bed.set_offloads(on)
        measure_pairs(bed, options, f"offloads {'on' if on else 'off'}", 0, SEGMENTED_LEAST if on else PAIR_LEAST)
    bed.set_offloads(False)
    bed.network.set_loss("receiver", 1)
    measure_pairs(bed, options, "offloads off, 1 % loss", 1, LOSS_LEAST)
    bed.network.set_loss("receiver", 0)


def contenders(bed, options):
    ours = [Headwater(bed, "Headwater, no code", "--fec", "none"), Headwater(bed, "Headwater, RaptorQ")]
    peers = [Uftp(bed, "UFTP"), Udpcast(bed, "udpcast"), Norm(bed, "NORM")]
    return ours + (peers if options.peers else [])


def measure_pairs(bed, options, title, loss_percent, least):
    single, segmented = Bare(bed, "bare sendmmsg, recvmmsg", False), Bare(bed, "bare GSO, GRO", True)
    all_of_them = contenders(bed, options)
    bare_bits = single.pair(options.seconds)[0]
    rates = {contender.name: bed.best_rate(contender, bare_bits) for contender in all_of_them}
    rounds = {name: [] for name in (single.name, segmented.name, *rates)}
    for _ in range(options.rounds):
        for bare in (single, segmented):
            rounds[bare.name].append(bare.pair(options.seconds))
        for contender in all_of_them:
            transfer = bed.transfer(contender, rates[contender.name])
            numbers = (transfer.bits, transfer.sender_cpu, transfer.receiver_cpu) if transfer else (0.0, None, None)
            rounds[contender.name].append(numbers)
    medians = {name: sorted(numbers, key=lambda n: n[0])[len(numbers) // 2] for name, numbers in rounds.items()}
    reference = medians[single.name][0]
    rows = []
    for name, (bits, *cpu) in medians.items():
        rate = f"{rates[name] / 1e9:.2f}" if name in rates else ""
        if None in cpu:
            rows.append((name, rate, "failed", "", "", "", ""))
        else:
            shares = (f"{bits / 1e9:.2f}", f"{bits / reference:.2f}", *(f"{value:.2f}" for value in (*cpu, sum(cpu))))
            rows.append((name, rate, *shares))
    heading(f"One sender, one receiver, {title}")
    table(("", "rate", "Gbit/s", "of bare", "CPU s/GB sender", "receiver", "both"), rows)
    judge_pairs(medians, reference, title, least)


def judge_pairs(medians, reference, title, least):
    ours = medians["Headwater, RaptorQ"]
    verdict(f"RaptorQ, {title}: of the bare pair", ours[0] / reference, least, at_least=True)
    if "loss" in title:
        return
    for name in ("UFTP", "udpcast", "NORM"):
        if name not in medians:
            continue
        theirs = medians[name]
        if None in theirs:
            print(f"- {name}, {title}: did not deliver; nothing to compare")
            continue
        verdict(f"RaptorQ, {title}: speed of {name}", ours[0] / theirs[0], 1.0, at_least=True)
        if None not in ours:
            verdict(f"RaptorQ, {title}: CPU per GB of {name}", sum(ours[1:]) / sum(theirs[1:]), 1.0, at_least=False)


def alone(bed, options):
    """A sender that nobody listens to, as fast as it can."""
    for on in (False, True):
        bed.set_offloads(on)
        measure_alone(bed, options, f"offloads {'on' if on else 'off'}")


def measure_alone(bed, options, title):
    ours = [Headwater(bed, "Headwater, no code", "--fec", "none"), Headwater(bed, "Headwater, RaptorQ")]
    bare = Bare(bed, "bare GSO", True)
    rounds = {name.name: [] for name in (bare, *ours)}
    for _ in range(options.rounds):
        rounds[bare.name].append(bare.alone(options.seconds))
        for contender in ours:
            rounds[contender.name].append(send_alone(contender, options.seconds))
    medians = {name: sorted(numbers)[len(numbers) // 2] for name, numbers in rounds.items()}
    reference = medians[bare.name][0]
    heading(f"A sender alone, {title}")
    rows = [(name, f"{b / 1e9:.2f}", f"{b / reference:.2f}", f"{cpu:.2f}") for name, (b, cpu) in medians.items()]
    table(("", "Gbit/s", "of bare GSO", "CPU s/GB"), rows)
    verdict(f"RaptorQ alone, {title}: of a bare GSO sender", medians[ours[1].name][0] / reference, ALONE_LEAST, True)


def send_alone(contender, seconds):
    sender = contender.send_options("--rate", "1000G", "--duration", f"{seconds}s")
    check(sender.end() == 0, f"{sender.name}: {sender.complaint()}")
    events = sender.events()
    started = next(event["time"] for event in events if event["event"] == "session:started")
    ended = events[-1]
    # Set-up and hashing come before the start: here they would hide the rest, so this is all CPU over what was sent.
    return ended["bytes"] * 8000 / (ended["time"] - started), sender.cpu_seconds * GB / ended["bytes"]


def completion(bed, options):
    """How soon a receiver has the file at a fixed rate with loss, over what no code could beat."""
    bed.set_offloads(False)
    bed.network.set_loss("receiver", COMPLETION_LOSS_PERCENT)
    orders = [("as it comes",)]
    if "--order" in bed.network.run("sender", bed.binary, "send", "--help"):
        orders = [("window", "--order", "window"), ("spread", "--order", "spread")]
    ideal = -(-bed.bytes // SYMBOL_BYTES) * PACKET_BYTES * 8 / COMPLETION_RATE_BITS / (1 - COMPLETION_LOSS_PERCENT / 100)
    took = {name: [] for name, *_ in orders}
    for _ in range(options.rounds):
        for name, *order in orders:
            transfer = bed.transfer(Headwater(bed, name, *order), COMPLETION_RATE_BITS)
            took[name].append(transfer.seconds[0] if transfer else float("inf"))
    bed.network.set_loss("receiver", 0)
    heading(f"Completion at 1 Gbit/s, {COMPLETION_LOSS_PERCENT} % loss: {bed.bytes / 1e6:.0f} MB, ideally {ideal:.2f} s")
    ratios = {name: statistics.median(seconds) / ideal for name, seconds in took.items()}
    rows = [(name, f"{ratios[name] * ideal:.2f}", f"{ratios[name]:.3f}") for name in took]
    table(("order", "seconds", "over ideal"), rows)
    verdict("completion over ideal", ratios[orders[0][0]], COMPLETION_MOST, at_least=False)


def receivers(bed, options):
    """What more receivers cost the sender, and how far apart they finish."""
    bed.set_offloads(False)
    counts = (1, 2, 5)
    # Frames are handed over by the receivers' own kernel thread, or a sender on the same machine pays for every copy.
    # veth has such threads only while it coalesces; without GSO on the way there is little to coalesce.
    bed.network.run("receiver", "ethtool", "-K", "eth0", "gro", "on")
    bed.network.run("receiver", "sh", "-c", "echo 1 >/sys/class/net/eth0/threaded")
    rounds = {count: [] for count in counts}
    for _ in range(options.rounds):
        for count in counts:
            transfer = bed.transfer(Headwater(bed, "Headwater, RaptorQ"), options.shared_rate, count)
            check(transfer, f"{count} receivers: not all got the file at {options.shared_rate} bit/s")
            rounds[count].append((transfer.sender_cpu, spread(transfer.seconds)))
    bed.network.run("receiver", "sh", "-c", "echo 0 >/sys/class/net/eth0/threaded")
    cpu = {count: statistics.median(sender for sender, _ in rounds[count]) for count in counts}
    apart = {count: statistics.median(far for _, far in rounds[count]) for count in counts}
    heading(f"Receivers on one host at {options.shared_rate / 1e6:.0f} Mbit/s")
    rows = [(count, f"{cpu[count]:.2f}", f"{100 * apart[count]:.1f} %") for count in counts]
    table(("receivers", "CPU s/GB sender", "last after first"), rows)
    verdict("sender's CPU per GB with 5 receivers over 1", cpu[5] / cpu[1], SENDER_GROWTH_MOST, at_least=False)
    verdict("five receivers finish within", apart[5], SPREAD_MOST, at_least=False)


def spread(seconds):
    return max(seconds) / min(seconds) - 1


def heading(title):
    print(f"\n### {title}\n\nLoad average at the end: {os.getloadavg()[0]:.2f}\n")


def table(titles, rows):
    rows = [titles, *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |", flush=True)
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print()


def verdict(what, measured, limit, at_least):
    holds = measured >= limit if at_least else measured <= limit
    bound = f"{'at least' if at_least else 'at most'} {limit}"
    print(f"- {what}: {measured:.3f}, {bound}: {'holds' if holds else '**MISSED**'}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="tests/speed/veth.sh", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--binary", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--megabytes", type=int, default=256, help="content in MB (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the median counts (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=2, help="of each bare loop (default %(default)s)")
    parser.add_argument("--shared-rate", type=int, default=200_000_000, help="bit/s to many receivers (default %(default)s)")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="leave UFTP, udpcast and NORM out")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    peers = ("uftp", "uftpd", "udp-sender", "udp-receiver") if options.peers else ()
    require_root("ip", "tc", "ethtool", *peers)
    try:
        with Network("hwspeed") as network:
            bed = Bed(network, options.binary, options.folder, options.megabytes)
            print(f"{os.cpu_count()} cores, Linux {os.uname().release}, load average {os.getloadavg()[0]:.2f} at the start")
            for part in options.parts or PARTS:
                globals()[part](bed, options)
    except Failed as failure:
        raise SystemExit(f"speed: {failure}") from None


if __name__ == "__main__":
    main()
