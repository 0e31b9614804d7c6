"""The live page, its metrics, and what both cost a transfer."""

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from parts import BUSY, chosen, run

PAGE_BYTES_MAX = 120_000
SAMPLES = 300
PAINTED_MIN = 1_000


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return answer.read().decode()


def wait_for(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nobody listens at port {port}")


def quiet(*words, **more):
    return subprocess.Popen([OPTIONS.binary, *words], stderr=subprocess.DEVNULL, **more)


def group():
    return f"239.255.{os.getpid() % 199 + 1}.97:{free_port()}"


def content(folder, megabytes):
    path = os.path.join(folder, "content.bin")
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1 << 20))
    return path


def browser():
    """the demo's page in Chromium: widths of 1280 and 400 pixels, light and dark"""
    if not OPTIONS.chromium:
        return
    port, shots = free_port(), tempfile.mkdtemp(prefix="headwater-page-shots-")
    demo = quiet("demo", "--quiet", "--http", f"127.0.0.1:{port}", stdout=subprocess.DEVNULL)
    try:
        wait_for(port)
        words = ["node", OPTIONS.script, f"http://127.0.0.1:{port}/", shots, str(SAMPLES), OPTIONS.chromium, *(["all"] if OPTIONS.full else [])]
        seen = json.loads(subprocess.run(words, check=True, capture_output=True, timeout=120).stdout)
    finally:
        demo.send_signal(2)
        demo.wait(20)
    yield f"no message on the console ({seen['errors'][:3]})", not seen["errors"]
    yield f"no request to another origin ({seen['foreign'][:3]})", not seen["foreign"]
    yield f"page of {seen['bytes']} bytes, at most {PAGE_BYTES_MAX}", 10_000 < seen["bytes"] <= PAGE_BYTES_MAX
    for page in seen["pages"]:
        least = min(page["painted"].values())
        yield f"{page['name']}: each canvas has {least} painted pixels or more after {page['samples']} samples", least > PAINTED_MIN and len(page["painted"]) == 3
        yield f"{page['name']}: {page['rows']} ends, no text below 9 pixels, no sideways scrolling", page["rows"] == 4 and not page["small"] and not page["wide"]
    keys = seen["keyboard"]
    yield f"the keyboard reaches ends, order and values ({keys})", keys["chosen"] == "sender" and keys["sorted"] == "rate" and " s ago: " in keys["readout"]
    print(f"  screenshots are in {shots}")


