"""The agent of a device: a worker of dask.distributed without a nanny, with one thread, that all but sleeps.

A process of its own: this module imports distributed, and nothing that runs inside pytest imports it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from distributed import Worker
from distributed.core import rpc
from distributed.diagnostics.plugin import WorkerPlugin

from pytest_ngraph.devices import children, engine, handshake, tls
from pytest_ngraph.devices.registry import HubEntry
from pytest_ngraph.devices.tasks import FOLDER_VARIABLE
from pytest_ngraph.errors import DeviceOffline, DeviceUnusable, SpecError

RETRY_SECONDS = 3.0
_START_SECONDS, _PROBE_SECONDS = 60.0, 10.0


class Agent(Worker):
    """A worker with one exclusive device."""

    def __init__(self, hub: HubEntry, name: str, pools: Sequence[str], host: str, port: int, scratch: Path) -> None:
        expires = tls.identity_of(hub.certificate).expires.timestamp()
        about = {**handshake.mine(), "pools": list(pools), "expires": expires}
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
            metrics={"ngraph": lambda _: {"free_disk_bytes": shutil.disk_usage(scratch).free}},
            plugins=(Reaper(),),
            extensions={},
        )
        # Once a second, for inputs from other workers; there are none.
        self.periodic_callbacks.pop("find-missing", None)

    def start_http_server(self, *_: object, **__: object) -> None:
        """Serve no web pages: they know no certificates."""

    async def close(self, **told: Any) -> str | None:
        """Close, without waiting for a measurement under way: where the hub is gone, its result goes to the spool."""
        closed: str | None = await super().close(**{**told, "executor_wait": False})
        return closed


class Reaper(WorkerPlugin):
    """Kills the child of a task that was cancelled, as when its client has died; its thread then ends by itself."""

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
    hub: HubEntry, name: str, pools: Sequence[str], port: int, scratch: Path, say: Callable[[str], None]
) -> None:
    """Run an agent until SIGINT or SIGTERM; where the hub goes away, wait for it and join again.

    It listens on ``port``, 0 for any, where the hub fetches results.

    Raises DeviceUnusable where the hub and this side do not accept each other or run different releases.
    """
    engine.check_certificate(hub, tls.AGENT)
    try:
        scratch.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(
            f"{scratch}: cannot be made: {error.strerror} (XDG_CACHE_HOME can name another place)"
        ) from None
    # What it is sent and what it measures is kept there, too.
    os.environ.setdefault(FOLDER_VARIABLE, str(scratch))
    try:
        asyncio.run(_live(hub, name, pools, port, scratch, say))
    finally:
        children.kill_all()


async def _live(
    hub: HubEntry, name: str, pools: Sequence[str], port: int, scratch: Path, say: Callable[[str], None]
) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    said = ""
    while not ended.is_set():
        try:
            host = await asyncio.to_thread(engine.probe, hub, _PROBE_SECONDS)
            await _welcome(hub, name)
            agent = Agent(hub, name, pools, f"[{host}]" if ":" in host else host, port, scratch)
            async with agent:
                say(f"agent {name!r} has joined the hub at {hub.address}; waiting for work")
                said = ""
                ending = asyncio.create_task(ended.wait())
                leaving = asyncio.create_task(agent.finished())
                await asyncio.wait((ending, leaving), return_when=asyncio.FIRST_COMPLETED)
                for task in (ending, leaving):
                    task.cancel()
                if ended.is_set():
                    children.kill_all()
            reason = "the hub went away"
        except DeviceOffline as offline:
            reason = str(offline)
        except (OSError, RuntimeError, asyncio.TimeoutError) as error:
            # A hub that ends meanwhile.
            reason = f"could not join the hub at {hub.address}: {error.__cause__ or error}"
        if not ended.is_set() and reason != said:
            say(f"{reason}; trying again every {RETRY_SECONDS:g} s")
            said = reason
        try:
            await asyncio.wait_for(ended.wait(), RETRY_SECONDS)
        except asyncio.TimeoutError:
            continue
    say(f"agent {name!r} ends")


async def _welcome(hub: HubEntry, name: str) -> None:
    """Ask the hub whether this agent may join. Raises DeviceUnusable where not, DeviceOffline where not now."""
    connection = engine.security(hub.ca, hub.certificate, hub.key).get_connection_args("worker")
    async with rpc(hub.address, timeout=_PROBE_SECONDS, connection_args=connection) as asked:
        answer = await asked.ngraph_welcome(name=name, facts=handshake.mine())
    if answer["refused"]:
        raise DeviceUnusable(f"the hub at {hub.address} does not take this agent: {answer['refused']}")
    if answer["taken"]:
        # By another one, or by this one's own former connection, which the hub forgets within half a minute.
        raise DeviceOffline(f"an agent {name!r} is at {answer['taken']} already")
