"""Networks that speak IGMPv2 or MLDv1, beside the same networks in IGMPv3 or MLDv2: starts, leaves, a TCP beside, two senders on one group.

The bed and the parts are those of multirate.py; the networks are switches that snoop (routing.py). Root, Linux.

usage: igmp2.py BINARY [--full] [--control m2c] [PART...]

parts: start leave fairness senders, each in IPv4 and IPv6
"""

import filecmp
import statistics
import sys
import tempfile
import time
from pathlib import Path

import multirate
import parts
from network import Failed, check, require_root
from routing import ROUTING

# A network that names sources, and one that does not.
FAMILIES = {"IPv4": ("bridge", "igmpv2"), "IPv6": ("mldv2", "mldv1")}
LINK_MBIT = 20
# The old network's time of a whole transfer, in that of the new one. A level that is left goes on for 2 s.
START_FACTOR = 1.6
# The old network's share beside a TCP, in that of the new one.
SHARES = (0.4, 2.5)


def start(bed_of, folder, full):
    """A transfer with default options, behind 20 Mbit/s: its time in the old network and in the new one, in turns."""
    file = multirate.content(folder, 10)
    for family, routings in FAMILIES.items():
        times, firsts = {routing: [] for routing in routings}, {routing: [] for routing in routings}
        for _ in range(3 if full else 1):
            for routing in routings:
                first, whole = transfer(bed_of(routing), file)
                firsts[routing].append(first)
                times[routing].append(whole)
        new, old = (statistics.median(times[routing]) for routing in routings)
        for routing in routings:
            print(
                f"  {family} {ROUTING[routing].protocol}: first MB after {' '.join(f'{seconds:.2f}' for seconds in firsts[routing])} s, "
                f"10 MB after {' '.join(f'{seconds:.2f}' for seconds in times[routing])} s"
            )
        yield f"{family}: a transfer within {START_FACTOR} of the new network's time ({old / new:.2f})", old <= START_FACTOR * new, parts.BUSY


def transfer(bed, file):
    """Seconds from a receiver's join until its first megabyte, and until it is whole."""
    with bed:
        bed.build()
        sender = bed.send("source", file)
        time.sleep(3)
        receiver = bed.receive("only", "source" if bed.routing.mld_version == 2 else None)
        multirate.whole(bed, receiver, file, 120)
        multirate.stop(sender)
        events = receiver.events()
    check(filecmp.cmp(file, receiver.folder / file.name, shallow=False), "the file differs")
    joined = next(event["time"] for event in events if event["event"] == "channel:joined")
    first = next(event["time"] for event in events if event["event"] == "session:progress" and event["bytes"] > 1e6)
    done = next(event["time"] for event in events if event["event"] == "object:completed")
    return (first - joined) / 1000, (done - joined) / 1000


def leave(bed_of, folder, full):
    """A receiver that ends, and one that is killed: the link is quiet after the time of the version."""
    for family, routings in FAMILIES.items():
        for routing in routings if full else routings[1:]:
            for what, *holds in multirate.leave(lambda _, hosts: bed_of(routing, hosts), folder, full):
                yield f"{family}: {what}", *holds


def fairness(bed_of, folder, full):
    """A receiver beside a TCP on 10 Mbit/s: its share in the old network and in the new one; in the short form with IPv4 alone."""
    for family, routings in list(FAMILIES.items())[: None if full else 1]:
        shares = []
        for routing in routings:
            tcp, ours, lost = multirate.beside_tcp(lambda _, hosts: bed_of(routing, hosts), folder, 60 if full else 30)
            print(f"  {family} {ROUTING[routing].protocol}: TCP {tcp:.2f} of the link, the receiver {ours:.2f} ({lost:.1%} lost)")
            shares.append(ours)
        ratio = shares[1] / shares[0]
        yield f"{family}: {ratio:.2f} of the share that the new network gives, within {SHARES}", SHARES[0] <= ratio <= SHARES[1], parts.BUSY


def senders(bed_of, folder, full):
    """Two senders on one group of the old network, and receivers that name a session, or a sender, or nothing."""
    megabytes = 2
    for family, (_, routing) in FAMILIES.items():
        hosts = {"one": LINK_MBIT, "two": LINK_MBIT, "named": LINK_MBIT, "any": LINK_MBIT}
        files = {"source": folder / f"ours-{family}.bin", "rival": folder / f"theirs-{family}.bin"}
        for number, file in enumerate(files.values()):
            file.write_bytes(multirate.random.Random(number).randbytes(megabytes * multirate.MB))
        with bed_of(routing, hosts) as bed:
            bed.build()
            receivers = {
                "one": bed.receive("one", None, "--tsi", 1), "two": bed.receive("two", None, "--tsi", 2),
                "named": bed.receive("named", "rival"), "any": bed.receive("any", is_quiet=False),
            }
            for program in receivers.values():
                program.wait_for("its join", lambda events: any(event["event"] == "channel:joined" for event in events))
            sending = [bed.send(host, file, 16, "--tsi", tsi) for tsi, (host, file) in enumerate(files.items(), start=1)]
            results = {host: multirate.whole(bed, program, None, 120) for host, program in receivers.items()}
            multirate.stop(*sending)
        wanted, foreign = {"one": "source", "two": "rival", "named": "rival"}, {}
        for host, (seconds, ended) in results.items():
            multirate.describe(host, seconds, ended, megabytes)
            reasons = ended.get("dropped_for", {})
            foreign[host] = ended["kept_out"] + reasons.get("foreign", 0)
            print(f"  {host:10} foreign packets: {ended['kept_out']} kept out by their source, dropped {reasons}")
            found = next(event for event in receivers[host].events() if event["event"] == "session:found")
            wanted.setdefault(host, "source" if found["tsi"] == 1 else "rival")
        for host, source in wanted.items():
            got = receivers[host].folder / files[source].name
            yield f"{family}: {host} has the file of {source}", got.exists() and filecmp.cmp(got, files[source], shallow=False)
        told = receivers["any"].events()
        other = [event for event in told if event["event"] == "session:other"]
        print("  any says: " + " / ".join(line for line in receivers["any"].complaint().splitlines() if "arrives" in line))
        said = receivers["any"].err.read_text()
        yield f"{family}: who names nothing is told of the other session and of --tsi", len(other) == 1 and f"--tsi {other[0]['tsi']}" in said
        # The kernel keeps them from who names a sender.
        yield f"{family}: foreign packets are counted", all(foreign[host] > 0 for host in foreign if host != "named")


PARTS = {part.__name__: part for part in (start, leave, fairness, senders)}


def main():
    options = parts.chosen(PARTS, "m2c")
    require_root("ip", "tc", "ethtool", "sysctl", "chrt")
    with tempfile.TemporaryDirectory(prefix="hwigmp") as name:
        folder = Path(name)
        bed_of = lambda routing, hosts={"only": LINK_MBIT}: multirate.Bed(folder, options.binary, options.control, routing, None, hosts)
        call = lambda part: part(bed_of, folder, options.full)
        missed = parts.run(PARTS, options.parts or list(PARTS), "old and new networks", call, options.full)
    check(not missed, f"must hold: {'; '.join(missed)}")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"igmp2: {failure}")
