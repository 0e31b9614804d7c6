"""Receivers that end again and again, over every congestion control and code, and what the next one resumes.

Each case is a session of its own on the loopback interface. A receiver is ended at instants drawn at random, the first ones
before its first block is whole; the next one receives into the same folder. Beside it a receiver that nobody disturbs receives
the same session. Three faults end receivers:

- killed: SIGKILL;
- stopped: SIGINT and SIGTERM in turns;
- restarted: SIGKILL, and the sender is killed twice, too, and started again as another session.

What must hold:

- a receiver resumes 95 % of the symbols that the one before it had 0.15 s before it was killed, or when it was stopped;
- what all of them together got twice, or beyond what they needed (the excess), is at most 1 % of the content more than the
  undisturbed one's with RaptorQ and LDPC-Staircase, and with LDPC-Triangle where receivers have every packet;
- the file is whole in the end, with the sender's time of modification, and nothing else is left;
- a receiver that finds it there receives nothing of it, and does not touch it.

Symbols that a receiver reported and the next one did not resume are shown as lost: what a receiver had for less than 0.15 s.
The excess of other codes is bounded by AT_ONE_RATE or only shown: it is the cost of the packets that nobody received while there was no
receiver, and a receiver that loses the same packets on the way has the same (proto/tests/resume.rs: `a_kill_costs_no_more_than_the_packets_missed`,
docs/reference/faults.md, "Codes of a finite number of symbols").

usage: resume.py [--long [--fault FAULT]] [--seed N] [--only CONTROL[/CODE[/FAULT]]] BINARY FOLDER
"""

import argparse
import filecmp
import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

KILLS = 20
# Time between a report and the kill after which what it told must be on disk.
WRITTEN_SECONDS = 0.15
RESUMED_MIN = 0.95

RATES = {
    "m2c": ("--max-rate", "6M"),
    "webrc": ("--congestion-control", "webrc", "--max-rate", "6M"),
    "flid-dl": ("--congestion-control", "flid-dl", "--max-rate", "6M"),
    "le-sbcc": ("--congestion-control", "le-sbcc", "--base-rate", "1M", "--max-rate", "3M"),
    "rainbow": ("--congestion-control", "rainbow", "--max-rate", "3M"),
    "sim": ("--congestion-control", "sim", "--max-rate", "4M"),
    "fixed": ("--rate", "3M"),
}
CODES = ("raptorq", "rs", "ldpc-triangle", "ldpc-staircase", "none")
FAULTS = ("killed", "stopped", "restarted")
# The short form: each control with the default code, each other code once, and the other faults with the default control.
SHORT = [
    *((control, "raptorq", "killed") for control in RATES),
    ("fixed", "rs", "killed"),
    ("fixed", "ldpc-triangle", "killed"),
    ("m2c", "ldpc-staircase", "killed"),
    ("m2c", "rs", "killed"),
    ("fixed", "none", "killed"),
    ("m2c", "raptorq", "stopped"),
    ("m2c", "raptorq", "restarted"),
]

# Controls whose receivers have every packet that is sent while they listen.
ONE_RATE = ("fixed", "le-sbcc")
# Most excess above the undisturbed receiver's, as a part of the content: under any control, and where receivers have
# every packet. Reed-Solomon: a gap of 50 packets takes one or two symbols of each of 45 blocks, and 20 gaps up to ten
# more of one block than of the mean. Without a code there is no bound: a symbol that falls into a gap of each of two
# cycles costs a third one.
ANY_CONTROL = {"raptorq": 0.01, "ldpc-staircase": 0.01}
AT_ONE_RATE = {"ldpc-triangle": 0.01, "rs": 0.08}


def bound(control, code, fault):
    """The most excess above the undisturbed receiver's; None where it is only shown."""
    if fault == "restarted" and code != "raptorq":
        return None
    if control in ONE_RATE:
        return (ANY_CONTROL | AT_ONE_RATE).get(code)
    return ANY_CONTROL.get(code)


class Failed(Exception):
    """Something that must hold does not."""


