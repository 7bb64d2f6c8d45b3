"""When an agent waits for its hub, and when it ends: only where waiting would not help."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.devices import serving
from pytest_ngraph.devices.doors import engine
from pytest_ngraph.devices.registry import HubEntry
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.devices.trust.authority import Authority
from pytest_ngraph.errors import DeviceOffline, DeviceUnusable, SpecError
from tests.conftest import skip_without
from tests.support.lab import Lab


@contextlib.contextmanager
def posing(lab: Lab, serve: Callable[[ssl.SSLSocket], None]) -> Iterator[list[str]]:
    """Listen with the hub's certificate, and do this to whoever shows one of the lab; yield who did so far."""
    folder, came, over = lab.hub_folder, list[str](), threading.Event()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "hub.pem", folder / "hub-key.pem")

    def accept() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                plain, address = server.accept()
                plain.settimeout(10)
                with plain, context.wrap_socket(plain, server_side=True) as stream:
                    came.append(str(address))
                    serve(stream)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        lab.address = f"tls://127.0.0.1:{server.getsockname()[1]}"
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield came
        finally:
            over.set()
            thread.join(60)


def reset(stream: ssl.SSLSocket) -> None:
    """End a connection as a machine does that knows nothing of it."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Lab]:
    skip_without("distributed", "cryptography")
    with Lab(tmp_path) as lab:
        yield lab


def test_an_agent_waits_for_a_hub_that_resets_its_connections(made: Lab) -> None:
    made.enroll(tls.HUB, "hub")
    with posing(made, reset) as came:
        agent = made.start_agent("one", joins=False)
        agent.wait_for("; trying again every 3 s")
        assert came
    made.start_hub()
    agent.wait_for("has joined the hub")


def test_an_agent_waits_for_a_hub_whose_list_is_damaged(made: Lab) -> None:
    made.start_hub()
    file = tls.revoked_file(made.hub_folder / "ca.pem")
    file.write_text("nothing")
    agent = made.start_agent("one", joins=False)
    agent.wait_for("; trying again every 3 s")
    file.unlink()
    agent.wait_for("has joined the hub")


def test_an_agent_waits_until_its_own_list_is_whole(made: Lab) -> None:
    made.start_hub()
    made.enroll(tls.AGENT, "one")
    file = tls.revoked_file(made.agent_entry("one").ca)
    file.write_text("nothing")
    agent = made.start_agent("one", joins=False)
    said = agent.wait_for("; trying again every 3 s")
    assert f"{file}: is not a list that the lab's CA has signed" in said
    file.unlink()
    agent.wait_for("has joined the hub")


def test_an_agent_with_a_certificate_of_another_ca_ends(made: Lab, tmp_path: Path) -> None:
    made.start_hub()
    made.enroll(tls.AGENT, "one")
    entry = made.agent_entry("one")
    strange = Authority.made(tmp_path / "strange").issue(tls.AGENT, "one")
    for path, data in zip((entry.certificate, entry.key), strange, strict=True):
        tls.write_private(path, data)

    agent = made.start_agent("one", joins=False)

    assert agent.popen.wait(60) == 2, agent.output
    assert f"does not accept the certificate {entry.certificate}" in agent.output


def test_an_agent_that_the_hub_refuses_by_its_name_ends(made: Lab) -> None:
    made.start_hub()
    made.enroll(tls.AGENT, "one")
    folder = tls.agent_folder(made.folder, "one")
    folder.rename(tls.agent_folder(made.folder, "two"))

    agent = made.start_agent("two", joins=False)

    assert agent.popen.wait(60) == 2, agent.output
    assert "does not take this agent: this is the certificate of the agent 'one'" in agent.output


# Try by try


@pytest.fixture
def entry(tmp_path: Path) -> HubEntry:
    """The hub as the agent one has it."""
    skip_without("distributed", "cryptography")
    lab = Lab(tmp_path)
    lab.address = "tls://127.0.0.1:1"
    lab.enroll(tls.AGENT, "one")
    return lab.agent_entry("one")


def lived(entry: HubEntry, monkeypatch: pytest.MonkeyPatch, *tries: Exception | str) -> list[str]:
    """Let an agent look for its hub so often, each time with this as what comes of it; return what it says."""
    from pytest_ngraph.devices.agent import agent

    said, left = list[str](), iter(tries)

    async def live() -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def probe(hub: HubEntry, seconds: float) -> str:
            found = next(left, None)
            if found is None:
                loop.call_soon_threadsafe(ended.set)
                raise DeviceOffline("it is over")
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(serving, "ended_by_signal", lambda: ended)
        monkeypatch.setattr(engine, "probe", probe)
        monkeypatch.setattr(agent, "RETRY_SECONDS", 0.01)
        await agent._live(entry, "one", [], 0, entry.ca.parent, said.append)

    asyncio.run(live())
    return [line.removesuffix("; trying again every 0.01 s") for line in said if "it is over" not in line]


def test_whatever_may_pass_is_waited_for_and_said_once(entry: HubEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    said = lived(
        entry,
        monkeypatch,
        DeviceUnusable("it does not speak TLS"),
        DeviceUnusable("it does not speak TLS"),
        DeviceOffline("it does not answer"),
        Exception("it failed"),
    )

    assert said == [
        "it does not speak TLS",
        "it does not answer",
        f"could not join the hub at {entry.address}: it failed",
        "agent 'one' ends",
    ]


def test_what_does_not_pass_is_an_end(entry: HubEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(engine.NotTaken, match="unknown ca"):
        lived(entry, monkeypatch, engine.not_accepted("hub 'lab'", entry, "tlsv1 alert unknown ca"))


def test_an_agent_ends_where_its_own_certificate_has_expired(entry: HubEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(timezone.utc) + timedelta(days=tls.DAYS + 1)

    monkeypatch.setattr(tls, "datetime", Later)
    # A hub that is away may be what is wrong; what is measured meanwhile goes on.
    assert "it is away" in lived(entry, monkeypatch, DeviceOffline("it is away"))
    with pytest.raises(engine.NotTaken, match=r"'one' expired on 20.*ngraph enroll one"):
        lived(entry, monkeypatch, DeviceUnusable("it resets connections"))


def test_a_list_that_cannot_be_written_is_a_warning(
    entry: HubEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_ngraph.devices.agent import agent

    authority = Lab(tmp_path).authority
    authority.revoke(tls.AGENT, "one")
    answer = {"revoked": tls.revoked_file(authority.ca).read_text(), "refused": "", "taken": "tls://board:1"}

    class Asked:
        async def __aenter__(self) -> Asked:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def ngraph_welcome(self, **_: Any) -> dict[str, str]:
            return answer

    def refuse(path: Path, data: bytes) -> None:
        raise SpecError(f"{path}: cannot be written: Read-only file system")

    monkeypatch.setattr(agent, "rpc", lambda *_, **__: Asked())
    monkeypatch.setattr(tls, "write_private", refuse)
    said = lived(entry, monkeypatch, "127.0.0.1", "127.0.0.1", "127.0.0.1")

    file = tls.revoked_file(entry.ca)
    assert said == [
        f"WARNING: the hub's list of revoked certificates is not taken over: {file}: cannot be written: Read-only file "
        "system",
        "an agent 'one' is at tls://board:1 already",
        "agent 'one' ends",
    ]


def test_what_a_hub_says_of_a_certificate_is_for_good_or_not() -> None:
    entry = HubEntry("lab", "tls://hub:1", Path("ca.pem"), Path("certificate.pem"), Path("key.pem"))
    said = {
        "TLSV1_ALERT_UNKNOWN_CA": True,
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": True,
        "ssl/tls alert certificate expired": True,
        "it closed the connection": False,
        "[Errno 104] Connection reset by peer": False,
        "SSLV3_ALERT_BAD_CERTIFICATE": False,
    }
    assert {why: isinstance(engine.not_accepted("hub", entry, why), engine.NotTaken) for why in said} == said
