"""Tables and benchmark documents are whole, exact where machines read them, and readable where people do."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ngraph.errors import SpecError, StoreError
from pytest_ngraph.report.export.benchmark_json import BenchmarkEntry, benchmark_document
from pytest_ngraph.report.export.files import write_rows, write_text
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.store.rows import RunRow
from tests.conftest import skip_without

ROWS: list[dict[str, object]] = [
    {
        "cell": "local:identity batch1",
        "median_ns": 0.1 + 0.2,
        "launches": 3,
        "memory_bytes": None,
        "outcome": Outcome.OK,
    },
    {"cell": "a|b\nc", "median_ns": 1234567.891, "launches": 4, "memory_bytes": 1 << 40, "outcome": Outcome.OOM},
]
TABLES = {
    "csv": (
        "cell,median_ns,launches,memory_bytes,outcome\n"
        "local:identity batch1,0.30000000000000004,3,,ok\n"
        '"a|b\nc",1234567.891,4,1099511627776,oom\n'
    ),
    "md": (
        "| cell | median_ns | launches | memory_bytes | outcome |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| local:identity batch1 | 0.3 | 3 |  | ok |\n"
        "| a\\|b c | 1.23457e+06 | 4 | 1099511627776 | oom |\n"
    ),
}


@pytest.mark.parametrize("format", ["csv", "md"])
def test_a_table_is_written_as_it_must_read(tmp_path: Path, format: str) -> None:
    path = tmp_path / "new" / f"table.{format.upper()}"
    write_rows(ROWS, path)
    assert path.read_bytes().decode() == TABLES[format]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_json_gives_the_same_rows_back(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    write_rows(ROWS, path)
    assert json.loads(path.read_text()) == ROWS


@pytest.mark.real
@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_every_digit_in_csv_and_json(tmp_path_factory: pytest.TempPathFactory, value: float) -> None:
    folder = tmp_path_factory.getbasetemp()
    for format in ("csv", "json"):
        write_rows([{"x": value}], folder / f"digits.{format}")
    assert repr(json.loads((folder / "digits.json").read_text())[0]["x"]) == repr(value)
    with (folder / "digits.csv").open(newline="") as file:
        assert repr(float(next(csv.DictReader(file))["x"])) == repr(value)


def test_parquet_gives_the_same_rows_back_with_their_types(tmp_path: Path) -> None:
    skip_without("pyarrow")
    import pyarrow.parquet as parquet

    path = tmp_path / "table.parquet"
    rows = [{**row, "whole": k, "real": float(k), "said": k == 1, "odd": (1, "x")[k]} for k, row in enumerate(ROWS)]
    write_rows(rows, path)
    table = parquet.read_table(path)
    assert table.to_pylist() == [{**row, "outcome": str(row["outcome"]), "odd": str(row["odd"])} for row in rows]
    types = {field.name: str(field.type) for field in table.schema}
    assert types == {
        "cell": "string", "median_ns": "double", "launches": "int64", "memory_bytes": "int64", "outcome": "string",
        "whole": "int64", "real": "double", "said": "bool", "odd": "string",
    }  # fmt: skip


def test_the_types_of_a_parquet_file_can_be_given(tmp_path: Path) -> None:
    skip_without("pyarrow")
    import pyarrow.parquet as parquet

    path = tmp_path / "table.parquet"
    write_rows([{"b": 1, "a": None, "c": 2}], path, types={"a": int, "b": float})
    table = parquet.read_table(path)
    assert table.to_pylist() == [{"a": None, "b": 1.0, "c": 2}]
    assert [str(field.type) for field in table.schema] == ["int64", "double", "int64"]
    write_rows([], path, types={"a": int, "b": float})
    assert [str(field.type) for field in parquet.read_schema(path)] == ["int64", "double"]
    write_rows([], path)
    assert parquet.read_table(path).to_pylist() == []


def test_parquet_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SpecError, match=re.escape('not installed: pip install "pytest-ngraph[parquet]"')):
        write_rows(ROWS, tmp_path / "table.parquet")
    assert list(tmp_path.iterdir()) == []


def test_what_json_has_no_number_for_is_null(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    write_rows([{"a": float("nan"), "b": float("inf"), "c": None}], path)
    assert json.loads(path.read_text()) == [{"a": None, "b": None, "c": None}]


def test_columns_come_in_the_order_in_which_they_first_appear(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write_rows([{"b": 1, "a": 2}, {"a": 3, "c": 4}], path)
    assert path.read_text() == "b,a,c\n1,2,\n,3,4\n"


@pytest.mark.parametrize(("format", "text"), [("csv", ""), ("md", ""), ("json", "[]\n")])
def test_a_table_without_rows_is_an_empty_file(tmp_path: Path, format: str, text: str) -> None:
    write_rows([], tmp_path / "table", format)
    assert (tmp_path / "table").read_text() == text


@pytest.mark.parametrize(
    ("name", "format", "given"), [("t.xlsx", None, "xlsx"), ("t", None, ""), ("t.csv", "tsv", "tsv")]
)
def test_an_unknown_format_names_those_that_are_known(
    tmp_path: Path, name: str, format: str | None, given: str
) -> None:
    path = tmp_path / name
    with pytest.raises(
        SpecError, match=re.escape(f"export {path}: unknown format {given!r} (known: csv, json, md, parquet)")
    ):
        write_rows(ROWS, path, format)
    assert not path.exists()


def test_a_table_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "table.csv").mkdir()
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "table.csv", tmp_path / "file" / "table.csv"):
        with pytest.raises(StoreError, match=re.escape(f"export {path}: ")):
            write_rows(ROWS, path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "table.csv"]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_text("old", path)
    with path.open() as reader:
        write_text("new", path)
        assert reader.read() == "old"
    assert path.read_text() == "new"


# Benchmark documents

RUN = RunRow(
    1,
    "run-1",
    "2026-01-01T00:00:00.000+00:00",
    None,
    "finished",
    ("pytest",),
    0,
    "gate",
    {},
    fresh=False,
    resumed=False,
)
PARAMS = {"compiler": "openvino", "batch": 8}
NAME = "test_faster[local-openvino-8]"


def entry(samples_seconds: Sequence[float], *, calls: int = 1, verdict: str | None = None) -> BenchmarkEntry:
    return BenchmarkEntry(
        NAME, f"suite/test_speed.py::{NAME}", "resnet18", PARAMS, samples_seconds, calls, {"launches": 3}, verdict
    )


def document(*entries: BenchmarkEntry) -> dict[str, object]:
    return benchmark_document(entries, run=RUN, machine={"node": "here"}, commit={"id": "156f93c", "dirty": False})


def benchmark(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_benchmark", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200", "PY_COLORS": "0"}
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path]:
    pytest.importorskip("pytest_benchmark")
    folder = tmp_path / "kept"
    files = folder / "0001_before.json", folder / "0002_after.json"
    for file, seconds in zip(files, (0.004, 0.002), strict=True):
        write_text(json.dumps(document(entry([seconds, 2 * seconds, 3 * seconds], calls=2))), file)
    return files


@pytest.mark.real
def test_pytest_benchmark_compares_two_documents(saved: tuple[Path, Path], tmp_path: Path) -> None:
    table = benchmark("compare", *saved, "--group-by=func", "--columns=min,median,rounds,iterations", folder=tmp_path)
    assert "Failed" not in table.stderr
    rows = [line.split() for line in table.stdout.splitlines() if line.startswith("test_faster")]
    assert len(rows) == 2
    assert rows[0][2:] == ["1.0000", "(1.0)", "2.0000", "(1.0)", "3", "2"]
    assert rows[1][2:] == ["2.0000", "(2.00)", "4.0000", "(2.00)", "3", "2"]


@pytest.mark.real
@pytest.mark.parametrize("grouping", ["group", "name", "func", "fullname", "fullfunc", "param", "param:batch"])
def test_pytest_benchmark_groups_by_whatever_it_knows(saved: tuple[Path, Path], tmp_path: Path, grouping: str) -> None:
    table = benchmark("compare", *saved, f"--group-by={grouping}", folder=tmp_path)
    assert "2 tests" in table.stdout


@pytest.mark.real
def test_pytest_benchmark_lists_and_exports_documents(saved: tuple[Path, Path], tmp_path: Path) -> None:
    listed = benchmark(f"--storage=file://{saved[0].parent}", "list", folder=tmp_path)
    assert [Path(line).name for line in listed.stdout.split()] == [file.name for file in saved]
    benchmark("compare", saved[0], "--csv=table.csv", "--columns=mean,ops", folder=tmp_path)
    with (tmp_path / "table.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["name"] == f"suite/test_speed.py::{NAME}"
    assert (row["param:batch"], row["param:compiler"]) == ("8", "openvino")
    assert float(row["mean"]) == pytest.approx(0.004)
    assert float(row["ops"]) == pytest.approx(250)


@settings(deadline=None)
@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=40), st.integers(1, 1000))
def test_statistics_are_those_of_pytest_benchmark(samples_seconds: list[float], calls: int) -> None:
    stats = pytest.importorskip("pytest_benchmark.stats").Stats()
    for sample in samples_seconds:
        stats.update(sample / calls)
    written = document(entry(samples_seconds, calls=calls))["benchmarks"]
    assert isinstance(written, list)
    assert written[0]["stats"] == {**stats.as_dict(), "data": stats.data, "iterations": calls}


def test_a_verdict_stands_in_the_extra_information() -> None:
    for verdict, extra in ((None, {"launches": 3}), ("pass", {"launches": 3, "ngraph_verdict": "pass"})):
        written = document(entry([1.0], verdict=verdict))["benchmarks"]
        assert isinstance(written, list)
        assert written[0]["extra_info"] == extra


def test_an_entry_without_samples_is_refused_by_name() -> None:
    with pytest.raises(SpecError, match=re.escape(f"benchmark suite/test_speed.py::{NAME}: it has no samples")):
        document(entry([]))
