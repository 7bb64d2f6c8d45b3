"""The hub of a lab: a scheduler of dask.distributed that knows who everybody is, as their certificates say.

A process of its own: this module imports distributed, and nothing that runs inside pytest imports it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dask._expr import LLGExpr
from dask._task_spec import Task
from distributed import Scheduler
from distributed.comm import Comm, get_address_host
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.serialize import Serialized, register_serialization_family
from distributed.versions import get_versions
from tornado.ioloop import PeriodicCallback

from pytest_ngraph.devices import logs, serving
from pytest_ngraph.devices.agent.tasks import topic_of
from pytest_ngraph.devices.doors import doors, engine, handshake
from pytest_ngraph.devices.doors.allowed import asked_by, read_stream, whose
from pytest_ngraph.devices.doors.status import AgentState, HubState
from pytest_ngraph.devices.registry import HubEntry, config_folder, is_loopback
from pytest_ngraph.devices.signing.renewing import Renewal
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.errors import SpecError


class Hub(Scheduler):
    """A scheduler for agents and clients with certificates of the lab. The agents' book is kept in its folder."""

    def __init__(self, files: tls.HubFolder, host: str, port: int) -> None:
        self.book = Book(files.folder / "agents.json")
        self._files = files
        self._since = time.time()
        self._people: dict[str, str] = {}
        self._arrivals = itertools.count()
        doors.serve_lab()
        super().__init__(
            host=host,
            port=port,
            protocol="tls",
            security=engine.security(files.ca, files.certificate, files.key),
            dashboard=False,
            plugins=[self.book],
            extensions={},
        )
        self.handlers.clear()
        # These say themselves who is refused, and why.
        self.handlers["ngraph_welcome"] = self.ngraph_welcome
        self.handlers["register-client"] = self.register_client
        self.handlers["register-worker"] = self.register_worker
        for role, asked in (
            (tls.CLIENT, (self.gather_text, self.ncores, self.ngraph_devices)),
            (tls.AGENT, (self.on_heartbeat, self.unregister)),
        ):
            for handler in asked:
                op = _OPS.get(handler.__name__, handler.__name__)
                self.handlers[op] = asked_by(role, op, handler)
        # Of a user, as dask.distributed's client names them.
        self._from_clients = {
            "ngraph-submit": self.submit,
            "client-desires-keys": self.client_desires_keys,
            "client-releases-keys": self.client_releases_keys,
            "cancel-keys": self.cancel,
            "heartbeat-client": self.client_heartbeat,
            "close-client": self.remove_client,
            "subscribe-topic": self.subscribe_topic,
            "unsubscribe-topic": self.unsubscribe_topic,
        }
        self._from_agents = {
            "task-finished": self.handle_task_finished,
            "task-erred": self.handle_task_erred,
            "release-worker-data": self.release_worker_data,
            "keep-alive": lambda **_: None,
            "log-event": self.publish,
            "worker-status-change": self.handle_worker_status_change,
        }
        look = PeriodicCallback(self._look_after, 1000 * _LOOK_SECONDS)
        self.periodic_callbacks["ngraph-look-after"] = look
        for idle in ("idle-timeout", "no-workers-timeout"):
            # Four times a second each, for time limits that a hub has not.
            self.periodic_callbacks.pop(idle, None)

    def _look_after(self) -> None:
        for listener in self.listeners:
            listener.look_after()

    def start_http_server(self, *_: object, **__: object) -> None:
        """Serve no web pages: they know no certificates."""

    # What is asked of it, and by whom

    async def register_client(self, comm: Comm, client: str, versions: Any = None) -> None:
        """Admit a client. Those who wait for a device are shown its name."""
        role, name = whose(comm)
        if role != tls.CLIENT or client in self.clients:
            error = f"this is the certificate of the {role} {name!r}, not of a client"
            await comm.write([{"op": "stream-start", "error": error if role != tls.CLIENT else "the client is here"}])
            await comm.close()
            return
        self._people[client] = f"{name}@{get_address_host(comm.peer_address)}"
        try:
            await self.add_client(comm, client, versions=get_versions())
        finally:
            self._people.pop(client, None)

    async def gather_text(self, comm: Comm, keys: Sequence[str]) -> dict[str, Any]:
        """Fetch results from agents: text, never what is pickled."""
        return dict(await self.gather(list(keys), serializers=["msgpack"]))

    def ncores(self, comm: Comm, workers: Sequence[str] | None = None) -> dict[str, int]:
        """Return which of these agents are there, by address."""
        return dict(self.get_ncores(workers))

    def ngraph_devices(self, comm: Comm) -> str:
        """Return a HubState, as JSON."""
        agents = tuple(self._busy(agent) for agent in self.book.agents.values())
        expires = tls.identity_of(self._files.certificate).expires.timestamp()
        return HubState(self._since, expires, handshake.mine(), agents).to_json()

    async def register_worker(self, comm: Comm, **fields: Any) -> None:
        """Admit an agent of this release, under the name in its certificate."""
        refusal = self._refusal(comm, fields["name"], fields["extra"].get("ngraph", {}))
        if refusal:
            await comm.write({"status": "error", "message": refusal, "time": time.time()})
            return
        # Releases were compared; distributed would also warn of whatever else is installed otherwise.
        await self.add_worker(comm, **{**fields, "versions": get_versions()})

    def on_heartbeat(self, comm: Comm, address: str, **fields: Any) -> dict[str, Any]:
        """Note that an agent lives. Small labs need no more heartbeats than large ones."""
        self._own(comm, address)
        answer: dict[str, Any] = self.heartbeat_worker(address=address, **fields)
        if "heartbeat-interval" in answer:
            answer["heartbeat-interval"] = max(answer["heartbeat-interval"], engine.HEARTBEAT_SECONDS)
        return answer

    async def unregister(self, comm: Comm, address: str, stimulus_id: str, **_: Any) -> Any:
        """Remove an agent that leaves."""
        self._own(comm, address)
        return await self.remove_worker(address, stimulus_id=stimulus_id)

    def _own(self, comm: Comm, address: str) -> None:
        """Raise PermissionError where an agent speaks for another one."""
        worker, (_, name) = self.workers.get(address), whose(comm)
        if worker is not None and worker.name != name:
            raise PermissionError(f"the agent {name!r} may not speak for {worker.name!r}")

    def ngraph_welcome(self, comm: Comm, name: str, facts: dict[str, Any]) -> dict[str, str]:
        """Return why an agent cannot join (``refused``), or who has its name now (``taken``), or nothing where it can.

        ``revoked`` is the CA's list of revoked certificates, as PEM.
        """
        revoked = tls.revoked_file(self._files.ca)
        return {
            "refused": self._refusal(comm, name, facts),
            "taken": self.aliases.get(name, ""),
            "revoked": revoked.read_text() if revoked.is_file() else "",
        }

    async def handle_stream(self, comm: Comm, extra: dict[str, Any] | None = None) -> None:
        """Serve a client's or an agent's own connection. It can do nothing in another's name."""
        said = extra or {}
        await read_stream(comm, self._from_clients if "client" in said else self._from_agents, said)

    # What is asked on the streams

    async def submit(
        self, client: str, key: str, task: str, text: str, resources: Mapping[str, float], **_: Any
    ) -> None:
        """Queue a task for an agent: one of the functions that agents know by name, of text.

        It comes after all that are here, whatever the clock of its client says: a priority in the message counts for
        nothing.
        """
        plain = all(isinstance(each, str) for each in (key, task, text))
        wanted = {str(name): float(amount) for name, amount in resources.items()}
        if not plain or not wanted or len(key) > _LONGEST_KEY or key in self.tasks:
            raise ValueError("a request names a task, a text, a resource and a key of its own")
        await self.update_graph(
            client=client,
            expr_ser=Serialized({"serializer": _REQUEST}, [key, task, text]),
            keys={key},
            span_metadata={"collections": []},
            internal_priority={key: 0},
            submitting_task=None,
            # Else the last to come is the first to be served.
            annotations={"resources": wanted, "priority": -next(self._arrivals), "retries": 0},
        )

    def cancel(self, client: str, keys: Sequence[str], **_: Any) -> None:
        """Take a client's own tasks back."""
        self.stimulus_cancel(list(keys), client, force=False, reason="cancelled", msg="")

    def publish(self, worker: str, topic: str, msg: Any) -> None:
        """Forward what an agent sends of its requests to those who wait for it."""
        state = self.workers.get(worker)
        if state is not None and topic == topic_of(state.name):
            self.log_event(topic, msg)

    # What it says

    def _task_to_msg(self, ts: Any) -> dict[str, Any]:
        """Return what an agent is sent for a task: no code, but the name of one of its functions, and a text."""
        message: dict[str, Any] = super()._task_to_msg(ts)
        return {**message, "run_spec": list(ts.run_spec.args), "annotations": {}}

    def send_all(self, client_msgs: dict[str, list[Any]], worker_msgs: dict[str, list[Any]]) -> None:
        """Send messages. The failure of a task is sent in words, as no exception is unpickled."""
        said = {client: [_in_words(self, each) for each in messages] for client, messages in client_msgs.items()}
        super().send_all(said, worker_msgs)

    def report(self, msg: dict[str, Any], ts: Any = None, client: str | None = None) -> None:
        """Send a message to the clients that it concerns."""
        super().report(_in_words(self, msg), ts=ts, client=client)

    def _refusal(self, comm: Comm, name: str, facts: dict[str, Any]) -> str:
        role, own = whose(comm)
        if role != tls.AGENT or own != name:
            return f"this is the certificate of the {role} {own!r}, not of the agent {name!r}"
        return handshake.difference(facts) or ""

    def _busy(self, agent: AgentState) -> AgentState:
        """Return an agent's state with what it does now."""
        worker = self.workers.get(self.aliases.get(agent.name, ""))
        if worker is None:
            return agent
        measured = worker.metrics.get("ngraph") or {}
        # First in, first out; what an agent says that it executes comes with its heartbeats.
        tasks = sorted(worker.processing, key=lambda task: (task not in worker.executing, task.priority or ()))
        state = replace(
            agent,
            free_disk_bytes=measured.get("free_disk_bytes"),
            expires=measured.get("expires", agent.expires),
            waiting=max(0, len(tasks) - 1),
        )
        if not tasks:
            return state
        people = sorted({self._people.get(client.client_key, "somebody") for client in tasks[0].who_wants or ()})
        seconds = worker.executing.get(tasks[0])
        since = None if seconds is None else worker.last_seen - seconds
        return replace(state, busy_with=", ".join(people) or "somebody", busy_since=since)


