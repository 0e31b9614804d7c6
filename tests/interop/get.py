"""One command that finds its path: multicast, AMT, requests, HTTP, and the change between them.

usage: get.py BINARY [--full] [PART ...]; GET_FOLDER names a folder for all files
"""

import filecmp
import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import parts
from network import Failed, Network, check, require_root

HOSTS = ("sender", "source", "relay", "receiver", "cutting", "cut")
SENDER, SOURCE, RELAY, _, CUTTING, _ = (f"10.94.0.{number}" for number in range(1, 7))
# By sender.
GROUPS = {"sender": "239.255.72.94:7501", "cutting": "239.255.73.94:7502"}
# Both senders of the same files: a folder continues with symbols of the same size alone, with room for the signatures of either.
SYMBOL_BYTES = "1200"
SWITCH_SECONDS = 4
CUT_SECONDS = 20


class Bed:
    """A sender by multicast, a source on request, a relay and a receiver at a bridge, and a sender and a receiver for the cut."""

    def __init__(self, network, binary, folder):
        self.network, self.binary, self.folder = network, binary, folder
        network.add_switch("mcast_snooping", "0")
        for number, host in enumerate(HOSTS, start=1):
            network.plug(host, f"10.94.0.{number}")

    def content(self, name, length):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "file.bin").write_bytes(random.Random(name).randbytes(length))
        return folder / "file.bin"

    def start(self, host, name, *command):
        return self.network.start(host, name, self.folder, [*parts.NICE, self.binary, *command])

    def send(self, name, file, *options, host="sender", rate="8M"):
        network = ("--group", GROUPS[host], "--interface", "eth0", "--no-roster", "--max-rate", rate, "--symbol-size", SYMBOL_BYTES)
        program = self.start(host, name, "send", "--json", *network, *options, file)
        program.wait_for("its start", lambda events: any(event["event"] == "session:started" for event in events))
        # Until the FDT has all digests.
        time.sleep(1.5)
        return program

    def ask_for(self, name, file):
        """A source on request and a relay."""
        relay = self.start("relay", f"{name}-relay", "relay", "--json")
        control = ("--congestion-control", "rainbow", "--max-rate", "8M", "--symbol-size", SYMBOL_BYTES)
        source = self.start("source", f"{name}-source", "send", "--json", *control, file)
        return source, relay

    def amt_relay(self, name):
        relay = self.start("relay", f"{name}-amt", "relay", "--amt", "--amt-port", "7501", "--interface", "eth0", "--json")
        relay.wait_for("its start", lambda events: any(event["event"] == "relay:started" for event in events))
        return relay

    def limit(self, groups, others, loss):
        """Rates towards the receiver in Mbit/s, of packets to groups and of others, and the loss of the former in percent."""
        tc = lambda *words: self.network.run("bridge", "tc", *words)
        tc("qdisc", "replace", "dev", "receiver", "root", "handle", "1:", "htb", "default", "2")
        for number, rate in ((1, groups), (2, others)):
            tc("class", "add", "dev", "receiver", "parent", "1:", "classid", f"1:{number}", "htb", "rate", f"{rate}mbit", "burst", "4000")
            tc("qdisc", "add", "dev", "receiver", "parent", f"1:{number}", "handle", f"{number}0:", "pfifo", "limit", "40")
        # The first octet of the destination, behind the Ethernet header; a random word.
        code = "5,48 0 0 30,53 0 2 224,53 1 0 240,6 0 0 4294967295,6 0 0 0"
        tc("filter", "add", "dev", "receiver", "parent", "1:", "protocol", "ip", "prio", "1", "bpf", "bytecode", code, "flowid", "1:1")
        self.network.run("receiver", "tc", "qdisc", "replace", "dev", "eth0", "clsact")
        self.network.run("receiver", "tc", "filter", "del", "dev", "eth0", "ingress")
        if loss:
            below = int(loss / 100 * 2**32)
            self.network.drop("receiver", f"7,48 0 0 30,53 0 4 224,53 3 0 240,32 0 0 4294963256,53 1 0 {below},6 0 0 4294967295,6 0 0 0")

    def snoop(self, does):
        """Whether the switch forwards groups to their members alone. It does so after the first response interval, which comes first."""
        lan = ("link", "set", "dev", "lan", "type", "bridge")
        self.network.ip("bridge", *lan, *"mcast_query_response_interval 50 mcast_last_member_interval 10 mcast_igmp_version 3".split())
        self.network.ip("bridge", *lan, "mcast_snooping", int(does))
        self.network.ip("bridge", *lan, "mcast_querier", int(does))
        for host in HOSTS:
            self.network.ip("bridge", "link", "set", "dev", host, "type", "bridge_slave", "mcast_fast_leave", "on" if does else "off")
        time.sleep(1.5)

    def unlimit(self):
        self.network.run("bridge", "tc", "qdisc", "del", "dev", "receiver", "root")
        self.network.run("receiver", "tc", "filter", "del", "dev", "eth0", "ingress")

    def get(self, name, *options, url=f"http://{SENDER}:7280/", host="receiver", is_wireless=False):
        out = self.folder / f"{name}-out"
        command = [*parts.NICE, self.binary, "get", url, "--json", "--interface", "eth0", "--out", out, *options]
        if is_wireless:
            # Entering the namespace has made its mounts the program's own.
            radio = "mount -t tmpfs none /sys/class && mkdir -p /sys/class/net/eth0/phy80211 && exec \"$@\""
            command = ["sh", "-c", radio, "sh", *command]
        program = self.network.start(host, name, self.folder, command)
        program.wait_for("its start", lambda events: any(event["event"] == "session:started" for event in events))
        return program, out


