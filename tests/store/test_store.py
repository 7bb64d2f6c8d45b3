"""The store gives back what was put in, and only what counts."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ngraph.errors import StoreError
from pytest_ngraph.spec.cells import (
    Cell,
    CompileRecord,
    CompilerSpec,
    LaunchRecord,
    ModelRef,
    Outcome,
    Reading,
    Visit,
    Workload,
)
from pytest_ngraph.store import codec, statements
from pytest_ngraph.store.sqlite import Store
from tests.golden.store_content import (
    BASELINE,
    BROKEN,
    EVIDENCE,
    FASTER,
    GATE,
    RECORDS,
    add,
    add_launch,
    cell,
    change,
    fill,
    launch,
    start_run,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".ngraph" / "results.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path) as opened:
        yield opened


def bare_launch(store: Store, run_id: int, number: int = 1) -> int:
    return store.start_launch(run_id, group="g", number=number, seed=0, protocol=GATE, order=[], environment={})


def add_outcome(store: Store, run_id: int, outcome: Outcome) -> CompileRecord:
    record = CompileRecord(outcome, f"because of {outcome}")
    launch_id = bare_launch(store, run_id)
    store.add_prepared(launch_id, BROKEN, EVIDENCE[BROKEN], record)
    store.finish_launch(launch_id)
    return record


# Launches


def counts_of(store: Store, evidence: Mapping[Cell, str], kind: str = "timed") -> dict[Cell, int]:
    """Count the launches of each cell, whatever else is asked for beside it."""
    found = store.launches(evidence, kind=kind)
    return {each: sum(each in record.prepared for record in found) for each in evidence}


def test_launches_come_back_as_they_were_measured(path: Path) -> None:
    with Store.open(path) as store:
        fill(store, launches=3)
    with Store.open(path) as store:
        assert store.launches(EVIDENCE) == [launch(1), launch(2), launch(3)]
        assert counts_of(store, EVIDENCE) == dict.fromkeys(EVIDENCE, 3)


def test_only_the_cells_that_are_asked_for_come_back(store: Store) -> None:
    fill(store, launches=1)
    asked = {FASTER: EVIDENCE[FASTER], BASELINE: "another evidence", cell("tvm"): EVIDENCE[FASTER]}
    (found,) = store.launches(asked)
    assert found.prepared == {FASTER: RECORDS[FASTER]}
    assert {at for at, _ in found.visits} == {FASTER}
    assert counts_of(store, asked) == {FASTER: 1, BASELINE: 0, cell("tvm"): 0}
    assert store.launches({}) == []


@pytest.mark.parametrize(
    "visit",
    [
        Visit(1, (1,)),
        Visit(5, (1, 2), cpu_ns=(3, 4)),
        Visit(5, (1, 2), run_delay_ns=(0, 0)),
        Visit(5, (1, 2), faults=(7, 8)),
        Visit(1, ()),
        Visit(2, (9, 8), cpu_ns=(1, 2), faults=(0, 0), request_ns=(12, 13, 14, 15)),
        Visit(3, (2**63 - 1,), (-(2**63),), (0,), (1,)),
    ],
    ids=["bare", "cpu", "run-delay", "faults", "nothing usable", "several in flight", "extremes"],
)
def test_a_visit_keeps_its_arrays_and_what_could_not_be_read_stays_empty(store: Store, visit: Visit) -> None:
    launch_id = bare_launch(store, start_run(store))
    store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
    store.add_visit(launch_id, FASTER, 0, 0, visit)
    store.finish_launch(launch_id)
    assert store.launches({FASTER: "e"})[0].visits == {(FASTER, 0): visit}


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)).map(tuple))
def test_arrays_are_little_endian_64_bit_integers(values: tuple[int, ...]) -> None:
    blob = codec.to_blob(values)
    assert blob == b"".join(value.to_bytes(8, "little", signed=True) for value in values)
    assert codec.from_blob(blob) == values
    assert codec.from_blobs([blob, b"", blob[:8]]) == [values, (), values[:1]]


def test_arrays_that_are_cut_short_are_not_read_as_others() -> None:
    whole = codec.to_blob((1, 2))
    with pytest.raises(ValueError, match="multiple"):
        codec.from_blobs([whole[:-4], whole[4:]])


@settings(deadline=None)
@given(st.floats())
def test_every_float_survives_the_json_columns(value: float) -> None:
    assert repr(codec.from_text(codec.to_text({"x": [value]}))) == repr({"x": [value]})


def test_an_unfinished_launch_does_not_count(store: Store) -> None:
    run_id = fill(store, launches=1)
    launch_id = bare_launch(store, run_id, number=2)
    store.add_prepared(launch_id, BROKEN, EVIDENCE[BROKEN], CompileRecord(Outcome.OK))
    store.commit()
    assert [found.number for found in store.launches(EVIDENCE)] == [1]
    assert counts_of(store, EVIDENCE)[BROKEN] == 1
    assert store.failed(EVIDENCE) == {BROKEN: RECORDS[BROKEN]}
    assert store.incomplete_launches(run_id) == 1


def test_what_was_not_committed_is_dropped(path: Path) -> None:
    with Store.open(path) as store:
        launch_id = bare_launch(store, start_run(store))
        store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
    with Store.open(path) as store:
        store.finish_launch(launch_id)
        assert store.launches({FASTER: "e"}) == []


def test_invalid_launches_are_kept_and_come_only_when_asked_for(store: Store) -> None:
    run_id = start_run(store)
    add_launch(store, run_id, 1, invalid="62 % of the wall went to others")
    add_launch(store, run_id, 2)
    assert [found.number for found in store.launches(EVIDENCE)] == [2]
    assert counts_of(store, EVIDENCE)[FASTER] == 1
    both = store.launches(EVIDENCE, include_invalid=True)
    assert both == [replace(launch(1), invalid="62 % of the wall went to others"), launch(2)]


def test_kinds_of_launches_are_kept_apart(store: Store) -> None:
    run_id = start_run(store)
    add_launch(store, run_id, 1, kind="control")
    assert store.launches(EVIDENCE) == []
    assert store.launches(EVIDENCE, kind="control") == [launch(1)]
    assert counts_of(store, EVIDENCE, kind="control")[FASTER] == 1


def test_a_later_record_of_a_cell_replaces_the_one_before_and_keeps_its_visits(store: Store) -> None:
    launch_id = bare_launch(store, start_run(store))
    crash = CompileRecord(Outcome.CRASH, "killed by signal 11")
    store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
    store.add_visit(launch_id, FASTER, 0, 0, Visit(1, (5,)))
    store.commit()
    store.add_prepared(launch_id, FASTER, "e", crash)
    store.finish_launch(launch_id)
    (found,) = store.launches({FASTER: "e"})
    assert found.prepared == {FASTER: crash}
    assert found.visits == {(FASTER, 0): Visit(1, (5,))}


def test_a_visit_to_a_cell_that_was_not_prepared_is_refused_and_nothing_is_written(store: Store, path: Path) -> None:
    launch_id = bare_launch(store, start_run(store))
    store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
    store.add_visit(launch_id, BASELINE, 0, 0, Visit(1, (5,)))
    with pytest.raises(StoreError, match=re.escape(str(path))):
        store.finish_launch(launch_id)
    assert store.launches({FASTER: "e"}) == []


def test_a_launch_that_another_process_took_out_cannot_be_finished(store: Store, path: Path) -> None:
    launch_id = bare_launch(store, start_run(store))
    store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
    change(path, "DELETE FROM launches")
    with pytest.raises(StoreError, match="is not in it; if another process repaired or pruned it meanwhile, run again"):
        store.commit()
    with pytest.raises(StoreError, match=r"launch 1 is not in it any more: .*run again"):
        store.finish_launch(launch_id)


class Interrupted:
    """A connection at which Ctrl-C comes once, just before or just after a statement."""

    def __init__(self, connection: sqlite3.Connection, at: str, *, is_done: bool) -> None:
        self._connection, self._at, self._is_done = connection, at, is_done
        self.came = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        comes = statement == self._at and not self.came
        self.came |= comes
        if comes and not self._is_done:
            raise KeyboardInterrupt
        done = self._connection.execute(statement, *values)
        if comes:
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT"])
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("finishes", [False, True])
def test_ctrl_c_while_something_is_written_leaves_a_store_that_goes_on(
    store: Store, statement: str, is_done: bool, finishes: bool
) -> None:
    run_id = start_run(store)
    launch_id = bare_launch(store, run_id)
    store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
    store.add_visit(launch_id, FASTER, 0, 0, Visit(1, (5,)))
    connection = store._connection
    interrupted: Any = Interrupted(connection, statement, is_done=is_done)
    store._connection = interrupted
    with pytest.raises(KeyboardInterrupt):
        store.finish_launch(launch_id) if finishes else store.commit()
    assert interrupted.came
    assert not connection.in_transaction

    store.add_visit(launch_id, FASTER, 1, 0, Visit(1, (6,)))
    store.commit()
    store.finish_launch(launch_id)
    store.finish_launch(bare_launch(store, run_id))

    (found,) = store.launches({FASTER: "e"})
    assert found.visits == {(FASTER, 0): Visit(1, (5,)), (FASTER, 1): Visit(1, (6,))}
    with Store.open(store.path, read_only=True) as reader:
        assert len(reader.launches({FASTER: "e"})) == 1
        assert reader.damaged == {}


# States of the machine

NEAR, FAR = Reading(100_000, (360, 370)), Reading(101_000, (720, 740))


def launch_between(store: Store, *readings: tuple[Reading, Reading] | None) -> None:
    """Write a launch with a block for each pair of readings around it."""
    launch_id = bare_launch(store, start_run(store))
    store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
    for block in range(len(readings)):
        store.add_visit(launch_id, FASTER, block, 0, Visit(1, (block + 1,)))
    store.finish_launch(launch_id, readings=readings)


def test_blocks_in_another_state_of_the_machine_are_kept_and_left_out(store: Store, path: Path) -> None:
    launch_between(store, (NEAR, NEAR), (FAR, FAR), None, (NEAR, FAR), (NEAR, NEAR))

    (found,) = store.launches({FASTER: "e"})

    assert found.visits == {(FASTER, block): Visit(1, (block + 1,)) for block in (0, 2, 4)}
    assert found.home == NEAR
    reader = sqlite3.connect(path)
    assert reader.execute("SELECT count(*) FROM visits").fetchone() == (5,)
    reader.close()


def test_a_launch_knows_the_state_it_was_measured_in(store: Store) -> None:
    launch_between(store, (FAR, FAR), (FAR, NEAR), (FAR, FAR))
    launch_between(store, (NEAR, NEAR))
    launch_between(store, None, None)
    launch_between(store)

    assert [found.home for found in store.launches({FASTER: "e"})] == [FAR, NEAR, None, None]


def test_readings_of_one_cpu_have_nothing_to_cross(store: Store) -> None:
    launch_between(store, (Reading(100_000), Reading(100_500)), (Reading(150_000), Reading(150_000)))
    (found,) = store.launches({FASTER: "e"})
    assert found.home == Reading(100_000)
    assert {block for _, block in found.visits} == {0}


def test_a_launch_knows_how_long_it_took(store: Store, path: Path) -> None:
    launch_between(store)
    assert 0 <= store.launches({FASTER: "e"})[0].seconds < 60
    writer = sqlite3.connect(path)
    times = ("2026-02-28T23:59:58.500+00:00", "2026-03-01T00:00:11.000+00:00")
    writer.execute("UPDATE launches SET started_at = ?, finished_at = ?", times)
    writer.commit()
    writer.close()
    assert store.launches({FASTER: "e"})[0].seconds == pytest.approx(12.5, abs=1e-3)


def timed_launch(store: Store, begun: Mapping[str, Any], ended: Mapping[str, Any]) -> None:
    """Write a launch between two states of the machine, with a reading."""
    launch_id = store.start_launch(
        start_run(store), group="g", number=1, seed=0, protocol=GATE, order=[FASTER.label], environment=begun
    )
    store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
    store.finish_launch(launch_id, environment=ended, readings=[(NEAR, NEAR)])


@pytest.mark.parametrize(
    ("begun", "ended", "seconds"),
    [
        ({"at": 100.25}, {"at": 112.75}, 12.5),
        # What earlier versions wrote, and a device that was started again midway: there is only the time of day.
        ({}, {}, 8 * 3600),
        ({"at": 100.25}, {}, 8 * 3600),
        ({"at": 100.25}, {"at": 3.0}, 8 * 3600),
    ],
)
def test_a_clock_that_was_set_makes_no_launch_longer(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    begun: Mapping[str, Any],
    ended: Mapping[str, Any],
    seconds: float,
) -> None:
    clock = [datetime(2026, 3, 1, tzinfo=timezone.utc)]

    def now() -> str:
        clock[0] += timedelta(hours=8)
        return clock[0].isoformat(timespec="milliseconds")

    monkeypatch.setattr("pytest_ngraph.store.sqlite._now", now)
    timed_launch(store, begun, ended)

    assert store.launches({FASTER: "e"})[0].seconds == pytest.approx(seconds, abs=1e-3)
    assert [one.seconds for group in store.related({FASTER: "e"}) for one in group.timed] == pytest.approx([seconds])
    assert [each for _, _, each, _ in store.remembered("gate")] == pytest.approx([seconds])
    assert [each for each, *_ in store._around("local", {}, most=9, include_invalid=True)] == pytest.approx([seconds])


def test_a_clock_that_was_put_back_gives_no_time_away(store: Store, path: Path) -> None:
    launch_between(store)
    assert len(store.launches({FASTER: "e"})) == 1
    change(path, "UPDATE launches SET started_at = '2026-03-01T08:00:00+00:00', finished_at = '2026-03-01T00:00:00'")
    assert store.launches({FASTER: "e"})[0].seconds == 0


def test_cells_that_were_asked_for_are_asked_for_again_once_anything_changed(store: Store, path: Path) -> None:
    run_id = start_run(store)
    assert store.cells(run_id) == []
    add_launch(store, run_id, 1)
    mine = store.cells(run_id)
    assert dict(mine) == EVIDENCE
    mine.clear()  # what is given belongs to who asked
    with Store.open(path) as other:
        assert dict(other.cells(run_id)) == EVIDENCE
        more = cell("tvm")
        launch_id = bare_launch(other, run_id, 2)
        other.add_prepared(launch_id, more, "e", RECORDS[FASTER])
        other.finish_launch(launch_id)
    assert dict(store.cells(run_id)) == {**EVIDENCE, more: "e"}
    # Of a launch that turns out to be damaged nothing is read any more.
    store._found_damaged(launch_id, ["visits"])
    assert dict(store.cells(run_id)) == EVIDENCE


# Epochs


def test_an_epoch_discards_what_was_measured_before_for_its_evidence_only(store: Store) -> None:
    run_id = fill(store, launches=2)
    store.start_epoch([EVIDENCE[FASTER], EVIDENCE[BROKEN], "never measured"])
    assert counts_of(store, EVIDENCE) == {BASELINE: 2, FASTER: 0, BROKEN: 0}
    assert store.failed(EVIDENCE) == {}
    assert [set(found.prepared) for found in store.launches(EVIDENCE)] == [{BASELINE}, {BASELINE}]
    add_launch(store, run_id, 3)
    assert store.launches(EVIDENCE)[-1] == launch(3)
    store.start_epoch([EVIDENCE[FASTER]])
    assert counts_of(store, EVIDENCE)[FASTER] == 0
    # What is asked of the past is told of all of it.
    assert store.launches(EVIDENCE, any_epoch=True) == [launch(1), launch(2), launch(3)]


def test_a_launch_that_began_before_the_epoch_does_not_count(store: Store) -> None:
    launch_id = bare_launch(store, start_run(store))
    store.start_epoch(["e"])
    store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
    store.finish_launch(launch_id)
    assert store.launches({FASTER: "e"}) == []


def test_an_epoch_of_a_run_begins_once(store: Store) -> None:
    run_id = start_run(store)
    add_launch(store, run_id, 1)
    store.start_epoch(EVIDENCE.values(), run_id=run_id)
    add_launch(store, run_id, 2)
    store.start_epoch(EVIDENCE.values(), run_id=run_id)  # a sibling, or the run resumed
    assert store.launches(EVIDENCE) == [launch(2)]
    store.start_epoch(EVIDENCE.values(), run_id=start_run(store, "run-2"))
    assert store.launches(EVIDENCE) == []


# Outcomes


def test_the_latest_failure_is_told_until_the_cell_works(store: Store) -> None:
    run_id = start_run(store)
    asked = {BROKEN: EVIDENCE[BROKEN]}
    assert store.failed(asked) == {}
    add_outcome(store, run_id, Outcome.CRASH)
    latest = add_outcome(store, run_id, Outcome.OOM)
    assert store.failed(asked) == {BROKEN: latest}
    assert store.failed({BROKEN: "another evidence"}) == {}
    add_outcome(store, run_id, Outcome.OK)
    assert store.failed(asked) == {}
    assert add_outcome(store, run_id, Outcome.TIMEOUT) == store.failed(asked)[BROKEN]


# The same content elsewhere


def at(folder: str, text: str = "net.py:make") -> Cell:
    """Return a cell of a model that lies in a folder."""
    model = ModelRef(text, "file", f"{folder}/{text}")
    return Cell("local", CompilerSpec("identity"), Workload(model, batch=8))


def measure(store: Store, evidence: Mapping[Cell, str], number: int, outcome: Outcome = Outcome.OK, **how: Any) -> None:
    """Write a launch of these cells, each with a time of its own."""
    visits = {} if outcome is Outcome.CRASH else {(one, 0): Visit(1, (number + i,)) for i, one in enumerate(evidence)}
    record = LaunchRecord(number, number, "gate", dict.fromkeys(evidence, CompileRecord(outcome)), visits)
    add(store, start_run(store, f"run-{number}"), record, evidence, **how)


def test_what_was_measured_at_another_path_counts_for_the_cell_that_is_asked_for(store: Store) -> None:
    ours, theirs, renamed = at("/ours"), at("/theirs"), at("/theirs", "nets/net.py:make")
    measure(store, {theirs: "e"}, 1)
    measure(store, {theirs: "other"}, 2)
    measure(store, {theirs: "e"}, 3, kind="memory")
    measure(store, {theirs: "e"}, 4, Outcome.CRASH)

    for asked in (ours, renamed, theirs):
        found = store.launches({asked: "e"})
        assert [(one.number, set(one.prepared), one.visits) for one in found] == [
            (1, {asked}, {(asked, 0): Visit(1, (1,))}),
            (4, {asked}, {}),
        ]
        assert [one.number for one in store.launches({asked: "e"}, kind="memory")] == [3]
        assert counts_of(store, {asked: "e"}) == {asked: 2}
        assert store.failed({asked: "e"}) == {asked: CompileRecord(Outcome.CRASH)}
        (related,) = store.related({asked: "e"})
        assert related.cells == [asked]
        assert related.timed == found
        assert related.memory == store.launches({asked: "e"}, kind="memory")
        assert related.failed == store.failed({asked: "e"})
    measure(store, {ours: "e"}, 5)
    assert store.failed({theirs: "e"}) == {}
    store.start_epoch(["e"])
    assert store.launches({ours: "e"}) == []


def test_what_was_measured_beside_a_neighbour_at_another_path_counts_too(store: Store) -> None:
    def beside(folder: str, text: str = "other.py:make@identity") -> Cell:
        one = at(folder)
        model = ModelRef("other.py:make", "file", f"{folder}/other.py:make")
        return replace(one, workload=replace(one.workload, neighbour=text, beside=model))

    ours, theirs = beside("/ours"), beside("/theirs")
    measure(store, {theirs: "e"}, 1)

    assert counts_of(store, {ours: "e"}) == {ours: 1}
    (related,) = store.related({ours: "e"})
    assert related.timed == store.launches({ours: "e"})
    # Another neighbour is another cell, and so is none.
    for other in (at("/ours"), beside("/ours", "other.py:make+batch=2@identity")):
        assert store.launches({other: "e"}) == []


def test_a_launch_that_does_not_count_says_why_to_the_same_content_elsewhere(store: Store) -> None:
    measure(store, {at("/theirs"): "e"}, 1, invalid="too much else ran")
    (related,) = store.related({at("/ours"): "e"})
    assert related.invalid == {at("/ours"): "too much else ran"}


def test_two_cells_of_the_same_content_each_have_their_own_launches_first(store: Store) -> None:
    one, other = at("/a"), at("/b")
    both = {one: "e", other: "e"}
    measure(store, both, 10)
    measure(store, {other: "e"}, 20)
    found = store.launches(both)
    assert [launch.visits for launch in found] == [
        {(one, 0): Visit(1, (10,)), (other, 0): Visit(1, (11,))},
        # Only one of them was measured, and it is what the other is.
        {(one, 0): Visit(1, (20,)), (other, 0): Visit(1, (20,))},
    ]
    assert counts_of(store, both) == {one: 2, other: 2}
    (related,) = store.related(both)
    assert (set(related.cells), related.timed) == ({one, other}, found)
    assert store.launches({at("/c"): "e"})[0].visits == {(at("/c"), 0): Visit(1, (10,))}


def test_one_compiler_never_answers_for_another(store: Store) -> None:
    measure(store, {at("/a"): "e"}, 1)
    others = (
        replace(at("/a"), compiler=CompilerSpec("openvino")),
        replace(at("/a"), replica=1),
        replace(at("/a"), rebuild=True),
        replace(at("/a"), workload=replace(at("/a").workload, batch=1)),
    )
    assert store.launches(dict.fromkeys(others, "e")) == []
    assert counts_of(store, dict.fromkeys(others, "e")) == dict.fromkeys(others, 0)


# Scale

LOOKUPS = [
    statements.RUN_ID,
    statements.CELLS_OF_RUN,
    statements.INCOMPLETE_LAUNCHES,
    statements.PREPARED,
    statements.LAST_RECORD,
    statements.LAUNCH,
    statements.VISITS,
    statements.LAUNCHES_OF_CELLS,
    statements.VISITS_IN_LAUNCH,
    statements.PREPARED_IN_LAUNCH,
    statements.RECORD_IN_LAUNCH,
    statements.VERDICTS_OF_RUN,
    statements.CLAIMS_OF_TEST,
]
NAMES = ("run", "evidence", "cell", "kind", "include_invalid", "any_epoch", "nodeid", "wanted")


def test_a_store_of_many_samples_is_searched_by_index(store: Store, path: Path) -> None:
    run_id = start_run(store)
    for number in range(25):
        launch_id = bare_launch(store, run_id, number)
        for batch in range(1, 6):
            store.add_prepared(launch_id, cell(batch=batch), f"evidence-{batch}-{number}", RECORDS[BASELINE])
            for block in range(8):
                wall_ns = range(4_000_000, 4_000_100)
                store.add_visit(launch_id, cell(batch=batch), block, batch, Visit(1, tuple(wall_ns)))
        store.finish_launch(launch_id)
    reader = sqlite3.connect(path)
    reader.create_function("is_damaged", 1, lambda launch_id: False)
    assert reader.execute("SELECT sum(samples), count(*) FROM visits").fetchone() == (100_000, 1_000)
    for lookup in LOOKUPS:
        values = dict.fromkeys(NAMES, "x") if ":" in lookup else ["x"] * lookup.count("?")
        plan = [row[3] for row in reader.execute(f"EXPLAIN QUERY PLAN {lookup}", values)]
        scans = [
            step for step in plan if re.match(r"SCAN (TABLE )?(runs|cells|launches|prepared|visits|verdicts)", step)
        ]
        assert not scans, (lookup, plan)
    reader.close()
    assert len(store.launches({cell(batch=3): "evidence-3-7"})[0].visits) == 8


def test_visits_around_which_the_machine_was_not_steady_are_known_when_read_back(store: Store, path: Path) -> None:
    """Which they are is known when the launch ends, by block and position: of a cell alone it cannot be told."""
    run_id, wanted = start_run(store), launch(1)
    glances = ((Reading(150_000, (290,)), Reading(225_000, (330,))),)
    launch_id = store.start_launch(
        run_id, group="g", number=1, seed=wanted.seed, protocol=GATE, order=[], environment={}
    )
    for one, record in wanted.prepared.items():
        store.add_prepared(launch_id, one, EVIDENCE[one], record)
    places = {}
    for position, one in enumerate((BASELINE, FASTER)):
        for block in (0, 1):
            places[one, block] = position
            store.add_visit(launch_id, one, block, position, replace(wanted.visits[one, block], around=glances))
    store.finish_launch(
        launch_id, environment={"unsteady": [(1, places[FASTER, 1])], "stolen": [(0, places[BASELINE, 0], 30_000_000)]}
    )

    (related,) = store.related({BASELINE: EVIDENCE[BASELINE], FASTER: EVIDENCE[FASTER]})
    for read in (*store.launches(EVIDENCE), *store.launches({FASTER: EVIDENCE[FASTER]}), *related.finished):
        assert read.visits.items() <= wanted.visits.items()
        assert read.unsteady == {(FASTER, 1)}
        taken = {place: stay.stolen_ns for place, stay in read.visits.items() if stay.stolen_ns}
        assert taken == {place: 30_000_000 for place in read.visits if place == (BASELINE, 0)}
    assert store.launches(EVIDENCE)[0].visits == related.finished[0].visits == wanted.visits
    assert store.launches({BASELINE: EVIDENCE[BASELINE]})[0].unsteady == frozenset()
    with closing(sqlite3.connect(path)) as raw:
        kept = [json.loads(text) for (text,) in raw.execute("SELECT around FROM visits")]
    assert kept == [json.loads(codec.to_text([[asdict(glance) for glance in pair] for pair in glances]))] * 4
