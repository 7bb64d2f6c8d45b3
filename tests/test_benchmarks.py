"""The benchmarks' own arithmetic: what they count as wrong, what they keep, and that they leave nothing behind."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from benchmarks import (
    changes,
    crowded_hosts,
    fastest_calls,
    glances,
    ingredients,
    noise_history,
    sessions,
    shared_machine,
    shorter_launches,
    time_to_verdict,
    verdicts,
)
from benchmarks.neighbours import LOADS, NotPossible, beside, beside_load
from benchmarks.resumed import made_sets, set_options
from benchmarks.sets import Session, Sets, run_pytest
from benchmarks.verdicts import Judged, Row
from benchmarks.wrappers import NULL, PLACES, RepeatedExecutable, extra_calls_of, spec_of
from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.spec.cells import (
    Cell,
    CompileRecord,
    CompilerSpec,
    LaunchRecord,
    Outcome,
    Reading,
    Visit,
    Workload,
)
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import Suite, skip_without
from tests.golden.store_content import GATE, start_run
from tests.store.test_store import bare_launch
from tests.support.crowded_worlds import Host

# Wrappers


class Counted(Executable):
    """An executable that counts its calls."""

    def __init__(self) -> None:
        self.runs = 0

    def run(self) -> None:
        self.runs += 1


def test_a_wrapped_call_is_exactly_so_many_calls() -> None:
    inner = Counted()

    RepeatedExecutable(inner, 103).run()

    assert inner.runs == 103


def test_the_name_of_a_wrapper_says_how_many_calls_it_makes() -> None:
    assert spec_of("null", 3) == "repeated-null[calls=103]"
    assert NULL.resolve(CompilerSpec.parse(spec_of("null", 3)))["calls"] == 103
    assert [extra_calls_of(spec_of("null", extra)) for extra in (0, 1, 10)] == [0, 1, 10]
    assert extra_calls_of(spec_of("null", 0, twin=True)) == 0
    assert extra_calls_of("onnxruntime") == 0
    # Otherwise it would be a second process of the base, not another compiler.
    assert CompilerSpec.parse(spec_of("null", 0, twin=True)) != CompilerSpec.parse(spec_of("null", 0))


# What is wrong


def judged(verdict: str, *, truth: float, bound: float = 1.0, at_least: bool = True, tolerance: float = 0.05) -> Judged:
    row = {
        "metric": "speedup",
        "subject": "cell",
        "compiler": "onnxruntime",
        "bound": bound,
        "at_least": at_least,
        "tolerance": tolerance,
        "verdict": verdict,
    }
    one = verdicts.judged_by_gates({"verdicts": [row]})[0]
    return Judged(**{**{name: getattr(one, name) for name in Judged.__slots__}, "truth": math.log(truth)})


@pytest.mark.parametrize(
    ("verdict", "truth", "is_false"),
    [
        ("fail", 1.0, True),
        ("fail", 1.01, True),
        ("fail", 0.999, False),
        ("pass", 1.0, False),
        ("pass", 0.96, False),
        ("pass", 0.95, True),
        ("pass", 0.9, True),
        ("inconclusive", 1.0, False),
        ("invalid", 0.9, False),
    ],
)
def test_a_verdict_is_false_that_fails_what_holds_or_passes_what_is_beyond_the_tolerance(
    verdict: str, truth: float, is_false: bool
) -> None:
    assert judged(verdict, truth=truth).is_false is is_false
    # "at most" is its mirror, but for the edge: 1 + 5 % is not 1 / (1 - 5 %).
    if truth != 0.95:
        assert judged(verdict, truth=1 / truth, at_least=False).is_false is is_false


def test_identical_code_is_at_the_edge_of_the_bounds_that_its_suite_claims() -> None:
    at = {"at_least": [1.0, 1 / 0.95], "at_most": [1.0, 1 / 1.05]}

    edges = [
        judged("pass", truth=1.0, bound=bound, at_least=name == "at_least").is_at_edge
        for name, bounds in at.items()
        for bound in bounds
    ]

    assert edges == [False, True, False, True]
    for bounds in at.values():
        assert f"1 / {1 / bounds[1]:.2f}" in verdicts._AA


def test_points_are_compared_with_the_usual_thresholds_to_both_sides() -> None:
    points = [("cell", "onnxruntime", 0.977)]

    found = verdicts.judged_by_points(points, both_sides=True)

    assert [(one.gate, one.at_least, one.verdict, one.is_false) for one in found] == [
        (">= 0.98", True, "fail", True),
        (">= 0.98", False, "pass", False),
        (">= 0.975", True, "pass", False),
        (">= 0.975", False, "pass", False),
    ]


def test_a_known_effect_that_a_point_misses_is_a_false_pass() -> None:
    missed, found = (
        verdicts.judged_by_points([("cell", spec_of("identity", 5), value)], both_sides=False)[0]
        for value in (0.99, 1 / 1.05)
    )

    assert (missed.verdict, missed.is_false) == ("pass", True)
    assert (found.verdict, found.is_false) == ("fail", False)


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    # Hahn and Meeker's tables; the rule of three for none.
    [(0, 300, 0.0, 0.01222), (3, 300, 0.00207, 0.02894), (60, 60, 0.94038, 1.0), (5, 10, 0.18709, 0.81291)],
)
def test_shares_have_their_exact_bounds(count: int, of: int, low: float, high: float) -> None:
    assert verdicts.clopper_pearson(count, of) == pytest.approx((low, high), abs=2e-5)


def test_launches_scatter_around_their_own_comparison() -> None:
    sets = [{"speedups": {"a": [0.0, 0.02], "b": [1.0, 1.02, 1.04], "c": [7.0]}}]

    assert verdicts.scatter(sets) == pytest.approx(math.sqrt((0.0002 + 0.0008) / 3))
    assert verdicts.scatter([{"speedups": {"c": [7.0]}}]) is None


# Tables


def gate_set(row: str, **changed: Any) -> dict[str, Any]:
    """A set of one comparison: one pass at the bound, one fail at the edge."""
    rows = [
        {"bound": bound, "verdict": verdict, "compiler": "identity", "at_least": True, "launches": 3, "estimate": 1.0}
        for bound, verdict in ((1.0, "pass"), (1 / 0.95, "fail"))
    ]
    common = {"metric": "speedup", "subject": "cell", "tolerance": 0.05}
    return {
        "row": row,
        "machine": 0,
        "adapter": "identity",
        "wall_seconds": 20.0,
        "calls": 1000,
        "expected": 2,
        "launches": [{"seconds": 4.0, "invalid": ""}] * 3,
        "speedups": {"cell": [0.0, 0.01]},
        "verdicts": [{**common, **each} for each in rows],
        **changed,
    }


def test_the_table_of_identical_code_counts_wrong_undecided_and_missing_verdicts() -> None:
    good = gate_set("quiet-aa")
    bad = gate_set("quiet-aa", expected=5)
    bad["verdicts"][0]["verdict"] = "fail"
    bad["verdicts"][1]["verdict"] = "inconclusive"

    ((condition, way, count, fails, passes, undecided, launches, seconds, calls, spread),) = verdicts.identical_rows(
        [good, bad]
    )

    assert (condition, way, count) == ("quiet", "pytest-ngraph, tolerance 5 %", "2")
    assert fails.startswith("1 of 2: 50.0 %")
    assert passes.startswith("0 of 2: 0.0 %")
    assert undecided == "1 / 0 / 3"
    assert (launches, seconds, calls, spread) == ("3", "12.0", "1,000", "0.7 %")
    assert verdicts.missed_goals([good]) == []
    assert "false fails" in verdicts.missed_goals([good, bad])[0]


def times_set(**seconds: float) -> dict[str, Any]:
    """A set of pytest-benchmark: the base and two compilers that are 0 and 5 % slower."""
    specs = {"base": spec_of("identity", 0), "twin": spec_of("identity", 0, twin=True), "five": spec_of("identity", 5)}
    return {
        "row": "quiet-effects-benchmark",
        "machine": 0,
        "adapter": "identity",
        "times": [
            {
                "compiler": specs[name],
                "model": "m",
                "turn": "only",
                "seconds": 1.0,
                "calls": 10,
                **dict.fromkeys(verdicts.STATISTICS, value),
            }
            for name, value in seconds.items()
        ],
    }


def test_the_table_of_effects_compares_points_in_one_run_and_with_the_run_before() -> None:
    sets = [times_set(base=1.0, twin=1.0, five=1.05), times_set(base=2.0, twin=2.0, five=2.1)]

    rows = {row[1]: row[2:] for row in verdicts.effect_rows(sets)}

    same, before = (rows[f"pytest-benchmark median, {how}, >= 0.975"] for how in ("in one run", "with the run before"))
    # Identical: never; 5 % slower: always.
    assert (same[0], same[4]) == ("0 / 2 / 0", "2 / 0 / 0")
    # The machine has become half as fast in between.
    assert (before[0], before[4]) == ("1 / 0 / 0", "1 / 0 / 0")
    assert same[-2:] == ["1.5", "15"]


def test_a_group_of_six_gates_is_held_against_its_goal() -> None:
    slow = gate_set("quiet-small", launches=[{"seconds": 11.0, "invalid": ""}] * 3)

    assert verdicts.goal_rows([slow])[0][4:6] == ["33 (33 to 33)", "30"]
    assert verdicts.missed_goals([slow]) == ["small: six gates in 33 s (goal: at most 30 s)"]


# Sets on disk


def test_a_finished_set_is_kept_and_an_interrupted_write_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sets.json"
    Sets(file).add({"row": "one", "wall_seconds": 1.0})
    before = file.read_text()

    def broken(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", broken)
        with pytest.raises(KeyboardInterrupt):
            Sets(file).add({"row": "two", "wall_seconds": 1.0})

    assert file.read_text() == before
    again = Sets(file)
    again.add({"row": "two", "wall_seconds": 2.0})
    assert [one["row"] for one in Sets(file).all] == ["one", "two"]
    # One machine serves both, and it is not called by its name.
    content = json.loads(file.read_text())
    assert len(content["machines"]) == 1
    assert "node" not in content["machines"][0]
    assert [one["wall_seconds"] for one in Sets(file).of("two")] == [2.0]


def test_the_row_with_the_fewest_sets_is_next_unless_time_is_short(tmp_path: Path) -> None:
    sets = Sets(tmp_path / "sets.json")
    sets.add({"row": "quiet-aa", "wall_seconds": 10.0})
    sets.add({"row": "busy-aa", "wall_seconds": 500.0})
    sets.add({"row": "quiet-aa", "wall_seconds": 10.0})
    rows = [Row("quiet", "aa"), Row("busy", "aa")]

    assert verdicts.next_row(rows, sets, Session(60)) == rows[1]
    assert verdicts.next_row(rows, sets, Session(2)) == rows[0]
    assert verdicts.next_row(rows, sets, Session(0.1)) is None
    assert verdicts.next_row([Row("bursty", "aa"), *rows], sets, Session(0.1)) == Row("bursty", "aa")


# Neighbours and children


def child_processes() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def test_a_neighbour_is_busy_and_ends_with_the_condition() -> None:
    before = child_processes()

    with beside("bursty"):
        (neighbour,) = child_processes() - before
        used = psutil.Process(neighbour).cpu_times
        deadline = time.monotonic() + 30
        while used().user < 0.1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert used().user >= 0.1

    assert child_processes() == before


@pytest.mark.measures
@pytest.mark.parametrize("load", LOADS)
def test_a_load_wants_the_share_of_a_cpu_that_it_says(load: str) -> None:
    before = child_processes()
    with beside_load(load, 0.25, everywhere=False):
        (neighbour,) = child_processes() - before
        used = psutil.Process(neighbour).cpu_times
        # It starts as any Python does.
        time.sleep(1.0)
        began, began_at = sum(used()[:2]), time.monotonic()
        time.sleep(2.0)
        share = (sum(used()[:2]) - began) / (time.monotonic() - began_at)
    assert 0.1 < share < 0.4
    assert child_processes() == before


@pytest.mark.parametrize(
    ("at_least", "factor", "verdict", "false"),
    [
        (True, 1.0, "fail", True),
        (True, 1.0, "pass", False),
        (True, 1 / 0.95, "pass", True),
        (True, 1 / 0.95, "fail", False),
        (True, 0.95, "fail", True),
        (False, 1.0, "fail", True),
        (False, 1 / 1.05, "pass", True),
        (False, 1.05, "fail", True),
        (False, 1.05, "pass", False),
        (False, 1.0, "inconclusive", False),
    ],
)
def test_a_verdict_beside_others_is_false_by_what_is_known(
    at_least: bool, factor: float, verdict: str, false: bool
) -> None:
    row = {"compiler": "null[fixed_us=500]", "bound": 4.0 * factor, "at_least": at_least, "verdict": verdict}
    assert shared_machine.is_false(row, {"null[fixed_us=500]": 4.0}) is false


def test_every_row_beside_others_has_a_name_of_its_own() -> None:
    names = [row.name for row in shared_machine.ROWS]
    assert len(set(names)) == len(names)


def test_a_quota_is_set_for_those_that_join_it_and_removed() -> None:
    try:
        with beside("quota") as group:
            assert group is not None
            limits = [file for file in (group / "cpu.max", group / "cpu.cfs_quota_us") if file.exists()]
            assert int(limits[0].read_text().split()[0]) > 0
    except NotPossible as reason:
        pytest.skip(str(reason))

    assert not group.exists()


_SCRIPT = """
import sys
from pathlib import Path
from benchmarks.neighbours import beside
from benchmarks.sets import end_well, run_pytest

