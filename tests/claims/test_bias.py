"""Bias hunts: what a suite reads of null, whose true times are known, is neither too slow nor too fast.

Real worker processes, the real session, store, sweeps and estimates. The truth of a call is the wait that null was told
plus how late a busy-wait ends, which is measured here, in a plain loop outside any worker (0.1 to 0.7 us: two readings
of the clock and a call), before and after; it is known no better than these readings agree.

An estimate is called biased by either of two criteria, both of which a busy neighbour leaves alone (medians of clean
batches, trimmed means over blocks, means over launches; a busy loop on every core moved none of them by 0.5 %):

- the truth lies outside the estimate's interval, widened from the 1 % that a suite reads to a false alarm of 1e-4 for
  all the estimates of a test together, and by what the interval does not know: 0.1 %, and 0.1 us of the shortest call,
  since a busy-wait is not equally late in every process;
- it is off by more than 1 %, or 0.3 us where that is more: a wide interval excuses nothing.

That both together see a bias of 3 % is shown at the end by compilers and a clock loop that have one.
"""

from __future__ import annotations

import json
import math
import sqlite3
from array import array
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median, stdev
from time import perf_counter_ns
from typing import NamedTuple

import pytest
from scipy.special import stdtrit

from pytest_ngraph import metrics
from pytest_ngraph.compilers.null import NullExecutable
from pytest_ngraph.spec.cells import PROTOCOLS, Visit
from pytest_ngraph.stats.visits import summarise
from tests.conftest import Suite
from tests.support.measuring import cell, job, launch

pytestmark = pytest.mark.measures

FALSE_ALARM = 1e-4
# One side of the 99 % interval that an estimate shows.
SHOWN_LEVEL = 0.005
BOUND, BOUND_SECONDS = 0.01, 300e-9
UNKNOWN, UNKNOWN_SECONDS = 0.001, 100e-9
TOO_BUSY = "this machine is too busy to be measured on"

# The protocol ``gate`` with shorter stays. Its controls, and what makes a launch invalid, have tests of their own;
# here every launch counts, whatever else runs on this machine.
SHORT = {"visit_seconds": 0.01, "visit_calls": 2, "warmup_seconds": 0.05, "reference": False, "control": False}
CONFTEST = """
from dataclasses import replace
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.spec.cells import PROTOCOLS

PROTOCOLS["{name}"] = replace(PROTOCOLS["{name}"], **{changes})
environment.disturbance = lambda *given: ""
"""
# What a suite reads, by the names of ``truths``.
SUITE = """
import json
from pathlib import Path

def every_launch(quantity):
    while quantity.measurer.one_more(quantity):
        pass

def tell(**estimates):
    file = Path(__file__).with_name("numbers.json")
    known = json.loads(file.read_text()) if file.exists() else {}
    read = {name: [one.value, one.low, one.high, one.launches] for name, one in estimates.items()}
    file.write_text(json.dumps({**known, **read}))

def tell_cell(where, one):
    baseline = one.quantity("speedup").parts[1].estimate()
    tell(**{f"latency {where}": one.latency, f"throughput {where}": one.throughput,
            f"speedup {where}": one.speedup, f"baseline {where}": baseline})

@pytest.mark.ngraph(model="block:conv", batches=[1, BATCH], depth=1, budget=LAUNCHES)
def test_batches(ngraph_batches):
    ngraph_batches.ensure()
    every_launch(ngraph_batches.quantity("bsr", BATCH))
    tell_cell("one", ngraph_batches[1])
    tell_cell("batch", ngraph_batches[BATCH])
    tell(ase=ngraph_batches.ase(BATCH), bsr=ngraph_batches.bsr(BATCH))

@pytest.mark.ngraph(model="block:conv", depths=DEPTHS, batch=1, budget=LAUNCHES)
def test_depths(ngraph_depths):
    ngraph_depths.ensure()
    every_launch(ngraph_depths.quantity("slope"))
    tell_cell("deep", ngraph_depths[max(DEPTHS)])
    tell(slope=ngraph_depths.slope, retention=ngraph_depths.retention)
"""


