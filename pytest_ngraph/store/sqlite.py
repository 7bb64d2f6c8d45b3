"""The store: raw samples, records and verdicts in one SQLite file that several processes may write at once."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from pytest_ngraph.errors import StoreError
from pytest_ngraph.spec.cells import Cell, CompileRecord, LaunchRecord, Outcome, Protocol, Reading, Visit, digest
from pytest_ngraph.spec.states import dwell_seconds, home
from pytest_ngraph.spec.states.steadiness import LATEST
from pytest_ngraph.store import pruning, seals, soundness, statements
from pytest_ngraph.store.codec import cell_from_text, cell_to_text, from_blob, from_text, to_blob, to_text
from pytest_ngraph.store.connection import READ_ONLY, add_axes, connect, explained, snapshot, transaction
from pytest_ngraph.store.pruning import Pruned
from pytest_ngraph.store.related import Related, launch_of, read_related, readings_of, readings_to_text, record_of
from pytest_ngraph.store.rows import (
    UNKNOWN_PROTOCOL,
    UNKNOWN_TIME,
    LaunchRow,
    LeftOut,
    RunRow,
    VerdictRow,
    facts_of,
    split_left_out,
    with_facts,
    with_left_out,
)
from pytest_ngraph.store.seals import Sealer
from pytest_ngraph.store.soundness import DamagedLaunch
from pytest_ngraph.texts.shown import clean

_SAMPLES = "visits"
_Write = tuple[str, tuple[object, ...]]


class Store:
    """The results on disk. For one thread of a process. Every method raises StoreError where the file fails it.

    Rows are sealed as they are written (``seals``) and held against their seals before anything is made of them. A
    launch that does not fit its own never counts: it is in ``damaged``. Where anything else does not, nothing is read.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, writing: bool = True) -> None:
        self.path = path
        self.damaged: dict[int, DamagedLaunch] = {}
        self._connection = connection
        self._pending: list[_Write] = []
        self._sound: set[int] = set()
        # The launches that were finished, and held against their seals but for their samples, when it was opened.
        self._held: set[int] = set()
        # The cells of runs that were asked for, and what the file was like then.
        self._cells: dict[int, list[tuple[Cell, str]]] = {}
        self._cells_of: object = None
        with explained(path):
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.create_function("is_damaged", 1, self.damaged.__contains__)
            self._check(writing)
            if writing:
                add_axes(connection)
            self._sealer = Sealer(connection) if writing else None

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False, wait_seconds: float = 60.0) -> Store:
        """Open a store, making its folder, file and newest schema where writing is allowed.

        A write waits up to ``wait_seconds`` for other writers. StoreError says what the file is instead of a store.
        """
        connection = connect(path, read_only=read_only, wait_seconds=wait_seconds)
        with ExitStack() as on_failure:
            on_failure.callback(connection.close)
            store = cls(path, connection, writing=not read_only)
            on_failure.pop_all()
        return store

    def close(self) -> None:
        """Close the file. What was added and not committed is dropped."""
        self._pending.clear()
        with explained(self.path):
            self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Damage

    def _check(self, writing: bool) -> None:
        """Hold all rows but samples against their seals. Raise StoreError for damage that is not of a launch alone."""
        with snapshot(self._connection):
            wrong, places = soundness.examine(self._connection, writing=writing)
            of_launches = {place for place in places if place[0] in seals.OF_LAUNCH}
            if wrong or places != of_launches:
                raise soundness.refuse(self.path, wrong, places)
            self._held = {launch for (launch,) in self._connection.execute(statements.FINISHED_LAUNCHES)}
            for launch_id in sorted({owner for _, owner in of_launches}):
                self._found_damaged(launch_id, [table for table, owner in of_launches if owner == launch_id])

    def _found_damaged(self, launch_id: int, tables: Iterable[str]) -> None:
        self.damaged[launch_id] = soundness.damaged_launch(self._connection, launch_id, tables)

    def _is_sound(self, launch_id: int) -> bool:
        """Return whether a finished launch is what was written, samples included. Looks once."""
        if launch_id not in self._sound and launch_id not in self.damaged:
            with explained(self.path):
                wrong = []
                for table in () if self._held_samples(launch_id) is not None else seals.OF_LAUNCH:
                    try:
                        wrong += [table] if seals.broken(self._connection, table, launch_id) else []
                    except sqlite3.DatabaseError as error:
                        if not soundness.is_damage(error):
                            raise
                        wrong.append(table)
                if wrong:
                    self._found_damaged(launch_id, wrong)
                else:
                    self._sound.add(launch_id)
        return launch_id in self._sound

    def _samples(self, launch_id: int) -> list[Any] | None:
        """Return the visits of a finished launch as rows, or None where it is not what was written."""
        if launch_id in self.damaged:
            return None
        with explained(self.path):
            rows = self._held_samples(launch_id)
        if rows is not None:
            self._sound.add(launch_id)
            return rows
        return self._read(statements.VISITS_IN_LAUNCH, (launch_id,)) if self._is_sound(launch_id) else None

    def _held_samples(self, launch_id: int) -> list[Any] | None:
        """Return the visits of a launch that was held against its other seals, if they are what was sealed.

        A report reads thousands of launches: each is read once, and what is the same for all is looked up once.
        """
        if launch_id not in self._held:
            return None
        try:
            with seals.lenient(self._connection):
                rows = self._connection.execute(statements.VISITS_IN_LAUNCH, (launch_id,)).fetchall()
        except sqlite3.DatabaseError as error:
            if not soundness.is_damage(error):
                raise
            return None
        return rows if seals.sum_of(_SAMPLES, rows) == self._sealed_samples.get((_SAMPLES, launch_id)) else None

    @cached_property
    def _sealed_samples(self) -> Mapping[seals.Place, seals.Sum | None]:
        return seals.read_seals(self._connection, _SAMPLES)

    @property
    def damage_lines(self) -> list[str]:
        """Return what a user is shown of the launches that were found damaged so far."""
        return soundness.damage_lines(self.damaged.values(), self.path)

    def read_digest(self) -> str:
        """Return the digest of all launches that were read so far, as 32 hex digits: of their seals, in order.

        It is the same after the file was compacted or repaired, and another where other launches count.
        """
        places = [(table, launch) for launch in sorted(self._sound) for table in seals.OF_LAUNCH]
        with explained(self.path):
            known = {
                place: value
                for table in seals.OF_LAUNCH
                for place, value in seals.read_seals(self._connection, table).items()
            }
        return digest([[*place, known[place]] for place in places if place in known])[:32]

    # Runs

    def start_run(
        self,
        uid: str,
        *,
        command: Sequence[str],
        seed: int,
        protocol: Protocol,
        environment: Mapping[str, Any],
        fresh: bool,
        resumed: bool,
        device: str = "local",
    ) -> int:
        """Return the id of the run ``uid``, beginning it if no sibling has. ``resumed`` opens a finished one again.

        ``environment`` is what machine the device is. A run of several devices begins once for each.
        """
        facts = with_facts(None, device, environment)
        new = (uid, _now(), to_text(list(command)), str(seed), to_text(protocol.to_json()), to_text(facts))
        with self._writing():
            self._connection.execute(statements.ADD_RUN, (*new, fresh, resumed))
            if resumed:
                self._connection.execute(statements.REOPEN_RUN, (uid,))
            run_id, known = self._connection.execute(statements.RUN_ID, (uid,)).fetchone()
            if facts_of(from_text(known), device) is None:
                facts = with_facts(from_text(known), device, environment)
                self._connection.execute(statements.SET_ENVIRONMENT, (to_text(facts), run_id))
            return int(run_id)

    def leave_out(self, run_id: int, rows: Iterable[LeftOut]) -> None:
        """Keep what a run was asked for and nothing was installed to measure with."""
        with self._writing():
            facts = with_left_out(from_text(self._of_run(statements.ENVIRONMENT, run_id)), rows)
            self._connection.execute(statements.SET_ENVIRONMENT, (to_text(facts), run_id))

    def finish_run(
        self, run_id: int, status: str | None, environment: Mapping[str, Any] | None = None, *, device: str = "local"
    ) -> None:
        """Record how a run ended - ``finished``, ``interrupted`` or another word - and what machine a device is now.

        Without ``status`` it goes on, on another device or in another process.
        """
        with self._writing():
            known = self._of_run(statements.END_OF_RUN, run_id)
            end = None if known is None else from_text(known)
            if environment is not None:
                end = with_facts(end, device, environment)
            end_text = None if end is None else to_text(end)
            if status is None:
                self._connection.execute(statements.SET_END_OF_RUN, (end_text, run_id))
            else:
                self._connection.execute(statements.FINISH_RUN, (status, _now(), end_text, run_id))

    def _of_run(self, statement: str, run_id: int) -> Any:
        """Return what a run's row has. Raise StoreError where another process has taken it out."""
        row = self._connection.execute(statement, (run_id,)).fetchone()
        if row is None:
            raise self._gone(f"run {run_id}")
        return row[0]

    def _gone(self, what: str) -> StoreError:
        return StoreError(
            f"store {self.path}: {what} is not in it any more: it was pruned or repaired by another process meanwhile; "
            "run again"
        )

    def last_sign(self, run_id: int) -> str:
        """Return when a run last wrote something: began, began or ended a launch, or judged a claim."""
        return str(self._read(statements.LAST_SIGN, {"run": run_id})[0][0])

    def runs(self) -> list[RunRow]:
        """Return all runs, oldest first."""
        return [_run_row(row) for row in self._read(statements.RUNS)]

    def run_counts(self) -> dict[int, tuple[int, int]]:
        """Return for each run how many launches it measured and how many cells it judged."""
        return {run: (launches, cells) for run, launches, cells in self._read(statements.COUNTS_OF_RUNS)}

    def use_cells(self, run_id: int, evidence: Mapping[Cell, str]) -> None:
        """Keep that a run judges these cells, also where it measures nothing new."""
        writes: list[_Write] = []
        for cell, key in evidence.items():
            text = cell_to_text(cell)
            writes += [(statements.ADD_CELL, (text,)), (statements.USE_CELL, (run_id, text, key))]
        self._write(writes)

    def use_baselines(self, run_id: int, baselines: Mapping[Cell, Cell]) -> None:
        """Keep which cell the relative metrics of each cell divide by. The first one kept in a run stays."""
        writes: list[_Write] = []
        for cell, baseline in baselines.items():
            texts = (cell_to_text(cell), cell_to_text(baseline))
            writes += [*((statements.ADD_CELL, (text,)) for text in texts), (statements.USE_BASELINE, (run_id, *texts))]
        self._write(writes)

    def baselines(self, run_id: int) -> dict[Cell, Cell]:
        """Return what ``use_baselines`` kept for a run."""
        rows = self._read(statements.BASELINES_OF_RUN, (run_id,))
        return {cell_from_text(mine): cell_from_text(other) for mine, other in rows}

    def cells(self, run_id: int) -> list[tuple[Cell, str]]:
        """Return the cells a run used or measured, each with its evidence."""
        if (now := self._version()) != self._cells_of:
            self._cells, self._cells_of = {}, now
        if run_id not in self._cells:
            rows = self._read(statements.CELLS_OF_RUN, {"run": run_id})
            self._cells[run_id] = [(cell_from_text(text), evidence) for text, evidence in rows]
        return list(self._cells[run_id])

    def _version(self) -> object:
        """Return what is another one whenever other processes, or this one, have changed what is read."""
        return self._read("PRAGMA data_version"), self._connection.total_changes, len(self.damaged)

    # Launches: begun and finished at once; what is added between is written at ``commit`` or ``finish_launch``, all or
    # nothing, so that the file is not locked while something is measured.

    def start_launch(
        self,
        run_id: int,
        *,
        group: str,
        number: int,
        seed: int,
        protocol: Protocol,
        kind: str = "timed",
        order: Sequence[str],
        environment: Mapping[str, Any],
    ) -> int:
        """Begin a launch of a launch group and return its id. Until it is finished it does not count."""
        values = (run_id, kind, group, number, str(seed), to_text(protocol.to_json()), to_text(list(order)))
        with self._writing():
            cursor = self._connection.execute(statements.ADD_LAUNCH, (*values, to_text(environment), _now()))
            return int(cursor.lastrowid or 0)

    def add_prepared(self, launch_id: int, cell: Cell, evidence: str, record: CompileRecord) -> None:
        """Add what preparing a cell gave. A later record of the same cell, such as its crash, replaces it."""
        text = cell_to_text(cell)
        self._pending += [
            (statements.ADD_CELL, (text,)),
            (statements.ADD_PREPARED, (launch_id, text, evidence, to_text(record.to_json()))),
        ]

    def add_visit(self, launch_id: int, cell: Cell, block: int, position: int, visit: Visit) -> None:
        """Add one visit to a prepared cell. ``position`` is the cell's place in the block's order."""
        samples = (visit.wall_ns, visit.cpu_ns, visit.run_delay_ns, visit.faults, visit.request_ns)
        around = readings_to_text(visit.around) if visit.around else None
        values = (launch_id, cell_to_text(cell), block, position, visit.calls, *map(to_blob, samples), around)
        self._pending.append((statements.ADD_VISIT, values))

    def commit(self) -> None:
        """Write what was added since the last commit. After a StoreError it is still pending."""
        self._write(self._pending, self._drop_pending)

    def _drop_pending(self) -> None:
        self._pending = []

    def finish_launch(
        self,
        launch_id: int,
        *,
        invalid: str = "",
        environment: Mapping[str, Any] | None = None,
        readings: Sequence[tuple[Reading, Reading] | None] = (),
    ) -> None:
        """Commit and make the launch count, unless ``invalid`` gives the reason why it must not.

        ``readings`` are the reference kernel's before and after each block.
        """
        end = None if environment is None else to_text(environment)
        values = (_now(), invalid, end, readings_to_text(readings), launch_id)
        with self._writing(self._drop_pending):
            if self._connection.execute(statements.FINISH_LAUNCH, values).rowcount == 0:
                raise self._gone(f"launch {launch_id}")
            for statement, written in self._pending:
                self._connection.execute(statement, written)

    def incomplete_launches(self, run_id: int) -> int:
        """Count the launches that a run began and did not finish."""
        return int(self._read(statements.INCOMPLETE_LAUNCHES, (run_id,))[0][0])

    def run_launches(self, run_id: int) -> list[LaunchRow]:
        """Return the finished launches that a run measured, those that do not count among them, without samples."""
        return [
            LaunchRow(
                launch_id, number, int(seed), clean(invalid), from_text(start), None if end is None else from_text(end)
            )
            for launch_id, number, seed, invalid, start, end in self._read(statements.LAUNCHES_OF_RUN, (run_id,))
        ]

    def states(self, device: str, machine: Mapping[str, Any], *, most: int = 200) -> list[Reading]:
        """Return the states that a device's latest launches were in, those on this machine, latest first.

        ``machine`` are the facts of a run's environment that make it the same machine.
        """
        around = self._around(device, machine, most=most, include_invalid=False)
        states = [home(reading for pair in pairs if pair is not None for reading in pair) for _, pairs, _ in around]
        return [state for state in states if state is not None]

    def dwell_seconds(self, device: str, machine: Mapping[str, Any], *, most: int = 200) -> float:
        """Return about how long this machine stays in a state, by the latest launches of a device, also those that do
        not count: see ``states``."""
        around = self._around(device, machine, most=most, include_invalid=True)
        return dwell_seconds((seconds, pairs) for seconds, pairs, _ in reversed(around))

    def crowding(
        self, device: str, machine: Mapping[str, Any], *, most: int = LATEST
    ) -> tuple[list[float], list[float]]:
        """Return how crowded this machine was in the latest launches of a device, the last one last: see ``states``.

        The second list is what the fastest glances at it read (``spec.states.steadiness``).
        """
        around = self._around(device, machine, most=most, include_invalid=False)
        each = zip(*(known for *_, known in reversed(around)), strict=True) if around else ([], [])
        usual, fastest = ([one for one in some if isinstance(one, float) and 0 < one < math.inf] for some in each)
        return usual, fastest

    def _around(
        self, device: str, machine: Mapping[str, Any], *, most: int, include_invalid: bool
    ) -> list[tuple[float, list[tuple[Reading, Reading] | None], tuple[object, object]]]:
        """Return the seconds of a device's latest launches, their readings and crowding, of those on this machine."""
        wanted = {"device": device, "most": most, "include_invalid": include_invalid}
        found = []
        for text, seconds, environment, *crowding in self._read(statements.READINGS, wanted):
            facts = facts_of(from_text(environment), device) or {}
            if all(facts.get(name) == fact for name, fact in machine.items()):
                found.append((float(seconds), readings_of(text), (crowding[0], crowding[1])))
        return found

    def remembered(self, protocol: str, most: int = 2000) -> list[tuple[str, frozenset[str], float, bool]]:
        """Return the latest timed launches by a protocol, of whatever evidence: their group, the labels of their cells,
        their wall seconds and whether they counted."""
        rows = self._read(statements.REMEMBERED, (protocol, most))
        return [(group, frozenset(from_text(order)), seconds, not invalid) for group, order, seconds, invalid in rows]

    # Evidence

    def launches(
        self,
        evidence: Mapping[Cell, str],
        *,
        kind: str = "timed",
        include_invalid: bool = False,
        any_epoch: bool = False,
    ) -> list[LaunchRecord]:
        """Return the finished launches that hold at least one of these cells with its evidence, oldest first.

        Each has the preparations and visits of just these cells. What lies before an epoch does not count, but with
        ``any_epoch``, for what is asked of the past. What was measured with the same evidence counts also where the
        model lay in another place.
        """
        prepared: dict[int, dict[Cell, CompileRecord]] = {}
        visits: dict[int, dict[tuple[Cell, int], Visit]] = {}
        places: dict[int, dict[tuple[Cell, int], int]] = {}
        rows: dict[int, Sequence[Any]] = {}
        with explained(self.path), snapshot(self._connection):
            for cell, key in evidence.items():
                wanted = {"evidence": key, "cell": cell_to_text(cell), "kind": kind, "any_epoch": any_epoch}
                wanted |= {"include_invalid": include_invalid}
                found = {launch_id: held for launch_id, *held in self._read(statements.PREPARED, wanted)}
                for launch_id, (number, record) in found.items():
                    if not self._is_sound(launch_id):
                        continue
                    prepared.setdefault(launch_id, {})[cell] = record_of(record)
                    of_launch, places_of = visits.setdefault(launch_id, {}), places.setdefault(launch_id, {})
                    if launch_id not in rows:
                        rows[launch_id] = self._read(statements.LAUNCH, (launch_id,))[0]
                    for block, position, calls, *samples in self._read(statements.VISITS, (launch_id, number)):
                        of_launch[cell, block] = Visit(calls, *map(from_blob, samples))
                        places_of[cell, block] = position
            return [launch_of(rows[each], prepared[each], visits[each], places[each]) for each in sorted(prepared)]

    def related(self, evidence: Mapping[Cell, str]) -> Iterator[Related]:
        """Yield these cells in groups that share launches, each with what counts for it: for many cells at once."""
        return read_related(self._read, evidence, self._is_sound, self._samples)

    def latest_evidence(self, cell: Cell, *, protocol: str | None = None, seed: int | None = None) -> str | None:
        """Return the evidence under which a cell was last judged, or None: by any protocol and from any seed, or by
        these, which are part of evidence."""
        wanted = {"cell": cell_to_text(cell), "protocol": protocol, "seed": None if seed is None else str(seed)}
        rows = self._read(statements.LATEST_EVIDENCE, wanted)
        return str(rows[0][0]) if rows else None

    def evidence_by_run(self, cell: Cell) -> dict[int, str]:
        """Return under which evidence each run measured a cell, the latest where it was several."""
        return {int(run): str(key) for run, key in self._read(statements.EVIDENCE_BY_RUN, (cell_to_text(cell),))}

    def failed(self, evidence: Mapping[Cell, str]) -> dict[Cell, CompileRecord]:
        """Return the record of each cell whose latest outcome, in a finished launch of any kind, is not ok."""
        failures = {}
        for cell, key in evidence.items():
            for (text,) in self._read(statements.LAST_RECORD, {"evidence": key, "cell": cell_to_text(cell)}):
                record = record_of(text)
                if record.outcome is not Outcome.OK:
                    failures[cell] = record
        return failures

    def start_epoch(self, evidence: Iterable[str], *, run_id: int | None = None) -> None:
        """Start evidence again: launches begun so far no longer count for it.

        With ``run_id`` this happens once in that run, so that xdist siblings do not discard each other's launches.
        """
        now = _now()
        self._write([(statements.START_EPOCH, (key, run_id, now)) for key in evidence])

    def epochs(self, evidence: Iterable[str]) -> list[int]:
        """Return, for each evidence, from which launch on launches count for it, 0 where all do."""
        found = [self._read(statements.EPOCH, (key,)) for key in evidence]
        return [int(rows[0][0]) if rows else 0 for rows in found]

    # Verdicts

    def add_verdict(self, run_id: int, row: VerdictRow) -> None:
        """Keep how a claim was judged in a run."""
        bounds = (row.nodeid, row.claim, row.metric, row.bound, row.at_least, row.tolerance)
        numbers = (row.estimate, row.low, row.high, row.launches, row.verdict, row.smallest_effect)
        self._write([(statements.ADD_VERDICT, (run_id, *bounds, *numbers, to_text(row.extra), _now()))])

    def verdicts(self, run_id: int) -> list[VerdictRow]:
        """Return the claims of a run as each was judged last."""
        return [_verdict_row(row) for row in self._read(statements.VERDICTS_OF_RUN, (run_id,))]

    def first_judgement(self, nodeid: str, claim: str, evidence: str) -> VerdictRow | None:
        """Return how a claim of a test was first judged on some evidence, which its verdicts were kept with."""
        wanted = {"nodeid": nodeid, "claim": claim, "evidence": evidence}
        rows = self._read(statements.FIRST_JUDGEMENT, wanted)
        return _verdict_row(rows[0]) if rows else None

    def last_settled(self, subject: str, side: str, reason: str) -> int:
        """Return the latest run that settled a claim about a cell and its side without a launch, 0 where none did.

        ``subject`` is the label of the cell, ``side`` that of the side, ``reason`` is why no launch was needed.
        """
        rows = self._read(statements.LAST_SETTLED, {"subject": subject, "side": side, "reason": reason})
        return int(rows[0][0] or 0)

    def claims(self, nodeid: str) -> list[VerdictRow]:
        """Return the claims of a test in the latest run that judged any of them."""
        return [_verdict_row(row) for row in self._read(statements.CLAIMS_OF_TEST, {"nodeid": nodeid})]

    def undecided_claims(self) -> list[VerdictRow]:
        """Return the claims of all tests that their latest run could not decide, unable to see their tolerance."""
        return [_verdict_row(row) for row in self._read(statements.UNDECIDED_CLAIMS)]

    # What ran

    def explain(self, cell: Cell, evidence: str, explanation: Mapping[str, Any]) -> None:
        """Keep what ran inside a cell with this evidence, as JSON. It replaces what was kept before."""
        self._write([(statements.EXPLAIN, (evidence, cell_to_text(cell), to_text(explanation), _now()))])

    def explanation(self, evidence: str) -> tuple[Mapping[str, Any], str] | None:
        """Return what ``explain`` kept for some evidence and when, or None."""
        rows = self._read(statements.EXPLANATION, (evidence,))
        return (from_text(rows[0][0]), clean(rows[0][1])) if rows else None

    def explained_evidence(self) -> set[str]:
        """Return all evidence for which ``explain`` has kept something."""
        return {str(key) for (key,) in self._read(statements.EXPLAINED)}

    # Less

    def prune(self, runs: Sequence[int], last: int | None, *, dry_run: bool) -> Pruned:
        """Take runs out with the launches they measured, those apart that the run ``last`` judges. Shrink the file.

        A run of which a launch stays keeps its row. With ``dry_run`` nothing is written.
        """
        with snapshot(self._connection):
            pruned = pruning.choose(self._connection, runs, last)
        if not dry_run:
            with self._writing() as sealer:
                pruning.take_out(self._connection, sealer, runs, pruned)
            for launch_id in pruned.launches:
                self.damaged.pop(launch_id, None)
            self.compact()
        return pruned

    def compact(self) -> None:
        """Rewrite the file without free space. Raise StoreError where another process uses it."""
        with explained(self.path):
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # Reading and writing

    @contextmanager
    def _writing(self, written: Callable[[], None] | None = None) -> Iterator[Sealer]:
        """Seal and write what is done inside, all or nothing. ``written`` is called once it is in the file."""
        if self._sealer is None:
            raise StoreError(f"store {self.path}: {READ_ONLY}")
        try:
            with explained(self.path), transaction(self._connection, written):
                yield self._sealer
                self._sealer.flush()
        finally:
            self._sealer.forget()

    def _write(self, writes: Sequence[_Write], written: Callable[[], None] | None = None) -> None:
        with self._writing(written):
            for statement, values in writes:
                self._connection.execute(statement, values)

    def _read(self, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        with explained(self.path):
            return self._connection.execute(statement, values).fetchall()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _run_row(row: tuple[Any, ...]) -> RunRow:
    run_id, uid, started_at, finished_at, status, command, seed, protocol, environment, fresh, resumed, end = row
    facts, left_out = split_left_out(from_text(environment))
    return RunRow(
        run_id,
        uid,
        # Earlier versions repaired runs to rows without these.
        clean(started_at or UNKNOWN_TIME),
        None if finished_at is None else clean(finished_at),
        clean(status),
        tuple(from_text(command)),
        int(seed),
        clean(protocol or UNKNOWN_PROTOCOL),
        facts,
        bool(fresh),
        bool(resumed),
        None if end is None else from_text(end),
        left_out,
    )


def _verdict_row(row: tuple[Any, ...]) -> VerdictRow:
    nodeid, claim, metric, bound, at_least, *numbers, extra = row
    values = (clean(nodeid), clean(claim), metric, bound, bool(at_least), *numbers, from_text(extra))
    return VerdictRow(*values)
