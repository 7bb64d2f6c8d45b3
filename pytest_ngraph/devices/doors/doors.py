"""The doors of hub and agents: who may wait before them, for how long, and who is admitted.

Anybody who can reach a port can open connections and say nothing. Until a connection has shown a certificate and has
said who it is, it is one of few, has ten seconds, and makes room for the next. What goes wrong with it is logged
seldom. Imported by the processes that speak to a lab.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

from distributed.comm import tcp
from distributed.comm.core import CommClosedError, FatalCommClosedError
from distributed.comm.registry import backends
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.tcpserver import TCPServer

from pytest_ngraph.devices.doors.frames import PlainTLS, refuse_pickles
from pytest_ngraph.devices.logs import seldom
from pytest_ngraph.devices.trust.trust import Trust

# Until a connection has shown its certificate and said who it is.
HANDSHAKE_SECONDS = 10.0
# Connections that have not: of one address, and of all; a quarter of the open files that a process may have.
MOST_WAITING_OF_ADDRESS, MOST_WAITING = 256, 1024
# Connections of one certificate; a quarter of the files, too. A run holds two or three for each device, an agent three.
MOST_OF_CERTIFICATE = 1024
# Accepted in one turn of the loop; tornado would take 128, before it is seen that too many wait.
_MOST_AT_ONCE = 8
_NO_FILES_LEFT = (errno.EMFILE, errno.ENFILE)
# In a user's process "tls" stays what it is.
SCHEME = "ngraph"


def raise_file_limit() -> int:
    """Raise this process's limit of open files as far as it may. Return the limit before."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return before


