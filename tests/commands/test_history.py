"""The command ``ngraph history``: series by commit and date, never mixed over machines, with their changes."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.stats import changes
from pytest_ngraph.store.rows import VerdictRow
from tests.support.sessions import FAST, Day, add_day

WITH_CHANGES = pytest.mark.skipif(find_spec("ruptures") is None, reason="ruptures is not installed")
NODEID = "suite/test_speed.py::test_faster[local-onnxruntime]"


def fill(path: Path, days: Sequence[Day], verdicts: tuple[VerdictRow, ...] = ()) -> Path:
    for number, day in enumerate(days, 1):
        add_day(path, day, number, verdicts)
    return path


def history(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> tuple[int, list[str], str]:
    status = main(["history", "--store", str(path), *arguments])
    said = capsys.readouterr()
    return status, said.out.splitlines(), said.err


def days(levels: Sequence[float], **fixed: object) -> list[Day]:
    return [
        replace(Day(ms=ms, code=f"code-{number}", commit=f"{number:040x}"), **fixed)  # type: ignore[arg-type]
        for number, ms in enumerate(levels)
    ]


def of(lines: list[str], label: str) -> list[str]:
    begin = next(number for number, line in enumerate(lines) if label in line)
    end = next((number for number, line in enumerate(lines) if number > begin and not line), len(lines))
    return lines[begin:end]


@WITH_CHANGES
def test_a_step_is_shown_where_it_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fill(tmp_path / "s.sqlite", days([4.0] * 6 + [4.4] * 5))
    status, lines, _ = history(capsys, path)
    assert status == 0
    mine = of(lines, FAST.label)
    changed = [line for line in mine if line.endswith("%") and line.split()[0].isdigit()]
    assert len(changed) == 1
    assert changed[0].split()[:1] == ["7"]
    assert changed[0].split()[3].startswith("0000")
    assert 8.5 < float(changed[0].split()[-2]) < 11.5
    assert mine[-1].startswith("  since run 7: 4.4")
    assert "over 5 sessions, sessions scatter by 0." in mine[-1]
    assert all(len(line) <= 80 for line in lines)
    # Of eager PyTorch, which stayed as it was, nothing changed.
    assert not any(line.endswith("%") and line.split()[0].isdigit() for line in of(lines, "local:identity"))


@WITH_CHANGES
def test_a_drift_that_no_gate_sees_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fill(tmp_path / "s.sqlite", days([4.0 * 1.005**number for number in range(20)]))
    mine = of(history(capsys, path)[1], FAST.label)
    assert "changes, together +" in mine[-1]
    assert float(mine[-1].split("+")[1].split()[0]) > 6


def test_runs_of_the_same_code_that_were_measured_afresh_are_all_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = [replace(day, code="same", fresh=True) for day in days([4.0, 5.0, 6.0])]
    mine = of(history(capsys, fill(tmp_path / "s.sqlite", fresh))[1], FAST.label)
    rows = [line.split() for line in mine if line.strip() and line.split()[0].isdigit()]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    for row, level in zip(rows, (4, 5, 6), strict=True):
        assert any(word.startswith((f"{level}.0", f"{level - 1}.9")) for word in row[3:]), row


def test_machines_are_never_mixed_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.sqlite"
    fill(path, [*days([4.0, 8.0, 4.0, 8.0])[:1]])
    for number, (ms, facts) in enumerate(
        [(8.0, {"node": "bench-2"}), (4.0, {}), (5.0, {"governor": "powersave"}), (8.0, {"node": "bench-2"})], 2
    ):
        add_day(path, Day(ms=ms, code=f"c{number}", facts=facts), number)
    lines = history(capsys, path)[1]
    heads = [line for line in lines if line.startswith("  machine ")]
    # Two cells, three machines: another governor makes it another one.
    assert len(heads) == 6
    rows = [line.split()[0] for line in of(lines, FAST.label) if line.strip() and line.split()[0].isdigit()]
    assert rows == ["1", "3"]
    assert main(["history", "--store", str(path), "--csv", str(tmp_path / "h.csv")]) == 0
    with (tmp_path / "h.csv").open() as file:
        table = [row for row in csv.DictReader(file) if row["compiler"] == "onnxruntime"]
    assert [(row["run"], row["machine"]) for row in table] == [
        ("1", "bench-1"), ("3", "bench-1"), ("2", "bench-2"), ("5", "bench-2"), ("4", "bench-1"),
    ]  # fmt: skip
    assert [round(float(row["value"]), 3) for row in table] == [0.004, 0.004, 0.008, 0.008, 0.005]
    assert all(float(row["low"]) < float(row["value"]) < float(row["high"]) for row in table)
    assert {row["launches"] for row in table} == {"3"}


def test_other_metrics_other_protocols_and_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = VerdictRow(
        NODEID, "claim", "speedup", 1.2, True, 0.05, 2.0, 1.9, 2.1, 3, "pass", 0.03, {"subject": FAST.label}
    )
    path = fill(tmp_path / "s.sqlite", [*days([4.0, 4.0]), Day(protocol="quick", code="q")], (row,))
    lines = history(capsys, path, "test_faster", "--metric=speedup")[1]
    assert lines[0] == f"speed-up of {FAST.label} over identity"
    shown = [line.split() for line in lines if line.strip() and line.split()[0].isdigit()]
    assert [(words[0], words[-1]) for words in shown] == [("1", "2.00x"), ("2", "2.00x")]
    assert not any("local:identity" in line for line in lines)
    status, _, error = history(capsys, path, "test_none")
    assert (status, "no test with 'test_none' in its id" in error) == (2, True)
    assert "latency, throughput, speedup" in history(capsys, path, "--metric=cost")[2]
    assert "ends in .csv" in history(capsys, path, "--csv=x.txt")[2]
    assert history(capsys, path, "--metric=peak_memory_bytes")[1] == [
        "no run of the protocol gate has measured peak_memory_bytes yet"
    ]
    assert history(capsys, tmp_path / "none.sqlite")[0] == 2


def test_launches_of_the_same_code_stay_with_the_run_that_measured_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fill(tmp_path / "s.sqlite", [Day(ms=4.0), Day(ms=6.0), Day(ms=5.0, commit="ab" * 20 + "-dirty")])
    mine = of(history(capsys, path)[1], FAST.label)
    shown = [line.split() for line in mine if line.split()[0].isdigit()]
    assert [round(float(words[5])) for words in shown] == [4, 6, 5]
    assert shown[2][3] == "ababababa+"


def test_without_ruptures_the_table_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "find_spec", lambda name: None)
    path = fill(tmp_path / "s.sqlite", days([4.0] * 6 + [4.4] * 5))
    status, lines, _ = history(capsys, path)
    assert status == 0
    assert 'change points need ruptures, which is not installed: pip install "pytest-ngraph[history]"' in lines[-1]
    assert all(len(line) <= 100 for line in lines)
