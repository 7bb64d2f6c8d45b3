"""The reduction of a test's cell: pytest runs the test, and where it fails its graph is cut in the same process."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ngraph import units
from pytest_ngraph.axes import row_of
from pytest_ngraph.commands.base import say_folded
from pytest_ngraph.commands.collected_tests import in_one_process
from pytest_ngraph.errors import NgraphError, SpecError
from pytest_ngraph.spec.cells import CompilerSpec, Outcome
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    from pytest_ngraph.front.run import State
    from pytest_ngraph.plan.items import ItemPlan
    from pytest_ngraph.reducing.failing import Failure
    from pytest_ngraph.session.session import Session
    from pytest_ngraph.spec.cells import Cell, CompilerSpec

_QUIET = ("-s", "-qq", "--tb=no", "--no-header", "--no-summary")
# What pytest keeps of a run in its cache, and orders and chooses tests by: that of the project stays as it is. Without
# the whole of the cache pytest would refuse options of it that an ini file has.
_OF_THE_CACHE = ("lfplugin", "nfplugin", "stepwiseplugin")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asked for, read."""

    test: str
    cell: str
    folder: Path
    keep_weights: bool
    baseline: CompilerSpec | None
    seconds: float
    error_rate: float
    store: Path
    force: bool = False


def reduce_test(asked: Asked, words: Sequence[str]) -> list[str]:
    """Run a test and reduce what fails of it. Return what to say at the end. ``words`` are further ones for pytest.

    Raises SpecError where pytest collects no such test and for what cannot be reduced, Ended where nothing is written,
    and KeyboardInterrupt.
    """
    mine = _Reducing(asked)
    given = [*_QUIET, f"--ngraph-store={asked.store}", *words, asked.test]
    status = int(pytest.main(given, plugins=[mine]))
    if mine.error is not None:
        raise mine.error
    if not mine.has_begun:
        raise SpecError(f"pytest collected no test to reduce (exit status {status}; 'pytest {asked.test}' says why)")
    return mine.lines


