"""Daemons that send folders again when they change, and daemons that follow them.

usage: serve.py BINARY [--full] [PART ...]; SERVE_FOLDER names a folder for all files
"""

import filecmp
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import parts
from network import Failed, Network, check, require_root

CHANGE_SECONDS = 5
SHORT_SECONDS, FULL_SECONDS = 20, 600
EQUAL_WITHIN_SECONDS = 10
# Each carousel: files that stay, and one that changes.
STEADY_FILES, STEADY_BYTES, CHANGING_BYTES = 20, 20_000, 300_000
SENDER, FOLLOWER = "10.94.0.1", "10.94.0.2"
CAROUSELS = ("layered", "fixed", "described")
WORKING = ".headwater-work"


class Bed:
    """A daemon with carousels and a daemon that follows them, at a bridge."""

    def __init__(self, network, binary, folder, full):
        self.network, self.binary, self.folder, self.full = network, binary, folder, full
        network.add_switch("mcast_snooping", "0")
        network.plug("sender", SENDER)
        network.plug("follower", FOLLOWER)

    def room(self, part):
        """Folders of sender and follower, with the carousels' steady files."""
        room = self.folder / part
        for name in CAROUSELS:
            source = room / "sources" / name
            (source / "folder").mkdir(parents=True)
            for number in range(STEADY_FILES):
                (source / "folder" / f"{number}").write_bytes(random.Random(f"{name}{number}").randbytes(STEADY_BYTES))
        return room

    def serve(self, host, room, text):
        config = room / f"{host}.toml"
        config.write_text(text)
        return self.network.start(host, f"serve-{room.name}", self.folder, [self.binary, "serve", "--config", config])

    def carousels(self, room, port, names=CAROUSELS, rate="20M"):
        """The configuration of the sender's daemon."""
        options = {"layered": "", "fixed": f'rate = "{rate}"', "described": f'http = "{SENDER}:{port}"'}
        return "".join(
            f'[[carousel]]\nname = "{name}"\npath = "{room}/sources/{name}"\ngroup = "239.255.74.{port % 200}:{7500 + number}"\n'
            f'interface = "eth0"\nsettle = "1s"\n{options[name]}\n'
            for number, name in enumerate(names)
        )

    def followers(self, room, port, more=""):
        """The configuration of the follower's daemon."""
        receive = "".join(
            f'[[receive]]\nname = "{name}"\nout = "{room}/{name}"\ngroup = "239.255.74.{port % 200}:{7500 + number}"\ninterface = "eth0"\n'
            f'delete = true\nevents = "{room}/{name}.events"\n{more}\n'
            for number, name in enumerate(CAROUSELS[:2])
        )
        get = f'[[get]]\nname = "described"\nurl = "http://{SENDER}:{port}/"\nout = "{room}/described"\ninterface = "eth0"\ndelete = true\nevents = "{room}/described.events"\n{more}\n'
        return receive + get


def names(folder):
    """Files below a folder, without the receiver's working folder."""
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and WORKING not in path.parts}


def is_equal(room, name):
    """Whether the follower's copy of a carousel is equal, and nothing else is there."""
    source, copy = room / "sources" / name, room / name / name
    files = names(source)
    return copy.is_dir() and names(copy) == files and all(filecmp.cmp(source / file, copy / file, shallow=False) for file in files)


def symbols_kept(room, name):
    """Symbols that a follower has kept in a session, at most. Each start of the follower begins a log."""
    events = map(json.loads, (room / f"{name}.events").read_text().replace("\x1e", "").splitlines())
    return max((event["data"]["useful"] for event in events if event.get("name") == "session:progress"), default=0)


def wait_for(what, holds, seconds=60):
    until = time.monotonic() + seconds
    while not holds():
        check(time.monotonic() < until, f"{what} did not come within {seconds} s")
        time.sleep(0.05)


def end(*programs):
    """Ends daemons by SIGTERM; returns whether each ended with 0."""
    for program in programs:
        program.signal(signal.SIGTERM)
    return all(program.end() == 0 for program in programs)


