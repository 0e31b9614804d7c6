"""Receivers that are made whole by HTTP after multicast, and servers that stay within their rate.

usage: repair.py BINARY [--full] [PART ...]; REPAIR_FOLDER names a folder for all files
"""

import filecmp
import http.client
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

RECEIVERS = 50
# Of a signed session.
SYMBOL_BYTES = 1344
RANDOM_SECONDS = 5
# Silence after which a receiver whose session is not closed begins.
QUIET_SECONDS = 10
SPARE_SECONDS = 5
MORE_THAN_MISSES_MAX = 1.1
HTTP_RATE = 20_000_000
OVER_RATE_MAX = 1.05
CROWD = 200
CROWD_SECONDS = 10
INCOMPLETE = 5
SENDER, SERVER = "10.92.0.1", "10.92.0.2"

NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; worker_processes 1;
events {{ worker_connections 1024; }}
http {{ access_log off; server {{ listen {address}:80; root {root}; }} }}
"""


class Bed:
    """A sender, a server and receivers at a bridge."""

    def __init__(self, network, binary, folder):
        self.network, self.binary, self.folder = network, binary, folder
        network.add_switch("mcast_snooping", "0")
        for number, host in enumerate(("sender", "server", *self.receivers()), start=1):
            network.plug(host, f"10.92.0.{number}")

    @staticmethod
    def receivers():
        return [f"r{number}" for number in range(1, RECEIVERS + 1)]

    def content(self, name, length):
        folder = self.folder / "content"
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(random.Random(name).randbytes(length))
        return folder / name

    def send(self, host, name, group, file, *options):
        network = ("--group", group, "--interface", "eth0", "--no-roster", "--repair-random-time", f"{RANDOM_SECONDS}s")
        return self.network.start(host, name, self.folder, [self.binary, "send", "--json", *network, *options, file])

    def receive(self, host, name, group, *options):
        out = self.folder / f"{name}-{host}"
        network = ("--group", group, "--interface", "eth0", "--out", out)
        command = [self.binary, "receive", "--json", *network, *options]
        program = self.network.start(host, name, self.folder, command)
        return program, out

    def nginx(self, root):
        config = self.folder / "nginx.conf"
        config.write_text(NGINX.format(folder=self.folder, address=SERVER, root=root))
        return self.network.start("server", "nginx", self.folder, ["nginx", "-c", config])

    def listening(self, program, seconds=1):
        time.sleep(seconds)
        check(not program.has_ended(), f"{program.name} has ended: {program.complaint()}")


def joined(events):
    return any(event["event"] == "channel:joined" for event in events)


def missing_bytes(events):
    """Bytes of the symbols that were missing when the repair was scheduled."""
    scheduled = next(i for i, event in enumerate(events) if event["event"] == "repair:scheduled")
    progress = [event for event in events[:scheduled] if event["event"] == "session:progress"]
    return progress[-1]["missing"] * SYMBOL_BYTES


def same(one, other):
    """Whether two files or folders of files are equal."""
    if not one.is_dir():
        return filecmp.cmp(one, other, shallow=False)
    names = sorted(path.name for path in one.iterdir())
    is_listed = other.is_dir() and names == sorted(path.name for path in other.iterdir())
    return is_listed and all(filecmp.cmp(one / name, other / name, shallow=False) for name in names)


def judge(bed, receivers, file, since, latest, lies_bytes=0):
    """What must hold of receivers that end by repair, by `latest` seconds after `since`; `lies_bytes` more than 1.1 of what missed may come."""
    ends, fetched, missed, whole = [], 0, 0, 0
    for program, out in receivers:
        while not program.has_ended():
            check(time.monotonic() < since + latest + 60, f"{program.name} does not end: {program.complaint()}")
            time.sleep(0.01)
        ends.append(time.monotonic() - since)
        code = program.end()
        check(code == 0, f"{program.name} ended with {code}: {program.complaint()}")
        whole += same(file, out / file.name)
        events = program.events()
        if events[-1]["bytes_by_path"]["http"] == 0:
            continue
        fetched += events[-1]["bytes_by_path"]["http"]
        missed += missing_bytes(events)
        shutil.rmtree(out)
    yield f"{whole} of {len(receivers)} receivers are whole", whole == len(receivers)
    last = max(ends)
    yield f"the last is whole after {last:.1f} s, of {latest} s", last <= latest, parts.BUSY
    share = fetched / max(missed, 1)
    most = MORE_THAN_MISSES_MAX * missed + lies_bytes
    yield f"fetched {fetched / 1e6:.2f} MB for {missed / 1e6:.2f} MB that missed: {share:.3f}", 0 < fetched <= most


def killed(bed, name, group, url):
    """A session is killed at 99 %."""
    file = bed.folder / "content" / "killed.bin"
    receivers = [bed.receive(host, name, group, "--drop", "0.003", "--seed", n) for n, host in enumerate(bed.receivers())]
    for program, _ in receivers:
        program.wait_for("its join", joined)
    sender = bed.send("sender", name, group, file, "--rate", "8M", "--repair-url", url)

    def is_late(events):
        return any(event.get("symbols", 0) >= 0.99 * event.get("symbols_total", 1e9) for event in events)

    sender.wait_for("99 %", is_late)
    sender.kill()
    # The last needed packet came just before.
    yield from judge(bed, receivers, file, time.monotonic(), QUIET_SECONDS + RANDOM_SECONDS + SPARE_SECONDS)


def killed_nginx(bed):
    """50 receivers of a session that is killed at 99 % are whole by nginx within silence + random time + 5 s."""
    file = bed.content("killed.bin", 6_000_000)
    server = bed.nginx(file.parent)
    bed.listening(server)
    yield from killed(bed, "nginx", "239.255.72.92:7401", f"http://{SERVER}/")
    server.signal(signal.SIGQUIT)
    server.end()


def killed_ours(bed):
    """The same by a server of ours."""
    file = bed.content("killed.bin", 6_000_000)
    server = bed.send("server", "ours", "239.255.72.92:7402", file, "--rate", "100k", "--http", f"{SERVER}:80")
    bed.listening(server)
    yield from killed(bed, "ours", "239.255.72.92:7403", f"http://{SERVER}/files/")
    server.signal(signal.SIGINT)
    server.end()


def ended(bed):
    """50 receivers of a session that ends after one pass with 2 % of loss are whole within the random time + 5 s."""
    file, group = bed.content("ended.bin", 3_000_000), "239.255.72.92:7404"
    receivers = [bed.receive(host, "ended", group, "--drop", "0.02", "--seed", n) for n, host in enumerate(bed.receivers())]
    for program, _ in receivers:
        program.wait_for("its join", joined)
    sender = bed.send("sender", "ended", group, file, "--rate", "8M", "--passes", "1", "--http", SENDER)
    sender.wait_for("its end", lambda events: any(event["event"] == "session:ended" for event in events))
    yield from judge(bed, receivers, file, time.monotonic(), RANDOM_SECONDS + SPARE_SECONDS)
    sender.signal(signal.SIGINT)
    sender.end()


def crowd(bed):
    """200 clients at once get no more than the rate + 5 %, and all are answered."""
    file, group = bed.content("crowd.bin", 2_000_000), "239.255.72.92:7405"
    sender = bed.send("sender", "crowd", group, file, "--rate", "100k", "--http", SENDER)
    bed.listening(sender)
    # A client of this program's own, in the namespace of a receiver.
    client = bed.network.start("r1", "crowd", bed.folder, [sys.executable, __file__, "--client", SENDER, file.name])
    time.sleep(1)
    before, at = sent_bytes(bed), time.monotonic()
    time.sleep(CROWD_SECONDS)
    rate = 8 * (sent_bytes(bed) - before) / (time.monotonic() - at)
    client.end(CROWD_SECONDS + 120)
    answers = json.loads(client.out.read_text())
    sender.signal(signal.SIGINT)
    sender.end()
    # The session's own packets are on the same link.
    limit = HTTP_RATE + 130_000
    yield f"{rate / 1e6:.2f} Mb/s on the link, of {limit / 1e6:.2f}", rate <= OVER_RATE_MAX * limit
    yield f"at least 0.9 of the rate", rate >= 0.9 * HTTP_RATE, parts.BUSY
    yield f"answers: {answers}", set(answers) <= {"200", "206", "503"} and answers.get("206", 0) > 0


def sent_bytes(bed):
    text = bed.network.ip("sender", "-s", "-j", "link", "show", "dev", "eth0")
    return json.loads(text)[0]["stats64"]["tx"]["bytes"]


def client(address, name):
    """Asks CROWD times at once for a range of 100 kB, again and again for CROWD_SECONDS + 2."""
    answers, lock, until = {}, threading.Lock(), time.monotonic() + CROWD_SECONDS + 2

    def ask():
        while time.monotonic() < until:
            connection = http.client.HTTPConnection(address, 7280, timeout=30)
            try:
                connection.request("GET", f"/files/{name}", headers={"Range": "bytes=0-99999"})
                response = connection.getresponse()
                bytes_ = len(response.read())
                status = str(response.status) if response.status != 206 or bytes_ == 100_000 else "short"
                wait = float(response.getheader("Retry-After", 0))
            except OSError as error:
                status, wait = type(error).__name__, 1
            with lock:
                answers[status] = answers.get(status, 0) + 1
            connection.close()
            time.sleep(max(0, min(wait, until - time.monotonic())))

    threads = [threading.Thread(target=ask) for _ in range(CROWD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(answers))


def local(bed):
    """A session of another host names a server on the receiver's own machine or link: nobody asks that server."""
    file = bed.content("local.bin", 300_000)
    names = ("127.0.0.1:8000", "localhost:8000", "0.0.0.0:8000", "[::1]:8000", "[::ffff:127.0.0.1]:8000", "169.254.7.7:8000")
    bed.network.ip("r1", "address", "add", "169.254.7.7/16", "dev", "eth0")
    command = [sys.executable, "-m", "http.server", "--directory", file.parent, "--bind", "::", "8000"]
    server = bed.network.start("r1", "http", bed.folder, command)
    bed.listening(server)
    # Each receiver waits for its timeout, so all sessions go on at once.
    groups = {name: f"239.255.72.92:{7410 + number}" for number, name in enumerate(names)}
    receivers = {name: bed.receive("r1", f"local-{group[-4:]}", group, "--drop", "0.1", "--timeout", "20s") for name, group in groups.items()}
    senders = []
    for name, (program, _) in receivers.items():
        program.wait_for("its join", joined)
        options = ("--rate", "8M", "--passes", "1", "--repair-url", f"http://{name}/", "--repair-random-time", "0s")
        network = ("--group", groups[name], "--interface", "eth0", "--no-roster")
        command = [bed.binary, "send", "--json", *network, *options, file]
        senders.append(bed.network.start("sender", f"local-{groups[name][-4:]}", bed.folder, command))
    for name, (program, out) in receivers.items():
        code, said = program.end(), program.err.read_text()
        is_refused = code == INCOMPLETE and "this machine or this link" in said and not (out / file.name).exists()
        yield f"{name} is refused (exit code {code})", is_refused
    for sender in senders:
        sender.end()
    asked = (server.out.read_text() + server.err.read_text()).count("GET")
    server.signal(signal.SIGINT)
    server.end()
    yield f"{asked} requests came", asked == 0


