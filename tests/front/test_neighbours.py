"""In one run with other plugins: no clash, the same verdicts in any order, and no worker outlives a test's time-out.

A neighbour that is not installed is skipped by its name; ``nox -s neighbours`` installs all of them.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from html import unescape
from pathlib import Path

import psutil
import pytest

from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite
from tests.session.test_resume import children_of, run, start
from tests.support.pretended import TWICE, UNDECIDABLE, Pretended, claim

SUITE = """
from pytest_ngraph import assert_faster

@pytest.mark.ngraph(model=["block:conv", "block:mha"], batch=[1, 8])
def test_cell(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.5)

@pytest.mark.ngraph(model="block:conv", batches=[1, 4, 8])
def test_sweep(ngraph_batches):
    assert_bsr(ngraph_batches, batch=8, at_least=50)

@pytest.mark.ngraph
def test_inside(ngraph):
    small, large = ngraph.measure(model="block:mha", batch=[1, 8])
    assert_faster(large, small)

def test_plain():
    pass
"""
# Each with the name of its plugin, the module by which it is known to be there, and options that put it to work.
NEIGHBOURS = [
    pytest.param(name, plugin, module, options, id=name)
    for name, plugin, module, options in (
        ("pytest-benchmark", "benchmark", "pytest_benchmark", ""),
        ("pytest-xdist", "xdist", "xdist", "-n2"),
        ("pytest-randomly", "randomly", "pytest_randomly", ""),
        ("pytest-rerunfailures", "rerunfailures", "pytest_rerunfailures", "--reruns=1"),
        ("pytest-timeout", "timeout", "pytest_timeout", "--timeout=100"),
        ("pytest-cov", "pytest_cov", "pytest_cov", "--cov=test_suite --cov-report=term"),
        ("pytest-asyncio", "asyncio", "pytest_asyncio", "-o asyncio_default_fixture_loop_scope=function"),
        (
            "pytest-html",
            "metadata pytest_html.plugin",
            "pytest_html",
            "--html=tests.html --self-contained-html",
        ),
        ("pytest-sugar", "sugar", "pytest_sugar", "--force-sugar"),
        ("pytest-split", "pytest-split", "pytest_split", "--splits=1 --group=1"),
        ("pytest-codspeed", "codspeed", "pytest_codspeed", ""),
    )
]


def judged(suite: Suite) -> dict[tuple[str, str], VerdictRow]:
    with Store.open(suite.store, read_only=True) as store:
        return {(row.nodeid, row.claim): row for row in store.verdicts(store.runs()[-1].id)}


@pytest.mark.parametrize(("name", "plugin", "module", "options"), NEIGHBOURS)
def test_a_neighbour_changes_nothing(suite: Suite, name: str, plugin: str, module: str, options: str) -> None:
    pytest.importorskip(module, reason=f"{name} is not installed")
    suite.write(SUITE)

    result = suite.run(*options.split(), plugins=plugin)

    changes_nothing(suite, result.stdout.str())


def changes_nothing(suite: Suite, said: str) -> None:
    assert "INTERNALERROR" not in said
    assert re.search(r"6 .{0,9}passed", said), said
    assert re.search(r"1 .{0,9}failed", said), said
    assert sorted(row.verdict for row in judged(suite).values()) == ["fail", *["not judged"] * 5]


def test_all_of_them_together_change_nothing(suite: Suite) -> None:
    plugins, options = "", ""
    for param in NEIGHBOURS:
        name, plugin, module, given = map(str, param.values)
        pytest.importorskip(module, reason=f"{name} is not installed")
        plugins, options = f"{plugins} {plugin}", f"{options} {given}"
    suite.write(SUITE)

    changes_nothing(suite, suite.run(*options.split(), plugins=plugins).stdout.str())


def test_a_test_of_asyncio_measures_and_claims(suite: Suite) -> None:
    pytest.importorskip("pytest_asyncio", reason="pytest-asyncio is not installed")
    suite.write("""
