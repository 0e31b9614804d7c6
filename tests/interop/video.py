"""Layered video from ffmpeg to Chromium and mpv, and what must hold of it.

usage: video.py BINARY [--full] [--keep FOLDER] [PART...]

parts: page links switching quality join latency loss memory. The short form plays page, switching and loss for some seconds;
memory is by hand. What was measured is printed whatever it is. links needs root.
"""

import http.server
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import browser
from network import Failed, Network, check

GROUP = "239.255.72.143"
RATES = ("120k", "720k", "2400k")
GOP = 1.0
STATS = "JSON.stringify(window.players.map(p => ({...p.stats, at: p.video.currentTime})))"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Program:
    """A command of headwater, with its events."""

    def __init__(self, bed, name, arguments, prefix=(), stdin=subprocess.DEVNULL):
        self.name, self.files = name, bed.folder / name
        self.out, self.err = (self.files.with_suffix(suffix) for suffix in (".out", ".err"))
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen([*prefix, bed.binary, *map(str, arguments)], stdin=stdin, stdout=out, stderr=err)
        bed.programs.append(self)

    def events(self, name=None):
        lines = self.out.read_text().split("\n")[:-1]
        events = map(json.loads, lines)
        return [event for event in events if name in (None, event["event"])]

    def buffers(self):
        return self.events("stream:buffer")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed(f"{self.name} does not end")


class Bed:
    def __init__(self, binary, folder, is_full, keep, films):
        self.binary, self.folder, self.is_full, self.keep, self.films = binary, folder, is_full, keep, films
        self.programs, self.count = [], 0

    def group(self):
        return f"{GROUP}:{free_port()}"

    def send(self, group, *options, source="test", interface="lo", prefix=(), stdin=subprocess.DEVNULL):
        arguments = ["stream", "send", "--video", source, "--group", group, "--interface", interface, "--json", "-vv"]
        self.count += 1
        return Program(self, f"send-{self.count}", [*arguments, *options], prefix, stdin)

    def receive(self, group, rate, *options, interface="lo", prefix=()):
        arguments = ["stream", "receive", "--group", group, "--interface", interface, "--json", "-vv", "--trust", "any"]
        if rate:
            arguments += ["--max-rate", rate]
        self.count += 1
        return Program(self, f"receive-{self.count}-{rate}", [*arguments, *options], prefix)

    def end(self):
        for program in self.programs:
            if program.process.poll() is None:
                program.process.kill()
        self.programs.clear()

    def shot(self, page, name):
        if self.keep:
            page.screenshot(self.keep / f"{name}.png")


def get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read()


def wait_for(what, holds, seconds=30):
    until = time.monotonic() + seconds
    while not (found := holds()):
        check(time.monotonic() < until, f"{what} did not come within {seconds} s")
        time.sleep(0.1)
    return found


def ladder(buffers):
    """Rungs of buffers, as text: `2 2 1 -`."""
    return " ".join("-" if buffer.get("rung") is None else str(buffer["rung"]) for buffer in buffers)


def played(stats, before):
    """Stalls, dropped and shown pictures of players since an earlier look."""
    return [{key: now[key] - then[key] for key in ("stalls", "dropped", "frames")} for now, then in zip(stats, before)]


