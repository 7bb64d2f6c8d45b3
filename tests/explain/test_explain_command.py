"""The command ``ngraph explain``: which cell is meant, what is kept, and that nothing else of the store changes."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.commands.explain import _refusal_lines, _refused
from pytest_ngraph.report.layers.stored import run_layers
from pytest_ngraph.spec.cells import PROTOCOLS, CompileRecord, Outcome
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite

# What an adapter from outside offers, and one that lies.
ADAPTERS = """
from pytest_ngraph import Compiler, Executable, Option, Profile, ProfiledNode


class Quick(Executable):
    placement = {"provider": "quick"}

    def bind(self, inputs):
        pass

    def run(self):
        sum(range(20000))

    def outputs(self):
        return None


class Told(Compiler):
    name = "told"
    reads = "nothing"
    options = (Option("share", "90", "Per cent of the call that its profile sees", kind="int"),)

    def compile(self, workload, device, options):
        return Quick()

    def explain(self, workload, device, options, executable, calls):
        conv = ProfiledNode("a_conv", "Conv", 1e-5 * options["share"], kernel="gemm")
        nodes = [conv, ProfiledNode("odd", "Relu", -1.0)]
        return Profile(nodes, 1e-3, calls, "its own clock", names="")


class Liar(Told):
    name = "liar"

    def explain(self, workload, device, options, executable, calls):
        return Profile([], float("nan"), calls, "nothing")


TOLD, LIAR = Told(), Liar()
"""
HOOK = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("told", "adapters:TOLD")
    catalogue.add("liar", "adapters:LIAR")
"""
GATES = """
@pytest.mark.ngraph(model="block:conv", batch=[1, 2])
def test_gate(ngraph_cell):
    ngraph_cell.latency
"""


@pytest.fixture
def told(suite: Suite) -> Suite:
    suite.write(GATES)
    (suite.path / "adapters.py").write_text(ADAPTERS)
    (suite.path / "conftest.py").write_text(HOOK)
    (suite.path / "pytest.ini").write_text("[pytest]\naddopts = -p ngraph\nngraph_baseline = told[share=10]\n")
    return suite


def explain(suite: Suite, *words: str, compiler: str = "told") -> pytest.RunResult:
    tests = ("--", "test_suite.py", f"--ngraph-compiler={compiler}")
    return suite.pytester.run(sys.executable, "-m", "pytest_ngraph.cli", "explain", *words, *tests)


def rows(path: Path) -> dict[str, list[object]]:
    with sqlite3.connect(path) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: connection.execute(f"SELECT * FROM {name}").fetchall()
            for name in tables
            if name not in ("explanations", "seals", "sqlite_sequence")
        }


@pytest.mark.real
def test_an_adapter_from_outside_is_explained_once_and_kept(told: Suite) -> None:
    result = explain(told, "told batch1 block:conv", "told[share=10] batch1")
    text = " ".join(result.stdout.str().split())

    assert result.ret == 0, result.stderr.str()
    assert max(map(len, result.outlines)) <= 80
    assert "by its own clock" in text
    assert "note: 1 of its nodes have a time below zero or none that is a number: left out" in text
    assert "no time" in text
    assert "no sentence: the profile of told" in text
    again = explain(told, "told batch1", "--json")
    made = json.loads(again.stdout.str())
    assert made["cells"][0]["label"] == "local:told block:conv batch1"
    assert made["cells"][0]["measured"] is None
    assert "explained 20" in again.stderr.str()
    assert "profiling" not in again.stderr.str()
    assert "profiling" in explain(told, "told batch1", "--again").stderr.str()


@pytest.mark.real
def test_profiling_changes_nothing_else_that_is_stored(told: Suite) -> None:
    told.bare("--ngraph-compiler=told", "--ngraph-protocol=quick")
    before = rows(told.store)
    assert before["launches"]
    result = explain(told, "told batch2", "--csv", "out.csv")

    assert result.ret == 0, result.stderr.str()
    assert "written: out.csv, 2 rows" in result.stdout.str()
    assert rows(told.store) == before


