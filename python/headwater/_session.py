"""What sessions of all kinds share: words of the command line, events, ends."""

from __future__ import annotations

import atexit
import json
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeGuard

from . import _native
from ._errors import HeadwaterError, UsageError

if TYPE_CHECKING:
    from ._native import Delivery

#: An event, with the fields that docs/reference/events.md lists.
Event = dict[str, Any]
Path = str | os.PathLike[str]
#: Value of an option: `True` for an option without a value, a sequence for an option that may be repeated.
Option = bool | str | int | float | os.PathLike[str] | Sequence[str] | None

# Options whose numbers are seconds.
_SECONDS = {"duration", "timeout", "linger", "rtt", "silence"}
# Names that are reserved or that the command spells otherwise.
_NAMES = {"control": "congestion-control"}

_open: weakref.WeakSet[Session] = weakref.WeakSet()
# Sessions that end by themselves after an interrupt.
_leaving: set[_native.Session] = set()


def words(command: Sequence[str], options: Mapping[str, Option], positional: Sequence[Path] = ()) -> list[str]:
    """Words of a command from keyword arguments.

    >>> words(["send"], {"max_rate": "20M", "no_sign": True, "timeout": 2.5, "tsi": None})
    ['send', '--max-rate=20M', '--no-sign', '--timeout=2.5s']
    """
    made = list(command)
    for name, value in options.items():
        option = _NAMES.get(name, name.replace("_", "-"))
        if value is None or value is False:
            continue
        if value is True:
            made.append(f"--{option}")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            made.extend(f"--{option}={_text(option, item)}" for item in value)
        else:
            made.append(f"--{option}={_text(option, value)}")
    if positional:
        made.append("--")
        made.extend(_text("path", path) for path in positional)
    return made


def _text(option: str, value: object) -> str:
    if option in _SECONDS and isinstance(value, int | float):
        if not value > 0:
            raise UsageError(f"{option}: {value} is no time in seconds")
        return f"{value:g}s" if value == round(value, 3) else f"{round(value * 1e9)}ns"
    if isinstance(value, str | int | float | os.PathLike):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    raise UsageError(f"{option}: {value!r} is no text, number or path")


def paths(given: Path | Sequence[Path]) -> list[Path]:
    """One path or several, as a list."""
    return [given] if isinstance(given, str | os.PathLike) else list(given)


def is_end(delivery: Delivery) -> TypeGuard[tuple[()]]:
    """Whether a delivery says that the session has ended."""
    return not delivery


class Session:
    """A session that runs on a thread of its own. A context manager that closes the session."""

    def __init__(self, kind: str, made: list[str]) -> None:
        self._native = _native.Session(kind, made)
        self._progress: Event = {}
        self._has_ended = False
        self._process = os.getpid()
        _open.add(self)

    @property
    def progress(self) -> Event:
        """The latest event `session:progress`; empty before the first."""
        return self._progress

    @property
    def has_ended(self) -> bool:
        """Whether the session has ended and its end was taken."""
        return self._has_ended

    def fileno(self) -> int:
        """Descriptor that becomes readable when there is something to take, for `select` and event loops."""
        return self._native.fileno()

    def stop(self) -> None:
        """Asks the session to end, and returns at once."""
        self._native.stop()

    def close(self) -> None:
        """Stops the session and waits for its end; takes at most about two seconds."""
        if self._has_ended:
            return
        self._native.stop()
        try:
            self._finish()
        except HeadwaterError:
            # Stopped by the caller: nothing is expected to be whole.
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit):
            self._leave()
        else:
            self.close()

    def _leave(self) -> None:
        """Stops the session without a wait."""
        if not self._has_ended:
            self._has_ended = True
            self._native.stop()
            _leaving.add(self._native)
            _open.discard(self)

    def _finish(self) -> list[Event]:
        """Takes the end; raises the session's error."""
        self._has_ended = True
        _open.discard(self)
        return self._events(self._native.end() or "")

    def _events(self, lines: str) -> list[Event]:
        events: list[Event] = [json.loads(line) for line in lines.splitlines()]
        for event in events:
            if event["event"] in ("session:progress", "session:ended"):
                self._progress = event
        return events

    def _deliveries(self) -> Iterator[Delivery]:
        """Deliveries until the end of the session."""
        while not self._has_ended:
            delivery = self._native.next(None)
            if delivery is None:
                continue
            if is_end(delivery):
                return
            yield delivery


def _stop_all() -> None:
    """Stops what is open when the interpreter ends."""
    for session in list(_open):
        if session._process == os.getpid():
            session._native.stop()


atexit.register(_stop_all)

Mode = Literal["prefix", "messages"]