@pytest.mark.asyncio
@pytest.mark.ngraph(model="block:conv", batch=8)
async def test_it(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.5)
""")

    suite.run("-o", "asyncio_default_fixture_loop_scope=function", plugins="asyncio").assert_outcomes(passed=1)


# Those that report in a way of their own: an undecided gate is none of those that passed

MIXED = (
    claim(1.5)
    + claim(9).replace("test_claim", "test_failing")
    + UNDECIDABLE.replace("test_claim", "test_open")
    + "def test_plain(): pass\n"
)
SOME = ("--ngraph-compiler=null[fixed_us=1000],absent", TWICE[1], "--ngraph-inconclusive=warn", "-Wdefault", "-rN")


@pytest.fixture
def mixed(suite: Suite) -> Pretended:
    """A suite of one test that holds, one that fails, one undecided and three skipped, beside one that is plain."""
    made = Pretended(suite.pytester)
    made.add_compilers()
    made.write(MIXED)
    return made


def plain_lines(result: pytest.RunResult) -> list[str]:
    return [re.sub(r"\x1b\[[\d;]*m", "", line) for line in result.outlines]


@pytest.mark.parametrize("parallel", [(), ("-n2",)])
def test_sugar_shows_an_undecided_gate_as_what_it_is(mixed: Pretended, parallel: tuple[str, ...]) -> None:
    pytest.importorskip("pytest_sugar", reason="pytest-sugar is not installed")

    result = mixed.bare(*SOME, "--force-sugar", *parallel, plugins="sugar xdist" if parallel else "sugar")

    lines = plain_lines(result)
    # It begins its line again below what is printed meanwhile.
    letters = [line.split()[1] for line in lines if line.lstrip().startswith("test_suite.py ")]
    assert set("".join(letters)) == set("✓⨯Us"), lines
    assert max(each.count("U") for each in letters) == 1
    counts = [line.strip() for line in lines[lines.index(next(line for line in lines if "Results (" in line)) :]]
    assert [line for line in counts if re.fullmatch(r"\d+ \w+", line)] == [
        "2 passed", "1 failed", "3 skipped", "1 undecided"
    ]  # fmt: skip
    assert len([line for line in lines if line.startswith("INCONCLUSIVE test_suite.py::test_open[")]) == 1
    assert "verdicts: 1 pass, 1 fail, 1 inconclusive" in lines
    assert "InconclusiveWarning" not in result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_sugar_writes_over_no_line_of_ours(mixed: Pretended) -> None:
    pytest.importorskip("pytest_sugar", reason="pytest-sugar is not installed")

    said = mixed.bare(*SOME, "--force-sugar", plugins="sugar").stdout.str()

    shown = [line.rpartition("\r")[2] for line in said.splitlines()]
    assert any(line.startswith("ngraph: measuring local block:conv") for line in shown), said
    assert not [line for line in shown if "ngraph: " in line and not line.startswith("ngraph: ")]


def test_sugar_is_left_as_it_was(mixed: Pretended) -> None:
    """Runs in one process follow one another, with and without this plugin."""
    sugar = pytest.importorskip("pytest_sugar", reason="pytest-sugar is not installed")
    theirs = sugar.pytest_report_teststatus

    done = mixed.pytester.runpytest_inprocess("-p", "ngraph", "-p", "sugar", "--force-sugar", "-k", "plain")

    assert done.ret == 0
    assert sugar.pytest_report_teststatus is theirs


@pytest.mark.parametrize("parallel", [(), ("-n2",)])
def test_the_page_of_pytest_html_says_which_gates_are_undecided_and_why(
    mixed: Pretended, parallel: tuple[str, ...]
) -> None:
    pytest.importorskip("pytest_html", reason="pytest-html is not installed")
    plugins = "metadata pytest_html.plugin" + (" xdist" if parallel else "")

    result = mixed.bare(*SOME, *parallel, "--html=out.html", "--self-contained-html", plugins=plugins)

    page = (mixed.path / "out.html").read_text(encoding="utf-8")
    (written,) = re.findall(r'data-jsonblob="([^"]*)"', page)
    rows = {
        row["resultsTableRow"][1]: (row["result"], row["log"])
        for rows in json.loads(unescape(written))["tests"].values()
        for row in rows
    }
    (name,) = [name for name in rows if "undecided" in name]
    assert "test_suite.py::test_open[local-null[fixed_us=1000]-block:conv-batch1] (undecided)" in name
    outcome, log = rows[name]
    # Its filters know no other results.
    assert outcome == "Passed"
    assert "inconclusive: assert_speedup: " in log
    assert "the budget is spent" in log
    assert "1 test is undecided, and not counted as failed." in page
    assert sum("Failed" in outcome for outcome, _ in rows.values()) == 1
    assert "INTERNALERROR" not in result.stdout.str()


def test_a_page_of_decided_gates_says_nothing_more(mixed: Pretended) -> None:
    pytest.importorskip("pytest_html", reason="pytest-html is not installed")
    mixed.write(claim(1.5))

    mixed.bare(*SOME, "--html=out.html", plugins="metadata pytest_html.plugin").assert_outcomes(passed=1, skipped=1)

    assert "undecided" not in (mixed.path / "out.html").read_text(encoding="utf-8")


def test_a_suite_may_have_rows_of_its_own_in_that_page(mixed: Pretended) -> None:
    pytest.importorskip("pytest_html", reason="pytest-html is not installed")
    conftest = mixed.path / "conftest.py"
    conftest.write_text(conftest.read_text() + "\ndef pytest_html_results_table_row(report, cells): del cells[:]\n")

    result = mixed.bare(*SOME, "--html=out.html", plugins="metadata pytest_html.plugin")

    assert "INTERNALERROR" not in result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED


# Order

SHUFFLED = """
import os, random
def pytest_collection_modifyitems(items):
    random.Random(int(os.environ["ORDER"])).shuffle(items)