@pytest.mark.real
def test_what_was_measured_stands_beside_what_was_profiled(told: Suite) -> None:
    told.bare("--ngraph-compiler=told", "--ngraph-protocol=quick")
    found = told.pytester.run(
        sys.executable, "-m", "pytest_ngraph.cli", "explain", "told batch2", "--", "test_suite.py",
        "--ngraph-compiler=told", "--ngraph-protocol=quick",
    )  # fmt: skip

    assert found.ret == 0, found.stderr.str()
    assert "a call: measured " in found.stdout.str()
    assert "(1 launch)" in found.stdout.str()
    # The page of that run finds what was explained, and what was measured of it, by the same evidence.
    with Store.open(told.store, read_only=True) as store:
        layers = run_layers(store, store.runs()[-1], [])
    assert [(one.cell.workload.batch, one.measured and one.measured.launches) for one in layers.shown] == [(2, 1)]
    assert layers.shown[0].explanation.nodes[0].kernel == "gemm"


def test_a_cell_whose_outputs_were_refused_says_so_and_what_next() -> None:
    """Its nodes stood there without a word, as if they were those of the model."""
    wrong = CompileRecord(Outcome.MISMATCH, "outputs differ by 0.5 of their largest\nin 3 of 4 calls")
    lines = list(_refusal_lines(wrong))
    said = " ".join(" ".join(lines).split())

    assert max(map(len, lines)) <= 80
    assert "it has no time: mismatch: outputs differ by 0.5 of their largest" in said
    assert "its outputs were refused" in said
    assert "ngraph reduce TEST" in said
    failed = " ".join(_refusal_lines(CompileRecord(Outcome.TIMEOUT)))
    assert "timeout: no reason was given" in failed
    assert "reduce" not in failed


@pytest.mark.real
def test_what_was_refused_is_found_in_the_store(told: Suite) -> None:
    told.bare("--ngraph-compiler=told", "--ngraph-protocol=quick")
    with Store.open(told.store) as store:
        run = store.runs()[-1]
        keys = dict(store.cells(run.id))
        cell = next(cell for cell in keys if str(cell.compiler) == "told" and cell.workload.batch == 2)
        launch = store.start_launch(
            run.id, group="again", number=7, seed=0, protocol=PROTOCOLS["quick"], order=[], environment={}
        )
        store.add_prepared(launch, cell, keys[cell], CompileRecord(Outcome.MISMATCH, "outputs differ by <b>7</b>"))
        store.finish_launch(launch, environment={})
        assert {one.label: record.reason for one, record in _refused(store, keys).items()} == {
            cell.label: "outputs differ by <b>7</b>"
        }


@pytest.mark.real
def test_a_test_stands_for_its_cell_and_what_that_is_compared_with(told: Suite) -> None:
    result = explain(told, "test_suite.py::test_gate[local-told-block:conv-batch1]")

    assert result.ret == 0, result.stderr.str()
    assert [line for line in result.outlines if line.startswith("local:")] == [
        "local:told[share=10] block:conv batch1",
        "local:told block:conv batch1",
    ]


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["toldd batch1"], "'toldd batch1': fits no cell (expected one)\nnear:\n  local:told"),
        (["block:conv"], "'block:conv': fits 2 cells (expected one)\nthere:\n"),
        ([], "expected one CELL or two, or -k (given: 0)\nthere:\n"),
        (["told batch1", "told batch1"], "are the same cell: local:told block:conv batch1"),
        (["-k", "conv and"], "-k conv and: "),
        (["-k", "conv"], "-k conv: fits 4 cells (expected one cell or two)"),
        (["-k", "conv", "told batch1"], "-k conv: not beside 'told batch1'"),
        (["told batch1", "--csv", "out.txt"], "--csv: 'out.txt' is not allowed (expected a file name that"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_said_with_what_there_is(told: Suite, words: list[str], why: str) -> None:
    result = explain(told, *words)

    assert result.ret == 2
    assert why in result.stderr.str()


@pytest.mark.real
def test_an_adapter_whose_profile_is_none_is_refused(told: Suite) -> None:
    result = explain(told, "liar batch1", compiler="liar")

    assert result.ret == 2
    said = "local:liar block:conv batch1: failed: liar: its explain() says that a call takes nan s"
    assert said in result.stderr.str()


def test_without_a_store_it_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "openvino", "--store", str(tmp_path / "none.sqlite")]) == 2
    assert "no file" in capsys.readouterr().err