class Watch(threading.Thread):
    """Looks at the followers' copies of the changing files, and says when each version came."""

    def __init__(self, room):
        super().__init__(daemon=True)
        self.room, self.ends = room, False
        # Versions by carousel: digest, and when it was written; and when each was seen.
        self.versions = {name: [] for name in CAROUSELS}
        self.seen = {name: {} for name in CAROUSELS}
        self.strange = set()

    def write(self, name, number):
        content = random.Random(f"{name} {number}").randbytes(CHANGING_BYTES + number)
        self.versions[name].append((hashlib.blake2b(content).digest(), time.monotonic()))
        (self.room / "sources" / name / "changing").write_bytes(content)

    def run(self):
        while not self.ends:
            for name in CAROUSELS:
                self.look(name)
            time.sleep(0.05)

    def look(self, name):
        try:
            content = (self.room / name / name / "changing").read_bytes()
        except FileNotFoundError:
            return
        digest = hashlib.blake2b(content).digest()
        if digest not in (known for known, _ in self.versions[name]):
            self.strange.add((name, len(content)))
        self.seen[name].setdefault(digest, time.monotonic())

    def delays(self, name):
        """Seconds from each change to this version, or a later one, at the follower."""
        delays = []
        for number, (_, written) in list(enumerate(self.versions[name]))[1:]:
            seen = [self.seen[name][digest] for digest, _ in self.versions[name][number:] if digest in self.seen[name]]
            delays.append(min(seen) - written if seen else float("inf"))
        return delays


def carousels(bed):
    """A file of each of three carousels changes every 5 s; a file comes, another one goes."""
    room, port = bed.room("carousels"), 7301
    hook = room / "hook.sh"
    hook.write_text(f'#!/bin/sh\necho "$1" >> {room}/hooked\n')
    hook.chmod(0o755)
    watch = Watch(room)
    for name in CAROUSELS:
        watch.write(name, 0)
    daemons = [
        bed.serve("sender", room, bed.carousels(room, port)),
        bed.serve("follower", room, bed.followers(room, port, f'exec = "{hook}"')),
    ]
    wait_for("the first session", lambda: all(is_equal(room, name) for name in CAROUSELS))
    watch.start()
    for name in CAROUSELS:
        watch.write(name, 1)
    changes = (FULL_SECONDS if bed.full else SHORT_SECONDS) // CHANGE_SECONDS
    for number in range(2, changes + 2):
        time.sleep(CHANGE_SECONDS)
        for name in CAROUSELS:
            watch.write(name, number)
            if number == 3:
                (room / "sources" / name / "folder" / "3").unlink()
                (room / "sources" / name / "folder" / "new").write_bytes(b"new")
    wait_for("the last session", lambda: all(is_equal(room, name) for name in CAROUSELS), 2 * EQUAL_WITHIN_SECONDS)
    time.sleep(1)
    watch.ends = True
    watch.join()
    for name in CAROUSELS:
        delays = watch.delays(name)
        shown = f"{len(delays)} changes came after {min(delays):.1f} to {max(delays):.1f} s, {sorted(delays)[len(delays) // 2]:.1f} in the middle"
        yield f"{name}: {shown}, at most {EQUAL_WITHIN_SECONDS}", max(delays) <= EQUAL_WITHIN_SECONDS, parts.BUSY
    yield f"no half file was seen {sorted(watch.strange) or ''}", not watch.strange
    hooked = (room / "hooked").read_text().splitlines()
    steady = [sum(line.endswith(f"{name}/folder/1") for line in hooked) for name in CAROUSELS]
    changed = [sum(line.endswith(f"{name}/changing") for line in hooked) for name in CAROUSELS]
    yield f"the program ran once for what did not change {steady}, and again for what did {changed}", steady == [1, 1, 1] and min(changed) > 1
    yield "both daemons end with 0 at SIGTERM", end(*daemons)


def children(daemon):
    """Commands that a daemon runs."""
    return [int(pid) for pid in Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split()]


