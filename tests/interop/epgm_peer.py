"""A ZeroMQ end over epgm://, in a process of its own: a line of JSON for each thing that happens.

usage: epgm_peer.py subscribe ADDRESS COUNT LENGTH      epgm_peer.py publish ADDRESS COUNT RATE_KBIT
"""

import json
import sys
import time

import zmq

# kbit/s and ms: libzmq keeps as many packets for repair as this rate brings in this time (default: 80 packets).
RATE_KBIT = 20_000
RECOVERY_MS = 10_000
# A subscriber gives up after so long without a message.
SILENCE_MS = 30_000


def tell(event, **fields):
    print(json.dumps({"event": event, "time": 1000 * time.monotonic(), **fields}), flush=True)


def subscribe(address, count, length):
    socket = zmq.Context().socket(zmq.SUB)
    for option, value in ((zmq.RATE, RATE_KBIT), (zmq.RECOVERY_IVL, RECOVERY_MS), (zmq.RCVHWM, 0), (zmq.SUBSCRIBE, b"")):
        socket.setsockopt(option, value)
    socket.connect(address)
    tell("listening")
    # A receiver that gave packets up goes on behind the gap: it shows in the numbers.
    got, gaps, wrong, expected, told = 0, 0, 0, 0, 0
    while expected < count:
        if not socket.poll(SILENCE_MS):
            break
        number, body = socket.recv().split(b" ", 1)
        number = int(number)
        gaps += number != expected
        wrong += body != b"x" * length
        expected = number + 1
        got += 1
        if time.monotonic() - told > 0.2:
            told = time.monotonic()
            tell("progress", messages=got)
    tell("ended", messages=got, gaps=gaps, wrong=wrong, next=expected)


def publish(address, count, rate_kbit):
    socket = zmq.Context().socket(zmq.PUB)
    for option, value in ((zmq.RATE, rate_kbit), (zmq.RECOVERY_IVL, RECOVERY_MS), (zmq.SNDHWM, 0), (zmq.LINGER, 5_000)):
        socket.setsockopt(option, value)
    socket.connect(address)
    time.sleep(0.5)
    for number in range(count):
        socket.send(b"%d %s" % (number, bytes(number % 300)))
    tell("ended", messages=count)
    # What was given to the socket has not left yet: 160 bytes each, at the rate that was asked for.
    time.sleep(8 + 2 * count * 160 * 8 / (rate_kbit * 1_000))


ends = {"subscribe": subscribe, "publish": publish}
ends[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
