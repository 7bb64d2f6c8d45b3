"""A session of a script or a notebook: measures what it is asked for, and shows, reports and exports it."""

from __future__ import annotations

import atexit
import contextlib
import html
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.lab.known import Devices
from pytest_ngraph.errors import ClaimError, SpecError, StoreError, about
from pytest_ngraph.front.imperative import COMPILER, Measured, each_measured, measured
from pytest_ngraph.front.summary.verdicts import verdict_lines
from pytest_ngraph.interpreter import standard_library_first
from pytest_ngraph.optimizers.catalogue import Optimizers
from pytest_ngraph.options.masking import masked_command
from pytest_ngraph.options.settings import read_value
from pytest_ngraph.plan.grid import Grid, check_settings
from pytest_ngraph.plan.marker import KEYWORDS, SINGULAR, is_several, read_compilers, read_marker
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import CellFailed, Measurer, NarrowedAway
from pytest_ngraph.script import display
from pytest_ngraph.script.given import CALL, Given, keyword_of
from pytest_ngraph.script.progress import progress_of
from pytest_ngraph.session.run_budget import RunBudget
from pytest_ngraph.session.session import Session as DeviceSession
from pytest_ngraph.sides import SidesOfRun
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome, protocol_of
from pytest_ngraph.store.rows import Origin
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import Models

if TYPE_CHECKING:
    from pytest_ngraph.plan.items import ItemPlan
    from pytest_ngraph.plan.marker import Marker
    from pytest_ngraph.report.results.cells import CellReport
    from pytest_ngraph.report.results.offline import Judged
    from pytest_ngraph.store.rows import Origin, RunRow, VerdictRow

# The other side is one for the whole session.
_KEYWORDS = tuple(keyword for keyword in KEYWORDS if keyword != "against")


class Results(list[Any]):
    """Measurements or sweeps in the order of their points. Shown as a table."""

    def __init__(self, values: Iterable[Measured], session: Session) -> None:
        super().__init__(values)
        self._session = session

    @property
    def _each(self) -> list[Measurement]:
        return [one for value in self for one in ([value] if isinstance(value, Measurement) else value.values())]

    @property
    def _against(self) -> dict[Cell, Cell]:
        return {one.cell: one.baseline for one in self._each}

    @property
    def _of(self) -> list[DeviceSession]:
        sources = (one.source for one in self._each)
        return list(dict.fromkeys(source.session for source in sources if isinstance(source, _Shown)))

    def __repr__(self) -> str:
        return self._session.text_of(self._against, self._of) or "[]"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return self._session.html_of(self._against, self._of)


class _Shown(Measurer):
    """A measurer whose cells are shown as a table: they are measured before a script gets them."""

    def __init__(self, session: DeviceSession, nodeid: str, shown: Session) -> None:
        super().__init__(session, nodeid)
        self._shown = shown

    def text_of(self, against: Mapping[Cell, Cell]) -> str:
        """Return a table of cells, each given with its baseline."""
        return self._shown.text_of(against, [self.session])

    def html_of(self, against: Mapping[Cell, Cell]) -> str | None:
        """Return the same for a notebook."""
        return self._shown.html_of(against, [self.session])