class _Reducing:
    """A plugin that reduces after the tests."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.error: BaseException | None = None
        self.has_begun = False
        self.lines: list[str] = []
        self._failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, object, object]:
        """Keep pytest-xdist from handing the tests to other processes, and pytest from its cache."""
        in_one_process(config)
        for name in _OF_THE_CACHE:
            config.pluginmanager.set_blocked(name)
        if hasattr(config.option, "cacheclear"):
            config.option.cacheclear = False
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """Keep pytest from printing a letter for each test."""
        return report.outcome, "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which tests do not pass."""
        if report.failed or (report.skipped and report.when == "call"):
            self._failed.append(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Run the tests, and reduce the first that fails."""
        try:
            done = yield
        except KeyboardInterrupt as error:
            self.error = error
            raise
        if session.items and not session.config.option.collectonly:
            from pytest_ngraph.front.run import STATE

            self.has_begun = True
            try:
                self.lines = _reduced(session.config.stash[STATE], self._asked, tuple(dict.fromkeys(self._failed)))
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - pytest would show it as its own
                self.error = error
        return done


def _reduced(state: State, asked: Asked, failed: Sequence[str]) -> list[str]:
    from pytest_ngraph.devices.local import LocalBench, job
    from pytest_ngraph.reducing.judging import settings_for
    from pytest_ngraph.reducing.reduction import Reduction, Terms, key_of

    session, plan, failure = _failing(state, asked, failed)
    cell, own = failure.cell, session.bench
    if not isinstance(own, LocalBench):
        raise SpecError(f"device {own.device.name!r} is not of this machine (expected tests on local or cuda)")
    if state.catalogue.get(cell.compiler.name).reads == "nothing":
        raise SpecError(f"{cell.compiler} reads nothing of the model, so that there is no graph to reduce")
    if (why := own.refusals([cell]).get(cell)) is not None:
        raise SpecError(f"{cell.label} is refused before its graph is read, so that there is none to reduce: {why}")
    refuse_other_calls(cell)
    if failure.outcome is Outcome.MISMATCH and cell.workload.precision not in ("f32", "tf32"):
        raise SpecError(
            f"{cell.label} gives wrong outputs, and its parts would be held to the bounds of f32 (what can be reduced "
            "in this precision: cells that are unsupported, fail, crash or are slow)"
        )
    say_folded(f"{plan.nodeid}: {cell.label}")
    say_folded(f"{failure.words}")
    keys = own.keys([cell])
    key = key_of(failure, plan.nodeid, keys[cell], asked.error_rate, session.settings)
    work = asked.store.parent / f"reduce-{key}"
    settings = settings_for(session.settings, work / "results.sqlite")
    shared = job(settings, state.catalogue, own.device, state.folders)
    bench = LocalBench(shared, state.catalogue, settings.protocol, settings.seed, own.rootdir)
    until = time.monotonic() + asked.seconds
    terms = Terms(
        failure, asked.folder, asked.keep_weights, asked.error_rate, until, work, key, say_folded, asked.force
    )
    reduction = Reduction(terms, settings, state.catalogue, own, bench)
    try:
        return reduction.go()
    finally:
        reduction.close()
        bench.close()


def refuse_other_calls(cell: Cell) -> None:
    """Raise SpecError for a cell whose calls are not those of one graph of fixed shapes, as those of its parts are."""
    for name in ("decode", "shapes", "neighbour"):
        row, value = row_of(name), cell.workload.value(name)
        if row is not None and value != row.default:
            raise SpecError(
                f"{cell.label}: {name}={value} is left out of what is tried, which is one graph of fixed shapes "
                f"(allowed: {row.default or 'none'}); reduce a cell without it that fails so, too"
            )


def _failing(state: State, asked: Asked, failed: Sequence[str]) -> tuple[Session, ItemPlan, Failure]:
    """Return what fails first, of what was asked for. Raise SpecError where that is nothing."""
    found: list[tuple[Session, ItemPlan, Failure]] = []
    refused: list[str] = []
    for session in state.sessions:
        for plan in session.plans:
            for cell in plan.cells:
                try:
                    failure = _failure(session, plan, cell, asked)
                except SpecError as error:
                    refused.append(str(error))
                else:
                    found += [(session, plan, failure)] if failure is not None else []
    chosen = [each for each in found if asked.cell in each[2].cell.label]
    if not chosen:
        if found:
            there = "; ".join(each[2].cell.label for each in found)
            raise SpecError(f"--cell: no cell that fails has {asked.cell!r} in its name (there: {there})")
        if refused:
            raise SpecError(refused[0])
        if undecided := [row for session in state.sessions for row in session.verdicts if row.is_open]:
            reason = one_line(str(undecided[0].extra.get("reason", "")), 200)
            raise SpecError(
                f"{undecided[0].nodeid}: its gate is {undecided[0].verdict}, which is no failure: {reason} (a larger "
                "--ngraph-budget behind --, or a quieter machine)"
            )
        if failed:
            raise SpecError(
                f"{failed[0]} does not pass, and none of its cells fails: neither a claim of this plugin nor a cell "
                "without a time (a plain assert, or something that is not installed?)"
            )
        raise SpecError(f"{asked.test}: nothing fails, so that there is nothing to reduce")
    if len(chosen) > 1:
        others = ", ".join(f"{plan.nodeid} ({failure.cell.label})" for _, plan, failure in chosen[1:4])
        more = f" and {len(chosen) - 4} more" if len(chosen) > 4 else ""
        say_folded(
            f"{units.count(len(chosen), 'cell')} fail, and the first is reduced; the others: {others}{more} (--cell)"
        )
    return chosen[0]


def _failure(session: Session, plan: ItemPlan, cell: Cell, asked: Asked) -> Failure | None:
    """Return how a cell of a test fails, None where it does not. Raise SpecError for what no part could show."""
    from pytest_ngraph.reducing.failing import by_claim, by_outcome

    plain = replace(cell, replica=0, rebuild=False)
    failed = session.failure([cell])
    if failed is not None:
        failure = by_outcome(plain, failed[1])
        if failure is None:
            outcome, reason = failed[1].outcome, one_line(failed[1].reason, 200)
            raise SpecError(f"{cell.label} is {outcome}, which says nothing of a graph: {reason}")
        return failure
    rows = [row for row in session.verdicts if row.nodeid == plan.test and row.verdict == Verdict.FAIL]
    mine = [row for row in rows if row.extra.get("subject") == cell.label]
    if not mine:
        return None
    row, metric = mine[0], mine[0].metric
    if row.extra.get("helper") == "assert_faster" and asked.baseline is None:
        raise SpecError(f"{row.claim} fails; name what it is compared with, which parts are compared with: --baseline")
    own = next((each for each in plan.baselines if each.workload == cell.workload), None)
    baseline = asked.baseline or _default_baseline(cell, own.compiler if own is not None else None, session)
    value = _of_baseline(session, plan, own, metric) if metric in ("latency", "throughput") else None
    if asked.baseline is None and own is not None and baseline != own.compiler:
        say_folded(
            f"{own.compiler} runs no ONNX file, so that parts are compared with {baseline} (--baseline says with what)"
        )
    return by_claim(plain, baseline, row, value)


def _default_baseline(cell: Cell, own: CompilerSpec | None, session: Session) -> CompilerSpec:
    """Return what parts are compared with: the test's own baseline where it reads ONNX, else that of ONNX files."""
    from pytest_ngraph.workloads.kinds.onnx import KIND

    if own is not None and session.catalogue.get(own.name).reads != "module":
        return own
    return CompilerSpec.parse(KIND.default_baseline)


def _of_baseline(session: Session, plan: ItemPlan, baseline: Cell | None, metric: str) -> float | None:
    """Return the baseline's own value of a metric, in the launches of the test."""
    from pytest_ngraph.quantities.measurement import Measurement
    from pytest_ngraph.quantities.quantity import Measurer

    if baseline is None:
        return None
    try:
        return Measurement(Measurer(session, plan.nodeid), baseline, baseline).quantity(metric).estimate().value
    except NgraphError:
        return None
