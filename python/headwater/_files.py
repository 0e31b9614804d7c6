"""Files: senders and receivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ._session import Event, Option, Path, Session, paths, words

#: Called with each event `session:progress`; an exception stops the session and reaches the caller.
OnProgress = Callable[[Event], object]


@dataclass(frozen=True)
class Sent:
    """Summary of a sender."""

    #: Packets sent.
    packets: int
    #: Bytes of UDP payload sent.
    bytes: int
    #: The event `session:ended`.
    ended: Event


@dataclass(frozen=True)
class ReceivedFile:
    """A file that is whole and verified."""

    #: Name below the folder.
    name: str
    #: Length in bytes.
    bytes: int
    #: Digest that the sender announced, in hexadecimal.
    digest: str | None
    #: Whether the file was there before, with the same content.
    present: bool


@dataclass(frozen=True)
class Received:
    """Summary of a receiver."""

    #: Files that are whole.
    files: list[ReceivedFile]
    #: Packets received.
    packets: int
    #: The event `session:ended`.
    ended: Event


class _FileSession(Session):
    def events(self) -> Iterator[Event]:
        """Events, in order, until the session ends; raises the session's error at the end."""
        for delivery in self._deliveries():
            if len(delivery) == 2 and delivery[0] == "events":
                yield from self._events(delivery[1])
        if not self._has_ended:
            yield from self._finish()

    def _run(self, on_progress: OnProgress | None) -> list[Event]:
        """Runs to the end; returns the events but progress."""
        kept = []
        try:
            for event in self.events():
                if event["event"] != "session:progress":
                    kept.append(event)
                elif on_progress is not None:
                    on_progress(event)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return kept


class Sender(_FileSession):
    """Sends files and folders until stopped, or as `duration`, `passes` or `until` say.

    Keyword arguments are the options of `headwater send`, with `_` for `-` (docs/reference/options.md).
    """

    def __init__(
        self,
        files: Path | Sequence[Path],
        *,
        group: str | None = None,
        interface: str | None = None,
        control: str | None = None,
        rate: str | int | None = None,
        max_rate: str | int | None = None,
        duration: float | str | None = None,
        **options: Option,
    ) -> None:
        named: dict[str, Option] = {
            "group": group,
            "interface": interface,
            "control": control,
            "rate": rate,
            "max_rate": max_rate,
            "duration": duration,
        }
        super().__init__("send", words(["send"], named | options, paths(files)))

    def wait(self, on_progress: OnProgress | None = None) -> Sent:
        """Waits until the session has ended."""
        return sent(self._run(on_progress))


class Receiver(_FileSession):
    """Receives the files of a session into a folder, verified.

    Keyword arguments are the options of `headwater receive`, with `_` for `-` (docs/reference/options.md).
    """

    def __init__(
        self,
        out: Path,
        *,
        group: str | None = None,
        interface: str | None = None,
        timeout: float | str | None = None,
        **options: Option,
    ) -> None:
        named: dict[str, Option] = {"out": out, "group": group, "interface": interface, "timeout": timeout}
        super().__init__("receive", words(["receive"], named | options))

    def wait(self, on_progress: OnProgress | None = None) -> Received:
        """Waits until every file is whole; raises if that cannot be."""
        return received(self._run(on_progress))


class _Fetcher(Receiver):
    """Receives the session that a URL describes."""

    def __init__(self, url: str, out: Path, **options: Option) -> None:
        Session.__init__(self, "receive", words(["get"], {"out": out} | options, [url]))


def sent(events: list[Event]) -> Sent:
    """Summary from the events of a sender."""
    ended = next(event for event in reversed(events) if event["event"] == "session:ended")
    return Sent(packets=ended["packets"], bytes=ended["bytes"], ended=ended)


def received(events: list[Event]) -> Received:
    """Summary from the events of a receiver."""
    ended = next(event for event in reversed(events) if event["event"] == "session:ended")
    whole = [event for event in events if event["event"] == "object:completed"]
    files = [ReceivedFile(event["file"], event["bytes"], event.get("digest"), event["present"]) for event in whole]
    return Received(files=files, packets=ended["packets"], ended=ended)


def send(files: Path | Sequence[Path], *, on_progress: OnProgress | None = None, **options: Option) -> Sent:
    """Sends files and folders; returns when the session has ended, as the options of :class:`Sender` say."""
    with Sender(files, **options) as sender:  # type: ignore[arg-type]
        return sender.wait(on_progress)


def receive(out: Path, *, on_progress: OnProgress | None = None, **options: Option) -> Received:
    """Receives a session's files into a folder; returns when every file is whole and verified.

    Options are those of :class:`Receiver`.
    """
    with Receiver(out, **options) as receiver:  # type: ignore[arg-type]
        return receiver.wait(on_progress)


def get(url: str, out: Path, *, on_progress: OnProgress | None = None, **options: Option) -> Received:
    """Fetches the files that a URL describes, by multicast, AMT, on request or by HTTP, as the network permits."""
    with _Fetcher(url, out, **options) as receiver:
        return receiver.wait(on_progress)