end_well()
with beside("bursty"):
    run_pytest(Path(sys.argv[1]), [], timeout_seconds=600)
"""


@pytest.mark.real
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_script_that_is_killed_leaves_no_process_behind(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "conftest.py").write_text(verdicts.CONFTEST.format(group="", places=PLACES))
    long = "from pathlib import Path\ndef test_long():\n    Path('runs').touch(); __import__('time').sleep(600)\n"
    (tmp_path / "test_long.py").write_text(long)
    home = Path(verdicts.__file__).resolve().parents[1]
    script = subprocess.Popen([sys.executable, "-c", _SCRIPT, str(tmp_path)], cwd=home)
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "runs").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        children = psutil.Process(script.pid).children(recursive=True)
        assert len(children) == 2
        script.send_signal(how)
        script.wait(60)
        _, alive = psutil.wait_procs(children, timeout=60)
        assert alive == []
    finally:
        if script.poll() is None:
            script.kill()
            script.wait()


@pytest.mark.real
def test_a_set_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text("def test_long():\n    __import__('time').sleep(600)\n")
    before = child_processes()

    status, seconds, _ = run_pytest(tmp_path, [], timeout_seconds=0.5)

    assert status == 124
    assert seconds < 300
    assert child_processes() == before


# Generated suites


def collected(suite: verdicts.Suite, folder: Path) -> list[str]:
    """Collect a generated suite as a set would."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(verdicts.CONFTEST.format(group="", places=PLACES))
    (folder / "test_set.py").write_text(suite.text)
    status, _, output = run_pytest(folder, ["--collect-only", *suite.options], timeout_seconds=120)
    assert status == 0, output
    return [line for line in output.splitlines() if "::" in line]


