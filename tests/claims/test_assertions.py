"""Claims on null, whose true values are known: what passes, what fails, and what the messages say."""

from __future__ import annotations

import os
import re

import pytest

from tests.conftest import ROOT
from tests.session.test_session import SHORT
from tests.support.forked import run_pytest

# 1 ms + 0.1 ms a sample against twice that: a speed-up of exactly 2 at every batch.
FAST, SLOW = "null[fixed_us=1000,sample_us=100]", "null[fixed_us=2000,sample_us=200]"


@pytest.fixture(autouse=True)
def _outside_ci(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    if request.node.get_closest_marker("measures") is None:
        monkeypatch.setenv("PYTEST_PLUGINS", "tests.support.own_time")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


def run(pytester: pytest.Pytester, body: str, *options: str) -> str:
    pytester.makepyfile("import pytest\nfrom pytest_ngraph import *\n" + body)
    # What is wholly beyond its bound fails, so that what a claim does shows without verdicts.
    options = (*options, "--ngraph-quick-gates=fail") if QUICK in options else options
    given = options if any("compiler" in option for option in options) else (f"--ngraph-compiler={FAST}", *options)
    loaded = ("-p", "ngraph", "-p", "tests.support.undisturbed", "-p", "no:cacheprovider")
    result = run_pytest(pytester, *loaded, f"--ngraph-baseline={SLOW}", *given)
    return str(result.stdout)


QUICK = "--ngraph-protocol=quick"


@pytest.mark.measures
def test_every_metric_of_a_cell_has_its_true_value(pytester: pytest.Pytester) -> None:
    output = run(
        pytester,
        """
@pytest.mark.ngraph(model="block:conv", batch=4)
def test_cell(ngraph_cell):
    assert ngraph_cell.latency.value == pytest.approx(1.4e-3, rel=0.1)
    assert ngraph_cell.throughput.value == pytest.approx(4 / 1.4e-3, rel=0.1)
    assert ngraph_cell.speedup.value == pytest.approx(2.0, rel=0.1)
    assert 0 < ngraph_cell.cpu_percent.value <= 100
    assert ngraph_cell.compile_seconds.value < 1
    assert ngraph_cell.first_call_seconds.value == pytest.approx(1.4e-3, rel=1.0)
    assert 1e6 < ngraph_cell.peak_memory_bytes.value < 1e9
    assert ngraph_cell.placement["provider"] == "null"
    assert ngraph_cell.outcome == Outcome.OK
    assert float(ngraph_cell.latency) == ngraph_cell.latency.value
    assert "ms" in str(ngraph_cell.latency)

@pytest.mark.ngraph(model="block:conv", batches=[1, 4])
def test_batches(ngraph_batches):
    assert ngraph_batches.rtr(4).value == pytest.approx(4 * 1.1 / 1.4, rel=0.1)
    assert ngraph_batches.ase(4).value == pytest.approx(1.1 / 1.4, rel=0.1)
    assert ngraph_batches.bsr(4).value == pytest.approx(1.0, rel=0.1)
    assert set(ngraph_batches) == {1, 4}
""",
        QUICK,
    )
    assert "2 passed" in output, output


@pytest.mark.measures
def test_slope_and_retention_are_those_of_the_waits(pytester: pytest.Pytester) -> None:
    # 1 ms + 1 ms a layer against 1 ms + 3 ms a layer: speed-ups 4/2, 7/3, 13/5.
    output = run(
        pytester,
        """
@pytest.mark.ngraph(model="block:conv", depths=[2, 4])
def test_depths(ngraph_depths):
    speedups = {1: 4 / 2, 2: 7 / 3, 4: 13 / 5}
    from pytest_ngraph import metrics
    assert ngraph_depths.retention.value == pytest.approx(metrics.retention(speedups), rel=0.1)
    assert ngraph_depths.slope.value == pytest.approx(metrics.slope(speedups), abs=0.07)
    assert_retention(ngraph_depths, at_least=1.0)
    assert_slope(ngraph_depths, at_least=0.05)
""",
        QUICK,
        "--ngraph-compiler=null[fixed_us=1000,sample_us=0,layer_us=1000]",
        "--ngraph-baseline=null[fixed_us=1000,sample_us=0,layer_us=3000]",
    )
    assert "1 passed" in output, output


def test_a_failed_gate_shows_claim_interval_both_sides_and_what_it_could_see(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SHORT)
    output = run(
        pytester,
        """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_speed(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=3.0)
""",
    )
    assert "1 failed" in output, output
    assert re.search(
        r"E +AssertionError: speed-up \S+x < 3.00x: assert_speedup: speed-up of local:null\[fixed_us=1000,",
        output,
    )
    assert "claimed at least 3.00x (tolerance 5 %: what is shown above 2.85x passes)" in output
    assert re.search(r"fail: (1\.[89]\d|2\.\d+)x, 99 % interval [\d.]+x to [\d.]+x, \d+ launches", output)
    assert len(re.findall(r"E +Latency of local:null.*: [\d.]+ ms \[", output)) == 2
    assert "smallest effect this gate could have seen" in output
    assert re.search(r"^FAIL\s+test_a_failed_gate.{,200}\]:?\s+speed-up (1|2)\.", output, re.MULTILINE | re.DOTALL)
    assert "estimates.py" not in output
    assert "claims.py" not in output


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("assert_speedup(ngraph_cell)", "give either at_least= or at_most="),
        ("assert_speedup(ngraph_cell, at_least=1, at_most=2)", "give either at_least= or at_most="),
        ("assert_speedup(ngraph_cell, at_least={'openvino': 1.5})", "no bound for local:null"),
        ("assert_speedup(ngraph_cell, at_least=-1)", "a bound must be a number above 0"),
        ("assert_latency(ngraph_cell, at_most=1, tolerance=7)", "tolerance 7"),
        ("ngraph_cell.quantity('speed')", "metric 'speed' is not one of a single cell"),
    ],
)
def test_a_claim_that_cannot_be_judged_says_why(pytester: pytest.Pytester, claim: str, message: str) -> None:
    output = run(
        pytester,
        f"""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_claim(ngraph_cell):
    {claim}
""",
        QUICK,
    )
    assert "1 failed" in output, output
    assert message in output
    assert "Traceback" not in output


