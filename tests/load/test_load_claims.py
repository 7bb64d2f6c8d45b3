"""Claims about cells under load: percentiles, what is overloaded, and what is reported of the queue."""

from __future__ import annotations

import csv
from collections.abc import Callable

import pytest

from pytest_ngraph.load.queues import TOO_NEAR
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite
from tests.support.pretended import Pretended

# Launches take no time, and their queues are real: calls of ``fixed_us`` served on a clock that stands still else.
QUEUES = """
from dataclasses import asdict
from pytest_ngraph.load import open_loop
from pytest_ngraph.load.loads import Loads
from pytest_ngraph.load.scenarios import rate_of

unqueued = local.run_launch


class Served:
    in_flight = 1

    def __init__(self, call_ns):
        self.now, self.call_ns = 0, call_ns

    def run(self):
        self.now += self.call_ns

    def synchronize(self):
        pass

    def wait(self, until):
        self.now = max(self.now, until)


class Queued:
    def __init__(self, sink, seed):
        self.sink, self.seed, self.visits = sink, seed, {}

    def __getattr__(self, name):
        return getattr(self.sink, name)

    def prepared(self, cell, record):
        loads, call_ns = Loads(self.seed), round(record.call_seconds * 1e9)
        if rate_of(cell.workload.scenario) is not None:
            self.visits[cell] = []
            for _ in range(4):
                load = open_loop.Load(**loads.arriving(cell, 10.0, 1.0))
                served = Served(call_ns)
                clock = lambda: served.now
                visit, traffic = open_loop.visit(served, load, clock=clock, cpu=clock, wait=served.wait)
                loads.visited(cell, {"traffic": asdict(traffic)})
                self.visits[cell].append(visit)
        self.sink.prepared(cell, loads.judged(cell, record))

    def visited(self, cell, block, position, visit):
        self.sink.visited(cell, block, position, self.visits[cell][block % 4] if cell in self.visits else visit)


def with_queues(job, plan, sink, *, spare_memory):
    unqueued(job, plan, Queued(sink, plan.seed), spare_memory=spare_memory)


local.run_launch = with_queues
"""
# Others are there in every launch, which counts all the same.
BESIDE = """
from dataclasses import replace
from pytest_ngraph.machine import facts

facts.disturbance = lambda *_: facts.Company("other processes kept 0.9 of 2 CPUs busy")


def visited(self, cell, block, position, visit):
    stay = self.visits[cell][block % 4]
    self.sink.visited(cell, block, position, replace(stay, run_delay_ns=(0,) * len(stay.wall_ns)))


Queued.visited = visited
"""
FIVE_MS = ("--ngraph-compiler=null[fixed_us=5000]", "--ngraph-baseline=null[fixed_us=10000]")


@pytest.fixture
def queues(suite: Suite) -> Pretended:
    """An empty suite whose launches are pretended, with queues."""
    pretended = Pretended(suite.pytester)
    conftest = pretended.path / "conftest.py"
    conftest.write_text(conftest.read_text() + QUEUES)
    return pretended


@pytest.mark.measures
def test_percentiles_at_a_rate_pass_and_fail_by_what_waits(queues: Pretended) -> None:
    queues.write("""
from pytest_ngraph import assert_latency
SERVER = pytest.mark.ngraph(model="block:conv", scenario="server[rate=60]")
@SERVER
def test_within(ngraph_cell):
    assert_latency(ngraph_cell, percentile=99, at_most=0.03)
    assert_latency(ngraph_cell, at_most=0.008)
    assert ngraph_cell.latency.value == pytest.approx(0.005 * (1 + 0.3 / 1.4), rel=0.03)
    assert ngraph_cell.throughput.value == pytest.approx(60, rel=0.05)
    assert float(ngraph_cell.placement["utilisation"]) == pytest.approx(0.3, rel=0.1)
@SERVER
def test_beyond(ngraph_cell): assert_latency(ngraph_cell, percentile=99, at_most=0.006)
""")

    result = queues.bare(*FIVE_MS, "--ngraph-export=table.csv")

    result.assert_outcomes(passed=1, failed=1)
    assert "p99 latency" in result.stdout.str()
    with (queues.path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["scenario"] for row in rows} == {"server[rate=60]"}


