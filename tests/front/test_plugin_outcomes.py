"""What becomes of a test: passed, failed, skipped - and in which phase, and why."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from pytest_ngraph.report.answer.not_run import not_run
from pytest_ngraph.report.html.content import read_content
from pytest_ngraph.report.html.markup import first_screen
from pytest_ngraph.store.rows import LeftOut
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite

CELL = """
@pytest.mark.ngraph(model="block:conv")
def test_it(ngraph_cell):
    {body}
"""
SPEEDUP = "assert_speedup(ngraph_cell, at_least=1.5)"


def test_a_claim_that_holds_passes_and_one_that_does_not_fails_in_the_call_phase(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=[4])
def test_fast(ngraph_cell): assert_speedup(ngraph_cell, at_least=1.3)
@pytest.mark.ngraph(model="block:conv", batch=[4])
def test_too_fast(ngraph_cell): assert_speedup(ngraph_cell, at_least=50)
""")

    result = suite.run()

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*FAILED test_suite.py::test_too_fast[[]local-null[[]sample_us=20]-block:conv-batch4]*"]
    )
    result.stdout.no_fnmatch_line("*pytest_ngraph/*.py:*")


def test_a_claim_that_fails_may_be_expected_to(suite: Suite) -> None:
    suite.write("@pytest.mark.xfail(strict=True)" + CELL.format(body="assert_speedup(ngraph_cell, at_least=50)"))

    suite.run().assert_outcomes(xfailed=1)


@pytest.mark.parametrize("body", ["pass", SPEEDUP, "ngraph_cell.latency"])
@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("broken", "local:broken block:conv batch1: the graph has a cycle"),
        ("crashing", "crash: local:crashing block:conv batch1: the worker was ended by SIGSEGV"),
    ],
)
def test_a_cell_that_fails_fails_its_test_whether_it_is_touched_or_not(
    suite: Suite, compiler: str, body: str, said: str
) -> None:
    suite.add_compilers()
    suite.write(CELL.format(body=body))

    result = suite.run(compiler=compiler)

    result.assert_outcomes(failed=1)
    assert said in result.stdout.str()
    assert "Failed: failed:" not in result.stdout.str()
    result.stdout.no_fnmatch_line("*pytest_ngraph/*.py:*")
    result.stdout.no_fnmatch_line("*During handling*")


def test_a_baseline_that_fails_fails_what_is_compared_with_it(suite: Suite) -> None:
    suite.add_compilers()
    suite.write(CELL.format(body=SPEEDUP))

    result = suite.run("--ngraph-baseline=broken", compiler="mine")

    result.assert_outcomes(failed=1)
    assert "local:broken block:conv batch1: the graph has a cycle" in result.stdout.str()


