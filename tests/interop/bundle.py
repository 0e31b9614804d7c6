"""Many small files in bundles.

What must hold, for 10 000 files of 1 kB, with default options unless said otherwise:

- fast: on an unshaped link they take 5 s, with --rate 500M 2 s, files of 500 B take 8 s, in bundles and without (four times as long in the short
  form, which does not judge the last); from SIGINT to its exit a sender takes 3 s; a second run finds all in place;
- killed: a receiver killed at half of the content: it and the next one get at most 1 % more twice, or beyond their need, than an
  undisturbed one; a watcher of the folder (inotify) never sees half a file;
- select: --include and --exclude choose members;
- zip: what plain receivers keep is a zip: `unzip -t` is clean, and the files are equal;
- changed: a file that changes while it is sent comes as it was at the start, and takes no other file along;
- compress: texts with --compress take at most half of the bytes on the wire, by zstd and by gzip; a receiver killed at half of the content goes
  on, and a watcher never sees half a file;
- slow (--full): at 4 Mb/s they take at most 1.15 of the time of their zip, at full and half rate;
- many (--full): 100 000 files take at most 1 GiB of memory at either end.

After each, `rsync -nac --delete` reports no difference.

usage: bundle.py BINARY [--full] [PART ...]; BUNDLE_FOLDER names a folder for all files
"""

import ctypes
import os
import random
import select
import signal
import struct
import subprocess
import sys
import threading
import time

from pathlib import Path

from network import Network, check, require_root

COUNT, BYTES = 10_000, 1_000
# Options, bytes of a file, and seconds at most.
FAST = [((), BYTES, 5), (("--rate", "500M"), BYTES, 2), ((), 500, 8), (("--bundle", "never"), 500, 8)]
EXIT_SECONDS = 3
# The short form runs beside other work on a machine of few cores.
SPARE = 1 if "--full" in sys.argv else 4
ZIP_RATIO = 1.15
EXCESS_MAX = 0.01
MEMORY_MAX = 1 << 30
SENDER = "10.93.0.1"


def tree(folder, count, seed=1, length=BYTES):
    """Files of `length` bytes in folders of 200, with various modes and times."""
    source = random.Random(seed)
    for number in range(count):
        path = folder / f"folder {number // 200:03}" / f"file-{number:06}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.randbytes(length))
        path.chmod(source.choice((0o644, 0o600, 0o755)))
        os.utime(path, ns=(10**18, 10**18 + number * 1_000_000_007))
    return folder


class Watcher(threading.Thread):
    """Watches a folder and the folders in it: files must come by a rename, whole."""

    CREATE, MODIFY, CLOSE_WRITE, MOVED_TO = 0x100, 0x2, 0x8, 0x80

    def __init__(self, folder, source):
        super().__init__()
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self.libc.inotify_init1(os.O_CLOEXEC)
        self.source, self.folders, self.seen, self.wrong = source, {}, 0, []
        self.is_over = False
        for below in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            mask = self.CREATE | self.MODIFY | self.CLOSE_WRITE | self.MOVED_TO
            number = self.libc.inotify_add_watch(self.descriptor, str(below).encode(), mask)
            check(number >= 0, f"cannot watch {below}")
            self.folders[number] = (below, source / below.relative_to(folder))
        self.start()

    def run(self):
        while not self.is_over or select.select([self.descriptor], [], [], 0)[0]:
            if not select.select([self.descriptor], [], [], 0.1)[0]:
                continue
            events = os.read(self.descriptor, 1 << 20)
            while events:
                number, mask, _, length = struct.unpack_from("iIII", events)
                name = events[16 : 16 + length].rstrip(b"\0").decode()
                events = events[16 + length :]
                if number in self.folders and not name.startswith(".headwater-"):
                    self.judge(*self.folders[number], name, mask)

    def judge(self, folder, source, name, mask):
        self.seen += bool(mask & self.MOVED_TO)
        # A long file is closed after its rename.
        is_same = mask & (self.MOVED_TO | self.CLOSE_WRITE) and (folder / name).read_bytes() == (source / name).read_bytes()
        if not is_same:
            self.wrong.append(f"{folder / name}: event {mask:x}")

    def end(self):
        self.is_over = True
        self.join()
        os.close(self.descriptor)
        check(not self.wrong, f"half files were seen: {self.wrong[:3]}")
        return self.seen


