"""What nobody can do with a valid certificate, whatever their role: run something on the hub or on an agent.

It is tried with dask.distributed's own client, and with raw messages of what that client and others send. Each attack
would leave a file, if it ran.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import pickle
import re
import socket
import ssl
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_ngraph.devices.doors import engine, frames
from pytest_ngraph.devices.registry import HubEntry
from pytest_ngraph.devices.trust import tls
from tests.conftest import skip_without
from tests.devices.test_devices_joining import posing
from tests.support.lab import Lab, eventually

SECONDS = 5.0


class Runs:
    """What leaves a folder where it is unpickled, except in this process."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> Any:
        return exec, (f"import os\nif os.getpid() != {os.getpid()}: os.mkdir({str(self._proof)!r})",)


@pytest.fixture
def proof(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """A folder that no attack may make; hub and agent still serve afterwards, and are the same processes."""
    path = tmp_path / "proof"
    yield path
    assert not path.exists(), "it ran"
    assert lab.hub is not None
    assert lab.hub.popen.poll() is None, "the hub ended"
    with lab.client() as client:
        assert lab.state(client, "one", lambda state: state.online).online


def entry_of(lab: Lab, role: str) -> HubEntry:
    """Return the hub as somebody of this role reaches it."""
    if role == tls.CLIENT:
        return lab.entry()
    if role == tls.AGENT:
        return lab.agent_entry("one")
    folder = lab.hub_folder
    return HubEntry("lab", lab.address, folder / "ca.pem", folder / "hub.pem", folder / "hub-key.pem")


def agent_address(lab: Lab) -> str:
    with lab.client() as client:
        return lab.state(client, "one", lambda state: state.online).address


# With dask.distributed's own client


@pytest.fixture
def stock(lab: Lab) -> Iterator[Any]:
    """dask.distributed's own client with a user's certificate, and nothing of ours but the certificate."""
    from distributed import Client

    class Stock(Client):  # type: ignore[misc]
        async def _update_scheduler_info(self, n_workers: int = 0) -> None:
            """Do without what the hub does not serve; else it would not even connect."""

    entry = lab.entry()
    security = engine.security(entry.ca, entry.certificate, entry.key)
    client = Stock(entry.address, timeout=60, security=security, set_as_default=False)
    try:
        yield client
    finally:
        client.close(timeout=3)


def test_dasks_own_client_as_it_is_does_not_even_connect(lab: Lab, proof: Path) -> None:
    from distributed import Client

    made: list[Client] = []

    class Kept(Client):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            made.append(self)
            super().__init__(*args, **options)

    entry = lab.entry()
    security = engine.security(entry.ca, entry.certificate, entry.key)
    with pytest.raises((OSError, TypeError, AttributeError)):
        Kept(entry.address, timeout=5, security=security, set_as_default=False)
    # Else the garbage collector closes it, and whichever test it does that in waits for twice its timeout.
    [refused] = made
    refused.close(timeout=3)


CALLS: dict[str, Callable[[Any, Path, str], Any]] = {
    "run_on_scheduler": lambda client, proof, agent: client.run_on_scheduler(os.mkdir, str(proof)),
    "run": lambda client, proof, agent: client.run(os.mkdir, str(proof)),
    "run on one": lambda client, proof, agent: client.run(os.mkdir, str(proof), workers=[agent]),
    "submit": lambda client, proof, agent: client.submit(os.mkdir, str(proof)).result(SECONDS),
    "map": lambda client, proof, agent: client.map(os.mkdir, [str(proof)])[0].result(SECONDS),
    "actor": lambda client, proof, agent: client.submit(Runs, proof, actor=True).result(SECONDS),
    "get": lambda client, proof, agent: client.get({"a": (os.mkdir, str(proof))}, "a"),
    "scatter": lambda client, proof, agent: client.scatter(Runs(proof)).result(SECONDS),
    # It asks for agents in a busy loop, as long as it may.
    "scatter directly": lambda client, proof, agent: client.scatter(Runs(proof), direct=True, timeout=3).result(3),
    "upload_file": lambda client, proof, agent: client.upload_file(str(module(proof))),
    "register a scheduler's plugin": lambda client, proof, agent: client.register_plugin(plugin("Scheduler", proof)),
    "register a worker's plugin": lambda client, proof, agent: client.register_plugin(plugin("Worker", proof)),
    "get_versions": lambda client, proof, agent: client.get_versions(),
    "restart": lambda client, proof, agent: client.restart(timeout=3),
    "retire_workers": lambda client, proof, agent: client.retire_workers([agent]),
    "set_metadata": lambda client, proof, agent: client.set_metadata("key", "value"),
    "get_worker_logs": lambda client, proof, agent: client.get_worker_logs(),
    "call_stack": lambda client, proof, agent: client.call_stack(),
    "dump_cluster_state": lambda client, proof, agent: client.dump_cluster_state(str(proof)),
    "shutdown": lambda client, proof, agent: client.shutdown(),
    "publish_dataset": lambda client, proof, agent: client.publish_dataset(Runs(proof), name="a"),
    "log_event": lambda client, proof, agent: client.log_event("ngraph:one", "forged"),
}


def module(proof: Path) -> Path:
    file = proof.with_name("evil.py")
    file.write_text(f"import os\nos.mkdir({str(proof)!r})\n")
    return file


def plugin(kind: str, proof: Path) -> Any:
    from distributed.diagnostics import plugin as plugins

    class Plugin(getattr(plugins, f"{kind}Plugin")):  # type: ignore[misc]
        name = "evil"

        def setup(self, worker: Any) -> None:
            proof.mkdir()

        def start(self, scheduler: Any) -> None:
            proof.mkdir()

    return Plugin()


@pytest.mark.parametrize("call", CALLS)
def test_dasks_own_client_runs_nothing(lab: Lab, stock: Any, proof: Path, call: str) -> None:
    agent, before = agent_address(lab), lab.agents["one"].popen.pid
    with contextlib.suppress(Exception), ThreadPoolExecutor(1) as pool:
        # Whatever the client makes of its refusal; what counts is what did not happen.
        pool.submit(CALLS[call], stock, proof, agent).result(SECONDS)
    time.sleep(0.3)
    assert lab.agents["one"].popen.poll() is None
    assert psutil.Process(before).is_running()
    assert agent_address(lab) == agent, "it was made to join again"


# With raw messages


def frame(*parts: bytes) -> bytes:
    """Return a message as dask.distributed frames it."""
    from distributed.protocol.utils import pack_frames

    packed: bytes = pack_frames(parts)
    return struct.pack("Q", len(packed)) + packed


def message(told: Any, *parts: bytes) -> bytes:
    import msgpack

    return frame(msgpack.dumps(told), *parts)


def pickled(proof: Path) -> bytes:
    return pickle.dumps(Runs(proof))


def say(entry: HubEntry, address: str, *messages: bytes, until: bytes = b"") -> bytes:
    """Say hello as dask.distributed does, then send messages; return what comes back within a moment.

    ``until`` is what must come, and is waited for longer.
    """
    context = engine.security(entry.ca, entry.certificate, entry.key).get_connection_args("client")["ssl_context"]
    context.check_hostname = False
    answer = b""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(engine.parts_of(address), timeout=60) as plain,
        context.wrap_socket(plain) as stream,
    ):
        stream.sendall(message({"compression": None, "python": (3, 11, 7), "pickle-protocol": 5}))
        for each in messages:
            stream.sendall(each)
        stream.settimeout(60 if until else 0.5)
        while (not until or until not in answer) and (part := stream.recv(1 << 16)):
            answer += part
    return answer


