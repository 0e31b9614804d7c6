"""Files between the package and the command, errors, and ends of sessions."""

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import headwater as hw
import pytest

FILE_BYTES = 10_000_000
COMMAND = Path(sys.executable).with_name("headwater")


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    file = tmp_path_factory.mktemp("content") / "file.bin"
    file.write_bytes(random.Random(7).randbytes(FILE_BYTES))
    return file


def options(made):
    return [word for name, value in made.items() for word in (f"--{name}", value)]


def test_a_file_comes_from_the_command(content, group, tmp_path):
    made = group()
    command = subprocess.Popen([COMMAND, "send", *options(made), "--rate", "80M", content], stderr=subprocess.DEVNULL)
    seen = []
    try:
        received = hw.receive(tmp_path, timeout=30, on_progress=seen.append, **made)
    finally:
        command.send_signal(signal.SIGINT)
        command.wait()
    assert (tmp_path / content.name).read_bytes() == content.read_bytes()
    (file,) = received.files
    assert (file.name, file.bytes, file.present) == (content.name, FILE_BYTES, False)
    assert len(seen) > 1 and seen[-1]["symbols"] <= seen[-1]["symbols_total"]


def test_a_file_goes_to_the_command(content, group, tmp_path):
    made = group()
    command = subprocess.Popen(
        [COMMAND, "receive", *options(made), "--timeout", "30s", "--out", tmp_path], stderr=subprocess.DEVNULL
    )
    with hw.Sender(content, rate="80M", **made) as sender:
        assert command.wait(timeout=60) == 0
        assert next(sender.events())["event"] == "session:started"
    assert (tmp_path / content.name).read_bytes() == content.read_bytes()
    assert sender.has_ended


def test_a_sender_ends_as_its_options_say(content, group):
    sent = hw.send(content, rate="200M", duration=0.5, **group())
    assert sent.bytes > 1_000_000 and sent.ended["outcome"] == "completed"


def test_wrong_arguments_are_named(content, group, tmp_path):
    with pytest.raises(hw.UsageError, match="--max-rat"):
        hw.send(content, max_rat="1M")
    with pytest.raises(hw.UsageError, match="--max-rate"):
        hw.send(content, max_rate="fast")
    with pytest.raises(hw.UsageError, match="duration"):
        hw.send(content, duration=-1)
    with pytest.raises(hw.UsageError, match="nothing-there"):
        hw.send(tmp_path / "nothing-there")
    with pytest.raises(hw.UsageError, match="mode"):
        hw.Publisher(mode="other", **group())
    assert issubclass(hw.UsageError, hw.HeadwaterError) and hw.UsageError.exit_code == 2


def test_failures_have_exceptions_of_their_own(content, group, tmp_path):
    with pytest.raises(hw.NetworkError, match="nowhere0"):
        hw.receive(tmp_path, interface="nowhere0")
    with pytest.raises(hw.NothingReceived, match="firewall"):
        hw.receive(tmp_path, timeout=0.3, **group())
    made = group()
    with hw.Sender(content, rate="20M", **made):
        other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"
        with pytest.raises(hw.Untrusted):
            hw.receive(tmp_path / "untrusted", timeout=2, trust=other, **made)
    made = group()
    with hw.Sender(content, rate="8M", duration=1, **made), pytest.raises(hw.Incomplete):
        hw.receive(tmp_path / "incomplete", timeout=3, repair="never", **made)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(hw.StoreError, match="file"):
        hw.receive(tmp_path / "file" / "folder", timeout=1, **group())


def test_a_callback_that_raises_stops_the_session(content, group):
    def fails(event):
        raise KeyError("of the application")

    before = threading.active_count()
    with pytest.raises(KeyError, match="of the application"):
        hw.send(content, rate="20M", on_progress=fails, **group())
    assert threading.active_count() == before
    assert has_sessions(0)


def has_sessions(number):
    """Whether this process comes to have so many threads of sessions.

    A thread has the name of the thread that started it at first: a session's helpers count for a moment.
    """

    def is_session(task):
        try:
            return Path(f"/proc/self/task/{task}/comm").read_text().startswith("headwater-ses")
        except OSError:
            # The thread has ended.
            return False

    def count():
        return sum(map(is_session, os.listdir("/proc/self/task")))

    until = time.monotonic() + 5
    while time.monotonic() < until:
        if count() == number:
            return True
        time.sleep(0.01)
    return False


def test_ends_that_are_garbage_close_their_sessions(content, group):
    sender = hw.Sender(content, rate="1M", **group())
    assert has_sessions(1)
    del sender
    gc.collect()
    assert has_sessions(0)


def test_waiting_leaves_the_interpreter_to_other_threads(content, group, tmp_path):
    counted = 0

    def receive():
        with pytest.raises(hw.NothingReceived):
            hw.receive(tmp_path, timeout=1, **group())

    thread = threading.Thread(target=receive)
    thread.start()
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        counted += 1
        time.sleep(0.001)
    thread.join()
    assert counted > 100


def test_an_interrupt_comes_within_a_moment(content, group):
    program = (
        "import headwater, signal, sys, time\n"
        # A shell's background job ignores interrupts, and its children do.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('begins', flush=True)\n"
        f"try: headwater.receive('/tmp', **{group()!r})\n"
        "except KeyboardInterrupt: print(time.time(), flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begins\n"
    time.sleep(1)
    sent = time.time()
    process.send_signal(signal.SIGINT)
    came = float(process.stdout.readline())
    assert process.wait(timeout=10) == 0
    # 0.1 s, and as much for a busy machine.
    assert came - sent < 0.5


@pytest.mark.parametrize("made", ["Sender('{file}', rate='1M', {options})", "Receiver('{out}', {options})"])
def test_interpreters_end_clean_with_open_ends(made, content, group, tmp_path):
    for _ in range(25):
        text = ", ".join(f"{name}={value!r}" for name, value in group().items())
        program = f"import headwater as hw, time\nend = hw.{made.format(file=content, out=tmp_path, options=text)}\ntime.sleep(0.05)\n"
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
        assert (run.returncode, run.stderr) == (0, "")


def test_calls_after_a_fork_are_errors(content, group):
    sender = hw.Sender(content, rate="1M", **group())
    child = os.fork()
    if child == 0:
        try:
            sender.stop()
        except RuntimeError:
            del sender
            gc.collect()
            os._exit(7)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert has_sessions(1)
    sender.close()


def test_a_url_brings_the_files(content, group, tmp_path):
    made = group()
    with hw.Sender(content, rate="80M", http="127.0.0.1:0", sdp=tmp_path / "session.sdp", **made):
        received = hw.receive(tmp_path / "out", sdp=tmp_path / "session.sdp", interface="lo", timeout=30)
    assert [file.name for file in received.files] == [content.name]
