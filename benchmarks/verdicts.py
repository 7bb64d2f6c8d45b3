"""How often our verdicts are wrong and what they find, in real processes, against the usual ways on the same cells.

A set is one real pytest run of a generated suite with a seed and a store of its own; one launch group carries many
gates. Finished sets are appended to a file and the script goes on from there: run it as often as there is time.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.neighbours import CONDITIONS, NotPossible, beside
from benchmarks.pairs import finish, print_table, say
from benchmarks.sets import Json, Session, Sets, end_well, run_pytest
from benchmarks.wrappers import PLACES, extra_calls_of, spec_of

FILE = Path(__file__).with_name("results") / "verdicts.json"
SMALL = ("convolutions", "bottleneck", "depthwise", "attention", "perceptron", "patches")
TINY = ("tiny_convolution", "tiny_perceptron", "tiny_gate")
ADAPTERS = ("onnxruntime", "identity")  # of every second set of a row
EFFECTS = (1, 2, 3, 5, 10)
TOLERANCES = (0.05, 0.02)
# Thresholds that the usual ways compare a point with: a customary one, and half way into our tolerance of 5 %.
THRESHOLDS = (0.98, 0.975)
STATISTICS = ("mean", "median", "min")
LONGEST_SECONDS = 3600.0
_REASON = 120  # characters of a reason that are kept

CONFTEST = """
import os
from pathlib import Path

from pytest_ngraph.worker.worker import die_with_parent

die_with_parent(os.getppid())
if {group!r}:
    Path({group!r}, "cgroup.procs").write_text(str(os.getpid()))


def pytest_ngraph_compilers(catalogue):
    for name, place in {places!r}.items():
        catalogue.add(name, place)
"""
_HEAD = """
import pytest
from pytest_ngraph import assert_bsr, assert_speedup


def judge(claim, *arguments, **keywords):
    # Each claim has its verdict in the store, whatever the one before it said.
    try:
        claim(*arguments, **keywords)
    except (AssertionError, pytest.skip.Exception):
        pass

"""
# The truth is 1: at two of the bounds, and at the far edge of the tolerance of the other two.
_AA = """
BOUNDS = [dict(at_least=1.0), dict(at_most=1.0), dict(at_least=1 / 0.95), dict(at_most=1 / 1.05)]


@pytest.mark.ngraph(models={small!r})
def test_each(ngraph_models):
    for bound in BOUNDS:
        for cell in ngraph_models.values():
            judge(assert_speedup, cell, tolerance=0.05, **bound)


@pytest.mark.ngraph(model={one!r}, batches=[1, 4])
def test_batches(ngraph_batches):
    for bound in BOUNDS:
        judge(assert_speedup, ngraph_batches[4], tolerance=0.05, **bound)
        judge(assert_bsr, ngraph_batches, batch=4, tolerance=0.05, **bound)
"""
_EFFECTS = """
@pytest.mark.parametrize("tolerance", {tolerances!r})
@pytest.mark.ngraph(models={tiny!r})
def test_effect(ngraph_models, tolerance):
    for cell in ngraph_models.values():
        judge(assert_speedup, cell, at_least=1.0, tolerance=tolerance)
"""
# Six gates where a bound is hardest to hold: each at what the first look has measured.
_GOAL = """
@pytest.mark.ngraph(model={model!r}, batches=[1, 8], tolerance=0.05)
def test_six_gates(ngraph_batches):
    one, eight, bsr = ngraph_batches[1].speedup, ngraph_batches[8].speedup, ngraph_batches.bsr(8)
    judge(assert_speedup, ngraph_batches[1], at_least=one.value)
    judge(assert_speedup, ngraph_batches[8], at_least=eight.value)
    judge(assert_bsr, ngraph_batches, batch=8, at_least=bsr.value)
"""
_BENCHMARK = """
import time

import pytest


@pytest.mark.ngraph(model={models!r})
def test_build(ngraph_callable):
    ngraph_callable()