def file_limit() -> int:
    """Return how many files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Door(socket.socket):
    """A socket that listens, and closes what it cannot keep: with no file left, one is kept in reserve for that.

    Else the connection stays where it is, and the process is asked to accept it again and again.
    """

    _reserve, _burst = -1, 0

    @classmethod
    def of(cls, plain: socket.socket) -> Door:
        """Take a listening socket over."""
        door = cls(fileno=plain.detach())
        door.setblocking(False)
        door._keep_reserve()
        return door

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept as ``socket.accept`` does. Raises ConnectionAbortedError for a connection that was closed at once."""
        if self._burst >= _MOST_AT_ONCE:
            raise BlockingIOError(errno.EAGAIN, "the others of this turn are looked at first")
        try:
            found = super().accept()
        except OSError as error:
            if error.errno not in _NO_FILES_LEFT:
                raise
        else:
            if not self._burst:
                asyncio.get_running_loop().call_soon(self._next_turn)
            self._burst += 1
            return found
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1
            try:
                super().accept()[0].close()
            except OSError as error:
                if error.errno not in _NO_FILES_LEFT:
                    raise
        else:
            # Nothing to close: without a pause this would be a loop.
            time.sleep(0.01)
        self._keep_reserve()
        seldom.warning("no file is left to be opened: connections are closed as they come")
        raise ConnectionAbortedError(errno.ECONNABORTED, "no file is left for it")

    def _next_turn(self) -> None:
        self._burst = 0

    def _keep_reserve(self) -> None:
        with contextlib.suppress(OSError):
            self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close it, and its reserve."""
        super().close()
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1


class Waiting:
    """Connections that have not said who they are, the oldest first. Where there are too many, it is the oldest to go.

    So somebody who floods a door, even from the address of a user, does not keep that user out, whose handshake is
    over within milliseconds.
    """

    def __init__(self, most_of_address: int, most: int, files: Callable[[], int] = file_limit) -> None:
        self._most_of_address, self._most, self._files = most_of_address, most, files
        self._streams: dict[Any, tuple[str, asyncio.TimerHandle]] = {}

    def add(self, stream: Any, address: str) -> None:
        """Begin to wait for a connection."""
        timer = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._late, stream)
        self._streams[stream] = (address, timer)
        many = Counter(of for of, _ in self._streams.values())
        files = self._files() // 4
        if many[address] > min(self._most_of_address, files // 2):
            self._drop(next(each for each, (of, _) in self._streams.items() if of == address), "too many wait")
        elif len(self._streams) > min(self._most, files):
            crowd = many.most_common(1)[0][0]
            self._drop(next(each for each, (of, _) in self._streams.items() if of == crowd), "too many wait")

    def done(self, stream: Any) -> None:
        """End to wait for it, whatever became of it."""
        _, timer = self._streams.pop(stream, (None, None))
        if timer is not None:
            timer.cancel()

    def _late(self, stream: Any) -> None:
        self._drop(stream, f"{HANDSHAKE_SECONDS:g} s without a whole handshake")

    def _drop(self, stream: Any, why: str) -> None:
        address, _ = self._streams[stream]
        self.done(stream)
        stream.close()
        seldom.warning("connections are dropped: %s (such as one of %s)", why, address)


class LabListener(tcp.TLSListener):  # type: ignore[misc]
    """Listens as distributed does over TLS, with bounds on who waits, and with the lab's own word on certificates."""

    comm_class = PlainTLS

    def __init__(self, *arguments: Any, trust: Trust, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._trust = trust
        self._waiting = Waiting(MOST_WAITING_OF_ADDRESS, MOST_WAITING)
        self._inside: WeakSet[Any] = WeakSet()

    async def start(self) -> None:
        """Begin to listen."""
        server = TCPServer(max_buffer_size=tcp.MAX_BUFFER_SIZE, **self.server_args)
        server.handle_stream = self._handle_stream  # type: ignore[method-assign]
        server.add_sockets(Door.of(each) for each in bind_sockets(self.port, address=self.ip, backlog=1024))
        self.tcp_server = server
        self.get_host_port()

    async def _handle_stream(self, stream: Any, address: Any) -> None:
        self._waiting.add(stream, str(address[0]))
        try:
            await super()._handle_stream(stream, address)
        except (OSError, StreamClosedError):
            # It went while it was looked at.
            stream.close()
        finally:
            self._waiting.done(stream)

    async def _prepare_stream(self, stream: Any, address: str) -> Any:
        try:
            await stream.wait_for_handshake()
        except (OSError, StreamClosedError) as error:
            why = getattr(error, "real_error", None) or error
            seldom.warning("TLS handshake failed: %s (such as with %s)", why, address)
            return None
        return stream

    async def on_connection(self, comm: Any, handshake_overrides: dict[str, Any] | None = None) -> None:
        """Admit a connection, once its certificate is valid and it has said what it speaks."""
        stream = comm.stream
        try:
            refusal = self._refusal(comm)
            if refusal:
                seldom.warning("a connection is refused: %s", refusal)
                comm.abort()
                raise CommClosedError(refusal)
            await super().on_connection(comm, handshake_overrides)
            self._inside.add(comm)
        finally:
            self._waiting.done(stream)

    def _refusal(self, comm: Any) -> str | None:
        certificate = comm.extra_info.get("peercert") or {}
        serial, most = certificate.get("serialNumber"), min(MOST_OF_CERTIFICATE, file_limit() // 4)
        if sum(each.extra_info["peercert"].get("serialNumber") == serial for each in self._open()) >= most:
            return f"{most} connections of the certificate {serial} are open"
        return self._trust.refusal(certificate)

    def _open(self) -> Iterable[Any]:
        return [each for each in self._inside if not each.closed()]

    def look_after(self) -> None:
        """Drop those whose certificates lost their worth while they are connected. Show this side's latest from now on.

        To be called every few seconds.
        """
        self._trust.refresh()
        for comm in self._open():
            refusal = self._trust.refusal(comm.extra_info["peercert"])
            if refusal:
                seldom.warning("a connection is closed: %s", refusal)
                comm.abort()


class LabConnector(tcp.TLSConnector):  # type: ignore[misc]
    """Connects as distributed does over TLS, to whom the lab has not revoked."""

    comm_class = PlainTLS

    async def connect(self, address: str, deserialize: bool = True, **given: Any) -> Any:
        """Connect. Raises OSError where there is no answer, and where the other side's certificate is revoked."""
        trust: Trust = given.pop("trust")
        try:
            comm = await super().connect(address, deserialize, **given)
        except ValueError as error:
            # The link broke between connecting and the handshake: the stream is not idle any more.
            raise CommClosedError(f"no handshake with {address}: {error}") from error
        refusal = trust.refusal(comm.extra_info.get("peercert") or {})
        if refusal:
            comm.abort()
            raise FatalCommClosedError(refusal)
        return comm


class LabBackend(tcp.TLSBackend):  # type: ignore[misc]
    """What dask.distributed connects and listens with."""

    _connector_class, _listener_class = LabConnector, LabListener


def serve_lab() -> None:
    """Make all connections of this process, a hub's or an agent's own, the lab's, and unpickle nothing."""
    if not isinstance(backends.get("tls"), LabBackend):
        backends["tls"] = LabBackend()
        refuse_pickles()


def client_address(address: str) -> str:
    """Return the address by which a client connects. Other connections of its process stay what they are."""

    class ClientConnector(LabConnector):
        prefix = f"{SCHEME}://"

    class ClientBackend(LabBackend):
        _connector_class = ClientConnector

    backends.setdefault(SCHEME, ClientBackend())
    return address.replace("tls://", f"{SCHEME}://", 1)
