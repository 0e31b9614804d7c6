"""Folders as people have them: metadata, sparse files, older versions.

What must hold, for files in bundles and long files:

- modes: with default options, modes and times of files and folders, and empty folders, are equal by `rsync -nac --delete`, also after a
  receiver was killed; links and owners are not made;
- all: with --preserve all and --links keep at both ends, `rsync -nacHAX --numeric-ids --delete` reports no difference; a receiver that
  does not ask gets modes without special bits, its own user, no attributes, copies of hard links and no symbolic links;
- user: a receiver without privileges receives into folders that may not be written, twice;
- sparse: a file takes no more of the disk than at the sender, and holes cost no packets;
- follow: a follower with --delete has the next state of the folder, links and hard links too;
- base: of an image of ten blocks of which three change, a receiver with the older image needs the symbols of three blocks, also after a
  kill; a block that moves by its own length is found in a file that the user names.

usage: folders.py BINARY [--full] [PART ...]; FOLDERS_FOLDER names a folder for all files
"""

import os
import random
import shutil
import struct
import subprocess
import sys
import time

from pathlib import Path

from network import Failed, Network, check, require_root

FULL = "--full" in sys.argv
MIB = 1 << 20
# Three of ten blocks, and a little for symbols beyond need.
BASE_SHARE_MAX = 0.35
SPARSE_SHARE_MAX = 0.30


def put(path, content, mode=0o644, when=10**18 + 123_456_789):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    os.utime(path, ns=(when, when))


def tree(folder, seed=1):
    """Small files that travel in bundles, and two long ones, in folders of various modes and times."""
    source = random.Random(seed)
    for number in range(120):
        put(folder / f"part {number // 20}" / f"file-{number:03}", source.randbytes(source.randrange(3_000)), source.choice((0o644, 0o600, 0o755, 0o444)))
    for name in ("long-one", "part 1/long-two"):
        put(folder / name, source.randbytes(2 * MIB), 0o640)
    for name in ("empty", "deep/empty", "part 2/none"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "part 3").chmod(0o700)
    (folder / "part 4").chmod(0o555)
    (folder / "deep").chmod(0o711)
    date(folder, source)
    return folder


def date(folder, source):
    """Times of folders, the lowest first."""
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        when = 10**18 + source.randrange(10**15)
        os.utime(path, ns=(when, when))
    os.utime(folder, ns=(10**18, 10**18))