def stop(*programs):
    for program in programs:
        program.signal(signal.SIGINT)
    for program in programs:
        program.end()


def paths(events):
    """Times in seconds, and bytes by path until then."""
    return [(event["time"] / 1e3, event["bytes_by_path"]) for event in events if "bytes_by_path" in event]


def bytes_by_path(program):
    return paths(program.events())[-1][1]


def first_bytes(program, path, since=0.0):
    """Seconds from `since`, in the program's time, until a path brings bytes; a long time if it never does."""
    before = max((held[path] for at, held in paths(program.events()) if at <= since), default=0)
    return min((at - since for at, held in paths(program.events()) if at > since and held[path] > before), default=1e9)


def whole(program, out, file):
    """What must hold of each receiver: the same bytes, and the path told."""
    code = program.end()
    check(code == 0, f"{program.name} ended with {code}: {program.complaint()}")
    yield "the file is the same", filecmp.cmp(file, out / file.name, shallow=False)
    told = [event["path"] for event in program.events() if event["event"] == "path:changed"]
    yield f"paths told: {', '.join(told)}; bytes: {bytes_by_path(program)}", len(told) > 0


def native(bed):
    """Multicast arrives: nothing comes by another path."""
    file = bed.content("native", 2_000_000)
    sender = bed.send("native", file, "--http", SENDER, "--sdp-rainbow", SOURCE, "--sdp-relay", RELAY)
    others = bed.ask_for("native", file)
    receiver, out = bed.get("native")
    yield from whole(receiver, out, file)
    held = bytes_by_path(receiver)
    yield "all by multicast", held["multicast"] > 0 and held["rainbow"] == held["http"] == held["amt"] == 0
    stop(sender, *others)


def rainbow(bed):
    """No multicast arrives: a relay's source takes over, and HTTP until then."""
    file = bed.content("rainbow", 4_000_000)
    bed.network.drop_multicast("receiver", True)
    sender = bed.send("rainbow", file, "--http", SENDER, "--http-rate", "2M", "--sdp-rainbow", SOURCE, "--sdp-relay", RELAY)
    others = bed.ask_for("rainbow", file)
    receiver, out = bed.get("rainbow")
    yield from whole(receiver, out, file)
    held, seconds = bytes_by_path(receiver), first_bytes(receiver, "rainbow")
    yield f"requests bring bytes after {seconds:.1f} s", seconds <= SWITCH_SECONDS
    yield "most by requests, none by multicast", held["rainbow"] > held["http"] and held["multicast"] == 0
    stop(sender, *others)
    bed.network.drop_multicast("receiver", False)