@pytest.mark.parametrize("turn", {turns!r})
@pytest.mark.ngraph(model={models!r})
def test_time(benchmark, ngraph_callable, ngraph_target, turn):
    began = time.perf_counter()
    benchmark(ngraph_callable)
    benchmark.extra_info.update(
        compiler=str(ngraph_target.compiler),
        model=ngraph_target.cells[0].workload.model.text,
        turn=turn,
        seconds=time.perf_counter() - began,
    )
"""


# What is run


@dataclass(frozen=True, slots=True)
class Row:
    """What is decided (``aa``, ``effects``, ``small``, ``resnet18``), beside what, and in which way."""

    condition: str
    kind: str
    way: str = "gate"

    @property
    def name(self) -> str:
        return "-".join([self.condition, self.kind, *([] if self.way == "gate" else [self.way])])

    @property
    def is_goal(self) -> bool:
        return self.kind in GOALS


@dataclass(frozen=True, slots=True)
class Goal:
    """A group of six gates whose wall seconds are of interest."""

    model: str
    seconds: float


def network(name: str) -> str:
    """Name one of the benchmarks' networks as a suite does."""
    return f"benchmarks.networks:{name}"


GOALS = {"small": Goal(network("convolutions"), 30.0), "resnet18": Goal("timm:resnet18", 60.0)}
WAYS = ("gate", "paper", "benchmark")
ROWS = tuple(Row("quiet", kind) for kind in GOALS) + tuple(
    Row(condition, kind, way) for condition in CONDITIONS for kind in ("aa", "effects") for way in WAYS
)


@dataclass(frozen=True, slots=True)
class Suite:
    """A generated suite: its text, what it is run with, and how many verdicts it has to give."""

    text: str
    options: tuple[str, ...]
    verdicts: int


def suite_for(row: Row, adapter: str) -> Suite:
    """Return the suite of a row for one of the compilers."""
    if row.is_goal:
        options = ("--ngraph-baseline=identity", "--ngraph-compiler=onnxruntime,openvino")
        return Suite(_HEAD + _GOAL.format(model=GOALS[row.kind].model), options, 6)
    if row.kind == "aa":
        models, baseline, compilers = [network(name) for name in SMALL], adapter, [adapter]
        text = _HEAD + _AA.format(small=models, one=models[0])
        verdicts, turns = 4 * (len(SMALL) + 2), ["first", "second"]
    else:
        models, baseline = [network(name) for name in TINY], spec_of(adapter, 0)
        compilers = [spec_of(adapter, 0, twin=True), *(spec_of(adapter, effect) for effect in EFFECTS)]
        text = _HEAD + _EFFECTS.format(tiny=models, tolerances=list(TOLERANCES))
        verdicts, turns = len(TINY) * len(TOLERANCES) * len(compilers), ["only"]
    if row.way == "benchmark":
        # Without a second process the baseline is a compiler like the others.
        named = compilers if row.kind == "aa" else [baseline, *compilers]
        text = _BENCHMARK.format(models=models, turns=turns)
        return Suite(text, ("--ngraph-baseline=null", f"--ngraph-compiler={','.join(named)}"), 0)
    return Suite(text, (f"--ngraph-baseline={baseline}", f"--ngraph-compiler={','.join(compilers)}"), verdicts)