@dataclass(frozen=True)
class Read:
    """An estimate as a suite read it."""

    value: float
    low: float
    high: float
    launches: int


@dataclass(frozen=True)
class Truth:
    """A true value; ``unit`` is what a relative error of one is on a linear scale, None on the logarithmic one."""

    value: float
    shortest_seconds: float
    unit: float | None = None


@dataclass(frozen=True)
class Waits:
    """The options of a null, or of a compiler that takes the same."""

    fixed_us: float
    sample_us: float
    layer_us: float
    name: str = "null"

    def __str__(self) -> str:
        return f"{self.name}[fixed_us={self.fixed_us},sample_us={self.sample_us},layer_us={self.layer_us}]"

    def seconds(self, batch: int, depth: int) -> float:
        return 1e-6 * (self.fixed_us + self.sample_us * batch + self.layer_us * depth)


@dataclass(frozen=True)
class Scale:
    """A compiler against a baseline, at one and several samples and layers."""

    mine: Waits
    baseline: Waits
    batch: int
    depths: tuple[int, ...]

    @property
    def points(self) -> dict[str, tuple[int, int]]:
        return {"one": (1, 1), "batch": (self.batch, 1), "deep": (1, max(self.depths))}


# 20 to 100 us; 0.1 to 2 ms; 20 ms to 2 s.
SHORTEST = Scale(Waits(10, 5, 5), Waits(20, 15, 15), 4, (2, 4))
MIDDLE = Scale(Waits(50, 25, 25), Waits(500, 250, 250), 4, (2, 4))
LONGEST = Scale(Waits(18_000, 1000, 1000), Waits(10_000, 10_000, 20_000), 199, (100,))


class Late(NamedTuple):
    """How much later than asked for a busy-wait ends when no worker is involved: the least and most that was read."""

    least: float
    most: float

    def __or__(self, other: Late) -> Late:
        return Late(min(self.least, other.least), max(self.most, other.most))


def late_seconds() -> Late:
    """Read it ten times within 0.4 s: a neighbour on the other thread of a core doubles it from one to the next."""
    wait_ns, calls = 20_000, 75
    run = NullExecutable(wait_ns).run
    read = []
    for _ in range(10):
        late = []
        for _ in range(20):
            began = perf_counter_ns()
            for _ in range(calls):
                run()
            late.append((perf_counter_ns() - began) / calls - wait_ns)
        read.append(median(late) * 1e-9)
    return Late(min(read), max(read))


def settled_late() -> Late:
    """Read it until the readings agree: a bias is seen only where they differ by less than it is beyond the bounds."""
    for _ in range(20):
        late = late_seconds()
        if late.most - late.least < 500e-9:
            return late
    pytest.skip(f"it is not known how late a busy-wait ends: {TOO_BUSY}")


def truths(scale: Scale, late: float) -> dict[str, Truth]:
    """Return the true value of everything that the suite tells."""

    def seconds(waits: Waits, batch: int, depth: int) -> float:
        return waits.seconds(batch, depth) + late

    mine, other = scale.mine, scale.baseline
    shortest = seconds(mine, 1, 1)
    known: dict[str, Truth] = {}
    for where, (batch, depth) in scale.points.items():
        own, others = seconds(mine, batch, depth), seconds(other, batch, depth)
        known[f"latency {where}"] = Truth(own, own)
        known[f"throughput {where}"] = Truth(batch / own, own)
        known[f"baseline {where}"] = Truth(others, others)
        known[f"speedup {where}"] = Truth(metrics.speedup(batch / own, batch / others), min(own, others))
    batches = (1, scale.batch)
    throughput, against = ({b: b / seconds(waits, b, 1) for b in batches} for waits in (mine, other))
    known["ase"] = Truth(metrics.ase(throughput, scale.batch), shortest)
    known["bsr"] = Truth(metrics.bsr(throughput, against, scale.batch), shortest)
    depths = (1, *scale.depths)
    speedups = {d: seconds(other, 1, d) / seconds(mine, 1, d) for d in depths}
    known["retention"] = Truth(metrics.retention(speedups), shortest)
    # As a tolerance of a slope is meant: a fraction of the speed-up, gained or lost from one end to the other.
    unit = mean(speedups.values()) / (max(depths) - 1)
    known["slope"] = Truth(metrics.slope(speedups), shortest, unit)
    return known


