"""What breaks around a session while it runs, and what must hold then. Each scenario has a network of its own.

usage: faults.py BINARY FOLDER
"""

import filecmp
import random
import re
import signal
import sys
import time
from pathlib import Path

from network import Failed, Network, check, require_root

PORT = 7288
GROUP = f"239.255.72.88:{PORT}"
# A pass takes about four seconds.
BYTES, RATE_BITS = 2_000_000, 4_000_000
NETWORK_FAILED, INCOMPLETE = 3, 5


class Bed:
    """A sender's and a receiver's host, and content to send."""

    def __init__(self, network, binary, folder):
        self.network, self.binary, self.folder = network, binary, folder
        for host in ("sender", "receiver"):
            network.add_host(host)
        self.plug()

    def plug(self):
        self.network.add_pair("sender", "receiver", "10.89.0", offloads=True)

    def plug_over_narrow_link(self, mtu):
        """Both ends keep an MTU of 1500; the link between the two bridges on the way carries `mtu` bytes."""
        network = self.network
        network.ip("sender", "link", "delete", "dev", "eth0")
        network.add_host("way")
        network.ip("way", "link", "add", "near", "type", "veth", "peer", "name", "far")
        sides = (("sender", "left", "near", "10.89.0.1"), ("receiver", "right", "far", "10.89.0.2"))
        for host, bridge, middle, address in sides:
            network.ip("way", "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
            network.ip(host, "link", "add", "eth0", "type", "veth", "peer", "name", host, "netns", network.hosts["way"])
            network.set_offloads(host, False)
            for port in (host, middle):
                network.ip("way", "link", "set", "dev", port, "master", bridge, "up")
            network.ip("way", "link", "set", "dev", bridge, "up")
            network.bring_up(host, address)
        for middle in ("near", "far"):
            network.ip("way", "link", "set", "dev", middle, "mtu", mtu)

    def content(self, name):
        path = self.folder / name
        path.write_bytes(random.Random(name).randbytes(BYTES))
        return path

    def send(self, file, *options, name="send"):
        group = ("--group", GROUP, "--interface", "eth0", "--rate", RATE_BITS)
        return self.network.start("sender", name, self.folder, [self.binary, "send", "--json", *group, *options, file])

    def receive(self, *options, name="receive", timeout="30s"):
        """A receiver that listens, and its folder."""
        out = self.folder / f"{name}-out"
        group = ("--group", GROUP, "--interface", "eth0", "--timeout", timeout, "--out", out)
        program = self.network.start("receiver", name, self.folder, [self.binary, "receive", "--json", *group, *options])
        program.wait_for("its join", lambda events: told(events, "channel:joined"))
        return program, out


def told(events, kind):
    return [event for event in events if event["event"] == kind]


def part_held(part):
    """Whether a receiver holds this part of the content."""

    def holds(events):
        progress = told(events, "session:progress")
        return bool(progress) and progress[-1]["symbols"] > part * progress[-1]["symbols_total"] > 0

    return holds


def states(program):
    return [event["state"] for event in told(program.events(), "link:changed")]


def ended(program):
    """The last event, of which there must be one."""
    last = told(program.events(), "session:ended")
    check(len(last) == 1, f"{program.name} said {len(last)} times how it ended: {program.complaint()}")
    return last[0]


def complete(receiver, out, file):
    """The receiver ends well, with the file and nothing else."""
    code = receiver.end()
    check(code == 0, f"{receiver.name} ended with {code}: {receiver.complaint()}")
    check(ended(receiver)["outcome"] == "completed", f"{receiver.name}: {ended(receiver)}")
    found = sorted(path.name for path in out.iterdir())
    check(found == [file.name], f"{receiver.name} has {found}")
    check(filecmp.cmp(file, out / file.name, shallow=False), f"{receiver.name}: the file differs")


def stop(sender):
    """The sender goes on, until it is told to end."""
    check(not sender.has_ended(), f"{sender.name} ended: {sender.complaint()}")
    sender.signal(signal.SIGINT)
    sender.end()
    return ended(sender)


def interface_gone_and_back(bed):
    """Deleting one end of the pair deletes both: sender and receiver lose their interfaces, and get new ones."""
    file = bed.content("gone.bin")
    receiver, out = bed.receive()
    sender = bed.send(file)
    receiver.wait_for("30 % of the content", part_held(0.3))
    before = bed.network.ip("receiver", "-brief", "link", "show", "dev", "eth0")
    bed.network.ip("receiver", "link", "delete", "dev", "eth0")
    for program in (receiver, sender):
        program.wait_for("the loss of its interface", lambda events: told(events, "link:changed"))
        check(states(program) == ["gone"], f"{program.name}: {states(program)}")
        check("no interface eth0 any more" in program.complaint(), f"{program.name}: {program.complaint()}")
    bed.plug()
    check(bed.network.ip("receiver", "-brief", "link", "show", "dev", "eth0") != before, "the same interface is back")
    complete(receiver, out, file)
    check(states(receiver)[-1] == "up", f"{receiver.name}: {states(receiver)}")
    check(stop(sender)["unsent"] > 0, "the sender says that it has sent everything")
    check(states(sender)[-1] == "up", f"{sender.name}: {states(sender)}")


def link_flap(bed):
    """The sender's interface is down for 0.3 s: it goes on, and says what it could not send."""
    file = bed.content("flap.bin")
    receiver, out = bed.receive()
    sender = bed.send(file)
    receiver.wait_for("30 % of the content", part_held(0.3))
    bed.network.ip("sender", "link", "set", "dev", "eth0", "down")
    time.sleep(0.3)
    bed.network.ip("sender", "link", "set", "dev", "eth0", "up")
    complete(receiver, out, file)
    check(states(sender)[:1] == ["down"] and states(sender)[-1] == "up", f"{sender.name}: {states(sender)}")
    check(stop(sender)["unsent"] > 0, "the sender says that it has sent everything")


def interface_down_for_good(bed):
    """The sender ends after the time that it was told, with the right advice; the receiver has said why nothing came."""
    receiver, _ = bed.receive(timeout="5s")
    sender = bed.send(bed.content("down.bin"), "--outage", "1s")
    receiver.wait_for("10 % of the content", part_held(0.1))
    bed.network.ip("sender", "link", "set", "dev", "eth0", "down")
    check(sender.end() == NETWORK_FAILED, f"{sender.name}: {sender.complaint()}")
    check("ip link set dev eth0 up" in sender.complaint(), f"{sender.name}: {sender.complaint()}")
    check(told(sender.events(), "session:failed") and ended(sender)["outcome"] == "failed", f"{sender.events()[-2:]}")
    check(ended(sender)["packets"] > 0, "the sender does not say how far it came")
    check(receiver.end() == INCOMPLETE, f"{receiver.name}: {receiver.complaint()}")
    check("no-link" in states(receiver), f"{receiver.name}: {states(receiver)}")


def sender_started_again(bed):
    """A sender that is killed and started again has another TSI: a receiver that was told none goes on with it."""
    file = bed.content("again.bin")
    receiver, out = bed.receive()
    faithful, other_out = bed.receive("--tsi", 7, name="faithful")
    first = bed.send(file, "--tsi", 7)
    for program in (receiver, faithful):
        program.wait_for("30 % of the content", part_held(0.3))
    first.kill()
    second = bed.send(file, "--tsi", 8, name="send-again")
    complete(receiver, out, file)
    (replaced,) = told(receiver.events(), "session:replaced")
    check(replaced["tsi"] == 8, f"{receiver.name}: {replaced}")
    check(ended(receiver)["resumed"] > 0, f"{receiver.name} began from nothing: {ended(receiver)}")
    # Another one was told which session it is to have.
    (seen,) = told(faithful.events(), "session:other")
    check(seen["tsi"] == 8 and not told(faithful.events(), "session:replaced"), f"{faithful.name}: {seen}")
    stop(second)
    third = bed.send(file, "--tsi", 7, name="send-the-first")
    complete(faithful, other_out, file)
    stop(third)


def two_senders_on_one_group(bed):
    """Each receiver gets the session it was told, or keeps to the first one heard, and says that there is another."""
    files = {tsi: bed.content(f"session-{tsi}.bin") for tsi in (1, 2)}
    receivers = {tsi: bed.receive("--tsi", tsi, name=f"receive-{tsi}") for tsi in (1, 2)}
    any_one, out = bed.receive(name="receive-any")
    senders = [bed.send(files[1], "--tsi", 1, name="send-1")]
    any_one.wait_for("a session", lambda events: told(events, "session:found"))
    senders.append(bed.send(files[2], "--tsi", 2, name="send-2"))
    for tsi, (receiver, folder) in receivers.items():
        complete(receiver, folder, files[tsi])
    complete(any_one, out, files[1])
    check([event["tsi"] for event in told(any_one.events(), "session:other")] == [2], "the other session is not told of")
    check("is not received" in any_one.complaint(), f"{any_one.name}: {any_one.complaint()}")
    for sender in senders:
        stop(sender)


def stopped_and_continued(bed):
    """Ends that are stopped, as by a machine that sleeps, go on: their clocks have jumped."""
    file = bed.content("stopped.bin")
    receiver, out = bed.receive()
    sender = bed.send(file)
    receiver.wait_for("30 % of the content", part_held(0.3))
    for program in (sender, receiver):
        program.signal(signal.SIGSTOP)
        time.sleep(1)
        program.signal(signal.SIGCONT)
    complete(receiver, out, file)
    stop(sender)


def narrow_link_on_the_way(bed):
    """A link between the ends has a smaller MTU than both interfaces: receiver and doctor say so and what to do."""
    bed.plug_over_narrow_link(1280)
    file = bed.content("narrow.bin")
    group = ("--group", GROUP, "--interface", "eth0")
    receiver, _ = bed.receive()
    sender = bed.network.start("sender", "layers", bed.folder, [bed.binary, "send", "--json", *group, file])
    receiver.wait_for("the report of long packets", lambda events: told(events, "packets:too-long"))
    report = told(receiver.events(), "packets:too-long")[0]
    check(report["packet_bytes"] > 1280 > report["longest"], f"{receiver.name}: {report}")
    doctor = bed.network.start("receiver", "doctor", bed.folder, [bed.binary, "doctor", *group])
    doctor.end()
    check("MTU" in doctor.out.read_text() + doctor.complaint(), f"doctor: {doctor.out.read_text()}")
    stop(sender)
    check(receiver.end() == INCOMPLETE, f"{receiver.name}: {receiver.complaint()}")
    # The advice is right.
    symbol_size = re.search(r"--symbol-size (\d+)", receiver.complaint())[1]
    receiver, out = bed.receive(name="again")
    sender = bed.network.start(
        "sender", "short", bed.folder, [bed.binary, "send", "--json", *group, "--symbol-size", symbol_size, file]
    )
    complete(receiver, out, file)
    check(not told(receiver.events(), "packets:too-long"), f"{receiver.name}: {receiver.complaint()}")
    stop(sender)


def port_taken(bed):
    """A port that another program has for itself: an error that says which, before anything is written."""
    hold = f"import socket, time; s = socket.socket(2, 2); s.bind(('', {PORT})); print('[]', flush=True); time.sleep(60)"
    holder = bed.network.start("receiver", "holder", bed.folder, [sys.executable, "-c", hold])
    holder.wait_for("the port", lambda events: events)
    out = bed.folder / "taken-out"
    arguments = [bed.binary, "receive", "--group", GROUP, "--interface", "eth0", "--out", out]
    receiver = bed.network.start("receiver", "taken", bed.folder, arguments)
    check(receiver.end() == NETWORK_FAILED, f"{receiver.name}: {receiver.complaint()}")
    check(f":{PORT}" in receiver.complaint() and "in use" in receiver.complaint(), receiver.complaint())
    check(not out.exists(), "a folder was made for nothing")


SCENARIOS = (
    interface_gone_and_back,
    link_flap,
    interface_down_for_good,
    sender_started_again,
    two_senders_on_one_group,
    stopped_and_continued,
    narrow_link_on_the_way,
    port_taken,
)


def main():
    binary, folder = sys.argv[1:]
    require_root("ip", "ethtool")
    for scenario in SCENARIOS:
        began = time.monotonic()
        own = Path(folder) / scenario.__name__
        own.mkdir()
        try:
            with Network("hwfault") as network:
                scenario(Bed(network, binary, own))
        except Failed as failure:
            sys.exit(f"faults: {scenario.__name__} FAILED: {failure}")
        print(f"faults: {scenario.__name__}: ok, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