class Bed:
    """A sender and receivers at a bridge."""

    def __init__(self, network, binary, folder):
        self.network, self.binary, self.folder = network, binary, folder
        network.add_switch("mcast_snooping", "0")
        for number, host in enumerate(("sender", "one", "two"), start=1):
            network.plug(host, f"10.93.0.{number}")
        self.group = 0
        self.files = tree(folder / "files", COUNT)

    def next_group(self):
        """Options of a session of its own."""
        self.group += 1
        return ("--interface", "eth0", "--group", f"239.255.88.{self.group}:7287")

    def send(self, group, *options, files=None):
        command = (self.binary, "send", "--json", *group, *options, files or self.files)
        return self.network.start("sender", f"send-{self.group}", self.folder, command)

    def receive(self, host, group, out, *options, name=""):
        command = (self.binary, "receive", "--json", *group, "--trust", "any", "--timeout", "60s", "--out", out, *options)
        return self.network.start(host, f"receive-{self.group}{name}", self.folder, command)

    def transfer(self, out, options, receiving=(), files=None):
        """Seconds from the session's first packet to the end of its receiver, the receiver, and the sender, interrupted."""
        group = self.next_group()
        receiver = self.receive("one", group, out, *receiving)
        while not receiver.memberships(group[-1].split(":")[0]):
            check(not receiver.has_ended(), f"the receiver ended: {receiver.complaint()}")
            time.sleep(0.02)
        sender = self.send(group, *options, files=files)
        code = receiver.end(1_000)
        sender.exit_seconds = interrupt(sender)
        check(code == 0, f"the receiver ended with {code}: {receiver.complaint()}")
        events = receiver.events()
        seconds = (time_of(events, "session:ended") - time_of(events, "session:found")) / 1e3
        return seconds, receiver, sender

    def compare(self, out, files=None, also=()):
        files = files or self.files
        said = subprocess.run(
            ["rsync", "-naci", "--delete", *also, f"{files}/", f"{out}/{files.name}/"],
            capture_output=True, text=True, check=True,
        ).stdout
        check(not said, f"rsync sees differences: {said[:300]}")


def interrupt(sender):
    """Seconds from SIGINT to the exit of a sender."""
    began = time.monotonic()
    sender.signal(signal.SIGINT)
    code = sender.end()
    check(code == 130, f"the sender ended with {code}: {sender.complaint()}")
    return time.monotonic() - began


def has(events, name):
    return any(event.get("event") == name for event in events)


def time_of(events, name):
    return next(event["time"] for event in events if event.get("event") == name)


def ended(receiver):
    return next(event for event in receiver.events() if event.get("event") == "session:ended")


def completed(receiver):
    return [event for event in receiver.events() if event.get("event") == "object:completed"]


def fast(bed):
    short_files = tree(bed.folder / "short files", COUNT, seed=5, length=500)
    for options, length, seconds_max in FAST:
        files = bed.files if length == BYTES else short_files
        out = bed.folder / "-".join(("fast", str(length), *options))
        seconds, receiver, sender = bed.transfer(out, options, files=files)
        bed.compare(out, files=files)
        came = completed(receiver)
        check(len(came) == COUNT and not any(file["present"] for file in came), "not all files were reported")
        print(f"  files of {length} B, {' '.join(options) or 'default'}: {seconds:.2f} s, {ended(receiver)['packets']} packets,"
              f" {receiver.cpu_seconds:.1f} s of processor time, {receiver.memory_bytes >> 20} MiB; SIGINT to exit {sender.exit_seconds:.2f} s")
        # Without bundles a busy machine keeps the control low for long.
        is_judged = "never" not in options or "--full" in sys.argv
        check(not is_judged or seconds <= seconds_max * SPARE, f"{seconds:.2f} s are more than {seconds_max} s by {SPARE} times")
        check(sender.exit_seconds <= EXIT_SECONDS, f"the sender took {sender.exit_seconds:.2f} s to end")
        again, receiver, _ = bed.transfer(out, options, files=files)
        came = completed(receiver)
        useful = ended(receiver)["useful"]
        print(f"  again: {again:.2f} s, {useful} symbols")
        check(len(came) == COUNT and all(file["present"] for file in came), "files were received again")
        bed.compare(out, files=files)


