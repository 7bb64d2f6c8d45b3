"""The hub of a lab: a scheduler of dask.distributed that knows who everybody is, as their certificates say.

A process of its own: this module imports distributed, and nothing that runs inside pytest imports it.
"""

from __future__ import annotations

import asyncio
import errno
import json
import resource
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from distributed import Scheduler
from distributed.comm import Comm, get_address_host
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.versions import get_versions

from pytest_ngraph.devices import engine, handshake, tls
from pytest_ngraph.devices.registry import is_loopback
from pytest_ngraph.devices.status import AgentState, HubState
from pytest_ngraph.errors import SpecError


class Hub(Scheduler):
    """A scheduler for agents and clients with certificates of the lab; the agents' book is kept in its folder."""

    def __init__(self, authority: tls.Authority, host: str, port: int) -> None:
        self.book = Book(authority.folder / "agents.json")
        self._expires = tls.identity_of(authority.certificate).expires.timestamp()
        self._since = time.time()
        self._people: dict[str, str] = {}
        super().__init__(
            host=host,
            port=port,
            protocol="tls",
            security=engine.security(authority.ca, authority.certificate, authority.key),
            dashboard=False,
            plugins=[self.book],
            extensions={},
        )
        self.handlers["ngraph_devices"] = self.ngraph_devices
        self.handlers["ngraph_welcome"] = self.ngraph_welcome
        for idle in ("idle-timeout", "no-workers-timeout"):
            # Four times a second each, for time limits that a hub has not.
            self.periodic_callbacks.pop(idle, None)

    def start_http_server(self, *_: object, **__: object) -> None:
        """Serve no web pages: they know no certificates."""

    def ngraph_welcome(self, comm: Comm, name: str, facts: dict[str, Any]) -> dict[str, str]:
        """Return why an agent cannot join (``refused``), or who has its name now (``taken``); nothing where it can."""
        return {"refused": self._refusal(comm, name, facts), "taken": self.aliases.get(name, "")}

    def _refusal(self, comm: Comm, name: str, facts: dict[str, Any]) -> str:
        role, own = _whose(comm)
        if role != tls.AGENT or own != name:
            return f"this is the certificate of the {role} {own!r}, not of the agent {name!r}"
        return handshake.difference(facts) or ""

    def ngraph_devices(self) -> str:
        """Return a HubState, as JSON."""
        agents = tuple(self._busy(agent) for agent in self.book.agents.values())
        return HubState(self._since, self._expires, handshake.mine(), agents).to_json()

    def _busy(self, agent: AgentState) -> AgentState:
        """Return an agent's state with what it does now."""
        worker = self.workers.get(self.aliases.get(agent.name, ""))
        if worker is None:
            return agent
        measured = worker.metrics.get("ngraph") or {}
        # First in, first out; what an agent says that it executes comes with its heartbeats.
        tasks = sorted(worker.processing, key=lambda task: (task not in worker.executing, task.priority or ()))
        told = replace(agent, free_disk_bytes=measured.get("free_disk_bytes"), waiting=max(0, len(tasks) - 1))
        if not tasks:
            return told
        people = sorted({self._people.get(client.client_key, "somebody") for client in tasks[0].who_wants or ()})
        seconds = worker.executing.get(tasks[0])
        since = None if seconds is None else worker.last_seen - seconds
        return replace(told, busy_with=", ".join(people) or "somebody", busy_since=since)

    async def add_worker(self, comm: Comm, **told: Any) -> None:
        """Let an agent in that has an agent's certificate of its own name, and is of this release."""
        refusal = self._refusal(comm, told["name"], told["extra"].get("ngraph", {}))
        if refusal:
            await comm.write({"status": "error", "message": refusal, "time": time.time()})
            return
        # Releases were compared; distributed would also warn of whatever else is installed otherwise.
        await super().add_worker(comm, **{**told, "versions": get_versions()})

    async def add_client(self, comm: Comm, client: str, versions: dict[str, Any]) -> None:
        """Let a client in that has a client's certificate; whoever waits for a device is told its name."""
        role, name = _whose(comm)
        if role != tls.CLIENT:
            error = f"this is the certificate of the {role} {name!r}, not of a client"
            await comm.write([{"op": "stream-start", "error": error}])
            await comm.close()
            return
        self._people[client] = f"{name}@{get_address_host(comm.peer_address)}"
        try:
            await super().add_client(comm, client, versions=get_versions())
        finally:
            self._people.pop(client, None)

    def heartbeat_worker(self, **told: Any) -> dict[str, Any]:
        """Note that an agent lives; small labs need no more heartbeats than large ones."""
        answer: dict[str, Any] = super().heartbeat_worker(**told)
        if "heartbeat-interval" in answer:
            answer["heartbeat-interval"] = max(answer["heartbeat-interval"], engine.HEARTBEAT_SECONDS)
        return answer