def crash(bed):
    """A sender's command and a follower's daemon are killed; the daemon of the sender is killed with all that it runs."""
    room, port = bed.room("crash"), 7302
    sender = bed.serve("sender", room, bed.carousels(room, port))
    follower = bed.serve("follower", room, bed.followers(room, port))
    wait_for("the first session", lambda: all(is_equal(room, name) for name in CAROUSELS))
    before = {path: path.stat().st_ino for name in CAROUSELS for path in (room / name).rglob("*") if WORKING not in path.parts}
    for pid in children(sender):
        os.kill(pid, signal.SIGKILL)
    pids = children(follower)
    follower.kill()
    wait_for("the end of the killed daemon's commands", lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10)
    yield "commands end with their daemon", True
    follower = bed.serve("follower", room, bed.followers(room, port))
    (room / "sources" / "layered" / "late").write_bytes(b"late")
    wait_for("a change after the crash", lambda: all(is_equal(room, name) for name in CAROUSELS))
    after = {path: path.stat().st_ino for path in before}
    yield "no file that was there was received again", after == before
    kept = [symbols_kept(room, name) for name in CAROUSELS]
    # The new file is one symbol; until it is in place, two to spare are kept.
    yield f"after the crash followers kept {kept} symbols: those of the new file", 1 <= kept[0] <= 3 and kept[1:] == [0, 0]
    yield "both daemons end with 0 at SIGTERM", end(sender, follower)


def reload(bed):
    """The configuration is read again: a faulty one changes nothing, another one what it names; a folder without files waits."""
    room, port = bed.room("reload"), 7303
    config = bed.carousels(room, port)
    sender = bed.serve("sender", room, config)
    wait_for("three commands", lambda: len(children(sender)) == 3)
    first = children(sender)
    said = lambda text: lambda: text in sender.err.read_text()
    (room / "sender.toml").write_text(config.replace("settle", "setle", 1))
    sender.signal(signal.SIGHUP)
    wait_for("the fault", said("did you mean 'settle'"))
    yield "a faulty configuration changes nothing", children(sender) == first
    empty = room / "sources" / "empty"
    empty.mkdir()
    kept = bed.carousels(room, port, CAROUSELS[:2], "10M") + f'[[carousel]]\nname = "empty"\npath = "{empty}"\ngroup = "239.255.74.99:7600"\ninterface = "eth0"\n'
    (room / "sender.toml").write_text(kept)
    sender.signal(signal.SIGHUP)
    wait_for("the change", said("the configuration was read again: 2 services changed"))
    wait_for("two commands", lambda: len(children(sender)) == 2 and children(sender) != first)
    yield "what is the same goes on", first[0] in children(sender) and not set(first[1:]) & set(children(sender))
    (empty / "file").write_bytes(b"content")
    wait_for("the carousel that had no file", lambda: len(children(sender)) == 3)
    yield "a folder without files waits for a file", True
    yield from replaced(bed, room, port)
    yield "the daemon ends with 0 at SIGTERM", end(sender)


def replaced(bed, room, port):
    """A follower's options change; then a package upgrade replaces the program."""
    program = room / "headwater"
    shutil.copy(bed.binary, program)
    config = bed.followers(room, port).split("[[get]]")[0]
    bed.binary, before = program, bed.binary
    follower = bed.serve("follower", room, config)
    bed.binary = before
    wait_for("two commands", lambda: len(children(follower)) == 2)
    first = children(follower)
    (room / "follower.toml").write_text(config.replace("delete = true", "delete = false", 1))
    follower.signal(signal.SIGHUP)
    wait_for("another command", lambda: len(children(follower)) == 2 and children(follower) != first)
    yield "the follower that has changed alone is started again", len(set(first) & set(children(follower))) == 1
    shutil.copy(bed.binary, room / "new")
    (room / "new").rename(program)
    second = children(follower)
    os.kill(second[-1], signal.SIGKILL)
    wait_for("the killed command", lambda: len(children(follower)) == 2 and children(follower) != second)
    time.sleep(1)
    yield "commands start after an upgrade of the program", len(children(follower)) == 2 and "cannot start" not in follower.err.read_text()
    yield "the follower ends with 0 at SIGTERM", end(follower)


PARTS = {part.__name__: part for part in (carousels, crash, reload)}


def main():
    options = parts.chosen(PARTS, "m2c")
    require_root("ip")
    with Network("hw-serve") as network:
        bed = Bed(network, options.binary, Path(os.environ["SERVE_FOLDER"]), options.full)
        try:
            names = options.parts or list(PARTS)
            missed = parts.run(PARTS, names, f"{len(CAROUSELS)} carousels", lambda part: part(bed), options.full)
        except Failed as failure:
            for log in sorted(bed.folder.glob("*.err")):
                print(f"--- {log.name}\n{log.read_text()[-2000:]}", file=sys.stderr)
            sys.exit(f"serve: FAILED: {failure}")
    if missed:
        sys.exit("serve: MISSED: " + "; ".join(missed))


if __name__ == "__main__":
    main()
