"""What a CI system sees of a run: JUnit properties, a run that decided no gate, and what the docs say of both."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.front.ci import PROPERTIES, Gates
from pytest_ngraph.options.table import ROWS
from tests.conftest import Suite
from tests.support.pretended import TWICE, UNDECIDABLE, Pretended, claim

ROOT = Path(__file__).parents[2]
SAID = "no gate was decided, and where CI is set a run that decides none fails"
WARN = ("--ngraph-inconclusive=warn", "-Wignore")
MEASURES = """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_measures(ngraph_cell): ngraph_cell.latency
"""


@pytest.fixture
def suite(suite: Suite) -> Pretended:
    return Pretended(suite.pytester)


@pytest.fixture
def ci(monkeypatch: pytest.MonkeyPatch, suite: Pretended) -> None:
    monkeypatch.setenv("CI", "true")


def properties(suite: Pretended) -> dict[str, dict[str, str]]:
    """Return the properties of each testcase in report.xml, by the name of its function."""
    found: dict[str, dict[str, str]] = {}
    for case in ET.parse(suite.path / "report.xml").iter("testcase"):
        pairs = [(each.get("name", ""), each.get("value", "")) for each in case.iter("property")]
        assert len(dict(pairs)) == len(pairs), "a property twice"
        found[case.get("name", "").partition("[")[0]] = dict(pairs)
    return found


def page() -> str:
    """Return the page on CI."""
    return (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


# JUnit properties


@pytest.mark.parametrize("plugins", ["", "xdist"])
def test_each_claim_of_a_test_is_among_its_properties(suite: Pretended, plugins: str) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batches=[1, 4])
def test_claims(ngraph_batches, request):
    request.node.user_properties.append(("mine", 1))
    assert_speedup(ngraph_batches[4], at_least=1.5)
    assert_bsr(ngraph_batches, batch=4, at_least=1.1)
""")
    parallel = ("-n2",) if plugins else ()

    suite.bare(*TWICE, "--junitxml=report.xml", *parallel, plugins=plugins).assert_outcomes(failed=1)

    found = properties(suite)["test_claims"]
    assert found.pop("mine") == "1"
    first = {name: found.pop(f"ngraph.1.{name}") for name in PROPERTIES if name not in ("reason", "state", "plan")}
    assert 1.9 < float(first.pop("low")) < float(first.pop("estimate")) < float(first.pop("high")) < 2.1
    assert "speed-up of" in first.pop("claim")
    assert first == {
        "device": "local",
        "compiler": "null[fixed_us=1000]",
        "workload": "block:conv batch4",
        "metric": "speedup",
        "bound": "1.5",
        "tolerance": "0.05",
        "launches": "3",
        "verdict": "pass",
    }
    assert found.pop("ngraph.2.reason").startswith("the first 3 launches said fail")
    assert {found.pop(f"ngraph.2.{name}") for name in ("metric", "verdict", "launches")} == {"bsr", "fail", "7"}
    assert set(found) == {f"ngraph.2.{name}" for name in PROPERTIES} - {
        f"ngraph.2.{name}" for name in ("metric", "verdict", "launches", "reason", "state", "plan")
    }


@pytest.mark.parametrize(("choice", "tag"), [("fail", "failure"), ("skip", "skipped"), ("warn", None)])
def test_an_inconclusive_claim_is_there_whatever_becomes_of_its_test(
    suite: Pretended, choice: str, tag: str | None
) -> None:
    suite.write(UNDECIDABLE)

    suite.bare(*TWICE, f"--ngraph-inconclusive={choice}", "-Wignore", "--junitxml=report.xml")

    case = next(ET.parse(suite.path / "report.xml").iter("testcase"))
    assert [child.tag for child in case if child.tag != "properties"] == ([tag] if tag else [])
    found = properties(suite)["test_claim"]
    assert (found["ngraph.1.verdict"], found["ngraph.1.launches"]) == ("inconclusive", "4")
    assert found["ngraph.1.reason"] == "the budget is spent"