def acl(entries):
    """An access control list as the kernel has it."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def special(folder):
    """Owners, special bits, attributes, links."""
    os.chown(folder / "long-one", 1_234, 5_678)
    (folder / "part 0/file-000").chmod(0o4755)
    (folder / "part 1/long-two").chmod(0o2750)
    (folder / "part 5").chmod(0o1777)
    for number in range(20, 40):
        os.chown(folder / "part 1" / f"file-{number:03}", 1_000, 100)
    os.chown(folder / "part 2", 1_000, 100)
    os.setxattr(folder / "part 1/file-021", "user.origin", b"a\0b\xff")
    os.setxattr(folder / "part 3", "user.kind", b"folder")
    none = 0xFFFF_FFFF
    listed = acl([(1, 6, none), (2, 4, 1_000), (4, 4, none), (0x10, 4, none), (0x20, 4, none)])
    os.setxattr(folder / "long-one", "system.posix_acl_access", listed)
    os.link(folder / "long-one", folder / "part 1/same as long-one")
    os.link(folder / "part 0/file-001", folder / "part 5/same as file-001")
    (folder / "part 1/up").symlink_to("../long-one")
    (folder / "to nothing").symlink_to("part 0/not there")
    (folder / "to part 2").symlink_to("part 2")
    (folder / "out").symlink_to("/etc/passwd")
    for name in ("part 1/up", "to nothing"):
        os.utime(folder / name, ns=(10**18, 10**18), follow_symlinks=False)
    date(folder, random.Random(7))


class Bed:
    """A sender and receivers at a bridge."""

    def __init__(self, network, binary, folder):
        self.network, self.binary, self.folder = network, binary, folder
        network.add_switch("mcast_snooping", "0")
        for number, host in enumerate(("sender", "one", "two"), start=1):
            network.plug(host, f"10.94.0.{number}")
        self.group = 0

    def next_group(self):
        """Options of a session of its own."""
        self.group += 1
        return ("--interface", "eth0", "--group", f"239.255.94.{self.group}:7287")

    def send(self, group, *options, files, name=""):
        command = (self.binary, "send", "--json", *group, *options, files)
        return self.network.start("sender", f"send-{self.group}{name}", self.folder, command)

    def receive(self, host, group, out, *options, name=""):
        command = (self.binary, "receive", "--json", *group, "--trust", "any", "--out", out, *options)
        return self.network.start(host, f"receive-{self.group}{name}", self.folder, command)

    def transfer(self, out, sending=(), receiving=(), files=None, code=0):
        """The receiver of a session of its own."""
        group = self.next_group()
        receiver = self.receive("one", group, out, "--timeout", "60s", *receiving)
        sender = self.send(group, *sending, files=files)
        ended = receiver.end(300)
        sender.kill()
        check(ended == code, f"the receiver ended with {ended}: {receiver.complaint()}")
        return receiver


def compare(files, out, *options):
    said = subprocess.run(
        ["rsync", "-naci", "--delete", "--numeric-ids", *options, f"{files}/", f"{out}/{files.name}/"],
        capture_output=True, text=True, check=True,
    ).stdout
    said = "\n".join(line for line in said.splitlines() if not line.startswith("skipping non-regular file"))
    check(not said, f"rsync sees differences:\n{said[:1000]}")


def ended(receiver):
    return next(event for event in receiver.events() if event.get("event") == "session:ended")


def progressed(receiver, symbols):
    receiver.wait_for(
        f"{symbols} symbols", lambda events: any(event.get("event") == "session:progress" and event["symbols"] >= symbols for event in events)
    )


def modes(bed):
    files = tree(bed.folder / "modes")
    out = bed.folder / "modes-out"
    bed.transfer(out, ("--rate", "100M"), files=files)
    compare(files, out)
    # A receiver that was killed, and the next.
    for share in (0.3, 0.8) if FULL else (0.5,):
        out = bed.folder / f"modes-killed-{share}"
        group = bed.next_group()
        first = bed.receive("one", group, out)
        sender = bed.send(group, "--rate", "10M", files=files)
        progressed(first, share * 4_400_000 / 1_344)
        first.kill()
        second = bed.receive("one", group, out, name="-again")
        check(second.end() == 0, f"the second receiver: {second.complaint()}")
        sender.kill()
        compare(files, out)
    print("  equal, also after a kill")


def everything(bed):
    files = tree(bed.folder / "all", seed=2)
    special(files)
    out = bed.folder / "all-out"
    both = ("--preserve", "all", "--links", "keep")
    receiver = bed.transfer(out, ("--rate", "100M", *both), both, files=files)
    compare(files, out, "-HAX", "--exclude=/out")
    check(not (out / files.name / "out").is_symlink(), "a link leads out")
    print("  equal by -HAX")
    # A link in the place of a file, and a file with other bits and attributes, are put right.
    victim = out / files.name / "part 0/file-002"
    victim.unlink()
    victim.symlink_to("../../../../etc/passwd")
    os.setxattr(out / files.name / "part 1/file-022", "user.own", b"x")
    (out / files.name / "part 1/file-023").chmod(0o4755)
    bed.transfer(out, ("--rate", "100M", *both), both, files=files)
    compare(files, out, "-HAX", "--exclude=/out")
    # The sender sends everything, the receiver asks for nothing.
    out = bed.folder / "all-plain"
    receiver = bed.transfer(out, ("--rate", "100M", *both), files=files)
    compare(files, out, "--no-links", "--no-owner", "--no-group", "--no-perms", "--omit-dir-times")
    for path in (out / files.name).rglob("*"):
        found = path.lstat()
        check(not path.is_symlink(), f"{path} is a link")
        check(found.st_mode & 0o7000 == 0 and found.st_uid == 0, f"{path}: mode {found.st_mode:o}, user {found.st_uid}")
        check(not os.listxattr(path), f"{path} has attributes")
        check(path.is_dir() or found.st_nlink == 1, f"{path} is a hard link")
    print("  a receiver that asks for nothing gets files alone")


def user(bed):
    files = tree(bed.folder / "user", seed=3)
    out = bed.folder / "user-out"
    out.mkdir()
    shutil.chown(out, "nobody")
    state = bed.folder / "state"
    state.mkdir(exist_ok=True)
    state.chmod(0o777)
    for _ in range(2):
        bed.transfer(out, ("--rate", "100M"), ("--user", "nobody", "--preserve", "all"), files=files)
        compare(files, out, "--no-owner", "--no-group")
        (files / "part 4").chmod(0o755)
        put(files / "part 4/file-new", b"new", 0o444)
        (files / "part 4").chmod(0o555)
        date(files, random.Random(9))
    print("  equal, for a user without privileges, twice")


def taken(path):
    """Bytes on the disk of a file, or of all files of a folder."""
    paths = [path] if path.is_file() else [below for below in path.rglob("*") if below.is_file()]
    return sum(below.stat().st_blocks * 512 for below in paths)


def sparse_file(path, length, places, source):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(length)
        for place, count in places:
            file.seek(place)
            file.write(source.randbytes(count))


def sparse(bed):
    source = random.Random(4)
    files = bed.folder / "sparse"
    length = (256 if FULL else 96) * MIB
    sparse_file(files / "image", length, [(0, MIB), (40 * MIB, 2 * MIB), (length - 5, 5)], source)
    for number in range(40):
        sparse_file(files / f"small-{number:02}", 60_000, [(0, 100), (30_000, 2_000)], source)
    out = bed.folder / "sparse-out"
    receiver = bed.transfer(out, ("--rate", "100M"), files=files)
    compare(files, out)
    sent, had, has = ended(receiver)["bytes"], taken(files), taken(out)
    total = sum(path.stat().st_size for path in files.rglob("*"))
    print(f"  {total >> 20} MiB, {had >> 10} KiB of the disk at the sender, {has >> 10} at the receiver; {sent >> 10} KiB came")
    check(has <= had * 1.1, "holes are filled")
    check(sent <= total * SPARSE_SHARE_MAX, "holes travel")
    # An older version with content in the place of holes; killed half-way.
    group, out = bed.next_group(), bed.folder / "sparse-old"
    (out / files.name).mkdir(parents=True)
    (out / files.name / "image").write_bytes(source.randbytes(50 * MIB) + bytes(length - 50 * MIB))
    first = bed.receive("one", group, out)
    sender = bed.send(group, "--rate", "20M", files=files)
    progressed(first, 2_000)
    first.kill()
    second = bed.receive("one", group, out, name="-again")
    check(second.end() == 0, f"the second receiver: {second.complaint()}")
    sender.kill()
    compare(files, out)
    check(taken(out) <= taken(files) * 1.1, f"{taken(out)} bytes of the disk after a kill")


def until_equal(files, out, *options, seconds=30):
    end = time.monotonic() + seconds
    while True:
        try:
            return compare(files, out, *options)
        except (Failed, subprocess.CalledProcessError):
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


def follow(bed):
    files = tree(bed.folder / "follow", seed=5)
    (files / "part 0/link").symlink_to("../long-one")
    os.link(files / "long-one", files / "again")
    date(files, random.Random(5))
    out, group = bed.folder / "follow-out", bed.next_group()
    both = ("--preserve", "modes,times,empty,hardlinks", "--links", "keep")
    follower = bed.receive("one", group, out, "--follow", "--delete", *both)
    sender = bed.send(group, "--rate", "50M", *both, files=files)
    until_equal(files, out, "-H")
    sender.signal(2)
    sender.end()
    # A link becomes a file, a file a link; a folder, a file and a link go.
    (files / "part 0/link").unlink()
    put(files / "part 0/link", b"a file now")
    (files / "part 0/file-003").unlink()
    (files / "part 0/file-003").symlink_to("file-004")
    (files / "again").unlink()
    shutil.rmtree(files / "part 5")
    (files / "new link").symlink_to("part 1")
    (files / "part 1").chmod(0o750)
    date(files, random.Random(6))
    sender = bed.send(group, "--rate", "50M", *both, files=files, name="-next")
    until_equal(files, out, "-H")
    sender.signal(2)
    sender.end()
    (files / "new link").unlink()
    date(files, random.Random(8))
    sender = bed.send(group, "--rate", "50M", *both, files=files, name="-last")
    until_equal(files, out, "-H")
    sender.kill()
    follower.kill()
    print("  equal after each state")


def change(path, places, source):
    with open(path, "r+b") as file:
        for place in places:
            file.seek(place)
            file.write(source.randbytes(4_096))


def share_of(receiver):
    end = ended(receiver)
    return end["useful"] / end["symbols_total"], end


def base(bed):
    source = random.Random(11)
    length = 64 * MIB
    files = bed.folder / "base"
    image = files / "image"
    put(image, source.randbytes(length))
    out, old = bed.folder / "base-out", bed.folder / "base-old"
    bed.transfer(out, ("--rate", "400M"), files=files)
    shutil.copytree(out / files.name, old)
    # Three blocks change: the older version is in the place of the new.
    change(image, (5 * MIB, 30 * MIB, 60 * MIB), source)
    receiver = bed.transfer(out, ("--rate", "200M"), files=files)
    compare(files, out)
    share, end = share_of(receiver)
    print(f"  by default: {100 * share:.1f} % of the symbols were needed, {end['reused']} reused, {end['surplus']} surplus, {end['bytes'] >> 20} MiB on the wire")
    check(share <= BASE_SHARE_MAX and end["reused"] + end["useful"] >= end["symbols_total"], f"{end}")
    # The older version is elsewhere: a file, then killed in between, and a folder.
    for number, (named, kills) in enumerate(((old / "image", False), (old, True))):
        out, group = bed.folder / f"base-out-{number}", bed.next_group()
        receiver = bed.receive("one", group, out, "--base", named)
        sender = bed.send(group, "--rate", "150M", files=files)
        if kills:
            progressed(receiver, 40_000)
            receiver.kill()
            receiver = bed.receive("one", group, out, "--base", named, name="-again")
        check(receiver.end() == 0, f"{receiver.complaint()}")
        sender.kill()
        compare(files, out)
        share, end = share_of(receiver)
        print(f"  --base {'folder, killed' if kills else 'file'}: {100 * share:.1f} % were needed, {end['reused']} reused, {end['resumed']} resumed")
        check(share <= BASE_SHARE_MAX, f"{end}")


PARTS = {"modes": modes, "all": everything, "user": user, "sparse": sparse, "follow": follow, "base": base}


def main():
    require_root("ip", "rsync")
    wanted = [word for word in sys.argv[2:] if word != "--full"] or list(PARTS)
    folder = Path(os.environ["FOLDERS_FOLDER"])
    with Network("hwfolders") as network:
        bed = Bed(network, sys.argv[1], folder)
        for name in wanted:
            print(f"{name}:", flush=True)
            began = time.monotonic()
            PARTS[name](bed)
            print(f"  {time.monotonic() - began:.1f} s", flush=True)
    print("folders: all holds")


if __name__ == "__main__":
    main()
