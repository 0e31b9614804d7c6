"""Receivers that are killed again and again, over every congestion control and code, and what the next one resumes.

Each case is a session of its own on the loopback interface. A receiver is killed at instants drawn at random, the first ones
before its first block is whole; the next one receives into the same folder. Beside it a receiver that nobody disturbs receives
the same session. What must hold:

- a receiver resumes 95 % of the symbols that the one before it had 0.15 s before it was killed;
- what all of them together got twice, or beyond what they needed, is at most 1 % of the content more than the undisturbed one's,
  with RaptorQ. Of a code with a finite number of symbols a receiver misses some while there is none, as others lose some on the
  way, and waits for those while others come again: that is shown;
- the file is whole in the end, with the sender's time of modification, and nothing else is left;
- a receiver that finds it there receives nothing of it, and does not touch it.

With restarts the sender is killed, too, and started again as another session.

usage: resume.py [--long] [--restarts] [--seed N] [--only CONTROL[/CODE]] BINARY FOLDER
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
RESUMED_MIN, EXCESS_MAX = 0.95, 0.01
RATELESS = ("raptorq",)

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
# The short form: each control with the default code, and each other code once.
SHORT = [(control, "raptorq") for control in RATES] + [("fixed", "rs"), ("m2c", "ldpc-triangle"), ("fixed", "none")]


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

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
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
        self.control, self.code = case
        self.draw = random.Random(f"{options.seed} {self.control} {self.code} {options.restarts}")
        self.folder = folder / f"{self.control}-{self.code}"
        self.folder.mkdir(parents=True)
        self.file = self.folder / "file"
        self.file.write_bytes(self.draw.randbytes(options.bytes))
        self.group = f"239.255.73.1:{7400 + 8 * number}"
        self.asked = f"127.0.0.1:{7401 + 8 * number}"
        self.sender = None
        self.receivers = []

    def __str__(self):
        return f"{self.control}/{self.code}"

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
        lives, least, resumed_least = [], 0, 1.0
        try:
            for kill in range(KILLS):
                if self.options.restarts and kill in (KILLS // 3, 2 * KILLS // 3):
                    self.sender.kill()
                    self.start_sender()
                receiver = self.start_receiver("killed")
                killed_at = self.live(receiver)
                had, now = receiver.counts(killed_at - WRITTEN_SECONDS), receiver.counts()
                resumed_least = min(resumed_least, self.compare(now, least))
                # Whoever has not heard of the files yet has nothing to tell of them.
                least = max(least, held(had))
                lives.append(now)
                if receiver.told("object:completed"):
                    break
            last = self.start_receiver("killed")
            code = last.end()
            if code != 0:
                raise Failed(f"the last receiver ended with {code}: {''.join(last.errors)}")
            # Whoever finds the file in place has nothing to resume, and counts what comes until it knows as surplus.
            if not receiver.told("object:completed"):
                resumed_least = min(resumed_least, self.compare(last.counts(), least))
                lives.append(last.counts())
            if not filecmp.cmp(self.file, self.folder / "killed" / "file", shallow=False):
                raise Failed("the file differs")
            if (self.folder / "killed" / "file").stat().st_mtime_ns != self.file.stat().st_mtime_ns:
                raise Failed("the time of modification differs")
            left = [path.name for path in (self.folder / "killed").iterdir()]
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
        return {"lives": len(lives), "resumed": resumed_least, "excess": excess, "undisturbed": beside, "least": least}

    def receive_again(self):
        """A receiver that finds the file in its place takes nothing of it, and leaves it alone."""
        path = self.folder / "killed" / "file"
        before = path.stat()
        again = self.start_receiver("killed")
        code = again.end()
        present = [event["present"] for event in again.told("object:completed")]
        if (code, present) != (0, [True]):
            raise Failed(f"the file is there, and its receiver ended with {code}, {present}: {''.join(again.errors)}")
        if again.counts()["useful"] != 0 or path.stat() != before:
            raise Failed("a file that was there was received again")

    def live(self, receiver):
        """Lets a receiver live for a time drawn at random, and kills it; the instant of that."""
        low, high = self.options.life
        time.sleep(self.draw.uniform(low, high))
        killed_at = time.monotonic()
        receiver.kill()
        return killed_at

    def compare(self, counts, least):
        """What part of that what must be there is resumed: all, where nothing is known of the files yet."""
        if least == 0 or counts.get("symbols_total", 0) == 0:
            return 1.0
        return counts["resumed"] / least


def held(counts):
    return counts.get("useful", 0) + counts.get("resumed", 0)


def beyond(counts):
    return counts.get("duplicates", 0) + counts.get("surplus", 0)


def judge(session, result, options):
    """What does not hold of a case."""
    wrong = []
    if result["resumed"] < RESUMED_MIN:
        wrong.append(f"a receiver resumed only {result['resumed']:.1%}")
    if session.code in RATELESS and result["excess"] - result["undisturbed"] > EXCESS_MAX:
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
                wrong = judge(session, result, options)
                line = "{lives:2} lives, {least:5} symbols at most before a kill, least resumed {resumed:.1%}, excess {excess:.2%}, undisturbed {undisturbed:.2%}"
                print(f"resume: {str(session):22} {line.format(**result)}", flush=True)
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
    parser.add_argument("--restarts", action="store_true", help="the sender is started again twice on the way")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--only", default="", help="CONTROL or CONTROL/CODE")
    parser.add_argument("--beside", type=int, default=10, help="sessions side by side")
    parser.add_argument("binary", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.bytes, options.life = (8_000_000, (0.25, 2.0)) if options.long else (6_000_000, (0.2, 1.6))
    cases = [(control, code) for control in RATES for code in CODES] if options.long else SHORT
    cases = [case for case in cases if "/".join(case).startswith(options.only)]
    print(f"resume: seed {options.seed}", flush=True)
    failures = run_all(options, cases)
    for failure in failures:
        print(f"resume: {failure} (seed {options.seed})", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