def served() -> dict[str, list[str]]:
    """Return every request that dask.distributed serves, of a hub and of an agent, as it is installed."""
    from distributed import Scheduler, Worker, core

    def names(owner: Any) -> set[str]:
        return set(
            re.findall(r'^ +"([\w-]+)": (?:self\.|pingpong)', Path(inspect.getfile(owner)).read_text(), re.MULTILINE)
        )

    base = names(core.Server)
    return {"hub": sorted(names(Scheduler) | base), "agent": sorted(names(Worker) | base)}


def bodies(op: str, proof: Path) -> list[Mapping[str, Any]]:
    """Return a request with everything that could make it run something."""
    evil = pickled(proof)
    run = {"function": evil, "args": pickle.dumps(()), "kwargs": pickle.dumps({}), "wait": True}
    told: dict[str, Any] = {"op": op, "reply": True}
    return [
        told,
        {**told, **run},
        {**told, "plugin": evil, "name": "a", "idempotent": False},
        {**told, "setup": evil, "function": evil, "teardown": evil, "interval": "1s"},
        {**told, "filename": "evil.py", "data": f"import os; os.mkdir({str(proof)!r})".encode(), "load": True},
        {**told, "msg": {"op": "run", **run}, "worker": "one", "workers": ["one"]},
        {**told, "keys": [evil], "key": evil},
    ]