def run_set(row: Row, adapter: str, seed: int, timeout_seconds: float) -> Json | None:
    """Run one set and return what is kept of it; None where there was no time to finish it.

    Raises NotPossible where the condition cannot be made here.
    """
    suite = suite_for(row, adapter)
    with beside(row.condition) as group, TemporaryDirectory(prefix="ngraph-verdicts-") as place:
        folder = Path(place)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "conftest.py").write_text(CONFTEST.format(group=str(group or ""), places=PLACES))
        (folder / "test_set.py").write_text(suite.text)
        options = [*suite.options, f"--ngraph-seed={seed}", "--ngraph-inconclusive=skip"]
        options += [f"--ngraph-protocol={'paper' if row.way == 'paper' else 'gate'}"]
        if row.way == "benchmark":
            options += ["--benchmark-json=times.json"]
        status, seconds, output = run_pytest(folder, options, timeout_seconds=timeout_seconds)
        if status == 124:
            return None
        found: Json = {"row": row.name, "adapter": adapter, "seed": seed, "status": status, "wall_seconds": seconds}
        if row.way == "benchmark":
            found |= read_times(folder / "times.json")
        else:
            found |= {"expected": suite.verdicts} | read_store(folder / ".ngraph" / "results.sqlite")
            if len(found["verdicts"]) < suite.verdicts:
                say(f"{row.name}: {len(found['verdicts'])} of {suite.verdicts} verdicts\n{output[-3000:]}")
        return found


def read_store(file: Path) -> Json:
    """Return the verdicts of a store's last run, its launches, and the ln speed-up of every comparison by launch."""
    from pytest_ngraph.quantities.quantity import combine
    from pytest_ngraph.spec.states import same_state
    from pytest_ngraph.store.sqlite import Store

    with Store.open(file, read_only=True) as store:
        run = store.runs()[-1]
        evidence, baselines = dict(store.cells(run.id)), store.baselines(run.id)
        launches = store.launches(evidence, include_invalid=True)
        rows = store.verdicts(run.id)
    valid = [launch for launch in launches if not launch.invalid]
    speedups = {}
    for cell, baseline in baselines.items():
        held = same_state([launch for launch in valid if launch.holds((cell, baseline))])
        values = [combine(launch, (baseline, cell), lambda ln: ln[0] - ln[1]) for launch in held]
        speedups[cell.label] = [round(value.value, 6) for value in values if value is not None]
    calls = sum(visit.calls * len(visit.wall_ns) for launch in launches for visit in launch.visits.values())
    return {
        "calls": calls,
        "launches": [
            {"seconds": round(one.seconds, 2), "invalid": one.invalid[:_REASON], "shared": one.shared[:_REASON]}
            for one in launches
        ],
        "speedups": speedups,
        "verdicts": [
            {
                "subject": row.extra["subject"],
                "compiler": row.extra["target"].partition(":")[2],
                "metric": row.metric,
                "bound": row.bound,
                "at_least": row.at_least,
                "tolerance": row.tolerance,
                **{key: _short(getattr(row, key)) for key in ("estimate", "low", "high")},
                "launches": row.launches,
                "verdict": row.verdict,
                "reason": row.extra["reason"][:_REASON],
            }
            for row in rows
        ],
    }


