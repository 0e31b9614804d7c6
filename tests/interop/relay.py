"""A tree of three relays in namespaces, with a source and nine receivers that know of BCFS only what docs/reference/wire/bcfs.md says.

    relay.py HEADWATER FOLDER            runs it
    relay.py source ADDRESS              answers requests, a new number in each reply
    relay.py receive ADDRESS RELAY N W   asks, W requests at a time, until N different numbers have come
    relay.py strange ADDRESS RELAY       sends forged replies, and bytes at random

What must hold: all receivers are served while the relay between is killed and started again, and the source sends fewer replies than they take; of a stranger's forged replies
and random packets the relay takes none, and counts all. Rates are printed.
"""

import ipaddress
import json
import random
import signal
import socket
import struct
import sys
import time
from pathlib import Path

REQUEST, NULL, REPLY, CHALLENGE = 0, 1, 2, 3
HEADER = struct.Struct("!3sBIHBBHH4s")
PORT = 7290
BODY_BYTES = 1300
SYMBOLS = 1500
TIMEOUT_SECONDS = 0.5
STRANGE = 100


def message(kind, source, label, level, body=b""):
    address = ipaddress.IPv4Address(source).packed
    return HEADER.pack(b"HWB", 0x10 | kind, label, level, 32, 4, PORT, 0, address) + body


def parse(datagram):
    """Kind, label, level and body; None for anything else."""
    if len(datagram) < HEADER.size:
        return None
    magic, kind, label, level, _, family, _, _, _ = HEADER.unpack_from(datagram)
    if magic != b"HWB" or kind >> 4 != 1 or family != 4:
        return None
    return kind & 15, label, level, datagram[HEADER.size :]


def source(address):
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.bind((address, PORT))
    number = 0
    while True:
        datagram, asker = end.recvfrom(2048)
        kind, label, level, _ = parse(datagram) or (None, 0, 0, b"")
        if kind in (REQUEST, NULL):
            number += 1
            end.sendto(message(REPLY, address, label, level, struct.pack("!I", number).ljust(BODY_BYTES, b".")), asker)


def receive(address, relay, wanted, window):
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.connect((relay, 7289))
    end.settimeout(0.02)
    held, levels, due, replies, word = set(), [0] * window, [0.0] * window, 0, bytes(8)
    begun = time.monotonic()
    while len(held) < wanted:
        now = time.monotonic()
        for label in range(window):
            if due[label] <= now:
                levels[label] += 1
                due[label] = now + TIMEOUT_SECONDS
                try:
                    end.send(message(REQUEST, address, label + 1, min(levels[label], 65535), word + bytes(8)))
                except ConnectionRefusedError:
                    pass  # The relay is gone; it will be asked again.
        try:
            kind, label, level, body = parse(end.recv(2048)) or (None, 0, 0, b"")
        except (TimeoutError, ConnectionRefusedError):
            continue
        if kind == CHALLENGE and 1 <= label <= window and body != word:
            word, levels[label - 1], due[label - 1] = body, level - 1, 0.0
        if kind == REPLY and 1 <= label <= window:
            replies += 1
            held.add(struct.unpack_from("!I", body)[0])
            levels[label - 1], due[label - 1] = 0, 0.0
    seconds = time.monotonic() - begun
    print(json.dumps({"symbols": len(held), "replies": replies, "seconds": seconds}))


def strange(address, relay):
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    chance = random.Random(1)
    for label in range(STRANGE):
        end.sendto(message(REPLY, address, label % 40 + 1, 65535, b"\xff" * BODY_BYTES), (relay, 7289))
        end.sendto(chance.randbytes(chance.randrange(100)), (relay, 7289))
        time.sleep(0.01)


if __name__ == "__main__" and sys.argv[1] == "strange":
    strange(sys.argv[2], sys.argv[3])
    sys.exit()
if __name__ == "__main__" and sys.argv[1] == "source":
    source(sys.argv[2])