@pytest.mark.parametrize("role", [tls.CLIENT, tls.AGENT, tls.HUB])
@pytest.mark.parametrize("side", ["hub", "agent"])
def test_no_request_that_dask_serves_runs_anything(lab: Lab, proof: Path, side: str, role: str) -> None:
    address = lab.address if side == "hub" else agent_address(lab)
    ops = [op for op in served()[side] if op not in ("register-worker", "register-client", "get_data")]
    assert len(ops) > 20

    def ask(op: str) -> None:
        say(entry_of(lab, role), address, *(message(body) for body in bodies(op, proof)))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, ops))


@pytest.mark.parametrize("role", [tls.CLIENT, tls.AGENT, tls.HUB])
@pytest.mark.parametrize("side", ["hub", "agent"])
def test_no_part_of_a_message_is_unpickled(lab: Lab, proof: Path, side: str, role: str) -> None:
    import msgpack

    address = lab.address if side == "hub" else agent_address(lab)
    evil = pickled(proof)
    attacks = [
        # What distributed unpickles as it reads, whatever the message is about.
        message({"op": "ncores", "a": {"__Pickled__": 1}}, msgpack.dumps({"pickled-obj": evil, "num-sub-frames": 0})),
        message(
            {"op": "get_data", "a": {"__Serialized__": 1}},
            msgpack.dumps({"serializer": "pickle", "num-sub-frames": 1}),
            evil,
        ),
        message(
            {"op": "get_data", "a": {"__Serialized__": 1}},
            msgpack.dumps({"serializer": "dask", "type-serialized": evil, "num-sub-frames": 0, "sub-header": {}}),
        ),
        message({"op": "ncores", "a": {"__Serialized__": True, "data": [{"serializer": "pickle"}, [evil]]}}),
        message({"op": "ncores", "a": {"__Enum__": True, "name": "x", "__module__": "os", "__name__": "environ"}}),
        message({"status": "uncaught-error", "exception": evil, "traceback": evil}),
    ]
    stream = message({"op": "connection_stream"})
    client = message({"op": "register-client", "client": "c", "reply": False})
    # As a first message, in the place of the hello, and on a stream.
    said = [*((attack,) for attack in attacks), *((stream, attack) for attack in attacks), (client, *attacks)]
    with ThreadPoolExecutor(len(said)) as pool:
        list(pool.map(lambda messages: say(entry_of(lab, role), address, *messages), said))


def test_what_is_pickled_is_not_read_from_anybody(tmp_path: Path) -> None:
    import msgpack

    evil = pickle.dumps(Runs(tmp_path / "proof"))
    header = msgpack.dumps({"serializer": "pickle", "num-sub-frames": 1})

    with pytest.raises(frames.Refused, match="pickled part"):
        frames.decoded([msgpack.dumps({"__Pickled__": 1}), msgpack.dumps({"pickled-obj": evil})])
    # A hub hands on what it does not read; a client leaves it unread.
    assert frames.decoded([msgpack.dumps({"data": {"__Serialized__": 1}}), header, evil]) == {"data": None}
    said = frames.decoded([msgpack.dumps({"exception": evil, "traceback": evil})])
    assert said == {"exception": frames._UNREAD, "traceback": None}
    said = frames.decoded([msgpack.dumps({"exception": evil, "exception_text": "it failed"})])
    assert said["exception"] == "it failed"
    assert not (tmp_path / "proof").exists()


