"""A whole run: header and summary, and the options of pytest and its plugins that behave as anywhere else."""

from __future__ import annotations

import contextlib
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.front.in_process import _inductor_as_it_was
from pytest_ngraph.front.outcomes import function_of
from pytest_ngraph.front.run import id_of
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite
from tests.support.pretended import TWICE, Pretended

SWEEP = """
@pytest.mark.ngraph(model="{model}", batch=[1, 2, 4, 8])
def test_cells(ngraph_cell): {body}
"""
PLAIN = "def test_plain(): pass\n"


def launches(suite: Suite) -> int:
    """Count the finished launches of all cells in the store."""
    with Store.open(suite.store, read_only=True) as store:
        return len(store.launches(dict(store.cells(store.runs()[-1].id))))


def test_the_header_lets_a_reader_do_it_again(suite: Suite) -> None:
    suite.write(SWEEP.format(model="block:conv", body="pass"))

    result = suite.run("--collect-only", "--ngraph-seed=7")

    result.stdout.fnmatch_lines(
        [
            "ngraph: device local: *",
            "ngraph: 4 items, 4 cells; compilers null[[]sample_us=20]; baseline",
            "        null[[]sample_us=200]",
            "ngraph: models block:conv",
            "ngraph: protocol quick, tolerance 5 %, budget 16 launches, seed 7",
            "ngraph: store .ngraph/results.sqlite",
        ]
    )


def test_a_run_without_our_items_says_and_writes_nothing(suite: Suite) -> None:
    suite.write(PLAIN)

    result = suite.bare()

    result.assert_outcomes(passed=1)
    assert "ngraph:" not in result.stdout.str()
    assert not suite.store.parent.exists()


def test_what_was_deselected_is_neither_announced_nor_measured(suite: Suite) -> None:
    suite.write(PLAIN + SWEEP.format(model="block:conv", body="pass"))

    result = suite.run("-k", "plain")

    result.assert_outcomes(passed=1, deselected=4)
    assert "ngraph:" not in result.stdout.str()
    assert not suite.store.parent.exists()


def test_a_group_is_measured_once_and_read_from_the_store_in_the_next_run(suite: Suite) -> None:
    suite.write(SWEEP.format(model="block:conv", body="pass"))

    first, second = suite.run(), suite.run()

    first.assert_outcomes(passed=4)
    second.assert_outcomes(passed=4)
    # The four cells share no claim, so each is a group with its baseline.
    first.stdout.fnmatch_lines(["measured 4 launches *, reused 0 from the store"])
    second.stdout.fnmatch_lines(["measured 0 launches *, reused 4 from the store"])


def test_only_what_failed_last_runs_again(suite: Suite) -> None:
    suite.write(SWEEP.format(model="block:conv", body="assert ngraph_cell.workload.batch != 4"))

    suite.run("-p", "cacheprovider").assert_outcomes(passed=3, failed=1)
    result = suite.run("-p", "cacheprovider", "--lf")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["FAILED test_suite.py::test_cells[[]local-null[[]sample_us=20]-block:conv-batch4]*"])


def test_nothing_is_measured_for_groups_that_x_did_not_reach(suite: Suite) -> None:
    suite.write(SWEEP.format(model="block:conv", body="assert ngraph_cell.latency.value > 1"))

    result = suite.run("-x")

    result.assert_outcomes(failed=1)
    assert launches(suite) == 1


def test_junit_xml_has_the_ids_and_the_reasons(suite: Suite) -> None:
    suite.add_compilers()
    suite.write(SWEEP.format(model="block:conv", body="pass").replace("[1, 2, 4, 8]", "8"))

    suite.run("--junit-xml=report.xml", compiler="mine,broken,absent")

    cases = {case.get("name"): case for case in ET.parse(suite.path / "report.xml").iter("testcase")}
    assert set(cases) == {f"test_cells[local-{name}-block:conv-batch8]" for name in ("mine", "broken", "absent")}
    skipped = cases["test_cells[local-absent-block:conv-batch8]"].find("skipped")
    failed = cases["test_cells[local-broken-block:conv-batch8]"].find("failure")
    assert skipped is not None
    assert failed is not None
    assert "pip install" in skipped.get("message", "")
    assert "the graph has a cycle" in failed.get("message", "")


