"""Which failure is the same, and what is kept of the steps that said so."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.commands.base import say_folded
from pytest_ngraph.commands.reduce_of_tests import refuse_other_calls
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.settings import Budget, Settings, resolve
from pytest_ngraph.reducing import kept
from pytest_ngraph.reducing.failing import Failure, by_claim, by_outcome, is_same, names_in
from pytest_ngraph.reducing.reduction import key_of
from pytest_ngraph.reducing.trying import sizes_of
from pytest_ngraph.reducing.writing import Shared, check_folder, sayable, write
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, ModelRef, Outcome, Workload
from pytest_ngraph.store.rows import VerdictRow

CELL = Cell("local", CompilerSpec("tvm"), Workload(ModelRef("onnx:m.onnx", "onnx", "/m.onnx"), 4))
NAMES = names_in(["/layer/Relu_output_0", "h"], ["node_12", "Relu"], {"Relu", "Conv"})
STEPS = [kept.Step((0, 1, 2), True, "unsupported"), kept.Step((1,), False, "ok")]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("no operator Det (node '/layer/Relu_output_0' of 12)", "no operator Det (node 'n0' of 1)", True),
        ("no operator Det", "no operator If", False),
        ("The following operators are not supported: Det, If", "The following operators are not supported: If", True),
        ("cannot lower Relu in node_12 at /tmp/a/b.onnx", "cannot lower Relu in node_12 at /home/c.onnx", True),
        ("cannot lower Relu", "cannot lower Conv", False),
        ("cannot lower Relu", "cannot", False),
        ("TypeError: 3 is no axis\n  at line 5", "TypeError: 4 is no axis\n  at line 7", True),
        ("", "anything at all", False),
    ],
)
def test_names_numbers_and_paths_make_no_other_failure_but_words_do(first: str, second: str, same: bool) -> None:
    failure = Failure(CELL, Outcome.UNSUPPORTED, first)

    assert is_same(failure, CompileRecord(Outcome.UNSUPPORTED, second), NAMES) is same


def test_another_outcome_is_another_failure_and_wrong_outputs_are_wrong_by_any_amount() -> None:
    wrong = Failure(CELL, Outcome.MISMATCH, "off by 0.3")

    assert is_same(wrong, CompileRecord(Outcome.MISMATCH, "output 7 has another shape"), NAMES)
    assert not is_same(wrong, CompileRecord(Outcome.FAILED, "off by 0.3"), NAMES)
    assert not is_same(wrong, CompileRecord(Outcome.LOST, "off by 0.3"), NAMES)
    assert not is_same(wrong, None, NAMES)


@pytest.mark.parametrize("outcome", [Outcome.UNAVAILABLE, Outcome.LOST, Outcome.OK, Outcome.UNSTABLE])
def test_what_is_of_the_machine_is_no_failure_of_a_graph(outcome: Outcome) -> None:
    assert by_outcome(CELL, CompileRecord(outcome, "it went away")) is None


def row(helper: str, bound: float, *, at_least: bool, claim: str = "speed-up") -> VerdictRow:
    return VerdictRow(
        "test_it", claim, "m", bound, at_least, 0.05, 1.0, 0.9, 1.1, 8, "fail", extra={"helper": helper, "reason": "r"}
    )


def test_claims_of_seconds_and_samples_become_factors_over_the_baseline() -> None:
    base = CompilerSpec("onnxruntime")

    assert by_claim(CELL, base, row("assert_speedup", 1.5, at_least=True), None).at_least == 1.5
    # At most 2 ms where the baseline takes 3 ms.
    assert by_claim(CELL, base, row("assert_latency", 0.002, at_least=False), 0.003).at_least == pytest.approx(1.5)
    # At least 300 samples a second where the baseline has 200.
    assert by_claim(CELL, base, row("assert_throughput", 300, at_least=True), 200).at_least == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        (row("assert_memory", 1e6, at_least=False), None),
        (row("assert_speedup", 3.0, at_least=False), None),
        (row("assert_latency", 0.001, at_least=True), 0.002),
        (row("assert_latency", 0.001, at_least=False, claim="percentile 99 of the latency"), 0.002),
        (row("assert_latency", 0.001, at_least=False), None),
        (row("assert_no_slower", 1.0, at_least=True), None),
    ],
)
def test_a_claim_that_means_nothing_for_a_part_is_refused(claim: VerdictRow, value: float | None) -> None:
    with pytest.raises(SpecError, match="fails, "):
        by_claim(CELL, CompilerSpec("onnxruntime"), claim, value)


@pytest.mark.parametrize(
    "claim",
    [
        row("assert_latency", 0.002, at_least=False),
        row("assert_throughput", 300, at_least=True),
        row("assert_speedup", 1.5, at_least=True),
    ],
)
def test_how_slow_calls_that_arrive_at_a_rate_are_says_nothing_of_a_part(claim: VerdictRow) -> None:
    """Their latency has the queue in it, and their throughput is the rate; how they end is of the graph alone."""
    served = replace(CELL, workload=replace(CELL.workload, scenario="server[rate=20]"))

    with pytest.raises(SpecError, match="calls arrive at a rate"):
        by_claim(served, CompilerSpec("onnxruntime"), claim, 0.003)
    assert by_outcome(served, CompileRecord(Outcome.FAILED, "no operator Det")) is not None
    in_flight = replace(CELL, workload=replace(CELL.workload, scenario="throughput"))
    assert by_claim(in_flight, CompilerSpec("onnxruntime"), claim, 0.003).is_slow


def test_steps_are_read_back_as_they_were_and_none_is_there_at_first(tmp_path: Path) -> None:
    assert kept.read(tmp_path / "steps.json", "key", 3) == []
    kept.write(tmp_path / "steps.json", "key", STEPS)
    assert kept.read(tmp_path / "steps.json", "key", 3) == STEPS


@pytest.mark.parametrize(
    ("name", "given"),
    [("nodes", []), ("nodes", [3]), ("nodes", [-1]), ("nodes", [True]), ("nodes", "1"), ("fails", 1), ("words", None),
     ("more", 1)],
)  # fmt: skip
def test_a_step_with_a_value_that_none_has_is_refused_with_the_file(tmp_path: Path, name: str, given: object) -> None:
    path = tmp_path / "steps.json"
    kept.write(path, "key", STEPS)
    data = json.loads(path.read_text())
    data["steps"][0][name] = given
    path.write_text(json.dumps(data))

    with pytest.raises(SpecError, match=r"steps\.json is not used: step 1 has"):
        kept.read(path, "key", 3)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"null", b"[" * 100_000, b'{"format": 1}',
     b'{"format": 1, "reduction": "other", "steps": []}', b'{"format": 1, "reduction": "key", "steps": {}}',
     b'{"format": 1, "reduction": "key", "steps": [3]}'],
)  # fmt: skip
def test_garbage_is_refused_with_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "steps.json"
    path.write_bytes(content)

    with pytest.raises(SpecError, match=r"steps\.json is not used"):
        kept.read(path, "key", 3)


def test_nothing_is_written_over_or_through_a_link(tmp_path: Path) -> None:
    check_folder(tmp_path / "new" / "er", force=False)
    check_folder(tmp_path, force=False)
    (tmp_path / "ISSUE.md").write_text("mine")
    with pytest.raises(SpecError, match=r"ISSUE\.md is there already; --force writes over it"):
        check_folder(tmp_path, force=False)
    check_folder(tmp_path, force=True)
    (tmp_path / "reduced.onnx").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SpecError, match=r"reduced\.onnx is a link or a folder: nothing is written through it"):
        check_folder(tmp_path, force=True)
    with pytest.raises(SpecError, match=r"ISSUE\.md is a file"):
        check_folder(tmp_path / "ISSUE.md", force=True)


def test_a_folder_of_which_nothing_can_be_asked_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As below a folder of somebody else's, also for whoever runs these tests as root."""
    real, closed = os.stat, tmp_path / "closed"
    closed.mkdir()

    def stat(path: Any, *arguments: Any, **named: Any) -> os.stat_result:
        if isinstance(path, str | Path) and closed in Path(path).parents:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "lstat", stat)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed)
    with pytest.raises(SpecError, match=r"--out: .*closed cannot be written to"):
        check_folder(closed / "new", force=False)