def test_what_an_agent_is_answered_first_is_not_unpickled(tmp_path: Path) -> None:
    """A hub's certificate runs nothing in an agent's own process, not even before the agent has joined."""
    skip_without("distributed", "cryptography")
    import msgpack

    proof = tmp_path / "proof"
    told = {"compression": None, "python": (3, 11, 7), "pickle-protocol": 5, "a": {"__Pickled__": 1}}
    hello = message(told, msgpack.dumps({"pickled-obj": pickled(proof), "num-sub-frames": 0}))

    def greet(stream: ssl.SSLSocket) -> None:
        stream.sendall(hello)
        while stream.recv(1 << 16):
            pass

    with Lab(tmp_path) as lab:
        lab.enroll(tls.HUB, "hub")
        with posing(lab, greet) as came:
            agent = lab.start_agent("one", joins=False)
            said = agent.wait_for("; trying again every 3 s")
            # To see whether it is there, and to ask it.
            eventually("it was asked", lambda: len(came) > 1)
    assert not proof.exists(), "it ran"
    assert "a message with a pickled part is not read" in said


@pytest.mark.parametrize(
    "parts",
    [
        [b""], [b"\xc1"], [b"\x93"], [b"\x81\xa1a"], [b"\xdf\xff\xff\xff\xff"], [b"\x81" * 5000],
        [b"\x81\xae__Serialized__\x01"], [b"\x81\xae__Serialized__\xff"], [b"\x81\xae__Serialized__\x01", b"\x90"],
    ],
)  # fmt: skip
def test_garbage_is_no_message(parts: list[bytes]) -> None:
    skip_without("distributed")
    with pytest.raises(frames.Refused):
        frames.decoded(parts)


@pytest.mark.parametrize("garbage", [b"\xff" * 64, bytes(4096), struct.pack("Q", 1 << 60) + b"x", frame(b"\xc1")])
def test_garbage_after_the_handshake_ends_its_connection_only(lab: Lab, proof: Path, garbage: bytes) -> None:
    for address in (lab.address, agent_address(lab)):
        for role in (tls.CLIENT, tls.AGENT, tls.HUB):
            say(entry_of(lab, role), address, garbage)


# What is left, and in whose name


def ask(client: Any, task: str, text: str) -> Any:
    key = f"{task}-{uuid.uuid4().hex}"
    return json.loads(client.ask(task, text, key, {"device:one": 1}).result(60))


@pytest.mark.parametrize("task", ["mkdir", "os.mkdir", "_run", "agent_folder", "__class__", ""])
def test_an_agent_runs_three_functions_and_says_so_of_others(lab: Lab, proof: Path, task: str) -> None:
    with lab.client() as client:
        answer = ask(client, task, str(proof))

    assert not answer["ok"]
    assert f"an agent runs hello, put_blob, run_cell and nothing else; {task!r} is not among them" in answer["reason"]


def test_a_client_cannot_act_in_anothers_name(lab: Lab, proof: Path) -> None:
    with lab.client() as client, lab.client("bob") as bob:
        mine = client.ask("hello", "{}", "mine", {"device:nobody": 1})
        for op in ("client-releases-keys", "cancel-keys", "close-client"):
            bob._send_to_scheduler({"op": op, "keys": ["mine"], "client": client.id, "force": True})
        time.sleep(1)
        assert mine.status == "pending"
        assert client.sync(client.scheduler.ncores) != {}


def test_a_client_cannot_speak_for_an_agent_nor_an_agent_for_another(lab: Lab, proof: Path) -> None:
    address = agent_address(lab)
    for role in (tls.CLIENT, tls.HUB):
        for op in ("unregister", "heartbeat_worker"):
            asked = message({"op": op, "address": address, "stimulus_id": "x"})
            answer = say(entry_of(lab, role), lab.address, asked, until=b"may not ask for")
            assert b"may not ask for" in answer
    lab.enroll(tls.AGENT, "mallory")
    asked = message({"op": "unregister", "address": address, "stimulus_id": "x"})
    answer = say(lab.agent_entry("mallory"), lab.address, asked, until=b"may not speak for")
    assert b"may not speak for" in answer


def test_only_the_hub_fetches_results(lab: Lab, proof: Path) -> None:
    for role in (tls.CLIENT, tls.AGENT):
        asked = message({"op": "get_data", "keys": ["a"]})
        answer = say(entry_of(lab, role), agent_address(lab), asked, until=b"may not ask for")
        assert b"may not ask for" in answer
