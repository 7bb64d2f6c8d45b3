"""The link to a remote device: its hub, the agent that is meant, and the one task that is under way."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.devices.agent.tasks import topic_of
from pytest_ngraph.errors import DeviceLost, DeviceOffline, DeviceUnusable

if TYPE_CHECKING:
    from distributed import Future

    from pytest_ngraph.devices.doors.client import LabClient
    from pytest_ngraph.devices.doors.status import AgentState
    from pytest_ngraph.devices.registry import DeviceEntry, HubEntry

_CONNECT_SECONDS, _CLOSE_SECONDS, _TRY_SECONDS = 10.0, 3.0, 1.0
# A cut link shows in nothing but silence: it is asked every so often, and given up in less than 35 s.
_PULSE_SECONDS, _PATIENCE_SECONDS = 5.0, 20.0
_GATHER_SECONDS = 30.0


class Link:
    """Reaches one device. It is asked from one thread, while ``close`` may come from any.

    Of a pool the first free agent is taken, and from then on only that one: launches of two boards are not compared.
    """

    def __init__(self, entry: DeviceEntry, hub: HubEntry, note: Callable[[str], None]) -> None:
        self._entry, self._hub, self._note = entry, hub, note
        self._agent: AgentState | None = None
        self._client: LabClient | None = None
        self._inbox: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._closed = False
        self._seen = 0.0

    @property
    def is_open(self) -> bool:
        """Return whether the link is open, as far as is known."""
        return self._client is not None

    @property
    def agent(self) -> str:
        """Return the name of the agent. It is known once the link was open."""
        return self._agent.name if self._agent is not None else str(self._entry.resource)

    def open(self, wait_seconds: float) -> None:
        """Connect, or wait up to so many seconds until that is possible.

        Raises DeviceOffline with since when, and DeviceUnusable where hub and client do not accept each other.
        """
        from pytest_ngraph.devices.doors import engine
        from pytest_ngraph.devices.signing.renewing import Renewal

        engine.require()
        if warning := Renewal(self._hub, self._note).look():
            self._note(f"WARNING: {warning}")
        deadline, noted = time.monotonic() + wait_seconds, False
        while True:
            self.refuse_closed()
            try:
                self._open()
                return
            except DeviceOffline as offline:
                if time.monotonic() >= deadline:
                    raise
                if not noted:
                    self._note(f"{offline}; waiting for it up to {wait_seconds:g} s")
                    noted = True
            time.sleep(min(_TRY_SECONDS, max(0.0, deadline - time.monotonic())))

    def ask(self, task: Callable[[str], str], text: str, on_line: Callable[[str], None]) -> str:
        """Submit one of the three tasks and return its result. ``on_line`` gets the lines that come before it.

        Whatever interrupts the waiting, a Ctrl-C too, takes the task back, which frees the device at once. Raises
        DeviceLost where link, hub or agent go away meanwhile.
        """
        client, agent = self._client, self._agent
        if client is None or agent is None:
            raise DeviceLost(f"device {self._entry.name!r}: there is no link to it")
        key = f"{task.__name__}-{uuid.uuid4().hex}"
        future: Future[str] | None = None
        try:
            with self._clearly():
                future = client.ask(task.__name__, text, key, {f"device:{agent.name}": 1})
                future.add_done_callback(lambda _: self._inbox.put(None))
            self._wait(client, future, key, on_line)
            with self._clearly():
                return str(future.result(timeout=_GATHER_SECONDS))
        except (DeviceLost, DeviceUnusable):
            self.drop()
            raise
        finally:
            if future is not None and not future.done():
                with contextlib.suppress(Exception):
                    future.cancel()

    def close(self) -> None:
        """Release the device. A task that is under way is taken back."""
        self._closed = True
        self._inbox.put(None)
        self.drop()

    def refuse_closed(self) -> None:
        """Raise DeviceLost where the device was released."""
        if self._closed:
            raise DeviceLost(f"device {self._entry.name!r}: it was released")

    def drop(self) -> None:
        """Give the connection up. ``open`` makes another."""
        client, self._client = self._client, None
        if client is not None:
            # Its end is the end of its tasks, too.
            with contextlib.suppress(Exception):
                client.close(timeout=_CLOSE_SECONDS)

    # Opening

    def _open(self) -> None:
        from pytest_ngraph.devices.doors import engine

        client = engine.connect(self._hub, _CONNECT_SECONDS)
        try:
            self._agent = self._chosen(engine.agents(client))
            self._inbox = queue.SimpleQueue()
            client.subscribe_topic(topic_of(self._agent.name), self._received)
        except BaseException:
            with contextlib.suppress(Exception):
                client.close(timeout=_CLOSE_SECONDS)
            raise
        self._client, self._seen = client, time.monotonic()

    def _chosen(self, book: Mapping[str, AgentState]) -> AgentState:
        from pytest_ngraph.devices.doors.status import moment

        name = self._agent.name if self._agent is not None else self._entry.resource
        if name is not None:
            mates = [book[name]] if name in book else []
        else:
            mates = [agent for agent in book.values() if self._entry.pool in agent.pools]
        online = [agent for agent in mates if agent.online]
        if online:
            return min(online, key=lambda agent: (agent.busy_with is not None, agent.waiting, agent.name))
        what = f"agent {name!r}" if name is not None else f"pool {self._entry.pool!r}"
        device = f"device {self._entry.name!r}"
        if not mates:
            raise DeviceOffline(f"{device}: {what} was never seen by the hub; run there: ngraph agent {name or 'NAME'}")
        latest = max(mates, key=lambda agent: agent.since)
        raise DeviceOffline(
            f"{device}: {what} is offline since {moment(latest.since)}; run there: ngraph agent {latest.name}"
        )

    def _received(self, event: tuple[float, Any]) -> None:
        """Take what an agent sends, in the client's own thread."""
        said = event[1]
        if isinstance(said, (list, tuple)) and len(said) == 2:
            self._inbox.put((str(said[0]), str(said[1])))

    # Waiting

    def _wait(self, client: LabClient, future: Future[str], key: str, on_line: Callable[[str], None]) -> None:
        # Nothing was looked at since the last request: only what is silent from now on is.
        self._seen = asked = time.monotonic()
        waits = True
        while not future.done():
            with contextlib.suppress(queue.Empty):
                event = self._inbox.get(timeout=_PULSE_SECONDS)
                # Lines of others that wait for the same device come on the same topic.
                if event is not None and event[0] == key:
                    waits = False
                    on_line(event[1])
            self.refuse_closed()
            if time.monotonic() - asked >= _PULSE_SECONDS:
                self._feel_pulse(client)
                waits = waits and not self._note_who_has_it(client)
                asked = time.monotonic()

    def _note_who_has_it(self, client: LabClient) -> bool:
        """Report who measures on the device where that is somebody else. Return whether it was reported."""
        from pytest_ngraph.devices.doors import engine
        from pytest_ngraph.devices.trust import tls

        with contextlib.suppress(DeviceOffline, DeviceUnusable):
            state, mine = engine.agents(client).get(self.agent), tls.identity_of(self._hub.certificate).name
            if state is not None and state.waiting and (state.busy_with or mine).partition("@")[0] != mine:
                self._note(f"waiting for device {self._entry.name!r}: {state.busy_with} measures there")
                return True
        return False

    def _feel_pulse(self, client: LabClient) -> None:
        """See whether hub and agent are there. Raise DeviceLost when one of them has not been for too long."""
        assert self._agent is not None
        silent = f"its hub {self._hub.name!r} at {self._hub.address} does not answer"
        try:
            ask = client.scheduler.ncores
            there = client.sync(ask, workers=[self._agent.address], callback_timeout=_PULSE_SECONDS - 1)
            if self._agent.address in there:
                self._seen = time.monotonic()
            silent = f"its agent {self._agent.name!r} has left the hub"
        except (OSError, RuntimeError, asyncio.TimeoutError):
            pass
        gone = time.monotonic() - self._seen
        if gone > _PATIENCE_SECONDS:
            raise DeviceLost(f"device {self._entry.name!r}: {silent} for {gone:.0f} s")

    @contextlib.contextmanager
    def _clearly(self) -> Iterator[None]:
        """Raise an error of the engine as what it means for the device."""
        from concurrent.futures import CancelledError

        from distributed.client import ClosedClientError

        name = f"device {self._entry.name!r}"
        try:
            yield
        except (CancelledError, ClosedClientError, OSError, asyncio.TimeoutError):
            hub = f"{self._hub.name!r} at {self._hub.address}"
            raise DeviceLost(f"{name}: the link to its hub {hub} was lost") from None
        except Exception as error:  # noqa: BLE001 - a task that failed raises its words as an Exception
            if str(error).startswith("KilledWorker"):
                raise DeviceLost(f"{name}: its agent {self.agent!r} was killed or lost its link to the hub") from None
            said = f"{type(error).__name__}: {error}"
            raise DeviceUnusable(f"{name}: its agent {self.agent!r} does not do what it must: {said}") from None
