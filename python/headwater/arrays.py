"""NumPy arrays as buffers of a stream: the share of a buffer that arrives is a share of the array.

With `planes`, bytes go by significance: all most significant bytes first. A receiver of a part of the rate then
gets the whole array at less precision; missing bytes are 0.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import HeadwaterError
from ._streams import Buffer, Publisher, Subscriber

#: First byte of an array's buffer: elements as they are, or bytes by significance.
_PLAIN, _PLANES = b"\x00", b"\x01"
#: Longest header of an array in bytes.
_HEADER_BYTES_MAX = 4096


@dataclass(frozen=True)
class SharedArray:
    """An array as far as it came."""

    #: The array; what is missing is 0.
    array: npt.NDArray[Any]
    #: Part of the array's bytes that came, from 0 to 1.
    share: float


def pack(array: npt.ArrayLike, *, planes: bool = True) -> bytes:
    """The buffer of an array: a byte, NumPy's own header, then the elements.

    >>> unpack(Buffer(data := pack([1.5, 2.5]), len(data))).array
    array([1.5, 2.5])
    """
    values = np.ascontiguousarray(array)
    if values.dtype.hasobject:
        raise TypeError("an array of objects has no bytes to send")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(values.dtype), "fortran_order": False, "shape": values.shape}
    )
    if planes:
        return _PLANES + header.getvalue() + _by_significance(values).tobytes()
    return _PLAIN + header.getvalue() + values.tobytes()


def _by_significance(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Bytes of the elements, most significant first: one row for each byte of an element."""
    size = values.dtype.itemsize
    octets = values.reshape(-1).view(np.uint8).reshape(-1, size)
    return np.ascontiguousarray(octets[:, _order(values.dtype)].T)


def _order(dtype: np.dtype[Any]) -> npt.NDArray[np.intp]:
    """Positions of the bytes of an element, most significant first. Complex elements have two parts."""
    parts = 2 if dtype.kind == "c" else 1
    length = dtype.itemsize // parts
    is_little = dtype.newbyteorder("<") == dtype
    within = np.arange(length)[::-1] if is_little and dtype.names is None and dtype.kind not in "SUV" else np.arange(length)
    return np.concatenate([within[index : index + 1] + length * np.arange(parts) for index in range(length)])


def unpack(buffer: Buffer) -> SharedArray | None:
    """The array of a buffer; `None` if not even its header came."""
    data = buffer.data
    if len(data) < 1 or data[:1] not in (_PLAIN, _PLANES):
        return None
    reader = io.BytesIO(data[1 : 1 + _HEADER_BYTES_MAX])
    try:
        np.lib.format.read_magic(reader)
        shape, _, dtype = np.lib.format.read_array_header_1_0(reader, max_header_size=_HEADER_BYTES_MAX)
    except ValueError:
        return None
    begins = 1 + reader.tell()
    elements = int(np.prod(shape, dtype=object)) if shape else 1
    expected = elements * dtype.itemsize
    if buffer.length is None or dtype.hasobject or begins + expected != buffer.length:
        raise HeadwaterError("the buffer is no array of this package")
    octets = np.zeros(expected, np.uint8)
    came = np.frombuffer(data, np.uint8, offset=begins)
    octets[: len(came)] = came
    if data[:1] == _PLANES and elements:
        sorted_octets = octets.reshape(dtype.itemsize, elements)
        octets = np.empty((elements, dtype.itemsize), np.uint8)
        octets[:, _order(dtype)] = sorted_octets.T
    array = octets.reshape(-1).view(dtype).reshape(shape)
    return SharedArray(array, len(came) / expected if expected else 1.0)


def publish(publisher: Publisher, array: npt.ArrayLike, duration: float, *, planes: bool = True) -> None:
    """Sends an array in `duration` seconds. The publisher's mode is `prefix`."""
    publisher.send(pack(array, planes=planes), duration)


def subscribe(subscriber: Subscriber) -> Iterator[SharedArray]:
    """Arrays of a subscriber, as far as each came; arrays whose header is missing are left out."""
    for buffer in subscriber:
        if isinstance(buffer, Buffer) and (shared := unpack(buffer)) is not None:
            yield shared