def amt(bed):
    """No multicast arrives: an AMT relay takes over, and multicast that comes back."""
    file = bed.content("amt", 5_000_000)
    bed.network.drop_multicast("receiver", True)
    relay = bed.amt_relay("amt")
    sender = bed.send("amt", file, "--http", SENDER, "--http-rate", "1M", "--sdp-amt", RELAY)
    receiver, out = bed.get("amt")
    receiver.wait_for("1.5 MB by AMT", lambda events: any(held["amt"] > 1.5e6 for _, held in paths(events)))
    bed.network.drop_multicast("receiver", False)
    back = paths(receiver.events())[-1][0]
    yield from whole(receiver, out, file)
    seconds = first_bytes(receiver, "amt"), first_bytes(receiver, "multicast", back)
    yield f"AMT brings bytes after {seconds[0]:.1f} s", seconds[0] <= SWITCH_SECONDS
    yield f"multicast brings bytes {seconds[1]:.1f} s after its return", seconds[1] <= SWITCH_SECONDS
    late = [held["amt"] for at, held in paths(receiver.events()) if at > back + SWITCH_SECONDS]
    yield "none by AMT then, and little by HTTP", (not late or late[0] == late[-1]) and bytes_by_path(receiver)["http"] < file.stat().st_size / 4
    stop(sender, relay)
    held = relay.events()[-1]
    yield f"gateways of the relay at the end: {held.get('gateways')}", held.get("gateways") == 0


def radio(bed):
    """Multicast comes badly, as over an access point: the AMT relay takes over where it brings more, and only there."""
    bed.snoop(True)
    relay = bed.amt_relay("radio")
    # Rates of groups and of other packets in Mbit/s, loss of groups in percent, whether the interface is wireless, bytes of the file, path.
    cases = {
        "lossy": (1, 20, 15, False, 12_000_000, "amt"),
        "slow": (4, 20, 0, True, 16_000_000, "amt"),
        "equal": (8, 8, 0, True, 28_000_000, "multicast"),
        "wired": (20, 20, 0, False, 12_000_000, "multicast"),
    }
    for name, (groups, others, loss, is_wireless, length, path) in cases.items():
        file = bed.content(name, length)
        bed.limit(groups, others, loss)
        sender = bed.send(name, file, "--http", SENDER, "--sdp-amt", RELAY, rate="30M")
        alone = rate_by_amt(bed, name) if name == "lossy" else None
        receiver, out = bed.get(name, is_wireless=is_wireless)
        yield from whole(receiver, out, file)
        samples = [(at, sum(by_path.values())) for at, by_path in paths(receiver.events())]
        seconds, rate = last_rate(samples)
        held = bytes_by_path(receiver)
        changes = [event["path"] for event in receiver.events() if event["event"] == "path:changed"]
        yield f"{name}: {rate:.1f} Mbit/s at the end, after {seconds:.0f} s; most by {path}", max(held, key=held.get) == path == changes[-1]
        yield f"{name}: {len(changes)} paths in turn", len(changes) <= 3
        if alone:
            yield f"{name}: at the end {rate / alone:.2f} of the rate of `receive --amt` ({alone:.1f} Mbit/s)", rate >= 0.6 * alone, parts.BUSY
        if name == "wired":
            yield "wired: nothing by AMT", held["amt"] == 0
        stop(sender)
        bed.unlimit()
    stop(relay)
    bed.snoop(False)


def rate_by_amt(bed, name):
    """Rate of `receive --amt` in Mbit/s, in its last 3 s of 8."""
    group = ("--group", GROUPS["sender"], "--source", SENDER)
    program = bed.start("receiver", f"{name}-alone", "receive", "--amt", RELAY, *group, "--json", "--out", bed.folder / f"{name}-alone")
    until = time.monotonic() + 8
    while time.monotonic() < until and not program.has_ended():
        time.sleep(0.1)
    stop(program)
    return last_rate([(event["time"] / 1e3, event["bytes"]) for event in program.events() if event["event"] == "session:progress"])[1]


def last_rate(samples):
    """Time of the last bytes, and the rate in Mbit/s in the 3 s before: what follows is decoding."""
    last, total = next(sample for sample in samples if sample[1] == samples[-1][1])
    began, before = max(sample for sample in samples if sample[0] <= last - 3)
    return last, (total - before) * 8 / 1e6 / (last - began)


def http(bed):
    """No multicast arrives, and no source is named: all by HTTP."""
    file = bed.content("http", 4_000_000)
    bed.network.drop_multicast("receiver", True)
    sender = bed.send("http", file, "--http", SENDER)
    receiver, out = bed.get("http")
    yield from whole(receiver, out, file)
    held, seconds = bytes_by_path(receiver), first_bytes(receiver, "http")
    yield f"HTTP brings bytes after {seconds:.1f} s", seconds <= SWITCH_SECONDS
    yield "none by another path", held["multicast"] == held["rainbow"] == 0
    stop(sender)
    bed.network.drop_multicast("receiver", False)


