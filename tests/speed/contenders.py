"""What is measured: how each program sends a file to a group, and how it receives one."""

import json
import signal
import time

from network import LOOK_SECONDS, check

GROUP, PORT = "239.255.72.90", 7390
# Bytes of content in a packet, for all; and of UDP payload, as ours has them, for bare loops.
SYMBOL_BYTES = 1408
PACKET_BYTES = 1424
# What a receiver asks of the kernel, for all: as ours does.
RECEIVE_BUFFER_BYTES = 32 << 20
GB = 1e9


class Contender:
    """A way of sending a file. `rates` tells whether a rate can, and so must, be found for it."""

    rates = True

    def __init__(self, bed, name):
        self.bed, self.name = bed, name

    def start(self, host, name, *arguments):
        return self.bed.network.start(host, name, self.bed.folder, arguments)

    def result(self, number):
        """Where the file is once it is whole."""
        return self.bed.folder / f"out-{number}" / self.bed.content.name

    def is_listening(self, receivers):
        return receivers[0].memberships(GROUP) >= len(receivers)

    def stop_sender(self, sender):
        """It knows by itself when all have the file, or is told."""
        sender.end(20)

    def stop_receiver(self, receiver):
        receiver.end(20)


class Headwater(Contender):
    """Ours. `options` go to the sender."""

    def __init__(self, bed, name, *options):
        super().__init__(bed, name)
        self.options = options

    def receive(self, number):
        where = ("--group", f"{GROUP}:{PORT}", "--interface", "eth0", "--out", self.result(number).parent)
        options = ("--timeout", "5s", "--json", "--quiet")
        return self.start("receiver", f"receive-{number}", self.bed.binary, "receive", *where, *options)

    def send(self, rate_bits, receivers):
        return self.send_options("--rate", rate_bits)

    def send_options(self, *options):
        where = ("--group", f"{GROUP}:{PORT}", "--interface", "eth0", "--temp-dir", self.bed.folder)
        # 16 bits of TSI keep the header as short as PACKET_BYTES says.
        always = ("--symbol-size", SYMBOL_BYTES, "--tsi", 7, "--json", "--quiet")
        arguments = (self.bed.binary, "send", *where, *always, *self.options, *options, self.bed.content)
        return self.start("sender", "send", *arguments)

    def stop_sender(self, sender):
        # It asks nobody: it sends until it is told to stop.
        sender.signal(signal.SIGINT)
        sender.end(20)


class Uftp(Contender):
    """UFTP: announces, sends, asks who misses what, sends that."""

    def receive(self, number):
        # A receiver's identifier, or all would be one.
        options = ("-d", "-t", "-I", "eth0", "-M", GROUP, "-p", PORT, "-B", RECEIVE_BUFFER_BYTES, "-U", f"0x{number:08X}")
        return self.start("receiver", f"uftpd-{number}", "uftpd", *options, "-D", self.result(number).parent)

    def send(self, rate_bits, receivers):
        group = ("-M", GROUP, "-P", "239.255.72.91", "-p", PORT, "-I", "eth0", "-t", 1, "-b", SYMBOL_BYTES)
        # In kbit/s. The round-trip time begins at the least it takes: 10 ms, instead of half a second.
        options = ("-R", rate_bits // 1000, "-B", RECEIVE_BUFFER_BYTES, "-r", "0.01:0.01:15")
        return self.start("sender", "uftp", "uftp", *group, *options, self.bed.content)

    def stop_receiver(self, receiver):
        receiver.signal(signal.SIGTERM)
        receiver.end(20)


class Udpcast(Contender):
    """udpcast: slices, each acknowledged by all. Its rate follows from that."""

    rates = False

    def receive(self, number):
        options = ("--mcast-rdv-address", GROUP, "--portbase", PORT + 10, "--interface", "eth0", "--ttl", 1)
        quiet = ("--nokbd", "--no-progress", "--rcvbuf", RECEIVE_BUFFER_BYTES, "--exit-wait", 0)
        return self.start(
            "receiver", f"udp-receiver-{number}", "udp-receiver", *options, *quiet, "--file", self.result(number)
        )

    def send(self, rate_bits, receivers):
        options = ("--mcast-rdv-address", GROUP, "--portbase", PORT + 10, "--interface", "eth0", "--ttl", 1)
        addresses = ("--mcast-data-address", "239.255.72.92", "--nopointopoint", "--min-receivers", receivers)
        quiet = ("--nokbd", "--no-progress", "--blocksize", SYMBOL_BYTES, "--file", self.bed.content)
        return self.start("sender", "udp-sender", "udp-sender", *options, *addresses, *quiet)


class Norm(Contender):
    """NORM by its reference library; see norm.cc."""

    def receive(self, number):
        cache = self.bed.folder / f"cache-{number}"
        cache.mkdir(exist_ok=True)
        group = (GROUP, PORT, "eth0", number, f"{cache}/", self.result(number))
        return self.start("receiver", f"norm-{number}", self.bed.folder / "norm", "receive", *group)

    def send(self, rate_bits, receivers):
        group = (GROUP, PORT, "eth0", rate_bits, self.bed.content, receivers)
        return self.start("sender", "norm", self.bed.folder / "norm", "send", *group)

    def stop_receiver(self, receiver):
        receiver.signal(signal.SIGTERM)
        receiver.end(20)


class Bare:
    """Loops of system calls: see bare.c."""

    def __init__(self, bed, name, segmented):
        self.bed, self.name = bed, name
        self.calls = ("send-gso", "receive-gro") if segmented else ("send", "receive")

    def pair(self, seconds):
        """What came through: bit/s of UDP payload, processor seconds per GB of sender and receiver."""
        receiver = self.start("receiver", self.calls[1])
        while receiver.memberships(GROUP) == 0:
            check(not receiver.has_ended(), f"{receiver.name} ended: {receiver.complaint()}")
            time.sleep(LOOK_SECONDS)
        sender = self.start("sender", self.calls[0], seconds)
        got = [counted(program) for program in (sender, receiver)][1]
        share = GB / max(got["bytes"], 1)
        return got["bytes"] * 8 / got["seconds"], sender.cpu_seconds * share, receiver.cpu_seconds * share

    def alone(self, seconds):
        """Nobody listens: bit/s of UDP payload, processor seconds per GB."""
        sender = self.start("sender", self.calls[0], seconds)
        sent = counted(sender)
        return sent["bytes"] * 8 / sent["seconds"], sender.cpu_seconds * GB / sent["bytes"]

    def start(self, host, call, *more):
        arguments = (self.bed.folder / "bare", call, GROUP, PORT + 1, "eth0", PACKET_BYTES, *more)
        return self.bed.network.start(host, call, self.bed.folder, arguments)


def counted(program):
    check(program.end() == 0, f"{program.name}: {program.complaint()}")
    return json.loads(program.out.read_text())
