"""What configurations are compared by: objectives, each a metric with its direction, and limits on them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pytest_ngraph.errors import SpecError, known
from pytest_ngraph.metrics import METRICS, Metric
from pytest_ngraph.quantities.accuracy import ACCURACY, TOP1
from pytest_ngraph.spec.evaluations import is_score_name

# How large a difference counts as none: a fraction, and of shares of samples an amount.
TOLERANCE, SHARE_TOLERANCE = 0.05, 0.01
# By objective the metrics that it may be, of which the first that there is counts.
_METRICS: Mapping[str, tuple[str, ...]] = {
    "latency": ("latency",),
    "throughput": ("throughput",),
    "accuracy": ("accuracy",),
    "agreement": ("agreement",),
    "memory": ("peak_memory_bytes",),
    "size": ("model_bytes",),
    "packed": ("packed_bytes",),
    "energy": ("energy_joules", "joules_per_sample", "energy"),
}
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-zµ%/]*)\s*", re.IGNORECASE)
_UNITS: Mapping[str, Mapping[str, float]] = {
    "s": {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
    "bytes": {
        "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30,
    },
    "samples/s": {"": 1.0, "/s": 1.0, "samples/s": 1.0},
    "J": {"j": 1.0, "mj": 1e-3, "uj": 1e-6},
    "": {"": 1.0, "%": 0.01},
}  # fmt: skip
_EXAMPLES = {"s": "20ms", "bytes": "200MiB", "samples/s": "250", "J": "0.5J", "": "0.9 or 90%"}


@dataclass(frozen=True, slots=True)
class Objective:
    """What is to be small or large: its name, the metric that it is, and how large a difference counts as none.

    ``tolerance`` is a fraction, on linear metrics an amount in the metric's unit.
    """

    name: str
    metric: Metric
    tolerance: float

    @property
    def of(self) -> str:
        """Return which score of a model's evaluation it is, or nothing where that is not said: ``accuracy:NAME``."""
        return self.name.partition(":")[2]

    @property
    def quantity(self) -> str:
        """Return the metric, with what it is of, as measurements know it."""
        return f"{self.metric.name}:{self.of}" if self.of else self.metric.name

    @property
    def is_higher_better(self) -> bool:
        """Return whether more of it is better."""
        return self.metric.better == "higher"

    @property
    def zone(self) -> float:
        """Return the tolerance on the metric's working scale."""
        return -math.log1p(-self.tolerance) if self.metric.scale == "log" else self.tolerance

    @property
    def helper(self) -> str:
        """Name the assertion helper that claims a bound on it, or nothing where there is none."""
        base = self.name.partition(":")[0]
        return {"latency": "assert_latency", "throughput": "assert_throughput", "memory": "assert_memory",
                "accuracy": "assert_accuracy", "agreement": "assert_agreement"}.get(base, "")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limit:
    """What a configuration must keep to: at most ``value`` of what is to be small, at least so much of the others."""

    objective: Objective
    value: float

    @property
    def side(self) -> str:
        """Return the direction as the helpers write it."""
        return "at_least" if self.objective.is_higher_better else "at_most"

    def __str__(self) -> str:
        return f"{self.objective.name} {self.side.replace('_', ' ')} {self.objective.metric.format(self.value)}"


def _metric_of(name: str) -> Metric | None:
    return next((METRICS[metric] for metric in _METRICS[name] if metric in METRICS), None)


OBJECTIVES: Mapping[str, Metric] = MappingProxyType(
    {name: metric for name in _METRICS if (metric := _metric_of(name)) is not None}
)


def is_share(metric: Metric) -> bool:
    """Return whether a metric is a share of samples, such as accuracy."""
    return metric.scale == "linear" and not metric.unit


def _known(name: str, place: str) -> Metric:
    """Return the metric of an objective. ``accuracy:NAME`` is another score of the model's evaluation than top1."""
    base, colon, of = name.partition(":")
    if base not in OBJECTIVES or (colon and (base != ACCURACY or not is_score_name(of))):
        raise SpecError(f"{place}: unknown objective {name!r} ({known(name, [*OBJECTIVES, 'accuracy:NAME'])})")
    return OBJECTIVES[base]


def objective(name: str, place: str, tolerances: Mapping[str, float] | None = None) -> Objective:
    """Return an objective by its name. Raise SpecError, which begins with ``place``, where there is none."""
    given, metric = tolerances or {}, _known(name, place)
    # One objective has one name.
    name = name.removesuffix(f":{TOP1}")
    usual = SHARE_TOLERANCE if is_share(metric) else given.get("", TOLERANCE)
    return Objective(name, metric, given.get(name, usual))


def objectives(
    names: Iterable[str], place: str, tolerances: Mapping[str, float] | None = None
) -> tuple[Objective, ...]:
    """Return several objectives. Raise SpecError where there are none, one is unknown or stands there twice."""
    given = [name.strip() for name in names]
    if not given or len(set(given)) < len(given):
        raise SpecError(
            f"{place}: {', '.join(given) or 'nothing'} (expected different ones of {', '.join(OBJECTIVES)})"
        )
    found = {each.name: each for each in (objective(name, place, tolerances) for name in given)}
    if len(found) < len(given):
        raise SpecError(f"{place}: {', '.join(given)} (expected different ones: {ACCURACY} is {ACCURACY}:{TOP1})")
    return tuple(found.values())


def read_tolerances(texts: Sequence[str], place: str) -> dict[str, float]:
    """Read tolerances: ``0.05`` of all fractions, under the empty name, and ``NAME=VALUE`` of one objective."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        name = name.strip()
        name = objective(name, place).name if equals else ""
        match = _NUMBER.fullmatch(value)
        factor = {"": 1.0, "%": 0.01}.get(match[2]) if match else None
        if match is None or factor is None or not 0 <= float(match[1]) * factor < 1:
            raise SpecError(
                f"{place}: {text!r} (expected a fraction from 0 on and below 1, such as 0.05, or latency=0.02)"
            )
        found[name] = float(match[1]) * factor
    return found


def limit(name: str, text: str, tolerances: Mapping[str, float] | None = None) -> Limit:
    """Read a limit as people write it, such as ``20ms`` or ``200MiB``. Raise SpecError that says what is allowed.

    ``map=0.5`` is a limit of another score of the model's evaluation than top1.
    """
    place = f"--{name}"
    if name == ACCURACY and "=" in text:
        score, _, text = text.partition("=")
        name = f"{name}:{score.strip()}"
    of, match = objective(name, place, tolerances), _NUMBER.fullmatch(text)
    units = _UNITS.get(of.metric.unit, {"": 1.0, of.metric.unit.lower(): 1.0})
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        example = _EXAMPLES.get(of.metric.unit, "a number")
        raise SpecError(f"{place}: {text!r} (expected {example}; units: {', '.join(filter(None, units)) or 'none'})")
    value = float(match[1]) * factor
    if not (math.isfinite(value) and value > 0):
        raise SpecError(f"{place}: {text!r} (expected a number above 0)")
    if is_share(of.metric) and value > 1:
        raise SpecError(f"{place}: {text!r} (expected a share of samples up to 1, such as 0.9 or 90%)")
    return Limit(of, value)