def folder(bed):
    """A folder with the files, session.sdp and session.fdt at Python's server, while no session is sent; and files that were changed."""
    file = bed.content("folder", 1_000_000)
    root = file.parent
    sender = bed.send("folder", file, "--sdp", root / "session.sdp")
    stop(sender)
    check((root / "session.fdt").exists(), f"no FDT was written: {sender.complaint()}")
    command = [sys.executable, "-m", "http.server", "--directory", root, "--bind", SENDER, "8000"]
    server = bed.network.start("sender", "python", bed.folder, command)
    time.sleep(1)
    receiver, out = bed.get("folder", url=f"http://{SENDER}:8000/")
    yield from whole(receiver, out, file)
    described = [event for event in receiver.events() if event["event"] == "session:described"]
    yield "the description was verified by the sender's key", len(described) == 1 and "key" in described[0]
    file.write_bytes(bytes(file.stat().st_size))
    receiver, out = bed.get("changed", "--timeout", "4s", url=f"http://{SENDER}:8000/")
    yield "a file that was changed is not taken", receiver.end() != 0 and not (out / file.name).exists()
    stop(server)


def cut(bed):
    """Multicast is cut for 20 s: HTTP takes over and gives way again."""
    file = bed.content("cut", 10_500_000)
    sender = bed.send("cut", file, "--http", CUTTING, "--http-rate", "2M", host="cutting")
    receiver, out = bed.get("cut", url=f"http://{CUTTING}:7280/", host="cut")
    receiver.wait_for("3 MB", lambda events: any(held["multicast"] > 3e6 for _, held in paths(events)))
    changed = []
    for is_cut, path in ((True, "http"), (False, "multicast")):
        bed.network.drop_multicast("cut", is_cut)
        since = paths(receiver.events())[-1][0]
        if is_cut:
            time.sleep(CUT_SECONDS)
        changed.append((path, since))
    yield from whole(receiver, out, file)
    for path, since in changed:
        seconds = first_bytes(receiver, path, since + 0.2)
        yield f"{path} brings bytes {seconds:.1f} s after the change", seconds <= SWITCH_SECONDS
    back = changed[1][1]
    late = [held["http"] for at, held in paths(receiver.events()) if at > back + SWITCH_SECONDS]
    # On a machine without a processor to spare, M2C stays below half of the rate of HTTP.
    yield "HTTP has stopped then", not late or late[0] == late[-1], parts.BUSY
    stop(sender)


def tunnel(bed, name):
    relay = bed.start("relay", f"{name}-tunnel", "relay", "--amt", "--amt-port", "7501", "--interface", "eth0", "--json")
    relay.wait_for("its start", lambda events: any(event["event"] == "relay:started" for event in events))
    return relay


def restarted(bed):
    """The sender is killed, and starts again as another session: the receiver follows by the description."""
    file = bed.content("restarted", 10_000_000)
    options = ("--http", SENDER, "--http-rate", "100k", "--sign", bed.folder / "restarted-key")
    bed.network.run("sender", bed.binary, "keygen", bed.folder / "restarted-key")
    sender = bed.send("restarted", file, *options)
    receiver, out = bed.get("restarted", "--max-rate", "4M")
    receiver.wait_for("2 MB", lambda events: any(held["multicast"] > 2e6 for _, held in paths(events)))
    sender.kill()
    time.sleep(5)
    sender = bed.start("sender", "restarted-again", "send", "--json", "--group", GROUPS["sender"], "--interface", "eth0", "--no-roster",
                       "--max-rate", "8M", "--symbol-size", SYMBOL_BYTES, *options, file)
    sender.wait_for("its start", lambda events: any(event["event"] == "session:started" for event in events))
    since = paths(receiver.events())[-1][0]
    yield from whole(receiver, out, file)
    events = receiver.events()
    replaced = [event["time"] / 1e3 for event in events if event["event"] == "session:replaced"]
    yield f"the session was replaced {len(replaced)} times", len(replaced) == 1
    later = [at for at, held in paths(events) if replaced and at > replaced[0] and held["multicast"] > 0]
    seconds = later[0] - since if later else 1e9
    yield f"multicast brings bytes {seconds:.1f} s after the start", seconds <= SWITCH_SECONDS
    resumed = max(event.get("resumed", 0) for event in events)
    yield f"{resumed} symbols of the session before count", resumed > 1_000
    stop(sender)