def test_a_mapping_gives_each_target_its_bound(pytester: pytest.Pytester) -> None:
    output = run(
        pytester,
        f"""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_claim(ngraph_cell):
    assert_speedup(ngraph_cell, at_least={{"{FAST}": 1.5, "*": 100}})
    assert_speedup(ngraph_cell, at_least={{"local:null": 1.5}})
    assert_speedup(ngraph_cell, at_most={{"local:{FAST}": 2.5, "null": 1.0}})
""",
        QUICK,
    )
    assert "1 passed" in output, output


def test_a_claim_across_launch_groups_is_refused(pytester: pytest.Pytester) -> None:
    output = run(
        pytester,
        """
def test_claim(ngraph):
    a = ngraph.measure(model="block:conv", batch=1)
    b = ngraph.measure(model="block:mha", batch=1)
    assert_faster(a, b)

def test_together(ngraph):
    a, b = ngraph.measure(model="block:conv", batch=[1, 8])
    assert_faster(b, a)
""",
        QUICK,
    )
    assert "1 failed, 1 passed" in output, output
    assert "were not measured together" in output


def test_what_an_inconclusive_gate_does_is_the_users_choice(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SHORT)
    # Three launches of the same cell against itself cannot tell 1.0 from 0.999999 within a tolerance of 1e-9.
    body = """
@pytest.mark.ngraph(model="block:conv", batch=1, tolerance=1e-9, budget=3)
def test_claim(ngraph_cell):
    value = ngraph_cell.speedup.value
    assert_speedup(ngraph_cell, at_least=value)
"""
    for choice, expected in (("warn", "1 undecided"), ("fail", "1 failed"), ("skip", "1 skipped")):
        output = run(pytester, body, f"--ngraph-inconclusive={choice}")
        assert expected in output, output
        assert "inconclusive" in output
    assert "verdicts: 1 inconclusive" in output


