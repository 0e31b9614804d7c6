"""How multicast gets from the near to the far side of a bed: switches that snoop IGMPv3 or IGMPv2, MLDv2 or MLDv1, or routers that speak
IGMPv3 and PIM.

Both have a port `bot` towards each other, and one for each of their hosts, by its name.
"""

import json
import re
import shutil
import tempfile
import time
from pathlib import Path

from network import check, run

SIDES = ("near", "far")
PATIENCE_SECONDS = 20
# Tags of ports whose queues must not hold packets of many segments.
OFFLOADS = ("gro", "gso", "tso", "tx-udp-segmentation")


class Bridges:
    """One subnet; the near bridge asks for members."""

    needs = ()
    igmp_version, mld_version = 3, 2
    protocol = "IGMPv3"
    group = "232.72.87.1:7287"
    # The last member's leave: hundredths of a second between queries, their number, and whether a port waits for them.
    last_member = (10, 3)
    leaves_fast = True
    leave_seconds = 1

    def prepare(self, bed, host):
        """Settings of a host before its interfaces."""

    def address(self, number):
        return f"10.87.0.{number}"

    def source(self, number):
        """A host's address as the source of a group."""
        return self.address(number)

    def version(self, program):
        """Version of IGMP that the kernel of a program's host speaks, and the version that it must."""
        return int(re.search(r"eth0 .*V(\d)", program.net("igmp"))[1]), self.igmp_version

    def build(self, bed):
        for side in SIDES:
            self.add(bed, side, side == "near")
        bed.cable("near", "bot", "far", "bot")
        for side in SIDES:
            self.plug(bed, side, "bot")
        for number, (host, side) in enumerate(bed.sides.items(), start=1):
            bed.cable(side, host, host, "eth0")
            self.plug(bed, side, host)
            bed.bring_up(host, self.address(number))
            bed.ip(host, "address", "add", f"fd87::{number}/64", "dev", "eth0")
            bed.ip(host, "-6", "route", "replace", "multicast", "ff00::/8", "dev", "eth0", "table", "local")
        self.set_port(bed, "far", "bot", "multicast_router", 2)
        self.set_port(bed, "near", "bot", "multicast_router", 0)
        for host in bed.links:
            self.set_port(bed, "far", host, "multicast_fast_leave", int(self.leaves_fast))

    def settle(self, bed):
        # All ports are up: ask now. A switch forwards by what it has snooped only after the first response interval.
        self.ask(bed)

    def ask(self, bed):
        for value in (0, 1):
            self.write(bed, "near", "/sys/class/net/bridge/bridge/multicast_querier", value)
        time.sleep(1)

    def add(self, bed, side, is_querier):
        # Times in hundredths of a second.
        times = {
            "startup_query_interval": 50, "startup_query_count": 4, "query_interval": 500, "query_response_interval": 50,
            "last_member_interval": self.last_member[0], "last_member_count": self.last_member[1], "hash_max": 16384, "igmp_version": self.igmp_version,
            "mld_version": self.mld_version, "snooping": 1, "querier": int(is_querier),
        }
        options = [word for name, value in times.items() for word in (f"mcast_{name}", value)]
        bed.ip(side, "link", "add", "bridge", "type", "bridge", "stp_state", 0, *options)
        bed.ip(side, "link", "set", "dev", "bridge", "up")

    def plug(self, bed, side, port):
        bed.ip(side, "link", "set", "dev", port, "master", "bridge", "up")

    def write(self, bed, host, file, value):
        bed.run(host, "sh", "-c", f"echo {value} > {file}")

    def set_port(self, bed, side, port, name, value):
        self.write(bed, side, f"/sys/class/net/{port}/brport/{name}", value)

    def remove(self):
        pass


class OldBridges(Bridges):
    """The same in IGMPv2, as some clouds' networks speak it: a join names no source, so that a link carries all senders of a group, and a
    leave takes two queries, of a second each (RFC 2236, section 8)."""

    igmp_version, mld_version = 2, 1
    protocol = "IGMPv2"
    last_member = (100, 2)
    leaves_fast = False
    leave_seconds = 4
    group = "239.72.87.1:7287"

    def prepare(self, bed, host):
        settings = (("ipv4", "force_igmp_version", 2), ("ipv6", "force_mld_version", 1))
        bed.run(host, "sysctl", "-q", "-w", *(f"net.{ip}.conf.{of}.{name}={value}" for ip, name, value in settings for of in ("all", "default")))