@pytest.mark.parametrize(
    ("compiler", "said"), [("choosy", "no convolutions here"), ("picky", "it only runs on Sundays")]
)
def test_what_a_compiler_cannot_do_in_principle_is_skipped_unless_strict(
    suite: Suite, compiler: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.add_compilers()
    suite.write(CELL.format(body=SPEEDUP))

    skipped, strict = suite.run(compiler=compiler), suite.run("--ngraph-strict", compiler=compiler)
    monkeypatch.setenv("CI", "true")
    in_ci = suite.run(compiler=compiler)

    skipped.assert_outcomes(skipped=1)
    strict.assert_outcomes(failed=1)
    in_ci.assert_outcomes(failed=1)
    for result in (skipped, strict, in_ci):
        assert f"unsupported: local:{compiler} block:conv batch1: {said}" in result.stdout.str()
    assert "(--ngraph-strict)" in strict.stdout.str()


@pytest.mark.parametrize("compiler", ["choosy", "picky"])
def test_what_a_compiler_cannot_do_is_in_the_exports(suite: Suite, compiler: str) -> None:
    suite.add_compilers()
    suite.write(CELL.format(body=SPEEDUP))

    suite.run("--ngraph-export=table.json", compiler=compiler).assert_outcomes(skipped=1)

    rows = json.loads((suite.path / "table.json").read_text())
    (refused,) = [row for row in rows if row["compiler"] == compiler]
    assert (refused["outcome"], refused["metric"]) == ("unsupported", None)


def test_cells_that_are_refused_for_one_reason_are_booked_together(suite: Suite) -> None:
    suite.add_compilers()
    suite.write("""
@pytest.mark.ngraph(model='block:conv', batches=[1, 2, 4])
def test_it(ngraph_batches):
    ngraph_batches[4].ensure()
""")

    suite.run("--ngraph-export=table.json", compiler="picky").assert_outcomes(skipped=1)

    rows = json.loads((suite.path / "table.json").read_text())
    assert [row["outcome"] for row in rows if row["compiler"] == "picky"] == ["unsupported"] * 3
    with closing(sqlite3.connect(suite.store)) as connection:
        assert connection.execute("SELECT kind, count(*) FROM launches GROUP BY kind").fetchall() == [("build", 1)]


def test_an_uninstalled_compiler_is_skipped_with_the_command_that_brings_it(suite: Suite) -> None:
    suite.add_compilers()
    suite.write(CELL.format(body=SPEEDUP) + "def test_target(ngraph_target): pass\n")

    result = suite.run(compiler="absent")

    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(
        ['SKIPPED [[]1] test_suite.py:*: absent on local: not installed (pip install "surely-not")']
    )
    assert not suite.store.exists()


def test_an_uninstalled_baseline_is_skipped_with_the_command_that_brings_it(suite: Suite) -> None:
    suite.add_compilers()
    suite.write(CELL.format(body=SPEEDUP))

    result = suite.run("--ngraph-baseline=absent", compiler="mine")

    result.assert_outcomes(skipped=1)
    assert 'absent, the baseline, on local: not installed (pip install "surely-not")' in result.stdout.str()


def test_what_is_not_installed_stands_among_what_could_not_run_with_its_reason(suite: Suite) -> None:
    """It was nowhere on the page: a compiler that cannot run has no cell in the store."""
    suite.add_compilers()
    suite.write(
        CELL.format(body="pass")
        + """
@pytest.mark.ngraph(model="block:conv", batch=[1, 4])
def test_other(ngraph_cell): pass
@pytest.mark.skip(reason="mine")
@pytest.mark.ngraph(model="block:mha", batch=[1, 4])
def test_skipped_by_its_author(ngraph_cell): pass
@pytest.mark.ngraph(model="block:conv", compilers=["null"])
def test_asks(ngraph_cell, ngraph): ngraph.measure(model="block:conv", batch=16, compiler="absent")
"""
    )

    result = suite.run("--ngraph-protocol=quick", compiler="null,absent")

    result.assert_outcomes(passed=3, skipped=8)
    with Store.open(suite.store, read_only=True) as store:
        run = store.runs()[-1]
        content = read_content(store, run)
        assert "left_out" not in run.environment
        missing = 'not installed (pip install "surely-not")'
        # Two tests ask for the first of them, and one by a call.
        (one,) = run.left_out
        assert one == LeftOut("local", "absent", "block:conv", missing, 3, one.labels)
        assert [label.startswith("local:absent block:conv batch") for label in one.labels] == [True] * 3
        found = [(one.compiler, one.outcome, one.which) for one in not_run(content.reports, run.left_out)]
    assert found == [("absent", "skipped", "all cells")]
    said = str(first_screen.missing(content))
    assert "absent" in said
    assert missing.replace('"', "&quot;") in said


def test_an_uninstalled_compiler_fails_under_strict_and_where_it_was_named_in_ci(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.add_compilers()
    suite.write(CELL.format(body=SPEEDUP), "test_option.py")
    suite.write(CELL.format(body=SPEEDUP).replace('"block:conv"', '"block:conv", compilers="absent"'), "test_marker.py")

    suite.bare("--ngraph-strict", "--ngraph-compiler=absent").assert_outcomes(failed=2)
    suite.bare("test_marker.py").assert_outcomes(skipped=1)
    monkeypatch.setenv("CI", "true")
    named = suite.bare("--ngraph-compiler=absent")

    named.assert_outcomes(failed=2)
    assert 'absent on local: not installed (pip install "surely-not")' in named.stdout.str()
    suite.bare("test_marker.py").assert_outcomes(failed=1)


FIXTURE = """
@pytest.fixture
def value(ngraph_{kind}):
    return {body}
@pytest.mark.ngraph(model="block:conv")
def test_it(value): pass
"""


@pytest.mark.parametrize(("kind", "body"), [("cell", "ngraph_cell.speedup"), ("callable", "ngraph_callable()")])
@pytest.mark.parametrize(
    ("compiler", "outcome", "said"),
    [
        ("choosy", "skipped", "no convolutions here"),
        ("picky", "skipped", "it only runs on Sundays"),
        ("absent", "skipped", 'absent on local: not installed (pip install "surely-not")'),
        ("broken", "errors", "the graph has a cycle"),
    ],
)
def test_a_fixture_that_measures_ends_its_test_as_the_body_would(
    suite: Suite, compiler: str, outcome: str, said: str, kind: str, body: str
) -> None:
    suite.add_compilers()
    suite.write(FIXTURE.format(kind=kind, body=body))

    result = suite.run(compiler=compiler)

    result.assert_outcomes(**{outcome: 1})
    assert said in result.stdout.str()
    result.stdout.no_fnmatch_line("*pytest_ngraph/*.py:*: *")


@pytest.mark.parametrize(
    ("kind", "axes", "body"),
    [
        ("cell", "", "ngraph_cell.speedup"),
        ("cell", "", "assert_speedup(ngraph_cell, at_least=1)"),
        ("batches", ", batches=[1, 8]", "ngraph_batches[8].latency"),
        ("batches", ", batches=[1, 8]", "list(ngraph_batches)"),
        ("callable", "", "ngraph_callable()"),
    ],
)
def test_a_fixture_that_measures_with_an_uninstalled_compiler_tells_how_to_install_it(
    suite: Suite, kind: str, axes: str, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.add_compilers()
    suite.write(FIXTURE.format(kind=kind, body=body).replace('"block:conv"', f'"block:conv"{axes}'))
    monkeypatch.setenv("CI", "1")

    result = suite.run(compiler="absent")

    result.assert_outcomes(errors=1)
    assert 'absent on local: not installed (pip install "surely-not")' in result.stdout.str()
    assert "has to run where CI is set" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
    result.stdout.no_fnmatch_line("*pytest_ngraph/*.py:*")


def test_offline_a_fixture_whose_cell_is_not_stored_is_inconclusive(suite: Suite) -> None:
    suite.write(FIXTURE.format(kind="cell", body="ngraph_cell.speedup"))
    suite.write(CELL.format(body="pass").replace("block:conv", "block:mha"), "test_other.py")
    suite.run("test_other.py").assert_outcomes(passed=1)

    skipped, warned, failed = (
        suite.run("--ngraph-offline", f"--ngraph-inconclusive={choice}", "-Wdefault", "test_suite.py")
        for choice in ("skip", "warn", "fail")
    )

    skipped.assert_outcomes(skipped=1)
    assert "1 undecided in" in warned.outlines[-1]
    failed.assert_outcomes(errors=1)
    for result in (skipped, warned, failed):
        assert "not in the store" in result.stdout.str()


def test_a_body_that_skips_before_it_touches_its_cell_measures_nothing(suite: Suite) -> None:
    suite.write(CELL.format(body="pytest.skip('not today')"))

    result = suite.run()

    result.assert_outcomes(skipped=1)
    assert "not today" in result.stdout.str()
    assert "measuring" not in result.stdout.str()
    assert not suite.store.exists()


def test_a_body_that_fails_by_itself_measures_nothing(suite: Suite) -> None:
    suite.write(CELL.format(body="assert 1 + 1 == 3"))

    result = suite.run()

    result.assert_outcomes(failed=1)
    assert "measuring" not in result.stdout.str()


def test_a_test_that_was_skipped_is_not_measured_for_its_neighbours(suite: Suite) -> None:
    suite.write("""
@pytest.mark.skip(reason="slow")
@pytest.mark.ngraph(model="block:conv", batches=[1, 2])
def test_skipped(ngraph_batches): pass
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_kept(ngraph_cell): pass
""")

    result = suite.run()

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["ngraph: measuring local block:conv: 2 cells*"])


def test_an_item_that_never_touches_its_cell_is_measured(suite: Suite) -> None:
    suite.write(CELL.format(body="pass"))

    result = suite.run()

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*measuring local block:conv: 2 cells*", "*measured 1 launch *"])


def test_a_claim_about_a_point_that_was_narrowed_away_skips_and_says_so(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batches=[1, 4, 16])
def test_far(ngraph_batches): assert_bsr(ngraph_batches, batch=16, at_least=0.1)
@pytest.mark.ngraph(model="block:conv", batches=[1, 4, 16])
def test_near(ngraph_batches): assert_bsr(ngraph_batches, batch=4, at_least=0.1)
@pytest.mark.ngraph(model="block:conv", depths=[1, 4])
def test_depth(ngraph_depths): assert_retention(ngraph_depths, at_least=0.1)
@pytest.mark.ngraph(models=["block:conv", "block:mha"], batch=4)
def test_model(ngraph_models): assert_speedup(ngraph_models["block:mha"], at_least=0.1)
""")

    result = suite.run("--ngraph-batch=4", "--ngraph-depth=1", "--ngraph-model=block:conv")

    result.assert_outcomes(passed=1, skipped=3)
    assert "model block:mha was narrowed away on the command line (left: block:conv)" in result.stdout.str()
    assert "batch 16 was narrowed away on the command line" in result.stdout.str()
    assert "retention: depths 4 were narrowed away" in result.stdout.str()


def test_a_slope_over_fewer_depths_than_the_test_names_is_not_judged(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", depths=[1, 2, 4])
def test_slope(ngraph_depths): assert_slope(ngraph_depths, at_least=-9)
@pytest.mark.ngraph(model="block:conv", depths=[1, 2, 4])
def test_retention(ngraph_depths): assert_retention(ngraph_depths, at_least=0.1)
""")

    # Retention compares the ends, which are both there; a slope without depth 2 is another slope.
    result = suite.run("--ngraph-depth=1,4")

    result.assert_outcomes(passed=1, skipped=1)
    assert "slope: depths 2 were narrowed away" in result.stdout.str()


def test_a_claim_that_cannot_be_judged_fails_with_a_sentence(suite: Suite) -> None:
    suite.write(CELL.format(body="assert_speedup(ngraph_cell)"))

    result = suite.run()

    result.assert_outcomes(failed=1)
    assert "assert_speedup: give either at_least= or at_most=" in result.stdout.str()
    result.stdout.no_fnmatch_line("*pytest_ngraph/*.py:*")


def test_a_compiler_named_like_the_baseline_is_measured_against_a_second_process(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=4)
def test_it(ngraph_cell):
    assert (ngraph_cell.cell.replica, ngraph_cell.baseline.replica) == (1, 0)
    assert 0.3 < ngraph_cell.speedup.value < 3
""")

    result = suite.run("--ngraph-baseline=null[sample_us=20]")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*(A/A)*"])


def test_an_out_of_tree_compiler_is_measured_in_its_worker(suite: Suite) -> None:
    suite.add_compilers("sub")
    suite.write(
        """
@pytest.mark.ngraph(model="block:conv", compilers="mine[us=100]", baseline="mine[us=300]")
def test_it(ngraph_cell):
    assert ngraph_cell.placement["provider"] == "busy"
    assert ngraph_cell.speedup.value > 1.5
""",
        "sub/test_sub.py",
    )

    suite.bare("--ngraph-protocol=quick").assert_outcomes(passed=1)


@pytest.mark.parametrize("fixture", ["ngraph_cell", "ngraph_target", "ngraph", "ngraph_callable"])
def test_a_fixture_that_is_asked_for_too_late_says_so(suite: Suite, fixture: str) -> None:
    suite.write(f"def test_it(request): request.getfixturevalue('{fixture}')\n")

    result = suite.run()

    result.assert_outcomes(failed=1)
    assert "name it as an argument of the test" in result.stdout.str()


def test_a_fixture_of_another_kind_that_is_asked_for_too_late_says_so(suite: Suite) -> None:
    suite.write("""
def test_target(ngraph_target, request): request.getfixturevalue("ngraph_cell")
@pytest.mark.ngraph(model="block:conv")
def test_cell(ngraph_cell, request): request.getfixturevalue("ngraph_batches")
""")

    result = suite.run()

    result.assert_outcomes(failed=2)
    assert "name it as an argument of the test" in result.stdout.str()


@pytest.mark.parametrize("body", ["pass", SPEEDUP])
def test_offline_a_cell_that_is_not_stored_is_inconclusive(suite: Suite, body: str) -> None:
    suite.write(CELL.format(body=body))
    suite.write(CELL.format(body="pass").replace("block:conv", "block:mha"), "test_other.py")
    suite.run("test_other.py").assert_outcomes(passed=1)

    result = suite.run("--ngraph-offline", "--ngraph-inconclusive=skip")

    result.assert_outcomes(skipped=1, passed=1)
    assert "not in the store" in result.stdout.str()


@pytest.mark.parametrize("body", ["pass", SPEEDUP])
@pytest.mark.parametrize("choice", ["fail", "warn", "skip"])
def test_what_is_not_stored_is_said_where_the_test_is_and_without_our_frames(
    suite: Suite, body: str, choice: str
) -> None:
    suite.write(CELL.format(body=body))
    suite.write(CELL.format(body="pass").replace("block:conv", "block:mha"), "test_other.py")
    suite.run("test_other.py").assert_outcomes(passed=1)

    result = suite.run("--ngraph-offline", f"--ngraph-inconclusive={choice}", "-Wdefault", "test_suite.py")

    said = result.stdout.str()
    assert ("INCONCLUSIVE test_suite.py::test_it[" if choice == "warn" else "inconclusive: ") in said
    assert "not in the store" in said
    result.stdout.no_fnmatch_line("*pytest_ngraph/*.py:*")
    assert "contextlib" not in said


def test_offline_without_any_store_fails_with_what_to_do(suite: Suite) -> None:
    suite.write(CELL.format(body="pass"))

    result = suite.run("--ngraph-offline")

    result.assert_outcomes(failed=1)
    assert "run the suite first or name another --ngraph-store" in result.stdout.str()
    assert not suite.store.exists()
