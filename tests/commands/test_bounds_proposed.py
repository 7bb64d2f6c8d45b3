"""Bounds that are proposed hold for what they were proposed from, on the side that is easier to hold."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.commands.bounds import proposed
from pytest_ngraph.options.bounds import read_bounds
from pytest_ngraph.store.rows import VerdictRow
from tests.conftest import Suite

SUITE = """
@pytest.mark.ngraph(model="block:conv", batch=[1, 4])
def test_fast(ngraph_cell):
    assert_speedup(ngraph_cell{bound})
"""
GATE = ("--ngraph-protocol=gate", "--ngraph-budget=3")


def row(nodeid: str = "test_a.py::test_x[local-null]", **more: Any) -> VerdictRow:
    given: dict[str, Any] = {
        "metric": "speedup", "bound": 1.0, "at_least": True, "tolerance": 0.05, "estimate": 2.0, "low": 1.9,
        "high": 2.1, "launches": 3, "verdict": "pass", "smallest_effect": 0.02, **more,
    }  # fmt: skip
    extra = {"helper": given.pop("helper", "assert_speedup"), "target": given.pop("target", "local:null")}
    extra |= {"name": given.pop("name")} if "name" in given else {}
    return VerdictRow(nodeid, given.pop("claim", "a claim"), extra=extra, **given)


@pytest.mark.parametrize(
    ("of", "bound"),
    [
        ({}, {"null": 1.9}),
        # It cannot see its tolerance: 1.9 * 0.9 / 0.95.
        ({"smallest_effect": 0.1}, {"null": 1.8}),
        ({"at_least": False}, {"null": 2.1}),
        ({"at_least": False, "smallest_effect": 0.1}, {"null": 2.2}),
        ({"at_least": False, "high": 2.1001}, {"null": 2.11}),
        ({"target": "orin:tensorrt"}, {"orin:tensorrt": 1.9}),
        ({"target": "local:onnxruntime[graph=basic]"}, {"onnxruntime[graph=basic]": 1.9}),
        ({"metric": "slope", "helper": "assert_slope", "low": -0.0123, "tolerance": 0.01}, {"null": -0.0223}),
    ],
)
def test_a_bound_is_the_end_of_the_interval_less_what_is_not_seen(
    of: dict[str, Any], bound: dict[str, float], tmp_path: Path
) -> None:
    file = tmp_path / "bounds.toml"
    file.write_text("\n".join(proposed([row(**of)])))
    [entry] = read_bounds(file).tests["test_a.py::test_x"].values()
    assert entry.bound == pytest.approx(bound)
    assert entry.side == ("at_least" if of.get("at_least", True) else "at_most")


@pytest.mark.parametrize(
    "of",
    [
        {"verdict": "not judged"}, {"verdict": "invalid"}, {"low": None}, {"low": math.inf}, {"low": 0.0},
        {"tolerance": None}, {"smallest_effect": math.inf}, {"smallest_effect": 1.5}, {"helper": "assert_faster"},
        {"metric": "of another release"}, {"target": ""},
        {"claim": "assert_speedup: x at_least history (tolerance 0.05)"},
    ],
)  # fmt: skip
def test_what_gives_no_number_proposes_nothing(of: dict[str, Any]) -> None:
    assert proposed([row(**of)]) == []


def test_of_several_cells_the_furthest_counts_and_names_are_quoted(tmp_path: Path) -> None:
    rows = [
        row(low=1.9),
        row(low=1.5),
        row(low=1.7, target="local:openvino"),
        row('test "b".py::test_\u00e4[x]', low=1.2),
    ]
    file = tmp_path / "bounds.toml"
    file.write_text("\n".join(proposed(rows)))
    bounds = read_bounds(file).tests
    assert bounds["test_a.py::test_x"]["assert_speedup"].bound == {"null": 1.5, "openvino": 1.7}
    assert bounds['test "b".py::test_\u00e4']["assert_speedup"].bound == {"null": 1.2}


@pytest.mark.parametrize(
    ("other", "comments"),
    [
        # Of both sides of one quantity, and of two quantities.
        ({"at_least": False}, ['at_least = { "null" = 1.9 } }  # speedup', 'at_most = { "null" = 2.1 } }  # speedup']),
        (
            {"metric": "throughput_ratio", "low": 0.5},
            ['at_least = { "null" = 1.9 } }  # speedup', 'at_least = { "null" = 0.5 } }  # throughput_ratio'],
        ),
        # A percentile and a mean are of one metric: with the bound of the former the latter could grow fourfold.
        (
            {"name": "p99 speed-up", "low": 0.5},
            ['at_least = { "null" = 1.9 } }  # speedup', 'at_least = { "null" = 0.5 } }  # p99 speed-up'],
        ),
    ],
)
def test_bounds_that_one_entry_cannot_give_are_comments(
    other: dict[str, Any], comments: list[str], tmp_path: Path
) -> None:
    rows = [row(), row(**other), row(helper="assert_bsr", metric="bsr"), row("test_a.py::test_y")]
    file = tmp_path / "bounds.toml"

    file.write_text("\n".join(lines := proposed(rows)))

    # It can be read back: a key that stood there twice could not.
    bounds = read_bounds(file).tests
    assert list(bounds["test_a.py::test_x"]) == ["assert_bsr"]
    assert bounds["test_a.py::test_y"]["assert_speedup"].bound == {"null": 1.9}
    assert lines[2] == "# assert_speedup claims 2 things in this test: keep these bounds in the test."
    assert lines[3:5] == [f"# assert_speedup = {{ {comment}" for comment in comments]


def test_what_is_proposed_holds_in_the_next_run(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.write(SUITE.format(bound=", at_least=0.01"))
    suite.run(*GATE, plugins="tests.support.undelayed").assert_outcomes(passed=2)
    monkeypatch.chdir(suite.path)
    capsys.readouterr()

    assert main(["bounds", "propose"]) == 0

    text = capsys.readouterr().out
    assert text.startswith("# Of run 1, ")
    (suite.path / "bounds.toml").write_text(text)
    suite.write(SUITE.format(bound=""))
    again = suite.run(*GATE, "--ngraph-bounds=bounds.toml", plugins="tests.support.undelayed")
    again.assert_outcomes(passed=2)
    assert "measured 0 launches" in again.stdout.str()


def test_a_quick_run_after_the_gates_is_passed_over(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.write(SUITE.format(bound=", at_least=0.01"))
    suite.run(*GATE, plugins="tests.support.undelayed").assert_outcomes(passed=2)
    suite.run().assert_outcomes(passed=2)
    monkeypatch.chdir(suite.path)
    capsys.readouterr()

    assert main(["bounds", "propose"]) == 0
    assert capsys.readouterr().out.startswith("# Of run 1, ")
    # One that is asked for is that one, whatever it was measured by.
    assert main(["bounds", "propose", "--run", "2"]) == 2
    assert "run 2 judged no claim that has a bound" in capsys.readouterr().err


def test_a_run_without_claims_says_so(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.write('@pytest.mark.ngraph(model="block:conv")\ndef test_it(ngraph_cell): pass\n')
    suite.run().assert_outcomes(passed=1)
    monkeypatch.chdir(suite.path)

    assert main(["bounds", "propose"]) == 2
    assert "run 1 judged no claim that has a bound" in capsys.readouterr().err
    assert main(["bounds", "propose", "--run", "7"]) == 2
    assert "no run 7" in capsys.readouterr().err


def test_the_batches_of_a_sweep_have_one_bound() -> None:
    rows = [row(helper="assert_bsr", metric="bsr", name=f"bsr@{batch}", low=low) for batch, low in ((4, 0.9), (8, 0.8))]
    assert proposed(rows)[2:] == ['assert_bsr = { at_least = { "null" = 0.8 } }']