def t_quantile(level: float, df: int) -> float:
    """Return the quantile of Student's t that is exceeded with probability ``level``."""
    return float(stdtrit(df, 1 - level))


def complaint(read: Read, truth: Truth, false_alarm: float) -> str:
    """Return in which way an estimate is biased, or nothing."""
    if truth.unit is None:
        error, half = math.log(read.value / truth.value), math.inf
        if read.low > 0 and math.isfinite(read.high):
            half = math.log(read.high / read.low) / 2
    else:
        error, half = (read.value - truth.value) / truth.unit, (read.high - read.low) / 2 / truth.unit
    if abs(error) > max(BOUND, BOUND_SECONDS / truth.shortest_seconds):
        return f"{read}, truly {truth.value:g}: off by {100 * error:+.2f} %"
    if read.launches < 2:
        # One launch has no interval over launches; for it the bound alone counts.
        return ""
    df = read.launches - 1
    half *= t_quantile(false_alarm / 2, df) / t_quantile(SHOWN_LEVEL, df)
    allowed = half + UNKNOWN + UNKNOWN_SECONDS / truth.shortest_seconds
    return f"{read}, truly {truth.value:g}: off by {100 * error:+.3f} %" if abs(error) > allowed else ""


def direction(complaint: str) -> str:
    """Return the sign of a complaint's error, nothing where there is no complaint."""
    return complaint.partition("off by ")[2][:1]


def complaints(numbers: Mapping[str, Read], scale: Scale, late: Late) -> dict[str, str]:
    """Return what is biased, by name: in the same direction whether a wait is as late as the least or the most read."""
    found: list[dict[str, str]] = []
    for seconds in late:
        known = truths(scale, seconds)
        assert numbers.keys() == known.keys()
        each = {name: complaint(read, known[name], FALSE_ALARM / len(known)) for name, read in numbers.items()}
        found.append({name: text for name, text in each.items() if text})
    least, most = found
    return {name: text for name, text in least.items() if direction(text) == direction(most.get(name, ""))}


def measure(
    suite: Suite, scale: Scale, *, launches: int = 5, protocol: str = "gate", conftest: str = "", **changes: object
) -> dict[str, Read]:
    """Run a suite that reads every metric on a scale and return what it read."""
    patched = CONFTEST.format(name=protocol, changes={**SHORT, **changes})
    (suite.path / "conftest.py").write_text(patched + conftest)
    suite.write(f"BATCH, DEPTHS, LAUNCHES = {scale.batch}, {list(scale.depths)}, {launches}\n" + SUITE)
    result = suite.bare(
        f"--ngraph-compiler={scale.mine}", f"--ngraph-baseline={scale.baseline}", f"--ngraph-protocol={protocol}"
    )
    output = result.stdout.str()
    # What the plugin itself says where neighbours left it nothing to judge by; the times say nothing then.
    if "launches do not count" in output or "no launch has a usable value" in output:
        pytest.skip(f"too few usable visits: {TOO_BUSY}")
    result.assert_outcomes(passed=2)
    numbers = json.loads((suite.path / "numbers.json").read_text())
    return {name: Read(*read) for name, read in numbers.items()}


@pytest.mark.parametrize("scale", [SHORTEST, MIDDLE], ids=["20-100us", "0.1-2ms"])
def test_every_estimate_is_unbiased_within_its_interval(suite: Suite, scale: Scale) -> None:
    before = late_seconds()
    numbers = measure(suite, scale)
    assert {read.launches for read in numbers.values()} == {5}
    assert complaints(numbers, scale, late_seconds() | before) == {}