def _short(value: float | None) -> float | None:
    """Return six digits of a number; an infinite one, which JSON does not have, is None."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def read_times(file: Path) -> Json:
    """Return what pytest-benchmark measured, in the order in which it did."""
    content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"benchmarks": []}
    return {
        "times": [
            {
                **{key: one["extra_info"][key] for key in ("compiler", "model", "turn", "seconds")},
                **{key: one["stats"][key] for key in STATISTICS},
                "calls": one["stats"]["rounds"] * one["stats"]["iterations"],
            }
            for one in content["benchmarks"]
        ]
    }


# What the sets say


@dataclass(frozen=True, slots=True)
class Judged:
    """One verdict, and what is true: the ln of the true value, and whether the verdict is wrong."""

    comparison: str
    gate: str
    effect: int
    verdict: str
    truth: float
    line: float
    edge: float
    at_least: bool

    @property
    def is_false(self) -> bool:
        """Tell whether it fails what holds, or passes what is at the edge of the tolerance or beyond."""
        sign = 1 if self.at_least else -1
        if self.verdict == "fail":
            return sign * self.truth >= sign * self.line - 1e-9
        return self.verdict == "pass" and sign * self.truth <= sign * self.edge + 1e-9

    @property
    def is_at_edge(self) -> bool:
        """Tell whether the truth is exactly at the edge of the tolerance, so that a pass is wrong."""
        return abs(self.truth - self.edge) < 1e-9 < abs(self.line - self.edge)


def truth_of(compiler: str) -> float:
    """Return the true ln speed-up of a compiler over its base."""
    return -math.log1p(extra_calls_of(compiler) / 100)


def judged_by_gates(one: Json) -> list[Judged]:
    """Return the verdicts of a set that our protocol decided."""
    found = []
    for row in one["verdicts"]:
        amount = -row["tolerance"] if row["at_least"] else row["tolerance"]
        line = math.log(row["bound"])
        found.append(
            Judged(
                f"{row['metric']} {row['subject']}",
                f"tolerance {100 * row['tolerance']:g} %",
                extra_calls_of(row["compiler"]),
                row["verdict"],
                truth_of(row["compiler"]),
                line,
                line + math.log1p(amount),
                row["at_least"],
            )
        )
    return found


def judged_by_points(points: Iterable[tuple[str, str, float]], *, both_sides: bool) -> list[Judged]:
    """Compare points with the thresholds as is usual; a point is (comparison, compiler, speed-up).

    With ``both_sides`` it must also not be faster by as much, as if the other one were the new code.
    """
    found = []
    for comparison, compiler, value in points:
        for threshold in THRESHOLDS:
            for at_least in (True, False) if both_sides else (True,):
                bound = threshold if at_least else 1 / threshold
                verdict = "pass" if (value >= bound if at_least else value <= bound) else "fail"
                truth, line = truth_of(compiler), math.log(bound)
                gate = f">= {threshold:g}"
                effect = extra_calls_of(compiler)
                found.append(Judged(comparison, gate, effect, verdict, truth, line, line, at_least))
    return found


def points_of_paper(one: Json) -> list[tuple[str, str, float]]:
    """Return the speed-up of each comparison of a set as 100 repetitions have it."""
    points = {}
    for row in one["verdicts"]:
        if row["estimate"] is not None:
            points[f"{row['metric']} {row['subject']}"] = (row["compiler"], float(row["estimate"]))
    return [(comparison, compiler, value) for comparison, (compiler, value) in points.items()]


def points_of_times(base: Json, other: Json, statistic: str) -> list[tuple[str, str, float]]:
    """Return the speed-up of each comparison by one of pytest-benchmark's statistics.

    ``base`` gives the times of the base and ``other`` those of what is compared with it: one set, or two that followed
    each other, as ``--benchmark-compare`` does it.
    """

    def is_base(row: Json) -> bool:
        return bool(row["turn"] == "first" or row["compiler"] == spec_of(base["adapter"], 0))

    times = {row["model"]: row[statistic] for row in base["times"] if is_base(row)}
    return [
        (f"{row['compiler']} {row['model']}", row["compiler"], times[row["model"]] / row[statistic])
        for row in other["times"]
        if not is_base(row) and row["model"] in times
    ]


def clopper_pearson(count: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided interval of a share of which ``count`` of ``of`` were seen (Clopper, Pearson 1934)."""
    from scipy.special import betaincinv

    rest = (1 - confidence) / 2
    low = float(betaincinv(count, of - count + 1, rest)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - rest)) if count < of else 1.0
    return low, high