def event(name):
    return lambda events: any(event["event"] == name for event in events)


def send_to_peers(bed, name, group, file):
    """A sender without an HTTP server, whose receivers report."""
    network = ("--group", group, "--interface", "eth0", "--repair-random-time", f"{RANDOM_SECONDS}s")
    return bed.network.start("sender", name, bed.folder, [bed.binary, "send", "--json", *network, "--rate", "4M", file])


def serving(bed, host, name, group):
    return bed.receive(host, name, group, "--serve-repair", "--serve-time", "90s")


def name_peers(sender, peers):
    """Waits until the sender has named its peers in an instance of the FDT."""
    for program, _ in peers:
        program.wait_for("everything", event("repair:serving"))

    def serves(events):
        reports = {event["address"] for event in events if event["event"] == "receiver:reported" and event.get("repair_port") == 7280}
        return len(reports) == len(peers)

    sender.wait_for("reports of those that serve", serves)
    # The list changes each 5 s at most, and the last instance stays for some time.
    time.sleep(3 if len(peers) == 1 else 8)


def kill_late(sender, receivers, share=0.99):
    """Kills a sender at 99 % or another share of the first receiver."""

    def is_late(events):
        return any(event.get("symbols", 0) >= share * (event.get("symbols_total") or 1e9) for event in events)

    receivers[0][0].wait_for("its share", is_late)
    sender.kill()
    return time.monotonic()


