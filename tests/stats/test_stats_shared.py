"""Gates beside neighbours, simulated: as few wrong verdicts as alone, and no verdict where it cannot be told.

What is simulated is the rule for visits, the launch values, looks and confirmation, the control, the second channel and
the check that others are beside all cells alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.shared_worlds import Neighbour, Outcome, judge_beside
from tests.support.simulator import exceeds, falls_short

GATES, RATE = 400, 0.01
LATE = (0.0, 0.1, 0.0)  # the compiled cell is slower by a tenth where somebody takes caches and memory
NEVER, ALWAYS = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)

WORLDS = {
    "25 %, bursty": Neighbour(0.25),
    "25 %, steady": Neighbour(0.25, period=2.0),
    "25 %, for a whole launch or not at all": Neighbour(0.25, period=2000.0),
    "25 %, slows one cell by a tenth without a wait": Neighbour(0.25, collide=NEVER, slow=LATE),
    "50 %, bursty": Neighbour(0.5),
    "50 %, steady": Neighbour(0.5, period=2.0),
    "50 %, for a whole launch or not at all": Neighbour(0.5, period=2000.0),
    "50 %, waits of the cells are unequal": Neighbour(0.5, collide=(0.1, 0.9, 0.1)),
    "34 %, comes once a block": Neighbour(0.34, period=105.0, jitter=0.0, locked=True),
    "50 %, comes with every second visit": Neighbour(0.5, period=70.0, jitter=0.0, locked=True),
    "50 %, comes and goes with each visit": Neighbour(0.5, period=35.0, jitter=0.0, locked=True),
}


@pytest.mark.parametrize("world", WORLDS)
def test_beside_neighbours_gates_are_decided_as_rightly_as_alone(world: str) -> None:
    """The goals are 80 % decided at 25 %, and half at 50 %."""
    edge, bound, room = judge_beside(WORLDS[world], -1.0, 0.0, 1.0, gates=GATES, seed=5)
    assert not exceeds(edge.passes, GATES, RATE)
    assert not exceeds(bound.fails, GATES, RATE)
    assert not exceeds(room.fails, GATES, RATE)
    for each in (edge, bound, room):
        assert not falls_short(round(each.decided * GATES), GATES, 0.8 if world.startswith("25 %") else 0.5)


@pytest.mark.parametrize(
    "neighbour",
    [
        pytest.param(Neighbour(1.0, collide=(1.0, 1.0, 1.0)), id="a full load of all CPUs"),
        pytest.param(Neighbour(1.0, only=1, collide=(1.0, 1.0, 1.0)), id="one cell waits whenever it is measured"),
        pytest.param(
            Neighbour(1.0, only=1, collide=NEVER, slow=(0.1, 0.1, 0.1)),
            id="one cell is slowed without a wait",
        ),
        pytest.param(
            Neighbour(1.0, only=0, collide=NEVER, slow=(0.1, 0.1, 0.1), visible=False),
            id="the baseline is slowed unseen by any account",
        ),
    ],
)
def test_what_comes_with_one_cell_alone_is_invalid(neighbour: Neighbour) -> None:
    for found in judge_beside(neighbour, -1.0, 0.0, 1.0, gates=GATES, seed=7):
        assert found.passes + found.fails <= 0.01 * GATES
        assert found.invalid >= 0.95 * GATES


def test_what_slows_all_cells_by_much_in_bursts_as_long_as_visits_leaves_gates_open() -> None:
    """Two CPUs that are threads of one core: whoever runs on the other one is no wait. It is noise, and no more."""
    neighbour = Neighbour(0.25, collide=NEVER, slow=(0.5, 0.5, 0.5))
    edge, bound, room = judge_beside(neighbour, -1.0, 0.0, 1.0, gates=GATES, seed=5)
    assert not exceeds(edge.passes, GATES, RATE)
    assert not exceeds(bound.fails, GATES, RATE)
    assert falls_short(round(bound.decided * GATES), GATES, 0.3)
    assert not falls_short(room.passes, GATES, 0.8)


def at_bound(neighbour: Neighbour, **how: Any) -> Outcome:
    (found,) = judge_beside(neighbour, 0.0, gates=GATES, **how)
    return found


def test_a_cell_that_is_slowed_unseen_by_any_account_is_taken_for_slow() -> None:
    """The limit: what no account shows and only meets the cell without a second process looks like that cell."""
    neighbour = Neighbour(1.0, only=1, collide=NEVER, slow=(0.1, 0.1, 0.1), visible=False)
    assert at_bound(neighbour, seed=9).fails > 0.9 * GATES


def test_a_steady_neighbour_that_slows_one_cell_more_moves_what_is_true_beside_it() -> None:
    """At half of the time batches alternate, so that medians say one thing and the fastest batches the other."""
    bursts = Neighbour(0.5, collide=NEVER, slow=LATE)
    assert not exceeds(at_bound(bursts, seed=11).fails, GATES, RATE)
    always = Neighbour(1.0, collide=NEVER, slow=LATE)
    assert at_bound(always, seed=11).fails > 0.9 * GATES


def test_widening_visits_as_alone_would_fail_what_waits_a_little_more() -> None:
    """The negative control: batches that wait for 8 % of their time in one cell only."""
    nudged = Neighbour(0.08, period=1.0, jitter=0.0, collide=(0.0, 1.0, 0.0))
    assert at_bound(nudged, seed=13, widened=True).fails > 0.9 * GATES
    strict = at_bound(nudged, seed=13)
    assert (strict.fails, strict.invalid) == (0, GATES)


# What a host takes for its other guests: of two CPUs half of what it takes of one.
HOSTS = {
    "4 %, in bursts of ticks": Neighbour(0.08, collide=ALWAYS, stolen=True),
    "5 %, in bursts of visits": Neighbour(0.1, period=300.0, collide=ALWAYS, stolen=True),
    "8 %, in bursts of visits": Neighbour(0.16, period=300.0, collide=ALWAYS, stolen=True),
    "20 %, in bursts of visits": Neighbour(0.4, period=300.0, collide=ALWAYS, stolen=True),
}
# Of which each visit of a launch loses something, or each launch nearly all.
THROUGHOUT = {
    "8 %, in bursts of ticks": Neighbour(0.16, collide=ALWAYS, stolen=True),
    "8 %, evenly": Neighbour(0.16, period=2.0, collide=ALWAYS, stolen=True),
    "10 %, in step with visits": Neighbour(0.2, period=35.0, jitter=0.0, locked=True, collide=ALWAYS, stolen=True),
    "40 %, for a whole launch or not at all": Neighbour(0.8, period=2000.0, collide=ALWAYS, stolen=True),
    "10 % of one cell, evenly": Neighbour(0.2, period=1.0, jitter=0.0, collide=(0.0, 1.0, 0.0), stolen=True),
    "15 % of one cell and half of that of the others": Neighbour(
        0.3, period=10.0, collide=(0.5, 1.0, 0.5), stolen=True
    ),
    "15 % of the baseline, in bursts of visits": Neighbour(0.3, period=300.0, collide=(1.0, 0.0, 1.0), stolen=True),
}


@pytest.mark.parametrize("world", [*HOSTS, *THROUGHOUT])
def test_where_a_host_takes_the_cpus_gates_are_decided_rightly_or_said_to_be_invalid(world: str) -> None:
    edge, bound, room = judge_beside({**HOSTS, **THROUGHOUT}[world], -1.0, 0.0, 1.0, gates=GATES, seed=19)
    assert not exceeds(edge.passes, GATES, RATE)
    assert not exceeds(bound.fails, GATES, RATE)
    assert not exceeds(room.fails, GATES, RATE)
    for each in (edge, bound, room):
        if world in HOSTS:
            assert not falls_short(round(each.decided * GATES), GATES, 0.8)
        else:
            assert falls_short(round(each.decided * GATES), GATES, 0.8)


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_who_does_not_ask_what_the_host_took_fails_the_cell_that_it_takes(share: float) -> None:
    """The negative control. At 0.3 it takes 5 % of the CPUs over a launch, which was held to be harmless."""
    mine = Neighbour(share, period=300.0, collide=(0.0, 1.0, 0.0), stolen=True, visible=False)
    assert at_bound(mine, seed=19, widened=True).fails > 0.5 * GATES
    assert not exceeds(at_bound(mine, seed=19).fails, GATES, RATE)
    # Whom it takes that much from says less than it seems to when it does not.
    assert at_bound(replace(mine, visible=True), seed=19).invalid > 0.5 * GATES


def test_that_long_batches_are_hit_more_often_biases_nothing_that_matters() -> None:
    """A noisy cell beside one without noise."""
    found = at_bound(Neighbour(0.5), seed=17, batch=(0.001, 0.2, 0.001))
    assert not exceeds(found.fails, GATES, RATE)
