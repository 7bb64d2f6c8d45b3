"""A lab of simulated devices on this machine: a real hub, real agents and clients, and measurements that only sleep.

Its processes are started as ``pytest_ngraph.devices.lab.simulation ROLE FOLDER ...`` and end with the one that
started them. Agents share processes, as hundreds of interpreters would not fit. Each is the agent of ``ngraph agent``
with a certificate, a connection and a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pytest_ngraph import interpreter, units
from pytest_ngraph.devices.agent.tasks import topic_of
from pytest_ngraph.devices.doors import engine
from pytest_ngraph.devices.registry import DeviceEntry, HubEntry
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.devices.trust.authority import Authority
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.worker.worker import die_with_parent

MOST_AGENTS = 2000
# A launch sends a line for each visit; so many for each of these requests, each of so many letters.
_LINES, _LETTERS = 4, 1000
_AGENTS_A_PROCESS, _MOST_PROCESSES = 25, 16
_JOIN_SECONDS, _JOIN_SECONDS_EACH = 60.0, 1.0
_CONNECT_SECONDS, _GATHER_SECONDS, _IDLE_SECONDS, _END_SECONDS = 60.0, 30.0, 5.0, 20.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a simulated lab is. Every client keeps one request under way on every device, for so many seconds.

    A request takes between half and one and a half of ``request_seconds``.
    """

    agents: int
    clients: int
    seconds: float
    request_seconds: float


@dataclass(frozen=True, slots=True)
class Served:
    """A request: who asked, for which device, which ran it, and when it was asked, began, ended and was handed over.

    Times are seconds since the epoch.
    """

    client: str
    device: str
    ran_on: str
    asked: float
    began: float
    ended: float
    handed_over: float


@dataclass(frozen=True, slots=True)
class Load:
    """What a process used in a while: share of one core, and at most so many bytes of memory and open files."""

    core: float
    most_bytes: int
    most_files: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What came of a simulation. ``idle`` and ``busy`` are the hub's load before the clients came and with them."""

    scale: Scale
    join_seconds: float
    served: Sequence[Served]
    idle: Load
    busy: Load
    agents_core: float
    clients_core: float

    @property
    def misplaced(self) -> int:
        """Count the requests that ran on another device than they were for."""
        return sum(one.ran_on != one.device for one in self.served)

    @property
    def overlaps(self) -> int:
        """Count the requests that began on a device before the one before had ended."""
        return sum(gap < 0 for gap in self.gaps)

    @property
    def gaps(self) -> list[float]:
        """Return the seconds between the end of a request and the beginning of the next on the same device."""
        by_begin = sorted(self.served, key=lambda one: (one.ran_on, one.began))
        return [
            after.began - before.ended
            for before, after in itertools.pairwise(by_begin)
            if before.ran_on == after.ran_on
        ]

    @property
    def fairness(self) -> float:
        """Return how many requests the client that was served most had for each of the one that was served least."""
        counts = Counter(one.client for one in self.served)
        least = min(counts.values(), default=0) if len(counts) == self.scale.clients else 0
        return max(counts.values()) / least if least else float("inf")

    @property
    def busy_share(self) -> float:
        """Return the share of the devices' time in which they measured, while all clients had work."""
        begin, end = min(one.asked for one in self.served), max(one.asked for one in self.served)
        measured = sum(max(0.0, min(one.ended, end) - max(one.began, begin)) for one in self.served)
        return measured / (self.scale.agents * (end - begin)) if end > begin else 0.0

    def lines(self) -> Iterator[str]:
        """Yield the lines that a user is shown."""
        scale, took = self.scale, max(one.ended for one in self.served) - min(one.asked for one in self.served)
        late = [one.handed_over - one.ended for one in self.served]
        low, high = 0.5 * scale.request_seconds, 1.5 * scale.request_seconds
        yield f"{scale.agents} agents, {scale.clients} clients, requests of {low:g} to {high:g} s"
        yield f"  all had joined after     {self.join_seconds:.0f} s"
        yield f"  requests served          {len(self.served)}, {len(self.served) / took:.1f} a second"
        yield f"  devices measured         {100 * self.busy_share:.1f} % of the time"
        yield f"  on another device        {self.misplaced}"
        yield f"  two at once on a device  {self.overlaps}"
        yield f"  most to least served     {self.fairness:.2f} between clients"
        yield f"  from one to the next     {_milliseconds(self.gaps)}"
        yield f"  from its end to a client {_milliseconds(late)}"
        yield f"  hub, idle                {_load(self.idle)}"
        yield f"  hub, with these clients  {_load(self.busy)}"
        yield f"  all agents, all clients  {100 * self.agents_core:.0f} %, {100 * self.clients_core:.0f} % of a core"


def _milliseconds(seconds: Sequence[float]) -> str:
    if len(seconds) < 2:
        return "-"
    percentiles = statistics.quantiles(seconds, n=20, method="inclusive")
    return f"{1e3 * statistics.median(seconds):.0f} ms, 95 % within {1e3 * percentiles[-1]:.0f} ms"