class Running:
    """A command whose events are read as they come, each with the time of its coming."""

    def __init__(self, *command):
        words = [str(word) for word in command]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.events = []
        self.errors = []
        self.readers = [threading.Thread(target=read) for read in (self.read, self.read_errors)]
        for reader in self.readers:
            reader.start()

    def read(self):
        for line in self.process.stdout:
            # The last line of a process that was killed may be cut off.
            if line.endswith("\n"):
                self.events.append((time.monotonic(), json.loads(line)))

    def read_errors(self):
        self.errors.extend(self.process.stderr)

    def end(self):
        code = self.process.wait()
        for reader in self.readers:
            reader.join()
        return code

    def kill(self, by=signal.SIGKILL):
        self.process.send_signal(by)
        self.end()

    def told(self, kind):
        return [event for _, event in self.events if event["event"] == kind]

    def counts(self, until=None):
        """The counters of the last report, or of the last one before an instant."""
        kinds = ("session:progress", "session:ended")
        reports = [
            event for at, event in self.events if event["event"] in kinds and (until is None or at <= until)
        ]
        return reports[-1] if reports else {}


class Session:
    """One case: a sender, a receiver that is killed, and one that is not."""

    def __init__(self, binary, folder, number, case, options):
        self.binary, self.options = binary, options
        self.control, self.code, self.fault = case
        self.draw = random.Random(f"{options.seed} {self}")
        self.folder = folder / "-".join(case)
        self.folder.mkdir(parents=True)
        self.file = self.folder / "file"
        self.file.write_bytes(self.draw.randbytes(options.bytes))
        self.group = f"239.255.73.1:{7400 + 8 * number}"
        self.asked = f"127.0.0.1:{7401 + 8 * number}"
        self.sender = None
        self.receivers = []

    def __str__(self):
        return f"{self.control}/{self.code}/{self.fault}"

    def start_sender(self):
        to = ("--group", self.group, "--interface", "lo")
        if self.control == "rainbow":
            to = ("--listen", self.asked)
        rate = (*RATES[self.control], "--fec", self.code)
        self.sender = Running(self.binary, "send", "--json", *to, *rate, self.file)

    def start_receiver(self, name):
        of = ("--group", self.group, "--interface", "lo")
        if self.control == "rainbow":
            of = ("--ask", self.asked)
        out = self.folder / name
        receiver = Running(self.binary, "receive", "--json", "--timeout", "60s", *of, "--out", out)
        self.receivers.append(receiver)
        return receiver

    def run(self):
        self.start_sender()
        undisturbed = self.start_receiver("undisturbed")
        lives, least, resumed_least, lost = [], 0, 1.0, 0
        try:
            for kill in range(KILLS):
                if self.fault == "restarted" and kill in (KILLS // 3, 2 * KILLS // 3):
                    self.sender.kill()
                    self.start_sender()
                receiver = self.start_receiver("out")
                had, now = self.live(receiver, kill)
                resumed_least = min(resumed_least, self.compare(now, least))
                if lives:
                    lost += self.lost(lives[-1], now)
                # A receiver that has not heard of the files yet has nothing to report of them.
                least = max(least, held(had))
                lives.append(now)
                if receiver.told("object:completed"):
                    break
            last = self.start_receiver("out")
            code = last.end()
            if code != 0:
                raise Failed(f"the last receiver ended with {code}: {''.join(last.errors)}")
            # A receiver that finds the file in place has nothing to resume, and counts what comes until it knows as surplus.
            if not receiver.told("object:completed"):
                resumed_least = min(resumed_least, self.compare(last.counts(), least))
                lost += self.lost(lives[-1], last.counts())
                lives.append(last.counts())
            if not filecmp.cmp(self.file, self.folder / "out" / "file", shallow=False):
                raise Failed("the file differs")
            if (self.folder / "out" / "file").stat().st_mtime_ns != self.file.stat().st_mtime_ns:
                raise Failed("the time of modification differs")
            left = [path.name for path in (self.folder / "out").iterdir()]
            if left != ["file"]:
                raise Failed(f"left behind: {left}")
            self.receive_again()
            code = undisturbed.end()
            if code != 0:
                raise Failed(f"the undisturbed receiver ended with {code}: {''.join(undisturbed.errors)}")
        finally:
            for process in (self.sender, *self.receivers):
                if process.process.poll() is None:
                    process.kill()
        symbols = -(-self.options.bytes // 1408)
        excess = sum(beyond(life) for life in lives) / symbols
        beside = beyond(undisturbed.counts()) / symbols
        return {
            "lives": len(lives),
            "least": least,
            "resumed": resumed_least,
            "lost": lost / symbols,
            "excess": excess,
            "undisturbed": beside,
        }

    def receive_again(self):
        """A receiver that finds the file in its place takes nothing of it, and leaves it alone."""
        path = self.folder / "out" / "file"
        before = path.stat()
        again = self.start_receiver("out")
        code = again.end()
        present = [event["present"] for event in again.told("object:completed")]
        if (code, present) != (0, [True]):
            raise Failed(f"the file is there, and its receiver ended with {code}, {present}: {''.join(again.errors)}")
        if again.counts()["useful"] != 0 or path.stat() != before:
            raise Failed("a file that was there was received again")

    def live(self, receiver, kill):
        """Lets a receiver live for a time drawn at random, and ends it: what must be resumed, and its last report."""
        low, high = self.options.life
        time.sleep(self.draw.uniform(low, high))
        if self.fault == "stopped":
            # A receiver that is asked to end writes all it has, and reports it.
            receiver.kill((signal.SIGINT, signal.SIGTERM)[kill % 2])
            return receiver.counts(), receiver.counts()
        killed_at = time.monotonic()
        receiver.kill()
        return receiver.counts(killed_at - WRITTEN_SECONDS), receiver.counts()

    def lost(self, before, after):
        """Symbols that a receiver reported and the next one, if it knows of the files, did not resume."""
        return max(0, held(before) - after["resumed"]) if after.get("symbols_total") else 0

    def compare(self, counts, least):
        """What part of that what must be there is resumed: all, where nothing is known of the files yet."""
        if least == 0 or counts.get("symbols_total", 0) == 0:
            return 1.0
        return counts["resumed"] / least


def held(counts):
    return counts.get("useful", 0) + counts.get("resumed", 0)


def beyond(counts):
    return counts.get("duplicates", 0) + counts.get("surplus", 0)


def judge(session, result):
    """What does not hold of a case."""
    wrong = []
    if result["resumed"] < RESUMED_MIN:
        wrong.append(f"a receiver resumed only {result['resumed']:.1%}")
    most = bound(session.control, session.code, session.fault)
    if most is not None and result["excess"] - result["undisturbed"] > most:
        wrong.append(f"{result['excess']:.2%} came twice or for nothing, {result['undisturbed']:.2%} undisturbed")
    return wrong


def run_all(options, cases):
    sessions = [Session(options.binary, options.folder, number, case, options) for number, case in enumerate(cases)]
    failures = []
    waiting, lock = list(sessions), threading.Lock()

    def work():
        while True:
            with lock:
                if not waiting:
                    return
                session = waiting.pop(0)
            try:
                result = session.run()
                wrong = judge(session, result)
                line = "{lives:2} lives, {least:5} symbols at most before a kill, least resumed {resumed:.1%}, lost {lost:.2%}, excess {excess:.2%}, undisturbed {undisturbed:.2%}"
                print(f"resume: {str(session):32} {line.format(**result)}", flush=True)
            except Failed as failed:
                wrong = [str(failed)]
            failures.extend(f"{session}: {one}" for one in wrong)

    workers = [threading.Thread(target=work) for _ in range(options.beside)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="every control with every code")
    parser.add_argument("--fault", choices=FAULTS, help="with --long: another than killed")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--only", default="", help="CONTROL, CONTROL/CODE or CONTROL/CODE/FAULT")
    parser.add_argument("--beside", type=int, default=15, help="sessions side by side")
    parser.add_argument("binary", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.bytes, options.life = (8_000_000, (0.25, 2.0)) if options.long else (6_000_000, (0.2, 1.6))
    every = [(control, code, options.fault or "killed") for control in RATES for code in CODES]
    cases = every if options.long else SHORT
    cases = [case for case in cases if "/".join(case).startswith(options.only)]
    print(f"resume: seed {options.seed}", flush=True)
    failures = run_all(options, cases)
    for failure in failures:
        print(f"resume: {failure} (seed {options.seed})", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