class Book(SchedulerPlugin):
    """Which agents there are, and since when they are there or gone: kept in a file, so that a new hub knows them."""

    name = "ngraph-book"

    def __init__(self, file: Path) -> None:
        self._file, self._names = file, dict[str, str]()
        self.agents: dict[str, AgentState] = {}
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            known = [AgentState(**{**one, "pools": tuple(one["pools"])}) for one in kept]
        except FileNotFoundError:
            known = []
        except (OSError, ValueError, TypeError, KeyError):
            raise SpecError(f"{file}: is damaged; remove it (it only says since when agents are offline)") from None
        now = time.time()
        self.agents = {one.name: replace(one, online=False, since=now if one.online else one.since) for one in known}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Write down that an agent came."""
        state = scheduler.workers[worker]
        facts = state.extra.get("ngraph", {})
        self._names[worker] = state.name
        self.agents[state.name] = AgentState(
            name=state.name,
            online=True,
            since=time.time(),
            address=worker,
            pools=tuple(facts.get("pools", ())),
            expires=facts.get("expires"),
            facts={key: facts.get(key) for key in handshake.mine()},
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


# How dask.distributed calls what has another name here.
_OPS = {
    "on_heartbeat": "heartbeat_worker",
    "gather_text": "gather",
}
KILLED = "KilledWorker"
_LOOK_SECONDS = 2.0
_REQUEST, _LONGEST_KEY = "ngraph-request", 200


def _refuse(task: str, text: str) -> None:
    raise AssertionError("a hub runs nothing")


def _request(header: Mapping[str, Any], parts: Sequence[str]) -> LLGExpr:
    """Return the graph of one task, which is its name and a text."""
    key, task, text = parts
    return LLGExpr({key: Task(key, _refuse, task, text)})


register_serialization_family(_REQUEST, None, _request)


def _in_words(hub: Scheduler, message: dict[str, Any]) -> dict[str, Any]:
    if message.get("op") != "task-erred":
        return message
    task = hub.tasks.get(message["key"])
    if task is None:
        text = "the hub cannot queue it"
    else:
        # Of an agent that went away distributed keeps no words.
        text = (task.exception_blame or task).exception_text or KILLED
    return {**message, "exception": text, "traceback": None}


def run_hub(folder: Path, host: str, port: int, say: Callable[[str], None]) -> None:
    """Run a hub until SIGINT or SIGTERM, with what ``ngraph enroll --hub`` made and was unpacked in its folder.

    It speaks TLS only, on whatever address. Raises SpecError where it cannot listen there, where its files are not as
    they must be, and where it would serve other machines while it can read the CA's key.
    """
    files = tls.HubFolder.of(folder)
    keys = (config / "ca" / tls.CA_KEY for config in (folder.parent, config_folder()))
    serving.keep_from(keys, "the hub's user can read the key of the lab's CA; it", host, "hub", say)
    # Each device holds about three files open; many systems allow 1024 where nobody asks for more.
    doors.raise_file_limit()
    logs.log_seldom()
    try:
        asyncio.run(_serve(files, host, port, say))
    except OSError as error:
        raise engine.cannot_listen("hub", host, port, error) from None


async def _serve(files: tls.HubFolder, host: str, port: int, say: Callable[[str], None]) -> None:
    ended = serving.ended_by_signal()
    hub = Hub(files, host, port)
    try:
        await hub
    except RuntimeError as error:
        raise error.__cause__ if isinstance(error.__cause__, OSError) else error from None
    async with hub:
        address = engine.reached_at(host, hub.port)
        tls.write_private(files.folder / "address", f"{address}\n".encode())
        mine = HubEntry("lab", address, files.ca, files.certificate, files.key)
        renewing = await Renewal(mine, say).begin()
        until = f"{tls.identity_of(files.certificate).expires:%Y-%m-%d}"
        say(f"hub of {files.folder} listens on {address}, certificate until {until}")
        if is_loopback(host):
            say("only this machine can reach it; for a lab: ngraph hub --host ADDRESS (0.0.0.0: all of this machine's)")
        say("next, on the CA's machine: ngraph enroll NAME for each board, ngraph enroll NAME --client for each user")
        await ended.wait()
        renewing.cancel()
        say("hub ends; agents come back when it does")
