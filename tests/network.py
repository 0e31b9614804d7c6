"""Hosts in network namespaces, joined by veth pairs, and programs that run on them. Linux, root."""

import json
import os
import re
import signal
import subprocess
import sys
import time

PATIENCE_SECONDS = 60
LOOK_SECONDS = 0.002


class Failed(Exception):
    """Something that must hold does not."""


def check(holds, what):
    if not holds:
        raise Failed(what)


def run(*command):
    """Runs a command that must succeed; returns what it printed."""
    words = [str(word) for word in command]
    ended = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    check(ended.returncode == 0, f"`{' '.join(words)}` failed: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout


def require_root(*tools):
    """Ends the program unless it may make namespaces and has the tools."""
    if os.geteuid() != 0:
        sys.exit("network namespaces need root: run this as root")
    for tool in tools:
        if subprocess.run(["which", tool], capture_output=True).returncode != 0:
            sys.exit(f"'{tool}' is missing: install it (Debian packages: {' '.join(PACKAGES)})")


PACKAGES = ("iproute2", "ethtool", "uftp", "udpcast", "libnorm-dev")


class Network:
    """The hosts of one run. All that it makes is named by a prefix and its process, and goes with it."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.name = f"{prefix}{os.getpid()}"
        self.programs = []
        self.hosts = {}
        self.remove_abandoned()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.kill()
        for host in list(self.hosts.values()):
            run("ip", "netns", "delete", host)
        self.hosts.clear()

    def remove_abandoned(self):
        """Removes what a run that was killed has left."""
        for line in run("ip", "netns", "list").splitlines():
            found = re.match(rf"{self.prefix}(\d+)-\S+", line)
            if found and not os.path.exists(f"/proc/{found[1]}"):
                for pid in run("ip", "netns", "pids", found[0]).split():
                    os.kill(int(pid), signal.SIGKILL)
                run("ip", "netns", "delete", found[0])

    def add_host(self, host):
        namespace = self.hosts[host] = f"{self.name}-{host}"
        run("ip", "netns", "add", namespace)
        # Interfaces inherit these, so they come first. Duplicate address detection would cost seconds.
        settings = ("ipv4.conf.all.rp_filter=0", "ipv4.conf.default.rp_filter=0", "ipv6.conf.default.accept_dad=0")
        self.run(host, "sysctl", "-q", "-w", *(f"net.{setting}" for setting in settings))
        self.ip(host, "link", "set", "dev", "lo", "up")

    def add_pair(self, one, other, subnet, offloads):
        """A veth pair, eth0 at both ends; addresses are 1 and 2 of `subnet`, such as 10.87.0."""
        self.ip(one, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.hosts[other])
        for number, host in enumerate((one, other), start=1):
            self.set_offloads(host, offloads)
            self.bring_up(host, f"{subnet}.{number}")

    def add_switch(self, *options):
        """A host `bridge` with a bridge `lan` of these options."""
        self.add_host("bridge")
        self.ip("bridge", "link", "add", "lan", "type", "bridge", *options)
        self.ip("bridge", "link", "set", "dev", "lan", "up")

    def plug(self, host, address):
        """A host at the switch: eth0 of the host is the port of the host's name."""
        self.add_host(host)
        self.ip(host, "link", "add", "eth0", "type", "veth", "peer", "name", host, "netns", self.hosts["bridge"])
        self.ip("bridge", "link", "set", "dev", host, "master", "lan", "up")
        self.bring_up(host, address)

    def set_offloads(self, host, on):
        """Without: a packet is a frame, no segments are put together or cut on the way."""
        state = "on" if on else "off"
        names = ("gro", "gso", "tso", "tx-udp-segmentation")
        self.run(host, "ethtool", "-K", "eth0", *(word for name in names for word in (name, state)))

    def bring_up(self, host, address):
        self.ip(host, "address", "add", f"{address}/24", "dev", "eth0")
        self.ip(host, "link", "set", "dev", "eth0", "up")
        self.ip(host, "route", "add", "224.0.0.0/4", "dev", "eth0")

    def set_loss(self, host, percent):
        """Drops packets at random as they arrive. Classic BPF: load a random word; below the loss, match."""
        self.run(host, "tc", "qdisc", "replace", "dev", "eth0", "clsact")
        self.run(host, "tc", "filter", "del", "dev", "eth0", "ingress")
        if percent == 0:
            return
        below = int(percent / 100 * 2**32)
        self.drop(host, f"4,32 0 0 4294963256,53 1 0 {below},6 0 0 4294967295,6 0 0 0")

    def drop_multicast(self, host, is_dropped):
        """Drops packets to IPv4 groups as they arrive, until told otherwise."""
        self.run(host, "tc", "qdisc", "replace", "dev", "eth0", "clsact")
        self.run(host, "tc", "filter", "del", "dev", "eth0", "ingress")
        if is_dropped:
            # The first octet of the destination, behind the Ethernet header.
            self.drop(host, "5,48 0 0 30,53 0 2 224,53 1 0 240,6 0 0 4294967295,6 0 0 0")

    def drop(self, host, code):
        """Drops arriving packets that classic BPF matches."""
        # It stays down: what is sent there is gone.
        if "hole" not in self.ip(host, "-brief", "link"):
            self.ip(host, "link", "add", "hole", "type", "ifb")
        drop = ("bpf", "bytecode", code, "action", "mirred", "egress", "redirect", "dev", "hole")
        self.run(host, "tc", "filter", "add", "dev", "eth0", "ingress", "protocol", "ip", "prio", "1", *drop)

    def ip(self, host, *arguments):
        return run("ip", "-n", self.hosts[host], *arguments)

    def run(self, host, *command):
        return run("ip", "netns", "exec", self.hosts[host], *command)

    def start(self, host, name, folder, arguments):
        """Starts a program on a host, with its output in files of `folder`."""
        program = Program(self.hosts[host], f"{host}: {name}", folder / f"{host}-{name}", arguments)
        self.programs.append(program)
        return program


class Hole:
    """Drops all IPv4 packets that arrive at a host, at once from when it is told to; with one `tc` that waits for commands."""

    def __init__(self, network, host):
        self.is_open = False
        network.run(host, "tc", "qdisc", "replace", "dev", "eth0", "clsact")
        # It stays down: what is sent there is gone.
        network.ip(host, "link", "add", "hole", "type", "ifb")
        command = ["ip", "netns", "exec", network.hosts[host], "tc", "-batch", "-"]
        self.tc = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tc.stdin.close()
        check(self.tc.wait() == 0, "tc could not drop packets")

    def set(self, is_open):
        if is_open == self.is_open:
            return
        self.is_open = is_open
        matches = "bytecode '1,6 0 0 4294967295' action mirred egress redirect dev hole"
        change = f"add dev eth0 ingress protocol ip prio 1 bpf {matches}" if is_open else "del dev eth0 ingress prio 1"
        self.tc.stdin.write(f"filter {change}\n")
        self.tc.stdin.flush()


# A shell starts what runs behind its back with SIGINT ignored, and programs inherit that; a handler they do not.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Program:
    """A program on a host."""

    def __init__(self, namespace, name, files, arguments):
        self.name = name
        self.out, self.err = files.with_suffix(".out"), files.with_suffix(".err")
        command = ["ip", "netns", "exec", namespace, *map(str, arguments)]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            # `ip netns exec` becomes the program: its process is ours to end.
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self.cpu_seconds = self.memory_bytes = None

    def events(self):
        """The events printed so far; a line under way is left out."""
        lines = self.out.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def wait_for(self, what, holds):
        """Waits until `holds` of the events."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not holds(self.events()):
            check(not self.has_ended(), f"{self.name} ended before {what}: {self.complaint()}")
            check(time.monotonic() < until, f"{self.name}: {what} did not come: {self.complaint()}")
            time.sleep(0.02)

    def has_ended(self):
        """Takes the program's exit code, processor time and most memory once it has ended."""
        if self.process.returncode is None:
            pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
            if pid != 0:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_seconds, self.memory_bytes = used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss
        return self.process.returncode is not None

    def end(self, patience_seconds=PATIENCE_SECONDS):
        """Waits for the end; returns the exit code."""
        until = time.monotonic() + patience_seconds
        while not self.has_ended():
            check(time.monotonic() < until, f"{self.name} does not end: {self.complaint()}")
            time.sleep(LOOK_SECONDS)
        return self.process.returncode

    def signal(self, number):
        if not self.has_ended():
            self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.end()

    def complaint(self):
        return self.err.read_text(errors="replace").strip()[-600:] or "it said nothing"

    def net(self, table):
        """A table of /proc/net as the program's namespace has it."""
        with open(f"/proc/{self.process.pid}/net/{table}") as file:
            return file.read()

    def memberships(self, group):
        """How many sockets of the program's namespace have joined an IPv4 group."""
        word = "".join(f"{int(octet):02X}" for octet in reversed(group.split(".")))
        found = re.search(rf"^\s+{word}\s+(\d+)", self.net("igmp"), re.MULTILINE)
        return int(found[1]) if found else 0

    def received_bytes(self):
        """Bytes of frames that eth0 of the program's namespace has received."""
        return int(re.search(r"eth0:\s*(\d+)", self.net("dev"))[1])
