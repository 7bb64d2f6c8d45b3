"""Whoever can reach a port and says nothing: hub and agent keep serving, stay quiet, and hardly notice.

With real sockets, real processes, and few files that they may open, so that hundreds of connections are too many.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed.comm import tcp

from pytest_ngraph.devices import logs
from pytest_ngraph.devices.doors import doors, engine
from tests.conftest import skip_without
from tests.support.lab import Lab, eventually

FILES = 160
MANY = 400


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A hub and the agent one; each may open 160 files."""
    skip_without("distributed", "cryptography")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Lab(tmp_path_factory.mktemp("lab")) as made:
        made.start_hub()
        made.start_agent("one")
        made.entry()
        yield made
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def few_files(process: Any) -> None:
    """Let a process open few files, from now on."""
    resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (FILES, FILES))


def agent_address(lab: Lab) -> str:
    with lab.client() as client:
        return lab.state(client, "one", lambda state: state.online).address


def hello(lab: Lab) -> Any:
    """Ask the agent for what it always answers, as a user does: a question that goes through hub and agent."""
    with lab.client() as client:
        key = f"nothing-{uuid.uuid4().hex}"
        return json.loads(client.ask("nothing", "", key, {"device:one": 1}).result(60))


def cpu_seconds(pid: int) -> float:
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


@contextlib.contextmanager
def silent(address: str, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open many connections that say no more than this."""
    opened = []
    try:
        for _ in range(MANY):
            with contextlib.suppress(OSError):
                one = socket.create_connection(engine.parts_of(address), timeout=5)
                opened.append(one)
                if sent:
                    one.sendall(sent)
        yield opened
    finally:
        for one in opened:
            one.close()


def client_hello() -> bytes:
    """Return what a TLS client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="hub.ngraph.internal").do_handshake()
    return outgoing.read()


SAID: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "half a hello": lambda: client_hello()[:60],
    "a whole hello": client_hello,
    "no TLS": lambda: b"GET / HTTP/1.1\r\n",
}


@pytest.mark.parametrize("side", ["hub", "agent"])
@pytest.mark.parametrize("said", SAID)
def test_hundreds_that_say_nothing_keep_nobody_waiting(lab: Lab, side: str, said: str) -> None:
    assert lab.hub is not None
    process = lab.hub if side == "hub" else lab.agents["one"]
    address = lab.address if side == "hub" else agent_address(lab)
    few_files(process)
    log = len(process.output)

    with silent(address, SAID[said]()) as opened:
        assert len(opened) > MANY // 2
        # Through hub and agent, while all of them are open.
        assert "nothing else" in hello(lab)["reason"]

        def rests() -> bool:
            before, began = cpu_seconds(process.popen.pid), time.monotonic()
            time.sleep(1.5)
            return cpu_seconds(process.popen.pid) - before < (time.monotonic() - began) / 2

        # Nobody asks anything meanwhile; one that tries to accept them again and again takes all of a CPU, for ever.
        eventually("it rests", rests)
    assert len(process.output) - log < 20_000, process.output[-2000:]
    assert "Traceback" not in process.output[log:]
    assert "nothing else" in hello(lab)["reason"]


def test_who_says_nothing_is_dropped_after_ten_seconds(lab: Lab) -> None:
    began, said = time.monotonic(), client_hello()
    one = socket.create_connection(engine.parts_of(lab.address), timeout=60)
    slow = socket.create_connection(engine.parts_of(lab.address), timeout=60)
    with one, slow:
        # A byte in a while keeps nothing open either.
        stop = threading.Event()

        def drip() -> None:
            for position in range(len(said)):
                if stop.wait(0.5):
                    return
                with contextlib.suppress(OSError):
                    slow.send(said[position : position + 1])

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            for each in (one, slow):
                with contextlib.suppress(ConnectionError):
                    assert each.recv(1) == b""
            assert doors.HANDSHAKE_SECONDS - 2 < time.monotonic() - began < doors.HANDSHAKE_SECONDS + 40
        finally:
            stop.set()
            thread.join(60)