@pytest.mark.real
@pytest.mark.parametrize(
    ("row", "items"),
    [
        (Row("quiet", "aa"), 2),
        (Row("quiet", "effects"), 12),
        (Row("quiet", "effects", "benchmark"), 3 * 7 * 2),
        (Row("quiet", "small"), 2),
    ],
    ids=lambda value: value.name if isinstance(value, Row) else "",
)
def test_generated_suites_have_the_items_that_their_verdicts_need(row: Row, items: int, tmp_path: Path) -> None:
    assert len(collected(verdicts.suite_for(row, "identity"), tmp_path)) == items


@pytest.mark.measures
def test_a_store_gives_verdicts_launches_and_the_value_of_each_launch(suite: Suite) -> None:
    suite.write(
        """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_claim(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.5)
"""
    )
    suite.run()

    found = verdicts.read_store(suite.store)

    (row,) = found["verdicts"]
    assert (row["compiler"], row["bound"], row["at_least"], row["launches"]) == ("null[sample_us=20]", 1.5, True, 1)
    # 250 us against 70 us.
    (values,) = found["speedups"].values()
    assert [math.exp(value) for value in values] == [pytest.approx(3.57, rel=0.2)]
    assert row["estimate"] == pytest.approx(math.exp(values[0]), rel=1e-3)
    assert len(found["launches"]) == 1
    assert found["calls"] > 100
    assert verdicts.launch_seconds(found) > 0
    json.dumps(found, allow_nan=False)


