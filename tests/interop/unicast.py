"""Writes a capture of the messages that receivers and senders exchange by unicast, by docs/reference/wire/rtt.md and roster.md, and prints the words by
which docs/reference/wire/alc.lua shows each.

usage: unicast.py FILE.pcap PORT
"""

import struct
import sys

NONCE = bytes.fromhex("0123456789abcdef")
ADDRESSES = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
LINKTYPE_RAW = 101


def rtt():
    """Question, answer, and reports of levels."""
    yield b"HWR\x10" + NONCE + bytes(4), f"question {NONCE.hex()}"
    yield b"HWR\x11" + NONCE + struct.pack(">HH", 15, 0), f"answer {NONCE.hex()}, next in 15 s"
    yield b"HWR\x12" + bytes(8) + struct.pack(">HBB", 0, 1 << 7 | 1 << 4, 9), "report of level 9, loss class 1, starting"
    yield b"HWR\x12" + bytes(8) + struct.pack(">HBB", 0, 6 << 4, 9), "report of level 9, loss class 6"


def roster():
    """Reports of each kind, with an item that no version knows, and their replies."""
    name, code = "grün".encode(), bytes(range(16))
    for kind, word in enumerate(("hello", "progress", "done", "leaving")):
        def head(number):
            return b"HWP" + bytes([1 << 4 | number]) + NONCE + struct.pack(">QH", 7, 4)
        shown = f"{word} report 4 of {NONCE.hex()}"
        if kind == 0:
            yield head(kind) + bytes(2), shown
        else:
            state = struct.pack(">BBIIQIIIII", 5, 2, 0xABCDEF01, 750_000, 6_000_000_000, 4_000, 5_000, 1_000, 2, 3)
            items = [(1, name), (2, struct.pack(">H", 7280)), (99, b"?"), (4, struct.pack(">II", 900, 3)), (3, code)]
            coded = b"".join(bytes([item, len(value)]) + value for item, value in items)
            yield head(kind) + state + coded, f"{shown}: 750000 of a million, 6000000000 bytes, result 5, name grün, port 7280, packets 900, 3 lost, code"
        for counts, said in enumerate(("cookie told", "counts")):
            yield head(kind + 8) + bytes([3, counts]), f"{word} reply 4 of {NONCE.hex()}: exponent 3, {said}"


def packet(payload, port):
    """An IPv4 packet without checksums."""
    udp = struct.pack(">HHHH", 40_000, port, 8 + len(payload), 0) + payload
    return struct.pack(">BBHIBBH", 0x45, 0, 20 + len(udp), 0, 1, 17, 0) + ADDRESSES[0] + ADDRESSES[1] + udp


def main():
    file, port = sys.argv[1], int(sys.argv[2])
    with open(file, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, LINKTYPE_RAW))
        for second, (payload, shown) in enumerate([*rtt(), *roster()]):
            bytes_on_wire = packet(payload, port)
            out.write(struct.pack("<IIII", second, 0, len(bytes_on_wire), len(bytes_on_wire)) + bytes_on_wire)
            print(shown)


if __name__ == "__main__":
    main()