def test_every_estimate_is_unbiased_up_to_calls_of_two_seconds(suite: Suite) -> None:
    # The protocol ``quick`` is the same path with one launch. One timed call of 2 s, one block, one call to warm up
    # and none discarded: the first look of ``gate`` at such a cell makes a hundred. There is no interval over one
    # launch, and none is needed: a neighbour's slice of some ms at the end of a wait of 2 s is less than the bound.
    numbers = measure(
        suite,
        LONGEST,
        protocol="quick",
        blocks=1,
        discard_seconds=0.0,
        visit_calls=5,
        long_call_seconds=0.5,
        long_visit_calls=1,
        warmup_calls=1,
        warmup_seconds=0.01,
        long_warmup_seconds=0.01,
        warmup_limit_seconds=0.05,
    )
    assert numbers["baseline batch"].value > 2
    assert numbers["baseline deep"].value > 2
    assert complaints(numbers, LONGEST, late_seconds()) == {}


# The worker's own cost


@pytest.mark.parametrize("batch_seconds", [PROTOCOLS["gate"].batch_seconds, 0.0], ids=["15-calls", "1-call"])
def test_the_worker_costs_less_than_one_percent_of_a_call_of_100_us(tmp_path: Path, batch_seconds: float) -> None:
    """Pipe, loop, clock and covariates, with the calls of a batch as under ``gate`` and as under ``paper``."""
    one, told = cell("null[fixed_us=100,sample_us=0]"), 100e-6
    protocol = replace(PROTOCOLS["gate"], **SHORT, batch_seconds=batch_seconds, blocks=24)  # type: ignore[arg-type]
    before = late_seconds()
    found = launch(job(tmp_path), one, protocol=protocol)
    late = late_seconds() | before
    visits = [found.visits[one, block] for block in found.blocks]
    assert {visit.calls for visit in visits} == ({15} if batch_seconds else {1})

    values = [summary.ln_seconds for summary in map(summarise, visits) if summary.ln_seconds is not None]
    more = math.exp(median(values)) - told

    assert late.least - UNKNOWN_SECONDS < more < late.most + 0.01 * told
    # What asking over the pipe and resuming leave behind is over before the first batch that counts.
    firsts = [visit.wall_ns[0] / median(visit.wall_ns[1:]) for visit in visits]
    assert median(firsts) < 1.02


# The order within a block


Blocks = Mapping[int, Sequence[tuple[str, float]]]


def stored_blocks(path: Path) -> Blocks:
    """Return the cells of each block in the order of their visits, with ln of the seconds per call (NaN: unusable)."""
    blocks: dict[int, list[tuple[str, float]]] = {}
    select = """
        SELECT block, calls, wall_ns, run_delay_ns, cell
        FROM visits JOIN cells ON cells.id = cell_id ORDER BY block, position
    """
    with closing(sqlite3.connect(path)) as connection:
        for block, calls, wall_ns, run_delay_ns, name in connection.execute(select):
            visit = Visit(calls, tuple(array("q", wall_ns)), run_delay_ns=tuple(array("q", run_delay_ns)))
            value = summarise(visit).ln_seconds
            blocks.setdefault(block, []).append((name, math.nan if value is None else value))
    return blocks


def complaint_of_order(blocks: Blocks, call_seconds: float) -> str:
    """Return how a first place in a block differs from the last, or nothing.

    In a block and its mirror image the same two cells come first and last: what they are cancels, where they stood
    remains. The criteria are those of the estimates.
    """
    differences = []
    for block in range(0, len(blocks), 2):
        pair = (blocks[block], blocks[block + 1])
        difference = sum(visits[0][1] - visits[-1][1] for visits in pair) / 2
        if math.isfinite(difference):
            differences.append(difference)
    if len(differences) < len(blocks) / 4:
        pytest.skip(f"{len(differences)} usable pairs of blocks: {TOO_BUSY}")
    centre, df = mean(differences), len(differences) - 1
    half = t_quantile(FALSE_ALARM / 2, df) * stdev(differences) / math.sqrt(len(differences))
    beyond = abs(centre) > half + UNKNOWN + UNKNOWN_SECONDS / call_seconds
    if beyond or abs(median(differences)) > BOUND:
        return f"first against last: {100 * centre:+.3f} % +- {100 * half:.3f} %"
    return ""


