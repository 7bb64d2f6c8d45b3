"""What is read of the lab's connections: msgpack and nothing else. What is pickled is refused before it is looked at.

dask.distributed unpickles parts of a message wherever one says so, before any of its handlers runs. Here a message is
plain data: whatever arrives can be wrong, but it cannot run anything. Imported by the processes that speak to a lab.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FunctionType
from typing import Any, NoReturn

import msgpack
from distributed.comm import tcp
from distributed.comm.core import CommClosedError
from distributed.protocol import pickle as pickling
from distributed.protocol.serialize import Serialized
from distributed.protocol.utils import msgpack_opts

# The largest result is what a spool may hold; what is larger was never asked for.
MOST_BYTES = 512 << 20
_TEXTS, _UNREAD = ("exception_text", "exception"), "an error of which only a pickled form was sent"


class Refused(CommClosedError):  # type: ignore[misc]
    """A message that this side does not read. The connection it came by is given up."""


def decoded(frames: Sequence[Any], deserialize: bool = True) -> Any:
    """Return the message of these frames: text, bytes, numbers, lists, mappings and sets.

    A hub (``deserialize=False``) hands on what agents and clients say to each other as it is, unread. Raises Refused
    for what is pickled or compressed, and for what is no message at all.
    """

    def read(found: dict[Any, Any]) -> Any:
        if "__Pickled__" in found or "__Enum__" in found:
            raise Refused("a message with a pickled part is not read")
        if "__Serialized__" in found:
            return apart(found["__Serialized__"])
        if "__Set__" in found:
            return set(found["as-list"])
        if "exception" in found:
            # Its text says it; the exception itself is pickled.
            text = next((found[key] for key in _TEXTS if isinstance(found.get(key), str)), _UNREAD)
            return {**found, "exception": text, "traceback": None}
        return found

    def apart(place: Any) -> Any:
        header = msgpack.loads(frames[place], use_list=False, **msgpack_opts) if type(place) is int else None
        if not isinstance(header, dict) or place < 1:
            raise Refused("a message with a part that is nowhere is not read")
        parts = frames[place + 1 : place + 1 + int(header["num-sub-frames"])]
        if any(header.get("compression") or ()):
            raise Refused("a message with a compressed part is not read")
        if not deserialize:
            return Serialized(header, parts)
        if header.get("serializer") != "msgpack":
            # A result or an exception that is pickled stays what nobody has read.
            return None
        return msgpack.loads(b"".join(parts), use_list=False, **msgpack_opts)

    try:
        return msgpack.loads(frames[0], object_hook=read, use_list=False, **msgpack_opts)
    except Refused:
        raise
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, msgpack.UnpackException) as error:
        raise Refused(f"what came is no message: {type(error).__name__}") from None


async def _decoded(
    frames: Sequence[Any], deserialize: bool = True, deserializers: Any = None, allow_offload: bool = True
) -> Any:
    return decoded(frames, deserialize)


async def _bounded(stream: Any, count: int) -> memoryview:
    if count > MOST_BYTES:
        raise Refused(f"a message of {count} bytes is not read (at most {MOST_BYTES})")
    found: memoryview = await tcp.read_bytes_rw(stream, count)
    return found


class PlainTLS(tcp.TLS):  # type: ignore[misc]
    """A connection of dask.distributed over TLS that reads plain messages only."""

    # distributed's own, with two of the functions that it calls exchanged: framing is a matter of its release.
    _read = FunctionType(
        tcp.TCP.read.__code__,
        {**vars(tcp), "from_frames": _decoded, "read_bytes_rw": _bounded},
        "read",
        tcp.TCP.read.__defaults__,
    )

    async def read(self, deserializers: Any = None) -> Any:
        """Return the next message. Raises CommClosedError where there is none, or one that is not read."""
        try:
            return await self._read(deserializers)
        except Refused:
            self.abort()
            raise


def refuse_pickles() -> None:
    """From now on unpickle nothing in this process by way of dask.distributed, wherever it comes from."""
    theirs = pickling.loads
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "distributed" and getattr(module, "loads", None) is theirs:
            module.loads = _refuse  # type: ignore[attr-defined]


def _refuse(*_: object, **__: object) -> NoReturn:
    raise Refused("nothing is unpickled here")
