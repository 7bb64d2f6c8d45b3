"""Whether a part is slow: the claim of a gate, with its error rate, on launches of the part and of its baseline."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_ngraph.claims.assertions import assert_speedup
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.options.settings import Budget, Settings
from pytest_ngraph.plan.items import item_plan
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import CellFailed, Measurer, NotStored
from pytest_ngraph.reducing.failing import Failure
from pytest_ngraph.reducing.trying import cell_of
from pytest_ngraph.session.session import Session
from pytest_ngraph.spec.cells import PROTOCOLS
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.texts.shown import one_line

# What belongs to a run of tests, and to none of these judgements.
_NOT_HERE: Mapping[str, Any] = {
    "models": None, "against": None, "side": None, "gate_changes": False, "compare": None, "bounds": None,
    "report": None, "export": (), "summary": None, "benchmark_json": None, "resume": False, "fresh": False,
    "offline": False, "run_seconds": None, "state": None, "noise_history": False, "inconclusive": "warn",
}  # fmt: skip
_CLAIM = "ngraph-reduce"


@dataclass(frozen=True, slots=True)
class Judged:
    """What a claim about a part came to: whether it is shown to be slow, the numbers, and what really ran.

    ``times`` has what a call of it takes, and a call of its baseline, each with its interval.
    """

    fails: bool
    words: str
    times: tuple[str, ...] = ()
    placement: tuple[tuple[str, str], ...] = ()


def settings_for(settings: Settings, store: Path) -> Settings:
    """Return the settings of judgements: those of a run, in a store of their own, by a protocol with error rates."""
    protocol = settings.protocol if settings.protocol.error_control else PROTOCOLS["gate"]
    return replace(settings, **_NOT_HERE, store=store, protocol=protocol)


class Quiet:
    """A session's listener that says nothing."""

    def group_started(self, name: str, cells: int, launches: int, seconds: float) -> None:
        """Say nothing."""

    def progress(self, name: str, launch: int, of: int, doing: str, done: int, total: int) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def idle(self) -> None:
        """Say nothing."""


class Judge:
    """Judges whether files are slow as a failure is, with gates of a run's own engine."""

    def __init__(
        self, settings: Settings, catalogue: Catalogue, bench: LocalBench, failure: Failure, command: Sequence[str]
    ) -> None:
        self._settings, self._catalogue, self._bench = settings, catalogue, bench
        self._failure, self._command = failure, tuple(command)

    def judge(self, path: Path, batch: int, rate: float, name: str) -> Judged:
        """Judge a file at an error rate. What is undecided, or has no time, is not shown to be slow."""
        failure = self._failure
        assert failure.at_least is not None
        settings = replace(self._settings, error_rate=rate)
        session = Session(settings, self._catalogue, self._bench, Quiet(), uid=name, command=self._command)
        status = "interrupted"
        try:
            cell = cell_of(path, batch, failure.cell)
            plan = item_plan(
                f"{_CLAIM}::{name}",
                [cell],
                settings,
                baseline=failure.baseline,
                budget=Budget(settings.budget.launches or 16),
                tolerance=failure.tolerance or settings.tolerance,
            )
            session.plan([plan])
            one = Measurement(Measurer(session, plan.nodeid), plan.cells[0], plan.baselines[0])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    assert_speedup(one, at_least=failure.at_least, tolerance=failure.tolerance or None)
                except AssertionError:
                    # Its verdict says the same.
                    pass
                except CellFailed as failed:
                    return Judged(False, f"no time: {failed.record.outcome}: {one_line(failed.record.reason, 120)}")
                except NotStored:
                    # Nothing could be measured, which is no judgement.
                    raise
                except NgraphError as error:
                    return Judged(False, f"not judged: {one_line(str(error), 120)}")
            status = "finished"
            row = session.verdicts[-1]
            base = Measurement(one.source, one.baseline, one.baseline)
            times = (
                tuple(f"{each.cell.compiler}: {each.latency} a call" for each in (one, base)) if row.launches else ()
            )
            placement = one.record.placement if row.launches else ()
        finally:
            session.close(status)
        if row.estimate is None or row.low is None or row.high is None or not row.launches:
            return Judged(False, f"{row.verdict}: {one_line(str(row.extra.get('reason', '')), 120)}")
        numbers = f"{row.estimate:.3f}x [{row.low:.3f}, {row.high:.3f}] in {row.launches} launches"
        fails = row.verdict == Verdict.FAIL
        said = "slow" if fails else "undecided" if row.is_open else "not slow"
        return Judged(fails, f"{said}: {numbers}", times, placement)