def end_serving(peers):
    for program, _ in peers:
        program.signal(signal.SIGINT)
    return [program.end() for program, _ in peers]


def peer(bed):
    """The sender is killed at 99 % and there is no server: a receiver that is whole serves all others."""
    file, group = bed.content("peer.bin", 3_000_000), "239.255.72.92:7406"
    peers = [serving(bed, "r1", "peer", group)]
    sender = send_to_peers(bed, "peer", group, file)
    name_peers(sender, peers)
    receivers = [bed.receive(host, "peer", group, "--drop", "0.02", "--seed", n) for n, host in enumerate(bed.receivers()[1:])]
    since = kill_late(sender, receivers)
    yield from judge(bed, receivers, file, since, QUIET_SECONDS + RANDOM_SECONDS + SPARE_SECONDS)
    asked = {e["url"] for program, _ in receivers for e in program.events() if e["event"] == "repair:scheduled"}
    yield f"asked: {asked}", asked == {"http://10.92.0.3:7280/files/"}
    codes = end_serving(peers)
    yield f"the receiver that served ends with {codes}", codes == [0]


def peer_bundle(bed):
    """The same for a folder of small files, which travel in a bundle that no receiver keeps."""
    folder, group = bed.folder / "content" / "many", "239.255.72.92:7409"
    folder.mkdir(parents=True)
    for number in range(300):
        (folder / f"{number}.bin").write_bytes(random.Random(number).randbytes(10_000))
    peers = [serving(bed, "r1", "peer-bundle", group)]
    sender = send_to_peers(bed, "peer-bundle", group, folder)
    name_peers(sender, peers)
    hosts = enumerate(bed.receivers()[1:11])
    receivers = [bed.receive(host, "peer-bundle", group, "--drop", "0.02", "--seed", n) for n, host in hosts]
    since = kill_late(sender, receivers)
    yield from judge(bed, receivers, folder, since, QUIET_SECONDS + RANDOM_SECONDS + SPARE_SECONDS)
    end_serving(peers)


