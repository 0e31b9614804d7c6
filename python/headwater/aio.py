"""The same ends for asyncio. Nothing blocks the event loop but the opening of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from . import _files, _streams
from ._files import OnProgress, Received, Sent
from ._session import Event, Mode, Option, Path, Session, is_end
from ._streams import Buffer, Gap

if TYPE_CHECKING:
    from typing_extensions import Buffer as Bytes

    from ._native import Delivery

S = TypeVar("S", bound=Session)
F = TypeVar("F", bound=_files._FileSession)

__all__ = ["Publisher", "Receiver", "Sender", "Subscriber", "receive", "send"]


class _AsyncSession(Generic[S]):
    """A session whose deliveries are awaited."""

    def __init__(self, session: S) -> None:
        self._session = session

    @property
    def progress(self) -> Event:
        """The latest event `session:progress`; empty before the first."""
        return self._session.progress

    def stop(self) -> None:
        """Asks the session to end, and returns at once."""
        self._session.stop()

    async def close(self) -> None:
        """Stops the session and waits for its end."""
        await asyncio.to_thread(self._session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):
            # Cancelled: the thread ends by itself.
            self._session._leave()
        else:
            await self.close()

    async def _deliveries(self) -> AsyncIterator[Delivery]:
        native = self._session._native
        while not self._session.has_ended:
            delivery = native.poll()
            if delivery is None:
                await self._readable(native.fileno())
            elif is_end(delivery):
                return
            else:
                yield delivery

    async def _readable(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def on_readable() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(descriptor, on_readable)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)

    async def _finish(self) -> list[Event]:
        if self._session.has_ended:
            return []
        return await asyncio.to_thread(self._session._finish)


class _AsyncFiles(_AsyncSession[F]):
    async def events(self) -> AsyncIterator[Event]:
        """Events, in order, until the session ends; raises the session's error at the end."""
        async for delivery in self._deliveries():
            if len(delivery) == 2 and delivery[0] == "events":
                for event in self._session._events(delivery[1]):
                    yield event
        for event in await self._finish():
            yield event

    async def _run(self, on_progress: OnProgress | None) -> list[Event]:
        kept = []
        async for event in self.events():
            if event["event"] != "session:progress":
                kept.append(event)
            elif on_progress is not None:
                on_progress(event)
        return kept


class Sender(_AsyncFiles[_files.Sender]):
    """As :class:`headwater.Sender`."""

    def __init__(self, files: Path | Sequence[Path], **options: Option) -> None:
        super().__init__(_files.Sender(files, **options))  # type: ignore[arg-type]

    async def wait(self, on_progress: OnProgress | None = None) -> Sent:
        """Waits until the session has ended."""
        return _files.sent(await self._run(on_progress))


class Receiver(_AsyncFiles[_files.Receiver]):
    """As :class:`headwater.Receiver`."""

    def __init__(self, out: Path, **options: Option) -> None:
        super().__init__(_files.Receiver(out, **options))  # type: ignore[arg-type]

    async def wait(self, on_progress: OnProgress | None = None) -> Received:
        """Waits until every file is whole; raises if that cannot be."""
        return _files.received(await self._run(on_progress))


class Publisher(_AsyncSession[_streams.Publisher]):
    """As :class:`headwater.Publisher`."""

    def __init__(self, *, mode: Mode = "prefix", **options: Option) -> None:
        super().__init__(_streams.Publisher(mode=mode, **options))

    async def send(self, data: Bytes, duration: float | None = None) -> None:
        """Hands over a buffer or a message; waits while another one waits."""
        await asyncio.to_thread(self._session.send, data, duration)

    async def finish(self) -> None:
        """Waits until everything is sent, and ends the session."""
        await asyncio.to_thread(self._session.finish)

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and not self._session.has_ended:
            await self.finish()
        else:
            await super().__aexit__(kind, *rest)


class Subscriber(_AsyncSession[_streams.Subscriber]):
    """As :class:`headwater.Subscriber`: an asynchronous iterator."""

    def __init__(self, *, mode: Mode = "prefix", **options: Option) -> None:
        super().__init__(_streams.Subscriber(mode=mode, **options))

    async def __aiter__(self) -> AsyncIterator[Buffer | Gap | bytes]:
        async for delivery in self._deliveries():
            if len(delivery) == 2 and delivery[0] == "events":
                self._session._events(delivery[1])
            elif (taken := _streams.item(delivery)) is not None:
                yield taken
        await self._finish()


async def send(files: Path | Sequence[Path], *, on_progress: OnProgress | None = None, **options: Option) -> Sent:
    """As :func:`headwater.send`."""
    async with Sender(files, **options) as sender:
        return await sender.wait(on_progress)


async def receive(out: Path, *, on_progress: OnProgress | None = None, **options: Option) -> Received:
    """As :func:`headwater.receive`."""
    async with Receiver(out, **options) as receiver:
        return await receiver.wait(on_progress)