# Ingredients


def launch(row: str, first: list[float], second: list[float], *, unclean: float = 0.0) -> dict[str, Any]:
    """A launch of one cell in two processes; ``unclean`` is what the dropped batches of the second would add."""
    label = "local:identity net batch1"
    visits = {
        label: {str(block): [value, value, 0.0] for block, value in enumerate(first)},
        f"{label} (second process)": {str(block): [value, value + unclean, 0.0] for block, value in enumerate(second)},
    }
    return {"row": row, "seconds": 1.0, "visits": visits, "failed": {}}


def test_the_clean_rule_is_taken_off_the_same_launches() -> None:
    launches = [launch("quiet: all ingredients", [0.0] * 8, [0.0] * 8, unclean=0.05)] * 2

    rows = {row[1]: row for row in ingredients.rows_of(launches) if row[2] == "identity"}

    assert rows["all ingredients"][6] == "0.0 %"
    assert rows[ingredients.UNCLEAN][6] == "5.0 %"
    # Of the two directions of every ratio one is under 0.98.
    assert rows["all ingredients"][8].startswith("0 of 4")
    assert rows[ingredients.UNCLEAN][8].startswith("2 of 4")


def test_visits_scatter_within_their_launch_and_blocks_without_both_sides_do_not_count() -> None:
    one = launch("quiet: all ingredients", [0.0, 0.1, 0.2], [0.5, 0.5, 0.5])
    first, second = ingredients.pairs_of(one)[0]
    one["visits"][second]["1"][0] = None

    assert ingredients.contrasts(one, first, second, clean=True) == pytest.approx([-0.5, -0.3])
    assert len(ingredients.contrasts(one, first, second, clean=False)) == 3
    # One of six visits.
    assert ingredients.dropped([one], clean=True, compiler="identity") == "17 %"
    # 0.1 in the first process with two degrees of freedom, 0 in the second with one.
    assert ingredients.visit_scatter([one], clean=True, compiler="identity") == pytest.approx(math.sqrt(0.02 / 3))


def test_where_the_noise_is_is_counted_and_the_page_says_what_the_kept_launches_say() -> None:
    steady = [launch("quiet: all ingredients", [value] * 4, [0.0] * 4) for value in (0.0, 0.1, 0.2)]
    assert ingredients.noise_sources(steady) == [["quiet", "all ingredients", "1", "0", "0"]]
    restless = [launch("quiet: all ingredients", [0.0, 0.1, -0.1, 0.0], [0.0] * 4) for _ in range(3)]
    assert ingredients.noise_sources(restless) == [["quiet", "all ingredients", "0", "1", "0"]]
    # A launch measured cell by cell has one block, and says nothing of what is within it.
    assert ingredients.noise_sources([launch("quiet: cell by cell", [0.1], [0.0])] * 3) == []

    kept = ingredients.noise_sources(json.loads(ingredients.FILE.read_text())["sets"])
    assert ["quiet", "all ingredients", "3", "3", "0"] in kept
    page = " ".join((Path(__file__).parents[1] / "docs" / "measuring.md").read_text(encoding="utf-8").split())
    said = re.search(r"in (\d+) of (\d+) comparisons of equal code on the .*?, and in (\d+) of (\d+) with all", page)
    assert said is not None
    between, total = (sum(int(count) for row in kept for count in row[2:][:most]) for most in (1, 3))
    assert [int(number) for number in said.groups()] == [3, 6, between, total]


def test_variants_differ_in_one_ingredient_and_take_the_same_calls() -> None:
    gate = ingredients.VARIANTS["all ingredients"].to_json()

    def changed(variant: str) -> set[str]:
        other = ingredients.VARIANTS[variant].to_json()
        return {name for name, value in gate.items() if other[name] != value}

    assert changed("default allocator") == {"allocator"}
    assert changed("neighbours not parked") == {"parked"}
    one = ingredients.VARIANTS["cell by cell"]
    assert one.order == "fixed"
    assert one.blocks * one.visit_seconds == pytest.approx(gate["blocks"] * gate["visit_seconds"])


def test_an_ingredient_that_does_not_help_is_named() -> None:
    sets = [
        launch("quiet: all ingredients", [0.03] * 4, [0.0] * 4),
        launch("quiet: default allocator", [0.01] * 4, [0.0] * 4),
        launch("quiet: cell by cell", [0.1], [0.0]),
    ]

    assert ingredients.missed_goals(sets) == ["quiet: default allocator scatters 1.0 %, all ingredients 3.0 %"]


# Time to verdict


def decided_six(*verdicts_of: str) -> list[Judged]:
    """Return six verdicts, those of identical code first."""
    effects = (0, 0, 0, 5, 5, 5)
    return [
        Judged("c", "g", effect, said, 0.0, 0.0, 0.0, True) for effect, said in zip(effects, verdicts_of, strict=True)
    ]


def test_six_comparisons_are_right_wrong_or_undecided() -> None:
    said = decided_six("pass", "fail", "invalid", "fail", "pass", "inconclusive")

    run = time_to_verdict.Run(30.0, {"ours": said})

    assert time_to_verdict.rows_of([[run, run]]) == [["ours", "2", "30 (30 to 30)", "4 of 12", "4 of 12", "4 of 12"]]


