"""Exceptions: one for each exit code of the command."""

from __future__ import annotations


class HeadwaterError(Exception):
    """A session or a call failed; the message says what to do."""

    #: Exit code of the command for this failure.
    exit_code = 1


class UsageError(HeadwaterError):
    """An argument is wrong; the message names it."""

    exit_code = 2


class NetworkError(HeadwaterError):
    """No such interface, no route, address in use."""

    exit_code = 3


class NothingReceived(HeadwaterError):
    """Nothing came before the timeout."""

    exit_code = 4


class Incomplete(HeadwaterError):
    """The session ended or fell silent before files or expected receivers were done."""

    exit_code = 5


class VerificationFailed(HeadwaterError):
    """A file differs from the sender's digest and was discarded."""

    exit_code = 6


class StoreError(HeadwaterError):
    """A file could not be read or written."""

    exit_code = 7


class Untrusted(HeadwaterError):
    """Packets came, but none of a trusted sender."""

    exit_code = 8


class LeftOut(HeadwaterError):
    """The sender left out files that changed; all other files were sent."""

    exit_code = 9


class Unopened(HeadwaterError):
    """Content came that no key of the group decrypts."""

    exit_code = 10


class Interrupted(HeadwaterError):
    """The session was stopped before every file was whole."""

    exit_code = 130


_BY_CODE = {error.exit_code: error for error in HeadwaterError.__subclasses__()}


def of_exit_code(code: int, message: str) -> HeadwaterError:
    """Makes the exception of an exit code."""
    return _BY_CODE.get(code, HeadwaterError)(message)