def both(bed):
    """No multicast arrives, and both an AMT relay and a source on request are named: AMT first, and requests once the relay is killed."""
    file = bed.content("both", 6_000_000)
    bed.network.drop_multicast("receiver", True)
    relay = tunnel(bed, "both")
    # Without --symbol-size: the sender takes the size of the source.
    control = ("--congestion-control", "rainbow", "--max-rate", "8M")
    source = bed.start("source", "both-source", "send", "--json", *control, file)
    network = ("--group", GROUPS["sender"], "--interface", "eth0", "--no-roster", "--max-rate", "8M")
    options = ("--http", SENDER, "--http-rate", "100k", "--sdp-amt", RELAY, "--sdp-rainbow", SOURCE)
    sender = bed.start("sender", "both", "send", "--json", *network, *options, file)
    time.sleep(2)
    receiver, out = bed.get("both")
    receiver.wait_for("2 MB by AMT", lambda events: any(held["amt"] > 2e6 for _, held in paths(events)))
    yield "none by requests then", bytes_by_path(receiver)["rainbow"] == 0
    relay.kill()
    since = paths(receiver.events())[-1][0]
    yield from whole(receiver, out, file)
    seconds = first_bytes(receiver, "rainbow", since)
    # The silence of the tunnel, and the relay's lead before requests.
    yield f"requests bring bytes {seconds:.1f} s after the end of the relay", seconds <= 2 * SWITCH_SECONDS
    resumed = max(event.get("resumed", 0) for event in receiver.events())
    yield f"{resumed} symbols of AMT count", resumed > 1_000
    stop(sender, source)
    bed.network.drop_multicast("receiver", False)


def driad(bed):
    """No multicast arrives, and DNS names the AMT relay of the sender."""
    file = bed.content("driad", 3_000_000)
    resolver = Path("/etc/netns") / bed.network.hosts["receiver"]
    resolver.mkdir(parents=True)
    try:
        (resolver / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        command = [sys.executable, Path(__file__).with_name("amt.py"), "dns", "127.0.0.1", RELAY]
        server = bed.network.start("receiver", "dns", bed.folder, command)
        server.wait_for("its start", lambda events: len(events) > 0)
        bed.network.drop_multicast("receiver", True)
        relay = tunnel(bed, "driad")
        sender = bed.send("driad", file, "--http", SENDER, "--http-rate", "1M", "--sdp-amt", "auto")
        receiver, out = bed.get("driad")
        yield from whole(receiver, out, file)
        seconds = first_bytes(receiver, "amt")
        yield f"AMT brings bytes after {seconds:.1f} s", seconds <= SWITCH_SECONDS
        stop(sender, relay)
        server.kill()
    finally:
        (resolver / "resolv.conf").unlink()
        resolver.rmdir()
        # The folder above stays while another script has a name there.
        with suppress(OSError):
            resolver.parent.rmdir()
        bed.network.drop_multicast("receiver", False)


def sdp(bed):
    """`receive --sdp` without multicast: the AMT relay of the description takes over."""
    file = bed.content("sdp", 3_000_000)
    bed.network.drop_multicast("receiver", True)
    relay = tunnel(bed, "sdp")
    description = bed.folder / "described.sdp"
    sender = bed.send("sdp", file, "--sdp", description, "--sdp-amt", RELAY)
    out = bed.folder / "sdp-out"
    receiver = bed.start("receiver", "sdp", "receive", "--json", "--sdp", description, "--interface", "eth0", "--out", out, "--timeout", "30s")
    yield from whole(receiver, out, file)
    seconds, held = first_bytes(receiver, "amt"), bytes_by_path(receiver)
    yield f"AMT brings bytes after {seconds:.1f} s", seconds <= SWITCH_SECONDS
    yield "all by AMT", held["multicast"] == held["http"] == 0
    stop(sender, relay)
    bed.network.drop_multicast("receiver", False)


PARTS = {part.__name__: part for part in (native, rainbow, amt, radio, both, driad, sdp, http, folder, restarted, cut)}


def main():
    options = parts.chosen(PARTS, "m2c")
    require_root("ip", "tc")
    with Network("hw-get") as network:
        bed = Bed(network, options.binary, Path(os.environ["GET_FOLDER"]))
        try:
            names = options.parts or list(PARTS)
            with ThreadPoolExecutor(1) as pool:
                # The cut waits most of the time: it goes on beside the other parts.
                cutting = pool.submit(lambda: list(cut(bed))) if "cut" in names else None
                call = lambda part: cutting.result() if part is cut else part(bed)
                missed = parts.run(PARTS, names, "one receiver", call, options.full)
        except Failed as failure:
            sys.exit(f"get: FAILED: {failure}")
    if missed:
        sys.exit("get: MISSED: " + "; ".join(missed))


if __name__ == "__main__":
    main()