def page(bed):
    """Three receivers of 5, 30 and 100 % in one page."""
    seconds, port = (60 if bed.is_full else 12), free_port()
    demo = Program(bed, "demo", ["demo", "--video", "--http", f"127.0.0.1:{port}"])
    lists = [{} for _ in RATES]
    wait_for("the page", lambda: demo.err.read_text().count("open http"))
    wait_for("video", lambda: json.loads(get(f"http://127.0.0.1:{port}/r2/list"))["buffers"])

    def look():
        for number, seen in enumerate(lists):
            for buffer in json.loads(get(f"http://127.0.0.1:{port}/r{number}/list"))["buffers"]:
                seen[buffer["gop"]] = buffer["rung"]

    with browser.Browser(f"http://127.0.0.1:{port}/") as shown:
        wait_for("all pictures", lambda: shown.evaluate("window.players?.every(p => p.isPlaying)"))
        # The receivers find their rate, and the page its distance from the end.
        time.sleep(5)
        before, first = json.loads(shown.evaluate(STATS)), max(json.loads(get(f"http://127.0.0.1:{port}/r2/list"))["buffers"][-1]["gop"], 1)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            look()
            time.sleep(1)
        after = json.loads(shown.evaluate(STATS))
        bed.shot(shown, "page-1280")
        shown.resize(400, 860)
        time.sleep(1)
        bed.shot(shown, "page-400")
        print("  browser's log:", shown.logs[:3], "errors:", [player["errors"][:2] for player in after])
        print("  first picture after the load (s):", [round(player["firstPicture"] / 1000, 2) for player in after])
    demo.stop()
    since = played(after, before)
    shares = []
    for rung, (seen, rate, player) in enumerate(zip(lists, RATES, since)):
        here = {gop: got for gop, got in seen.items() if gop > first}
        right = sum(got == rung for got in here.values())
        shares.append(right / max(len(here), 1))
        print(f"  {rate}: rung {rung} in {right} of {len(here)} buffers; {player}")
    check(min(shares) >= 58 / 60 - (0 if bed.is_full else 0.15), f"rungs 0, 1, 2 in {shares} of the buffers, not in 58 of 60")
    check(all(player["stalls"] == 0 for player in since), "a player stalled")
    check(all(player["dropped"] <= 0.01 * player["frames"] for player in since), "more than 1 % of pictures were dropped")


class Alternating(http.server.ThreadingHTTPServer):
    """A gateway whose rung changes in each buffer: segments come in turn from two gateways."""

    daemon_threads = True

    def __init__(self, low, high):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.low, self.high = low, high

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            try:
                body = self.body()
            except OSError:
                self.send_error(404)
                return
            kinds = {".js": "text/javascript", ".css": "text/css", "list": "application/json", "m3u8": "application/vnd.apple.mpegurl"}
            kind = next((kind for end, kind in kinds.items() if self.path.endswith(end)), "text/html" if self.path == "/" else "video/mp4")
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def body(self):
            high = json.loads(get(self.server.high + "/list"))
            low = {buffer["gop"]: buffer for buffer in json.loads(get(self.server.low + "/list"))["buffers"]}
            takes_low = lambda gop: gop % 2 == 0 and low.get(gop, {}).get("rung") is not None
            if self.path == "/list":
                # A buffer shows once both receivers have it: the page takes the rung that it sees first.
                high["buffers"] = [buffer for buffer in high["buffers"] if buffer["gop"] <= max(low, default=-1)]
                for buffer in high["buffers"]:
                    if takes_low(buffer["gop"]):
                        buffer["rung"] = low[buffer["gop"]]["rung"]
                return json.dumps(high).encode()
            if found := re.fullmatch(r"/v(\d+)\.m4s", self.path):
                gop = next((buffer["gop"] for buffer in high["buffers"] if buffer["n"] == int(found[1])), None)
                if gop is not None and takes_low(gop):
                    return get(f"{self.server.low}/v{low[gop]['n']}.m4s")
            return get(self.server.high + self.path)

        def log_message(self, *_):
            pass


def switching(bed):
    """The rung changes in each buffer, in Chromium and mpv."""
    seconds, group = (60 if bed.is_full else 8), bed.group()
    ports = {rate: free_port() for rate in ("120k", "2400k")}
    bed.send(group)
    receivers = {rate: bed.receive(group, rate, "--http", f"127.0.0.1:{port}") for rate, port in ports.items()}
    for receiver in receivers.values():
        wait_for("video", lambda: sum(buffer.get("rung") is not None for buffer in receiver.buffers()) > 5)
    server = Alternating(*(f"http://127.0.0.1:{port}" for port in ports.values()))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    with browser.Browser(url) as shown:
        wait_for("a picture", lambda: shown.evaluate("window.players?.every(p => p.isPlaying)"))
        time.sleep(3)
        before = json.loads(shown.evaluate(STATS))
        time.sleep(seconds)
        after = json.loads(shown.evaluate(STATS))
        bed.shot(shown, "switching")
    since = played(after, before)[0]
    rungs = after[0]["rungs"][len(before[0]["rungs"]):]
    changes = sum(one != other for one, other in zip(rungs, rungs[1:]))
    print(f"  Chromium: {changes} changes in {len(rungs)} buffers; {since}; errors: {after[0]['errors']}")
    if mpv := shutil.which("mpv"):
        ended = subprocess.run([mpv, "--no-config", "--vo=null", "--ao=null", f"--length={seconds}", "--msg-level=all=warn",
                                url + "master.m3u8"], capture_output=True, text=True, timeout=seconds + 60)
        complaints = [line for line in (ended.stdout + ended.stderr).splitlines() if re.search(r"error|corrupt|fail|invalid", line, re.I)]
        print(f"  mpv: exit code {ended.returncode}, complaints: {complaints[:3]}")
        check(ended.returncode == 0 and not complaints, f"mpv complains: {complaints[:5]}")
    else:
        print("  mpv: not run, the package mpv is missing")
    server.shutdown()
    check(changes >= 0.8 * (len(rungs) - 1) and changes > 3, f"the rung changed {changes} times")
    check(since["stalls"] == 0 and not after[0]["errors"], "the player stalled, or reported an error")


