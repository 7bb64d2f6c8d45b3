"""What a hub knows of its agents, and the table that ``ngraph devices`` makes of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from pytest_ngraph import units
from pytest_ngraph.devices.registry import DeviceEntry
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.errors import DeviceUnusable
from pytest_ngraph.texts.shown import clean

_WIDTH = 80


@dataclass(frozen=True, slots=True)
class AgentState:
    """An agent in a hub's book. Times are seconds since the epoch.

    ``since`` is when it came, or went; ``address`` where it listens; ``busy_with`` who has it measure, None where it is
    idle; ``waiting`` how many tasks wait for it; ``facts`` what handshake.mine says on it.
    """

    name: str
    online: bool
    since: float
    address: str = ""
    pools: tuple[str, ...] = ()
    busy_with: str | None = None
    busy_since: float | None = None
    waiting: int = 0
    free_disk_bytes: int | None = None
    expires: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HubState:
    """A hub, since when it runs, until when its certificate holds, and its agents."""

    since: float
    expires: float
    facts: Mapping[str, Any]
    agents: tuple[AgentState, ...]

    def to_json(self) -> str:
        """Write it as a line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> HubState:
        """Read what to_json wrote. Raises DeviceUnusable for anything else."""
        try:
            fields = json.loads(text)
            agents = tuple(_agent(agent) for agent in fields.pop("agents"))
            if not (_is_moment(fields["since"]) and _is_moment(fields["expires"])):
                raise TypeError("no moments")
            return cls(**fields, agents=agents)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise DeviceUnusable("the hub answers as another release would; run the same release there") from None


def _agent(fields: Mapping[str, Any]) -> AgentState:
    agent = AgentState(**{**fields, "pools": tuple(fields["pools"])})
    moments = (agent.since, *(at for at in (agent.busy_since, agent.expires) if at is not None))
    texts = (agent.name, agent.address, agent.busy_with or "", *agent.pools)
    free = 0 if agent.free_disk_bytes is None else agent.free_disk_bytes
    are_numbers = all(map(_is_moment, moments)) and type(agent.waiting) is int and type(free) is int
    if not (are_numbers and all(isinstance(text, str) for text in texts) and isinstance(agent.facts, dict)):
        raise TypeError("no agent")
    return agent


def _is_moment(at: object) -> bool:
    """Return whether this is a time of this and some more centuries, as local time has it."""
    return isinstance(at, (int, float)) and 0 <= at < 1e11


def moment(at: float, now: float | None = None) -> str:
    """Write a time as people do: ``14:05`` today, ``2026-11-20 14:05`` on another day, in local time."""
    then, today = time.localtime(at), time.localtime(now)
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)


def day(at: float) -> str:
    """Write a date, such as ``2027-11-20``."""
    return f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d}"


def hub_lines(
    state: HubState, entries: Sequence[DeviceEntry], difference: Callable[[Mapping[str, Any]], str | None]
) -> Iterator[str]:
    """Yield the table of a hub's devices: those of the registry, then agents that the registry does not name.

    ``difference`` says what of an agent's facts does not fit to this side, as handshake.difference does.
    """
    yield _cut(f"  up since {moment(state.since)}, certificate until {day(state.expires)}")
    if warning := tls.Identity(tls.HUB, "hub", datetime.fromtimestamp(state.expires, timezone.utc)).warning():
        yield f"  ! {warning}, again"
    book = {agent.name: agent for agent in state.agents}
    shown: set[str] = set()
    for entry in sorted(entries, key=lambda entry: entry.name):
        mates = [agent for agent in state.agents if entry.pool in agent.pools] if entry.pool is not None else []
        if entry.resource is not None and entry.resource in book:
            mates = [book[entry.resource]]
        if not mates:
            wanted = f"pool {entry.pool!r}" if entry.pool is not None else f"agent {entry.resource!r}"
            yield _cut(f"  {entry.name:<16}{wanted} was never seen; run there: ngraph agent {entry.resource or 'NAME'}")
        for agent in mates:
            label = entry.name if agent.name == entry.name else f"{entry.name}={agent.name}"
            yield from _agent_lines(label, agent, difference)
            shown.add(agent.name)
    for agent in sorted(state.agents, key=lambda agent: agent.name):
        if agent.name not in shown:
            yield from _agent_lines(f"({agent.name})", agent, difference)
    if shown != set(book):
        yield "  in brackets: agents that no device of the registry names"


def _agent_lines(label: str, agent: AgentState, difference: Callable[[Mapping[str, Any]], str | None]) -> Iterator[str]:
    if not agent.online:
        yield _cut(f"  {label:<16}offline since {moment(agent.since)}; run there: ngraph agent {agent.name}")
        return
    doing = "idle"
    if agent.busy_with is not None:
        doing = f"busy with {agent.busy_with}"
        if agent.busy_since is not None:
            doing += f" since {moment(agent.busy_since)}"
    waiting = f", {agent.waiting} waiting" if agent.waiting else ""
    yield _cut(f"  {label:<16}online since {moment(agent.since)}, {doing}{waiting}")
    free = "unknown" if agent.free_disk_bytes is None else units.size(agent.free_disk_bytes)
    facts = agent.facts
    yield _cut(
        f"  {'':<16}Python {facts.get('python')}, ngraph {facts.get('pytest-ngraph')}, "
        f"distributed {facts.get('distributed')}"
    )
    until = f", certificate until {day(agent.expires)}" if agent.expires is not None else ""
    yield _cut(f"  {'':<16}{free} of disk free{until}")
    if agent.expires is not None:
        expires = datetime.fromtimestamp(agent.expires, timezone.utc)
        if warning := tls.Identity(tls.AGENT, agent.name, expires).warning():
            yield f"  ! {warning}"
    if unlike := difference(facts):
        yield clean(f"  ! {agent.name}: {unlike}")


def _cut(line: str) -> str:
    """Return a clean line that fits 80 columns: agents and clients name themselves."""
    line = clean(line).replace("\n", " ")
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
