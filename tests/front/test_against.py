"""Two sides in one run: a real git repository, measured against an earlier revision of itself."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ngraph.store.sqlite import Store
from tests.conftest import BRIEFLY, QUICK_GATES, Suite, skip_without
from tests.session.test_resume import HELD as HELD_AT
from tests.support import busy_project
from tests.support.busy_project import PLAIN, slower
from tests.support.git_repository import commit, git
from tests.support.measuring import wait_until

CLAIM = """
from pytest_ngraph import assert_no_slower

@pytest.mark.ngraph(model="block:conv", batch=1, compilers="mine")
def test_change(ngraph_cell):
    assert_no_slower(ngraph_cell)
"""
OPTIONS = ("--ngraph-baseline=null", "--ngraph-inconclusive=fail", *QUICK_GATES)
GATE = (*OPTIONS, "--ngraph-protocol=gate")


@pytest.fixture
def project(suite: Suite) -> Suite:
    """A repository whose calls take 200 us, committed, with the branch main."""
    busy_project.write(suite.path)
    suite.write(CLAIM)
    commit(suite.path, {}, "base")
    return suite


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_the_change_made_slower_fails_and_says_by_how_much(project: Suite) -> None:
    slower(project.path)

    words = (*GATE, "--ngraph-against=main", "--ngraph-export=out.csv")
    result = project.bare(*words, plugins="tests.support.undelayed")

    result.assert_outcomes(failed=1)
    base = git(project.path, "rev-parse", "--short=7", "main")
    result.stdout.fnmatch_lines(
        [
            f"ngraph: against main@{base}",
            f"*assert_no_slower: throughput of local:mine block:conv batch1 over main@{base}",
            "*fail: 0.*x*",
            "*batch*compiler*change*verdict*",
            "*mine*0.*x*fail*",
            f"*ran mine of main@{base}: busy, *",
            f"*against main@{base}: 1 cell slower: mine block:conv batch1 0.*",
        ]
    )
    changes = [row for row in rows_of(project.path / "out.csv") if row["metric"] == "change"]
    assert [(row["compiler"], row["side"]) for row in changes] == [("mine", "")]
    # A tenth, and more or less where others want the CPU.
    assert 0.03 < float(changes[0]["value"]) < 0.3
    said = re.search(r"fail: (0\.\d+)x", result.stdout.str())
    assert said is not None
    assert float(said[1]) == pytest.approx(float(changes[0]["value"]), abs=0.006)
    assert {row["side"] for row in rows_of(project.path / "out.csv")} == {"", f"main@{base}"}
    # What git knows of the working tree is as it was.
    assert git(project.path, "status", "--porcelain", "-uno").split() == ["M", "speed.py"]


def test_what_the_change_made_faster_passes_and_is_said(project: Suite) -> None:
    slower(project.path, 20)

    result = project.bare(*OPTIONS, "--ngraph-against=main")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*against main@*: 1 cell faster: mine block:conv batch1 *"])


def test_a_change_of_another_file_costs_no_launch(project: Suite) -> None:
    (project.path / "notes.txt").write_text("nothing that is measured\n")

    result = project.bare(*OPTIONS, "--ngraph-against=main")

    result.assert_outcomes(passed=1)
    assert "measured 0 launches (0 calls)" in result.stdout.str()
    result.stdout.fnmatch_lines(["*against main@*: 1 cell unchanged"])
    # Another run says the same, also where nothing may be measured.
    project.bare(*OPTIONS, "--ngraph-against=main", "--ngraph-offline").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("bound", "outcome"), [("at_least=0.95", "passed"), ("at_most=1.0", "passed"), ("at_least=1.2", "failed")]
)
def test_a_ratio_to_the_other_side_is_one_where_nothing_differs_and_costs_no_launch(
    project: Suite, bound: str, outcome: str
) -> None:
    project.write(f"""
from pytest_ngraph import assert_speedup

@pytest.mark.ngraph(model="block:conv", batch=1, compilers="mine")
def test_change(ngraph_cell):
    assert_speedup(ngraph_cell, over=ngraph_cell.against, {bound})