"""


def test_the_order_of_tests_changes_no_verdict(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    (suite.path / "conftest.py").write_text(SHUFFLED)
    suite.write(SUITE)
    found = []
    for order in ("1", "2", "3"):
        monkeypatch.setenv("ORDER", order)
        result = suite.run()
        result.assert_outcomes(passed=6, failed=1)
        # What a call inside a test has measured counts for the others too, from the next run on.
        found.append({key: row.verdict for key, row in judged(suite).items()})
        if order != "1":
            result.stdout.fnmatch_lines(["measured 0 launches *"])

    assert found[0] == found[1] == found[2]


def test_what_is_measured_is_the_same_in_any_order(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    (suite.path / "conftest.py").write_text(SHUFFLED)
    suite.write(SUITE.partition("@pytest.mark.ngraph\ndef test_inside")[0])
    labels = []
    for order in ("1", "2"):
        monkeypatch.setenv("ORDER", order)
        suite.run().assert_outcomes(passed=4, failed=1)
        with Store.open(suite.store, read_only=True) as store:
            run = store.runs()[-1].id
            cells = dict(store.cells(run))
            labels.append(sorted(sorted(cell.label for cell in launch.prepared) for launch in store.launches(cells)))
        suite.store.unlink()

    assert labels[0] == labels[1]


# Time-outs, as pytest-timeout has them: by a signal the test fails, by a thread the whole process ends.

LIMITS = {
    "signal": """
import signal
import psutil
import pytest

@pytest.fixture
def limited():
    def over(*_):
        pytest.fail("Timeout (>2.0s)")
    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)

@pytest.fixture
def alone():
    assert psutil.Process().children(recursive=True) == []
""",
    "thread": """
import os
import threading
import pytest

@pytest.fixture
def limited():
    timer = threading.Timer(2.0, os._exit, [1])
    timer.start()
    yield
    timer.cancel()

@pytest.fixture
def alone():
    pass
""",
}
SLOW = """
import pytest
from pytest_ngraph import assert_speedup

@pytest.mark.ngraph(model="block:mha", batch=8)
def test_slow(limited, ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.2)

@pytest.mark.ngraph(model="block:conv", batch=8)
def test_after(alone, ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.2)
"""


def timed_out(folder: Path, conftest: str, *options: str) -> tuple[int, str]:
    """Run the slow suite. Return its exit status and output, once all that it had started has ended."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_suite.py").write_text(SLOW)
    # However fast the machine is, the first launch does not end by itself.
    process = start(folder, *options, held=1)
    workers: set[psutil.Process] = set()
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            workers.update(children_of(process))
        time.sleep(0.05)
    assert workers
    assert psutil.wait_procs(workers, timeout=60)[1] == [], "no worker may outlive the time-out of its test"
    return process.returncode, process.communicate()[0]


@pytest.mark.measures
def test_a_test_that_times_out_by_a_signal_fails_and_the_next_one_measures(tmp_path: Path) -> None:
    status, said = timed_out(tmp_path, LIMITS["signal"])

    assert status == pytest.ExitCode.TESTS_FAILED
    assert "Timeout (>2.0s)" in said, said
    assert "1 failed, 1 passed" in said
    assert "cut short and not counted: 1 launch" in said


@pytest.mark.measures
def test_a_process_that_ends_by_a_time_out_takes_its_workers_along(tmp_path: Path) -> None:
    assert timed_out(tmp_path, LIMITS["thread"])[0] == 1

    with Store.open(tmp_path / ".ngraph" / "results.sqlite", read_only=True) as store:
        assert [run.status for run in store.runs()] == ["running"]
    # As after any crash: the device is free, and the run goes on.
    (tmp_path / "conftest.py").write_text(LIMITS["thread"].replace("2.0", "100.0"))
    status, said = run(tmp_path, "--ngraph-resume")
    assert status == 0, said
    assert "resuming the run of" in said


@pytest.mark.measures
@pytest.mark.parametrize("method", ["signal", "thread"])
def test_the_same_with_pytest_timeout_itself(tmp_path: Path, method: str) -> None:
    pytest.importorskip("pytest_timeout", reason="pytest-timeout is not installed")
    conftest = LIMITS[method].partition("@pytest.fixture\ndef limited")[0]
    conftest += "import psutil\n@pytest.fixture\ndef limited(): pass\n@pytest.fixture\n"
    conftest += "def alone(): assert psutil.Process().children(recursive=True) == []\n"

    options = ("-p", "timeout", "--timeout=2", f"--timeout-method={method}", "-o", "timeout_func_only=true")
    status, said = timed_out(tmp_path, conftest, *options)

    assert status == 1
    assert "Timeout" in said
    assert method == "thread" or "cut short and not counted" in said