def test_a_quick_way_that_decides_nothing_or_errs_misses_its_goal() -> None:
    good = decided_six(*["pass"] * 3, *["fail"] * 3)

    assert time_to_verdict.missed_goals(0.9, good) == []
    (slow,) = time_to_verdict.missed_goals(1.1, good)
    assert slow.startswith("1.10 times")
    (silent,) = time_to_verdict.missed_goals(0.1, decided_six(*["invalid"] * 6))
    assert silent == "6 of 6 undecided (goal: at most 10 %)"
    (wrong,) = time_to_verdict.missed_goals(0.1, decided_six(*["fail"] * 6))
    assert wrong == "3 of 6 verdicts wrong (goal: at most 1 %)"


def test_points_are_judged_by_each_statistic_and_threshold() -> None:
    base, twin, slower = spec_of("onnxruntime", 0), spec_of("onnxruntime", 0, twin=True), spec_of("onnxruntime", 5)
    seconds = {base: 1.0, twin: 1.01, slower: 1.05}
    times = [
        {"compiler": name, "model": "m", "turn": "only", **dict.fromkeys(verdicts.STATISTICS, value)}
        for name, value in seconds.items()
    ]

    found = time_to_verdict.by_times({"adapter": "onnxruntime", "times": times})

    assert len(found) == len(verdicts.STATISTICS) * len(verdicts.THRESHOLDS)
    assert all([each.verdict for each in judged] == ["pass", "fail"] for judged in found.values())
    assert all(map(time_to_verdict.right, found["pytest-benchmark min, >= 0.98"]))


def test_launches_of_two_checkouts_are_compared_in_turn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from benchmarks import launch_seconds

    asked: list[str] = []

    def answer(checkout: Path, folder: str, model: str, length: str, seed: str) -> dict[str, object]:
        asked.append(f"{checkout.name} {length} {seed}")
        factor = 2.0 if checkout == tmp_path else 1.0
        phases = {"start": 3.0} if factor == 1.0 else {}
        return {"seconds": 10 * factor, "cpu_seconds": 8 * factor, "calls_ns": {"a": 5.0, "b": 7.0}, "phases": phases}

    (tmp_path / "pytest_ngraph").mkdir()
    monkeypatch.setattr(launch_seconds, "asked", answer)
    words = ["launch_seconds", str(tmp_path), "--pairs", "2", "--fixed", "--model", "resnet18 at 224 px"]
    monkeypatch.setattr("sys.argv", words)

    launch_seconds.main()

    ours, theirs = launch_seconds.HOME.name, tmp_path.name
    built = [f"{name} fixed {seed}" for name in (ours, theirs) for seed in ("build", "0")]
    assert asked == [*built, f"{ours} fixed 1", f"{theirs} fixed 1", f"{theirs} fixed 2", f"{ours} fixed 2"]
    output = capsys.readouterr().out
    assert "| resnet18 at 224 px | seconds of a launch | 10.0 | 20.0 | 0.50 [0.50, 0.50]" in output
    assert "| resnet18 at 224 px | time of a call, over cells | - | - | 1.000 [1.000, 1.000]" in output
    assert "| start | 3.00 |" in output


def test_sessions_of_equal_code_miss_the_goal_where_more_than_one_comparison_in_a_hundred_fails() -> None:
    def of(verdict: str, count: int) -> list[sessions.Row]:
        return [sessions.Row(n, "", "cell", "latency", 0.9, 0.8, 1.0, verdict) for n in range(count)]

    one, _ = sessions.judged([*of("pass", 28), *of("fail", 1)])
    assert one == [("latency", 29, 28, 0, 1, 0, 0, "0.900")]
    assert sessions.judged([*of("pass", 28), *of("fail", 1)])[1] == []
    assert sessions.judged([*of("pass", 27), *of("fail", 2)])[1] == [
        "2 of 29 comparisons of latency failed (goal: 1 %)"
    ]
    assert sessions.judged([]) == ([], [])


def kept_in(tmp_path: Path, *words: str) -> argparse.Namespace:
    return set_options("", tmp_path / "sets.json", minutes=9.0, most=2).parse_args(list(words))


def test_rows_take_turns_like_a_b_b_a_and_go_on_from_what_is_finished(tmp_path: Path) -> None:
    made: list[tuple[str, int]] = []

    def make(row: str, number: int, seconds_left: float) -> dict[str, float] | None:
        made.append((row, number))
        return {"wall_seconds": 1.0} if len(made) != 3 else None

    first = made_sets(kept_in(tmp_path), ["a", "b"], make, print)
    assert [one["row"] for one in first.all] == ["a", "b"]
    made_sets(kept_in(tmp_path), ["a", "b"], make, print)

    # What was not finished is made again; what has enough is not.
    assert made == [("a", 0), ("b", 0), ("b", 1), ("b", 1), ("a", 1)]
    assert made_sets(kept_in(tmp_path, "--row", "b", "--most", "9", "--report"), ["a", "b"], make, print).of("b")
    assert len(made) == 5
    with pytest.raises(SystemExit, match=r"--row c: no such row \(known: a, b\)"):
        made_sets(kept_in(tmp_path, "--row", "c"), ["a", "b"], make, print)


def test_a_set_that_would_end_too_late_is_not_begun(tmp_path: Path) -> None:
    begun: list[str] = []

    def make(row: str, number: int, seconds_left: float) -> dict[str, float]:
        begun.append(row)
        return {"wall_seconds": 3600.0 if row == "long" else 1.0}

    made_sets(kept_in(tmp_path), ["long", "short"], make, print)

    assert begun == ["long", "short", "short"]


