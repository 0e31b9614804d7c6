"""Images straight to block devices and pipes.

usage: target.py BINARY [--full] [PART...]

parts: device refused pipe input used
"""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import parts
from network import Failed, check, require_root, run

GROUP = "239.255.72.88:7287"
MB = 1_000_000
PATIENCE_SECONDS = 120


class Bed:
    """Loop devices of a folder, and programs on the loopback interface."""

    def __init__(self, binary, folder, full):
        self.binary, self.folder, self.full = binary, Path(folder), full
        self.devices, self.programs = [], []
        # Keys and working files of this run alone.
        self.environment = {**os.environ, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}

    def close(self):
        for program in self.programs:
            program.kill()
            program.wait()
        for device in self.devices:
            run("losetup", "--detach", device)

    def image(self, name, number_of_bytes, seed):
        file = self.folder / name
        made = random.Random(seed)
        with open(file, "wb") as out:
            for start in range(0, number_of_bytes, 100 * MB):
                out.write(made.randbytes(min(100 * MB, number_of_bytes - start)))
        return file

    def device(self, name, number_of_bytes):
        file = self.folder / name
        with open(file, "wb") as made:
            made.truncate(number_of_bytes)
        device = run("losetup", "--find", "--show", file).strip()
        self.devices.append(device)
        return device

    def start(self, *arguments, **more):
        program = subprocess.Popen([str(word) for word in arguments], env=self.environment, stderr=subprocess.PIPE, text=True, **more)
        self.programs.append(program)
        return program

    def receive(self, *place, **more):
        events = self.folder / f"events{len(self.programs)}"
        options = ["--interface", "lo", "--group", GROUP, "--timeout", "20s", "--quiet", "--events", events]
        program = self.start(self.binary, "receive", *options, *place, **more)
        until = time.monotonic() + 20
        while not (events.exists() and "channel:joined" in events.read_text()):
            check(program.poll() is None, f"receive ended: {program.poll()}")
            check(time.monotonic() < until, "receive joins nothing")
            time.sleep(0.01)
        return program

    def send(self, file, rate, until=1, **more):
        return self.start(self.binary, "send", "--interface", "lo", "--group", GROUP, "--rate", rate, "--until", until, "--quiet", file, **more)

    def transfer(self, file, rate, *place):
        """Seconds from the sender's start to the receiver's end."""
        receiver = self.receive(*place)
        began = time.monotonic()
        sender = self.send(file, rate)
        self.ok(receiver)
        seconds = time.monotonic() - began
        self.ok(sender)
        return seconds

    def ok(self, program):
        _, complaint = program.communicate(timeout=PATIENCE_SECONDS)
        check(program.returncode == 0, f"{program.args[1]} ended with {program.returncode}: {complaint}")


def digest(path, number_of_bytes):
    hashed, left = hashlib.sha256(), number_of_bytes
    with open(path, "rb") as file:
        while left > 0 and (chunk := file.read(min(left, 1 << 20))):
            hashed.update(chunk)
            left -= len(chunk)
    return hashed.hexdigest()


