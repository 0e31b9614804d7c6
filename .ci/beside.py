#!/usr/bin/env python3
"""Runs the jobs of a step of ci.sh beside each other as far as two cores carry them, and prints the time that each job took.

usage: beside.py interop|test|fuzz FOLDER

A job's output is shown whole when the job ends. FOLDER takes the output, and a file `notes` with lines for the summary of ci.sh. The exit code
is 0 if every job has passed in the end.

interop: the scripts of tests/interop and tests/attacks, by the table interop.toml. Scripts that measure time may fail because of a neighbour: a
         script that fails runs once more, alone.
test:    the test binaries of the workspace, the tests of the documentation, and the tests of sockets with HEADWATER_PORTABLE=1. Binaries of crates
         with sockets run once more, too, if they fail.
fuzz:    builds the fuzz targets and runs each for FUZZ_SECONDS (default 10).
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

CORES = 2
# Cores that scripts of interop may need together: the sum of their means, which leaves room for peaks.
INTEROP_CORES = 1.5
# Jobs at once, however little each of them uses.
AT_ONCE = 5
# Last lines of a failed job that are shown once more at the end, as of a long log often the end alone is kept.
TAIL_LINES = 25
SHOWN = 12
# Tests of these crates compute alone, by clocks of their own: they give way to tests of sockets and commands, which measure time.
PURE = ("crates/wire", "crates/fec", "crates/proto", "crates/media", "lab/baselines", "lab/netsim")
# Test binaries that take long: seconds, and cores. The others come last, a core each.
TESTS = {
    "crates/cli test it": (190, 0.4),
    "crates/cli test it, portable": (70, 0.5),
    "crates/proto lib headwater_proto": (65, 1.2),
    "crates/proto test demand": (50, 1.2),
    "crates/headwater test session": (47, 0.3),
    "crates/headwater test session, portable": (47, 0.3),
    "crates/headwater lib headwater": (22, 0.5),
    "crates/headwater lib headwater, portable": (22, 0.5),
    "crates/headwater test flute": (23, 0.4),
    "crates/headwater test pgm": (20, 0.1),
    "crates/proto test signing": (16, 1.2),
    "crates/headwater test stream": (15, 0.1),
}
# Counters of edges and comparisons, which libFuzzer reads: what cargo-fuzz sets without a sanitizer, but for one unit of code for each crate,
# which takes long to build.
COVERAGE = (
    "--cfg fuzzing -Cdebug-assertions -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table "
    "-Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-stack-depth"
).split()


class Job:
    """A command, the time and the cores that it is known to take, and what it took."""

    def __init__(self, name, command, folder, seconds=0.0, cores=1.0, where=None, **environment):
        self.name, self.command, self.where = name, [str(word) for word in command], where
        self.expected_seconds, self.cores = seconds, cores
        self.environment = os.environ | environment
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"{name.replace('/', '-').replace(' ', '-')}.log"
        self.seconds = self.used_cores = self.code = None

    def start(self):
        self.began = time.monotonic()
        with open(self.log, "wb") as log:
            # A process group of its own: an interrupt reaches what the command has started, too.
            self.process = subprocess.Popen(
                self.command, cwd=self.where, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def end(self, status, used):
        self.code = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - self.began
        self.used_cores = (used.ru_utime + used.ru_stime) / self.seconds
        print(f"ci: {self.name}: exit code {self.code}, {self.seconds:.0f} s, {self.used_cores:.2f} cores", flush=True)
        sys.stdout.buffer.write(self.log.read_bytes())
        sys.stdout.flush()

    def tail(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])


def run(jobs, cores):
    """Starts the job with most work first, and beside it the next ones that fit."""
    waiting = sorted(jobs, key=lambda job: job.cores * job.expected_seconds, reverse=True)
    running = {}
    try:
        while waiting or running:
            for job in list(waiting):
                used = sum(other.cores for other in running.values())
                if not running or (len(running) < AT_ONCE and used + job.cores <= cores + 1e-9):
                    waiting.remove(job)
                    job.start()
                    running[job.process.pid] = job
            pid, status, used = os.wait4(-1, 0)
            if pid in running:
                running.pop(pid).end(status, used)
    except KeyboardInterrupt:
        for job in running.values():
            os.killpg(job.process.pid, signal.SIGINT)
        for job in running.values():
            job.process.wait()
        sys.exit(130)


def again_alone(jobs):
    """Runs the failed jobs once more, one at a time; returns a note for each."""
    failed = [job for job in jobs if job.code != 0]
    for job in failed:
        print(f"ci: {job.name}: exit code {job.code} beside others; its last lines, and then once more, alone:\n{job.tail()}", flush=True)
    notes = [f"{job.name} failed beside others (exit code {job.code}) and ran once more, alone" for job in failed]
    for job in failed:
        run([job], job.cores)
    return notes


def show_times(jobs, seconds):
    used = sum(job.seconds * job.used_cores for job in jobs)
    longest = sorted(jobs, key=lambda job: -job.seconds)
    print(f"\n{len(jobs)} jobs, together {sum(job.seconds for job in jobs):.0f} s, in {seconds:.0f} s; {used / seconds:.2f} cores used; the longest:")
    for job in longest[:SHOWN]:
        print(f"  {job.seconds:6.0f} s {job.used_cores:6.2f} cores   {job.name}")


def interop(folder):
    table = tomllib.loads(Path(".ci/interop.toml").read_text())
    jobs, notes = [], []
    for script in [*sorted(Path("tests/interop").glob("*.sh")), Path("tests/attacks/attacks.sh")]:
        if script.stem not in table:
            notes.append(f"interop: {script} has no line in .ci/interop.toml and ran alone")
        seconds, cores = table.get(script.stem, (0, INTEROP_CORES))
        homes = {f"XDG_{home}_HOME": str(folder / script.stem / home.lower()) for home in ("CONFIG", "STATE")}
        jobs.append(Job(str(script), ["bash", script], folder, seconds, cores, **homes))
    run(jobs, INTEROP_CORES)
    return jobs, notes + again_alone(jobs) + [f"interop: {len(jobs)} scripts"]


def executables(command, is_wanted, **environment):
    """Builds; yields the messages of cargo for the programs that were asked for."""
    words = [*command, "--locked", "--message-format=json-render-diagnostics"]
    built = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    if built.returncode != 0:
        sys.exit(f"ci: `{' '.join(words)}` failed")
    messages = map(json.loads, built.stdout.splitlines())
    return [message for message in messages if message.get("executable") and is_wanted(message)]


def test(folder):
    jobs = []

    def add(message, *words, label="", **environment):
        package, target = Path(message["manifest_path"]).parent, message["target"]
        name = f"{package.relative_to(Path.cwd())} {target['kind'][0]} {target['name']}{label}"
        seconds, cores = TESTS.get(name, (0, 1))
        # As cargo sets it. Tests of commands and sockets wait most of their time.
        home = {"CARGO_MANIFEST_DIR": str(package), "RUST_TEST_THREADS": os.environ.get("RUST_TEST_THREADS", "4")}
        nice = ["nice", "-n", "19"] if name.startswith(PURE) else []
        jobs.append(Job(name, [*nice, message["executable"], *words], folder, seconds, cores, package, **home, **environment))

    for message in executables(["cargo", "test", "--workspace", "--no-run"], lambda message: message["profile"]["test"]):
        add(message)
        # The sockets once more, as other systems have them.
        package, target = Path(message["manifest_path"]).parent.relative_to(Path.cwd()), message["target"]
        if package == Path("crates/headwater") and ("lib" in target["kind"] or target["name"] in ("doctor", "net", "relay", "session")):
            add(message, label=", portable", HEADWATER_PORTABLE="1")
        if package == Path("crates/cli") and target["name"] == "it":
            add(message, "transfer", "groups", "get", label=", portable", HEADWATER_PORTABLE="1")
    jobs.append(Job("documentation", ["cargo", "test", "--locked", "--workspace", "--doc"], folder, 1000, 1))
    run(jobs, CORES)
    return jobs, again_alone([job for job in jobs if not job.name.startswith(PURE)])


def fuzz(folder):
    seconds = int(os.environ.get("FUZZ_SECONDS", 10))
    host = re.search("host: (.*)", subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout)[1]
    flags = f"{os.environ.get('RUSTFLAGS', '')} -D warnings {' '.join(COVERAGE)}"
    # Named, so that the flags are not those of build scripts and macros.
    build = ["cargo", "build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", host]
    jobs = []
    for message in executables(build, lambda message: message["target"]["kind"] == ["bin"], RUSTFLAGS=flags):
        name = message["target"]["name"]
        # New inputs go to a corpus of the run's own, which leaves the checkout as it was.
        found, seeds, faults = folder / f"corpus-{name}", Path("fuzz/corpus", name), Path("fuzz/artifacts", name)
        for place in (found, faults):
            place.mkdir(parents=True, exist_ok=True)
        options = [f"-max_total_time={seconds}", "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={faults}/"]
        jobs.append(Job(f"fuzz {name}", [message["executable"], *options, found, *([seeds] if seeds.is_dir() else [])], folder, seconds, 1))
    run(jobs, CORES)
    return jobs, [f"fuzz: {len(jobs)} targets, {seconds} s each"]


def main():
    step, folder = sys.argv[1], Path(sys.argv[2])
    # A shell starts what runs behind its back with SIGINT ignored, and programs inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    jobs, notes = {"interop": interop, "test": test, "fuzz": fuzz}[step](folder)
    show_times(jobs, time.monotonic() - began)
    (folder / "notes").write_text("".join(f"{note}\n" for note in notes))
    failed = [job for job in jobs if job.code != 0]
    for job in failed:
        print(f"ci: {job.name}: exit code {job.code}; its last lines:\n{job.tail()}")
    if failed:
        sys.exit(f"ci: {step}: failed: {' '.join(job.name for job in failed)}")


if __name__ == "__main__":
    main()
