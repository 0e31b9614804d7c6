"""Streams, messages and arrays."""

import threading

import headwater as hw
import numpy as np
import pytest
from headwater import arrays


def test_messages_come_in_order(group):
    made = group()
    with hw.Subscriber(mode="messages", timeout=20, **made) as subscriber, hw.Publisher(mode="messages", **made) as publisher:
        for number in range(1000):
            publisher.send(f"message {number}".encode())
        # The publisher waits for requests after its last message.
        ender = threading.Thread(target=publisher.finish)
        ender.start()
        came = list(subscriber)
        ender.join()
    assert came == [f"message {number}".encode() for number in range(1000)]


def test_buffers_come_whole_on_an_empty_path(group):
    made = group()
    with hw.Subscriber(timeout=20, **made) as subscriber, hw.Publisher(max_rate="20M", demand="off", **made) as publisher:
        whole = buffers_until(subscriber, publisher, lambda buffer: buffer.share == 1)
    assert whole.data == bytes(range(256)) * 400


def buffers_until(subscriber, publisher, holds):
    """Publishes buffers of 0.1 s until one that came is as wanted."""
    over = threading.Event()

    def publish():
        while not over.is_set():
            publisher.send(bytearray(range(256)) * 400, 0.1)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        return next(buffer for buffer in subscriber if holds(buffer))
    finally:
        over.set()
        thread.join()


def test_data_and_durations_are_checked(group):
    with hw.Publisher(**group()) as publisher, pytest.raises(hw.UsageError, match="duration"):
        publisher.send(b"buffer")
    with hw.Publisher(mode="messages", linger="350ms", **group()) as publisher:
        with pytest.raises(hw.UsageError, match="duration"):
            publisher.send(b"message", 1.0)
        with pytest.raises(TypeError):
            publisher.send("text")


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2", "u1", "<c16", "?", "<M8[s]", "S3", [("a", "<f4"), ("b", "u1")]])
@pytest.mark.parametrize("planes", [False, True])
def test_arrays_of_all_kinds_come_back(dtype, planes):
    values = np.random.default_rng(7).integers(0, 100, (3, 5)).astype("f8")
    array = np.zeros((3, 5), dtype) if isinstance(dtype, list) else values.astype(dtype)
    for shape in ((3, 5), (15,), (1, 15, 1)):
        data = arrays.pack(array.reshape(shape), planes=planes)
        shared = arrays.unpack(hw.Buffer(data, len(data)))
        assert shared.share == 1 and shared.array.dtype == array.dtype
        np.testing.assert_array_equal(shared.array, array.reshape(shape))
    for empty in (np.zeros((0, 4), "f4"), np.float32(2.5)):
        data = arrays.pack(empty, planes=planes)
        np.testing.assert_array_equal(arrays.unpack(hw.Buffer(data, len(data))).array, empty)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8"])
def test_half_of_an_array_has_seven_bits(dtype):
    values = np.random.default_rng(7).normal(size=100_000).astype(dtype)
    data = arrays.pack(values)
    # The header is a small part.
    half = arrays.unpack(hw.Buffer(data[: len(data) // 2 + 200], len(data)))
    assert half.share == pytest.approx(0.5, abs=0.01)
    assert np.all(np.abs(half.array - values) <= np.abs(values) * 2.0**-7)


def test_foreign_buffers_are_no_arrays():
    data = arrays.pack(np.arange(1000))
    assert arrays.unpack(hw.Buffer(b"", None)) is None
    assert arrays.unpack(hw.Buffer(b"other", 100)) is None
    assert arrays.unpack(hw.Buffer(data[:20], len(data))) is None
    with pytest.raises(hw.HeadwaterError):
        arrays.unpack(hw.Buffer(data, len(data) + 1))
    claims = data[:1] + b"\x93NUMPY\x01\x00\x76\x00{'descr': '|O', 'fortran_order': False, 'shape': (99999999999,), }".ljust(128)
    with pytest.raises(hw.HeadwaterError):
        arrays.unpack(hw.Buffer(claims, len(claims)))
    with pytest.raises(TypeError):
        arrays.pack([object()])


def test_arrays_over_a_stream(group):
    made = group()
    sent = np.random.default_rng(7).normal(size=(100, 100)).astype("f4")
    with hw.Subscriber(timeout=20, **made) as subscriber, hw.Publisher(max_rate="20M", demand="off", **made) as publisher:
        over = threading.Event()

        def publish():
            while not over.is_set():
                arrays.publish(publisher, sent, 0.1)

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            came = next(shared for shared in arrays.subscribe(subscriber) if shared.share == 1)
        finally:
            over.set()
            thread.join()
    np.testing.assert_array_equal(came.array, sent)
