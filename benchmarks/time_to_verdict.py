"""How long six comparisons take until they are decided, and how many are decided rightly: ours and pytest-benchmark.

Three networks of about 2 ms, each against the same code in another process and against 5 % more calls. Both ways run
as one pytest each, in turn, with their defaults, starts and exports included.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.pairs import finish, print_table, say
from benchmarks.resumed import made_sets, set_options
from benchmarks.sets import Json, run_pytest
from benchmarks.verdicts import (
    CONFTEST,
    STATISTICS,
    TINY,
    Judged,
    judged_by_gates,
    judged_by_points,
    network,
    points_of_times,
    read_store,
    read_times,
)
from benchmarks.wrappers import PLACES, spec_of

FILE = Path(__file__).with_name("results") / "time_to_verdict.json"
OURS, THEIRS, ADAPTER = "pytest-ngraph", "pytest-benchmark", "onnxruntime"
SLOWER = 5
_OURS = """
import pytest
from pytest_ngraph import assert_speedup


@pytest.mark.ngraph(models={models!r})
def test_effect(ngraph_models):
    for cell in ngraph_models.values():
        # Each claim has its verdict in the store, whatever the one before it said.
        try:
            assert_speedup(cell, at_least=1.0)
        except (AssertionError, pytest.skip.Exception):
            pass
"""
_THEIRS = """
import time

import pytest


@pytest.mark.ngraph(model={models!r})
def test_time(benchmark, ngraph_callable, ngraph_target):
    began = time.perf_counter()
    benchmark(ngraph_callable)
    benchmark.extra_info.update(
        compiler=str(ngraph_target.compiler),
        model=ngraph_target.cells[0].workload.model.text,
        turn="only",
        seconds=time.perf_counter() - began,
    )
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One pytest run: its wall seconds, those of the calls it timed, and what it decided by each rule."""

    wall_seconds: float
    judged: dict[str, list[Judged]]


def run(ours: bool, seed: int) -> Run:
    """Run one of the two ways in a folder of its own."""
    base, compilers = spec_of(ADAPTER, 0), [spec_of(ADAPTER, 0, twin=True), spec_of(ADAPTER, SLOWER)]
    models = [network(name) for name in TINY]
    with TemporaryDirectory(prefix="ngraph-time-") as place:
        folder = Path(place)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "conftest.py").write_text(CONFTEST.format(group="", places=PLACES))
        (folder / "test_six.py").write_text((_OURS if ours else _THEIRS).format(models=models))
        given = [f"--ngraph-baseline={base}" if ours else "--ngraph-baseline=null"]
        given.append(f"--ngraph-compiler={','.join(compilers if ours else [base, *compilers])}")
        given += [f"--ngraph-seed={seed}", "--ngraph-inconclusive=skip"]
        given += [] if ours else ["--benchmark-json=times.json"]
        status, seconds, output = run_pytest(folder, given, timeout_seconds=1800)
        if status not in (0, 1):
            raise SystemExit(f"pytest ended with {status}:\n{output[-3000:]}")
        if ours:
            found = read_store(folder / ".ngraph" / "results.sqlite")
            if len(found["verdicts"]) != 2 * len(TINY):
                raise SystemExit(f"{len(found['verdicts'])} verdicts:\n{output[-3000:]}")
            return Run(seconds, {OURS: judged_by_gates(found)})
        return Run(seconds, by_times({"adapter": ADAPTER, **read_times(folder / "times.json")}))


def by_times(one: Json) -> dict[str, list[Judged]]:
    """Return what pytest-benchmark's statistics say, each compared with either threshold."""
    found: dict[str, list[Judged]] = {}
    for statistic in STATISTICS:
        for judged in judged_by_points(points_of_times(one, one, statistic), both_sides=False):
            found.setdefault(f"pytest-benchmark {statistic}, {judged.gate}", []).append(judged)
    return found


def right(judged: Judged) -> bool:
    """Say whether a verdict is right: identical code passes, and what is slower by the tolerance fails."""
    return judged.verdict == ("fail" if judged.effect else "pass")


def wrong(judged: Judged) -> bool:
    """Say whether a verdict is wrong: the other one of the two."""
    return judged.verdict == ("pass" if judged.effect else "fail")


def rows_of(sides: Sequence[Sequence[Run]]) -> list[list[str]]:
    """Return the table: a row for each rule."""
    rows = []
    for runs in sides:
        seconds = sorted(one.wall_seconds for one in runs)
        for rule in runs[0].judged:
            judged = [each for one in runs for each in one.judged[rule]]
            good, bad = sum(map(right, judged)), sum(map(wrong, judged))
            rows.append(
                [
                    rule,
                    str(len(runs)),
                    f"{median(seconds):.0f} ({seconds[0]:.0f} to {seconds[-1]:.0f})",
                    *(f"{count} of {len(judged)}" for count in (good, bad, len(judged) - good - bad)),
                ]
            )
    return rows


def missed_goals(ratio: float, judged: Sequence[Judged]) -> list[str]:
    """Return the goals that our runs miss: as quick as the usual way, hardly ever wrong, rarely undecided."""
    missed = [f"{ratio:.2f} times pytest-benchmark's time (goal: at most 1)"] if ratio > 1 else []
    bad, good = sum(map(wrong, judged)), sum(map(right, judged))
    if bad > 0.01 * len(judged):
        missed.append(f"{bad} of {len(judged)} verdicts wrong (goal: at most 1 %)")
    if bad + good < 0.9 * len(judged):
        missed.append(f"{len(judged) - bad - good} of {len(judged)} undecided (goal: at most 10 %)")
    return missed


def make(way: str) -> Json:
    """Make one run of a way, and say what it decided."""
    one = run(way == OURS, random.SystemRandom().randrange(1 << 31))
    say(
        str(
            {
                rule: "".join("R" if right(each) else "W" if wrong(each) else "?" for each in judged)
                for rule, judged in one.judged.items()
            }
        )
    )
    judged = {rule: [asdict(each) for each in of_rule] for rule, of_rule in one.judged.items()}
    return {"wall_seconds": round(one.wall_seconds, 1), "judged": judged}


def run_of(one: Json) -> Run:
    """Return a finished run."""
    judged = {rule: [Judged(**each) for each in of_rule] for rule, of_rule in one["judged"].items()}
    return Run(one["wall_seconds"], judged)


def main() -> None:
    """Run both ways in turn until there are enough of each, print the table and say whether the goals were met."""
    given = set_options(__doc__, FILE, minutes=15.0, most=5).parse_args()
    sets = made_sets(given, [OURS, THEIRS], lambda way, number, left: make(way), say)
    sides = [[run_of(one) for one in sets.of(way)] for way in (OURS, THEIRS)]
    if not all(sides):
        raise SystemExit("there is not one run of each way yet: a larger --minutes makes more")
    print_table(("way", "runs", "wall seconds (range)", "right", "wrong", "undecided"), rows_of(sides))
    ratio = median(one.wall_seconds for one in sides[0]) / median(one.wall_seconds for one in sides[1])
    print(f"\nours / pytest-benchmark: {ratio:.2f} of the wall time, start of pytest and of all processes included")
    finish(missed_goals(ratio, [each for one in sides[0] for each in one.judged[OURS]]), None, {})


if __name__ == "__main__":
    main()