def restart(bed):
    """A receiver that starts again while a browser has its page open."""
    group, port = bed.group(), free_port()
    bed.send(group)

    def receive():
        receiver = bed.receive(group, "2400k", "--http", f"127.0.0.1:{port}")
        wait_for("video", lambda: [buffer for buffer in receiver.buffers() if buffer.get("rung") is not None])
        return receiver

    first = receive()
    with browser.Browser(f"http://127.0.0.1:{port}/") as shown:
        wait_for("a picture", lambda: shown.evaluate("window.players?.every(p => p.isPlaying)"))
        time.sleep(8)
        first.stop()
        began = time.monotonic()
        receive()
        source = "window.players[0].last < 6 && window.players[0].isPlaying"
        wait_for("a picture of the new receiver", lambda: shown.evaluate(source), 6)
        print(f"  a picture {time.monotonic() - began:.1f} s after the end of the first receiver")


def loss(bed):
    """1 % of random loss, and the beginnings of late receivers."""
    seconds, group = (60 if bed.is_full else 12), bed.group()
    bed.send(group)
    receivers = {rate: bed.receive(group, rate, "--drop", "0.01", "--seed", seed, "--http", f"127.0.0.1:{free_port()}")
                 for seed, rate in enumerate(RATES, start=1)}
    time.sleep(seconds + 4)
    for rate, receiver in receivers.items():
        receiver.stop()
        # From the first picture on.
        buffers = receiver.buffers()
        first = next((at for at, buffer in enumerate(buffers) if buffer.get("rung") is not None), 0)
        buffers = buffers[first:]
        without = sum(buffer.get("rung") is None for buffer in buffers)
        repaired = sum(buffer["repaired"] for buffer in buffers)
        print(f"  {rate}: {without} of {len(buffers)} GOPs without a picture, {repaired} packets repaired; rungs {ladder(buffers)}")
        # In the short form, one GOP is more than 5 %.
        check(without <= max(0.05 * len(buffers), 1 if not bed.is_full else 0), f"{rate}: {without} of {len(buffers)} GOPs without a picture")


def join(bed):
    """Receivers that begin late."""
    group = bed.group()
    bed.send(group)
    time.sleep(8)
    for rate in RATES * 3:
        receiver = bed.receive(group, rate, "--http", f"127.0.0.1:{free_port()}")
        wait_for("a picture", lambda: [buffer for buffer in receiver.buffers() if buffer.get("rung") is not None])
        receiver.stop()
        buffers, found = receiver.buffers(), receiver.events("session:found")[0]["time"]
        first = next(at for at, buffer in enumerate(buffers) if buffer.get("rung") is not None)
        print(f"  {rate}: first picture in buffer {first + 1}, {buffers[first]['time'] / 1000 - found / 1000:.2f} s after the first packet")
        check(first + 1 <= 2, f"{rate}: the first picture came in buffer {first + 1}")


def log_times(program, pattern):
    """Times of lines of the log by a number in the line."""
    times = {}
    for stamp, number in re.findall(rf"(\d{{4}}-\S+Z)\s+DEBUG.*?{pattern}", program.err.read_text()):
        parsed = time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")
        times.setdefault(int(number), time.mktime(parsed) + float("0" + stamp[19:-1]))
    return times


