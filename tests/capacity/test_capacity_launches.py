"""Which launches a capacity is estimated by, and what is said of the other rates that were measured, and when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from pytest_ngraph.capacity.claims import _at_looks, _bracket, _judged, estimated
from pytest_ngraph.claims.decide import ALPHA, Decision, looks_of
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, LaunchRecord, Outcome, Reading, Visit
from pytest_ngraph.stats import Bound, looks_for, spending
from pytest_ngraph.stats.verdict import Verdict
from tests.support.measuring import cell

HOME, AWAY = Reading(100_000, (360,)), Reading(100_000, (720,))
WITHIN = Bound(0.02, False, 0.05, "log")
GATE = PROTOCOLS["gate"]


def at_rate(rate: int) -> Cell:
    one = cell("null")
    return replace(one, workload=replace(one.workload, scenario=f"server[rate={rate}]"))


def launch(
    number: int, of: Cell, seconds: Sequence[float], *, home: Reading | None = HOME, reason: str = ""
) -> LaunchRecord:
    """Return a launch in which calls arrive so far apart that none waits, with a reason one whose queue did not settle.

    Each call is served for as long as it takes.
    """
    served = tuple(round(1e9 * each) for each in seconds)
    record = CompileRecord(Outcome.UNSTABLE if reason else Outcome.OK, reason)
    apart = tuple(50_000_000 + each for each in served)
    visits = {(of, 0): Visit(1, apart, request_ns=served)}
    return LaunchRecord(number, number, "gate", {of: record}, visits, "", 2.0, home)


def measured(of: Cell, records: Sequence[LaunchRecord]) -> Measurement:
    source = Stored(records, [], GATE, 2)
    source.most_launches = 16
    return Measurement(source, of, of)


def calls(slow: int, of: int = 1000) -> list[float]:
    """Return calls of which so many of a thousand take longer than the bound."""
    return [0.01] * (of - slow) + [0.03] * slow


# The estimate


def decision(launches: int, value: float = 0.01) -> Decision:
    return Decision(Verdict.PASS, Estimate("latency", value, value / 1.1, value * 1.1, launches), None, "")


def services(seed: int, mean: float) -> list[float]:
    return [float(each) for each in mean * np.random.default_rng(seed).uniform(0.9, 1.1, 300)]


def test_a_capacity_is_of_the_launches_that_its_verdict_rests_on_and_of_no_other_state_of_the_machine() -> None:
    """The first launches there were stood in for them: two of a state in which calls took four times as long."""
    one = at_rate(10)
    away = [launch(number, one, services(number, 0.04), home=AWAY) for number in (1, 2)]
    home = [launch(number, one, services(number, 0.01)) for number in (3, 4, 5)]

    mixed, _ = estimated(measured(one, [*away, *home]), decision(3), 99, 0.05)
    alone, _ = estimated(measured(one, home), decision(3), 99, 0.05)
    fewer, _ = estimated(measured(one, [*away, *home]), decision(2), 99, 0.05)

    assert mixed == alone
    assert mixed.low > 50
    assert (mixed.launches, fewer.launches) == (3, 2)


def test_of_a_queue_that_did_not_settle_all_launches_say_what_could_be_served() -> None:
    one, reason = at_rate(200), "overloaded: 200 calls a second arrive"
    records = [launch(number, one, services(number, 0.01), reason=reason) for number in range(4)]

    found, note = estimated(measured(one, records), decision(4, math.inf), 99, 0.1)

    assert (found.launches, note) == (4, "")
    assert 60 < found.value < 100


def test_without_launches_there_is_no_capacity() -> None:
    one = at_rate(10)
    found, note = estimated(measured(one, []), decision(0), 99, 0.05)
    assert math.isnan(found.value)
    assert note == ""


# The other rates


def test_the_looks_of_a_rate_spend_what_a_gate_spends_and_no_more() -> None:
    source = measured(at_rate(10), []).source
    looks = looks_for(16, 0.05)
    assert looks_of(source, 0.05) == [*zip(looks, spending(ALPHA, looks, 16), strict=True)]
    assert sum(level for _, level in looks_of(source, 0.05)) < 0.02


def test_a_rate_is_looked_at_when_a_gate_would_and_never_when_it_suits() -> None:
    """What would say something false: five launches there are, since another rate was decided by then."""
    one = at_rate(60)
    # p99 of a thousand calls each, of which 10 are the allowed: 30 launches of chance, then far more.
    fair, slow = calls(10), calls(60)

    def verdict(*each: list[float]) -> Verdict:
        records = [launch(number, one, some) for number, some in enumerate(each)]
        return _at_looks(measured(one, records), 99, WITHIN, 0.05)

    assert verdict(slow, slow) is Verdict.INCONCLUSIVE
    assert verdict(slow, slow, slow) is Verdict.FAIL
    assert verdict(*[calls(0)] * 3) is Verdict.PASS
    assert verdict(*[fair] * 4) is Verdict.INCONCLUSIVE
    # All five together would fail at 0.5 %, and four are the last look before.
    assert verdict(*[fair] * 4, calls(200)) is Verdict.INCONCLUSIVE
    # What was decided at a look stays as it was, whatever comes after it.
    assert verdict(*[calls(0)] * 3, *[calls(200)] * 9) is Verdict.PASS


def test_a_queue_that_did_not_settle_in_some_launches_is_neither_held_nor_lost() -> None:
    one, reason = at_rate(60), "overloaded: 60 calls a second arrive"

    def verdict(*lost: bool) -> Verdict:
        each = [launch(n, one, calls(0), reason=reason if is_lost else "") for n, is_lost in enumerate(lost)]
        return _at_looks(measured(one, each), 99, WITHIN, 0.05)

    assert verdict(True, True, True) is Verdict.FAIL
    assert verdict(True, False, True, False, False, False) is Verdict.INCONCLUSIVE
    assert verdict(True, True) is Verdict.INCONCLUSIVE


def test_a_queue_that_grew_while_others_used_the_cpus_loses_no_rate() -> None:
    one = at_rate(60)
    alone = [launch(n, one, calls(0), reason="overloaded: 60 calls a second arrive") for n in range(3)]
    beside = [*alone[:2], replace(alone[2], shared="other processes kept 0.9 of 2 CPUs busy")]
    verdicts = [_at_looks(measured(one, each), 99, WITHIN, 0.05) for each in (alone, beside)]
    assert verdicts == [Verdict.FAIL, Verdict.INCONCLUSIVE]


def test_the_claimed_rate_has_the_verdict_of_the_claim_and_no_second_one() -> None:
    slow, fast = at_rate(60), at_rate(20)
    cells = [measured(one, [launch(number, one, calls(0)) for number in range(4)]) for one in (slow, fast)]

    assert _judged(cells, cells[0], Verdict.INCONCLUSIVE, 99, WITHIN, 0.05) == {60: "inconclusive", 20: "pass"}
    assert _judged(cells, cells[0], Verdict.FAIL, 99, WITHIN, 0.05) == {60: "fail", 20: "pass"}


@pytest.mark.parametrize(
    ("judged", "says"),
    [
        ({20: Verdict.INCONCLUSIVE, 60: Verdict.INVALID}, []),
        ({20: Verdict.PASS}, ["held at 20 calls a second (each wrong in 1 % at most)"]),
        (
            {20: Verdict.PASS, 40: Verdict.PASS, 60: Verdict.FAIL, 300: Verdict.FAIL},
            ["held at 40 and not held at 60 calls a second (each wrong in 1 % at most)"],
        ),
        (
            {20: Verdict.FAIL, 60: Verdict.PASS},
            ["held at 60 and not held at 20 calls a second (each wrong in 1 % at most; one of these is, or more than "
             "the load differed)"],
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_several_rates_has_its_error_rate_and_no_contradiction_unsaid(
    judged: dict[float, Verdict], says: list[str]
) -> None:
    assert _bracket(judged, 0.01) == [f"of the rates that were measured it was {text}" for text in says]
