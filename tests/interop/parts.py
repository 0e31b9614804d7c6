"""The parts of a test: which of them to run is said on the command line, and each tells what holds of it."""

import argparse

from network import check


def chosen(parts, control, **more):
    """What the command line says: `binary`, `parts` (all names where there is none), `full`, `control`, and options of one's own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--full", action="store_true", help="all bounds, not those alone that are certain on a busy machine")
    parser.add_argument("--control", default=control, metavar="NAME", help=f"congestion control (default: {control})")
    for name, about in more.items():
        parser.add_argument(f"--{name}", **about)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    options = parser.parse_intermixed_args()
    if unknown := [part for part in options.parts if part not in parts]:
        parser.error(f"'{unknown[0]}' is no part; there are {', '.join(parts)}")
    return options


def run(parts, names, about, call):
    """Runs parts by `call`, which gives what must hold and whether it does; returns what was missed."""
    missed = []
    for name in names:
        print(f"{name}, {about}: {parts[name].__doc__}", flush=True)
        for what, holds in call(parts[name]):
            print(f"  {'met   ' if holds else 'MISSED'} {what}", flush=True)
            missed += [] if holds else [f"{name}: {what}"]
    return missed


def judge(name, missed, full, certain):
    """Fails for what was missed; in the short form, where files are small and the machine does other things, only for what has one of the words of
    `certain`. The rest is told."""
    if missed:
        print(f"{name}: missed: {'; '.join(missed)}", flush=True)
    failed = [miss for miss in missed if full or any(word in miss for word in certain)]
    check(not failed, f"must hold: {'; '.join(failed)}")
