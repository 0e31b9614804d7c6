"""Sessions over the network that namespaces.sh has built, and what must hold of them.

usage: namespaces.py BINARY BED FOLDER RECEIVERS LOSS_PERCENT
"""

import filecmp
import json
import math
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import capture
from network import PATIENCE_SECONDS, Failed, Program, check

MB = 1_000_000
# The bed ends near 0.5 Gbit/s; a busy machine with two cores, well before.
RATE = 50 * MB
SYMBOL_BYTES = 1408
# The sessions are not signed: the subject is what the code needs. A receiver that waits for a signature drops
# the first second of an unsigned session.
# UDP payload that a receiver gets until it leaves, as a multiple of the least: as many packets, header and symbol, as
# the content has symbols. Counted by the receiver, and by a capture on its side of the loss: there a leave takes effect
# only when the host's report has reached the switch, tens of milliseconds later on a busy machine.
RECEIVED_MAX = 1.02
LEAVE_SECONDS_MAX = 0.2
# Symbols that a receiver needed beyond those of the content, as a share of them. Also the packets that it took beyond
# what an ideal code would have needed of what came through; there those that come during the leave are granted on top.
OVERHEAD_MAX = 0.001
# What a pass costs the sender may differ by this between one receiver and many.
SENDER_DIFFERENCE_MAX = 0.02
# Bytes captured of a packet: its headers.
SNAP_BYTES = 128


class End(Program):
    """A sender, a receiver or a capture."""

    def __init__(self, bed, host, name, arguments):
        files = bed.folder / f"{bed.session}-{host}-{name}"
        super().__init__(f"{bed.name}-{host}", f"{host}: {name}", files, arguments)
        bed.programs.append(self)

    def succeed(self):
        """Waits for exit code 0; returns the counters of the last event."""
        code = self.end()
        check(code == 0, f"{self.name} ended with {code}: {self.complaint()}")
        ended = [event for event in self.events() if event["event"] == "session:ended"]
        check(len(ended) == 1, f"{self.name} did not say how it ended: {self.complaint()}")
        return ended[0]

    def stop(self):
        self.signal(signal.SIGINT)
        self.end()


class Bed:
    """The network, and the programs that run in it."""

    def __init__(self, binary, name, folder):
        self.binary, self.name, self.folder = binary, name, Path(folder)
        self.session = ""
        self.programs = []

    def send(self, group, file, passes):
        options = ["--json", "--quiet", "--interface", "eth0", "--group", group, "--rate", RATE, "--passes", passes, "--no-sign"]
        return End(self, "sender", "send", [self.binary, "send", *options, "--symbol-size", SYMBOL_BYTES, file])

    def receive(self, number, group, source):
        out = self.folder / f"{self.session}-{number}"
        options = ["--json", "--quiet", "--interface", "eth0", "--group", group, "--timeout", "20s", "--unsigned", "--out", out]
        if source:
            options += ["--source", source]
        return End(self, f"receiver{number}", "receive", [self.binary, "receive", *options])

    def capture(self, number):
        """Captures what came through the loss to a receiver."""
        file = self.folder / f"{self.session}-{number}.pcap"
        options = ["-i", "eth0", "-s", SNAP_BYTES, "-B", 16384, "--immediate-mode", "-Z", "root", "-w", file]
        program = End(self, f"receiver{number}", "tcpdump", ["tcpdump", *options, "udp"])
        until = time.monotonic() + PATIENCE_SECONDS
        while "listening on" not in program.err.read_text():
            check(time.monotonic() < until, f"tcpdump does not start: {program.complaint()}")
            time.sleep(0.02)
        return program, file

    def sent_bytes(self):
        """Bytes of frames that the sender's interface has sent."""
        command = ["ip", "-n", f"{self.name}-sender", "-json", "-s", "link", "show", "dev", "eth0"]
        links = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return links[0]["stats64"]["tx"]["bytes"]

    def stop(self):
        for program in self.programs:
            program.stop()
        self.programs.clear()