""")
    (project.path / "notes.txt").write_text("nothing that is measured\n")

    result = project.bare(*OPTIONS, "--ngraph-against=main")

    result.assert_outcomes(**{outcome: 1})
    assert "measured 0 launches (0 calls)" in result.stdout.str()
    project.bare(*OPTIONS, "--ngraph-against=main", "--ngraph-offline").assert_outcomes(**{outcome: 1})


def test_the_same_is_measured_against_itself_where_that_is_asked(project: Suite) -> None:
    result = project.bare(*OPTIONS, "--ngraph-quick-gates=show", "--ngraph-against=main,always")

    assert result.ret == 0
    assert "measured 0 launches" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*against main@*: 1 cell *"])


def test_every_cell_is_held_to_it_without_a_line_in_the_suite(project: Suite) -> None:
    project.write(PLAIN)
    slower(project.path)

    free = project.bare(*OPTIONS, "--ngraph-against=main")
    held = project.bare(*OPTIONS, "--ngraph-against=main", "--ngraph-gate-changes")

    free.assert_outcomes(passed=2)
    held.assert_outcomes(failed=2)
    held.stdout.fnmatch_lines(["*assert_no_slower: throughput of local:mine block:conv batch2 over main@*"])


def test_every_cell_of_a_sweep_is_compared_and_named(project: Suite) -> None:
    project.write(
        """
from pytest_ngraph import assert_no_slower

@pytest.mark.ngraph(model="block:conv", batches=[2, 4], compilers="mine")
def test_change(ngraph_batches):
    assert_no_slower(ngraph_batches)
"""
    )
    slower(project.path)

    result = project.bare(*OPTIONS, "--ngraph-against=main")

    result.assert_outcomes(failed=1)
    for batch in (1, 2, 4):
        result.stdout.fnmatch_lines(
            [f"*assert_no_slower: throughput of local:mine block:conv batch{batch} over main@*"]
        )


HELD = ("--ngraph-against=main", "--ngraph-gate-changes")
SLOWER = "*assert_no_slower: throughput of local:mine block:conv batch{batch} over main@*"
OWN = """
from pytest_ngraph import assert_rtr, assert_throughput

@pytest.mark.ngraph(model="block:conv", batch=1, compilers="mine")
{mark}
def test_own(ngraph_cell):
    {body}
"""


def own(body: str, mark: str = "") -> str:
    return OWN.format(body=body, mark=mark)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("assert_throughput(ngraph_cell, at_least=1e9)", "*assert_throughput: Throughput of local:mine*"),
        ("assert ngraph_cell is None", "*assert *Measurement* is None*"),
    ],
)
def test_a_test_that_fails_is_held_to_it_as_well_and_says_both(project: Suite, body: str, said: str) -> None:
    project.write(own(body))
    slower(project.path)

    result = project.bare(*OPTIONS, *HELD)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f">*{body}", said, SLOWER.format(batch=1), "*1 cell slower: mine block:conv batch1 *"])


def test_a_claim_about_two_cells_of_this_side_does_not_stand_for_the_change(project: Suite) -> None:
    project.write("""
from pytest_ngraph import assert_no_slower

@pytest.mark.ngraph(model="block:conv", batches=[1, 4], compilers="mine")
def test_own(ngraph_batches):
    assert_no_slower(ngraph_batches[4], ngraph_batches[1])