def share(count: int, of: int) -> str:
    """Write a share with its bounds: ``2 of 300: 0.7 % [0.1, 2.4]``."""
    if not of:
        return "-"
    low, high = clopper_pearson(count, of)
    return f"{count} of {of}: {100 * count / of:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def scatter(sets: Iterable[Json]) -> float | None:
    """Return the standard deviation of a launch's ln speed-up, pooled over the comparisons of all sets."""
    squares, freedom = 0.0, 0
    for values in (values for one in sets for values in one["speedups"].values() if len(values) > 1):
        centre = math.fsum(values) / len(values)
        squares += math.fsum((value - centre) ** 2 for value in values)
        freedom += len(values) - 1
    return math.sqrt(squares / freedom) if freedom else None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a comparison costs: medians over sets of launches, of seconds and of timed calls."""

    launches: float | None
    seconds: float
    calls: float

    def cells(self) -> list[str]:
        """Write it for a table."""
        launches = "-" if self.launches is None else f"{self.launches:g}"
        return [launches, f"{self.seconds:.1f}", f"{self.calls:,.0f}"]


def cost(sets: Sequence[Json]) -> Cost:
    """Return what a comparison of these sets costs; of those that share launches each pays its part."""
    seconds, calls, launches = [], [], []
    for one in sets:
        if "times" in one:
            # The base is measured once and serves every comparison with it.
            count = sum(1 for _ in points_of_times(one, one, "mean"))
            seconds.append(sum(row["seconds"] for row in one["times"]) / max(1, count))
            calls.append(sum(row["calls"] for row in one["times"]) / max(1, count))
        else:
            count = len({(row["metric"], row["subject"]) for row in one["verdicts"]})
            seconds.append(launch_seconds(one) / max(1, count))
            calls.append(one["calls"] / max(1, count))
            launches += [row["launches"] for row in one["verdicts"]]
    return Cost(median(launches) if launches else None, median(seconds), median(calls))


def launch_seconds(one: Json) -> float:
    """Return the wall seconds of all launches of a set, those that do not count among them."""
    return math.fsum(launch["seconds"] for launch in one["launches"])


@dataclass(frozen=True, slots=True)
class Decided:
    """A condition decided in one way: the sets it comes from and their verdicts."""

    condition: str
    way: str
    sets: Sequence[Json]
    judged: Sequence[Judged]
    is_ours: bool = False


def decided(sets: Sequence[Json], kind: str) -> list[Decided]:
    """Return a kind's rows of the table: every condition, decided in every way that was measured."""
    found = []
    for condition in CONDITIONS:
        ours, paper, times = ([one for one in sets if one["row"] == Row(condition, kind, way).name] for way in WAYS)
        if ours:
            judged = [each for one in ours for each in judged_by_gates(one)]
            found.append(Decided(condition, "pytest-ngraph", ours, judged, is_ours=True))
        both = kind == "aa"
        if paper:
            points = [point for one in paper for point in points_of_paper(one)]
            found.append(Decided(condition, "100 repetitions", paper, judged_by_points(points, both_sides=both)))
        for adapters, compared in ((False, "in one run"), (True, "with the run before")):
            pairs = _successive(times) if adapters else [(one, one) for one in times]
            for statistic in STATISTICS if pairs else ():
                points = [point for base, other in pairs for point in points_of_times(base, other, statistic)]
                judged = judged_by_points(points, both_sides=both)
                found.append(Decided(condition, f"pytest-benchmark {statistic}, {compared}", times, judged))
    return found


def _successive(sets: Sequence[Json]) -> list[tuple[Json, Json]]:
    """Return each set with the one of the same compiler and machine before it."""
    kinds = {(one["adapter"], one["machine"]): None for one in sets}
    return [
        pair for kind in kinds for pair in pairwise(one for one in sets if (one["adapter"], one["machine"]) == kind)
    ]


def identical_rows(sets: Sequence[Json]) -> list[list[str]]:
    """Return the table of identical code."""
    rows = []
    for each in decided(sets, "aa"):
        gates = dict.fromkeys(one.gate for one in each.judged)
        for gate in gates:
            judged = [one for one in each.judged if one.gate == gate]
            # A point has no tolerance: the truth is always on the good side of its threshold.
            hold = [one for one in judged if not one.is_at_edge]
            edge = [one for one in judged if one.is_at_edge]
            undecided = [one.verdict for one in judged if one.verdict not in ("pass", "fail")]
            missing = sum(one.get("expected", 0) - len(one["verdicts"]) for one in each.sets) if each.is_ours else 0
            spread = scatter(each.sets) if each.is_ours else None
            rows.append(
                [
                    each.condition,
                    f"{each.way}, {gate}",
                    str(len(each.sets)),
                    share(sum(one.is_false for one in hold), len(hold)),
                    share(sum(one.is_false for one in edge), len(edge)),
                    f"{undecided.count('inconclusive')} / {undecided.count('invalid')} / {missing}"
                    if each.is_ours
                    else "-",
                    *cost(each.sets).cells(),
                    "-" if spread is None else f"{100 * spread:.1f} %",
                ]
            )
    return rows


