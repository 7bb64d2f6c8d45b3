"""What the end of a run shows, read from the store: its cells, its claims, what was said of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ngraph.store.rows import Origin

if TYPE_CHECKING:
    from pytest_ngraph.front.run import State
    from pytest_ngraph.report.results.cells import CellReport
    from pytest_ngraph.report.results.offline import Judged
    from pytest_ngraph.store.rows import RunRow, VerdictRow
    from pytest_ngraph.store.sqlite import Store


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a run, whose ``protocol`` is a name. ``incomplete`` launches of it were cut short.

    ``run`` and ``origin`` are None where an offline run has judged what no run of the store has. ``judged`` are the
    cells of an offline run, None where all cells of ``run`` are shown.
    """

    run: RunRow | None
    protocol: str
    reports: Sequence[CellReport]
    verdicts: Sequence[VerdictRow]
    noise: Sequence[str]
    damage: Sequence[str]
    origin: Origin | None
    incomplete: int = 0
    judged: Judged | None = None


def shown_of(state: State) -> Shown | None:
    """Return what is shown of a run, or None where it put nothing into the store. Raise StoreError as that does.

    An offline run shows what its processes have judged, as it writes nothing to the store; where they were asked for
    nothing it shows the cells of the latest run by its protocol and from its seed.
    """
    from pytest_ngraph.report.noise.of_a_run import run_noise_lines
    from pytest_ngraph.report.results.cells import cell_reports
    from pytest_ngraph.store.sqlite import Store

    settings = state.settings
    if not settings.store.exists():
        return None
    with Store.open(settings.store, read_only=True) as store:
        if settings.offline:
            return _offline(store, state)
        run = run_of(store, state)
        if run is None:
            return None
        reports, verdicts, noise = cell_reports(store, run.id), store.verdicts(run.id), run_noise_lines(store, run)
        incomplete, origin = store.incomplete_launches(run.id), Origin(run.id, store.read_digest())
        return Shown(run, run.protocol, reports, verdicts, noise, store.damage_lines, origin, incomplete)


def _offline(store: Store, state: State) -> Shown | None:
    from pytest_ngraph.report.results.cells import cell_reports, cpus_of, reports_of

    verdicts, judged = state.judged_by_all
    run, protocol = run_of(store, state), state.settings.protocol
    if judged is not None:
        # What no run has has no launch, either.
        reports = reports_of(store, *judged, protocol, cpus_of(run) if run is not None else 1)
    elif run is not None:
        reports = cell_reports(store, run.id)
    else:
        return None
    origin = Origin(run.id, store.read_digest()) if run is not None else None
    return Shown(run, protocol.name, reports, verdicts, [], store.damage_lines, origin, judged=judged)


def run_of(store: Store, state: State) -> RunRow | None:
    """Return this run as the store has it. An offline run has none there: the one that has what it judged, if any."""
    settings, runs = state.settings, store.runs()
    mine = [run for run in runs if run.uid == state.run_uid]
    if mine:
        return mine[-1]
    if settings.offline:
        from pytest_ngraph.report.results.offline import latest_with

        _, judged = state.judged_by_all
        cells = None if judged is None else judged[0]
        return latest_with(store, cells, settings.protocol.name, settings.seed)
    return None
