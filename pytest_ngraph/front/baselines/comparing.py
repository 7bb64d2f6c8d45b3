"""What a test measured, held against the saved baseline that ``--ngraph-compare`` names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ngraph.claims.assertions import inconclusive
from pytest_ngraph.errors import SpecError
from pytest_ngraph.front.run import STATE
from pytest_ngraph.machine.kinship import Kinship, Machine
from pytest_ngraph.machine.turns import take
from pytest_ngraph.report.baselines.comparing import Against, Compared, words_of
from pytest_ngraph.report.baselines.file import made_by, named, read, write
from pytest_ngraph.report.baselines.saved import Saved, SavedCell, SavedSweep, key_of
from pytest_ngraph.report.baselines.saving import now
from pytest_ngraph.report.baselines.values import Kept
from pytest_ngraph.report.noise.profile import profile_path, read_profile
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.rows import VerdictRow

if TYPE_CHECKING:
    from pytest_ngraph.plan.items import ItemPlan
    from pytest_ngraph.session.session import Session


class BaselineWarning(UserWarning):
    """A cell that the saved baseline does not have, or that differs from it where that may not fail."""


def compare(item: pytest.Item, plan: ItemPlan, *, has_failed: bool = False) -> None:
    """Hold the cells and sweeps of a test against the saved baseline, keep what that says, and do it to the test.

    What several tests have is compared in the first of them. Of a test that ``has_failed`` nothing is recorded.
    """
    __tracebackhide__ = True
    state = item.config.stash[STATE]
    session = state.session(plan.device)
    evidence, baselines = session.judged
    # What ngraph.measure measures in a test is planned under the test's name.
    asked = [cell for one in session.plans if one.test == plan.nodeid for cell in one.cells]
    mine = dict.fromkeys((*plan.cells, *asked))
    known = [cell for cell in mine if cell in evidence and not cell.replica and not cell.side]
    cells = [cell for cell in known if state.compared.setdefault(cell, plan.nodeid) == plan.nodeid]
    if not cells and len(known) < 2:
        return
    path = named(state.settings.compare or "", item.config.rootpath, item.config.invocation_params.dir)
    name, rootdir = path.stem, item.config.rootpath
    if not session.settings.protocol.error_control:
        _warn(item, f"not compared with {name}: --ngraph-protocol={session.settings.protocol.name} has no error rate")
        return
    found, _ = read_profile(profile_path(session.settings.store, plan.device), plan.device)
    against = Against(
        saved=_saved(path),
        store=session.book,
        machine=Machine.of(session.bench.facts()),
        protocol=session.settings.protocol,
        seed=session.settings.seed,
        rootdir=rootdir,
        profile=found,
    )
    both = (cell for one in cells for cell in (one, baselines.get(one)))
    needed = {cell: evidence[cell] for cell in both if cell is not None and cell in evidence}
    kept = against.now(needed, baselines)
    made = {sweep.key: sweep for some in kept for one, sweep, _ in some.sweeps if set(one.cells) <= set(known)}
    sweeps = [key for key in made if state.compared.setdefault(key, plan.nodeid) == plan.nodeid]
    tolerance = plan.tolerance
    done = list(against.compare(kept, dict.fromkeys(cells, tolerance), dict.fromkeys(sweeps, tolerance)))
    said = [_keep(session, plan, name, one) for one in done]
    # What has no time is in no baseline.
    alive = [cell for cell in cells if session.failure([cell]) is None]
    choice = state.settings.missing_baseline
    choice = "warn" if has_failed and choice == "record" else choice
    _missing(item, choice, against, path, kept, alive, [made[key] for key in sweeps])
    _gone(item, against, {key_of(cell, rootdir) for cell in needed}, made)
    failed = [message for one, message in zip(done, said, strict=True) if one.verdict is Verdict.FAIL]
    if failed:
        raise pytest.fail.Exception("\n".join(failed), pytrace=False)
    for one, message in zip(done, said, strict=True):
        if one.warns:
            _warn(item, message)
    is_open = [message for one, message in zip(done, said, strict=True) if one.verdict in _OPEN]
    if is_open:
        choice, message = state.settings.inconclusive, "\n".join(is_open)
        if choice == "fail":
            raise pytest.fail.Exception(message, pytrace=False)
        inconclusive(choice, message)


_OPEN = (Verdict.INCONCLUSIVE, Verdict.INVALID)


def _saved(path: Path) -> Saved:
    """Return the baseline, one without cells where there is no file yet."""
    if path.exists():
        return read(path)
    return Saved(path.stem, now(), made_by(), {}, "gate", "0", {}, [])


def _keep(session: Session, plan: ItemPlan, name: str, one: Compared) -> str:
    """Keep a comparison among the verdicts. Return what is said of it."""
    claim, change = words_of(one, name, plan.tolerance), one.change
    means = (
        "as good as it was (below 1 is worse)" if one.bound.scale == "log" else "more than it was (below 0 is worse)"
    )
    numbers = f"{change} {means}" if change.launches else "no number"
    message = f"{claim}:\n    {numbers}" + (f"; {one.reason}" if one.reason else "")
    session.keep_verdict(
        VerdictRow(
            nodeid=plan.nodeid,
            claim=claim,
            metric=change.metric,
            bound=one.bound.value,
            at_least=True,
            tolerance=one.bound.tolerance,
            estimate=change.value,
            low=change.low,
            high=change.high,
            launches=change.launches,
            verdict=one.verdict.value,
            extra={
                "target": one.cell.target,
                "helper": "compare",
                "reason": one.reason,
                "message": message,
                "subject": one.cell.label,
                "state": one.state,
                "notes": [],
            },
        )
    )
    return message


def _missing(
    item: pytest.Item,
    choice: str,
    against: Against,
    path: Path,
    kept: Sequence[Kept],
    cells: Sequence[Cell],
    sweeps: Sequence[SavedSweep],
) -> None:
    """Do what the choice of ``--ngraph-missing-baseline`` says of cells and sweeps that the baseline does not have."""
    __tracebackhide__ = True
    saved = against.saved
    lacking = [cell for cell in cells if against.cell(cell) is None]
    without = [sweep for sweep in sweeps if saved.sweep(sweep.key) is None]
    if saved.sweeps is None and choice != "record" and without:
        labels = ", ".join(sweep.label for sweep in without)
        _warn(item, f"{saved.name} was saved without sweeps, which are not compared: {labels} ({_save(saved)})")
        without = []
    if not lacking and not without:
        return
    labels = ", ".join([*(cell.label for cell in lacking), *(sweep.label for sweep in without)])
    text = f"the baseline {saved.name} has no {labels} (ngraph baseline save, or --ngraph-missing-baseline=record)"
    if choice == "fail":
        raise pytest.fail.Exception(text, pytrace=False)
    if choice == "warn":
        _warn(item, text)
        return
    found = {cell: one for some in kept for cell, (one, _) in some.cells.items() if cell in lacking}
    record(path, [*found.values(), *without], against)
    unknown = [cell.label for cell in lacking if cell not in found]
    if unknown:
        _warn(item, f"not recorded in {saved.name}, as fewer than two launches count: {', '.join(unknown)}")


def _gone(item: pytest.Item, against: Against, keys: Set[str], made: Mapping[str, SavedSweep]) -> None:
    """Say which sweeps were saved of these cells and cannot be made of them now."""
    gone = [sweep.label for sweep in against.saved.sweeps or () if keys >= set(sweep.cells) and sweep.key not in made]
    if gone:
        _warn(
            item,
            f"not compared with {against.saved.name}, as fewer than two launches that count have all of its cells now: "
            f"{', '.join(gone)}",
        )


def _save(saved: Saved) -> str:
    return f"ngraph baseline save {saved.name} --replace"


def _warn(item: pytest.Item, text: str) -> None:
    item.warn(BaselineWarning(text))


def record(path: Path, ones: Sequence[SavedCell | SavedSweep], against: Against) -> None:
    """Put cells and sweeps into a baseline's file, all or none, beside what others put there meanwhile.

    Raises SpecError where the file is of another machine, protocol or seed: its numbers would be of two kinds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        take(folder, lambda: None)
        saved = _saved(path)
        for theirs in (saved.machines[one.device] for one in ones if one.device in saved.machines):
            if theirs.kinship(against.machine) is Kinship.SAME:
                continue
            fields = "; ".join(
                f"{name}: {one} there, {other} here" for name, one, other in theirs.differing(against.machine)
            )
            raise SpecError(f"--ngraph-missing-baseline=record: {path} is of another machine ({fields})")
        if not saved.cells:
            saved = replace(saved, protocol=against.protocol.name, seed=str(against.seed))
        elif (saved.protocol, saved.seed) != (against.protocol.name, str(against.seed)):
            raise SpecError(
                f"--ngraph-missing-baseline=record: {path} is of the protocol {saved.protocol}, seed {saved.seed}, and "
                f"this run of {against.protocol.name}, seed {against.seed}"
            )
        for one in ones:
            saved = saved.with_one(one, against.machine)
        if ones:
            write(replace(saved, saved_at=now()), path)
    finally:
        # Closing gives the turn to the next.
        os.close(folder)
