"""The engine: a real hub, real agents and clients on this machine, over mutual TLS; who gets what, in which order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.devices.agent import children
from pytest_ngraph.devices.doors import engine, handshake
from pytest_ngraph.devices.registry import DeviceEntry, HubEntry
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.errors import DeviceUnusable
from tests.conftest import ROOT, skip_without
from tests.support.lab import Lab, eventually
from tests.support.lab_agent import hold, start_child, where

PAIR = DeviceEntry("pair", "lab", pool="pair")
# After midnight the hub began on another day.
MOMENT = r"(\d{4}-\d\d-\d\d )?\d\d:\d\d"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A hub with the agents one and two, both of the pool pair."""
    skip_without("distributed", "cryptography")
    with Lab(tmp_path_factory.mktemp("lab"), "tests.support.lab_agent") as made:
        made.start_hub()
        for name in ("one", "two"):
            made.start_agent(name, "--pool=pair")
        yield made


@pytest.fixture
def client(lab: Lab) -> Iterator[Any]:
    with lab.client() as connected:
        for name in ("one", "two"):
            lab.state(connected, name, lambda state: state.online and state.busy_with is None)
        yield connected


def submit(client: Any, what: Any, text: str, device: DeviceEntry | str) -> Any:
    """Submit as a remote bench does."""
    entry = DeviceEntry(device, "lab", resource=device) if isinstance(device, str) else device
    name = what if isinstance(what, str) else what.__name__
    return client.ask(name, text, f"{name}-{uuid.uuid4().hex}", engine.resources(entry))


def alive(pid: int) -> bool:
    """Tell whether a process lives and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def running_child(client: Any, tmp_path: Path, device: str) -> tuple[Any, int]:
    """Have an agent start a child; return the task, and the child's pid."""
    file = tmp_path / f"pid-{device}"
    task = submit(client, start_child, str(file), device)
    text = eventually("a child", lambda: file.exists() and file.read_text())
    return task, int(text)


def test_a_task_runs_on_the_device_it_names(client: Any) -> None:
    for name in ("one", "two", "one"):
        assert json.loads(submit(client, where, "", name).result(60)) == name
    assert json.loads(submit(client, where, "", PAIR).result(60)) in ("one", "two")


def test_a_pool_serves_with_whoever_is_free(client: Any, tmp_path: Path) -> None:
    holds = {"who": "a", "until": str(tmp_path / "go"), "file": str(tmp_path / "file")}
    first = submit(client, hold, json.dumps(holds), PAIR)
    eventually("it began", (tmp_path / "file").exists)

    second = submit(client, where, "", PAIR)

    second.result(60)
    assert not first.done()
    (tmp_path / "go").touch()
    first.result(60)