def test_a_claim_without_launches_has_no_numbers_and_a_test_without_claims_no_properties(suite: Pretended) -> None:
    conftest = suite.path / "conftest.py"
    conftest.write_text(conftest.read_text() + 'environment.disturbance = lambda *_: "a storm"\n')
    suite.write(claim(1.5) + "def test_plain(): pass\n")

    suite.bare(*TWICE, "-Wignore", "--junitxml=report.xml")

    found = properties(suite)
    assert found["test_plain"] == {}
    assert found["test_claim"]["ngraph.1.launches"] == "0"
    assert found["test_claim"]["ngraph.1.verdict"] == "invalid"
    assert "a storm" in found["test_claim"]["ngraph.1.reason"]
    assert {"ngraph.1.estimate", "ngraph.1.low", "ngraph.1.high"} & set(found["test_claim"]) == set()


def test_a_test_that_is_tried_again_has_the_claims_of_its_last_try(suite: Pretended) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_claim(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.5)
    assert_speedup(ngraph_cell, at_least=2.5)
""")

    suite.bare(*TWICE, "--reruns=1", "--junitxml=report.xml", plugins="rerunfailures")

    numbers = {name.split(".")[1] for name in properties(suite)["test_claim"]}
    assert numbers == {"1", "2"}


def test_the_readme_names_every_property(suite: Pretended) -> None:
    assert set(re.findall(r"`ngraph\.1\.([a-z]+)`", page())) == set(PROPERTIES)


# A run that decided no gate


@pytest.mark.usefixtures("ci")
@pytest.mark.parametrize("parallel", [(), ("-n2",)])
@pytest.mark.parametrize("choice", ["warn", "skip"])
def test_a_run_that_decided_no_gate_says_so_and_fails(suite: Pretended, choice: str, parallel: tuple[str, ...]) -> None:
    suite.write(UNDECIDABLE + MEASURES + "def test_plain(): pass\n")
    options = (*TWICE, f"--ngraph-inconclusive={choice}", "-Wignore", "--color=yes", *parallel)

    result = suite.bare(*options, plugins="xdist" if parallel else "")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lines = result.stdout.str().splitlines()
    assert [line for line in lines if SAID in line] == [f"\x1b[31m\x1b[1m{SAID}\x1b[0m"]
    result.stdout.fnmatch_lines(["*1 claim: inconclusive: the budget is spent*", "*what to do: *--ngraph-budget*"])


@pytest.mark.usefixtures("ci")
@pytest.mark.parametrize("parallel", [(), ("-n2",)])
def test_one_decided_gate_is_enough(suite: Pretended, parallel: tuple[str, ...]) -> None:
    suite.write(UNDECIDABLE)
    suite.write(claim(1.5), "test_other.py")

    result = suite.bare(*TWICE, *WARN, *parallel, plugins="xdist" if parallel else "")

    assert result.ret == pytest.ExitCode.OK
    assert SAID not in result.stdout.str()


@pytest.mark.usefixtures("ci")
@pytest.mark.parametrize("parallel", [(), ("-n2",)])
def test_a_run_in_which_nothing_could_run_says_what_is_missing_and_fails(
    suite: Pretended, parallel: tuple[str, ...]
) -> None:
    suite.add_compilers()
    suite.write(claim(1.5))
    options = ("--ngraph-baseline=absent", "-k", "mine or broken")

    result = suite.bare(*options, *parallel, plugins="xdist" if parallel else "")

    result.assert_outcomes(skipped=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            f"*{SAID}*",
            '*2 tests skipped: absent, the baseline, on local: not installed (pip install "surely-not")*',
            "*what to do: install what is missing*",
        ]
    )


@pytest.mark.usefixtures("ci")
def test_what_a_compiler_cannot_do_in_principle_is_no_decided_gate_either(suite: Pretended) -> None:
    suite.add_compilers()
    suite.write(claim(1.5))

    result = suite.bare("--ngraph-baseline=null[fixed_us=1000]", "-k", "picky")

    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*1 test skipped: unsupported: local:picky * it only runs on Sundays*"])


@pytest.mark.usefixtures("ci")
@pytest.mark.parametrize(
    ("source", "options", "status"),
    [
        pytest.param(MEASURES, (), 0, id="claims-nothing"),
        pytest.param(UNDECIDABLE, ("--collect-only",), 0, id="collect-only"),
        pytest.param(UNDECIDABLE + "def test_plain(): pass\n", ("-k", "plain"), 0, id="deselected"),
        pytest.param(UNDECIDABLE, ("-k", "nothing"), 5, id="nothing-left"),
        pytest.param(UNDECIDABLE, ("--ngraph-protocol=quick",), 0, id="no-error-control"),
        pytest.param("@pytest.mark.skip(reason='later')" + UNDECIDABLE, (), 0, id="skipped-by-its-author"),
        pytest.param(UNDECIDABLE + "def test_z(): raise KeyboardInterrupt\n", (), 2, id="interrupted"),
        pytest.param(UNDECIDABLE, ("--ngraph-budget=1",), 4, id="wrong-option"),
        pytest.param(UNDECIDABLE.replace("model=", "modell="), (), 2, id="wrong-marker"),
    ],
)
def test_other_runs_end_as_they_would(suite: Pretended, source: str, options: tuple[str, ...], status: int) -> None:
    suite.write(source)

    result = suite.bare(*TWICE, *WARN, *options)

    assert result.ret == status
    assert SAID not in result.stdout.str()


def test_elsewhere_than_in_ci_a_run_may_decide_nothing(suite: Pretended) -> None:
    suite.write(UNDECIDABLE)

    result = suite.bare(*TWICE, *WARN)

    assert result.ret == pytest.ExitCode.OK
    assert SAID not in result.stdout.str()


@pytest.mark.usefixtures("ci")
def test_a_function_that_claims_nothing_has_no_gates_where_it_is_skipped(suite: Pretended) -> None:
    suite.add_compilers()
    suite.write(MEASURES)

    result = suite.bare("--ngraph-baseline=null[fixed_us=1000]", "-k", "picky or mine")

    result.assert_outcomes(passed=1, skipped=1)
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.usefixtures("ci")
@pytest.mark.parametrize("folder", ["plain", "with [brackets]"])
def test_a_function_with_a_gate_is_told_from_one_without_in_any_folder(suite: Pretended, folder: str) -> None:
    suite.add_compilers()
    suite.write(claim(1.5) + MEASURES, f"{folder}/test_suite.py")

    chosen = "(test_claim and picky) or (test_measures and mine)"
    result = suite.bare("--ngraph-baseline=null[fixed_us=1000]", "-k", chosen)

    result.assert_outcomes(passed=1, skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.usefixtures("ci")
def test_a_store_without_the_cells_decides_nothing_offline(suite: Pretended) -> None:
    suite.write(MEASURES.replace("block:conv", "block:mha"), "test_other.py")
    suite.bare(*TWICE, "test_other.py").assert_outcomes(passed=1)
    suite.write(claim(1.5))

    result = suite.bare(*TWICE, "--ngraph-offline", "--ngraph-inconclusive=skip", "test_suite.py")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*1 claim: inconclusive: *not in the store*", "*run without --ngraph-offline*"])


def test_the_most_frequent_reasons_are_told() -> None:
    gates = Gates()
    for number in range(9):
        gates.left_open(f"inconclusive: reason {number}", 9 - number)

    said = gates.none_was_decided(offline=False)

    assert said[1:6] == [f"  {count} claims: inconclusive: reason {9 - count}" for count in range(9, 4, -1)]
    assert said[6] == "  and 10 claims for other reasons"


# What the docs say


def test_the_docs_tell_every_exit_code() -> None:
    assert re.findall(r"^\| (\d) \|", page(), re.MULTILINE) == [str(int(code)) for code in pytest.ExitCode][:6]


def test_the_workflow_in_the_docs_is_complete_and_like_our_own() -> None:
    yaml: Any = pytest.importorskip("yaml")
    text = page().partition("```yaml\n")[2].partition("```")[0]
    workflow = yaml.safe_load(text)
    ours = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))

    assert len(text.splitlines()) == 10
    # YAML reads a bare "on" as true.
    assert set(workflow) == {True, "jobs"}
    steps = workflow["jobs"]["gates"]["steps"]
    known = {
        step["uses"]: step.get("with", {}) for job in ours["jobs"].values() for step in job["steps"] if "uses" in step
    }
    used = {step["uses"] for step in steps if "uses" in step}
    assert used == set(known)
    assert steps[1]["with"]["python-version"] == ours["jobs"]["test"]["steps"][1]["with"]["python-version"]
    install, run = (step["run"] for step in steps if "run" in step)
    assert ours["jobs"]["test"]["env"]["PIP_EXTRA_INDEX_URL"] in install
    flags = re.findall(r"--ngraph-[a-z-]+", run)
    assert set(flags) <= {row.flag for row in ROWS}
    assert "--junitxml" in run