class Bridges6(Bridges):
    """Bridges with groups of IPv6."""

    protocol = "MLDv2"
    group = "[ff3e::4857:7287]:7287"

    def source(self, number):
        return f"fd87::{number}"

    def settle(self, bed):
        # The near switch asks once its own address is known to be unique. Until then the far one floods reports, and hosts that hear each
        # other's reports of MLDv1 send no leaves (RFC 2710, section 4).
        for _ in range(2):
            self.ask(bed)

    def version(self, program):
        """The kernel's table of groups has no version; reports of MLDv1 are ICMPv6 of type 131, of MLDv2 of type 143."""
        sent = {kind: int(count) for kind, count in re.findall(r"Icmp6OutType(\d+)\s+(\d+)", program.net("snmp6"))}
        return 1 if sent.get("131") else 2 if sent.get("143") else None, self.mld_version


class OldBridges6(Bridges6, OldBridges):
    """The same in MLDv1."""

    protocol = "MLDv1"
    group = "[ff15::4857:7287]:7287"


class Routers:
    """A subnet for each link; both routers run FRR's zebra and pimd: IGMPv3 towards receivers, PIM-SSM between."""

    igmp_version, protocol = Bridges.igmp_version, Bridges.protocol
    source, version = Bridges.source, Bridges.version
    leave_seconds = Bridges.leave_seconds
    group = Bridges.group
    needs = ("/usr/lib/frr/zebra", "/usr/lib/frr/pimd", "vtysh")

    def __init__(self):
        self.folder = None

    def prepare(self, bed, host):
        pass

    def address(self, number):
        return f"10.87.{number}.2"

    def build(self, bed):
        bed.cable("near", "bot", "far", "bot")
        for number, side in enumerate(SIDES, start=1):
            bed.run(side, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
            self.plug(bed, side, "bot", f"10.87.0.{number}")
        for number, (host, side) in enumerate(bed.sides.items(), start=1):
            bed.cable(side, host, host, "eth0")
            self.plug(bed, side, host, f"10.87.{number}.1")
            bed.bring_up(host, self.address(number))
            bed.ip(host, "route", "add", "default", "via", f"10.87.{number}.1")
            other, gateway = ("far", "10.87.0.1") if side == "near" else ("near", "10.87.0.2")
            bed.ip(other, "route", "add", f"10.87.{number}.0/24", "via", gateway)
        # They give up root, and want a folder of their own.
        self.folder = Path(tempfile.mkdtemp(prefix="hwfrr"))
        shutil.chown(self.folder, "frr", "frr")
        for side in SIDES:
            self.start(bed, side)

    def plug(self, bed, side, port, address):
        bed.ip(side, "address", "add", f"{address}/24", "dev", port)
        bed.ip(side, "link", "set", "dev", port, "up")

    def start(self, bed, side):
        folder = self.folder / side
        folder.mkdir()
        lines = ["interface bot", " ip pim", " ip pim hello 1 30"]
        for host in (host for host, at in bed.sides.items() if at == side):
            lines += [f"interface {host}", " ip pim"]
            if side == "far":
                # Tenths of a second, but the count.
                lines += [" ip igmp", " ip igmp version 3", " ip igmp query-interval 10", " ip igmp query-max-response-time 10"]
                lines += [" ip igmp last-member-query-count 1", " ip igmp last-member-query-interval 1"]
        (folder / "zebra.conf").write_text("")
        (folder / "pimd.conf").write_text("\n".join(lines) + "\n")
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "frr", "frr")
        for daemon in ("zebra", "pimd"):
            files = ["-z", folder / "zserv", "--vty_socket", folder, "-f", folder / f"{daemon}.conf", "-i", folder / f"{daemon}.pid"]
            bed.start(side, daemon, bed.folder, [f"/usr/lib/frr/{daemon}", *files, "-P", 0])
            self.wait(f"{daemon} of {side}", (folder / f"{daemon}.vty").exists)

    def settle(self, bed):
        for side in SIDES:
            self.wait(f"neighbour of {side}", lambda: self.ask(bed, side, "show ip pim neighbor json").get("bot"))
            self.wait(f"querier of {side}", lambda: side == "near" or self.is_querier(bed))

    def is_querier(self, bed):
        ports = self.ask(bed, "far", "show ip igmp interface json")
        return all(ports.get(host, {}).get("querier") is True for host in bed.links)

    def ask(self, bed, side, question):
        return json.loads(bed.run(side, "vtysh", "--vty_socket", self.folder / side, "-d", "pimd", "-c", question) or "{}")

    def wait(self, what, holds):
        until = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            check(time.monotonic() < until, f"no {what} after {PATIENCE_SECONDS} s")
            time.sleep(0.05)

    def remove(self):
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


ROUTING = {"bridge": Bridges, "igmpv2": OldBridges, "mldv2": Bridges6, "mldv1": OldBridges6, "frr": Routers}


def missing(name):
    """What a back end needs and this machine does not have."""
    return [need for need in ROUTING[name].needs if shutil.which(need) is None]