def test_a_load_beyond_capacity_fails_at_any_bound_and_has_no_latency(queues: Pretended) -> None:
    queues.write("""
from pytest_ngraph import assert_latency
@pytest.mark.ngraph(model="block:conv", scenario="server[rate=300]")
def test_it(ngraph_cell): assert_latency(ngraph_cell, percentile=99, at_most=1000)
@pytest.mark.ngraph(model="block:conv", scenario="server[rate=300]")
def test_mean(ngraph_cell): assert_latency(ngraph_cell, at_most=1000)
""")

    result = queues.bare(*FIVE_MS, "--ngraph-inconclusive=fail", "--ngraph-export=table.csv")

    result.assert_outcomes(failed=2)
    said = result.stdout.str()
    assert "7 of 7 launches: overloaded: 300 calls a second arrive, and it can answer " in said
    with (queues.path / "table.csv").open(newline="") as file:
        assert not [row for row in csv.DictReader(file) if row["metric"] == "latency" and row["value"]]


def test_a_queue_that_grew_while_others_used_the_cpus_is_no_sign_of_its_capacity(queues: Pretended) -> None:
    """They may have kept it from keeping up."""
    conftest = queues.path / "conftest.py"
    conftest.write_text(conftest.read_text() + BESIDE)
    queues.write("""
from pytest_ngraph import assert_latency
@pytest.mark.ngraph(model="block:conv", scenario="server[rate=300]")
def test_it(ngraph_cell): assert_latency(ngraph_cell, percentile=99, at_most=1000)
""")

    result = queues.bare(*FIVE_MS, "--ngraph-inconclusive=skip")

    result.assert_outcomes(skipped=1)
    assert "overloaded: 300 calls a second arrive" in result.stdout.str()


# A queue that is near its capacity in launches whose numbers stand in a file.
NEAR = """
from dataclasses import replace
from pathlib import Path
from pytest_ngraph.load.queues import TOO_NEAR
from pytest_ngraph.spec.cells import Outcome

queued, launched = local.run_launch, []


class Near(Queued):
    def prepared(self, cell, record):
        if rate_of(cell.workload.scenario) is not None and str(len(launched)) in Path("near.txt").read_text().split():
            record = replace(record, outcome=Outcome.UNSTABLE, reason=f"{TOO_NEAR}: as a test says")
        self.sink.prepared(cell, record)

    def visited(self, cell, block, position, visit):
        self.sink.visited(cell, block, position, visit)


def near(job, plan, sink, *, spare_memory):
    launched.append(plan)
    queued(job, plan, Near(sink, plan.seed), spare_memory=spare_memory)


local.run_launch = near
"""
TWO_CLAIMS = """
import pytest
from pytest_ngraph import assert_latency
@pytest.mark.ngraph(model="block:conv", scenario="server[rate=60]")
def test_it(ngraph_cell):
    assert_latency(ngraph_cell, percentile=99, at_most=0.1)
    assert_latency(ngraph_cell, percentile=99.9, at_most=0.1)
"""


WARN = ("--ngraph-inconclusive=warn", "-Wignore")


@pytest.fixture
def near_capacity(queues: Pretended) -> Callable[[str, str], Pretended]:
    """A function that writes a suite, and in which launches its queue is near its capacity."""

    def written(near: str, suite: str) -> Pretended:
        conftest = queues.path / "conftest.py"
        conftest.write_text(conftest.read_text() + NEAR)
        (queues.path / "near.txt").write_text(near)
        queues.write(suite)
        return queues

    return written


@pytest.mark.measures
@pytest.mark.parametrize(
    ("near", "said"), [("", ["pass"] * 2), ("5", ["pass", "inconclusive"]), ("2", ["inconclusive"] * 2)]
)
def test_a_queue_that_does_not_settle_in_a_later_launch_is_not_passed_over(
    near: str, said: list[str], near_capacity: Callable[[str, str], Pretended]
) -> None:
    """A claim that it took is open, one that was decided before stays decided: live, stored and offline."""
    queues, words = near_capacity(near, TWO_CLAIMS), (*FIVE_MS, *WARN)

    live, again, offline = queues.bare(*words), queues.bare(*words), queues.bare(*words, "--ngraph-offline")

    with Store.open(queues.store, read_only=True) as store:
        first, second = (
            [(row.verdict, row.estimate, row.launches) for row in store.verdicts(run.id)] for run in store.runs()
        )
    assert [verdict for verdict, *_ in first] == said
    assert first == second
    assert live.parseoutcomes() == again.parseoutcomes() == offline.parseoutcomes()
    assert first[0][2] == 3
    if near == "5":
        assert "1 of " in live.stdout.str()
        assert f"{TOO_NEAR}: as a test says" in live.stdout.str()


