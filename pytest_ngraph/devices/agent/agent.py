"""The agent of a device: a worker of dask.distributed without a nanny, with one thread, that all but sleeps.

A process of its own: this module imports distributed, and nothing that runs inside pytest imports it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dask._task_spec import Task
from distributed import Worker
from distributed.comm import Comm
from distributed.core import rpc
from distributed.diagnostics.plugin import WorkerPlugin

from pytest_ngraph.devices import logs, serving
from pytest_ngraph.devices.agent import children, permissions
from pytest_ngraph.devices.agent.privacy import keep_private
from pytest_ngraph.devices.agent.tasks import FOLDER_VARIABLE, TASKS
from pytest_ngraph.devices.doors import doors, engine, handshake
from pytest_ngraph.devices.doors.allowed import asked_by, read_stream
from pytest_ngraph.devices.registry import HubEntry
from pytest_ngraph.devices.signing.renewing import Renewal
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.devices.wire import wire
from pytest_ngraph.errors import DeviceOffline, DeviceUnusable, SpecError

RETRY_SECONDS, REJOIN_SECONDS = 3.0, 7 * 86400.0
_START_SECONDS, _PROBE_SECONDS = 60.0, 10.0


class Agent(Worker):
    """A worker with one exclusive device. It runs ``tasks``, functions of text by their names, and nothing else."""

    def __init__(
        self,
        hub: HubEntry,
        name: str,
        pools: Sequence[str],
        host: str,
        port: int,
        scratch: Path,
        tasks: Mapping[str, Callable[[str], str]] = TASKS,
    ) -> None:
        self._hub, self._tasks, self._scratch = hub, tasks, scratch
        # The hub ends connections when the certificate that they were made with does. So it joins again with a new one
        # in the days before, in a moment in which nothing of anybody is here.
        self.outlived = asyncio.Event()
        self._shown = self._expires()
        about = {**handshake.mine(), "pools": list(pools), "expires": self._shown}
        doors.serve_lab()
        super().__init__(
            hub.address,
            name=name,
            nthreads=1,
            # One thread that lives as long as the worker: distributed's own wakes every second, and the children's
            # signal of death follows the thread that started them.
            executor=ThreadPoolExecutor(1, thread_name_prefix="task"),
            resources={f"device:{name}": 1, **{f"pool:{pool}": 1 for pool in pools}},
            memory_limit=0,
            host=host,
            port=port,
            protocol="tls",
            security=engine.security(hub.ca, hub.certificate, hub.key),
            dashboard=False,
            nanny=None,
            local_directory=str(scratch),
            death_timeout=_START_SECONDS,
            heartbeat_interval=f"{engine.HEARTBEAT_SECONDS}s",
            startup_information={"ngraph": lambda _: about},
            metrics={"ngraph": Agent._measured},
            plugins=(Reaper(),),
            extensions={},
        )
        self.handlers.clear()
        self.handlers["get_data"] = asked_by(tls.HUB, "get_data", self._give)
        known = self.stream_handlers
        self._from_hub = {
            "compute-task": self._compute,
            **{op: known[op] for op in ("free-keys", "cancel-compute", "remove-replicas", "remove-worker")},
            "worker-status-change": lambda **_: None,
            "close": self._leave,
        }
        # Once a second, for inputs from other workers; there are none.
        self.periodic_callbacks.pop("find-missing", None)

    def start_http_server(self, *_: object, **__: object) -> None:
        """Serve no web pages: they know no certificates."""

    def _expires(self) -> float:
        return tls.identity_of(self._hub.certificate).expires.timestamp()

    def _measured(self) -> dict[str, float]:
        """Return what a heartbeat says. It is awake now, so it also looks after who is connected."""
        for listener in self.listeners:
            listener.look_after()
        expires = self._expires()
        if expires > self._shown < time.time() + REJOIN_SECONDS and not self.state.tasks:
            self.outlived.set()
        return {"free_disk_bytes": shutil.disk_usage(self._scratch).free, "expires": expires}

    async def handle_stream(self, comm: Comm, extra: dict[str, Any] | None = None) -> None:
        """Do what the hub says on the connection that this agent made to it."""
        await read_stream(comm, self._from_hub, extra or {})

    def _compute(self, **fields: Any) -> None:
        """Begin a task: a function that is known here by its name, with a text. Anything else is answered, not run."""
        name, text = fields["run_spec"]
        function = self._tasks.get(name) if isinstance(name, str) and isinstance(text, str) else None
        spec = Task(fields["key"], _refuse, str(name)) if function is None else Task(fields["key"], function, text)
        plain = {"run_spec": spec, "actor": False, "annotations": {}, "who_has": {}, "nbytes": {}}
        self.stream_handlers["compute-task"](**{**fields, **plain})

    async def _give(self, comm: Comm, keys: Sequence[str], who: str | None = None, **_: Any) -> Any:
        return await self.get_data(comm, keys, who, serializers=["msgpack"])

    async def _leave(self, **_: Any) -> None:
        await self.close(reason="the hub said so")

    async def close(self, **fields: Any) -> str | None:
        """Close, without waiting for a measurement under way: where the hub is gone, its result goes to the spool."""
        closed: str | None = await super().close(**{**fields, "executor_wait": False})
        return closed


def _refuse(name: str) -> str:
    return json.dumps(
        wire.refusal(
            DeviceUnusable(f"an agent runs {', '.join(TASKS)} and nothing else; {name[:40]!r} is not among them")
        )
    )


class Reaper(WorkerPlugin):
    """Kills the child of a task that was cancelled, for example as its client died. Its thread then ends by itself."""

    name = "ngraph-reaper"

    def setup(self, worker: Worker) -> None:
        """Remember the worker."""
        self._worker = worker

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """See what becomes of a task."""
        if finish == "executing":
            # The hub then knows at once who has the device.
            self._worker.loop.call_later(0.05, self._worker.heartbeat)
        elif start == "executing" and finish == "released":
            # It is only marked so: its resource stays taken until its thread ends.
            children.kill(str(key))
        elif start == "cancelled":
            children.forget(str(key))


def run_agent(
    hub: HubEntry,
    name: str,
    pools: Sequence[str],
    port: int,
    scratch: Path,
    say: Callable[[str], None],
    allows: permissions.Permissions,
) -> None:
    """Run an agent until SIGINT or SIGTERM. Where the hub is lost, wait for it and join again.

    It listens on ``port``, 0 for any, where the hub fetches results. ``allows`` is what runs may compare with.

    Raises DeviceUnusable where its own files are not as they must be, and engine.NotTaken where it is refused for good,
    SpecError for a folder that it cannot keep to itself.
    """
    engine.check_certificate(hub, tls.AGENT)
    permissions.give(allows)
    for folder in {scratch, Path(os.environ.get(FOLDER_VARIABLE, scratch))}:
        keep_private(folder)
    doors.raise_file_limit()
    logs.log_seldom()
    # Before the first conversation: what dask.distributed reads by itself it unpickles.
    doors.serve_lab()
    # What it is sent and what it measures is kept there, too.
    os.environ.setdefault(FOLDER_VARIABLE, str(scratch))
    try:
        asyncio.run(_live(hub, name, pools, port, scratch, say))
    finally:
        children.kill_all()


async def _live(
    hub: HubEntry, name: str, pools: Sequence[str], port: int, scratch: Path, say: Callable[[str], None]
) -> None:
    ended = serving.ended_by_signal()
    said, joined_at, warned = "", 0, set[str]()

    def warn(text: str) -> None:
        # Once, and not with every try.
        if text not in warned:
            warned.add(text)
            say(f"WARNING: {text}")

    renewing = await Renewal(hub, say).begin()
    while not ended.is_set():
        try:
            host = await asyncio.to_thread(engine.probe, hub, _PROBE_SECONDS)
            await _welcome(hub, name, warn)
            agent = Agent(hub, name, pools, f"[{host}]" if ":" in host else host, joined_at or port, scratch)
            joined_at = 0
            async with agent:
                say(f"agent {name!r} has joined the hub at {hub.address}; waiting for work")
                said = ""
                ends = [asyncio.create_task(each) for each in (ended.wait(), agent.finished(), agent.outlived.wait())]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for task in ends:
                    task.cancel()
                if ended.is_set():
                    children.kill_all()
                elif agent.outlived.is_set():
                    # Whoever measures here now and then knows it by its address.
                    joined_at = agent.port
            if joined_at:
                continue
            reason = "the hub went away"
        except engine.NotTaken:
            raise
        except DeviceOffline as offline:
            reason = str(offline)
        except DeviceUnusable as unusable:
            _refuse_expired(hub)
            # It may be mended at any time, on the hub or in the files here. What is measured meanwhile goes on.
            reason = str(unusable)
        except Exception as error:  # noqa: BLE001 - what fails on the hub comes as an Exception with its words
            if isinstance(error, TypeError | LookupError | AttributeError | NameError | ImportError):
                # More likely a fault of this program than of a hub that ends meanwhile.
                logs.seldom.warning("the agent could not join", exc_info=error)
            reason = f"could not join the hub at {hub.address}: {error.__cause__ or error}"
        if not ended.is_set() and reason != said:
            say(f"{reason}; trying again every {RETRY_SECONDS:g} s")
            said = reason
        try:
            await asyncio.wait_for(ended.wait(), RETRY_SECONDS)
        except asyncio.TimeoutError:
            continue
    renewing.cancel()
    say(f"agent {name!r} ends")


def _refuse_expired(hub: HubEntry) -> None:
    """Raise engine.NotTaken where this side's own certificate has expired."""
    try:
        mine = tls.identity_of(hub.certificate)
    except DeviceUnusable:
        # Another one may just be put in its place.
        return
    if mine.days_left < 0:
        raise engine.NotTaken(f"{hub.certificate}: {mine.warning()}")


async def _welcome(hub: HubEntry, name: str, warn: Callable[[str], None]) -> None:
    """Ask the hub whether this agent may join. Raises engine.NotTaken where not, DeviceOffline where not now."""
    connection = engine.security(hub.ca, hub.certificate, hub.key).get_connection_args("worker")
    async with rpc(hub.address, timeout=_PROBE_SECONDS, connection_args=connection) as asked:
        answer = await asked.ngraph_welcome(name=name, facts=handshake.mine())
    try:
        tls.adopt_revoked(hub.ca, answer["revoked"].encode())
    except SpecError as error:
        # A disk that is full or read-only: it goes by the list that it has.
        warn(f"the hub's list of revoked certificates is not taken over: {error}")
    if answer["refused"]:
        raise engine.NotTaken(f"the hub at {hub.address} does not take this agent: {answer['refused']}")
    if answer["taken"]:
        # By another one, or by this one's own former connection, which the hub forgets within half a minute.
        raise DeviceOffline(f"an agent {name!r} is at {answer['taken']} already")