# Pictures with the wall clock in 24 squares at the top: milliseconds modulo 2^24.
CLOCK = """
import os, sys, time
out, w, h, fps = sys.stdout.buffer, 640, 360, 25
# Noise fills the rungs, as films do.
noise = [bytes(90 + octet % 64 for octet in os.urandom(w * (h - 24))) for _ in range(8)]
out.write(b"YUV4MPEG2 W640 H360 F25:1 Ip C420jpeg\\n")
chroma, began, n = bytes([128]) * (w * h // 2), time.time(), 0
while True:
    wait = began + n / fps - time.time()
    if wait > 0: time.sleep(wait)
    ms = int(time.time() * 1000) & 0xffffff
    row = b"".join(bytes([235 if ms >> bit & 1 else 16]) * 24 for bit in range(24)) + bytes([16]) * (w - 24 * 24)
    out.write(b"FRAME\\n" + row * 24 + noise[n // 3 % 8] + chroma)
    n += 1
"""
READ_CLOCK = """
(() => {
  const video = window.players[0].video, canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [640, 360];
  const context = canvas.getContext('2d');
  context.drawImage(video, 0, 0, 640, 360);
  const now = Date.now() & 0xffffff, row = context.getImageData(0, 12, 640, 1).data;
  let ms = 0;
  for (let bit = 0; bit < 24; bit++) if (row[4 * (24 * bit + 12)] > 128) ms |= 1 << bit;
  return ((now - ms) & 0xffffff) / 1000;
})()
"""


def latency(bed):
    """From the submission to the gateway, and from the capture to the display."""
    seconds, group, port = (40 if bed.is_full else 10), bed.group(), free_port()
    clock = subprocess.Popen([sys.executable, "-c", CLOCK], stdout=subprocess.PIPE)
    sender = bed.send(group, source="-", stdin=clock.stdout)
    receiver = bed.receive(group, "2400k", "--http", f"127.0.0.1:{port}")
    wait_for("video", lambda: sum(buffer.get("rung") is not None for buffer in receiver.buffers()) > 3)
    delays = []
    with browser.Browser(f"http://127.0.0.1:{port}/") as shown:
        wait_for("a picture", lambda: shown.evaluate("window.players?.every(p => p.isPlaying)"))
        time.sleep(10)
        for _ in range(seconds * 2):
            delays.append(shown.evaluate(READ_CLOCK))
            time.sleep(0.5)
        estimate = json.loads(shown.evaluate(STATS))[0]["delay"]
    clock.kill()
    receiver.stop()
    submitted, arrived = log_times(sender, r"GOP (\d+) is submitted"), log_times(receiver, r"GOP (\d+) is at the gateway")
    steps = sorted(arrived[gop] - submitted[gop] for gop in submitted.keys() & arrived.keys() if gop > 5)
    delays.sort()
    sender.stop()
    print(f"  submission to gateway: {len(steps)} buffers, median {steps[len(steps) // 2]:.2f} s, greatest {steps[-1]:.2f} s")
    print(f"  capture to display: median {delays[len(delays) // 2]:.2f} s, least {delays[0]:.2f}, greatest {delays[-1]:.2f} s; the page says {estimate:.1f} s")
    check(steps[-1] <= 1.3, f"a buffer was at the gateway after {steps[-1]:.2f} s")
    check(delays[int(len(delays) * 0.98)] <= 4.5, f"capture to display took {delays[-1]:.2f} s")


CLIPS = {
    "film-like (mandelbrot zoom with noise)": "mandelbrot=size=640x360:rate=25,noise=alls=6:allf=t",
    "generated (testsrc2 with noise)": "testsrc2=size=640x360:rate=25,noise=alls=6:allf=t",
}
PSNR_BOUNDS = (0.5, 1.5, 2.5)


def ffmpeg(*arguments):
    ended = subprocess.run(["ffmpeg", "-hide_banner", "-nostdin", "-y", *map(str, arguments)], capture_output=True, text=True)
    check(ended.returncode == 0, f"ffmpeg failed: {ended.stderr[-500:]}")
    return ended.stderr


def psnr(shown, clip, skip):
    """Luma PSNR in dB of a video against the clip from a picture on."""
    filters = (f"[0:v]scale=640:360:flags=bicubic,format=yuv420p,setpts=N/25/TB[a];[1:v]trim=start_frame={skip},setpts=N/25/TB,format=yuv420p[b];"
               "[a][b]psnr=shortest=1")
    return float(re.search(r"PSNR y:([\d.]+)", ffmpeg("-i", shown, "-i", clip, "-filter_complex", filters, "-f", "null", "-"))[1])


