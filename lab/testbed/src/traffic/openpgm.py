"""A file by OpenPGM, as ZeroMQ's epgm:// sockets use it: a publisher of numbered pieces, subscribers that keep all or nothing.

usage: openpgm.py send ADDRESS RATE_KBIT FILE      openpgm.py receive ADDRESS RATE_KBIT FILE
"""

import sys
import time

import zmq

PIECE_BYTES = 1400
# What was sent in so long can be repaired.
RECOVERY_MS = 60_000
TTL = 8
# Until the subscribers, which are there, are ready.
SETTLE_SECONDS = 1


def connected(kind, address, rate_kbit):
    socket = zmq.Context().socket(kind)
    options = [(zmq.RATE, rate_kbit), (zmq.RECOVERY_IVL, RECOVERY_MS), (zmq.MULTICAST_HOPS, TTL), (zmq.SNDHWM, 0), (zmq.RCVHWM, 0)]
    if kind == zmq.SUB:
        options.append((zmq.SUBSCRIBE, b""))
    for option, value in options:
        socket.setsockopt(option, value)
    socket.connect(address)
    return socket


def send(address, rate_kbit, file):
    socket = connected(zmq.PUB, address, rate_kbit)
    time.sleep(SETTLE_SECONDS)
    with open(file, "rb") as content:
        pieces = iter(lambda: content.read(PIECE_BYTES), b"")
        for number, piece in enumerate(pieces):
            socket.send(number.to_bytes(4, "big") + piece)
    socket.send(b"")
    # It repairs, and is ended once all have the file.
    time.sleep(86_400)


def receive(address, rate_kbit, file):
    socket = connected(zmq.SUB, address, rate_kbit)
    pieces = []
    while message := socket.recv():
        if int.from_bytes(message[:4], "big") != len(pieces):
            sys.exit(f"OpenPGM gave up what it could not repair: piece {len(pieces)} is missing")
        pieces.append(message[4:])
    with open(file, "wb") as content:
        content.write(b"".join(pieces))
    time.sleep(86_400)


{"send": send, "receive": receive}[sys.argv[1]](sys.argv[2], int(sys.argv[3]), sys.argv[4])