def killed(bed):
    """Two receivers at the same time, of which one is killed."""
    group, outs = bed.next_group(), [bed.folder / name for name in ("undisturbed", "killed")]
    for path in bed.files.rglob("*"):
        if path.is_dir():
            (outs[1] / bed.files.name / path.relative_to(bed.files)).mkdir(parents=True)
    watcher = Watcher(outs[1], bed.folder)
    undisturbed = bed.receive("one", group, outs[0], name="-one")
    first = bed.receive("two", group, outs[1], name="-two")
    sender = bed.send(group, "--rate", "10M")
    half = COUNT * BYTES / 1_344 / 2
    is_half = lambda events: any(event.get("event") == "session:progress" and event["symbols"] > half for event in events)
    first.wait_for("half of the content", is_half)
    first.kill()
    second = bed.receive("two", group, outs[1], name="-three")
    for receiver in (undisturbed, second):
        check(receiver.end() == 0, f"{receiver.name}: {receiver.complaint()}")
    sender.kill()
    seen = watcher.end()
    last = [event for event in first.events() if event.get("event") == "session:progress"][-1]
    excess = lambda *counts: sum(count["duplicates"] + count["surplus"] for count in counts)
    total = ended(undisturbed)["symbols_total"]
    more = (excess(last, ended(second)) - excess(ended(undisturbed))) / total
    print(f"  killed at {last['symbols']} of {total} symbols, {ended(second)['resumed']} resumed; excess {100 * more:.2f} %; {seen} files watched")
    check(seen == COUNT, f"{seen} files came by a rename")
    check(more <= EXCESS_MAX, f"{100 * more:.2f} % came twice")
    for out in outs:
        bed.compare(out)


def chosen(bed):
    out = bed.folder / "select"
    _, receiver, _ = bed.transfer(out, ("--rate", "100M"), ("--include", "folder 00?/", "--exclude", "*7.bin"))
    check(len(completed(receiver)) == 10 * 180, f"{len(completed(receiver))} files")
    bed.compare(out, also=("--omit-dir-times", "--include=/folder 00?/", "--exclude=/*/", "--exclude=*7.bin"))


def zipped(bed):
    """Takes the bundles from the sender's web server."""
    group = bed.next_group()
    sender = bed.send(group, "--rate", "10M", "--http", "0.0.0.0:7280")
    receiver = bed.receive("one", group, bed.folder / "zip-out")
    receiver.wait_for("the bundles", lambda events: has(events, "object:announced"))
    names = {event["file"] for event in receiver.events() if event.get("event") == "object:announced"}
    for name in names:
        check(name.startswith("bundle-") and name.endswith(".zip"), f"'{name}' is announced")
        url, to = f"http://{SENDER}:7280/files/{name}", bed.folder / name
        fetch = "import sys, urllib.request; urllib.request.urlretrieve(sys.argv[1], sys.argv[2])"
        bed.network.run("two", sys.executable, "-c", fetch, url, to)
        tested = subprocess.run(["unzip", "-tqq", to], capture_output=True, text=True)
        check(tested.returncode == 0, f"unzip -t: {tested.stdout}{tested.stderr}")
        subprocess.run(["unzip", "-q", to, "-d", bed.folder / "unzipped"], check=True)
    # A zip has no fractions of a second.
    bed.compare(bed.folder / "unzipped", also=("--modify-window=1", "--omit-dir-times"))
    print(f"  {len(names)} zips are clean")
    receiver.kill()
    sender.kill()


def changed(bed):
    """A file that changes while it is sent comes as it was at the start, and takes no other file along."""
    files, out = tree(bed.folder / "changing", 9_000, seed=2), bed.folder / "changed"
    group = bed.next_group()
    receiver = bed.receive("one", group, out)
    sender = bed.send(group, "--rate", "10M", files=files)
    receiver.wait_for("content", lambda events: has(events, "object:announced"))
    victim = files / "folder 003" / "file-000700.bin"
    before = victim.read_bytes()
    victim.write_bytes(bytes(BYTES))
    code = receiver.end()
    check(code == 0, f"the receiver ended with {code}: {receiver.complaint()}")
    interrupt(sender)
    victim.write_bytes(before)
    names = {file["file"] for file in completed(receiver)}
    check(len(names) == 9_000, f"{len(names)} files")
    for name in names:
        check((out / name).read_bytes() == (bed.folder / name).read_bytes(), f"{name} differs")
    print(f"  {len(names)} of 9000 files came")


def texts(folder):
    """Small texts, a long text, and content that does not shrink."""
    source = random.Random(4)
    words = [bytes(source.choices(b"abcdefghijklmnopqrstuvwxyz", k=source.randrange(2, 12))) for _ in range(2_000)]
    text = lambda count: b" ".join(source.choices(words, k=count))
    for number in range(1_000):
        path = folder / f"folder {number // 200}" / f"text {number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text(500))
    (folder / "long text").write_bytes(text(600_000))
    (folder / "noise").write_bytes(source.randbytes(300_000))
    return folder