IDENTICAL = (
    "condition",
    "way",
    "sets",
    "false fails [95 %]",
    "false passes at the edge [95 %]",
    "inconclusive / invalid / missing",
    "launches",
    "s a comparison",
    "calls a comparison",
    "scatter of a launch",
)


def effect_rows(sets: Sequence[Json]) -> list[list[str]]:
    """Return the table of known effects: fail / pass / undecided for each."""
    rows = []
    for each in decided(sets, "effects"):
        # Of the points only half way into the tolerance: there a fail and a pass are alike likely to be wrong.
        gates = dict.fromkeys(one.gate for one in each.judged if each.is_ours or one.gate == f">= {THRESHOLDS[-1]:g}")
        for gate in gates:
            judged = [one for one in each.judged if one.gate == gate]
            cells = []
            for effect in (0, *EFFECTS):
                verdicts = [one.verdict for one in judged if one.effect == effect]
                fails, passes = verdicts.count("fail"), verdicts.count("pass")
                cells.append(f"{fails} / {passes} / {len(verdicts) - fails - passes}")
            false = sum(one.is_false for one in judged)
            rows.append(
                [each.condition, f"{each.way}, {gate}", *cells, f"{false} of {len(judged)}", *cost(each.sets).cells()]
            )
    return rows


EFFECT = (
    "condition",
    "way",
    *(f"{effect} % slower" if effect else "identical" for effect in (0, *EFFECTS)),
    "false verdicts",
    "launches",
    "s a comparison",
    "calls a comparison",
)


def goal_rows(sets: Sequence[Json]) -> list[list[str]]:
    """Return the table of the groups of six gates."""
    rows = []
    for kind, goal in GOALS.items():
        mine = [one for one in sets if one["row"] == Row("quiet", kind).name]
        if mine:
            seconds = sorted(launch_seconds(one) for one in mine)
            launches = median(len(one["launches"]) for one in mine)
            settled = sum(row["verdict"] in ("pass", "fail") for one in mine for row in one["verdicts"])
            spread = scatter(mine)
            rows.append(
                [
                    f"{kind}, batches 1 and 8",
                    str(len(mine)),
                    f"{settled} of {6 * len(mine)}",
                    f"{launches:g}",
                    f"{median(seconds):.0f} ({seconds[0]:.0f} to {seconds[-1]:.0f})",
                    f"{goal.seconds:g}",
                    "-" if spread is None else f"{100 * spread:.1f} %",
                ]
            )
    return rows


GOAL = ("six gates at 5 %", "sets", "decided", "launches", "seconds of launches (range)", "goal", "scatter of a launch")


def missed_goals(sets: Sequence[Json]) -> list[str]:
    """Return the goals that these sets miss, and by how much; a row without sets misses nothing."""
    missed = []
    for each in decided(sets, "aa"):
        false = [one.is_false for one in each.judged if not one.is_at_edge]
        if each.is_ours and sum(false) > 0.01 * len(false):
            missed.append(f"{each.condition}: {share(sum(false), len(false))} false fails (goal: at most 1 %)")
        spread = scatter(each.sets) if each.is_ours and each.condition == "quiet" else None
        if spread is not None and spread > 0.02:
            missed.append(f"quiet: scatter of a launch {100 * spread:.1f} % (goal: at most 2 %)")
    for each in decided(sets, "effects"):
        five = [one.verdict for one in each.judged if one.effect == 5 and one.gate == "tolerance 5 %"]
        if each.is_ours and each.condition == "quiet" and five.count("fail") < 0.9 * len(five):
            missed.append(f"quiet: 5 % found in {share(five.count('fail'), len(five))} (goal: at least 90 %)")
    for kind, goal in GOALS.items():
        seconds = [launch_seconds(one) for one in sets if one["row"] == Row("quiet", kind).name]
        if seconds and median(seconds) > goal.seconds:
            missed.append(f"{kind}: six gates in {median(seconds):.0f} s (goal: at most {goal.seconds:g} s)")
    return missed


