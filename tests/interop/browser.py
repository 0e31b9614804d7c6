"""A headless Chromium, driven by its DevTools protocol over two pipes."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import queue

NAMES = ("chromium", "chromium-browser", "google-chrome")


def program():
    """Path of the browser, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A browser with one page. Use as a context manager."""

    def __init__(self, url, width=1280, height=800, prefix=()):
        self.folder = tempfile.mkdtemp(prefix="headwater-browser-")
        to_browser, from_us = os.pipe()
        from_browser, to_us = os.pipe()
        arguments = [
            *prefix, program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio",
            "--remote-debugging-pipe", "--autoplay-policy=no-user-gesture-required", "--no-first-run",
            "--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-extensions",
            f"--user-data-dir={self.folder}", f"--window-size={width},{height}", "about:blank",
        ]

        def hand_over():
            # The protocol takes the descriptors 3 and 4.
            os.dup2(to_browser, 203)
            os.dup2(to_us, 204)
            os.dup2(203, 3)
            os.dup2(204, 4)

        self.process = subprocess.Popen(arguments, preexec_fn=hand_over, close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(to_us)
        self.out, self.into = os.fdopen(from_us, "wb", 0), os.fdopen(from_browser, "rb", 0)
        self.answers, self.number, self.logs = queue.Queue(), 0, []
        threading.Thread(target=self.read, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Page.enable")
        self.call("Page.navigate", url=url)

    session = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self):
        rest = b""
        while piece := self.into.read(1 << 16):
            *messages, rest = (rest + piece).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers.put(message)
                elif message.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                    self.logs.append(message["params"])

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.out.write(json.dumps(message).encode() + b"\0")
        while (answer := self.answers.get(timeout=60))["id"] != self.number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression):
        """Value of an expression, awaited if it is a promise."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
