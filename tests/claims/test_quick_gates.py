"""Without error control there are no verdicts: claims show their numbers, and fail only where they are asked to."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from pytest_ngraph.claims.assertions import assert_latency, assert_memory, assert_speedup
from pytest_ngraph.report.results.verdicts import family_line
from tests.claims.test_claims import Laboratory, Made
from tests.conftest import QUICK_GATES, Suite
from tests.support.pretended import TWICE, Pretended

QUICK = "--ngraph-protocol=quick"
CLAIMS = """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_far(ngraph_cell): assert_speedup(ngraph_cell, at_least=100)

@pytest.mark.ngraph(model="block:conv", batch=1)
def test_near(ngraph_cell): assert_speedup(ngraph_cell, at_least=1.5)
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


@pytest.fixture
def pretended(suite: Suite) -> Pretended:
    return Pretended(suite.pytester)


@pytest.mark.parametrize("protocol", ["quick", "paper"])
@pytest.mark.parametrize("plugins", ["", "xdist"])
@pytest.mark.parametrize("in_ci", [False, True])
def test_claims_show_numbers_and_pass(
    pretended: Pretended, monkeypatch: pytest.MonkeyPatch, protocol: str, plugins: str, in_ci: bool
) -> None:
    if in_ci:
        monkeypatch.setenv("CI", "true")
    pretended.write(CLAIMS)
    options = (f"--ngraph-protocol={protocol}", "--junitxml=report.xml", *(("-n2",) if plugins else ()))
    result = pretended.bare(*TWICE, *options, plugins=plugins)
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    output = result.stdout.str()
    assert "verdicts: 2 not judged" in output
    said = (
        f"protocol {protocol}: no error control, so no verdicts on what launches measure; "
        "use --ngraph-protocol=gate for them"
    )
    assert said in " ".join(output.split())
    assert all(len(line) <= 80 for line in output.splitlines() if line.startswith("protocol "))
    assert "no gate was decided" not in output
    assert "undecided" not in output
    assert output.count("NOT JUDGED") == 2  # a line for each, with its numbers
    xml = (pretended.path / "report.xml").read_text()
    assert xml.count('name="ngraph.1.verdict" value="not judged"') == 2


@pytest.mark.parametrize("in_ini", [False, True])
def test_what_is_wholly_beyond_its_bound_fails_if_asked_to(pretended: Pretended, in_ini: bool) -> None:
    pretended.write(CLAIMS)
    if in_ini:
        pretended.pytester.makeini("[pytest]\nngraph_quick_gates = fail\n")
    options = () if in_ini else QUICK_GATES[1:]
    result = pretended.bare(*TWICE, QUICK, *options)
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *fail: 2.00x, +- one standard error *; quick, no error control"])
    assert "verdicts: 1 fail, 1 not judged" in result.stdout.str()


class Scattered(Made):
    """Blocks of a cell that differ by a quarter to each side."""

    def wall_ns(self, cell, block):  # type: ignore[no-untyped-def]
        factor = 1.25 if block % 2 else 0.8
        return tuple(round(wall * factor) for wall in super().wall_ns(cell, block))


@pytest.mark.parametrize("bound", [1.0, 1.02, 0.98])
def test_an_interval_that_includes_the_bound_fails_on_neither_side(lab: Laboratory, bound: float) -> None:
    """What the point alone failed with exit 1."""
    lab.script = [Scattered(1.0)]
    lab.quick_gates = "fail"
    estimate = assert_latency(lab.run(protocol="quick"), at_most=0.010 * bound)
    assert estimate.low < 0.010 * bound < estimate.high
    assert_latency(lab.run(protocol="quick"), at_least=0.010 * bound)
    assert [row.verdict for row in lab.kept] == ["not judged"]


def test_what_was_measured_once_has_no_interval_to_be_beyond(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_ngraph.devices import local
    from pytest_ngraph.spec.cells import CompileRecord, Outcome

    record = CompileRecord(Outcome.OK, peak_memory_bytes=100 << 20, peaks=(("running", 1),))
    monkeypatch.setattr(local, "memory_pass", lambda *_: (record, record.peak_memory_bytes))
    lab.quick_gates = "fail"
    estimate = assert_memory(lab.run(protocol="quick"), at_most=1 << 20)
    assert math.isinf(estimate.high)
    assert lab.kept[-1].verdict == "not judged"


def test_a_quick_launch_is_no_evidence_for_a_gate(lab: Laboratory) -> None:
    lab.script = [Made(0.5), *[Made(1.2)] * 3]
    assert_speedup(lab.run(protocol="quick"), at_least=1.0)
    assert assert_speedup(lab.run(), at_least=1.0).launches == 3
    assert lab.kept[-1].verdict == "pass"


def test_a_queue_that_grows_fails_without_a_chance_that_it_does_so_falsely(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.script, lab.quick_gates = [Made(calls=[0.02] * 80)], "fail"
    measured = lab.run(protocol="quick")
    for asked in ("has_no_latency", "is_overloaded"):
        monkeypatch.setattr(f"pytest_ngraph.claims.percentiles.{asked}", lambda _: True)
    with pytest.raises(AssertionError, match="quick, no error control: 1 of 1 launch: "):
        assert_latency(measured, percentile=99, at_most=0.010)
    assert lab.kept[-1].verdict == "fail"
    assert family_line(lab.kept) == ""


def test_the_report_shows_what_was_not_judged(pretended: Pretended) -> None:
    pytest.importorskip("altair")
    pretended.write(CLAIMS)
    pretended.bare(*TWICE, QUICK, "--ngraph-report=page.html").assert_outcomes(passed=2)
    page = (pretended.path / "page.html").read_text()
    assert "<b>2</b><span>· not judged</span>" in page
    assert json.dumps("not judged") in page