def test_runs_of_changes_and_ways_are_read_back_as_they_were_made() -> None:
    row = changes.Row(changes.SLOWER, 7, "fail", 0.9, 0.8, 1.0, 6, 20.0)
    kept = {name: getattr(row, name) for name in changes.KEPT}
    assert changes.rows_of([{"row": row.change, "wall_seconds": 20.0, "machine": 0, **kept}]) == [row]
    assert changes.table([row]) == [[changes.SLOWER, 1, "fail", 1, 0, "0.900 to 0.900", "6.0", "20"]]
    nothing = dataclasses.replace(row, said="invalid", ratio=None, low=None, high=None)
    assert changes.table([nothing]) == [[changes.SLOWER, 1, "fail", 0, 1, "-", "6.0", "20"]]

    said = {"ours": decided_six(*["pass"] * 6)}
    kept_run = {"wall_seconds": 30.0, "judged": {"ours": [dataclasses.asdict(each) for each in said["ours"]]}}
    assert time_to_verdict.run_of(json.loads(json.dumps(kept_run))) == time_to_verdict.Run(30.0, said)


def test_a_change_that_is_passed_over_one_that_is_none_and_a_launch_for_nothing_are_missed_goals() -> None:
    def row(change: str, said: str, launches: int = 3) -> changes.Row:
        return changes.Row(change, 7, said, 1.0, 0.9, 1.1, launches, 20.0)

    right = [row(changes.SLOWER, "fail"), row(changes.EQUAL, "pass"), row(changes.ELSEWHERE, "unchanged", 0)]
    undecided = [row(changes.SLOWER, "inconclusive"), row(changes.EQUAL, "invalid")]
    assert changes.judged([*10 * right, *undecided]) == []
    assert changes.judged([*right, *undecided]) == [
        "1 of 2 undecided: adds a layer",
        "1 of 2 undecided: same code, other text",
    ]
    wrong = [row(changes.SLOWER, "pass"), row(changes.EQUAL, "fail"), row(changes.ELSEWHERE, "pass")]
    assert len(changes.judged(wrong)) == 4
    assert changes.judged([row(changes.ELSEWHERE, "unchanged", 1)]) == [
        "1 launches in run 7, where nothing had changed"
    ]
    assert changes.judged([row(changes.SLOWER, "unchanged", 0)]) == ["run 7, which adds a layer: unchanged"]


def history_set(*values: float) -> dict[str, Any]:
    """Return a set of one comparison of identical code whose launches had these ln speed-ups."""
    label = "local:onnxruntime benchmarks.networks:attention batch1 (second process)"
    return {"row": "quiet-aa", "adapter": "onnxruntime", "speedups": {label: list(values)}}


def test_launches_are_judged_by_those_of_other_sets_too_and_what_is_wrong_is_counted() -> None:
    # Three launches of a noisy set decide nothing by themselves; those of one that is 6 % off pass at the edge.
    calm, noisy, off = (-0.004, 0.0, 0.004), (-0.007, 0.0, 0.007), (0.058, 0.06, 0.062)
    known = list(noise_history.comparisons([history_set(*values) for values in (*[calm] * 4, noisy, off)]))
    assert [one.known.runs for one in known if one.known] == [5] * 6
    alone, helped = (noise_history.count(known[4:5], "at the bound", by_history=way) for way in (False, True))
    assert (alone.decided, helped.decided) == (0, 2)
    at_edge = noise_history.count(known[5:], "at the edge", by_history=False)
    assert (at_edge.gates, at_edge.decided, at_edge.wrong) == (2, 2, 1)
    assert noise_history.count(known[5:], "at the bound", by_history=False).wrong == 1


def test_two_other_sets_say_nothing_of_the_noise_and_what_is_slower_in_truth_is_taken_off() -> None:
    few = noise_history.comparisons([history_set(0.0, 0.01, 0.0)] * 3)
    assert [one.known for one in few] == [None] * 3
    slower = "local:repeated-onnxruntime[calls=105] benchmarks.networks:tiny_gate batch1"
    assert noise_history.launch_values(slower, [-math.log(1.05)])[0].value == pytest.approx(0)


