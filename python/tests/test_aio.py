"""The asynchronous ends."""

import asyncio
import random
import time

import headwater as hw
import pytest
from headwater import aio


async def test_files_and_other_tasks_at_once(group, tmp_path):
    made = group()
    file = tmp_path / "file.bin"
    file.write_bytes(random.Random(7).randbytes(2_000_000))
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    async with aio.Sender(file, rate="40M", **made):
        received = await aio.receive(tmp_path / "out", timeout=20, **made)
    ticking.cancel()
    assert (tmp_path / "out/file.bin").read_bytes() == file.read_bytes()
    assert len(received.files) == 1 and ticks > 10


async def test_messages_come_in_order(group):
    made = group()
    async with aio.Subscriber(mode="messages", timeout=20, **made) as subscriber:
        async with aio.Publisher(mode="messages", **made) as publisher:
            for number in range(100):
                await publisher.send(b"%d" % number)
            ending = asyncio.create_task(publisher.finish())
            came = [message async for message in subscriber]
            await ending
    assert came == [b"%d" % number for number in range(100)]


async def test_a_cancelled_task_stops_its_session(group, tmp_path):
    task = asyncio.create_task(aio.receive(tmp_path, **group()))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 0.5


async def test_failures_are_raised(group, tmp_path):
    with pytest.raises(hw.NothingReceived):
        await aio.receive(tmp_path, timeout=0.3, **group())