class Session:
    """Measures from a script or a notebook, with the store, evidence and verdicts of pytest runs in the same project.

    A context manager: at its end the run ends in the store. Otherwise ``close()`` or the end of the process ends it.
    ``name`` is under what name claims are kept, ``search`` are the folders that paths of models are looked for in.
    """

    def __init__(
        self,
        given: Given,
        catalogue: Catalogue,
        models: Models,
        optimizers: Optimizers,
        name: str,
        search: Sequence[Path],
        *,
        rebuild: bool = False,
        quiet: bool = False,
    ) -> None:
        self.settings = given.settings
        self._given, self._catalogue, self._models, self._optimizers = given, catalogue, models, optimizers
        self._name, self._search, self._rebuild = name, tuple(dict.fromkeys([*search, given.rootdir])), rebuild
        self._progress = progress_of(quiet=quiet)
        folders = [str(folder) for folder in self._search]
        asked = (self.settings.against, self.settings.side)
        self._sides = SidesOfRun(asked, self.settings, given.rootdir, self._progress.note)
        self._devices = Devices(
            self.settings, catalogue, given.rootdir, lambda: folders, self._progress.note, sides=lambda: self._sides
        )
        self._uid, self._command = uuid.uuid4().hex, masked_command(sys.argv, Path.cwd())
        self._sessions: dict[str, DeviceSession] = {}
        # Those before of the same devices: what was measured then stays readable as it was.
        self._earlier: list[DeviceSession] = []
        self._verdicts: list[VerdictRow] = []
        self._calls = 0
        self._is_closed = False
        self._open = contextlib.ExitStack()
        # What is imported from now on must not come from the script's folder where the standard library has it.
        self._open.enter_context(standard_library_first())
        atexit.register(self._end_with_the_process)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_after(kind)

    def _end_with_the_process(self) -> None:
        # Python keeps what ended a script there. Where somebody types, an error ends a line and not the session.
        is_typed = hasattr(sys, "ps1") or "IPython" in sys.modules
        self._end_after(None if is_typed else getattr(sys, "last_type", None))

    def _end_after(self, kind: type[BaseException] | None) -> None:
        # A claim that does not hold ends the block, but nothing was cut short.
        cut_short = kind is not None and not issubclass(kind, AssertionError)
        self._end("interrupted" if cut_short else "finished", write=not cut_short)

    def close(self) -> None:
        """End the run in the store, and write the files that were asked for. What was measured stays readable."""
        self._end("finished", write=True)

    def _end(self, status: str, *, write: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        atexit.unregister(self._end_with_the_process)
        try:
            for session in self._sessions.values():
                session.close(status)
        finally:
            if self._sessions:
                self._devices.close()
            self._progress.idle()
            self._open.close()
        if write and self._sessions:
            self._write_what_was_asked_for()
        if status == "interrupted" and self._sessions:
            self._progress.note("cut short; what was measured is kept, resume=True goes on with this run")

    # Measuring

    def measure(self, **axes: Any) -> Any:
        """Measure cells or sweeps (``batches=``, ``sequences=``, ...), with the keywords of the marker ``ngraph``.

        Without ``compilers=`` (or ``compiler=``) and ``devices=`` those of the session are measured; what is named here
        is measured whatever the session selects. One point gives a ``Measurement`` or a sweep. An axis given as a list,
        or several compilers or devices, give ``Results``: a list of them. Those of one device are measured in the same
        launches, so any two of them can be compared.

        A cell that a compiler refuses, or fails on, has its outcome in the table. CellFailed comes where a metric of it
        is asked for, and with ``strict=True`` at once. Raises SpecError for keywords that cannot be used, CellFailed
        where something that was named is not installed, and NarrowedAway where the session's options leave no point.
        """
        if self._is_closed:
            raise ClaimError("measure: this session is closed; open another one with measure.session()")
        named = axes.pop(COMPILER, None)
        with about("measure"):
            if named is not None and "compilers" in axes:
                raise SpecError("compiler= and compilers= together: give one of them")
            refused = [key for key in axes if key not in _KEYWORDS]
            if refused:
                raise SpecError(f"unknown keyword {refused[0]!r} (allowed: {', '.join((*_KEYWORDS, COMPILER))})")
            marker = read_marker([((), {"rebuild": self._rebuild, **axes})], self._search)
            if named is not None:
                marker = replace(marker, compilers=read_compilers(named, COMPILER))
            check_settings(self.settings, self._catalogue, self._devices, self._given.places)
            points = [point for _, point in self._grid(marker).points(marker) if not point.deselected]
        if not points:
            raise NarrowedAway("measure: the options of the session, or of the project, leave none of its points")
        for point in points:
            if (missing := point.missing) is not None:
                raise CellFailed(point.cells[0], CompileRecord(Outcome.UNAVAILABLE, missing))
        given = {key: axes.get(key) for key in (*SINGULAR, "compilers", "devices")} | {COMPILER: named}
        several = len(points) > 1 or any(is_several(value, key) for key, value in given.items())
        by_default = marker.compilers is None and self.settings.compilers is None
        found = self._swept(points) if marker.plural is not None else self._together(points)
        return Results(found, self) if several or by_default else found[0]

    def _grid(self, marker: Marker) -> Grid:
        """Return what the marker of a call expands over: what it names is not narrowed by the session's options."""
        settings = self.settings
        if marker.compilers is not None:
            settings = replace(settings, compilers=None)
        if marker.devices is not None:
            settings = replace(settings, devices=marker.devices)
        return Grid(settings, self._catalogue, self._devices, self._search, self._models, self._optimizers)

    def _together(self, points: Sequence[ItemPlan]) -> list[Measured]:
        """Measure points of one cell each, those of a device in the same launches."""
        by_cell: dict[Cell, Measurement] = {}
        for device in dict.fromkeys(point.device for point in points):
            mine = [point for point in points if point.device == device]
            plan = replace(
                mine[0],
                nodeid=self._next_id(),
                cells=tuple(cell for point in mine for cell in point.cells),
                baselines=tuple(dict.fromkeys(cell for point in mine for cell in point.baselines)),
            )
            by_cell.update((one.cell, one) for one in each_measured(self._measured([plan])[0], plan))
        return [by_cell[point.cells[0]] for point in points]

    def _swept(self, points: Sequence[ItemPlan]) -> list[Measured]:
        """Measure points that are sweeps, those that share a cell in the same launches."""
        plans = [replace(point, nodeid=self._next_id()) for point in points]
        measurers: dict[str, Measurer] = {}
        for device in dict.fromkeys(plan.device for plan in plans):
            mine = [plan for plan in plans if plan.device == device]
            measurers.update(zip((plan.nodeid for plan in mine), self._measured(mine), strict=True))
        return [measured(measurers[plan.nodeid], plan) for plan in plans]

    def _next_id(self) -> str:
        self._calls += 1
        return f"{self._name}::measure#{self._calls}"

    def _measured(self, plans: Sequence[ItemPlan]) -> list[Measurer]:
        """Measure the first look of what one device has to measure, and return what gives its numbers."""
        session = self._on(plans[0].device, [cell for plan in plans for cell in plan.all_cells])
        session.plan(plans)
        try:
            for plan in plans:
                # What has no time says so where it is asked for.
                session.launches(plan.nodeid, plan.cells)
                failed = session.failure(plan.all_cells) if self.settings.strict else None
                if failed is not None:
                    raise CellFailed(*failed)
        finally:
            # Also where a cell of a notebook was interrupted.
            self._progress.ended()
        return [_Shown(session, plan.nodeid, self) for plan in plans]

    @property
    def _every(self) -> Sequence[DeviceSession]:
        return (*self._earlier, *self._sessions.values())

    @cached_property
    def _budget(self) -> RunBudget:
        """Return the time that all of the session shares. Nobody knows which calls are to come: nothing is kept."""
        return RunBudget(self.settings.run_seconds, is_over=lambda group: True)

    def _on(self, device: str, cells: Sequence[Cell]) -> DeviceSession:
        """Return the session of a device, a new one where what is known of some cells is not so any more."""
        known = self._sessions.get(device)
        if known is not None and known.is_outdated(cells):
            self._earlier.append(self._sessions.pop(device))
        if device not in self._sessions:
            self._sessions[device] = DeviceSession(
                self.settings,
                self._catalogue,
                self._devices.bench(device),
                self._progress,
                uid=self._uid,
                command=self._command,
                verdicts=self._verdicts,
                registered=lambda: self._devices.registry.devices,
                sides=self._devices.other_sides(device),
                budget=self._budget,
                after=known,
            )
        return self._sessions[device]

    # Showing

    @property
    def verdicts(self) -> Sequence[VerdictRow]:
        """Return the claims that were judged so far, in their order."""
        return tuple(self._verdicts)

    def __repr__(self) -> str:
        return self.text_of(self._all[1], self._every) or "<Session: nothing was measured yet>"

    def __str__(self) -> str:
        return "\n".join([repr(self), *verdict_lines(self._verdicts)])

    def _repr_html_(self) -> str:
        claims = html.escape("\n".join(verdict_lines(self._verdicts)))
        said = f"<pre>{claims}</pre>" if claims else ""
        return (self.html_of(self._all[1], self._every) or "<p>nothing was measured yet</p>") + said

    def text_of(self, against: Mapping[Cell, Cell], measured: Sequence[DeviceSession]) -> str:
        """Return a table of cells, each given with its baseline, no wider than 80 columns if no word is.

        ``measured`` are the sessions that measured them, the latest last.
        """
        return display.text_of(self._reports(against, measured), self._verdicts)

    def html_of(self, against: Mapping[Cell, Cell], measured: Sequence[DeviceSession]) -> str:
        """Return the same for a notebook."""
        return display.html_of(self._reports(against, measured), self._verdicts)

    @property
    def _all(self) -> Judged:
        """Return all cells with their evidence, and what each is compared with."""
        return _judged_by(self._every)

    def _reports(self, against: Mapping[Cell, Cell], measured: Sequence[DeviceSession]) -> list[CellReport]:
        from pytest_ngraph.report.results.cells import reports_of

        keys, _ = _judged_by(measured)
        compared = {cell: baseline for cell, baseline in against.items() if cell != baseline}
        wanted = dict.fromkeys([*against, *against.values()])
        known = {cell: keys[cell] for cell in wanted if cell in keys}
        made: dict[Cell, CellReport] = {}
        if known:
            with Store.open(self.settings.store, read_only=True) as store:
                reports = reports_of(store, known, compared, self.settings.protocol, self._cpus)
            made = {report.cell: report for report in reports}
        return [_with_failure(made.get(cell), cell, compared.get(cell), measured) for cell in wanted]

    def _cpus(self, device: str) -> int:
        return max(1, len(self._sessions[device].device.cpus))

    # Files

    def report(self, path: str | Path) -> Path:
        """Write the report of the session as one page, FILE.html. Return its path. Raise SpecError for another name."""
        from pytest_ngraph.report.html.content import content_of
        from pytest_ngraph.report.html.page import write_page

        file = self._file("report", path)
        run, reports, verdicts, noise, origin, judged = self._run()
        write_page(content_of(run, reports, verdicts, noise, origin, self.settings.store, judged), file)
        return file

    def export(self, path: str | Path) -> Path:
        """Write the session as a tidy table, FILE.csv, .json, .parquet, .md or .tex. Return its path."""
        from pytest_ngraph.report.export.tables import write_export

        file = self._file("export", path)
        run, reports, verdicts, _, origin, _ = self._run()
        write_export(reports, file, run.protocol, origin, verdicts)
        return file

    def benchmark_json(self, path: str | Path) -> Path:
        """Write the session as JSON that ``pytest-benchmark compare`` reads. Return its path."""
        from pytest_ngraph.report.export.benchmark import write_benchmark_json

        file = self._file("benchmark_json", path)
        run, _, verdicts, _, _, judged = self._run()
        write_benchmark_json(file, self.settings.store, run, verdicts, judged)
        return file

    def _file(self, field: str, path: str | Path) -> Path:
        read = read_value(field, str(path), lambda row, given: f"{CALL.partition('.')[0]}: {keyword_of(row)}")
        file: Path = read[0] if isinstance(read, tuple) else read
        return Path.cwd() / file

    def _run(self) -> tuple[RunRow, list[CellReport], Sequence[VerdictRow], Sequence[str], Origin, Judged]:
        """Return the run of this session with all that is shown of it. Of an offline one the run that has its cells.

        Raises ClaimError where nothing was measured, StoreError where no run has it.
        """
        from pytest_ngraph.report.noise.of_a_run import run_noise_lines
        from pytest_ngraph.report.results.cells import cpus_of, reports_of

        if not self._sessions:
            raise ClaimError("measure: nothing was measured in this session yet")
        settings, judged = self.settings, self._all
        with Store.open(settings.store, read_only=True) as store:
            run = self._stored_run(store)
            verdicts, noise = self.verdicts, list[str]()
            if not settings.offline:
                # A cell whose files changed is shown as it is now, also where that was measured before.
                keys, against = judged
                judged = {**dict(store.cells(run.id)), **keys}, {**store.baselines(run.id), **against}
                verdicts, noise = store.verdicts(run.id), [*run_noise_lines(store, run), *store.damage_lines]
            protocol = settings.protocol if settings.offline else protocol_of(run.protocol)
            reports = reports_of(store, *judged, protocol, cpus_of(run))
            return run, reports, verdicts, noise, Origin(run.id, store.read_digest()), judged

    def _stored_run(self, store: Store) -> RunRow:
        from pytest_ngraph.report.results.offline import latest_with

        settings = self.settings
        if settings.offline:
            run = latest_with(store, self._all[0], settings.protocol.name, settings.seed)
            missing = f"no run in it by protocol {settings.protocol.name} from seed {settings.seed} has these cells"
        else:
            uid = next(iter(self._sessions.values())).uid
            run = next((each for each in store.runs() if each.uid == uid), None)
            missing = "this session is not in it"
        if run is None:
            raise StoreError(f"{settings.store}: {missing}")
        return run

    def _write_what_was_asked_for(self) -> None:
        asked: list[tuple[Callable[[Path], Path], Path | None]] = [(self.report, self.settings.report)]
        asked += [(self.export, path) for path in self.settings.export]
        for write, path in [*asked, (self.benchmark_json, self.settings.benchmark_json)]:
            if path is not None:
                self._progress.note(f"written: {write(path)}")


def _judged_by(sessions: Iterable[DeviceSession]) -> Judged:
    """Return the cells of some sessions with their evidence, the latest where they differ, and what each is beside."""
    keys: dict[Cell, str] = {}
    against: dict[Cell, Cell] = {}
    for session in sessions:
        mine, baselines = session.judged
        # What cannot be built any more is not what it was.
        for cell in [cell for cell in keys if cell not in mine and session.failure([cell]) is not None]:
            del keys[cell]
        keys.update(mine)
        against.update(baselines)
    return keys, against


def _with_failure(
    report: CellReport | None, cell: Cell, baseline: Cell | None, sessions: Sequence[DeviceSession]
) -> CellReport:
    """Return a report with what became of its cell in the latest of some sessions, where nothing of that is stored."""
    from pytest_ngraph.report.results.cells import CellReport

    if report is not None and (report.estimates or report.failure is not None):
        return report
    latest = next((one for one in reversed(sessions) if one.device.name == cell.device), None)
    failed = latest.failure([cell]) if latest is not None else None
    if report is None:
        return CellReport(cell, baseline, {}, failed[1] if failed else None, None)
    return replace(report, failure=failed[1] if failed else None)