class Book(SchedulerPlugin):
    """Which agents there are, and since when they are there or gone; kept in a file, so that a new hub knows them."""

    name = "ngraph-book"

    def __init__(self, file: Path) -> None:
        self._file, self._names = file, dict[str, str]()
        self.agents: dict[str, AgentState] = {}
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            known = [AgentState(**{**one, "pools": tuple(one["pools"])}) for one in told]
        except FileNotFoundError:
            known = []
        except (OSError, ValueError, TypeError, KeyError):
            raise SpecError(f"{file}: is damaged; remove it (it only says since when agents are offline)") from None
        now = time.time()
        self.agents = {one.name: replace(one, online=False, since=now if one.online else one.since) for one in known}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Write down that an agent came."""
        state = scheduler.workers[worker]
        told = state.extra.get("ngraph", {})
        self._names[worker] = state.name
        self.agents[state.name] = AgentState(
            name=state.name,
            online=True,
            since=time.time(),
            address=worker,
            pools=tuple(told.get("pools", ())),
            expires=told.get("expires"),
            facts={key: told.get(key) for key in handshake.mine()},
        )
        self._keep()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """Write down that an agent went."""
        name = self._names.pop(worker, None)
        if name is not None:
            self.agents[name] = replace(self.agents[name], online=False, since=time.time())
            self._keep()

    def _keep(self) -> None:
        lines = [asdict(agent) for agent in self.agents.values()]
        tls.write_private(self._file, json.dumps(lines, indent=1).encode("utf-8"))


def _whose(comm: Comm) -> tuple[str, str]:
    """Return role and name of the certificate at the other end."""
    certificate = comm.extra_info.get("peercert") or {}
    subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
    return subject.get("organizationalUnitName", "nobody"), subject.get("commonName", "?")


def run_hub(folder: Path, host: str, port: int, say: Callable[[str], None]) -> None:
    """Run a hub until SIGINT or SIGTERM; CA and certificates are made in its folder where there are none.

    It speaks TLS only, on whatever address. Raises SpecError where it cannot listen there.
    """
    fresh = not (folder / "ca.pem").is_file()
    authority = tls.Authority.made(folder)
    authority.renew_hub()
    if fresh:
        say(f"made a CA for this lab in {folder}; whoever has its key has a shell on every board: it stays there")
    # Each device holds about three files open; many systems allow 1024 where nobody asks for more.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        asyncio.run(_serve(authority, host, port, say))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        hint = "another hub? or give --port" if taken else "give --host an address of this machine"
        raise SpecError(f"cannot listen on {host}:{port}: {error.strerror or error} ({hint})") from None


async def _serve(authority: tls.Authority, host: str, port: int, say: Callable[[str], None]) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    hub = Hub(authority, host, port)
    try:
        await hub
    except RuntimeError as error:
        raise error.__cause__ if isinstance(error.__cause__, OSError) else error from None
    async with hub:
        address = _address(host, hub.port)
        tls.write_private(authority.folder / "address", f"{address}\n".encode())
        until = f"{tls.identity_of(authority.certificate).expires:%Y-%m-%d}"
        say(f"hub of {authority.folder} listens on {address}, certificate until {until}")
        if is_loopback(host):
            say("only this machine can reach it; for a lab: ngraph hub --host ADDRESS (0.0.0.0: all of this machine's)")
        say("next, here: ngraph enroll NAME for each board, ngraph enroll NAME --client for each user")
        await ended.wait()
        say("hub ends; agents come back when it does")


def _address(host: str, port: int) -> str:
    """Return the address that others are told to use."""
    name = socket.getfqdn() if host in ("0.0.0.0", "::") else host.strip("[]")  # noqa: S104 - compared, not bound
    return f"tls://[{name}]:{port}" if ":" in name else f"tls://{name}:{port}"
