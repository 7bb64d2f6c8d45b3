"""The search by itself: with judges that are right it names the first bad one or says what is left.

With gates that see nothing but noise it names one no more often than it says.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.bisecting.judging import WIDENING
from pytest_ngraph.bisecting.search import Answer, Found, following, found, judgements, rate_of
from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.stats.sequential import looks_for, spending
from pytest_ngraph.stats.verdict import CONFIRMING_LAUNCHES, ERROR_RATE, Bound
from tests.support.simulator import Gates, exceeds, two_stages


def searched(candidates: int, judge: Callable[[int], Answer]) -> tuple[Found, dict[int, Answer]]:
    """Search to the end. Nothing is asked twice."""
    answers: dict[int, Answer] = {}
    while (place := following(candidates, answers)) is not None:
        assert place not in answers
        answers[place] = judge(place)
    return found(candidates, answers), answers


@pytest.mark.parametrize("candidates", [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33])
def test_every_place_is_found_in_as_many_judgements_as_were_said(candidates: int) -> None:
    for first in range(1, candidates + 1):
        known, answers = searched(candidates, lambda place, first=first: Answer.BAD if place >= first else Answer.GOOD)  # type: ignore[misc]
        assert known == Found(first - 1, first)
        assert known.is_decided
        assert len(answers) <= judgements(candidates)


@pytest.mark.parametrize("answer", [Answer.GOOD, Answer.OPEN])
def test_where_the_last_is_not_bad_nothing_else_is_judged(answer: Answer) -> None:
    _, answers = searched(9, lambda _: answer)
    assert answers == {9: answer}


@given(st.data())
def test_open_ones_widen_what_is_left_and_never_name_a_wrong_one(data: st.DataObject) -> None:
    candidates = data.draw(st.integers(1, 40))
    first = data.draw(st.integers(1, candidates))
    opened = data.draw(st.sets(st.integers(1, candidates))) - {candidates}

    def judge(place: int) -> Answer:
        return Answer.OPEN if place in opened else Answer.BAD if place >= first else Answer.GOOD

    known, answers = searched(candidates, judge)

    assert known.good < first <= known.bad
    # Nothing that could say more was left out: what is between the two is open.
    assert set(range(known.good + 1, known.bad)) <= opened
    assert known.is_decided or set(range(known.good + 1, known.bad)) <= {
        place for place, answer in answers.items() if answer is Answer.OPEN
    }
    assert known.is_decided == (known.bad - known.good == 1)


def test_the_neighbours_of_an_open_one_are_asked_last() -> None:
    """As a commit that cannot be compiled is mostly one of several in a row."""
    answers = {16: Answer.BAD, 8: Answer.OPEN}
    assert following(16, answers) == 4


@given(st.integers(1, 1000), st.integers(1, 300))
def test_judgements_never_spend_more_than_the_search_may(candidates: int, asked: int) -> None:
    spent = sum(rate_of(number, candidates, 0.01) for number in range(1, asked + 1))
    assert spent <= 0.01 * (1 + 1e-9)
    assert all(rate_of(number, candidates, 0.01) > 0 for number in (1, asked))


def test_a_search_of_nothing_asks_nothing() -> None:
    assert following(0, {}) is None
    assert judgements(0) == 0


NO_SLOWER = Bound(1.0, True, 0.05, "log")
BUDGET, TRIALS, RATE = 16, 20_000, 0.05


def answers(scatter: float, truth: float, rate: float, seed: int) -> list[Answer]:
    """Return what judgements say of candidates that are as fast as exp(truth), by gates that see launches scatter."""
    most = BUDGET * WIDENING[-1]
    values = truth + scatter * np.random.default_rng(seed).standard_normal((TRIALS, most + CONFIRMING_LAUNCHES))
    gates = Gates(values, np.zeros_like(values), np.ones(TRIALS))
    said = np.full(TRIALS, None, dtype=object)
    for wider in WIDENING:
        looks = looks_for(BUDGET * wider, NO_SLOWER.tolerance)
        levels = spending(ALPHA / ERROR_RATE * rate / len(WIDENING), looks, BUDGET * wider)
        verdicts = two_stages(gates, NO_SLOWER, looks, levels)
        for flags, answer in ((verdicts.passed, Answer.GOOD), (verdicts.failed, Answer.BAD)):
            said[flags & (said == None)] = answer  # noqa: E711 - element by element
    return [one or Answer.OPEN for one in said]


@pytest.mark.parametrize("scatter", [0.01, 0.05, 0.3])
def test_where_commits_differ_in_nothing_one_is_named_no_more_often_than_is_said(scatter: float) -> None:
    """A/A, by the verdicts' own rules: noise alone, from what hardly scatters to far more than the tolerance."""
    candidates = 6
    rates = [rate_of(number, candidates, RATE) for number in range(1, judgements(candidates) + 1)]
    drawn = [answers(scatter, 0.0, rate, 10 * seed) for seed, rate in enumerate(rates)]
    named = 0
    for each in zip(*drawn, strict=True):
        asked = iter(each)
        known, all_of_them = searched(candidates, lambda _, asked=asked: next(asked, Answer.OPEN))  # type: ignore[misc]
        named += all_of_them.get(candidates) is Answer.BAD and known.is_decided
    assert not exceeds(named, TRIALS, RATE)
    good = drawn[0].count(Answer.GOOD) / TRIALS
    assert good > 0.99 if scatter <= 0.05 else good < 1


def test_what_is_slower_by_the_tolerance_is_called_no_slower_as_rarely_as_is_said() -> None:
    rate = rate_of(1, 6, RATE)
    said = answers(0.3, NO_SLOWER.edge, rate, 7)
    assert not exceeds(said.count(Answer.GOOD), TRIALS, rate)
