"""Bounds in a file: what a test is given by it, and what is refused, by file, key and what is allowed."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import pytest_ngraph
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.bounds import HELPERS, read_bounds
from tests.conftest import ROOT, Suite
from tests.support.pages import blocks

PAGE = ROOT / "docs" / "writing.md"


def read(folder: Path, text: str) -> object:
    (folder / "bounds.toml").write_text(text, encoding="utf-8")
    return read_bounds(folder / "bounds.toml")


def test_every_helper_with_a_bound_may_stand_in_it() -> None:
    # The outputs are compared without an error rate, and the rate of a capacity is that of the cell that is measured.
    offered = {name: getattr(pytest_ngraph, name) for name in pytest_ngraph.__all__ if name.startswith("assert_")}
    del offered["assert_capacity"]
    assert set(HELPERS) == {name for name, each in offered.items() if "at_least" in inspect.signature(each).parameters}


def test_the_longest_name_of_a_test_counts(tmp_path: Path) -> None:
    (tmp_path / "bounds.toml").write_text("""
[test_it.assert_speedup]
at_least = 1
[test_it.assert_latency]
at_most = { "*" = 0.5 }
["a/b[x]/test_a.py::TestIt::test_it".assert_speedup]
at_least = 2
["a/b[x]/test_a.py::TestIt::test_it[local-null]".assert_speedup]
at_least = 3
tolerance = 0.1
""")
    bounds = read_bounds(tmp_path / "bounds.toml")

    def bound(nodeid: str) -> object:
        entry = bounds.of(nodeid, "assert_speedup")
        return entry and (entry.side, entry.bound, entry.tolerance)

    assert bound("a/b[x]/test_a.py::TestIt::test_it[local-null]") == ("at_least", 3, 0.1)
    assert bound("a/b[x]/test_a.py::TestIt::test_it[local-openvino]") == ("at_least", 2, None)
    assert bound("other.py::test_it[local-null]") == ("at_least", 1, None)
    assert bound("bench.py::test_it") == ("at_least", 1, None)
    assert bound("other.py::test_that") is None
    latency = bounds.of("other.py::test_it[a::b]", "assert_latency")
    assert latency is not None
    assert (latency.side, latency.bound) == ("at_most", {"*": 0.5})
    assert latency.place == f"{tmp_path / 'bounds.toml'}: [test_it] assert_latency"
    assert bounds.of("other.py::test_it", "assert_bsr") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a", "is not TOML: "),
        ("test_it = 1.2", "[test_it]: 1.2 (expected a table of helpers, such as assert_speedup = {at_least = 1.2})"),
        (
            "[test_it]\nassert_sped = {at_least = 1}",
            "[test_it]: unknown helper 'assert_sped' (known: assert_accuracy, ",
        ),
        ("[test_it]\nassert_sped = {at_least = 1}", "did you mean 'assert_speedup'?"),
        ("[test_it]\nassert_faster = {at_least = 1}", "unknown helper 'assert_faster'"),
        ("[test_it]\nassert_speedup = 1.2", "assert_speedup: 1.2 (expected a table with at_least or at_most"),
        (
            "[test_it]\nassert_speedup = {atleast = 1}",
            "unknown key 'atleast' (known: at_least, at_most, tolerance; ",
        ),
        ("[test_it]\nassert_speedup = {tolerance = 0.1}", "no bound (expected either at_least or at_most)"),
        ("[test_it]\nassert_speedup = {at_least = 1, at_most = 2}", "at_least and at_most (expected either"),
        ("[test_it]\nassert_speedup = {at_least = '1'}", "at_least: '1' (expected a finite number, or a table of comp"),
        ("[test_it]\nassert_speedup = {at_least = nan}", "at_least: nan (expected a finite number"),
        ("[test_it]\nassert_speedup = {at_least = true}", "at_least: True (expected a finite number"),
        ("[test_it]\nassert_speedup = {at_least = {}}", "at_least: an empty table (expected compilers or targets"),
        ("[test_it]\nassert_speedup = {at_least = {'*' = 'x'}}", "at_least: \"*\": 'x' (expected a finite number)"),
        ("[test_it]\nassert_speedup = {at_least = 1, tolerance = '5%'}", "tolerance: '5%' (expected a finite number)"),
        ("['test a.py::test_it']\nassert_bsr = 1", '["test a.py::test_it"]: assert_bsr: 1 (expected a table with'),
    ],
)
def test_what_is_wrong_is_said_by_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        read(tmp_path, text)

    assert str(refused.value).startswith(f"{tmp_path / 'bounds.toml'}: ")
    assert said in str(refused.value)


def test_what_cannot_be_read_is_refused_by_where_it_is_named(suite: Suite) -> None:
    (suite.path / "pytest.ini").write_text("[pytest]\nngraph_bounds = limits/bounds.toml\n")
    result = suite.bare()
    assert "ini option ngraph_bounds: " in result.stderr.str()
    assert "limits/bounds.toml: cannot be read: No such file or directory" in result.stderr.str()

    (suite.path / "bounds.toml").write_bytes(b"\xff\xfe")
    result = suite.bare("--ngraph-bounds=bounds.toml")
    assert "--ngraph-bounds: " in result.stderr.str()
    assert "cannot be read: 'utf-8' codec" in result.stderr.str()


# In tests


def test_the_file_of_the_docs_bounds_its_suite(suite: Suite) -> None:
    (given,) = (block.code for block in blocks(PAGE) if block.info == "toml")
    (shown,) = (block.code for block in blocks(PAGE) if block.info == "python" and block.note.startswith("not run"))
    (suite.path / "bounds.toml").write_text(given)
    (suite.path / "pytest.ini").write_text("[pytest]\nngraph_bounds = bounds.toml\n")
    suite.write(shown, "test_speed.py")

    # 0.2 ms a sample over 0.02 ms, and 50 us a call of each.
    result = suite.run("--ngraph-batch=8")

    result.assert_outcomes(passed=1)
    said = suite.run("--ngraph-batch=8", compiler="null[sample_us=230]")
    said.assert_outcomes(failed=1)
    assert "claimed at least 1.10x (tolerance 5 %" in said.stdout.str()


TEST = """
@pytest.mark.ngraph(model="block:conv", batch=8)
def test_it(ngraph_cell):
    {claim}