def compressed(bed):
    files, counts = texts(bed.folder / "texts"), {}
    for options in ((), ("--compress",), ("--compress=gzip",)):
        out = bed.folder / "-".join(("compress", *options))
        seconds, receiver, sender = bed.transfer(out, ("--rate", "50M", *options), files=files)
        bed.compare(out, files=files)
        counts[options] = ended(receiver)["bytes"]
        print(f"  {' '.join(options) or 'plain'}: {seconds:.2f} s, {counts[options]} bytes, {receiver.cpu_seconds:.2f} s of processor time at the"
              f" receiver, {sender.cpu_seconds:.2f} s at the sender")
    for options in list(counts)[1:]:
        check(counts[options] * 2 <= counts[()], f"{counts[options]} of {counts[()]} bytes with {options}")
    group, out = bed.next_group(), bed.folder / "compress-killed"
    for path in files.rglob("*"):
        if path.is_dir():
            (out / files.name / path.relative_to(files)).mkdir(parents=True)
    watcher = Watcher(out, bed.folder)
    first = bed.receive("two", group, out, name="-one")
    sender = bed.send(group, "--rate", "10M", "--compress", files=files)
    progress = lambda events: [event for event in events if event.get("event") == "session:progress"]
    first.wait_for("half of the content", lambda events: any(2 * event["symbols"] > event["symbols_total"] > 0 for event in progress(events)))
    first.kill()
    second = bed.receive("two", group, out, name="-two")
    check(second.end() == 0, f"the receiver: {second.complaint()}")
    sender.kill()
    seen = watcher.end()
    print(f"  killed at {progress(first.events())[-1]['symbols']} of {ended(second)['symbols_total']} symbols, {ended(second)['resumed']} resumed;"
          f" {seen} files watched")
    check(seen == 1_002 and ended(second)["resumed"] > 0, f"{seen} files came by a rename")
    bed.compare(out, files=files)


def slow(bed):
    """Beside the zip of the files, at the same time."""
    archive = bed.folder / "archive"
    archive.mkdir()
    subprocess.run(["python3", "-m", "zipfile", "-c", archive / "files.zip", bed.files], check=True)
    for share, limit in (("full", ()), ("half", ("--max-rate", "2M"))):
        seconds = {}
        for kind, files in (("bundles", bed.files), ("zip", archive / "files.zip")):
            out = bed.folder / f"slow-{share}-{kind}"
            seconds[kind], receiver, _ = bed.transfer(out, ("--max-rate", "4M"), limit, files=files)
            end = ended(receiver)
            print(f"  {share} rate, {kind}: {seconds[kind]:.1f} s, {end['packets']} packets, {end['duplicates']} duplicates,"
                  f" {end['surplus']} surplus of {end['symbols_total']} symbols")
            if kind == "bundles":
                bed.compare(out)
        check(seconds["bundles"] <= ZIP_RATIO * seconds["zip"], f"{seconds} at {share} rate")


def many(bed):
    files, out = tree(bed.folder / "many", 100_000, seed=3), bed.folder / "many-out"
    seconds, receiver, sender = bed.transfer(out, ("--rate", "100M"), files=files)
    memory = [program.memory_bytes >> 20 for program in (receiver, sender)]
    print(f"  100 000 files: {seconds:.1f} s, {memory[0]} MiB at the receiver, {memory[1]} MiB at the sender")
    bed.compare(out, files=files)
    check(max(memory) <= MEMORY_MAX >> 20, f"{memory} MiB of memory")


PARTS = {"fast": fast, "killed": killed, "select": chosen, "zip": zipped, "changed": changed, "compress": compressed, "slow": slow, "many": many}
SHORT = ["fast", "killed", "select", "zip", "changed", "compress"]


def main():
    require_root("ip", "rsync", "unzip")
    arguments = [word for word in sys.argv[2:] if word != "--full"]
    wanted = arguments or (list(PARTS) if "--full" in sys.argv else SHORT)
    folder = Path(os.environ["BUNDLE_FOLDER"])
    with Network("hwbundle") as network:
        bed = Bed(network, sys.argv[1], folder)
        for name in wanted:
            print(f"{name}:", flush=True)
            PARTS[name](bed)
    print("bundles: all holds")


if __name__ == "__main__":
    main()
