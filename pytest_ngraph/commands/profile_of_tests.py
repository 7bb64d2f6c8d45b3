"""The profile of a launch of tests: pytest collects them, and in place of running them one launch is measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.commands.collected_tests import with_tests
from pytest_ngraph.commands.profile import profile_launch, show
from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from pytest_ngraph.front.run import State
    from pytest_ngraph.plan.groups import Group
    from pytest_ngraph.session.session import Session
    from pytest_ngraph.spec.cells import Cell


def profile_tests(words: Sequence[str], store: Path | None) -> None:
    """Run one launch of what tests measure and print where its seconds went. ``words`` are pytest's.

    It is by the protocol, options and ini entries that a run of the tests has. No test runs, nothing is kept but what
    is built. Raises SpecError where pytest collects nothing that is measured on this machine, CompileFailed where it
    cannot be measured.
    """
    with_tests("profile", words, store, _profile)


def _profile(state: State) -> None:
    """Run the launch that the first of the tests would have."""
    state.plan()
    groups: dict[int, tuple[Session, Group]] = {}
    for session in state.sessions:
        for plan in session.plans:
            group = session.group(plan.nodeid)
            groups[id(group)] = session, group
    if not groups:
        raise SpecError(f"none of these tests measures anything here{_why(state)}")
    from pytest_ngraph.devices.local import LocalBench

    session, group = next(iter(groups.values()))
    bench, settings = session.bench, session.settings
    if not isinstance(bench, LocalBench):
        raise SpecError(f"device {bench.device.name!r} is not of this machine (expected tests on local or cuda)")
    cells = [*group.cells]
    if settings.protocol.control and not any(cell.replica for cell in cells):
        # As every launch has, and no more than one.
        cells += [*group.controls][:1]
    refused = bench.refusals(cells)
    cells = [cell for cell in cells if cell not in refused]
    tests = units.count(len({plan.test for plan in group.items}), "test")
    with bench.held(show):
        print(f"profile     one launch of {group.name}: {tests}, {units.count(len(cells), 'cell')}", flush=True)
        if len(groups) > 1:
            show(f"these tests need launches of {len(groups)} groups, and this is of the first: name one test")
        for cell, reason in refused.items():
            show(f"{cell.label}: {reason}")
        if not cells:
            raise SpecError("none of the cells can be measured here")
        _tune(session, cells)
        own_outputs = settings.against_outputs == "own"
        profile_launch(bench, session.catalogue, cells, settings.protocol, own_outputs=own_outputs)


def _why(state: State) -> str:
    """Return why the first of the tests cannot run, with a colon before it, or nothing."""
    from pytest_ngraph.front.run import PLAN

    reasons = (item.stash[PLAN].missing for item in state.items)
    return next((f": {reason}" for reason in reasons if reason), "")


def _tune(session: Session, cells: Sequence[Cell]) -> None:
    """Have compilers search for code that was asked for, as the first launch of a run does."""
    for cell in cells:
        adapter = session.catalogue.get(cell.compiler.name)
        if adapter.tunes(adapter.resolve(cell.compiler)):
            session.bench.tune(cell, lambda doing, done, total: show(f"{doing} ({done} of {total})"))