MEANS = """
import pytest
from pytest_ngraph import assert_latency, assert_throughput
SERVER = pytest.mark.ngraph(model="block:conv", scenario="server[rate=60]")
@SERVER
def test_latency(ngraph_cell): assert_latency(ngraph_cell, at_most=0.02)
@SERVER
def test_throughput(ngraph_cell): assert_throughput(ngraph_cell, at_least=40, tolerance=0.1)
"""


@pytest.mark.measures
@pytest.mark.parametrize(
    ("near", "said", "why"),
    [("", "pass", ""), ("2 4", "inconclusive", "2 of 5 launches: "), ("1", "inconclusive", ""), ("5", "pass", "")],
)
def test_a_mean_is_not_judged_by_the_launches_in_which_the_queue_settled(
    near: str, said: str, why: str, near_capacity: Callable[[str, str], Pretended]
) -> None:
    """What is dropped among the launches that a verdict has seen leaves it open, live and stored."""
    queues, words = near_capacity(near, MEANS), (*FIVE_MS, *WARN)

    live = queues.bare(*words)
    queues.bare(*words)

    with Store.open(queues.store, read_only=True) as store:
        first, second = ({row.claim: row for row in store.verdicts(run.id)} for run in store.runs())
    assert [row.verdict for row in first.values()] == [said] * 2
    assert [row.verdict for row in second.values()] == [said] * 2
    if why:
        assert [why in row.extra["reason"] for row in first.values()].count(True) >= 1
        assert f"{TOO_NEAR}: as a test says" in live.stdout.str()


@pytest.mark.measures
def test_the_mean_of_a_load_beyond_capacity_fails_and_its_throughput_is_open(queues: Pretended) -> None:
    queues.write("""
from pytest_ngraph import assert_latency, assert_throughput
@pytest.mark.ngraph(model="block:conv", scenario="server[rate=300]")
def test_it(ngraph_cell): assert_latency(ngraph_cell, at_most=1000)
@pytest.mark.ngraph(model="block:conv", scenario="server[rate=300]")
def test_answered(ngraph_cell): assert_throughput(ngraph_cell, at_least=100)
""")

    queues.bare(*FIVE_MS, "--ngraph-inconclusive=warn", "-Wignore")

    with Store.open(queues.store, read_only=True) as store:
        (run,) = store.runs()
        said = {row.metric: row.verdict for row in store.verdicts(run.id)}
    assert said == {"latency": "fail", "throughput": "inconclusive"}


def test_too_few_calls_for_a_percentile_are_inconclusive_and_it_is_said_how_many_it_needs(queues: Pretended) -> None:
    queues.write("""
from pytest_ngraph import assert_latency
@pytest.mark.ngraph(model="block:conv", scenario="server[rate=100]", budget=3)
def test_it(ngraph_cell): assert_latency(ngraph_cell, percentile=99.9, at_most=1.0)
""")

    result = queues.bare(*FIVE_MS, "--ngraph-inconclusive=fail")

    result.assert_outcomes(failed=1)
    assert "percentile 99.9 needs " in result.stdout.str()


def test_cells_at_two_rates_are_not_compared(queues: Pretended) -> None:
    queues.write("""
from pytest_ngraph import assert_faster
def test_it(ngraph):
    one, other = ngraph.measure(model="block:conv", scenario=["server[rate=20]", "server[rate=40]"])
    assert_faster(one, other)
""")

    result = queues.bare(*FIVE_MS)

    result.assert_outcomes(failed=1)
    assert "its cells are of the scenarios server[rate=20] and server[rate=40]" in result.stdout.str()