def test_a_device_serves_one_at_a_time_and_in_the_order_they_came(lab: Lab, client: Any, tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    with lab.client("bob") as bob, lab.client("carol") as carol:
        asked = {"who": "first", "until": str(go), "file": str(log)}
        waiting = [submit(client, hold, json.dumps(asked), "one")]
        eventually("the first has the device", log.exists)
        for number in range(4):
            for user, connection in (("alice", client), ("bob", bob), ("carol", carol)):
                asked = {"who": f"{user}{number}", "until": str(go), "file": str(log)}
                waiting.append(submit(connection, hold, json.dumps(asked), "one"))
                # Each client sends every few milliseconds what it has by then: this one has come.
                came = len(waiting) - 1
                lab.state(client, "one", lambda state: state.waiting == came)  # noqa: B023
        go.touch()
        expected = ["first", *(f"{user}{number}" for number in range(4) for user in ("alice", "bob", "carol"))]
        for task in waiting:
            task.result(60)

    # Nobody begins before the one before has ended.
    assert log.read_text().splitlines() == [f"{who} {what}" for who in expected for what in ("begin", "end")]


def test_the_order_is_the_hubs_and_not_that_of_its_clients_clocks(lab: Lab, client: Any, tmp_path: Path) -> None:
    from distributed import Future

    log, go = tmp_path / "log", tmp_path / "go"
    asked = {"who": "first", "until": str(go), "file": str(log)}
    waiting = [submit(client, hold, json.dumps(asked), "one")]
    eventually("the first has the device", log.exists)
    for number, priority in enumerate((-time.time(), 0, 1e9, -1e12), 1):
        key = f"hold-{uuid.uuid4().hex}"
        waiting.append(Future(key, client))
        client._send_to_scheduler(
            {
                "op": "ngraph-submit",
                "key": key,
                "task": "hold",
                "text": json.dumps({**asked, "who": str(number)}),
                "resources": {"device:one": 1},
                "priority": priority,
            }
        )
    lab.state(client, "one", lambda state: state.waiting == 4)
    go.touch()
    for task in waiting:
        task.result(60)

    began = [line.split()[0] for line in log.read_text().splitlines() if line.endswith("begin")]
    assert began == ["first", "1", "2", "3", "4"]


def test_the_hub_knows_who_has_a_device_and_since_when(lab: Lab, client: Any, tmp_path: Path) -> None:
    began = time.time()
    with lab.client("bob") as bob:
        task, _ = running_child(bob, tmp_path, "one")
        waiting = submit(client, where, "", "one")
        state = lab.state(client, "one", lambda state: state.busy_since is not None and state.waiting == 1)

        assert state.busy_with == "bob@127.0.0.1"
        assert state.busy_since == pytest.approx(began, abs=30)
        assert engine.agents(client)["two"].busy_with is None
        task.cancel()
        waiting.result(60)


def test_a_cancelled_task_takes_its_child_with_it_and_frees_the_device(client: Any, tmp_path: Path) -> None:
    task, pid = running_child(client, tmp_path, "one")

    task.cancel()

    eventually("the child is dead", lambda: not alive(pid))
    assert json.loads(submit(client, where, "", "one").result(60)) == "one"


CLIENT = """
import sys, time
from pathlib import Path
from pytest_ngraph.devices.doors import engine
from pytest_ngraph.devices.registry import DeviceEntry, HubEntry
name, address, *files = sys.argv[2:]
client = engine.connect(HubEntry(name, address, *map(Path, files)))
task = client.ask("start_child", sys.argv[1], "start-child", {"device:one": 1})
time.sleep(300)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_client_that_dies_frees_its_device(lab: Lab, client: Any, tmp_path: Path, number: int) -> None:
    entry, file = lab.entry("bob"), tmp_path / "pid"
    arguments = [str(file), entry.name, entry.address, str(entry.ca), str(entry.certificate), str(entry.key)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    dying = subprocess.Popen([sys.executable, "-c", CLIENT, *arguments], env=environment, stderr=subprocess.DEVNULL)
    try:
        pid = int(eventually("a child", lambda: file.exists() and file.read_text()))
        dying.send_signal(number)
        dying.wait(60)
        eventually("the child is dead", lambda: not alive(pid))
        assert json.loads(submit(client, where, "", "one").result(60)) == "one"
    finally:
        dying.kill()
        dying.wait(60)


def test_an_agent_that_is_killed_loses_its_task_and_comes_back(lab: Lab, client: Any, tmp_path: Path) -> None:
    task, pid = running_child(client, tmp_path, "two")
    killed = time.time()

    lab.agents["two"].end(signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)

    error = task.exception(60)
    assert str(error) == "KilledWorker"
    state = lab.state(client, "two", lambda state: not state.online)
    assert state.since == pytest.approx(killed, abs=30)
    lab.start_agent("two", "--pool=pair")
    assert json.loads(submit(client, where, "", "two").result(60)) == "two"


def test_an_agent_that_is_ended_takes_its_children_with_it(lab: Lab, client: Any, tmp_path: Path) -> None:
    _, pid = running_child(client, tmp_path, "two")

    assert lab.agents["two"].end(signal.SIGTERM) == 0

    eventually("the child is dead", lambda: not alive(pid))
    assert "agent 'two' ends" in lab.agents["two"].output
    lab.start_agent("two", "--pool=pair")


def test_two_agents_cannot_have_one_name(lab: Lab, client: Any) -> None:
    former = lab.agents["two"]
    try:
        second = lab.start_agent("two", joins=False)
        second.wait_for("already; trying again every")
        former.end(signal.SIGTERM)
        # It is served by the second from now on.
        second.wait_for("has joined the hub")
    finally:
        former.end(signal.SIGKILL)
        lab.agents["two"].end(signal.SIGTERM)
        lab.start_agent("two", "--pool=pair")


# Who is let in


def test_a_strangers_certificate_opens_nothing(lab: Lab, tmp_path: Path) -> None:
    with Lab(tmp_path) as strange:
        strange.address = lab.address
        with pytest.raises(DeviceUnusable, match="is not valid as a hub's"):
            engine.connect(strange.entry("mallory"))
        mallory = strange.entry("mallory")
        posing = HubEntry("lab", lab.address, lab.entry().ca, mallory.certificate, mallory.key)
        with pytest.raises(DeviceUnusable, match="does not accept the certificate"):
            engine.connect(posing)


def test_plain_tcp_opens_nothing(lab: Lab, client: Any) -> None:
    host, port = engine.parts_of(lab.address)
    with socket.create_connection((host, port), timeout=10) as plain:
        plain.sendall(b"\x01" + bytes(63))
        with contextlib.suppress(ConnectionError):
            assert plain.recv(1) in (b"", b"\x15"), "neither closed nor a TLS alert"
    assert all(agent.address.startswith("tls://") for agent in engine.agents(client).values())
    assert json.loads(submit(client, where, "", "one").result(60)) == "one"


def test_no_web_page_is_served(lab: Lab, client: Any) -> None:
    assert lab.hub is not None
    for process in (lab.hub, lab.agents["one"]):
        ports = psutil.Process(process.popen.pid).net_connections("tcp")
        assert len([each for each in ports if each.status == psutil.CONN_LISTEN]) == 1


def refusal(entry: HubEntry, name: str, facts: dict[str, Any]) -> str:
    """Ask the hub as an agent does before it joins."""
    from distributed.core import rpc

    async def asked() -> str:
        connection = engine.security(entry.ca, entry.certificate, entry.key).get_connection_args("worker")
        async with rpc(entry.address, timeout=10, connection_args=connection) as hub:
            return str((await hub.ngraph_welcome(name=name, facts=facts))["refused"])

    return asyncio.run(asked())


def test_an_agent_joins_under_its_own_name_and_with_an_agents_certificate(lab: Lab) -> None:
    assert refusal(lab.agent_entry("one"), "one", handshake.mine()) == ""
    assert (
        refusal(lab.agent_entry("one"), "two", {})
        == "this is the certificate of the agent 'one', not of the agent 'two'"
    )
    assert "certificate of the client 'alice'" in refusal(lab.entry(), "one", handshake.mine())


JOIN = """
import asyncio, sys
from pathlib import Path
from pytest_ngraph.devices.doors import engine
from pytest_ngraph.devices.registry import HubEntry
engine.configure()
from pytest_ngraph.devices.agent.agent import Agent
name, scratch, address, *files = sys.argv[1:]
async def join():
    async with Agent(HubEntry("lab", address, *map(Path, files)), name, [], "127.0.0.1", 0, Path(scratch)):
        print("joined")
asyncio.run(join())
"""


@pytest.mark.parametrize(
    ("role", "message"),
    [
        (tls.AGENT, "this is the certificate of the agent 'one', not of the agent 'mallory'"),
        (tls.CLIENT, "this is the certificate of the client 'alice', not of the agent 'mallory'"),
    ],
)
def test_the_hub_does_not_rely_on_being_asked(lab: Lab, tmp_path: Path, role: str, message: str) -> None:
    entry = lab.agent_entry("one") if role == tls.AGENT else lab.entry()
    arguments = ["mallory", tmp_path, entry.address, entry.ca, entry.certificate, entry.key]

    done = subprocess.run(
        [sys.executable, "-c", JOIN, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert done.returncode != 0
    assert "joined" not in done.stdout
    assert message in done.stderr


@pytest.mark.parametrize("key", handshake.EQUAL)
def test_another_release_is_refused_with_what_to_do(lab: Lab, key: str) -> None:
    facts = {**handshake.mine(), key: "0.0.1"}

    said = refusal(lab.agent_entry("one"), "one", facts)

    assert f"{key} is 0.0.1 there and {handshake.mine()[key]} here" in said
    assert "install the same release" in said


def test_a_client_of_another_release_is_told_before_it_asks_for_anything(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.entry()
    monkeypatch.setattr(handshake, "mine", lambda: {"proto": 0, "distributed": "1", "pytest-ngraph": "2"})

    with pytest.raises(DeviceUnusable, match=r"hub 'lab' at tls://.*: proto is \d+ there and 0 here; distributed is"):
        engine.connect(lab.entry())


def test_another_python_is_welcome(lab: Lab) -> None:
    assert refusal(lab.agent_entry("one"), "one", {**handshake.mine(), "python": "3.10.12"}) == ""


def loops() -> int:
    """Return how many threads of clients run."""
    return sum(thread.name == "IO loop" for thread in threading.enumerate())


def test_an_agents_certificate_is_no_users(lab: Lab) -> None:
    from pytest_ngraph.devices.doors.client import LabClient

    entry = lab.agent_entry("one")
    with pytest.raises(DeviceUnusable, match="is the certificate of the agent 'one', not of a client"):
        engine.connect(entry)
    # Nor does the hub take it from one who does not ask.
    running = loops()
    with pytest.raises(ImportError, match="certificate of the agent 'one', not of a client") as refused:
        LabClient(entry, "mallory", engine.security(entry.ca, entry.certificate, entry.key), 10)
    # Its thread has ended, though whoever was refused is still at hand here.
    assert refused.tb is not None
    assert loops() == running


# Hubs come and go


def test_agents_come_back_to_a_hub_that_was_killed(lab: Lab) -> None:
    assert lab.hub is not None
    lab.hub.end(signal.SIGKILL)
    for name in ("one", "two"):
        lab.agents[name].wait_for("trying again every")
    before = {name: lab.agents[name].output.count("has joined") for name in ("one", "two")}

    lab.start_hub()

    for name in ("one", "two"):
        joined = before[name]
        eventually(f"{name} joins again", lambda: lab.agents[name].output.count("has joined") > joined)  # noqa: B023
    with lab.client() as client:
        for name in ("one", "two"):
            assert json.loads(submit(client, where, "", name).result(60)) == name


def test_a_new_hub_remembers_agents_that_are_offline(lab: Lab) -> None:
    lab.agents["two"].end(signal.SIGTERM)
    with lab.client() as client:
        gone = lab.state(client, "two", lambda state: not state.online).since
    assert lab.hub is not None
    lab.hub.end(signal.SIGTERM)

    lab.start_hub()

    with lab.client() as client:
        assert lab.state(client, "two", lambda state: not state.online).since == gone
    lab.start_agent("two", "--pool=pair")
    lab.agents["one"].wait_for("has joined")


# ngraph devices


def devices(lab: Lab, capsys: pytest.CaptureFixture[str], *names: str) -> list[str]:
    assert main(["devices", "--config", str(lab.registry(*names))]) == 0
    return capsys.readouterr().out.splitlines()


def test_devices_shows_who_is_there_and_what_they_do(
    lab: Lab, client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    task, _ = running_child(client, tmp_path, "one")
    lab.state(client, "one", lambda state: state.busy_since is not None)

    lines = devices(lab, capsys, "one", "never")

    output = "\n".join(lines)
    task.cancel()
    today = [line for line in lines if not re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", line)]
    assert all(len(line) <= 80 or line.startswith("  !") for line in today), output
    assert re.search(r"^hub lab  tls://127\.0\.0\.1:\d+$", output, re.MULTILINE)
    assert re.search(rf"^  up since {MOMENT}, certificate until 20\d\d-\d\d-\d\d$", output, re.MULTILINE)
    assert re.search(rf"^  one +online since .*, busy with alice@127\.0\.0\.1 since {MOMENT}$", output, re.MULTILINE)
    assert re.search(r"^ +Python 3\.\d+\.\d+, ngraph [\d.]+, distributed [\d.]+", output, re.MULTILINE)
    assert re.search(r"^ +[\d.]+ [KMG]iB of disk free, certificate until 20\d\d", output, re.MULTILINE)
    assert "  never           agent 'never' was never seen; run there: ngraph agent never" in lines
    assert re.search(r"^  \(two\) +online since", output, re.MULTILINE)


def test_devices_says_at_once_that_a_hub_is_down(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = lab.registry("one")
    file.write_text(re.sub(r"(address = \"tls://127\.0\.0\.1):\d+", r"\1:1", file.read_text()))
    began = time.monotonic()

    assert main(["devices", "--config", str(file)]) == 1

    # Waiting for an answer would take as long as for a hub that is there and silent.
    assert time.monotonic() - began < 30
    output = capsys.readouterr().out
    assert "! hub 'lab' at tls://127.0.0.1:1 does not answer (Connection refused)" in output
    assert "on its machine run 'ngraph hub'" in output
    assert "  one             unknown: its hub is not reached" in output


def test_devices_without_a_registry_says_how_to_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert main(["devices"]) == 0

    assert "on the machine of its CA: ngraph enroll --hub" in capsys.readouterr().out


# The processes of hub and agent


def test_agents_sleep(lab: Lab, client: Any) -> None:
    # The figure is that of benchmarks/; here only what would be wrong by an order of magnitude.
    pid = lab.agents["one"].popen.pid
    before, began = context_switches(pid), time.monotonic()
    time.sleep(3)
    assert context_switches(pid) - before < 50 * (time.monotonic() - began)


def context_switches(pid: int) -> int:
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        found = re.findall(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)", status.read_text(), re.MULTILINE)
        total += sum(map(int, found))
    return total


def test_hub_and_agent_do_not_read_the_users_dask_configuration(tmp_path: Path) -> None:
    skip_without("distributed")
    (tmp_path / "dask.yaml").write_text("distributed: {scheduler: {allowed-failures: 7, work-stealing: true}}\n")
    code = (
        "from pytest_ngraph.devices.doors import engine; engine.configure(); import dask.config, distributed.core; "
        "print(all(dask.config.get(key) == value for key, value in engine.settings_in_code().items()), "
        "dask.config.get('distributed.comm.timeouts.connect'), distributed.core.tick_maximum_delay)"
    )
    environment = {
        **os.environ, "DASK_CONFIG": str(tmp_path), "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "999s",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)

    assert done.stdout.split() == ["True", "30s", "15"]


def test_a_client_leaves_the_users_dask_configuration_alone(lab: Lab) -> None:
    import dask.config

    before = json.dumps(dask.config.config, sort_keys=True, default=str)
    with lab.client() as client:
        submit(client, where, "", "one").result(60)

    assert json.dumps(dask.config.config, sort_keys=True, default=str) == before


def test_a_child_that_comes_after_its_task_was_cancelled_is_ended() -> None:
    children.kill("key")
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with children.of("key", child.pid):
        assert child.wait(60) == -signal.SIGKILL
    children.forget("key")
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with children.of("key", child.pid):
        assert child.poll() is None
        children.kill_all()
        assert child.wait(60) == -signal.SIGKILL