def test_an_interrupted_run_is_kept_as_one(suite: Suite) -> None:
    suite.write(SWEEP.format(model="block:conv", body="ngraph_cell.latency; raise KeyboardInterrupt"))

    suite.run()

    with Store.open(suite.store, read_only=True) as store:
        assert [run.status for run in store.runs()] == ["interrupted"]


@pytest.mark.parametrize(("body", "ret"), [("pass", 3), ("assert False", 1)])
def test_the_end_of_a_run_that_another_process_took_out_is_said_in_a_line(suite: Suite, body: str, ret: int) -> None:
    suite.write(SWEEP.format(model="block:conv", body=f"ngraph_cell.latency; {body}"))
    (suite.path / "conftest.py").write_text(f"""
import pytest
from pathlib import Path
from pytest_ngraph.upkeep.care import prune
@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(): prune(Path({str(suite.store)!r}), older_than=None, runs=[1], with_last=True, dry_run=False)
""")

    result = suite.run()

    assert result.ret == ret
    result.stdout.fnmatch_lines(["*ngraph: the end of this run is not in the store: store *run 1*"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_a_table_is_exported(suite: Suite) -> None:
    suite.write(SWEEP.format(model="block:conv", body="pass"))

    exports = ("--ngraph-export=table.csv", "--ngraph-export=table.md")
    result = suite.run(*exports, "--ngraph-benchmark-json=bench.json")

    result.stdout.fnmatch_lines(["written: *table.csv", "written: *table.md", "written: *bench.json"])
    for name in ("table.csv", "table.md"):
        assert "null[sample_us=20]" in (suite.path / name).read_text()


# The ini file

TOML = pytest.mark.skipif(pytest.version_tuple < (9,), reason="an ini file in TOML has texts alone")


@TOML
def test_numbers_and_booleans_of_toml_are_what_they_say(suite: Suite) -> None:
    suite.write(SWEEP.format(model="block:conv", body="pass"))
    text = "[pytest]\nngraph_tolerance = 0.1\nngraph_seed = 7\nngraph_budget = 4\nngraph_gate_changes = true\n"
    (suite.path / "pytest.toml").write_text(text)

    result = suite.run("--collect-only")

    if pytest.version_tuple >= (9, 2):
        result.stdout.fnmatch_lines(["ngraph: protocol quick, tolerance 10 %, budget 4 launches, seed 7"])
    else:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*'ngraph_*' expects a string*write the value in quotes*"])


@TOML
@pytest.mark.parametrize("entry", ["ngraph_export = ['a.csv']", "ngraph_tolerance = 4", "ngraph_report = true"])
def test_a_value_of_toml_that_an_option_cannot_have_is_a_usage_error(suite: Suite, entry: str) -> None:
    suite.write(PLAIN)
    (suite.path / "pytest.toml").write_text(f"[pytest]\n{entry}\n")

    result = suite.bare()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert entry.partition(" ")[0] in result.stderr.str()
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


# Other plugins


def test_xdist_workers_measure_a_group_once(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batches=[1, 4])
@pytest.mark.parametrize("at_least", [0.1, 0.2, 0.3, 0.4])
def test_sweep(ngraph_batches, at_least): assert_bsr(ngraph_batches, batch=4, at_least=at_least)
""")

    result = suite.run("-n2", "--ngraph-export=table.csv", plugins="xdist")

    result.assert_outcomes(passed=4)
    assert launches(suite) == 1
    result.stdout.fnmatch_lines(
        ["device local", "verdicts: 4 not judged", "measured 1 launch *", "written: *table.csv"]
    )
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_a_worker_of_xdist_keeps_the_command_that_began_the_run(suite: Suite) -> None:
    suite.write(SWEEP.format(model="block:conv", body="pass"))

    suite.run("-n1", "-k", "batch8", plugins="xdist").assert_outcomes(passed=1)

    with Store.open(suite.store, read_only=True) as store:
        (run,) = store.runs()
    assert {"--ngraph-protocol=quick", "-n1", "batch8"} <= set(run.command)


GROUPED = """
@pytest.mark.xdist_group("g")
@pytest.mark.ngraph(model="block:conv", batch=[1, 4])
def test_claim(ngraph_cell): assert_speedup(ngraph_cell)
"""
BOUNDS = """
["test_suite.py::test_claim[local-null[fixed_us=1000]-block:conv-batch1]"]
assert_speedup = { at_least = 1.5 }

["test_suite.py::test_claim[local-null[fixed_us=1000]-block:conv-batch4]"]
assert_speedup = { at_least = 1.6 }
"""


def test_the_groups_of_xdist_are_no_part_of_a_tests_id(suite: Suite) -> None:
    pretended = Pretended(suite.pytester)
    pretended.write(GROUPED)
    (pretended.path / "bounds.toml").write_text(BOUNDS)
    options = (*TWICE, "-n1", "--dist=loadgroup", "--ngraph-bounds=bounds.toml")

    pretended.bare(*options, "-k", "batch1", plugins="xdist").assert_outcomes(passed=1)
    with Store.open(pretended.store, read_only=True) as store:
        assert [(row.nodeid, row.bound) for row in store.verdicts(1)] == [(name(1), 1.5)]

    # What is not stored is noted under the same id, and shown as what it is.
    warn = ("--ngraph-offline", "--ngraph-inconclusive=warn", "-Wdefault")
    open_result = pretended.bare(*options, *warn, plugins="xdist")
    assert open_result.parseoutcomes() == {"passed": 1, "undecided": 1}
    assert f"INCONCLUSIVE {name(4)}" in open_result.stdout.str()

    pretended.bare(*options, plugins="xdist").assert_outcomes(passed=2)
    with Store.open(pretended.store, read_only=True) as store:
        assert [(row.nodeid, row.bound) for row in store.verdicts(2)] == [(name(1), 1.5), (name(4), 1.6)]


def name(batch: int) -> str:
    return f"test_suite.py::test_claim[local-null[fixed_us=1000]-block:conv-batch{batch}]"


@pytest.mark.parametrize("end", ["", "@g"])
def test_the_function_of_a_test_has_neither_parameters_nor_a_group(end: str) -> None:
    parent = SimpleNamespace(nodeid="a[1]/t.py")
    item: Any = SimpleNamespace(nodeid=f"a[1]/t.py::test_a[x@y]{end}", name="test_a[x@y]", parent=parent)
    item.callspec = SimpleNamespace(id="x@y")
    assert (id_of(item), function_of(item)) == ("a[1]/t.py::test_a[x@y]", "a[1]/t.py::test_a")
    plain: Any = SimpleNamespace(nodeid=f"a[1]/t.py::test_a{end}", name="test_a", parent=parent)
    assert id_of(plain) == function_of(plain) == "a[1]/t.py::test_a"
    # Who gives a test another id means that.
    plain.nodeid = "another"
    assert id_of(plain) == "another"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="no /proc")
def test_workers_of_xdist_are_forked_where_their_run_was(suite: Suite) -> None:
    suite.write("""
def test_it():
    with open("/proc/self/cmdline") as words:
        assert "forked.py" in words.read()
""")
    suite.bare("-n1", plugins="xdist").assert_outcomes(passed=1)


def test_xdist_without_our_items_shows_nothing(suite: Suite) -> None:
    suite.write(SWEEP.format(model="block:conv", body="pass"))
    suite.run("-k", "batch8")
    suite.write(PLAIN, "test_plain.py")

    result = suite.bare("-n1", "test_plain.py", "--ngraph-offline", plugins="xdist")

    result.assert_outcomes(passed=1)
    assert "device local" not in result.stdout.str()


def test_an_unknown_compiler_ends_a_run_under_xdist_with_its_message(suite: Suite) -> None:
    suite.write(SWEEP.format(model="block:conv", body="pass"))

    result = suite.run("-n2", compiler="tensort", plugins="xdist")

    assert result.ret != pytest.ExitCode.OK
    assert "--ngraph-compiler: unknown compiler 'tensort'" in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str()


def test_a_compiler_of_a_conftest_works_under_xdist(suite: Suite) -> None:
    suite.add_compilers("sub")
    suite.write(SWEEP.format(model="block:conv", body="ngraph_cell.latency"), "sub/test_sub.py")

    suite.run("-n2", compiler="mine", plugins="xdist").assert_outcomes(passed=4)


def test_a_test_that_is_rerun_is_measured_when_it_gets_that_far(suite: Suite) -> None:
    suite.write("""
tries = []
@pytest.mark.flaky(reruns=2)
@pytest.mark.ngraph(model="block:conv", batch=4)
def test_flaky(ngraph_cell):
    tries.append(1)
    assert len(tries) == 3
    assert_speedup(ngraph_cell, at_least=1.1)
""")

    result = suite.run(plugins="rerunfailures")

    result.stdout.fnmatch_lines(["*1 passed, 2 rerun*"])
    assert launches(suite) == 1


def test_a_suite_without_our_marker_needs_no_plugin(suite: Suite) -> None:
    suite.write("def test_plain(tmp_path): pass\n")

    result = suite.pytester.runpytest_subprocess("-p", "no:ngraph", "-Werror", "--strict-markers")

    result.assert_outcomes(passed=1)


def test_a_suite_with_an_optional_hook_needs_no_plugin(suite: Suite) -> None:
    suite.write(PLAIN)
    (suite.path / "conftest.py").write_text(
        "import pytest\n@pytest.hookimpl(optionalhook=True)\ndef pytest_ngraph_compilers(catalogue): pass\n"
    )

    suite.pytester.runpytest_subprocess("-p", "no:ngraph").assert_outcomes(passed=1)


@pytest.mark.parametrize("strict", [True, False])
def test_without_the_plugin_the_marker_is_unknown_which_only_strict_markers_mind(suite: Suite, strict: bool) -> None:
    suite.write("@pytest.mark.ngraph(batch=1)\ndef test_plain(): pass\n")

    result = suite.pytester.runpytest_subprocess("-p", "no:ngraph", *(["--strict-markers"] if strict else []))

    if strict:
        assert result.ret == pytest.ExitCode.INTERRUPTED
        assert "'ngraph' not found in `markers`" in result.stdout.str()
    else:
        result.assert_outcomes(passed=1, warnings=1)


def test_the_plugin_is_found_by_its_entry_point(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    suite.write(SWEEP.format(model="block:conv", body="pass"))
    (suite.path / "pytest.ini").write_text("[pytest]\nngraph_compiler = null\nngraph_batch = 2,4\n")

    result = suite.pytester.runpytest_subprocess("--collect-only", "-q")

    result.stdout.fnmatch_lines(["*[[]local-null-block:conv-batch2]", "*[[]local-null-block:conv-batch4]"])


def test_ini_twins_work_from_pyproject_too(suite: Suite) -> None:
    Path("pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nngraph_compiler = "null[fixed_us=1,sample_us=2],null"\n'
    )
    suite.write(SWEEP.format(model="block:conv", body="pass").replace("[1, 2, 4, 8]", "8"))

    assert suite.ids() == [
        "test_cells[local-null[fixed_us=1,sample_us=2]-block:conv-batch8]",
        "test_cells[local-null-block:conv-batch8]",
    ]


def test_what_a_suite_compiles_itself_is_not_frozen_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(freezing=False)
    monkeypatch.setitem(sys.modules, "torch._inductor.config", config)
    with contextlib.suppress(ZeroDivisionError), _inductor_as_it_was():
        config.freezing = True
        raise ZeroDivisionError
    assert config.freezing is False
