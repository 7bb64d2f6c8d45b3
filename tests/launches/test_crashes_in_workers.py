"""Whatever a worker does is an outcome of the cell it was busy with, and the others keep their launch."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.texts.shown import KEPT_BYTES, excerpt
from tests.support.bad_compilers import workers_of
from tests.support.measuring import TIMED, cell, job, launch, nothing_left_behind

pytestmark = pytest.mark.real

SHORT = 7.0
TROUBLES = {
    "segfault": (Outcome.CRASH, "SIGSEGV"),
    "leave": (Outcome.CRASH, "status 3"),
    "hang": (Outcome.TIMEOUT, "within"),
    "garbage": (Outcome.CRASH, "broke the protocol"),
    "memory_error": (Outcome.OOM, "out of memory"),
    "bad_alloc": (Outcome.OOM, "std::bad_alloc"),
    "killed": (Outcome.CRASH, "SIGKILL"),
}
NULL = [cell("null", 1), cell("null", 2)]


def limit_of(trouble: str) -> float:
    return SHORT if trouble == "hang" else 60.0


@pytest.mark.measures
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("when", ["compile", "call", "visit"])
def test_trouble_with_one_cell_leaves_the_others_their_launch(tmp_path: Path, trouble: str, when: str) -> None:
    bad = [cell(f"bad[do={trouble},at={when},batch=2]", batch) for batch in (1, 2)]
    with nothing_left_behind():
        found = launch(job(tmp_path, timeout=limit_of(trouble)), *NULL, *bad)
    outcome, words = TROUBLES[trouble]
    assert found.records[bad[1]].outcome is outcome, found.records[bad[1]].reason
    assert words in found.records[bad[1]].reason
    assert found.blocks_of(bad[1]) == ([0] if when == "visit" else [])
    for other in (*NULL, bad[0]):
        assert found.records[other].outcome in TIMED, found.records[other].reason
        assert sorted(found.blocks_of(other)) == [0, 1]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_at_import_is_the_outcome_of_all_cells_of_that_compiler(
    tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGRAPH_TEST_AT_IMPORT", trouble)
    bad = [cell("bad", batch) for batch in (1, 2)]
    with nothing_left_behind():
        found = launch(job(tmp_path, timeout=limit_of(trouble)), *NULL, *bad)
    outcome, words = TROUBLES[trouble]
    for one in bad:
        assert found.records[one].outcome is outcome, found.records[one].reason
        assert words in found.records[one].reason
        assert found.blocks_of(one) == []
    assert all(sorted(found.blocks_of(other)) == [0, 1] for other in NULL)


def test_what_a_runtime_prints_is_no_answer(tmp_path: Path) -> None:
    cells = [cell(f"bad[do=chatty,at={when}]") for when in ("compile", "bind", "call", "close")]
    found = launch(job(tmp_path), *cells)
    for one in cells:
        assert found.records[one].outcome in TIMED, found.records[one].reason
        assert found.blocks_of(one) == [0, 1]
    assert not (tmp_path / "logs").exists()


def test_larger_batches_are_not_tried_after_one_ran_out_of_memory(tmp_path: Path) -> None:
    # Two adapters alike but for the tag: memory is a matter of one compiler's sweep.
    bad = {batch: cell("bad[do=limited,at=call,batch=4]", batch) for batch in (8, 4, 2, 1)}
    others = {batch: cell("bad[tag=other]", batch) for batch in (4, 8)}
    found = launch(job(tmp_path), *bad.values(), *others.values())
    assert found.records[bad[4]].outcome is Outcome.OOM
    assert "Unable to allocate 8.00 GiB" in found.records[bad[4]].reason
    assert found.records[bad[8]].outcome is Outcome.OOM
    assert found.records[bad[8]].reason == "not tried: batch 4 of this sweep ran out of memory"
    for one in (bad[1], bad[2], *others.values()):
        assert sorted(found.blocks_of(one)) == [0, 1], found.records[one].reason


def test_an_exception_is_a_failure_with_its_traceback_and_the_worker_goes_on(tmp_path: Path) -> None:
    bad = [cell("bad[do=exception,at=call,batch=2]", batch) for batch in (1, 2)]
    found = launch(job(tmp_path), *bad)
    record = found.records[bad[1]]
    assert record.outcome is Outcome.FAILED
    assert record.reason.startswith("RuntimeError: the runtime has no such operator\nTraceback")
    assert found.blocks_of(bad[0]) == [0, 1]


@pytest.mark.parametrize(
    ("trouble", "outcome", "reason"),
    [
        ("unsupported", Outcome.UNSUPPORTED, "not on this device"),
        ("failed", Outcome.FAILED, "cannot fold this node"),
    ],
)
@pytest.mark.parametrize("when", ["compile", "visit"])
def test_a_refusal_keeps_its_own_words(tmp_path: Path, when: str, trouble: str, outcome: Outcome, reason: str) -> None:
    bad = cell(f"bad[do={trouble},at={when}]")
    found = launch(job(tmp_path), bad)
    assert (found.records[bad].outcome, found.records[bad].reason) == (outcome, reason)
    assert found.blocks_of(bad) == ([0] if when == "visit" else [])


def test_a_timeout_says_where_the_worker_hung(tmp_path: Path) -> None:
    bad = cell("bad[do=hang,at=call]")
    reason = launch(job(tmp_path, timeout=SHORT), bad).records[bad].reason
    assert f"no answer to 'prepare' within {SHORT:g} s (--ngraph-timeout)" in reason
    assert "bad_compilers.py" in reason
    assert " in hang" in reason


def test_a_worker_that_closes_its_answers_broke_the_protocol(tmp_path: Path) -> None:
    bad = cell("bad[do=mute,at=compile]")
    found = launch(job(tmp_path), bad)
    assert found.records[bad].outcome is Outcome.CRASH
    assert "closed its pipes during 'prepare'" in found.records[bad].reason


def test_a_crash_is_noticed_though_a_child_holds_the_pipes_open(tmp_path: Path) -> None:
    bad = cell("bad[do=child,at=compile]")
    began = time.monotonic()
    with nothing_left_behind():
        found = launch(job(tmp_path), bad)
    assert "SIGSEGV" in found.records[bad].reason
    assert time.monotonic() - began < 60


def test_a_crash_keeps_the_end_of_what_was_printed_and_a_log_of_the_rest(tmp_path: Path) -> None:
    bad = [cell("bad[do=flood,at=compile]"), cell("bad[do=segfault,at=compile]")]
    found = launch(job(tmp_path), *bad)
    reason = found.records[bad[0]].reason
    assert "line 3999" in reason
    assert "line 3000\n" not in reason
    assert "Fatal Python error: Segmentation fault" in reason
    assert len(reason) < 4000
    (log,) = (tmp_path / "logs").iterdir()
    assert str(log) in reason
    assert "line 3000\n" in log.read_text(encoding="utf-8")


def test_only_the_latest_logs_are_kept(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(30):
        (logs / f"20200101-000000-old-{number:02}.log").write_text("old", encoding="utf-8")
    launch(job(tmp_path), cell("bad[do=flood,at=compile]"))
    names = sorted(path.name for path in logs.iterdir())
    assert len(names) == 20
    assert "bad_at=compile_do=flood" in names[-1]


def test_files_of_others_among_the_logs_are_left_alone(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    theirs = [*(f"app-{number:02}.log" for number in range(30)), "20200101.log", "20200101-000000.log"]
    for name in theirs:
        (logs / name).write_text("theirs", encoding="utf-8")
    launch(job(tmp_path), cell("bad[do=flood,at=compile]"))
    assert {path.name for path in logs.iterdir()} > set(theirs)


def test_a_crash_while_it_is_torn_down_costs_nothing(tmp_path: Path) -> None:
    bad = cell("bad[do=segfault,at=close]")
    with nothing_left_behind():
        found = launch(job(tmp_path), bad)
    assert found.records[bad].outcome in TIMED
    assert found.blocks_of(bad) == [0, 1]
    assert not (tmp_path / "logs").exists()


def test_a_parked_worker_that_is_killed_from_outside_costs_one_cell(tmp_path: Path) -> None:
    bad, null = [cell("bad", 1), cell("bad", 2)], cell("null")
    shot: list[int] = []

    def shoot(doing: str) -> None:
        if doing == f"measuring {null.label}" and not shot:
            shot.extend(pid for pid, state in workers_of(os.getpid()).items() if "T" in state)
            os.kill(min(set(shot)), signal.SIGKILL)

    with nothing_left_behind():
        found = launch(job(tmp_path), null, *bad, watch=shoot)
    outcomes = sorted(str(record.outcome) for record in found.records.values())
    assert outcomes.count("crash") == 1
    assert sum("SIGKILL" in record.reason for record in found.records.values()) == 1
    assert sum(len(found.blocks_of(one)) == 2 for one in (null, *bad)) == 2


def test_a_compiler_that_always_crashes_ends_without_a_loop(tmp_path: Path) -> None:
    bad = [cell("bad[do=segfault,at=early]", batch) for batch in (1, 2, 3)]
    null = cell("null")
    with nothing_left_behind():
        found = launch(job(tmp_path), null, *bad)
    assert [found.records[one].outcome for one in bad] == [Outcome.CRASH] * 3
    assert sorted(found.blocks_of(null)) == [0, 1]


def test_fifty_megabytes_of_an_exception_are_a_failure_of_which_the_log_has_all(tmp_path: Path) -> None:
    bad = [cell("bad[do=tirade,at=call,batch=2]", batch) for batch in (1, 2)]
    found = launch(job(tmp_path), *bad)
    record = found.records[bad[1]]
    assert (record.outcome, found.blocks_of(bad[0])) == (Outcome.FAILED, [0, 1])
    assert len(record.reason.encode()) <= KEPT_BYTES
    lines = record.reason.splitlines()
    assert lines[0] == "RuntimeError: the graph is bad\\x07"
    assert "node 2499999" in record.reason
    assert "\x1b" not in record.reason
    (log,) = (tmp_path / "logs").iterdir()
    assert lines[-1] == f"all of it: {log}"
    written = log.read_text(encoding="utf-8")
    assert written.count("node ") == 2_500_000
    assert "\x1b" not in written
    shown = excerpt(record.reason).splitlines()
    assert len(shown) == 20
    hidden = len(written.splitlines()) - 19
    assert [line for line in shown if "more" in line] == [f"... {hidden} lines more, all of it in {log}"]


def test_a_line_longer_than_an_answer_may_be_is_cut_before_it_is_one(tmp_path: Path) -> None:
    bad = cell("bad[do=one_long_line,at=visit]")
    record = launch(job(tmp_path), bad).records[bad]
    assert record.outcome is Outcome.FAILED
    assert len(record.reason.encode()) <= KEPT_BYTES
    assert record.reason.startswith("xxx")
    assert "letters more" in record.reason


def test_an_exception_without_words_is_a_failure(tmp_path: Path) -> None:
    bad = cell("bad[do=unspeakable,at=call]")
    record = launch(job(tmp_path), bad).records[bad]
    assert record.outcome is Outcome.FAILED
    assert record.reason.startswith("Unspeakable: (its text cannot be read: ValueError)")
    assert "in unspeakable" in record.reason


def test_what_an_adapter_says_of_where_it_ran_is_a_line(tmp_path: Path) -> None:
    # More of it than an answer may have.
    bad = cell("bad[boast=80]")
    record = launch(job(tmp_path), bad).records[bad]
    assert record.outcome in TIMED, record.reason
    boast = dict(record.placement)["boast"]
    assert boast.startswith("fast fast fast")
    assert len(boast) <= 1000


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tuning_seconds", "its tuning_seconds is 'x' (expected a number from 0, or None)"),
        ("tuning_trials", "its tuning_trials is -1 (expected a number from 0, or None)"),
        ("model_bytes", "its model_bytes is nan (expected a number from 0, or None)"),
        ("lunch_seconds", "its device_times() has {'lunch_seconds'} (known: device_call_seconds, copy_in_seconds,"),
    ],
)
def test_what_an_adapter_gives_wrongly_of_itself_is_its_failure(tmp_path: Path, name: str, said: str) -> None:
    bad, null = cell(f"bad[misstates={name}]"), cell("null")
    found = launch(job(tmp_path), bad, null)
    assert found.records[bad].outcome is Outcome.FAILED
    assert said in found.records[bad].reason
    assert found.blocks_of(null) == [0, 1]
