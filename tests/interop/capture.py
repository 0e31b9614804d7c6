"""ALC packets in a capture, read without Headwater's help: what is counted here is what was on the wire."""

import struct

PCAP_MAGIC_LITTLE = 0xA1B2C3D4
ETHERNET_BYTES = 14
ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD
UDP_BYTES = 8
RAPTORQ = 6


class Symbol:
    """A symbol on the wire: bytes of UDP payload, and which symbol it is."""

    __slots__ = ("bytes", "toi", "sbn", "esi")

    def __init__(self, length, toi, payload_id):
        self.bytes = length
        self.toi = toi
        # RFC 6330, section 3.2: 8 bits and 24.
        self.sbn, self.esi = payload_id >> 24, payload_id & 0xFFFFFF


def frames(path):
    """The frames of a little-endian pcap file of Ethernet, in order."""
    with open(path, "rb") as file:
        data = file.read()
    magic, link_type = struct.unpack_from("<I", data)[0], struct.unpack_from("<I", data, 20)[0]
    if magic != PCAP_MAGIC_LITTLE or link_type != 1:
        raise SystemExit(f"{path}: not a little-endian capture of Ethernet frames")
    at = 24
    while at + 16 <= len(data):
        captured = struct.unpack_from("<8xI", data, at)[0]
        at += 16
        yield data[at : at + captured]
        at += captured


def symbols(path):
    """The RaptorQ symbols of a capture, in order; the FDT is passed over."""
    return [symbol for symbol in map(parse, frames(path)) if symbol is not None]


def packets(path):
    """Bytes of UDP payload, group and CCI of each packet: the CCI tells the packets of a channel apart for minutes."""
    found = []
    for frame in frames(path):
        udp = ETHERNET_BYTES + ip_bytes(frame)
        length = struct.unpack_from(">H", frame, udp + 4)[0] - UDP_BYTES
        lct = udp + UDP_BYTES
        found.append((length, frame[30:34], frame[lct + 4 : lct + 8]))
    return found


def parse(frame):
    """The symbol in a frame, or None."""
    udp = ETHERNET_BYTES + ip_bytes(frame)
    length = struct.unpack_from(">H", frame, udp + 4)[0] - UDP_BYTES
    lct = udp + UDP_BYTES
    # RFC 5651, section 5.1: C is two bits of the first byte; S (1), O (2) and H (1) begin the second.
    first, second, words, codepoint = frame[lct : lct + 4]
    half = 2 * (second >> 4 & 1)
    cci_bytes, tsi_bytes, toi_bytes = 4 * ((first >> 2 & 3) + 1), 4 * (second >> 7) + half, 4 * (second >> 5 & 3) + half
    start = lct + 4 + cci_bytes + tsi_bytes
    toi = int.from_bytes(frame[start : start + toi_bytes], "big")
    if codepoint != RAPTORQ or toi == 0 or length <= 4 * words:
        return None
    return Symbol(length, toi, struct.unpack_from(">I", frame, lct + 4 * words)[0])


def ip_bytes(frame):
    """Length of the IP header: no options in front of UDP under IPv6."""
    kind = struct.unpack_from(">H", frame, 12)[0]
    if kind == ETHERTYPE_IPV4:
        return 4 * (frame[ETHERNET_BYTES] & 15)
    if kind == ETHERTYPE_IPV6:
        return 40
    raise SystemExit(f"a frame of type {kind:#06x} in a capture of UDP")
