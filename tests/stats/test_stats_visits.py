"""What counts in a visit, and when a cell has warmed up."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Visit
from pytest_ngraph.stats import batch_noise, settled, summarise
from pytest_ngraph.stats.visits import summarise_all
from tests.support.simulator import visit as simulated_visit

MS = 1_000_000


def test_the_median_and_the_minimum_are_per_call_and_in_seconds() -> None:
    summary = summarise(Visit(calls=4, wall_ns=(8 * MS, 12 * MS, 40 * MS)))
    assert summary.ln_seconds == pytest.approx(math.log(3e-3))
    assert summary.ln_minimum == pytest.approx(math.log(2e-3))
    assert (summary.kept, summary.total, summary.threshold) == (3, 3, math.inf)
    assert summary.faults_per_call is None
    assert summary.cpu_share is None


def delayed(*percent: float) -> Visit:
    """A visit of one call a batch, 100 ms long; the delays are percentages of it."""
    return Visit(calls=1, wall_ns=(100 * MS,) * len(percent), run_delay_ns=tuple(int(p * MS) for p in percent))


@pytest.mark.parametrize(
    ("visit", "kept", "threshold"),
    [
        pytest.param(delayed(0, 0, 0, 5, 50, 50), 3, 0.01, id="three of six clean: enough"),
        pytest.param(delayed(0, 0, 1.5, 5, 50, 50), 3, 0.02, id="two of six at 1 %: widened to 2 %"),
        pytest.param(delayed(0, 0, 3, 5, 50, 50), 4, 0.05, id="widened to 5 %, for the whole visit"),
        pytest.param(delayed(0, 0, 8, 50, 50, 50), 3, 0.10, id="widened to 10 %"),
        pytest.param(delayed(0, 0, 11, 50, 50, 50), 0, 0.10, id="dropped"),
        pytest.param(delayed(*[0] * 4, *[50] * 8), 4, 0.01, id="a third of twelve is enough"),
        pytest.param(delayed(*[0] * 4, *[50] * 9), 0, 0.10, id="four of thirteen are less than a third"),
        pytest.param(delayed(0.5), 1, 0.01, id="one long call"),
        pytest.param(delayed(1.5, 0), 2, 0.02, id="two long calls: both are needed"),
        pytest.param(delayed(50, 0), 0, 0.10, id="two long calls, one not clean"),
        pytest.param(Visit(calls=1, wall_ns=()), 0, math.inf, id="nothing measured"),
    ],
)
def test_batches_are_rejected_by_their_run_delay_only(visit: Visit, kept: int, threshold: float) -> None:
    summary = summarise(visit)
    assert (summary.kept, summary.threshold) == (kept, threshold)
    assert (summary.ln_seconds is None) == (summary.ln_minimum is None) == (kept == 0)


def test_covariates_are_those_of_the_batches_that_count() -> None:
    visit = Visit(
        calls=2,
        wall_ns=(10 * MS,) * 4,
        cpu_ns=(20 * MS, 20 * MS, 10 * MS, 99 * MS),
        run_delay_ns=(0, 0, 0, 9 * MS),
        faults=(0, 4, 2, 24_000),
    )
    summary = summarise(visit)
    assert summary.cpu_share == pytest.approx(50 / 30)
    assert summary.faults_per_call == 1
    assert summarise(visit, clean=False).kept == 4


def test_of_calls_in_flight_the_means_count() -> None:
    # Two slots, one of which is three times as fast: four calls every 3 ms, two and two of them in 2 and in 1 ms.
    walls, taken = (2 * MS, 1 * MS) * 3 + (2 * MS,), (1 * MS,) * 10 + (3 * MS,) * 4
    summary = summarise(Visit(calls=2, wall_ns=walls, request_ns=taken))
    assert summary.ln_seconds == pytest.approx(math.log(11e-3 / 14))
    assert summary.ln_minimum == pytest.approx(math.log(0.5e-3))
    assert summary.ln_request_seconds == pytest.approx(math.log(22e-3 / 14))
    assert summarise(Visit(calls=2, wall_ns=(4 * MS,))).ln_request_seconds is None


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=30), st.integers(2, 1000))
def test_a_clock_that_runs_faster_only_shifts_the_logarithm(walls: list[int], factor: int) -> None:
    one = summarise(Visit(calls=1, wall_ns=tuple(walls)))
    many = summarise(Visit(calls=1, wall_ns=tuple(wall * factor for wall in walls)))
    assert one.ln_seconds is not None
    assert many.ln_seconds == pytest.approx(one.ln_seconds + math.log(factor), abs=1e-9)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**8)), min_size=1, max_size=30))
def test_the_order_of_the_batches_does_not_matter(batches: list[tuple[int, int]]) -> None:
    one, other = (
        summarise(Visit(1, tuple(wall for wall, _ in b), run_delay_ns=tuple(delay for _, delay in b)))
        for b in (batches, sorted(batches))
    )
    assert one == other


MISFITS = (
    Visit(calls=0, wall_ns=(MS,)),
    Visit(calls=1, wall_ns=(MS, 0)),
    Visit(calls=1, wall_ns=(MS, MS), run_delay_ns=(0,)),
    Visit(calls=1, wall_ns=(MS, MS), faults=(0, 0, 0)),
    Visit(calls=2, wall_ns=(MS, MS), request_ns=(MS, MS)),
)


@pytest.mark.parametrize("visit", MISFITS)
def test_a_visit_that_does_not_fit_together_is_refused(visit: Visit) -> None:
    with pytest.raises(SpecError, match=r"^visit: .*(expected none or all|both must be positive)"):
        summarise(visit)


_NANOSECONDS = st.one_of(st.integers(1, 10**7), st.integers(1, 1 << 62))


@st.composite
def any_visit(draw: st.DrawFn) -> Visit:
    """A visit of few batches, of whose covariates any may be missing, and which may have waited for most of them."""
    total = draw(st.integers(1, 12))
    walls = draw(st.lists(_NANOSECONDS, min_size=total, max_size=total))
    arrays: dict[str, Any] = {}
    for name, most in (("cpu_ns", 2.0), ("run_delay_ns", draw(st.sampled_from([0.008, 0.03, 0.2]))), ("faults", 1.0)):
        if draw(st.booleans()):
            arrays[name] = tuple(int(wall * draw(st.floats(0, most))) for wall in walls)
    calls = draw(st.integers(1, 3))
    if draw(st.integers(0, 5)) == 0:
        arrays["request_ns"] = tuple(walls * calls)
    return Visit(calls, tuple(walls), **arrays)


@given(st.lists(any_visit(), max_size=8))
def test_many_visits_at_once_are_each_summarised_to_the_last_digit(visits: list[Visit]) -> None:
    assert [repr(one) for one in summarise_all(visits)] == [repr(summarise(visit)) for visit in visits]


def test_a_visit_that_does_not_fit_together_is_refused_among_others() -> None:
    for visit in MISFITS:
        with pytest.raises(SpecError, match=r"^visit: "):
            summarise_all([Visit(1, (MS, MS)), visit, Visit(1, (MS, MS))])


def test_cleaning_takes_off_what_foreign_load_adds() -> None:
    rng = np.random.default_rng(11)
    visits = [simulated_visit(rng, seconds=2e-3, foreign=0.55) for _ in range(200)]
    cleaned, raw = (
        np.array([s.ln_seconds for s in (summarise(v, clean=clean) for v in visits) if s.ln_seconds is not None])
        for clean in (True, False)
    )
    assert len(cleaned) > 150
    assert abs(cleaned.mean() - math.log(2e-3)) < 0.002
    assert raw.mean() - math.log(2e-3) > 0.1


def shape(name: str) -> list[float]:
    return {
        "flat": [1.0] * 20,
        "short": [1.0] * 19,
        "cold start, then flat": [9.0] * 50 + [1.0] * 20,
        "step of 2 %": [1.02] * 10 + [1.0] * 10,
        "step of 0.8 %": [1.008] * 10 + [1.0] * 10,
        "drift of 3 %": [1.03 - 0.0015 * i for i in range(20)],
        "one spike": [1.0] * 15 + [7.0] + [1.0] * 4,
        "a second state in the late half": [1.0] * 16 + [1.2] * 4,
    }[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flat", True),
        ("short", False),
        ("cold start, then flat", True),
        ("step of 2 %", False),
        ("step of 0.8 %", True),
        ("drift of 3 %", False),
        ("one spike", True),
        ("a second state in the late half", False),
    ],
)
def test_settled_accepts_and_rejects(name: str, expected: bool) -> None:
    assert settled([2e-3 * value for value in shape(name)]) is expected


def test_the_limits_widen_with_the_measured_noise() -> None:
    rng = np.random.default_rng(3)
    noisy = [(1 + 0.05 * rng.standard_normal(20)).tolist() for _ in range(300)]
    known, unknown = (np.mean([settled(batch, noise=noise) for batch in noisy]) for noise in (0.05, 0.0))
    assert known > 0.85
    assert unknown < 0.4
    warming = [[value * (1.5 - 0.025 * i) for i, value in enumerate(batch)] for batch in noisy]
    assert np.mean([settled(batch, noise=0.05) for batch in warming]) < 0.01


def test_the_noise_of_a_batch_is_measured_in_spite_of_drift_and_spikes() -> None:
    rng = np.random.default_rng(4)
    series = 2e-3 * (1 + 0.03 * rng.standard_normal(400)) * np.linspace(1.3, 1.0, 400)
    series[::20] *= 5
    # A spike in twenty spoils a step in ten: the 0.556 quantile of |x| is read, 13 % above its median.
    assert batch_noise(series.tolist()) == pytest.approx(0.03 * 1.13, rel=0.12)
    assert batch_noise([1.0] * 20) == batch_noise([1.0]) == 0


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(SpecError, match="positive time"):
        settled([0.0] * 20)


@given(st.lists(st.floats(0.99, 1.01), min_size=20, max_size=40))
def test_settling_does_not_depend_on_the_direction_of_time(seconds: list[float]) -> None:
    window = seconds[-20:]
    assert settled(window) is settled(window[::-1])


def test_a_step_of_either_quartile_in_either_direction_is_seen() -> None:
    for which, sign in product(("lower", "upper"), (-1, 1)):
        late = [1 + sign * 0.2 if (i < 4 if which == "lower" else i >= 6) else 1.0 for i in range(10)]
        assert not settled([1.0] * 10 + late)
