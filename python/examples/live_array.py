"""A live array whose precision follows the rate: a field of 256 by 256 values, five times a second.

    python examples/live_array.py publish --interface eth0
    python examples/live_array.py subscribe --interface eth0 [--max-rate 5M]
"""

from __future__ import annotations

import argparse
import itertools

import headwater as hw
import numpy as np
from headwater import arrays

GROUP = "239.255.72.92:7292"
SIZE, SECONDS = 256, 0.2


def field(step: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Waves that move."""
    x, y = np.meshgrid(np.arange(SIZE), np.arange(SIZE))
    waves = np.sin((x + 4 * step) / 20) + np.cos((y - 2 * step) / 30)
    return waves.astype(np.float32)


def publish(interface: str | None, steps: int) -> None:
    """Publishes the field until interrupted, or for some steps."""
    # The array and its header fill 0.2 s at this rate.
    rate = int(1.15 * 8 * 4 * SIZE * SIZE / SECONDS)
    with hw.Publisher(group=GROUP, interface=interface, max_rate=rate) as publisher:
        for step in itertools.count() if steps == 0 else range(steps):
            arrays.publish(publisher, field(step), SECONDS)


def subscribe(interface: str | None, max_rate: str | None, steps: int) -> None:
    """Shows how much of each field came, and how near it is."""
    with hw.Subscriber(group=GROUP, interface=interface, max_rate=max_rate, timeout=30) as subscriber:
        for step, shared in enumerate(arrays.subscribe(subscriber), start=1):
            print(f"{100 * shared.share:5.1f} % of the bytes, values from {shared.array.min():.4f} to {shared.array.max():.4f}")
            if step == steps:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("end", choices=["publish", "subscribe"])
    parser.add_argument("--interface")
    parser.add_argument("--max-rate")
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    if options.end == "publish":
        publish(options.interface, options.steps)
    else:
        subscribe(options.interface, options.max_rate, options.steps)


if __name__ == "__main__":
    main()