if __name__ == "__main__" and sys.argv[1] == "receive":
    receive(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    sys.exit()

from network import Network, Failed, check, require_root  # noqa: E402

# Mbit/s of a receiver's link, and requests at a time.
LINKS = ((2, 6), (10, 12), (50, 40))


class Bed:
    """Source and relays in a row of links, three receivers at each relay."""

    def __init__(self, network, folder, headwater):
        self.network, self.folder, self.headwater = network, folder, headwater
        self.subnets = 0
        for host in ("source", "top", "left", "right"):
            network.add_host(host)
            network.run(host, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        self.origin = self.join("source", "top")[0]
        self.tops = {side: self.join("top", side)[0] for side in ("left", "right")}
        # Requests name the source by its address; relays alone need a way to it.
        self.receivers = []
        for relay in ("top", "left", "right"):
            for megabits, window in LINKS:
                host = f"{relay}-{megabits}"
                network.add_host(host)
                near, _ = self.join(relay, host, megabits)
                self.receivers.append((host, near, window))

    def join(self, one, other, megabits=None):
        """A link; its addresses. What goes down it has this rate."""
        self.subnets += 1
        port = f"v{self.subnets}"
        addresses = [f"10.88.{self.subnets}.{number}" for number in (1, 2)]
        self.network.ip(one, "link", "add", port, "type", "veth", "peer", "name", port, "netns", self.network.hosts[other])
        for host, address in zip((one, other), addresses):
            self.network.ip(host, "address", "add", f"{address}/24", "dev", port)
            self.network.ip(host, "link", "set", "dev", port, "up")
        if megabits:
            shape = ("rate", f"{megabits}mbit", "burst", "3000", "limit", "60000")
            self.network.run(one, "tc", "qdisc", "add", "dev", port, "root", "tbf", *shape)
        return addresses

    def relay(self, host):
        above = () if host == "top" else ("--upstream", self.tops[host])
        program = self.network.start(host, f"relay{time.monotonic_ns()}", self.folder, [self.headwater, "relay", "--json", *above])
        program.wait_for("its start", lambda events: any(event["event"] == "relay:started" for event in events))
        return program

    def python(self, host, name, *arguments):
        return self.network.start(host, name, self.folder, [sys.executable, __file__, *arguments])


def ended(relay):
    relay.signal(signal.SIGINT)
    check(relay.end() == 0, f"{relay.name} ended badly: {relay.complaint()}")
    return relay.events()[-1]


def tree(bed):
    source = bed.python("source", "source", "source", bed.origin)
    relays = {host: bed.relay(host) for host in ("top", "left", "right")}
    receivers = [
        (host, bed.python(host, "receiver", "receive", bed.origin, near, str(SYMBOLS), str(window)))
        for host, near, window in bed.receivers
    ]
    # At the relay on the right, from a host that a receiver is on.
    host, near, _ = bed.receivers[-3]
    stranger = bed.python(host, "stranger", "strange", bed.origin, near)
    time.sleep(2)
    check(stranger.end(20) == 0, f"the stranger: {stranger.complaint()}")
    relays["left"].kill()
    time.sleep(1)
    relays["left"] = bed.relay("left")
    for _, receiver in receivers:
        check(receiver.end(180) == 0, f"{receiver.name}: {receiver.complaint()}")
    source.kill()
    told = {host: ended(relay) for host, relay in relays.items()}
    for host, receiver in receivers:
        result = receiver.events()[-1]
        rate = result["symbols"] * BODY_BYTES * 8 / result["seconds"] / 1e6
        print(f"relay.sh: {host}: {SYMBOLS} symbols in {result['seconds']:.1f} s, {rate:.2f} Mbit/s, {result['replies']} replies")
    top = told["top"]["router"]
    served = len(bed.receivers) * SYMBOLS
    check(top["replies"] < served, f"the source sent {top['replies']} replies to serve {served}")
    check(told["right"]["router"]["suppressed"] > 0, f"no request was held back: {told['right']}")
    for host, event in told.items():
        refused = {name: count for name, count in event["refused"].items() if count and name != "unproven"}
        known = {"stranger": STRANGE, "malformed": STRANGE} if host == "right" else {}
        check(refused == known or host == "left", f"{host} refused {refused}")
    print(f"relay.sh: {top['replies']} replies of the source served {served} symbols; the relay on the left was killed and came back")


def main():
    headwater, folder = sys.argv[1], Path(sys.argv[2])
    require_root("ip", "tc")
    try:
        with Network("hwrl") as network:
            tree(Bed(network, folder, headwater))
    except Failed as failed:
        sys.exit(f"relay.sh: {failed}")


if __name__ == "__main__":
    main()
