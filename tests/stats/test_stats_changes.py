"""Change points of a series of sessions: steps and slow drifts are found, and noise seldom is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from pytest_ngraph.errors import SpecError
from pytest_ngraph.stats import changes
from pytest_ngraph.stats.changes import Level, levels_of, one_level

pytest.importorskip("ruptures")
SERIES, SCATTER = 200, 0.01


def share_changed(count: int, shape: np.ndarray) -> float:
    draw = np.random.default_rng(5)
    return sum(len(levels_of(list(shape + draw.normal(0, SCATTER, count)))) > 1 for _ in range(SERIES)) / SERIES


@pytest.mark.parametrize(("count", "rate"), [(8, 0.06), (12, 0.04), (30, 0.01), (60, 0.01)])
def test_noise_is_seldom_taken_for_a_change(count: int, rate: float) -> None:
    """The rates that the docs state: what is seen must not be less likely than 1 in 1000 by them."""
    seen = round(share_changed(count, np.zeros(count)) * SERIES)
    assert binom.sf(seen - 1, SERIES, rate) > 1e-3


@pytest.mark.parametrize(("step", "least"), [(0.02, 0.65), (0.03, 0.95), (0.05, 0.99)])
def test_a_step_is_found(step: float, least: float) -> None:
    assert share_changed(20, np.repeat([0.0, step], 10)) >= least


def test_a_drift_below_the_tolerance_that_adds_up_is_found() -> None:
    """Half a per cent a session, ten times less than a gate tolerates: 10 % in all."""
    assert share_changed(20, 0.005 * np.arange(20)) >= 0.98
    found = levels_of([0.005 * number + 0.002 * (-1) ** number for number in range(20)])
    assert len(found) > 2
    assert found[-1].mean - found[0].mean > 0.07


def test_levels_say_where_they_begin_and_what_they_are() -> None:
    values = [0.0, 0.01, -0.01, 0.0, 0.01, -0.01, 0.2, 0.21, 0.19, 0.2]
    first, second = levels_of(values)
    assert (first.first, first.sessions, second.first, second.sessions) == (0, 6, 6, 4)
    assert first.mean == pytest.approx(0.0, abs=1e-12)
    assert second.mean == pytest.approx(0.2)
    assert second.deviation == pytest.approx(math.sqrt(0.0002 / 3))
    assert one_level(values).sessions == 10


def test_what_launches_explain_is_no_change_and_few_sessions_are_one_level() -> None:
    values = [0.0, 0.0, 0.0, 0.0, 0.05, 0.05, 0.05, 0.05]
    assert len(levels_of(values)) == 2
    assert len(levels_of(values, within=0.05)) == 1
    assert levels_of([0.0, 0.0, 0.0, 1.0, 1.0]) == [one_level([0.0, 0.0, 0.0, 1.0, 1.0])]
    assert levels_of([0.5] * 10) == [Level(0, 10, 0.5, 0.0)]


def test_without_ruptures_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r'pip install "pytest-ngraph\[history\]"'):
        levels_of([0.0] * 10)