def test_the_place_in_a_block_does_not_matter_and_places_are_dealt_evenly(suite: Suite) -> None:
    # Four times the same cell: two processes, and two batches that null waits equally long for.
    same, blocks = Waits(200, 0, 0), 40
    (suite.path / "conftest.py").write_text(
        CONFTEST.format(name="quick", changes={**SHORT, "blocks": blocks, "visit_seconds": 0.015})
    )
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batches=[1, 2])
def test_batches(ngraph_batches):
    ngraph_batches.ensure()
""")
    options = (f"--ngraph-compiler={same}", f"--ngraph-baseline={same}", "--ngraph-protocol=quick")
    suite.bare(*options).assert_outcomes(passed=1)
    found = stored_blocks(suite.store)

    assert complaint_of_order(found, 200e-6) == ""
    # Every second block is the mirror image of the one before, so that all have the same mean place ...
    orders = [[name for name, _ in found[block]] for block in range(blocks)]
    assert all(orders[block + 1] == orders[block][::-1] for block in range(0, blocks, 2))
    # ... and none is always at an end, or always in the middle (each with probability 2 ** -20).
    assert {len(set(order)) for order in orders} == {4}
    ends = [name for order in orders for name in (order[0], order[-1])]
    assert all(0 < ends.count(name) < blocks for name in orders[0])
    # The same visits as they would be, were the first of each block 3 % slower.
    slower = {
        block: [(name, value + math.log(1.03) * (place == 0)) for place, (name, value) in enumerate(visits)]
        for block, visits in found.items()
    }
    assert complaint_of_order(slower, 200e-6).startswith("first against last: +")


# That a bias of 3 % would be seen


GROWING = """
from pytest_ngraph.compilers.null import NullCompiler, NullExecutable

class Growing(NullCompiler):
    name = "growing"

    def compile(self, workload, device, options):
        wait_ns = super().compile(workload, device, options)._wait_ns
        is_first = workload.spec.batch == workload.spec.depth == 1
        return NullExecutable(wait_ns if is_first else round(1.03 * wait_ns))

COMPILER = Growing()

def pytest_ngraph_compilers(catalogue):
    catalogue.add("growing", "conftest:COMPILER")
"""
MISCOUNTING = """
from pytest_ngraph.compilers.null import NullCompiler
from pytest_ngraph.worker import timing

honest = timing.timed_batch

# Only the workers of this compiler import this file.
timing.timed_batch = lambda executable, calls, clock: honest(executable, calls + 1, clock)

class Miscounting(NullCompiler):
    name = "miscounting"

COMPILER = Miscounting()

def pytest_ngraph_compilers(catalogue):
    catalogue.add("miscounting", "conftest:COMPILER")
"""


def test_a_compiler_that_waits_three_percent_longer_than_it_says_is_caught_in_every_metric(suite: Suite) -> None:
    scale = replace(MIDDLE, mine=replace(MIDDLE.mine, name="growing"))
    numbers = measure(suite, scale, launches=3, conftest=GROWING, blocks=4)
    # All but the first point are wrong, so that whatever compares two points is wrong as well.
    right = {*(f"{metric} one" for metric in ("latency", "throughput", "speedup"))}
    right |= {f"baseline {where}" for where in scale.points}
    assert complaints(numbers, scale, settled_late()).keys() == numbers.keys() - right


def test_a_clock_loop_that_counts_one_call_too_few_is_caught(suite: Suite) -> None:
    # 37 calls of 40 us and 27 of 55 us make a batch: one more is 2.7 and 3.7 %.
    scale = Scale(Waits(30, 5, 5, "miscounting"), Waits(1000, 100, 100), 4, (2, 4))
    found = complaints(measure(suite, scale, launches=3, conftest=MISCOUNTING, blocks=4), scale, settled_late())
    assert {f"{metric} {where}" for metric in ("latency", "throughput", "speedup") for where in scale.points} <= set(
        found
    )
    assert not {name for name in found if name.startswith("baseline")}
