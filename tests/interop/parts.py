"""The parts of a test: which of them to run is said on the command line, and each tells what holds of it."""

import argparse
import subprocess

# Behind what must hold and whether it does: the full form judges it, the short one, on a machine that does other things, shows it.
BUSY = "busy"
# Before anything else on the machine: a busy one would measure its own scheduler. Their other threads, which encode and
# decode, take their turns as usual.
REAL_TIME = "chrt --reset-on-fork --rr 10"
# Where that is refused, `nice` says so and goes on.
IS_REAL_TIME = subprocess.run(["sh", "-c", f"{REAL_TIME} true"], capture_output=True).returncode == 0
NICE = (REAL_TIME if IS_REAL_TIME else "nice -n -10").split()


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


def run(parts, names, about, call, full):
    """Runs parts by `call`, which gives what must hold, whether it does, and perhaps BUSY; returns what was missed of what is judged."""
    missed = []
    for name in names:
        print(f"{name}, {about}: {parts[name].__doc__}", flush=True)
        for what, holds, *busy in call(parts[name]):
            is_judged = full or BUSY not in busy
            print(f"  {'met   ' if holds else 'MISSED' if is_judged else 'missed'} {what}", flush=True)
            missed += [] if holds or not is_judged else [f"{name}: {what}"]
    return missed