class Session:
    """One session: a file, a group, its receivers. `late` of them come at 40 % of the first pass."""

    def __init__(self, bed, name, megabytes, receivers, passes, group="239.255.72.87:7287", source=None, late=0):
        self.bed, self.name, self.group, self.source = bed, name, group, source
        self.passes, self.late = passes, late
        self.numbers = list(range(1, receivers + 1))
        self.content = content(bed.folder / f"{name}.bin", megabytes * MB)
        self.symbols = -(-self.content.stat().st_size // SYMBOL_BYTES)

    def run(self):
        bed = self.bed
        bed.session = self.name
        captures = {number: bed.capture(number) for number in self.numbers}
        early = self.numbers[: len(self.numbers) - self.late]
        receivers = {number: self.start_receiver(number) for number in early}
        before = bed.sent_bytes()
        sender = bed.send(self.group, self.content, self.passes)
        for number in self.numbers[len(early) :]:
            sender.wait_for("40 % of a pass", lambda events: sent_symbols(events) >= 0.4 * self.symbols)
            receivers[number] = self.start_receiver(number)
        self.received = {number: receiver.succeed() for number, receiver in receivers.items()}
        self.sent = sender.succeed()
        self.sent_bytes = bed.sent_bytes() - before
        for number in self.numbers:
            self.compare(number)
        self.captured = {number: stop_capture(*captured) for number, captured in captures.items()}
        bed.stop()

    def start_receiver(self, number):
        receiver = self.bed.receive(number, self.group, self.source)
        receiver.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
        return receiver

    def compare(self, number):
        """The received file is there, alone, and the same."""
        folder = self.bed.folder / f"{self.name}-{number}"
        found = sorted(path.name for path in folder.rglob("*"))
        check(found == [self.content.name], f"receiver {number} has {found}")
        same = filecmp.cmp(self.content, folder / self.content.name, shallow=False)
        check(same, f"receiver {number}: the file differs")
        (folder / self.content.name).unlink()


def content(path, length):
    """A file that is the same in every run."""
    chance = random.Random(length)
    with open(path, "wb") as file:
        for start in range(0, length, MB):
            file.write(chance.randbytes(min(MB, length - start)))
    return path


def sent_symbols(events):
    progress = [event["symbols"] for event in events if event["event"] == "session:progress"]
    return progress[-1] if progress else 0


def stop_capture(program, file):
    program.stop()
    dropped = re.search(r"(\d+) packets? dropped by kernel", program.err.read_text())
    check(dropped and dropped[1] == "0", f"tcpdump lost packets: {program.complaint()}")
    return capture.symbols(file)


def examine(session, number, loss_percent):
    """A row of the table; raises when something does not hold."""
    received, captured = session.received[number], session.captured[number]
    who = f"{session.name}, receiver {number}"
    check(received["symbols_total"] == session.symbols, f"{who}: {received['symbols_total']} symbols announced")
    check(captured, f"{who}: nothing of the session was captured")
    packet_bytes = Counter(symbol.bytes for symbol in captured).most_common(1)[0][0]
    least = session.symbols * packet_bytes
    counted, on_wire = received["bytes"] / least, sum(symbol.bytes for symbol in captured) / least
    above_ideal = received["packets"] - ideal_packets(captured, session.symbols)
    overhead = received["useful"] / session.symbols - 1
    duplicates = len(captured) - len({(symbol.toi, symbol.sbn, symbol.esi) for symbol in captured})
    loss = received["lost"] / (received["lost"] + received["packets"])
    expected = loss_percent / 100
    deviation = math.sqrt(expected * (1 - expected) / received["packets"])

    check(counted <= RECEIVED_MAX, f"{who}: received {counted:.4f} of the least possible, more than {RECEIVED_MAX}")
    leaving = LEAVE_SECONDS_MAX * RATE / 8 / packet_bytes
    wire_max = RECEIVED_MAX + leaving / session.symbols
    check(on_wire <= wire_max, f"{who}: {on_wire:.4f} of the least possible on its wire, more than {wire_max:.4f}")
    check(0 <= overhead < OVERHEAD_MAX, f"{who}: symbol overhead of {100 * overhead:.3f} %")
    check(above_ideal <= OVERHEAD_MAX * session.symbols + leaving, f"{who}: {above_ideal} packets above the ideal")
    check(duplicates == 0, f"{who}: {duplicates} symbols came twice")
    check(received["duplicates"] == 0, f"{who}: it counted {received['duplicates']} duplicates")
    check(received["dropped"] == 0, f"{who}: {received['dropped']} datagrams dropped")
    check(loss > expected - 5 * deviation, f"{who}: lost {100 * loss:.2f} %, the bed should lose {loss_percent} %")
    shares = (f"{100 * loss:.2f} %", f"{counted:.4f}", f"{on_wire:.4f}", f"{100 * overhead:.3f} %")
    return (session.name, number, received["packets"], *shares, above_ideal, duplicates)


def ideal_packets(captured, symbols):
    """Packets of content after which every block has as many symbols as it is made of: no code can do with less."""
    blocks = max(symbol.sbn for symbol in captured) + 1
    # RFC 6330, section 4.4.1.2: the first blocks have one symbol more when the division leaves a rest.
    missing = [symbols // blocks + (sbn < symbols % blocks) for sbn in range(blocks)]
    left = symbols
    for packets, symbol in enumerate(captured, start=1):
        left -= missing[symbol.sbn] > 0
        missing[symbol.sbn] -= 1
        if left == 0:
            return packets
    raise Failed(f"{left} symbols were never on the wire")


def compare_senders(many, one):
    """What the sender spends on a pass does not depend on the number of receivers."""
    spent = [session.sent_bytes / session.passes / (session.symbols * SYMBOL_BYTES) for session in (many, one)]
    difference = spent[0] / spent[1] - 1
    with_many, with_one = f"{spent[0]:.4f} with {len(many.numbers)} receivers", f"{spent[1]:.4f} with 1"
    print(f"sender's frame bytes per byte of content and pass: {with_many}, {with_one} ({100 * difference:+.2f} %)")
    check(abs(difference) <= SENDER_DIFFERENCE_MAX, f"the sender's bytes change by {100 * difference:+.2f} %")


def table(rows):
    shares = ("loss", "bytes/least", "on wire", "overhead")
    titles = ("session", "receiver", "packets", *shares, "above ideal", "duplicates")
    rows = [titles, *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)))


def run_all(bed, receivers, loss_percent):
    many = Session(bed, "many", 100, receivers, passes=2, late=1)
    one = Session(bed, "one", 20, 1, passes=2)
    # Source-specific groups (RFC 4607): the sender's addresses are namespaces.sh's.
    ipv4 = Session(bed, "ssm-ipv4", 10, 2, passes=3, group="232.72.87.1:7287", source="10.87.0.1")
    ipv6 = Session(bed, "ssm-ipv6", 10, 2, passes=3, group="[ff35::8000:7287]:7287", source="fd87::1")
    rows = []
    for session in (many, one, ipv4, ipv6):
        session.run()
        rows += [examine(session, number, loss_percent) for number in session.numbers]
    table(rows)
    compare_senders(many, one)


def main():
    binary, name, folder, receivers, loss_percent = sys.argv[1:]
    bed = Bed(binary, name, folder)
    try:
        run_all(bed, int(receivers), float(loss_percent))
    except Failed as failure:
        sys.exit(f"namespaces: FAILED: {failure}")
    finally:
        bed.stop()


if __name__ == "__main__":
    main()