def test_a_folder_that_fills_up_while_it_searches_is_not_written_over(tmp_path: Path) -> None:
    """It was looked at before the search only, which may take half an hour."""
    scratch, folder = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    (scratch / "reduced.onnx").write_bytes(b"model")
    folder.mkdir()
    (folder / "ISSUE.md").write_text("somebody's own")
    cell = Cell("local", CompilerSpec("null"), Workload(ModelRef("m", "block", "conv"), sequence=128))
    failure = Failure(cell, Outcome.FAILED, "no")
    shared = Shared(failure, cell, "no", (1, 3), "LSTM", "", "", sizes=sizes_of(cell))
    adapter = Catalogue().get("null")

    with pytest.raises(SpecError, match=r"ISSUE\.md is there already.*what was tried is kept: the same command"):
        write(folder, scratch, shared, adapter)
    assert (folder / "ISSUE.md").read_text() == "somebody's own"
    write(folder, scratch, shared, adapter, force=True)
    # The length that its shapes are of is said.
    assert (
        "is cut from a model of 3 nodes at batch1 seq128, whose shapes are fixed in it"
        in (folder / "ISSUE.md").read_text()
    )


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lines_are_folded_where_the_terminal_ends(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    say_folded("12. 38 of 44 nodes (Conv, Relu, MaxPool and 35 more): " + "no kernel for it " * 9)
    say_folded("weights: 164992 numbers of 4 tensors " + "drawn again and " * 9 + "/a/" + "path" * 40)
    say_folded("short")
    lines = capsys.readouterr().out.splitlines()

    assert max(len(line) for line in lines if "/a/" not in line) <= columns
    assert lines[0].startswith("12. 38 of")
    assert lines[1].startswith("    ")
    assert "/a/" + "path" * 40 in "".join(lines)
    assert lines[-1] == "short"


def test_what_is_said_to_others_has_no_folder_of_this_machine() -> None:
    reason = f"cannot read {Path.home()}/private/work/part.onnx\nnor {Path.cwd()}/other"

    assert sayable(reason, [Path.home() / "private" / "work"]) == "cannot read part.onnx\nnor other"
    assert sayable('TypeError: no\nTraceback:\n  File "/x/y.py", line 3', []) == "TypeError: no"


def test_of_a_home_at_the_root_the_slashes_of_other_paths_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert sayable("no kernel for ai.onnx/Conv in /usr/lib/x.so", []) == "no kernel for ai.onnx/Conv in /usr/lib/x.so"


def test_steps_count_for_the_claim_and_the_budget_that_they_were_judged_by(tmp_path: Path) -> None:
    base, twice = CompilerSpec("onnxruntime"), row("assert_speedup", 2.0, at_least=True)
    settings = resolve({}, {}, rootdir=tmp_path, invocation_dir=tmp_path, environ={})
    more = replace(settings, budget=Budget(64))
    slow = by_claim(CELL, base, row("assert_speedup", 1.5, at_least=True), None)

    def key(failure: Failure, given: Settings = settings) -> str:
        return key_of(failure, "test_it", "evidence", 0.01, given)

    assert len({key(slow), key(slow, more), key(by_claim(CELL, base, twice, None))}) == 3
    # A latency is another factor in every run, and the same claim.
    latency = row("assert_latency", 0.002, at_least=False)
    assert key(by_claim(CELL, base, latency, 0.003)) == key(by_claim(CELL, base, latency, 0.0031))
    # What is not judged by the clock has no budget.
    wrong = Failure(CELL, Outcome.MISMATCH, "by 7")
    assert key(wrong) == key(wrong, more)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"decode": 4}, r"decode=4 is left out of what is tried, .*\(allowed: none\)"),
        ({"shapes": "mix[batch=1x1+4x1]"}, r"shapes=mix\[batch=1x1\+4x1\] is left out .*\(allowed: static\)"),
    ],
)
def test_what_the_parts_of_a_graph_are_not_called_with_is_refused(axes: dict[str, Any], said: str) -> None:
    refuse_other_calls(CELL)
    with pytest.raises(SpecError, match=said):
        refuse_other_calls(replace(CELL, workload=replace(CELL.workload, **axes)))
