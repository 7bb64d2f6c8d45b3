"""How noisy this machine is: a fixed piece of work timed in short visits, and what took the CPU meanwhile."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.measure.covariates import Covariates
from pytest_ngraph.measure.timing import visit
from pytest_ngraph.spec import Visit

_STEPS = 12_000
_VISIT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class NoiseProfile:
    """What a few seconds of measuring the same work say.

    ``visit_scatter`` is the standard deviation of ln(median time) over visits, ``call_scatter`` that of single calls
    within visits (both robust, as fractions); ``run_delay_share`` is time ready to run but not running over wall;
    ``others_cpus`` is how many CPUs other processes kept busy, None where that cannot be read.
    """

    visit_scatter: float
    call_scatter: float
    run_delay_share: float | None
    others_cpus: float | None
    visits: int

    @property
    def grade(self) -> str:
        """Grade the machine: quiet, noisy or unusable, by what a gate of 5 % needs (MEASUREMENT: achieved)."""
        worst = max(self.visit_scatter, self.run_delay_share or 0.0, 0.1 * (self.others_cpus or 0.0))
        return "quiet" if worst < 0.02 else "noisy" if worst < 0.2 else "unusable"


class _Work(Executable):
    """A fixed loop of arithmetic: about a millisecond of one core, no memory, no threads."""

    def run(self) -> None:
        value = 1
        for step in range(_STEPS):
            value = (value * 31 + step) & 0xFFFF


def noise_profile(seconds: float) -> NoiseProfile:
    """Measure for about so many seconds on this process's CPUs."""
    work = _Work()
    covariates = Covariates()
    began, cpu_began, busy_began = time.perf_counter(), time.process_time(), _busy_seconds()
    visits: list[Visit] = []
    try:
        while time.perf_counter() - began < seconds or len(visits) < 5:
            visits.append(
                visit(
                    work, calls=1, seconds=_VISIT_SECONDS, least_batches=8, discard_seconds=0.005, covariates=covariates
                )
            )
    finally:
        covariates.close()
    wall = time.perf_counter() - began
    ours = time.process_time() - cpu_began
    busy = _busy_seconds()
    others = None if busy is None or busy_began is None else max(0.0, busy - busy_began - ours) / wall
    medians = [math.log(_median(one.wall_ns)) for one in visits]
    inner = [
        abs(math.log(wall_ns) - middle) for one, middle in zip(visits, medians, strict=True) for wall_ns in one.wall_ns
    ]
    delays = [sum(one.run_delay_ns) / sum(one.wall_ns) for one in visits if one.run_delay_ns]
    return NoiseProfile(
        visit_scatter=1.4826 * _median([abs(value - _median(medians)) for value in medians]),
        call_scatter=1.4826 * _median(inner),
        run_delay_share=sum(delays) / len(delays) if delays else None,
        others_cpus=others,
        visits=len(visits),
    )


def _median(values: list[float] | tuple[int, ...]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _busy_seconds() -> float | None:
    """Return the CPU seconds that this machine has spent on anything, or None where it does not say."""
    from pytest_ngraph.environment import snapshot

    busy = snapshot()["busy_seconds"]
    return float(busy) if busy is not None else None