def test_connections_that_come_and_go_are_hardly_noticed(lab: Lab) -> None:
    assert lab.hub is not None
    log, stop, count = len(lab.hub.output), threading.Event(), [0]

    def come_and_go() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(engine.parts_of(lab.address), timeout=5) as one:
                one.sendall(b"\x16")
            count[0] += 1
            time.sleep(0.005)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            assert "nothing else" in hello(lab)["reason"]
        # However long a connection takes here.
        eventually("a hundred connections", lambda: count[0] > 100)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)

    assert len(lab.hub.output) - log < 20_000


def test_a_valid_certificate_that_says_nothing_more_blocks_nobody(lab: Lab) -> None:
    # After TLS but before dask's own hello, it is still of those who have ten seconds.
    entry = lab.entry("bob")
    context = engine.security(entry.ca, entry.certificate, entry.key).get_connection_args("client")["ssl_context"]
    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(MANY // 4):
            with contextlib.suppress(OSError):
                plain = stack.enter_context(socket.create_connection(engine.parts_of(lab.address), timeout=60))
                streams.append(stack.enter_context(context.wrap_socket(plain, server_hostname="hub.ngraph.internal")))
        assert "nothing else" in hello(lab)["reason"]
        streams[-1].settimeout(60)
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while streams[-1].recv(1 << 16):
                pass
        assert time.monotonic() - began < doors.HANDSHAKE_SECONDS + 40
        assert "nothing else" in hello(lab)["reason"]


# Its parts


def test_hub_and_agent_take_as_many_files_as_they_may() -> None:
    skip_without("distributed")
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))\n"
        "from pytest_ngraph.devices.doors import doors\n"
        "print(doors.raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "64 (512, 512)"


def test_a_door_without_a_file_left_closes_what_comes(tmp_path: Path) -> None:
    skip_without("distributed")
    code = """
import errno, os, resource, socket
from pytest_ngraph.devices.doors import doors
door = doors.Door.of(socket.create_server(("127.0.0.1", 0)))
door.getsockname()
comes = [socket.create_connection(door.getsockname()) for _ in range(5)]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
while True:
    try:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        break
said = []
for _ in range(6):
    try:
        door.accept()
    except OSError as error:
        said.append(errno.errorcode[error.errno])
print(*said)
os.close(taken.pop())
with socket.socket(fileno=os.dup(comes.pop().detach())): pass
print(all(each.recv(1) == b"" for each in comes[:3]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    # Five were there; then nobody waits any more, and nothing has to be tried again.
    assert done.stdout.splitlines() == ["ECONNABORTED " * 5 + "EAGAIN", "True"]


class Stream:
    """A connection that can only be closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_where_too_many_wait_the_oldest_of_the_largest_crowd_goes() -> None:
    import asyncio

    async def waited() -> None:
        waiting = doors.Waiting(most_of_address=3, most=5, files=lambda: 1000)
        crowd, others = [Stream() for _ in range(5)], [Stream() for _ in range(4)]
        for each in crowd:
            waiting.add(each, "1.1.1.1")
        assert [each.closed for each in crowd] == [True, True, False, False, False]
        for number, each in enumerate(others):
            waiting.add(each, f"2.2.2.{number}")
        # Nobody who came alone pays for a crowd.
        assert not any(each.closed for each in others[:3])
        assert crowd[2].closed
        waiting.done(others[0])
        waiting.done(others[0])

    skip_without("distributed")
    asyncio.run(waited())


def test_a_log_says_a_few_of_a_kind_and_then_how_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    seldom = logs.Seldom()

    def said(text: str, *arguments: object) -> str | None:
        record = logging.LogRecord("a", logging.WARNING, "", 0, text, arguments, None)
        return record.getMessage() if seldom.filter(record) else None

    assert [said("from %s", number) for number in range(100)] == ["from 0", "from 1", "from 2", *[None] * 97]
    assert said("something else") == "something else"
    now[0] = 61.0
    assert said("from %s", 7) == "from 7 [97 more like it in 61 s]"


def test_a_link_that_breaks_before_its_handshake_is_lost_and_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """tornado raises ValueError where the other side has sent something, or left, before TLS begins."""

    async def broken(*_: object, **__: object) -> None:
        raise ValueError("IOStream is not idle; cannot convert to SSL")

    monkeypatch.setattr(tcp.TLSConnector, "connect", broken)
    with pytest.raises(OSError, match=r"no handshake with 127\.0\.0\.1:9: IOStream is not idle"):
        asyncio.run(doors.LabConnector().connect("127.0.0.1:9", trust=None))
