"""Streams: buffers of which each receiver gets the beginning that its path carries, and messages in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._errors import UsageError
from ._session import Mode, Option, Session, words

if TYPE_CHECKING:
    from typing_extensions import Buffer as Bytes

    from ._native import Delivery


@dataclass(frozen=True)
class Buffer:
    """The beginning of a buffer, as far as the path carried it."""

    #: Bytes from the first on.
    data: bytes
    #: Length of the whole buffer in bytes; `None` if nothing of the buffer came.
    length: int | None

    @property
    def share(self) -> float:
        """Part of the buffer that came, from 0 to 1."""
        if self.length is None:
            return 0.0
        return len(self.data) / self.length if self.length else 1.0


@dataclass(frozen=True)
class Gap:
    """Messages that are lost for good, by the number of their packets."""

    packets: int


def publisher_words(mode: Mode, options: dict[str, Option]) -> tuple[str, list[str]]:
    """Kind and words of a publisher's session."""
    if mode == "prefix":
        return "send-stream", words(["send"], options, ["buffers"])
    if mode == "messages":
        return "send-messages", words(["pgm", "send"], options)
    raise UsageError(f"mode: {mode!r} is neither 'prefix' nor 'messages'")


def subscriber_words(mode: Mode, options: dict[str, Option]) -> tuple[str, list[str]]:
    """Kind and words of a subscriber's session."""
    if mode == "prefix":
        return "receive-stream", words(["receive", "--out=."], options)
    if mode == "messages":
        return "receive-messages", words(["pgm", "receive"], options)
    raise UsageError(f"mode: {mode!r} is neither 'prefix' nor 'messages'")


def item(delivery: Delivery) -> Buffer | Gap | bytes | None:
    """What a subscriber's application gets of a delivery; `None` for events."""
    if len(delivery) == 3:
        return Buffer(delivery[1], delivery[2])
    if len(delivery) == 2 and delivery[0] == "message":
        return delivery[1]
    if len(delivery) == 2 and delivery[0] == "gap":
        return Gap(delivery[1])
    return None


class Publisher(Session):
    """Sends buffers (`mode="prefix"`) or messages (`mode="messages"`, over PGM).

    A buffer begins with its most important byte; a receiver of x % of the rate gets the first x % of it.
    Messages arrive whole and in order. Keyword arguments are the options of `headwater send`, or of
    `headwater pgm send`.
    """

    def __init__(self, *, mode: Mode = "prefix", **options: Option) -> None:
        self.mode = mode
        super().__init__(*publisher_words(mode, options))

    def send(self, data: Bytes, duration: float | None = None) -> None:
        """Hands over a buffer, to be sent in `duration` seconds, or a message. Waits while another one waits."""
        if (duration is None) == (self.mode == "prefix"):
            raise UsageError("duration: a buffer has a time in seconds, and a message has none")
        self._native.send(data, duration)

    def finish(self) -> None:
        """Waits until everything is sent, and ends the session."""
        self._native.finish()
        for delivery in self._deliveries():
            if len(delivery) == 2 and delivery[0] == "events":
                self._events(delivery[1])
        if not self._has_ended:
            self._finish()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and not self._has_ended:
            self.finish()
        else:
            super().__exit__(kind, *rest)


class Subscriber(Session):
    """Receives what a :class:`Publisher` of the same mode sends: an iterator of :class:`Buffer`, or of bytes
    and :class:`Gap`.

    Keyword arguments are the options of `headwater receive`, or of `headwater pgm receive`.
    """

    def __init__(self, *, mode: Mode = "prefix", **options: Option) -> None:
        self.mode = mode
        super().__init__(*subscriber_words(mode, options))

    def __iter__(self) -> Iterator[Buffer | Gap | bytes]:
        for delivery in self._deliveries():
            if len(delivery) == 2 and delivery[0] == "events":
                self._events(delivery[1])
            elif (taken := item(delivery)) is not None:
                yield taken
        if not self._has_ended:
            self._finish()