def _load(load: Load) -> str:
    return f"{100 * load.core:.1f} % of a core, {units.size(load.most_bytes)}, {load.most_files} open files"


def simulate(scale: Scale, say: Callable[[str], None]) -> Findings:
    """Run a lab of simulated devices in a folder of its own, which is removed, and return what came of it.

    Raises NgraphError where it does not come up in time, or a part of it ends.
    """
    engine.require()
    with tempfile.TemporaryDirectory(prefix="ngraph-simulation-") as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        agents = [f"board-{number:04d}" for number in range(scale.agents)]
        clients = [f"client-{number}" for number in range(scale.clients)]
        say(f"making {len(agents) + len(clients)} certificates")
        _enroll(folder, agents, clients)
        hub = stack.enter_context(_process("hub", folder))
        hub.wait_for("next, on the CA's machine", _CONNECT_SECONDS)
        began = time.monotonic()
        size = max(_AGENTS_A_PROCESS, -(-len(agents) // _MOST_PROCESSES))
        groups = [agents[first : first + size] for first in range(0, len(agents), size)]
        say(f"starting {len(agents)} agents in {len(groups)} processes")
        boards = [stack.enter_context(_process("agents", folder, *group)) for group in groups]
        for board in boards:
            board.wait_for("joined", _JOIN_SECONDS + _JOIN_SECONDS_EACH * len(agents))
        join_seconds = time.monotonic() - began
        say(f"{len(agents)} agents have joined within {join_seconds:.0f} s; looking at the idle hub")
        idle = _watch(hub, _IDLE_SECONDS)
        terms = [json.dumps({"devices": agents, "seconds": scale.seconds, "request_seconds": scale.request_seconds})]
        people = [stack.enter_context(_process("client", folder, client, *terms)) for client in clients]
        for one in people:
            one.wait_for("ready", _CONNECT_SECONDS)
        say(f"{len(clients)} clients ask for {scale.seconds:g} s")
        before = [[one.cpu_seconds for one in side] for side in (boards, people)]
        for one in people:
            one.go()
        busy = _watch(hub, scale.seconds)
        cores = [
            sum(one.cpu_seconds - then for one, then in zip(side, thens, strict=True)) / scale.seconds
            for side, thens in zip((boards, people), before, strict=True)
        ]
        say("they stop; what is under way ends")
        for one in people:
            one.wait_for("done", 2 * scale.clients * scale.request_seconds + _CONNECT_SECONDS)
        served = [Served(*row) for client in clients for row in json.loads((folder / f"{client}.json").read_text())]
        if not served:
            raise NgraphError("nothing was served in that time: give --seconds more than --request-seconds")
        return Findings(scale, join_seconds, served, idle, busy, *cores)


def _watch(hub: _Process, seconds: float) -> Load:
    """Watch a process for some seconds."""
    began, cpu = time.monotonic(), hub.cpu_seconds
    most_bytes = most_files = 0
    while (left := began + seconds - time.monotonic()) > 0:
        most_bytes = max(most_bytes, hub.facts.memory_info().rss)
        most_files = max(most_files, hub.facts.num_fds())
        time.sleep(min(1.0, left))
    return Load((hub.cpu_seconds - cpu) / (time.monotonic() - began), most_bytes, most_files)


class _Process:
    """A process of the simulation, and what it says."""

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self._role, self._log = words[0], folder / f"{uuid.uuid4().hex}.log"
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                interpreter.command("pytest_ngraph.devices.lab.simulation", words[0], str(os.getpid()), *words[1:]),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        self.facts = psutil.Process(self._popen.pid)

    @property
    def cpu_seconds(self) -> float:
        """Return what it has used of all cores so far."""
        return float(sum(self.facts.cpu_times()[:2]))

    def wait_for(self, word: str, seconds: float) -> None:
        """Wait until it has said a word. Raises NgraphError when it has not in so many seconds, or has ended."""
        deadline = time.monotonic() + seconds
        while word not in (said := self._log.read_text(encoding="utf-8", errors="replace")):
            late, over = time.monotonic() > deadline, self._popen.poll() is not None
            if late or over:
                what = "ended" if over else f"has not come to {word!r} within {seconds:.0f} s"
                raise NgraphError(f"a process of the simulation ({self._role}) {what}:\n{said[-2000:].strip()}")
            time.sleep(0.05)

    def go(self) -> None:
        """Start it."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(b"\n")
        self._popen.stdin.flush()

    def end(self) -> None:
        """End it, by force where it does not end by itself."""
        self._popen.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_END_SECONDS)
        self._popen.kill()
        self._popen.communicate()


@contextlib.contextmanager
def _process(role: str, folder: Path, *words: str) -> Iterator[_Process]:
    process = _Process([role, str(folder), *words], folder)
    try:
        yield process
    finally:
        process.end()


def _enroll(folder: Path, agents: Sequence[str], clients: Sequence[str]) -> None:
    authority = Authority.made(folder / "authority")
    (folder / "hub").mkdir(mode=0o700)
    hub = tls.HubFolder(folder / "hub")
    for path, data in zip((hub.certificate, hub.key), authority.issue(tls.HUB, "hub"), strict=True):
        tls.write_private(path, data)
    tls.write_private(hub.ca, authority.ca.read_bytes())
    for role, names in ((tls.AGENT, agents), (tls.CLIENT, clients)):
        for name in names:
            certificate, key = authority.issue(role, name)
            (folder / name).mkdir()
            tls.write_private(folder / name / "certificate.pem", certificate)
            tls.write_private(folder / name / "key.pem", key)


# In the processes


def _hub_of(folder: Path, name: str) -> HubEntry:
    address = (folder / "hub" / "address").read_text(encoding="utf-8").strip()
    ca, mine = folder / "hub" / "ca.pem", folder / name
    return HubEntry("simulation", address, ca, mine / "certificate.pem", mine / "key.pem")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def measure(text: str) -> str:
    """Pretend to measure: sleep as long as was asked, and send lines as a launch does. Runs on an agent."""
    from distributed import get_worker

    began, asked, worker = time.time(), json.loads(text), get_worker()
    for number in range(_LINES):
        time.sleep(asked["seconds"] / _LINES)
        line = json.dumps([number, "visited", "-" * _LETTERS])
        worker.log_event(topic_of(str(worker.name)), [worker.get_current_task(), line])
    return json.dumps([str(worker.name), began, time.time()])


async def _be_agents(folder: Path, names: Sequence[str]) -> None:
    from pytest_ngraph.devices.agent.agent import Agent

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    tasks = {"measure": measure}
    agents = [Agent(_hub_of(folder, name), name, [], "127.0.0.1", 0, folder / name, tasks) for name in names]
    for agent in agents:
        await agent
    _say("joined")
    await ended.wait()
    await asyncio.gather(*(agent.close() for agent in agents))


class _Client:
    """A client that asks as remote benches do: one request under way on each device, first come, first served."""

    def __init__(self, folder: Path, name: str, request_seconds: float) -> None:
        self._name, self._request_seconds = name, request_seconds
        self._client = engine.connect(_hub_of(folder, name), _CONNECT_SECONDS)
        self._done: queue.SimpleQueue[tuple[str, float, Any]] = queue.SimpleQueue()
        self._random = random.Random(name)  # noqa: S311 - lengths of naps

    def listen(self, devices: Sequence[str]) -> None:
        """Receive what the devices send, as a client that waits for one does."""
        for device in devices:
            self._client.subscribe_topic(topic_of(device), lambda event: None)

    def ask(self, devices: Sequence[str], seconds: float) -> list[Served]:
        """Ask all devices for so many seconds, then wait for what is under way. Return what was served."""
        served: list[Served] = []
        end = time.time() + seconds
        for device in devices:
            self._submit(device)
        under_way = len(devices)
        while under_way:
            device, asked, future = self._done.get(timeout=seconds + _CONNECT_SECONDS)
            ran_on, began, ended = json.loads(future.result(timeout=_GATHER_SECONDS))
            served.append(Served(self._name, device, ran_on, asked, began, ended, time.time()))
            if time.time() < end:
                self._submit(device)
            else:
                under_way -= 1
        return served

    def close(self) -> None:
        """Leave the hub."""
        self._client.close(timeout=_END_SECONDS)

    def _submit(self, device: str) -> None:
        asked = time.time()
        future = self._client.ask(
            "measure",
            json.dumps({"seconds": self._request_seconds * self._random.uniform(0.5, 1.5)}),
            f"measure-{uuid.uuid4().hex}",
            engine.resources(DeviceEntry(device, "simulation", resource=device)),
        )
        future.add_done_callback(lambda done: self._done.put((device, asked, done)))


def _be_client(folder: Path, name: str, terms: str) -> None:
    asked = json.loads(terms)
    client = _Client(folder, name, asked["request_seconds"])
    client.listen(asked["devices"])
    _say("ready")
    sys.stdin.readline()
    served = client.ask(asked["devices"], asked["seconds"])
    rows = [[getattr(one, field) for field in Served.__slots__] for one in served]
    (folder / f"{name}.json").write_text(json.dumps(rows))
    _say("done")
    client.close()


def main(arguments: Sequence[str]) -> None:
    """Run a part of a simulation, until the process that started it ends or says so."""
    role, parent, place, *words = arguments
    die_with_parent(int(parent))
    folder = Path(place)
    if role == "client":
        _be_client(folder, *words)
        return
    engine.configure()
    if role == "agents":
        asyncio.run(_be_agents(folder, words))
    else:
        from pytest_ngraph.devices.lab.hub import run_hub

        run_hub(folder / "hub", "127.0.0.1", 0, _say)