""")
    slower(project.path)

    result = project.bare(*OPTIONS, *HELD)

    result.assert_outcomes(failed=1)
    for batch in (1, 4):
        result.stdout.fnmatch_lines([SLOWER.format(batch=batch)])


def test_of_a_test_that_is_expected_to_fail_it_is_said_what_became_slower(project: Suite) -> None:
    project.write(own("assert_throughput(ngraph_cell, at_least=1e9)", "@pytest.mark.xfail(raises=AssertionError)"))
    slower(project.path)

    result = project.bare(*OPTIONS, *HELD)

    result.assert_outcomes(xfailed=1)
    result.stdout.fnmatch_lines(["*against main@*: 1 cell slower: mine block:conv batch1 *", "FAIL *", "*change 0.*"])
    result.stdout.fnmatch_lines(["verdicts: 2 fail"])


@pytest.mark.parametrize(
    ("body", "mark", "outcome"),
    [
        ("pytest.skip('not today')", "", "skipped"),
        ("pytest.xfail('some day')", "", "xfailed"),
        ("pytest.fail('enough')", "", "failed"),
        ("raise RuntimeError", "", "failed"),
        ("pass", "@pytest.mark.skip", "skipped"),
    ],
)
def test_a_test_that_its_author_ends_is_not_measured_for_it(project: Suite, body: str, mark: str, outcome: str) -> None:
    project.write(own(body, mark))
    slower(project.path)

    result = project.bare(*OPTIONS, *HELD, "--ngraph-inconclusive=skip")

    result.assert_outcomes(**{outcome: 1})
    assert "measuring" not in result.stdout.str()


def test_a_claim_of_what_was_narrowed_away_leaves_the_rest_to_be_compared(project: Suite) -> None:
    project.write(
        own("assert_rtr(ngraph_batches, batch=8, at_least=0.1)")
        .replace("batch=1,", "batches=[1, 8],")
        .replace("(ngraph_cell)", "(ngraph_batches)")
    )

    same = project.bare(*OPTIONS, *HELD, "--ngraph-batch=1")
    slower(project.path)
    result = project.bare(*OPTIONS, *HELD, "--ngraph-batch=1")

    same.assert_outcomes(skipped=1)
    same.stdout.fnmatch_lines(["*against main@*: 1 cell unchanged"])
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([SLOWER.format(batch=1)])


@pytest.mark.parametrize("where", ["there", "here"])
@pytest.mark.parametrize(
    ("body", "extra"),
    [
        ("assert_no_slower(ngraph_batches)", ()),
        ("pass", ("--ngraph-gate-changes",)),
        ("assert_no_slower(ngraph_batches[4])", ("--ngraph-gate-changes",)),
    ],
)
def test_what_has_no_time_on_one_side_hides_no_cell_that_became_slower(
    project: Suite, body: str, extra: tuple[str, ...], where: str
) -> None:
    microseconds = {"there": 200, "here": 2000}[where]
    lacking = f"MICROSECONDS == {microseconds} and workload.spec.batch == 4"
    commit(project.path, {"adapters.py": busy_project.ADAPTERS.replace("not MICROSECONDS", lacking)})
    slower(project.path)
    project.write(
        CLAIM.replace("batch=1,", "batches=[2, 4],")
        .replace("(ngraph_cell):", "(ngraph_batches):")
        .replace("assert_no_slower(ngraph_cell)", body)
    )

    result = project.bare(*OPTIONS, "--ngraph-against=main", "--ngraph-inconclusive=skip", *extra)

    result.assert_outcomes(failed=1)
    for batch in (1, 2):
        result.stdout.fnmatch_lines([SLOWER.format(batch=batch)])


def test_calls_of_measure_are_held_to_it_too(project: Suite) -> None:
    project.write(
        """
@pytest.mark.ngraph(compilers="mine")
def test_change(ngraph):
    cell = ngraph.measure(model="block:conv", batch=1)
    assert 0.03 < cell.change.value < 0.3
    assert 0.03 < cell.against.latency.value / cell.latency.value < 0.3
