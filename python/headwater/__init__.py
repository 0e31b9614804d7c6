"""Multicast of files, streams and messages, at a fair rate for each receiver.

Each call takes the options of the command of the same name as keyword arguments. Sessions run on threads of
their own; waiting calls release the interpreter's lock and answer Ctrl-C within 0.1 s.
"""

from . import sweep
from ._errors import (
    HeadwaterError,
    Incomplete,
    Interrupted,
    LeftOut,
    NetworkError,
    NothingReceived,
    StoreError,
    Unopened,
    Untrusted,
    UsageError,
    VerificationFailed,
)
from ._files import Received, ReceivedFile, Receiver, Sender, Sent, get, receive, send
from ._native import __version__
from ._session import Event
from ._simulate import Results, simulate
from ._streams import Buffer, Gap, Publisher, Subscriber

__all__ = [
    "Buffer",
    "Event",
    "Gap",
    "HeadwaterError",
    "Incomplete",
    "Interrupted",
    "LeftOut",
    "NetworkError",
    "NothingReceived",
    "Publisher",
    "Received",
    "ReceivedFile",
    "Receiver",
    "Results",
    "Sender",
    "Sent",
    "StoreError",
    "Subscriber",
    "Unopened",
    "Untrusted",
    "UsageError",
    "VerificationFailed",
    "__version__",
    "get",
    "receive",
    "send",
    "simulate",
    "sweep",
]