def test_different_threads_are_said(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
from pytest_ngraph.compilers.base import THREADS
from pytest_ngraph.compilers.null import NullCompiler

class Threaded(NullCompiler):
    name = "threaded"
    options = (*NullCompiler.options, THREADS)

COMPILER = Threaded()

def pytest_ngraph_compilers(catalogue):
    catalogue.add("threaded", "conftest:COMPILER")
"""
    )
    output = run(
        pytester,
        """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_claim(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=100)
""",
        QUICK,
        "--ngraph-compiler=threaded[threads=7]",
    )
    assert re.search(r"note: different threads: .*threaded\[threads=7\] has 7", output), output


def test_estimates_of_cached_numbers_do_not_pretend_to_be_repeated(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SHORT)
    output = run(
        pytester,
        """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_claim(ngraph_cell):
    with pytest.raises(Exception, match="no launch has a usable value"):
        ngraph_cell.load_seconds
    assert_compile_time(ngraph_cell, at_most=5)
    assert_memory(ngraph_cell, at_most=1e9)
    assert_cpu_usage(ngraph_cell, at_most=100)
    assert_latency(ngraph_cell, at_most=1)
    assert_throughput(ngraph_cell, at_least=1)
""",
    )
    assert "1 passed" in output, output
    assert "verdicts: 5 pass" in output


@pytest.mark.measures
@pytest.mark.parametrize(
    ("claim", "outcome", "message"),
    [
        ("at_most=0.0021, percentile=50", "1 passed", None),
        # Every other call takes five milliseconds more: a few clean calls show the whole interval to be there.
        ("at_most=0.0021, percentile=99", "1 failed", r"fail: [\d.]+ ms, .*; quick, no error control"),
        ("at_most=0.010, percentile=80", "1 passed", None),
        ("at_most=1, percentile=100", "1 failed", r"percentile=100 \(expected a number between 0 and 100\)"),
    ],
)
def test_a_percentile_of_the_calls_is_another_claim_than_their_median(
    pytester: pytest.Pytester, claim: str, outcome: str, message: str | None
) -> None:
    pytester.makeconftest(
        """
from time import perf_counter_ns
from pytest_ngraph.compilers.null import NullCompiler, NullExecutable

class Stuttering(NullExecutable):
    calls = 0

    def run(self):
        self.calls += 1
        end = perf_counter_ns() + (7_000_000 if self.calls % 2 == 0 else 2_000_000)
        while perf_counter_ns() < end:
            pass

class StutteringCompiler(NullCompiler):
    name = "stuttering"

    def compile(self, workload, device, options):
        return Stuttering(0)

COMPILER = StutteringCompiler()

def pytest_ngraph_compilers(catalogue):
    catalogue.add("stuttering", "conftest:COMPILER")
"""
    )
    output = run(
        pytester,
        f"""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_claim(ngraph_cell):
    assert_latency(ngraph_cell, {claim})
""",
        QUICK,
        "--ngraph-compiler=stuttering",
    )
    assert outcome in output, output
    assert message is None or re.search(message, output), output
    if "fail:" in output:
        assert "percentile 99 of the latency of local:stuttering" in output


def test_short_calls_have_no_percentile_and_the_message_says_why(pytester: pytest.Pytester) -> None:
    output = run(
        pytester,
        """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_claim(ngraph_cell):
    assert_latency(ngraph_cell, at_most=1, percentile=99)
""",
        QUICK,
        "--ngraph-compiler=null[fixed_us=20,sample_us=0]",
    )
    assert "1 failed" in output, output
    assert re.search(r"these are so short that \d+ are timed together; claim the latency without percentile=", output)
    assert "Traceback" not in output
