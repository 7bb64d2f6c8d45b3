"""Reversals: pairs that change places are found, noise is not, and the summary says how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtr

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.errors import SpecError
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.html.charts import charts_of
from pytest_ngraph.report.html.content import Content, read_content, reversal_rows
from pytest_ngraph.report.html.page import page
from pytest_ngraph.report.results.cells import CellReport, cell_reports
from pytest_ngraph.report.results.reversals import (
    FALSE_SHARE,
    LEVEL,
    Contest,
    Reversal,
    contests_of,
    find_reversals,
    reversal_lines,
)
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import PROTOCOLS, CompilerSpec, LaunchRecord, Workload
from pytest_ngraph.stats import LaunchValue, discoveries, interval, looks_for, p_value, spending
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model
from tests.claims.test_claims import Laboratory, Made
from tests.conftest import Suite, skip_without
from tests.support.measuring import cell
from tests.support.pretended import CONFTEST, TWICE, Pretended
from tests.support.ranking import launches, models
from tests.support.simulator import Array, Flags, World, exceeds, launch_values, ln_times


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


# Which findings to believe


def test_discoveries_worked_by_hand() -> None:
    # Limits 0.0125, 0.025, 0.0375, 0.05: the third holds and takes the second with it, which alone would not.
    assert discoveries([0.03, 0.001, 0.9, 0.026], 0.05) == [0, 1, 3]
    assert discoveries([0.04, 0.001, 0.9, 0.026], 0.05) == [1]
    assert discoveries([0.03, 0.001, 0.9, 0.026], 0.05, most=0.01) == [1]
    assert discoveries([0.001, 0.002, 0.003], 0.05) == [0, 1, 2]
    assert discoveries([0.5, 0.2], 0.05) == discoveries([], 0.05) == []
    with pytest.raises(SpecError, match=r"discoveries: rate 0 \(expected 0 < rate < 1\)"):
        discoveries([0.1], 0)


@pytest.mark.parametrize("level", [0.3, 0.01, 1e-5])
def test_a_p_value_is_the_level_at_which_the_interval_reaches_nought(level: float) -> None:
    some = [LaunchValue(value, 0.0, 8) for value in (0.1, 0.13, 0.09, 0.12)]
    reach = interval(some, level / 2).half_width
    at = [replace(one, value=one.value - interval(some, 0.1).theta + reach) for one in some]
    assert p_value(interval(at, 0.1)) == pytest.approx(level)
    assert p_value(interval([replace(one, value=-one.value) for one in at], 0.1)) == pytest.approx(level)
    assert p_value(interval(some[:1], 0.1)) == 1.0
    assert p_value(interval([some[0]] * 3, 0.1)) == 0.0
    assert p_value(interval([LaunchValue(0.0, 0.0, 8)] * 3, 0.1)) == 1.0


# From launches


def found(lab: Laboratory) -> list[Reversal]:
    """Return the reversals of the last run in the store."""
    with Store.open(lab.store, read_only=True) as store:
        return find_reversals(cell_reports(store, store.runs()[-1].id))


def measured(lab: Laboratory, script: Sequence[Made], count: int, **how: object) -> list[Reversal]:
    """Measure the first look of so many models, and return the reversals that are found."""
    lab.script = list(script)
    models(lab, count, **how).ensure()  # type: ignore[arg-type]
    return found(lab)


def test_the_pairs_that_change_places_are_found_with_both_ratios(lab: Laboratory) -> None:
    reversals = measured(lab, launches((100.0, 50.0, 25.0), (400.0, 100.0, 200.0), 3), 3, batch=2)

    (one,) = reversals
    assert (one.device, one.compiler, one.baseline, one.batch, one.axes) == (
        "local", "null[sample_us=5]", "null", 2, ()
    )  # fmt: skip
    assert (one.first, one.second) == ("timm:b", "timm:c")
    assert one.baseline_ratio.value == pytest.approx(2.0)
    assert one.compiled_ratio.value == pytest.approx(0.5)
    assert (one.baseline_ratio.metric, one.baseline_ratio.launches) == ("throughput_ratio", 3)


def test_the_faster_one_with_the_baseline_comes_first_and_the_clearest_pair_before_others(lab: Laboratory) -> None:
    reversals = measured(lab, launches((25.0, 50.0, 90.0), (400.0, 200.0, 100.0), 3), 3)

    assert [(one.first, one.second) for one in reversals] == [
        ("timm:c", "timm:a"), ("timm:b", "timm:a"), ("timm:c", "timm:b"),
    ]  # fmt: skip
    assert all(one.baseline_ratio.low > 1 > one.compiled_ratio.high for one in reversals)


@pytest.mark.parametrize(
    ("before", "after", "scatter"),
    [
        ((100.0, 50.0), (200.0, 100.0), 0.0),
        # Reversed by its points: t(0.9975, 2) = 14.1 times 0.05 / sqrt(3) is more than ln 1.2.
        ((100.0, 50.0), (100.0, 120.0), 0.05),
        ((100.0, 100.0), (100.0, 120.0), 0.0),
    ],
)
def test_what_keeps_its_place_or_may_be_noise_is_not_found(
    lab: Laboratory, before: Sequence[float], after: Sequence[float], scatter: float
) -> None:
    assert measured(lab, launches(before, after, 3, scatter), 2) == []


def test_the_same_ratios_with_less_noise_are_found(lab: Laboratory) -> None:
    (one,) = measured(lab, launches((100.0, 50.0), (100.0, 120.0), 3, 0.01), 2)
    assert one.compiled_ratio.high < 1
    # Three launches have had two halves of the error rate: t(0.9975, 2) = 14.1.
    half = 14.089 * 0.01 / math.sqrt(3)
    assert math.log(one.compiled_ratio.high / one.compiled_ratio.value) == pytest.approx(half, rel=0.01)


def test_without_error_control_nothing_is_found(lab: Laboratory) -> None:
    assert measured(lab, launches((100.0, 50.0), (100.0, 200.0), 1), 2, protocol="quick") == []


def content(lab: Laboratory) -> Content:
    """Return what the report of the last run in the store shows."""
    with Store.open(lab.store, read_only=True) as store:
        return read_content(store, store.runs()[-1])


def test_under_quick_the_page_says_that_nobody_looked(lab: Laboratory) -> None:
    skip_without("altair", "vl_convert")
    assert measured(lab, launches((100.0, 50.0), (100.0, 200.0), 1), 2, protocol="quick") == []

    shown = content(lab)

    assert shown.reversals == []
    written = page(shown)
    assert "Not looked for: the protocol quick controls no error" in written
    assert "No pair of models changes places" not in written


def test_where_it_was_looked_for_the_page_says_that_there_is_none(lab: Laboratory) -> None:
    skip_without("altair", "vl_convert")
    measured(lab, launches((100.0, 50.0), (100.0, 51.0), 3), 2)
    assert "No pair of models changes places" in page(content(lab))
    assert "Not looked for" not in page(content(lab))


def test_under_paper_points_are_compared_and_marked_as_such(lab: Laboratory) -> None:
    skip_without("altair", "vl_convert")
    measured(lab, launches((100.0, 50.0, 25.0), (400.0, 100.0, 200.0), 1), 3, protocol="paper")

    shown = content(lab)

    (one,) = shown.reversals
    assert (one.first, one.second, one.by_points) == ("timm:b", "timm:c", True)
    assert one.baseline_ratio.value == pytest.approx(2.0)
    assert one.compiled_ratio.value == pytest.approx(0.5)
    assert all(row["pair"].endswith(" (points)") for row in reversal_rows(shown))
    written = page(shown)
    assert "Points are compared, as the paper did" in written
    assert "99 %" not in charts_of(shown)[0].says
    lines = reversal_lines(shown.reversals, 200)
    assert lines[0].startswith("reversal by points: at batch 1 timm:b is ")
    assert lines[-1] == "  points compared as the paper did, without error control: some may be chance"


def test_points_that_do_not_change_places_are_none_under_paper_either(lab: Laboratory) -> None:
    measured(lab, launches((100.0, 50.0), (200.0, 100.0), 1), 2, protocol="paper")
    assert content(lab).reversals == []
    assert charts_of(content(lab))[0].empty == "By the points, no pair of models changes places."


def test_by_points_models_are_compared_across_launches_and_devices_are_not() -> None:
    """As the paper compares cells that were measured one by one, with the deviation of the two means together."""

    def report(device: str, model: str, compiler: str, rate: float, low: float, high: float) -> CellReport:
        one = replace(cell("null"), device=device, compiler=CompilerSpec(compiler), workload=workload(model))
        other = None if compiler == "identity" else replace(one, compiler=CompilerSpec("identity"))
        return CellReport(one, other, {"throughput": Estimate("throughput", rate, low, high, 1)}, None, None)

    reports = [
        report("xeon", "timm:a", "identity", 100.0, 90.0, 110.0),
        report("xeon", "timm:b", "identity", 50.0, 45.0, 55.0),
        report("xeon", "timm:a", "openvino", 120.0, 110.0, 130.0),
        report("xeon", "timm:b", "openvino", 240.0, -math.inf, math.inf),
        report("orin", "timm:c", "identity", 1.0, 0.9, 1.1),
        report("orin", "timm:c", "openvino", 900.0, 800.0, 1000.0),
    ]
    (one,) = find_reversals(reports, "paper")
    assert (one.device, one.first, one.second) == ("xeon", "timm:a", "timm:b")
    spread = math.hypot(math.log(110 / 90) / 2, math.log(55 / 45) / 2)
    assert one.baseline_ratio.high == pytest.approx(2 * math.exp(spread))
    assert (one.compiled_ratio.low, one.compiled_ratio.high) == (0.0, math.inf)
    assert "0.50x (no interval from 1 launch)" in str(one)
    assert find_reversals(reports, "quick") == []


def workload(model: str) -> Workload:
    return Workload(parse_model(model), 8)


def test_models_that_were_never_in_one_launch_are_no_pair(lab: Laboratory) -> None:
    assert len(measured(lab, launches((100.0, 50.0), (100.0, 200.0), 3), 2)) == 1
    with Store.open(lab.store, read_only=True) as store:
        cells, baselines = dict(store.cells(1)), store.baselines(1)
        together = store.launches(cells)
    apart = [only(record, model) for record in together for model in "ab"]

    def contests(records: Sequence[LaunchRecord]) -> int:
        return len(contests_of(Stored(records, [], PROTOCOLS["gate"], 2), list(cells), baselines))

    assert (contests(together), contests(apart), contests(together[:2])) == (1, 0, 0)


def only(record: LaunchRecord, model: str) -> LaunchRecord:
    """Return a launch as if it had held one model alone."""
    prepared = {cell: one for cell, one in record.prepared.items() if cell.workload.model.locator == model}
    return replace(record, prepared=prepared, visits={key: v for key, v in record.visits.items() if key[0] in prepared})


# How sure: on the simulated machine, over many runs of a suite

MODELS, RUNS = 6, 400
LOOKS = looks_for(8, 0.05)
WORLDS = {"ordinary": World(batches=3), "undecidable": World(launch=0.08, batches=3)}


def times(world: str) -> Array:
    """Return the ln times of models with the baseline, then compiled, in each block of eight launches; all are 0."""
    rng, at_once = np.random.default_rng([61, *world.encode()]), 100
    parts = [
        ln_times(rng, WORLDS[world], np.ones(at_once), 8, 8, 2 * MODELS, "mirrored") for _ in range(RUNS // at_once)
    ]
    return np.concatenate(parts)


def p_values(values: Array, within: Array, count: int) -> tuple[Array, Array]:
    """Return ``p_value`` over the first launches of each ratio, and on which side of 0 it is."""
    some = values[..., :count]
    s = np.sqrt(np.maximum(some.var(axis=-1, ddof=1), within[..., :count].mean(axis=-1)))
    theta = some.mean(axis=-1)
    return 2 * stdtr(count - 1, -np.abs(theta) * math.sqrt(count) / s), np.sign(theta)


def discovered(p: Array, is_candidate: Flags, count: int) -> list[list[int]]:
    """Return the pairs that each run finds, as ``find_reversals`` does from what ``contests_of`` gives it."""
    share = 1 / ((count - 2) * (count - 1))
    runs = []
    for run in range(RUNS):
        candidates = np.flatnonzero(is_candidate[run])
        sure = discoveries(np.minimum(1.0, p[run, candidates] / share).tolist(), FALSE_SHARE, most=LEVEL)
        runs.append([int(candidates[index]) for index in sure])
    return runs


def false_shares(world: str, before: Sequence[float], after: Sequence[float], *, suits: bool) -> tuple[Array, Array]:
    """Return the share of false reversals in each run, and how many true ones there are of those there could be.

    With ``suits`` measuring stops at the first look that finds a false one, which no gate can do.
    """
    ratios = times(world)
    columns = list(combinations(range(MODELS), 2))
    truth = [(before[a] - before[b], after[a] - after[b]) for a, b in columns]
    is_true = np.array([b * c < 0 for b, c in truth])
    both = []
    for offset in (0, MODELS):
        each = [launch_values(ratios[..., offset + b] - ratios[..., offset + a]) for a, b in columns]
        values = np.stack([value for value, _ in each], axis=1)
        shift = np.array([pair[offset // MODELS] for pair in truth])
        both.append((values + shift[:, None], np.stack([within for _, within in each], axis=1)))
    shares, hits, is_open = np.zeros(RUNS), np.zeros(RUNS), np.ones(RUNS, bool)
    for look in LOOKS if suits else LOOKS[-1:]:
        (p, side), (q, other) = (p_values(*one, look) for one in both)
        for run, pairs in enumerate(discovered(np.maximum(p, q), side * other < 0, look)):
            false = sum(not is_true[pair] for pair in pairs)
            if is_open[run]:
                shares[run] = false / max(1, len(pairs))
                hits[run] = (len(pairs) - false) / max(1, is_true.sum())
                is_open[run] = not false
    return shares, hits


ONE_AFTER_THE_OTHER = (0.5, 0.4, 0.3, 0.2, 0.1, 0.0)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("suits", [False, True])
@pytest.mark.parametrize(
    "after",
    [
        (0.0,) * MODELS,  # every pair with the baseline apart, none compiled: any that is found is false
        (0.5, 0.4, 0.4, 0.4, 0.4, 0.4),
        (0.0, 0.6, 0.3, 0.3, 0.3, 0.3),
    ],
)
def test_of_reversals_that_are_shown_one_in_twenty_is_chance_at_most(
    world: str, suits: bool, after: Sequence[float]
) -> None:
    shares, _ = false_shares(world, ONE_AFTER_THE_OTHER, after, suits=suits)
    # The mean of that many shares, each of 0 to 1, is within three standard errors.
    assert shares.mean() <= FALSE_SHARE + 3 * shares.std() / math.sqrt(RUNS)
    assert shares.mean() < 0.06


def test_true_reversals_are_found_where_launches_scatter_as_they_usually_do() -> None:
    _, hits = false_shares("ordinary", ONE_AFTER_THE_OTHER, ONE_AFTER_THE_OTHER[::-1], suits=False)
    assert hits.mean() > 0.99


def test_changed_points_and_intervals_of_each_pair_alone_are_caught() -> None:
    """Equal models, compiled: points call half of the pairs reversed, 95 % intervals some in a quarter of the runs."""
    ratios = times("undecidable")
    pairs = [
        launch_values(ratios[..., MODELS + b] - ratios[..., MODELS + a]) for a, b in combinations(range(MODELS), 2)
    ]
    values, within = (np.stack(each, axis=1) for each in zip(*pairs, strict=True))
    p, side = p_values(values, within, 8)
    # With the baseline the first of each pair is the faster one by far.
    assert (side < 0).mean() > 0.45
    assert exceeds(int(((side < 0) & (p <= 0.05)).any(axis=1).sum()), RUNS, 3 * FALSE_SHARE)


def test_three_launches_of_a_gate_have_had_a_smaller_share_than_a_reversal_of_three() -> None:
    """The levels of the looks are for one plan; those of a reversal for any. They are of one size."""
    assert spending(ALPHA, LOOKS, 8)[0] == pytest.approx(LEVEL / 2, rel=0.2)
    assert sum(1 / (k * (k + 1)) for k in range(1, 10_000)) == pytest.approx(1.0, abs=1e-3)


# What the terminal says


def ratio(value: float) -> Estimate:
    return Estimate("throughput_ratio", value, value * 0.97, value * 1.03, 4)


def reversal(number: int = 0, **other: object) -> Reversal:
    known = Reversal(
        "local", "openvino", "identity", 1, ("size64",), f"timm:resnet{number}", "timm:mobilenetv3_small_100",
        ratio(1.31), ratio(0.71),
    )  # fmt: skip
    return replace(known, **other)  # type: ignore[arg-type]


def test_a_reversal_reads_as_a_sentence() -> None:
    assert reversal_lines([reversal(18)], 200) == [
        "reversal: at batch 1, size64 timm:resnet18 is 1.31x [1.27x, 1.35x] faster than timm:mobilenetv3_small_100 "
        "with identity, 0.71x [0.69x, 0.73x] with openvino",
        "  at most 5 % of reversals shown are expected to be chance",
    ]
    assert reversal_lines([], 80) == []


def test_many_reversals_are_counted_and_long_lines_lose_no_number() -> None:
    lines = reversal_lines([reversal(number) for number in range(8)], 80)
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "  3 reversals more; at most 5 % of reversals shown are expected to be chance"
    assert sum(line.startswith("reversal: ") for line in lines) == 5
    assert sum("0.71x [0.69x, 0.73x]" in line for line in lines) == 5


def test_of_several_devices_each_reversal_says_which() -> None:
    lines = reversal_lines([reversal(1), reversal(2, device="orin")], 200)
    assert lines[0].startswith("reversal: local: at batch 1, ")
    assert lines[1].startswith("reversal: orin: at batch 1, ")


def test_what_is_found_is_bounded_over_all_reports() -> None:
    """One pair among many that only seem to change places has to be surer than one that is alone."""
    some = cell("null")

    def report(*p_values: float) -> CellReport:
        contests = [Contest(reversal(number), p) for number, p in enumerate(p_values)]
        return CellReport(some, None, {}, None, None, tuple(contests))

    assert len(find_reversals([report(0.009)])) == 1
    assert find_reversals([report(0.009), *[report(0.6)] * 9]) == []
    assert len(find_reversals([report(0.004), *[report(0.6)] * 9])) == 1
    assert PROTOCOLS["gate"].error_control


def test_the_summary_of_a_run_names_its_reversals(suite: Suite) -> None:
    """With the baseline conv takes half as long as mha; compiled it takes twice as long."""
    pretended = Pretended(suite.pytester)
    line = "        wall_ns[cell] *= 1 if str(cell.compiler) in baselines else factor\n"
    assert line in CONFTEST
    slow = '("mha" in cell.workload.model.text) == (str(cell.compiler) in baselines)'
    (suite.path / "conftest.py").write_text(
        CONFTEST.replace(line, f"{line}        wall_ns[cell] *= 2 if {slow} else 1\n")
    )
    pretended.write(
        """
@pytest.mark.ngraph(models=["block:conv", "block:mha"], batch=8)
def test_models(ngraph_models): ngraph_models.ensure()
"""
    )

    result = pretended.bare(*TWICE)

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["reversal: at batch 8 block:conv is 2.00x ?2.00x, 2.00x? faster than block:mha"])
    result.stdout.fnmatch_lines(["    with null?fixed_us=2000?, 0.50x ?0.50x, 0.50x? with null?fixed_us=1000?"])
    result.stdout.fnmatch_lines(["  at most 5 % of reversals shown are expected to be chance"])