"""
    )
    slower(project.path)

    project.bare(*OPTIONS, "--ngraph-against=main").assert_outcomes(passed=1)
    project.bare(*OPTIONS, "--ngraph-against=main", "--ngraph-gate-changes").assert_outcomes(failed=1)


def test_without_another_side_such_a_claim_skips_with_the_option_that_arms_it(project: Suite) -> None:
    result = project.bare(*OPTIONS, "-rs")

    result.assert_outcomes(skipped=1)
    assert "--ngraph-against=main" in result.stdout.str()


def test_a_marker_names_its_own_side(project: Suite) -> None:
    git(project.path, "tag", "quick")
    slower(project.path)
    commit(project.path, {})
    project.write(CLAIM.replace('compilers="mine"', 'compilers="mine", against="quick"'))

    result = project.bare(*OPTIONS, "--ngraph-against=HEAD")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*over quick@*"])


def test_two_revisions_are_compared_of_which_neither_is_here(project: Suite) -> None:
    slower(project.path)
    commit(project.path, {}, "slower")
    git(project.path, "tag", "slower")
    slower(project.path, 6000)

    result = project.bare(*OPTIONS, "--ngraph-against=main~1", "--ngraph-side=slower", "--ngraph-gate-changes")

    result.assert_outcomes(failed=1)
    base = git(project.path, "rev-parse", "--short=7", "main~1")
    result.stdout.fnmatch_lines(
        ["ngraph: against main~1@*", "ngraph: on slower@*", f"*against main~1@{base}: 1 cell slower: mine*"]
    )
    # What both have is not measured, though here it is another.
    same = project.bare(*OPTIONS, "--ngraph-against=main", "--ngraph-side=slower", "--ngraph-gate-changes")
    same.assert_outcomes(passed=1)


def test_the_command_compares_without_a_line_in_the_suite(project: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    project.write(PLAIN)
    slower(project.path)
    words = ["compare", "main", "--", *OPTIONS, "-p", "tests.support.undisturbed", "-k", "batch2"]

    done = subprocess.run(
        [sys.executable, "-m", "pytest_ngraph.cli", *words], cwd=project.path, capture_output=True, text=True
    )

    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "1 deselected" in done.stdout
    assert "1 cell slower: mine block:conv batch2 0." in done.stdout
    refused = subprocess.run(
        [sys.executable, "-m", "pytest_ngraph.cli", "compare", "onnxruntime>=1"], capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("ngraph compare: ")


def test_the_command_lets_pytest_end_when_it_is_interrupted(project: Suite) -> None:
    slower(project.path)
    words = [sys.executable, "-m", "pytest_ngraph.cli", "compare", "main", "--", "-p", "ngraph", *OPTIONS]
    words += [word for name in ("undisturbed", "brief", "held") for word in ("-p", f"tests.support.{name}")]
    with subprocess.Popen(
        words,
        cwd=project.path,
        env={**os.environ, HELD_AT: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert wait_until((project.path / "held").exists, 120)
        os.killpg(child.pid, signal.SIGINT)
        said, errors = child.communicate()

    assert child.returncode == pytest.ExitCode.INTERRUPTED
    assert "--ngraph-resume goes on with this run" in said
    assert "Traceback" not in errors
    with Store.open(project.store, read_only=True) as store:
        assert store.runs()[-1].status == "interrupted"


def test_a_side_that_cannot_compile_decides_nothing(project: Suite) -> None:
    slower(project.path, 0)
    commit(project.path, {}, "broken")
    slower(project.path, 200)

    result = project.bare(*OPTIONS, "--ngraph-against=HEAD", "--ngraph-inconclusive=skip")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no time on the other side: failed:*there is no speed*"])


@pytest.mark.parametrize(
    ("given", "said"),
    [("--ngraph-against=nowhere", "nowhere"), ("--ngraph-against=onnxruntime>=1.0", "onnxruntime>=1.0")],
)
def test_a_side_that_is_not_there_is_a_usage_error(project: Suite, given: str, said: str) -> None:
    result = project.bare(*OPTIONS, given)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str() + result.stdout.str()


def test_collecting_asks_neither_git_nor_packages(project: Suite) -> None:
    assert project.ids("--ngraph-against=nowhere", "--ngraph-baseline=null") == [
        "test_change[local-mine-block:conv-batch1]"
    ]
    assert not (project.path / ".ngraph" / "sides").exists()


NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)

    def forward(self, values):
        return {forward}

    def example_inputs(self, batch):
        return torch.randn(batch, 6)
"""
OF_A_NET = """
from pytest_ngraph import assert_no_larger, assert_no_slower

@pytest.mark.ngraph(model="net.py:Net", batch=2, compilers="onnxruntime")
def test_change(ngraph_cell):
    assert_no_slower(ngraph_cell, tolerance=0.5)

@pytest.mark.ngraph(model="net.py:Net", batch=2, compilers="onnxruntime")
def test_size(ngraph_cell):
    assert_no_larger(ngraph_cell)
"""
OF_ONNX = ("--ngraph-baseline=onnxruntime[graph=basic]", "--ngraph-inconclusive=fail")


@pytest.fixture
def net(project: Suite) -> Suite:
    skip_without("torch", "onnxscript", "onnxruntime")
    project.write(OF_A_NET)
    return project


def give(net: Suite, forward: str) -> None:
    (net.path / "net.py").write_text(NET.format(forward=forward))


@pytest.mark.real
def test_a_changed_model_cannot_pass_as_a_faster_one(net: Suite) -> None:
    give(net, "self.layer(values)")
    commit(net.path, {}, "the net")
    give(net, "2 * self.layer(values)")

    # A change that is meant; what was measured so says nothing to a run that means none.
    own = net.bare(
        *OF_ONNX, "--ngraph-against=HEAD", "--ngraph-against-outputs=own", "-k", "test_size", plugins=BRIEFLY
    )
    same = net.bare(*OF_ONNX, "--ngraph-against=HEAD", plugins=BRIEFLY)

    assert "mismatch:" not in own.stdout.str()
    same.assert_outcomes(failed=2)
    same.stdout.fnmatch_lines(["*mismatch: local:onnxruntime net.py:Net batch2 (of HEAD@*other outputs*"])


@pytest.mark.real
def test_a_model_that_is_new_is_no_failure(net: Suite) -> None:
    give(net, "self.layer(values)")

    result = net.bare(*OF_ONNX, "--ngraph-against=HEAD", "-rA", plugins=BRIEFLY)

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*against HEAD@*: 1 cell new: onnxruntime net.py:Net batch2"])