def liar(bed):
    """One of two receivers that serve has changed its file and hidden the change: no one takes a wrong byte, and all are whole."""
    file, group = bed.content("liar.bin", 3_000_000), "239.255.72.92:7407"
    peers = [serving(bed, host, "liar", group) for host in ("r1", "r2")]
    sender = send_to_peers(bed, "liar", group, file)
    peers[0][0].wait_for("everything", event("repair:serving"))
    changed = peers[0][1] / file.name
    before = changed.stat()
    changed.write_bytes(bytes(before.st_size))
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    name_peers(sender, peers)
    receivers = [bed.receive(host, "liar", group, "--drop", "0.02", "--seed", n) for n, host in enumerate(bed.receivers()[2:22])]
    since = kill_late(sender, receivers)
    # A wrong block loses its repair symbols: about the whole block is fetched again, here the file, by each receiver that met the liar.
    lies_bytes = len(receivers) * file.stat().st_size
    yield from judge(bed, receivers, file, since, QUIET_SECONDS + RANDOM_SECONDS + 3 * SPARE_SECONDS, lies_bytes)
    refused = [[e for e in program.events() if e["event"] == "repair:refused"] for program, _ in receivers]
    urls = {e["url"] for events in refused for e in events}
    yield f"{sum(map(bool, refused))} of {len(refused)} met the liar, {urls}", urls == {"http://10.92.0.3:7280/files/"}
    yield "none asked the liar after a wrong block", max(map(len, refused)) == 1
    end_serving(peers)


def foreign(bed):
    """A receiver that serves reports from an address of this link: the sender names the address, and nobody asks it."""
    file, group = bed.content("foreign.bin", 3_000_000), "239.255.72.92:7408"
    bed.network.ip("r1", "address", "replace", "169.254.7.7/16", "dev", "eth0")
    bed.network.ip("r1", "route", "replace", "10.92.0.1/32", "dev", "eth0", "src", "169.254.7.7")
    bed.network.ip("sender", "address", "add", "169.254.7.1/16", "dev", "eth0")
    bed.network.ip("r2", "address", "add", "169.254.7.2/16", "dev", "eth0")
    peers = [serving(bed, "r1", "foreign", group)]
    sender = send_to_peers(bed, "foreign", group, file)
    name_peers(sender, peers)
    reported = [e["address"] for e in sender.events() if e.get("repair_port") == 7280]
    yield f"reports come from {set(reported)}", all(address.startswith("169.254.7.7:") for address in reported)
    receivers = [bed.receive("r2", "foreign", group, "--drop", "0.02", "--timeout", "20s")]
    kill_late(sender, receivers, 0.5)
    program, out = receivers[0]
    code, said = program.end(), program.err.read_text()
    is_refused = code == INCOMPLETE and "this machine or this link" in said and not (out / file.name).exists()
    yield f"the address is refused (exit code {code})", is_refused
    end_serving(peers)
    bed.network.ip("r1", "route", "delete", "10.92.0.1/32", "dev", "eth0")


PARTS = {part.__name__: part for part in (killed_nginx, killed_ours, ended, crowd, local, peer, peer_bundle, liar, foreign)}


def main():
    if sys.argv[1] == "--client":
        return client(*sys.argv[2:])
    options = parts.chosen(PARTS, "fixed")
    require_root("ip", "nginx")
    with Network("hw-repair") as network:
        bed = Bed(network, options.binary, Path(os.environ["REPAIR_FOLDER"]))
        try:
            names = options.parts or list(PARTS)
            missed = parts.run(PARTS, names, f"{RECEIVERS} receivers", lambda part: part(bed), options.full)
        except Failed as failure:
            sys.exit(f"repair: FAILED: {failure}")
    if missed:
        sys.exit("repair: MISSED: " + "; ".join(missed))


if __name__ == "__main__":
    main()