def report(sets: Sequence[Json], not_possible: Mapping[str, str]) -> None:
    """Print the tables, what is missing in them and why, and how the goals went."""
    tables: tuple[tuple[str, Sequence[str], Callable[[Sequence[Json]], list[list[str]]]], ...] = (
        ("Identical code", IDENTICAL, identical_rows),
        ("Known effects: fail / pass / undecided", EFFECT, effect_rows),
        ("Seconds until decided", GOAL, goal_rows),
    )
    for title, columns, rows in tables:
        found = rows(sets)
        if found:
            print(f"{title}\n")
            print_table(columns, found)
            print()
    for condition in CONDITIONS:
        if not any(one["row"].startswith(f"{condition}-") for one in sets):
            print(f"{condition} ({CONDITIONS[condition]}): {not_possible.get(condition, 'not measured yet')}")
    finish(missed_goals(sets), None, {})


# Making sets


def next_row(rows: Sequence[Row], sets: Sets, session: Session) -> Row | None:
    """Return the row that has the fewest sets of those that another set still has time for."""
    able = [row for row in rows if session.has_time([one["wall_seconds"] for one in sets.of(row.name)])]
    return min(able, key=lambda row: len(sets.of(row.name)), default=None)


def measure(rows: Sequence[Row], sets: Sets, session: Session, most: int | None) -> dict[str, str]:
    """Make sets until the time is over, or each row has ``most``; return why a condition was not possible."""
    open_rows, not_possible = list(rows), dict[str, str]()
    while open_rows:
        open_rows = [row for row in open_rows if most is None or len(sets.of(row.name)) < most]
        row = next_row(open_rows, sets, session)
        if row is None:
            break
        number = len(sets.of(row.name))
        adapter, seed = ADAPTERS[number % len(ADAPTERS)], random.SystemRandom().randrange(1 << 31)
        say(f"{row.name}, set {number + 1} ({'both' if row.is_goal else adapter}, seed {seed})")
        try:
            one = run_set(row, adapter, seed, min(LONGEST_SECONDS, max(1.0, session.seconds_left)))
        except NotPossible as reason:
            not_possible[row.condition] = str(reason)
            say(f"{row.name}: {reason}")
            open_rows = [each for each in open_rows if each.condition != row.condition]
            continue
        if one is None:
            say(f"{row.name}: not finished in time, nothing is kept of it")
            break
        sets.add(one)
        say(f"{row.name}: {one['wall_seconds']:.0f} s")
    return not_possible


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--file", type=Path, default=FILE, help="where finished sets are kept")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to go on making sets")
    parser.add_argument("--most", type=int, default=None, metavar="N", help="sets of a row that are enough")
    parser.add_argument("--row", nargs="+", default=["*"], metavar="ROW", help="rows or patterns of them, see --list")
    parser.add_argument("--report", action="store_true", help="only print what the finished sets say")
    parser.add_argument("--list", action="store_true", help="list the rows with the sets they have")
    given = parser.parse_args()
    sets = Sets(given.file)
    rows = [row for row in ROWS if any(fnmatchcase(row.name, pattern) for pattern in given.row)]
    if not rows:
        parser.error(f"--row {' '.join(given.row)}: no such row (known: {', '.join(row.name for row in ROWS)})")
    if given.list:
        print_table(("row", "sets"), [(row.name, len(sets.of(row.name))) for row in rows])
        sys.exit()
    end_well()
    not_possible = {} if given.report else measure(rows, sets, Session(given.minutes), given.most)
    report(sets.all, not_possible)


if __name__ == "__main__":
    main()