def prometheus():
    """a scrape each second of a receiver: the last counter is that of its summary"""
    with tempfile.TemporaryDirectory() as folder:
        page, at, to = free_port(), free_port(), group()
        scraper = None
        receiver = quiet("receive", "--interface", "lo", "--group", to, "--out", f"{folder}/out", "--json", "--http", f"127.0.0.1:{page}", stdout=subprocess.PIPE)
        wait_for(page)
        if OPTIONS.prometheus:
            config = f"{folder}/prometheus.yml"
            with open(config, "w") as file:
                file.write(f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs: [{{job_name: headwater, static_configs: [{{targets: ['127.0.0.1:{page}']}}]}}]\n")
            words = [OPTIONS.prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{at}"]
            scraper = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for(at)
            time.sleep(2.5)
        sender = quiet("send", "--interface", "lo", "--group", to, "--rate", "4M", content(folder, 2), stdout=subprocess.DEVNULL)
        try:
            time.sleep(2)
            text = get(page, "/metrics")
            ended = [json.loads(line) for line in receiver.stdout if b'"session:ended"' in line][-1]
            receiver.wait(30)
            wanted = ended["bytes_by_path"]["multicast"]
            if OPTIONS.parser:
                parse = "import sys; from prometheus_client.openmetrics.parser import text_string_to_metric_families as p; print(len(list(p(sys.stdin.read()))))"
                parsed = subprocess.run([OPTIONS.parser, "-c", parse], input=text, capture_output=True, text=True)
                families = len(re.findall("^# TYPE", text, re.M))
                yield f"the parser of prometheus-client takes all {families} families ({parsed.stderr[-200:]})", parsed.returncode == 0 and int(parsed.stdout) == families
            if scraper:
                def query(what):
                    return json.loads(get(at, "/api/v1/query?query=" + urllib.request.quote(what)))["data"]["result"]
                last = query('last_over_time(headwater_received_bytes_total{path="multicast"}[1m])')
                up = query("max_over_time(up[1m])")
                values = [result["value"][1] for result in last]
                yield f"Prometheus has {values} bytes at last, and the summary {wanted}", [int(value) for value in values] == [wanted]
                yield "the target was up", [result["value"][1] for result in up] == ["1"]
        finally:
            for process in (sender, receiver, *([scraper] if scraper else [])):
                process.kill()
                process.wait()


def web_seconds(pid):
    """CPU seconds of the server's thread."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat") as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
        if name == "headwater-web":
            return sum(map(int, rest.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    raise SystemExit("the server has no thread")


def memory(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024


def open_stream(port):
    stream = socket.create_connection(("127.0.0.1", port))
    stream.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    return stream


def drain(streams, stop):
    import selectors
    selector = selectors.DefaultSelector()
    for stream in streams:
        stream.setblocking(False)
        selector.register(stream, selectors.EVENT_READ)
    while not stop.is_set():
        for key, _ in selector.select(0.2):
            try:
                if not key.fileobj.recv(1 << 16):
                    selector.unregister(key.fileobj)
            except OSError:
                pass


def clients():
    """100 clients of the events of a session"""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        sender = quiet("send", "--interface", "lo", "--group", group(), "--max-rate", "8M", "--http", f"127.0.0.1:{port}", content(folder, 2), stdout=subprocess.DEVNULL)
        try:
            wait_for(port)
            time.sleep(1)
            streams, stop = [open_stream(port) for _ in range(100)], threading.Event()
            reader = threading.Thread(target=drain, args=(streams, stop))
            reader.start()
            time.sleep(1.5)
            before, began = web_seconds(sender.pid), time.monotonic()
            time.sleep(5)
            share = (web_seconds(sender.pid) - before) / (time.monotonic() - began)
            stop.set()
            reader.join()
            yield f"100 clients cost {100 * share:.1f} % of a core, at most 5", share <= 0.05, BUSY
        finally:
            sender.kill()
            sender.wait()


class Load:
    """Clients that use a server while `on` is set."""

    def __init__(self, port, kind):
        self.port, self.kind, self.on, self.ended, self.count = port, kind, threading.Event(), False, 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while not self.ended:
            if not self.on.wait(0.1):
                continue
            try:
                getattr(self, self.kind)()
            except OSError:
                time.sleep(0.01)

    def page(self):
        with open_stream(self.port) as stream:
            stream.settimeout(0.3)
            while self.on.is_set() and stream.recv(1 << 16):
                self.count += 1

    def flood(self):
        """Pipelined requests, thousands a second, each with one of three faults or none."""
        host = f"127.0.0.1:{self.port}"
        one = ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n" * 60 + f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n" * 3).encode()
        with socket.create_connection(("127.0.0.1", self.port)) as stream:
            stream.settimeout(0.2)
            began, sent = time.monotonic(), 0
            while self.on.is_set():
                stream.sendall(one)
                self.count += 63
                stream.recv(1 << 20)
                # At most 10 000 requests a second.
                sent += 63
                time.sleep(max(0, sent / 10_000 - (time.monotonic() - began)))
        with socket.create_connection(("127.0.0.1", self.port)) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 60_000)

    def slow(self):
        """Readers that take nothing, and heads that never end."""
        readers = [open_stream(self.port) for _ in range(60)]
        heads = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(60)]
        while self.on.is_set():
            for head in heads:
                head.sendall(b"G")
            time.sleep(0.2)
        for stream in readers + heads:
            stream.close()


def transfer(kind, rate, seconds):
    """Rates of a transfer with a load on and off by turns: the median of the ratios, the median rate, and the memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        port, to = free_port(), group()
        sender = quiet("send", "--interface", "lo", "--group", to, "--rate", rate, "--fec", "none", "--no-sign", "--json", "--http", f"127.0.0.1:{port}", content(folder, 64), stdout=subprocess.PIPE)
        try:
            wait_for(port)
            time.sleep(2)
            load, turns, progress = Load(port, kind), [], []

            def follow():
                # The sender's own count: a scrape would be a load, and the interface counts the load, too.
                for line in sender.stdout:
                    if b'"session:progress"' in line:
                        event = json.loads(line)
                        progress.append((event["time"] / 1e3, event["bytes"]))

            threading.Thread(target=follow, daemon=True).start()
            time.sleep(0.5)
            for turn in range(2 * int(seconds)):
                on = turn % 2 == 1
                (load.on.set if on else load.on.clear)()
                time.sleep(0.3)
                since, before = progress[-1]
                time.sleep(0.8)
                until, after = progress[-1]
                turns.append((after - before) / max(until - since, 1e-3))
            load.ended = True
            load.on.set()
            ratios = [on / off for off, on in zip(turns[::2], turns[1::2])]
            return statistics.median(ratios), statistics.median(turns[::2]) * 8, memory(sender.pid), load.count
        finally:
            sender.kill()
            sender.wait()


def effect(kind, what):
    seconds = 12 if OPTIONS.full else 3
    ratio, rate, megabytes, count = transfer(kind, "1G", seconds)
    yield f"{what} ({count}): {ratio:.4f} of the rate without, which is {rate / 1e6:.0f} Mbit/s; at least 0.99", ratio >= 0.99, BUSY
    yield f"the process has {megabytes:.0f} MB, at most 400", megabytes <= 400


def watched():
    """a transfer at 1 Gbit/s, with a client of the events by turns"""
    yield from effect("page", "pieces of events read")


def flooded():
    """a transfer at 1 Gbit/s under 10 000 requests a second, foreign hosts and huge heads"""
    yield from effect("flood", "requests")


def slowed():
    """a transfer at 1 Gbit/s with 120 connections that take or give nothing"""
    yield from effect("slow", "pieces")


PARTS = {part.__name__: part for part in (browser, prometheus, clients, watched, flooded, slowed)}
if __name__ == "__main__":
    text = {"default": None, "help": "path of the tool; without, its part is left out"}
    OPTIONS = chosen(PARTS, "m2c", chromium=text, script=text, prometheus=text, parser=text)
    MISSED = run(PARTS, OPTIONS.parts or PARTS, "page", lambda part: part(), OPTIONS.full)
    if MISSED:
        sys.exit("page.py: MISSED: " + "; ".join(MISSED))
