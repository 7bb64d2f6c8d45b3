"""``ngraph reduce`` on suites whose compiler, from out of tree, fails on one operator."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from pytest_ngraph.cli import main
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.reducing.failing import Failure
from pytest_ngraph.reducing.writing import Shared
from pytest_ngraph.reducing.writing import write as write_folder
from pytest_ngraph.spec.cells import Cell, CompilerSpec, ModelRef, Outcome, Workload
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite, skip_without
from tests.support import cut_models
from tests.support.cut_models import SECRET
from tests.support.forked import run_ngraph

skip_without("onnxruntime")
pytestmark = pytest.mark.real
PLUGINS = ("ngraph", *(f"tests.support.{name}" for name in ("undisturbed", "undelayed", "brief", "own_time")))
BEHIND = tuple(word for name in (*PLUGINS, "tests.support.workers") for word in ("-p", name))
CONFTEST = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("onebad", "tests.support.failing_operators:COMPILER")
"""
SUITE = """
@pytest.mark.ngraph(model="onnx:{model}.onnx", batch=4, compilers={compilers}, baseline="onebad[how=no]")
def test_it(ngraph_cell):
    {body}
"""
TIMED, FAST = "assert ngraph_cell.latency.value > 0", "assert_speedup(ngraph_cell, at_least=0.5)"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal in which no line is folded: what is said is read here, and tests/reducing has how it is folded."""
    monkeypatch.setenv("COLUMNS", "1000")


def write(suite: Suite, model: str, *hows: str, body: str = TIMED) -> None:
    compilers = [f"onebad[how={how}]" if "," in how or "=" not in how else f"onebad[{how}]" for how in hows]
    suite.write(SUITE.format(model=model, compilers=compilers, body=body))
    (suite.path / "conftest.py").write_text(CONFTEST)
    cut_models.save(model, suite.path)


def reduce(suite: Suite, *given: str, test: str = "test_suite.py") -> tuple[int, str]:
    done = run_ngraph(suite.path, "reduce", test, *given, "--", *BEHIND)
    print(done.stdout, done.stderr)
    return done.returncode, done.stdout + done.stderr


def reduced(suite: Suite, folder: str = "reduced") -> list[str]:
    return [node.op_type for node in onnx.load(suite.path / folder / "reduced.onnx").graph.node]


def test_a_secret_model_is_cut_to_the_refused_operator_and_its_test_fails_as_the_model_does(suite: Suite) -> None:
    write(suite, "secrets", "refuses")

    status, said = reduce(suite)

    assert status == 0
    assert "removed: 9 of 10 nodes\nleft:    1 node (Tanh)\nfails:   unsupported\n" in said
    assert "again:   onebad knows no operator Tanh (node 'n0' of 1)" in said
    assert reduced(suite) == ["Tanh"]
    files = {path.name: path.read_bytes() for path in (suite.path / "reduced").iterdir()}
    assert set(files) == {"reduced.onnx", "test_reduced.py", "ISSUE.md"}
    for name, data in files.items():
        assert SECRET.encode() not in data, name
        assert str(suite.path).encode() not in data, name
        assert b"secrets" not in data, name
    assert b"onebad knows no operator Tanh" in files["ISSUE.md"]

    result = suite.bare("reduced/test_reduced.py", "--ngraph-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unsupported: local:onebad?how=refuses? onnx:reduced.onnx batch4: onebad knows no *"])

    # What is there is not written over, and what was tried is not tried again.
    status, said = reduce(suite)
    assert status == 2
    assert "reduced.onnx is there already; --force writes over it" in said
    status, said = reduce(suite, "--force", "--keep-weights")
    assert status == 0
    assert re.search(r"\d steps of before are kept", said)
    assert "weights: as they were (--keep-weights)" in said
    assert SECRET.encode() not in (suite.path / "reduced" / "reduced.onnx").read_bytes()


def test_options_of_the_cache_in_the_ini_file_neither_stop_it_nor_is_the_cache_touched(suite: Suite) -> None:
    write(suite, "branches", "raises")
    (suite.path / "pytest.ini").write_text("[pytest]\naddopts = --lf --ff --nf --sw --cache-clear\n")
    kept = suite.path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"test_other.py::test_other": true}')

    status, said = reduce(suite)

    assert status == 0, said
    assert reduced(suite) == ["Tanh"]
    assert [path for path in (suite.path / ".pytest_cache").rglob("*") if path.is_file()] == [kept]
    assert kept.read_text() == '{"test_other.py::test_other": true}'


def test_two_nodes_that_are_wrong_together_stay_together_and_have_other_weights(suite: Suite) -> None:
    write(suite, "branches", "wrong_pair")

    status, said = reduce(suite)

    assert status == 0
    assert "left:    2 nodes (MatMul, Tanh)\n         no single one of them can be left out" in said
    assert re.search(r"fails:   mismatch \(max error 0\.\d+|1\.\d+\)", said)
    (weight,) = onnx.load(suite.path / "reduced" / "reduced.onnx").graph.initializer
    old, new = numpy_helper.to_array(cut_models.weight("shared", 8, 8)), numpy_helper.to_array(weight)
    assert "weights: 64 numbers of 1 tensor drawn again" in said
    assert (old != new).all()
    assert new.std() == pytest.approx(old.std(), rel=0.3)

    result = suite.bare("reduced/test_reduced.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*mismatch: local:onebad?how=wrong_pair? onnx:reduced.onnx*"])


@pytest.mark.parametrize(("model", "left"), [("subgraphs", "If"), ("folded_tail", "Tanh")])
def test_a_node_with_a_subgraph_and_one_that_is_constant_are_found(suite: Suite, model: str, left: str) -> None:
    write(suite, model, "raises")

    status, said = reduce(suite)

    assert status == 0
    assert f"left:    1 node ({left})" in said
    assert "failed" in said
    assert reduced(suite) == [left]


def test_a_crash_is_cut_as_well(suite: Suite) -> None:
    write(suite, "branches", "crashes,op=Mul")

    status, said = reduce(suite)

    assert status == 0
    assert "left:    1 node (Mul)" in said
    assert "fails:   crash" in said


def test_values_of_the_whole_model_are_what_parts_are_given(suite: Suite) -> None:
    """What is only wrong for large values would be right for standard normal ones."""
    write(suite, "ranges", "wrong_on_large,op=Relu")

    status, said = reduce(suite)

    assert status == 0
    assert "left:    1 node (Relu)" in said
    spread = onnx.load(suite.path / "reduced" / "reduced.onnx").metadata_props[0].value
    assert '"mean"' in spread
    result = suite.bare("reduced/test_reduced.py")
    result.assert_outcomes(failed=1)


def test_what_fails_with_its_own_weights_only_says_so_and_can_be_kept(suite: Suite) -> None:
    write(suite, "branches", "wrong_weights,op=Tanh")

    status, said = reduce(suite)
    assert status == 1
    assert "not reduced: it fails only with the original weights" in said
    assert "--keep-weights writes it with its own weights" in said
    assert not (suite.path / "reduced").exists()

    status, said = reduce(suite, "--keep-weights")
    assert status == 0
    assert "steps of before are kept" in said
    (weight,) = onnx.load(suite.path / "reduced" / "reduced.onnx").graph.initializer
    np.testing.assert_array_equal(
        numpy_helper.to_array(weight), numpy_helper.to_array(cut_models.weight("shared", 8, 8))
    )


def test_a_failure_in_two_places_is_not_said_to_be_in_one(suite: Suite) -> None:
    write(suite, "branches", "raises,op=MatMul")

    status, said = reduce(suite)

    assert status == 0
    assert "left:    1 node (MatMul)" in said
    assert "but:     the other 9 nodes fail without them as well, so that the failure is not in one place" in said


def test_a_test_that_passes_a_plain_assert_and_one_that_comes_and_goes_are_not_reduced(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(suite, "branches", "no")
    status, said = reduce(suite)
    assert status == 2
    assert "test_suite.py: nothing fails, so that there is nothing to reduce" in said

    write(suite, "branches", "no", body="assert ngraph_cell.latency.value < 0")
    status, said = reduce(suite)
    assert status == 2
    assert "does not pass, and none of its cells fails" in said

    monkeypatch.setenv("FLAKY", str(suite.path / "flaky"))
    write(suite, "branches", "flaky")
    status, said = reduce(suite)
    assert status == 1
    assert "not reduced: it failed once and then not: failed: onebad: a bad day; again: ok" in said
    assert not (suite.path / "reduced").exists()


def test_of_several_cells_that_fail_the_first_is_reduced_unless_one_is_named(suite: Suite) -> None:
    write(suite, "branches", "raises", "refuses,op=Mul")

    status, said = reduce(suite, "--out", "one")
    assert status == 0
    assert "2 cells fail, and the first is reduced; the others: test_suite.py::test_it" in said
    assert reduced(suite, "one") == ["Tanh"]

    status, said = reduce(suite, "--out", "two", "--cell", "refuses")
    assert status == 0
    assert reduced(suite, "two") == ["Mul"]

    status, said = reduce(suite, "--out", "three", "--cell", "openvino")
    assert status == 2
    assert "--cell: no cell that fails has 'openvino' in its name (there: local:onebad" in said


def test_after_ctrl_c_the_same_command_goes_on_from_there(suite: Suite) -> None:
    write(suite, "branches", "raises")
    words = [sys.executable, "-m", "pytest_ngraph.cli", "reduce", "test_suite.py", "--", *BEHIND]
    with subprocess.Popen(words, cwd=suite.path, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        assert child.stdout is not None
        while not (line := child.stdout.readline()).startswith("3. "):
            assert line, "it ended before"
        os.killpg(child.pid, signal.SIGINT)
        said = child.stdout.read()
    assert child.returncode == 130
    assert "interrupted: the same command goes on from here" in said
    assert "Traceback" not in said
    (work,) = (suite.path / ".ngraph").glob("reduce-*")
    # Of the values of a model nothing is left there.
    assert {path.name for path in work.iterdir()} <= {"steps.json", "ngraph-logs", "results.sqlite"}

    status, said = reduce(suite)

    assert status == 0
    assert re.search(r"[34] steps of before are kept", said)
    assert "left:    1 node (Tanh)" in said

    # What this command did not write there is not used.
    (work / "steps.json").write_text("{}")
    status, said = reduce(suite, "--force")
    assert status == 0
    assert "steps.json is not used: it is no reduction of format 1; the reduction begins again" in said


def test_a_claim_of_which_the_other_side_is_not_known_asks_for_it(suite: Suite) -> None:
    write(suite, "branches", "no")
    (suite.path / "conftest.py").write_text(CONFTEST)
    suite.write(
        "from pytest_ngraph import assert_faster\n"
        '@pytest.mark.ngraph(compilers="onebad")\n'
        "def test_it(ngraph):\n"
        '    both = ngraph.measure(model="onnx:branches.onnx", batch=4, compiler=["onebad", "null[fixed_us=9]"])\n'
        "    assert_faster(*both)\n"
    )

    status, said = reduce(suite)

    assert status == 2
    assert "name what it is compared with, which parts are compared with: --baseline" in said


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "tvm"])
def test_the_script_of_an_issue_runs_without_this_plugin(name: str, tmp_path: Path) -> None:
    skip_without(name)
    cell = Cell("local", CompilerSpec(name), Workload(ModelRef("onnx:reduced.onnx", "onnx", "/reduced.onnx"), 4))
    failure = Failure(cell, Outcome.MISMATCH, "off by 1")
    shared = Shared(failure, cell, "off by 1", (10, 44), "MatMul", "Weights.", "Inputs.")
    model = cut_models.branches()
    spread = {"zeros": 0.5, "mean": 1.0, "std": 1.0, "low": -3.0, "high": 3.0}
    onnx.helper.set_model_props(model, {"ngraph.inputs": json.dumps({"image": spread})})
    (tmp_path / "scratch").mkdir()
    onnx.save(model, tmp_path / "scratch" / "reduced.onnx")

    *_, issue = write_folder(tmp_path / "out", tmp_path / "scratch", shared, Catalogue().get(name))

    script = issue.read_text().partition("```python\n")[2].partition("```")[0]
    assert "pytest" not in script
    assert "ngraph import" not in script
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    errors = [float(line.partition(": ")[2]) for line in done.stdout.splitlines() if line.startswith("max |y")]
    assert len(errors) == 2
    assert max(errors) < 1e-4


def test_the_time_is_spent_and_the_smallest_part_so_far_is_written(suite: Suite) -> None:
    write(suite, "branches", "refuses")

    status, said = reduce(suite, "--budget", "0.01s")

    assert status == 0
    assert "left:    10 nodes" in said
    assert "smaller parts were not tried: the time of --budget is spent" in said
    assert len(reduced(suite)) == 10


def test_a_slow_operator_is_found_by_verdicts(suite: Suite) -> None:
    write(suite, "ranges", "slow,op=Relu", body=FAST)

    status, said = reduce(suite)

    assert status == 0
    assert "slow: less than 0.5 times as fast as onebad[how=no]" in said
    assert "left:    1 node (Relu)" in said
    assert re.search(r"fails:   slow: 0\.\d+x \[0\.\d+, 0\.\d+\] in \d+ launches", said)
    issue = (suite.path / "reduced" / "ISSUE.md").read_text()
    assert re.search(r"- onebad\[how=slow,op=Relu\]: \d.*\[.*\] a call", issue)
    assert "at_least=0.5" in (suite.path / "reduced" / "test_reduced.py").read_text()
    # Its launches are none of the project's history.
    with Store.open(suite.store, read_only=True) as store:
        assert len(store.runs()) == 1


def test_where_every_part_is_slow_it_says_that_it_is_not_in_one_place(suite: Suite) -> None:
    write(suite, "ranges", "a_bit", body=FAST)

    status, said = reduce(suite, "--budget", "3min")

    assert status == 0
    assert re.search(r"left:    \d+ node", said)
    assert "not in one place" in said or "cannot be localised" in said or "smaller parts were not tried" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("test_it.py", "--budget", "soon"), "--budget: 'soon' is not allowed (expected seconds greater than 0"),
        (("test_it.py", "--error-rate", "0.5"), "--error-rate: '0.5' is not allowed"),
        (("test_it.py", "--out", "file.txt"), "file.txt is a file (expected a folder"),
        (("test_it.py", "--baseline", "tvm[]]"), "expected NAME or NAME[option=value"),
        (("test_it.py", "--", "--ngraph-store=x"), "--ngraph-store=x is for this command to say"),
        (("nowhere.py",), "pytest collected no test to reduce (exit status 4"),
    ],
)
def test_what_cannot_be_asked_for_is_a_usage_error(
    suite: Suite,
    given: tuple[str, ...],
    said: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(suite.path)
    Path("file.txt").write_text("mine")
    # Nothing is measured, and plugins that change the launches would stay loaded in this process.
    words = given if "--" in given else (*given, "--", "-p", "ngraph")

    assert main(["reduce", *words]) == 2
    assert said in capfd.readouterr().err


def test_a_compiler_that_reads_nothing_of_the_model_has_no_graph(suite: Suite) -> None:
    suite.add_compilers()
    suite.write(
        '@pytest.mark.ngraph(model="block:conv", compilers="broken", baseline="null")\n'
        f"def test_it(ngraph_cell):\n    {TIMED}\n"
    )

    status, said = reduce(suite)

    assert status == 2
    assert "broken reads nothing of the model, so that there is no graph to reduce" in said