def quality(bed):
    """Luma PSNR of each receiver's video, beside a single encoding of as many bytes."""
    seconds, worst = (20 if bed.is_full else 8), []
    clips = {film.stem: ("-stream_loop", -1, "-i", film, "-an", "-vf", "scale=640:360,fps=25") for film in bed.films}
    clips |= {name: ("-f", "lavfi", "-i", source) for name, source in CLIPS.items()}
    for name, source in clips.items():
        clip, group = bed.folder / "clip.mkv", bed.group()
        ffmpeg(*source, "-t", seconds + 6, "-c:v", "ffv1", clip)
        outs = [bed.folder / f"out-{name[:4]}-{rate}" for rate in RATES]
        receivers = [bed.receive(group, rate, "--out", out) for rate, out in zip(RATES, outs)]
        sender = bed.send(group, source=str(clip))
        sender.process.wait(timeout=seconds + 60)
        time.sleep(1)
        total = 0
        for rung, (receiver, out) in enumerate(zip(receivers, outs)):
            receiver.stop()
            # Files are numbered by the buffers whose header came. The longest run with the receiver's own rung counts.
            headed = [buffer for buffer in receiver.buffers() if buffer["prefix"] > 0]
            run = best = []
            for at, buffer in enumerate(headed):
                follows = run and buffer["number"] == run[-1][1] + 1 and buffer.get("rung") == rung
                run = run + [(at, buffer["number"])] if follows else [(at, buffer["number"])] if buffer.get("rung") == rung else []
                best = max(best, run, key=len)
            best = best[:-1]
            check(len(best) >= 4, f"{name}: too few buffers in a row with rung {rung}: {ladder(receiver.buffers())}")
            joined = out / "joined.mp4"
            parts, bytes_ = [(out / "init-video-1.mp4").read_bytes()], 0
            for at, _ in best:
                part = (out / f"v{at:08}.m4s").read_bytes()
                parts.append(part)
                bytes_ += len(part)
            joined.write_bytes(b"".join(parts))
            total += bytes_ * 8 / len(best)
            got = psnr(joined, clip, best[0][1] * 25)
            single, rate = out / "single.mp4", int(total)
            # The better of two sizes: at low rates, small pictures are.
            references = []
            for size in ("640:360", "320:180"):
                ffmpeg("-ss", best[0][1], "-t", len(best), "-i", clip, "-an", "-vf", f"scale={size}", "-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "veryfast",
                       "-bf", 3, "-sc_threshold", 0, "-g", 25, "-keyint_min", 25, "-b:v", rate, "-maxrate", rate, "-bufsize", rate // 2, single)
                references.append(psnr(single, clip, best[0][1] * 25))
            reference = max(references)
            worst.append((reference - got, PSNR_BOUNDS[rung], f"{name}, rung {rung}"))
            print(f"  {name}, rung {rung}: {len(best)} s, {got:.2f} dB; one encoding of the prefix's {rate // 1000} kbit/s: {reference:.2f} dB; difference {reference - got:.2f}")
    for difference, bound, what in worst:
        check(difference <= bound, f"{what}: {difference:.2f} dB below a single encoding, at most {bound} dB may be lost")


def links(bed):
    """Links of 0.15, 0.9 and 3 Mbit/s, of which the last falls to 0.9 from 20 to 40 s."""
    with Network("hwvideo") as network:
        network.add_switch("mcast_snooping", "1", "mcast_querier", "1", "mcast_query_interval", "1000", "mcast_igmp_version", "3")
        network.plug("source", "10.88.0.1")
        hosts = {"slow": 0.15, "middle": 0.9, "fast": 3.0}

        def shape(host, mbits):
            # A queue of 200 ms, as access links have.
            limit = max(int(mbits * 1e6 / 8 * 0.2), 6000)
            network.run("bridge", "tc", "qdisc", "replace", "dev", host, "root", "tbf", "rate", f"{int(mbits * 1000)}kbit", "burst", "3000", "limit", str(limit))

        for number, (host, mbits) in enumerate(hosts.items(), start=2):
            network.plug(host, f"10.88.0.{number}")
            network.run("bridge", "bridge", "link", "set", "dev", host, "fastleave", "on")
            shape(host, mbits)
        time.sleep(2)
        inside = lambda host: ("ip", "netns", "exec", network.hosts[host])
        group = f"{GROUP}:7343"
        sender = bed.send(group, interface="eth0", prefix=inside("source"))
        receivers = {host: bed.receive(group, None, "--http", "127.0.0.1:8080", interface="eth0", prefix=inside(host)) for host in hosts}
        wait_for("the first pictures", lambda: all(any(b.get("rung") is not None for b in r.buffers()) for r in receivers.values()), 60)
        wait_for("the best rung of the fast receiver", lambda: sum(b.get("rung") == 2 for b in receivers["fast"].buffers()[-4:]) == 4, 60)
        with browser.Browser("http://127.0.0.1:8080/", prefix=inside("fast")) as shown:
            wait_for("a picture", lambda: shown.evaluate("window.players?.every(p => p.isPlaying)"))
            time.sleep(4)
            before, began = json.loads(shown.evaluate(STATS)), {host: len(r.buffers()) for host, r in receivers.items()}
            time.sleep(20)
            bed.shot(shown, "links-before")
            fall = len(receivers["fast"].buffers())
            shape("fast", 0.9)
            time.sleep(20)
            bed.shot(shown, "links-fallen")
            rise = len(receivers["fast"].buffers())
            shape("fast", 3.0)
            time.sleep(20)
            bed.shot(shown, "links-risen")
            after = json.loads(shown.evaluate(STATS))
        for receiver in [*receivers.values(), sender]:
            receiver.stop()
        for host, receiver in receivers.items():
            print(f"  {host}, {hosts[host]} Mbit/s: rungs {ladder(receiver.buffers()[began[host]:])}")
        buffers = receivers["fast"].buffers()
        down = next((at for at, buffer in enumerate(buffers[fall:rise]) if buffer.get("rung") == 1), None)
        up = next((at for at, buffer in enumerate(buffers[rise:]) if buffer.get("rung") == 2), None)
        since = played(after, before)[0]
        print(f"  fast: rung 1 in buffer {down} after the fall, rung 2 in buffer {up} after the rise; {since}; jumps {after[0]['jumps'] - before[0]['jumps']}")
        check(down is not None and down <= 3, f"rung 1 came in buffer {down} after the fall")
        check(up is not None and up <= 10, f"rung 2 came in buffer {up} after the rise")
        check(since["stalls"] == 0, f"the player stalled {since['stalls']} times")


def memory(bed):
    """A receiver for ten minutes."""
    group, minutes = bed.group(), 10
    bed.send(group)
    receiver = bed.receive(group, "2400k", "--http", f"127.0.0.1:{free_port()}")
    resident = lambda: int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{receiver.process.pid}/status").read_text())[1]) // 1024
    sizes = []
    for _ in range(minutes):
        time.sleep(60)
        sizes.append(resident())
        print(f"  {len(sizes)} min: {sizes[-1]} MB", flush=True)
    check(sizes[-1] <= sizes[1] * 1.1 + 2, f"memory grows: {sizes} MB")


PARTS = {part.__name__: part for part in (page, links, switching, restart, quality, join, latency, loss, memory)}
SHORT = ("page", "switching", "restart", "loss")
FULL = tuple(name for name in PARTS if name != "memory")


def main():
    words = sys.argv[2:]
    is_full = "--full" in words
    keep = Path(words[words.index("--keep") + 1]) if "--keep" in words else None
    films = [Path(films) for option, films in zip(words, words[1:]) if option == "--film"]
    wanted = [word for word in words if word in PARTS] or (FULL if is_full else SHORT)
    failed = []
    with tempfile.TemporaryDirectory(prefix="headwater-video-test-") as folder:
        for name in wanted:
            began = time.monotonic()
            inner = Path(folder) / name
            inner.mkdir()
            bed = Bed(sys.argv[1], inner, is_full, keep, films)
            try:
                PARTS[name](bed)
                print(f"video: {name}: ok, {time.monotonic() - began:.0f} s", flush=True)
            except (Failed, StopIteration, KeyError) as error:
                failed.append(name)
                print(f"video: {name}: FAILED: {error!r}", flush=True)
                for program in bed.programs:
                    lines = [line for line in program.err.read_text(errors="replace").splitlines() if " DEBUG " not in line]
                    print(f"  {program.name}: {lines[-3:]}")
            finally:
                bed.end()
    sys.exit(1 if failed else 0)


main()