"""


@pytest.mark.parametrize(
    ("entry", "claim", "said"),
    [
        (
            '{at_least = {openvinno = 1.1, "*" = 1.0}}', "assert_speedup(ngraph_cell)",
            "bounds.toml: [test_it] assert_speedup: at_least: unknown compiler 'openvinno' in 'openvinno' (known: ",
        ),
        ("{at_least = {openvino = 1.1}}", "assert_speedup(ngraph_cell)", "at_least: no bound for local:null"),
        (
            "{at_least = 1.1}", "assert_speedup(ngraph_cell, at_least=2)",
            "assert_speedup: at_least= is given in the test, and ",
        ),
        (
            "{at_least = 1.1}", "assert_speedup(ngraph_cell, at_most=20)",
            "assert_speedup: at_most= is given in the test, and ",
        ),
        (
            "{at_least = 1.1, tolerance = 0.1}", "assert_speedup(ngraph_cell, tolerance=0.2)",
            "assert_speedup: tolerance= is given in the test, and ",
        ),
        ("{at_least = 1.1}", "from pytest_ngraph import assert_latency; assert_latency(ngraph_cell)",
         "assert_latency: give either at_least= or at_most=, seconds as a number, such as 0.005 ("),
        ("{at_least = 1.1}", "from pytest_ngraph import assert_latency; assert_latency(ngraph_cell)",
         "bounds.toml has none for test_suite.py::test_it[local-null"),
        ("{at_least = 99}", "assert_speedup(ngraph_cell)", "claimed at least 99.0x (tolerance 5 %"),
        ("{at_least = 99, tolerance = 0.2}", "assert_speedup(ngraph_cell)", "claimed at least 99.0x (tolerance 20 %"),
        ("{at_least = 99}", "assert_speedup(ngraph_cell, tolerance=0.3)", "claimed at least 99.0x (tolerance 30 %"),
    ],
)  # fmt: skip
def test_a_claim_is_given_its_bound_once(suite: Suite, entry: str, claim: str, said: str) -> None:
    (suite.path / "bounds.toml").write_text(f"[test_it]\nassert_speedup = {entry}\n")
    suite.write(TEST.format(claim=claim))

    result = suite.run("--ngraph-bounds=bounds.toml")

    result.assert_outcomes(failed=1)
    assert said in result.stdout.str()


def test_usage_of_the_cpu_is_bounded_in_per_cent_with_points_of_tolerance(suite: Suite) -> None:
    (suite.path / "bounds.toml").write_text("[test_it]\nassert_cpu_usage = {at_most = 1}\n")
    suite.write(TEST.format(claim="from pytest_ngraph import assert_cpu_usage; assert_cpu_usage(ngraph_cell)"))

    result = suite.run("--ngraph-bounds=bounds.toml")

    result.assert_outcomes(failed=1)
    assert "claimed at most 1.00 % (tolerance 5.00 %" in result.stdout.str()