def device(bed):
    """An image to a loop device, as fast as to a file, and after a kill."""
    megabytes = 500 if bed.full else 100
    image = bed.image("image", megabytes * MB, 1)
    wanted = digest(image, megabytes * MB)
    disk = bed.device("disk", (megabytes + 1) * MB // 512 * 512)
    times = {"file": [], "device": []}
    for turn in range(3):
        times["file"].append(bed.transfer(image, "800M", "--out", bed.folder / f"out{turn}"))
        times["device"].append(bed.transfer(image, "800M", "--to", disk))
    is_equal = digest(disk, megabytes * MB) == wanted
    share = min(times["file"]) / min(times["device"])
    print(f"  {megabytes} MB: file {min(times['file']):.2f} s, device {min(times['device']):.2f} s: {share:.2f} of the speed")
    # Another image over the first one.
    other = bed.image("other", megabytes * MB, 2)
    receiver = bed.receive("--to", disk)
    sender = bed.send(other, "200M")
    time.sleep(1.5 if bed.full else 1)
    receiver.kill()
    receiver.wait()
    receiver = bed.receive("--to", disk)
    bed.ok(receiver)
    bed.ok(sender)
    events = (bed.folder / f"events{len(bed.programs) - 1}").read_text()
    resumed = max(int(part.split(",")[0].rstrip("}")) for part in events.split('"resumed":')[1:])
    print(f"  after a kill: {resumed} symbols resumed")
    is_other = digest(disk, megabytes * MB) == digest(other, megabytes * MB)
    return [
        ("the device has the image", is_equal),
        ("at least 0.9 of the speed of a file", share >= 0.9, parts.BUSY),
        ("symbols are resumed after a kill", resumed > 0),
        ("the device has the other image then", is_other),
    ]


def refused(bed):
    """Devices in use, and devices that are too short."""
    image = bed.image("small", 20 * MB, 3)
    disk, short = bed.device("mounted", 64 * MB // 512 * 512), bed.device("short", 10 * MB // 512 * 512)
    run("mkfs.ext4", "-q", disk)
    place = bed.folder / "mount"
    place.mkdir()
    run("mount", disk, place)
    try:
        told = subprocess.run([bed.binary, "receive", "--interface", "lo", "--to", disk], capture_output=True, text=True, env=bed.environment)
    finally:
        run("umount", place)
    before = digest(short, 10 * MB)
    receiver = bed.receive("--to", short)
    sender = bed.send(image, "50M")
    _, complaint = receiver.communicate(timeout=PATIENCE_SECONDS)
    sender.send_signal(signal.SIGINT)
    sender.wait()
    print(f"  {told.stderr.strip()}\n  {complaint.strip()}")
    return [
        ("a mounted device is refused", told.returncode == 7 and "in use" in told.stderr),
        ("a device that is too short is refused, and stays as it is", receiver.returncode == 5 and digest(short, 10 * MB) == before),
    ]


def pipe(bed):
    """A compressed image through a pipe to its program."""
    image = bed.image("raw", 20 * MB, 4)
    run("zstd", "-q", image)
    packed, got = image.with_name("raw.zst"), bed.folder / "got"
    with open(got, "wb") as out:
        unpack = subprocess.Popen(["zstd", "-d", "-q"], stdin=subprocess.PIPE, stdout=out)
        receiver = bed.receive("--to", "-", stdout=unpack.stdin)
        unpack.stdin.close()
        sender = bed.send(packed, "100M")
        bed.ok(receiver)
        bed.ok(sender)
        check(unpack.wait(timeout=20) == 0, "zstd ended with an error")
    return [("the image is equal", digest(got, 30 * MB) == digest(image, 30 * MB))]


def input_(bed):
    """A compressed image of unknown length from a pipe to a pipe; memory of the receiver while its reader is slow."""
    image, got = bed.image("stream", 20 * MB, 5), bed.folder / "got-stream"
    with open(got, "wb") as out:
        unpack = subprocess.Popen(["zstd", "-d", "-q"], stdin=subprocess.PIPE, stdout=out)
        receiver = bed.receive("--to", "-", stdout=unpack.stdin)
        unpack.stdin.close()
        slow = bed.receive("--to", "-", "--out", bed.folder / "slow", stdout=subprocess.PIPE)
        pack = subprocess.Popen(["zstd", "-c", "-q", image], stdout=subprocess.PIPE)
        sender = bed.send("-", "100M", until=2, stdin=pack.stdout)
        pack.stdout.close()
        bed.ok(receiver)
        # Nothing was read of this receiver's output until now.
        memory = peak_memory(slow)
        print(f"  memory of a receiver whose reader waits: {memory / MB:.0f} MB")
        raw = subprocess.run(["zstd", "-d", "-c", "-q"], input=slow.stdout.buffer.read(), capture_output=True, check=True).stdout
        check(slow.wait(timeout=20) == 0, "the receiver with a slow reader failed")
        bed.ok(sender)
        check(pack.wait(timeout=20) == 0 and unpack.wait(timeout=20) == 0, "zstd ended with an error")
    return [
        ("the image is equal", digest(got, 30 * MB) == digest(image, 30 * MB)),
        ("a slow reader gets the same", raw == image.read_bytes()),
        ("a slow reader holds nobody, and takes no memory", memory < 100 * MB),
    ]


def peak_memory(program):
    """Peak of the resident memory in bytes."""
    status = Path(f"/proc/{program.pid}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def used(bed):
    """The used blocks of a file system, as the guide has it."""
    if shutil.which("partclone.ext4") is None:
        print("  SKIPPED: partclone is not installed")
        return []
    disk, copy = bed.device("ext4", 200 * MB // 512 * 512), bed.device("copy", 200 * MB // 512 * 512)
    run("mkfs.ext4", "-q", disk)
    place = bed.folder / "ext4-mount"
    place.mkdir()
    run("mount", disk, place)
    try:
        made = random.Random(6)
        for name, number_of_bytes in [("one", 9 * MB), ("two", 1), ("three", 3 * MB)]:
            (place / name).write_bytes(made.randbytes(number_of_bytes))
    finally:
        run("umount", place)
    log = bed.folder / "partclone.log"
    restore = subprocess.Popen(["partclone.ext4", "-r", "-q", "-L", log, "-s", "-", "-o", copy], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    receiver = bed.receive("--to", "-", stdout=restore.stdin)
    restore.stdin.close()
    clone = subprocess.Popen(["partclone.ext4", "-c", "-q", "-L", log, "-s", disk], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    sender = bed.send("-", "100M", stdin=clone.stdout)
    clone.stdout.close()
    bed.ok(receiver)
    bed.ok(sender)
    check(clone.wait(timeout=20) == 0 and restore.wait(timeout=60) == 0, "partclone ended with an error")
    run("e2fsck", "-f", "-n", copy)
    run("mount", "-o", "ro", copy, place)
    try:
        made = random.Random(6)
        equal = all((place / name).read_bytes() == made.randbytes(size) for name, size in [("one", 9 * MB), ("two", 1), ("three", 3 * MB)])
    finally:
        run("umount", place)
    return [("the files of the copy are equal", equal)]


PARTS = {"device": device, "refused": refused, "pipe": pipe, "input": input_, "used": used}


def main():
    options = parts.chosen(PARTS, "fixed")
    require_root("losetup", "mkfs.ext4", "zstd")
    with tempfile.TemporaryDirectory(prefix="hwtarget") as folder:
        bed = Bed(options.binary, folder, options.full)
        try:
            missed = parts.run(PARTS, options.parts or PARTS, "loopback", lambda part: part(bed), options.full)
        finally:
            bed.close()
    check(not missed, f"must hold: {'; '.join(missed)}")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"target: {failure}")
