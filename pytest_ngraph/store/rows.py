"""What the store gives back besides launches: runs and verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from pytest_ngraph.stats.verdict import Verdict

_LOCAL = "local"
# What stands in the row of a run whose own was damaged, as far as nothing else of it says more.
UNKNOWN_PROTOCOL, UNKNOWN_TIME = "?", "1970-01-01T00:00:00.000+00:00"
# Of a run's environment as it is stored: what is not a fact of the first device.
_OTHERS, _LEFT_OUT = "others", "left_out"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a run was asked for and nothing was installed to measure with: cells of a compiler and a model, and why.

    ``labels`` are those of the cells. Runs of before 0.4.0 have only how many these are.
    """

    device: str
    compiler: str
    model: str
    reason: str
    cells: int
    labels: tuple[str, ...] = ()

    @classmethod
    def read(cls, row: Sequence[Any]) -> LeftOut:
        """Read what was kept of one."""
        device, compiler, model, reason, cells, *labels = row
        return cls(device, compiler, model, reason, cells, tuple(*labels))


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of a suite. ``status`` is ``running`` until the run says how it ended. Times of day are UTC, ISO 8601.

    ``environment`` is what machine the first of its devices is. ``on`` gives the run as another one saw it.
    """

    id: int
    uid: str
    started_at: str
    finished_at: str | None
    status: str
    command: tuple[str, ...]
    seed: int
    protocol: str
    environment: Mapping[str, Any]
    fresh: bool
    resumed: bool
    environment_end: Mapping[str, Any] | None = None
    left_out: tuple[LeftOut, ...] = ()

    def on(self, device: str) -> RunRow:
        """Return the run with the environments of one of its devices. Those of the first where it has no others."""
        begun = facts_of(self.environment, device) or self.environment
        end = None if self.environment_end is None else facts_of(self.environment_end, device)
        return replace(self, environment=begun, environment_end=end)


@dataclass(frozen=True, slots=True)
class Origin:
    """What an export was made from: a run by its number, and the digest of the launches that count for its cells."""

    run: int
    digest: str

    def __str__(self) -> str:
        return f"made by pytest-ngraph from run {self.run}, launches {self.digest}"


def with_facts(known: Mapping[str, Any] | None, device: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's environment with what machine a device is: the first device's facts, the others' beside them."""
    if not known or known.get("device", _LOCAL) == device:
        beside = {name: known[name] for name in (_OTHERS, _LEFT_OUT) if known and name in known}
        return {**facts, **({} if device == _LOCAL else {"device": device}), **beside}
    return {**known, _OTHERS: {**known.get(_OTHERS, {}), device: facts}}


def with_left_out(known: Mapping[str, Any], rows: Iterable[LeftOut]) -> dict[str, Any]:
    """Return a run's environment with what was left out, once where several processes say it."""
    found: dict[tuple[str, ...], LeftOut] = {}
    for row in (*map(LeftOut.read, known.get(_LEFT_OUT, ())), *rows):
        place = (row.device, row.compiler, row.model, row.reason)
        before = found.get(place, row)
        labels = tuple(sorted({*before.labels, *row.labels}))
        # Without labels nobody knows how many they are together.
        cells = len(labels) if before.labels and row.labels else max(before.cells, row.cells)
        found[place] = replace(row, cells=cells, labels=labels)
    return {**known, _LEFT_OUT: sorted(map(astuple, found.values()))}


def split_left_out(environment: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[LeftOut, ...]]:
    """Return a run's environment as ``RunRow`` has it, and what was left out."""
    facts = {name: fact for name, fact in environment.items() if name != _LEFT_OUT}
    return facts, tuple(map(LeftOut.read, environment.get(_LEFT_OUT, ())))


def facts_of(environment: Mapping[str, Any], device: str) -> Mapping[str, Any] | None:
    """Return what a run's environment says of one of its devices, or None."""
    if environment.get("device", _LOCAL) == device:
        return {name: fact for name, fact in environment.items() if name not in ("device", _OTHERS, _LEFT_OUT)}
    found: Mapping[str, Any] | None = environment.get(_OTHERS, {}).get(device)
    return found


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """One finished launch of a run without its samples: the machine at its start and end, and why it does not count."""

    id: int
    number: int
    seed: int
    invalid: str
    environment: Mapping[str, Any]
    environment_end: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One claim of a test as it was judged, its numbers in the unit of the metric.

    ``tolerance`` and ``smallest_effect`` are fractions on log-scale metrics and amounts on linear ones. ``None``
    means there is no such number. A NaN comes back as ``None``. Within a run a test's claims have distinct texts.
    """

    nodeid: str
    claim: str
    metric: str
    bound: float | None
    at_least: bool
    tolerance: float | None
    estimate: float | None
    low: float | None
    high: float | None
    launches: int
    verdict: str
    smallest_effect: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Return whether the claim was to be judged and is neither held nor failed."""
        return self.verdict in (Verdict.INCONCLUSIVE, Verdict.INVALID)