@pytest.mark.real
def test_a_fault_of_an_int8_file_is_where_it_says() -> None:
    """One of a quantiser is not undone by the dequantiser that reads the same scale."""
    skip_without("onnx", "onnxruntime", "torch")
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    from benchmarks.int8_faults import FAULTS, Graph

    values = {"scale": np.float32(0.1), "zero": np.uint8(3), "weight": np.arange(6, dtype=np.int8).reshape(3, 2)}
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        helper.make_node("DequantizeLinear", ["weight", "scale"], ["w"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")

    def read(fault: str) -> list[list[object]]:
        graph = Graph(helper.make_model(helper.make_graph(nodes, "g", [x], [y], stored)))
        FAULTS[fault](graph)
        kept = {each.name: numpy_helper.to_array(each).tolist() for each in graph.model.graph.initializer}
        return [[kept.get(name) for name in node.input] for node in graph.model.graph.node]

    scale, weight = pytest.approx(0.1), [[0, 1], [2, 3], [4, 5]]
    as_it_is = [[None, scale, 3], [None, scale, 3], [weight, scale]]
    assert read("one scale doubled") == [[None, pytest.approx(0.2), 3], *as_it_is[1:]]
    assert read("zero points") == [[None, scale, 67], *as_it_is[1:]]
    assert read("one layer turned") == [*as_it_is[:2], [weight[::-1], scale]]
    wide = pytest.approx(8 / 127)
    assert read("one range for all")[:2] == [[None, wide, 3], [None, wide, 3]]


# What glances leave


QUIET, SLOWED, APART = Reading(100, (300,)), Reading(150, (300,)), Reading(100, (600,))
WORKLOAD = Workload(parse_model("block:conv"))
CELLS = [Cell("local", CompilerSpec("null"), WORKLOAD), Cell("local", CompilerSpec("identity"), WORKLOAD)]


def glanced(batches: tuple[int, ...], after: Reading | None, **arrays: Any) -> Visit:
    return Visit(1, batches, around=() if after is None else ((QUIET, after),), **arrays)


def test_visits_are_read_with_their_glances_those_without_or_without_a_time_are_not(tmp_path: Path) -> None:
    waited = glanced((1000,) * 9, QUIET, run_delay_ns=(900,) * 9)
    with Store.open(tmp_path / "results.sqlite") as store:
        launch = bare_launch(store, start_run(store))
        store.add_prepared(launch, CELLS[0], "evidence", CompileRecord(Outcome.OK))
        for block, visit in enumerate([glanced((1000,) * 9, SLOWED), glanced((1000,) * 9, None), waited]):
            store.add_visit(launch, CELLS[0], block, 0, visit)
        store.finish_launch(launch)

    (found,) = glances.launches_of(tmp_path / "results.sqlite")
    assert {place: visit.around for place, visit in found.items()} == {(CELLS[0], 0): ((QUIET, SLOWED),)}


def test_a_rule_leaves_out_the_visits_that_its_half_of_a_glance_shows() -> None:
    odd = {1: SLOWED, 2: APART}
    launch = {(cell, block): glanced((1000,) * 9, QUIET) for cell in CELLS for block in range(8)}
    launch |= {(CELLS[0], block): glanced((2000,) * 9, after) for block, after in odd.items()}
    left = {rule: glances.left_by(rule, [launch]) for rule in glances.RULES}
    assert [round(16 * one.share) for one in left.values()] == [16, 15, 15, 14]
    assert [round(16 * one.share * one.slow) for one in left.values()] == [2, 1, 1, 0]
    assert left["by both"].scatter == 0 < left["all visits"].scatter


# What launches would say with less in them


def halves(number: int) -> LaunchRecord:
    """Return a launch in whose every second one the other cell is a tenth slower for the first half of its visits."""
    one, other = CELLS
    first = 2_200_000 if number % 2 else 2_000_000
    walls = {one: (1_000_000,) * 4, other: (first,) * 2 + (2_000_000,) * 2}
    visits = {(cell, block): Visit(1, walls[cell]) for cell in CELLS for block in range(8)}
    unsteady = frozenset({(one, 0)}) if number == 3 else frozenset()
    record = CompileRecord(Outcome.OK)
    return LaunchRecord(number, number, "gate", {one: record, other: record}, visits, unsteady=unsteady)


def test_launches_with_less_in_them_are_held_against_the_whole_ones_pair_by_pair() -> None:
    launches, pair = [halves(number) for number in range(6)], (CELLS[0], CELLS[1])
    value = functools.partial(shorter_launches.value_of, pair=pair)
    assert value(launches[1], part=(0, 0.5), blocks=None) == pytest.approx(-math.log(2.2))
    assert value(launches[1], part=(0.5, 1), blocks=None) == pytest.approx(-math.log(2))
    # One of its blocks was not steady, so it says nothing of the first of eight.
    assert value(launches[3], part=(0, 1), blocks=4) is None
    assert value(launches[3], part=(0, 1), blocks=None) is not None
    assert shorter_launches.steady_blocks(launches[3], pair) == [*range(1, 8)]

    found = [(launches, pair)]
    half, second = (shorter_launches.row_of("", found, part, None) for part in ((0, 0.5), (0.5, 1)))
    assert half.ratio == pytest.approx(2, rel=0.1)
    assert half.scatter == pytest.approx(math.log(1.1) * math.sqrt(0.3))
    # What does not scatter at all is no pair.
    assert second.pairs == 0


# What launches would say by the fastest of their calls


def crowded(number: int, slow: float) -> LaunchRecord:
    """Return a launch in which another guest slows both cells down, each in most of its visits."""
    walls = [round(1_000_000 * (1 + 0.001 * place)) for place in range(20)]
    visits = {}
    for side, cell in enumerate(CELLS):
        for block in range(8):
            beside = 1.0 if (block + 3 * side + number) % 4 == 0 else 1.5 + 0.1 * ((block * (side + 2) + number) % 3)
            taken = tuple(round(wall * beside * (1 + slow * side)) for wall in walls)
            visits[cell, block] = Visit(1, taken)
    unsteady = frozenset(place for place, visit in visits.items() if visit.wall_ns[0] > 1_200_000)
    record = CompileRecord(Outcome.OK)
    return LaunchRecord(number, number, "gate", dict.fromkeys(CELLS, record), visits, unsteady=unsteady)


def test_the_fastest_calls_of_crowded_launches_agree_where_their_medians_do_not() -> None:
    launches, pair = [crowded(number, slow=0.05) for number in range(6)], (CELLS[0], CELLS[1])
    found = {rule: fastest_calls.row_of(rule, [(launches, pair)]) for rule in fastest_calls.RULES}
    tenth, blocks = found["the fastest tenth"], found["blocks, disturbed ones too"]
    assert tenth.scatter < 0.002 < 0.01 < blocks.scatter
    for record in launches:
        value = fastest_calls.RULES["the fastest tenth"](record, pair)
        assert value == pytest.approx(-math.log(1.05), abs=0.005)
    # Which blocks are steady for one is none for the other, and nobody kept for how long it was left alone.
    assert found[fastest_calls.COUNTS].values == 0
    assert math.isnan(found[fastest_calls.COUNTS].scatter)


def test_what_counts_of_crowded_launches_is_as_good_where_they_were_left_alone_for_a_quarter() -> None:
    launches, pair = [dataclasses.replace(crowded(number, slow=0.05), alone=0.25) for number in range(6)], CELLS[:2]
    row = fastest_calls.row_of(fastest_calls.COUNTS, [(launches, (pair[0], pair[1]))])
    assert row.values == 6
    assert row.scatter < 0.002
    # One visit in four is of a machine that was left alone: half of these and more are among those that are slower.
    assert row.seen["10 % in every second batch"] < 0.05
    assert row.seen["5 % in all calls"] == pytest.approx(0.05, abs=1e-6)
    for record in launches:
        value = fastest_calls.RULES[fastest_calls.COUNTS](record, (pair[0], pair[1]))
        assert value == pytest.approx(-math.log(1.05), abs=0.005)


def test_what_slows_half_of_the_calls_is_hardly_seen_in_the_fastest_of_them() -> None:
    launches, pair = [crowded(number, slow=0.0) for number in range(6)], (CELLS[0], CELLS[1])
    for rule in fastest_calls.RULES:
        row = fastest_calls.row_of(rule, [(launches, pair)])
        if row.values:
            assert row.seen["5 % in all calls"] == pytest.approx(0.05, abs=1e-6)
    fastest = fastest_calls.row_of("the fastest", [(launches, pair)])
    quarter = fastest_calls.row_of("the fastest quarter", [(launches, pair)])
    assert fastest.seen["10 % in every second batch"] < 0.005 < quarter.seen["10 % in every second batch"]


def test_launches_are_taken_apart_by_how_long_the_machine_was_left_alone(tmp_path: Path) -> None:
    path, pair = tmp_path / "results.sqlite", (CELLS[0], CELLS[1])
    # A guest comes after the first glances of the second launch, and is there throughout in the third.
    read = [[100, 110, 105, 100], [100, 150, 160, 170], [160] * 4]
    with Store.open(path) as store:
        run = start_run(store)
        for seed, arithmetic in enumerate(read):
            launch = store.start_launch(run, group="g", number=1, seed=seed, protocol=GATE, order=[], environment={})
            store.add_prepared(launch, CELLS[0], "evidence", CompileRecord(Outcome.OK))
            glanced_at = [Reading(nanoseconds, (50,)) for nanoseconds in arithmetic]
            for block, (before, after) in enumerate(zip(glanced_at[::2], glanced_at[1::2], strict=True)):
                store.add_visit(launch, CELLS[0], block, 0, Visit(1, (1000,), around=((before, after),)))
            store.finish_launch(launch)
    assert fastest_calls.alone_shares(path) == {0: 1.0, 1: 0.25, 2: 0.0}

    launches = [dataclasses.replace(crowded(number, slow=0.0), seed=number) for number in range(4)]
    split = fastest_calls.split([(launches, pair)], fastest_calls.alone_shares(path))
    # Of one without glances nobody knows.
    assert [[one.seed for one in records] for ((records, _),) in split.values()] == [[0, 1], [2, 3]]


# A host whose other guest comes and goes


def test_medians_let_pass_what_minds_another_guest_less_and_what_was_left_alone_does_not() -> None:
    host, gates = Host(0.1, (0.11, 0.45)), 60
    medians, alone = (
        crowded_hosts.found_by(crowded_hosts.RULES[name], host, gates)
        for name in ("medians of all visits", crowded_hosts.TRIED)
    )
    assert medians.error > 0.1
    assert medians.judged[-1.0].passes > 0.9 * gates
    assert abs(alone.error) < 0.005
    assert alone.judged[-1.0].fails > 0.8 * gates
    assert crowded_hosts.missed("", 0.1, "", alone) == []
    (false_passes,) = crowded_hosts.missed("unlike", 0.1, "medians", medians)
    assert false_passes.startswith("medians, unlike, 100 ms: ")
    assert false_passes.endswith("% false passes")


def test_a_low_quantile_is_of_a_guest_that_is_hardly_ever_absent_unless_glances_say_so() -> None:
    host = Host(3.0, (0.45, 0.45))
    rng = np.random.default_rng(1)
    (some, made), (every, all_made) = (
        host.values(crowded_hosts.RULES[name], rng, 2000)
        for name in (crowded_hosts.TRIED, "the fastest tenth, of all launches")
    )
    assert some.std() < every.std() / 2
    assert made > 1.2 > all_made == 1.0


def test_states_last_as_long_as_is_said() -> None:
    """The share of visits that end in the state that they began in, where the guest is there half of the time."""
    host, absent = Host(0.1, (0.4, 0.4)), np.full(4000, 0.5)
    ends = host._states(np.random.default_rng(2), absent, 16, 2, apart=29)
    stays = 0.5 + 0.5 * math.exp(-4 / 0.1 * 29 * 0.002)
    assert (ends[..., 0] == ends[..., 1]).mean() == pytest.approx(stays, abs=0.01)
    steps = host._states(np.random.default_rng(3), absent, 16, 30)
    assert (steps[..., 0] == steps[..., -1]).mean() == pytest.approx(stays, abs=0.01)
