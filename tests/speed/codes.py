"""Speed of RaptorQ beside nanorq (RaptorQ in C) and wirehair (another fountain code, in C++), on one core, in Gbit/s of source bytes.

Columns `encode`: an encoder of a block is made, then as many repair symbols as 10 or 50 % of the block. Columns `decode`: symbols that stand
one by one in memory become a block, whose missing part is replaced by repair symbols, one symbol more than the missing ones. Solutions
of equations that all blocks of a length share are made before the first block is timed; memory is used again. Every block is compared with its source.
Times are processor time, which another load on the machine raises least.

All libraries take turns in each round, which has other losses than the round before; each turn is a process that counts the median of its
repetitions, and the median of the rounds counts. Ratio: speed of Headwater over that of the other library.

usage: codes.sh [--rounds N] [--symbol-bytes N] [--repeats-bytes N] [NAME=DRIVER ...]
"""

import argparse
import os
import statistics
import subprocess

LENGTHS = (1_002, 5_008, 14_000)
LOSSES = (0, 10, 50)
# Limits of the ratio: decoding with losses, and encoding beside wirehair.
DECODE_LEAST, WIREHAIR_ENCODE_LEAST = 1.0, 0.7
OURS = "headwater"


def seconds(driver, k, symbol_bytes, loss, seed, repeats):
    """Median seconds of encoding and of decoding in one process."""
    words = [driver, k, symbol_bytes, k * loss // 100, seed, repeats]
    ran = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
    return [float(word) for word in ran.stdout.split()]


def measure(drivers, k, loss, options):
    """Gbit/s of encoding and of decoding, by driver."""
    bits = 8 * k * options.symbol_bytes
    repeats = max(5, options.repeats_bytes * 8 // bits)
    times = {name: ([], []) for name in drivers}
    for seed in range(options.rounds):
        for name, driver in drivers.items():
            for kind, taken in zip(times[name], seconds(driver, k, options.symbol_bytes, loss, seed, repeats)):
                kind.append(taken)
    return {name: [bits / statistics.median(kind) / 1e9 for kind in kinds] for name, kinds in times.items()}


def print_table(drivers, options):
    """Prints one table; returns the rows."""
    others = [name for name in drivers if name != OURS]
    heads = [*drivers, *(f"over {name}" for name in others)]
    print("| K | what | " + " | ".join(heads) + " |")
    print("|---|---|" + "---|" * len(heads))
    rows = []
    for k in LENGTHS:
        for loss in LOSSES:
            speeds = measure(drivers, k, loss, options)
            kinds = [("decode", 1)] if loss == 0 else [("encode", 0), ("decode", 1)]
            for kind, place in kinds:
                ratios = {name: speeds[OURS][place] / speeds[name][place] for name in others}
                cells = [f"{speeds[name][place]:.2f}" for name in drivers] + [f"{ratio:.2f}" for ratio in ratios.values()]
                print(f"| {k} | {kind}, {loss} % | " + " | ".join(cells) + " |", flush=True)
                rows.append((kind, loss, ratios))
    return rows


def print_verdicts(rows):
    """Prints the smallest ratio of what has a limit, by library."""
    for name in rows[0][2]:
        limits = [("decode", DECODE_LEAST)] + ([("encode", WIREHAIR_ENCODE_LEAST)] if name.startswith("wirehair") else [])
        for kind, least in limits:
            smallest = min(ratios[name] for row_kind, loss, ratios in rows if row_kind == kind and loss > 0)
            verdict = "holds" if smallest >= least else "MISSED"
            print(f"- {kind} at 10 and 50 % over {name}: smallest ratio {smallest:.2f}, at least {least}: {verdict}")


def main():
    parser = argparse.ArgumentParser(prog="tests/speed/codes.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--symbol-bytes", type=int, default=1_408)
    parser.add_argument("--repeats-bytes", type=int, default=50_000_000, help="source bytes that a turn codes, at least 5 blocks")
    parser.add_argument("drivers", nargs="+", metavar="NAME=DRIVER")
    options = parser.parse_args()
    drivers = dict(word.split("=", 1) for word in options.drivers)
    # Children inherit the single processor.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    load = os.getloadavg()[0]
    rows = print_table(drivers, options)
    print(f"\nSymbols of {options.symbol_bytes} bytes, {options.rounds} rounds. Load average: {load:.2f} at the start, {os.getloadavg()[0]:.2f} at the end.")
    if len(drivers) > 1:
        print_verdicts(rows)


if __name__ == "__main__":
    main()
