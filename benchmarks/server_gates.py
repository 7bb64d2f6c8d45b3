"""How often gates on percentiles of calls that arrive by themselves are wrong, in queues whose law is known.

There is no clock: arrivals and services are drawn, and everything that judges is what judges in a run - how long
visits are, what is discarded, how slow calls cluster, when a queue has not settled, the looks, their levels and fresh
launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.pairs import finish, options, print_table, say
from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.load.queues import clustering_of, facts_of, why_unsettled
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, Verdict, looks_for, spending
from pytest_ngraph.stats.verdict import CONFIRMING_ALPHA, CONFIRMING_LOOKS, judge_shares
from tests.support.server_worlds import LAWS, SERVICE, Launch, latency_percentile, launches

UTILISATIONS = (0.1, 0.3, 0.5, 0.7, 0.9)
PERCENTILES = (90.0, 95.0, 99.0)
BUDGET, TOLERANCE, RATE, SEED = 16, 0.05, 0.01, 18
LOOKS = looks_for(BUDGET, TOLERANCE)
LEVELS = spending(ALPHA, LOOKS, BUDGET)
FRESH = spending(CONFIRMING_ALPHA, CONFIRMING_LOOKS, CONFIRMING_LAUNCHES)
# Gates may err at their rate: more than so many standard errors above it are too many.
_ERRORS = 3.0
# Truths that a call takes exactly are missed by a rounding error else.
HARDLY = 1e-9


@dataclass(slots=True)
class Counted:
    """What became of the gates of a world on one percentile: at the bound a fail is wrong, at the edge a pass."""

    world: str
    utilisation: float
    percentile: float
    gates: int = 0
    false_fails: int = 0
    false_passes: int = 0
    # False fails of the looks alone, which is what ``assert_capacity`` says of rates that nobody claims.
    at_looks: int = 0
    # Of the gates at the bound and at the edge.
    open: int = 0
    unsettled: int = 0
    launches: int = 0
    # How many said the wrong thing at a look, whatever was said at one before.
    fails_at_look: list[int] = field(default_factory=lambda: [0] * len(LOOKS))
    passes_at_look: list[int] = field(default_factory=lambda: [0] * len(LOOKS))

    @property
    def worst_look(self) -> float:
        """Return how often the worst look is wrong, in multiples of its level."""
        each = zip([*self.fails_at_look, *self.passes_at_look], LEVELS * 2, strict=True)
        return max(count / (self.gates * level) for count, level in each)


@dataclass(frozen=True, slots=True)
class Shares:
    """The launches of a gate as its rule sees them: calls, those beyond the tolerance and over the bound, clusters."""

    sizes: Sequence[int]
    beyond: Sequence[int]
    over: Sequence[int]
    clusters: Sequence[float]

    def judged(self, first: int, last: int, percentile: float, level: float) -> Verdict:
        """Judge some launches at a level."""
        some = slice(first, last)
        sizes, beyond, over = self.sizes[some], self.beyond[some], self.over[some]
        return judge_shares(sizes, beyond, over, percentile, level, least_effect=max(self.clusters[some]))


def at_looks(shares: Shares, percentile: float) -> Verdict:
    """Return what the first look says that decides, without fresh launches."""
    each = (shares.judged(0, look, percentile, level) for look, level in zip(LOOKS, LEVELS, strict=True))
    return next((verdict for verdict in each if verdict is not Verdict.INCONCLUSIVE), Verdict.INCONCLUSIVE)


def decided(shares: Shares, percentile: float) -> tuple[Verdict, int]:
    """Return what a gate says, and after how many launches: fails are confirmed by fresh ones."""
    for look, level in zip(LOOKS, LEVELS, strict=True):
        verdict = shares.judged(0, look, percentile, level)
        if verdict is Verdict.PASS:
            return verdict, look
        if verdict is Verdict.FAIL:
            return _confirmed(shares, look, percentile)
    return Verdict.INCONCLUSIVE, BUDGET


def _confirmed(shares: Shares, look: int, percentile: float) -> tuple[Verdict, int]:
    for wanted, level in zip(CONFIRMING_LOOKS, FRESH, strict=True):
        verdict = shares.judged(look, look + wanted, percentile, level)
        if verdict is Verdict.FAIL:
            return verdict, look + wanted
        if verdict is Verdict.PASS:
            break
    return Verdict.INCONCLUSIVE, look + CONFIRMING_LAUNCHES


def shares_of(some: Sequence[Launch], bound: float, clusters: Sequence[float]) -> Shares:
    """Return launches as a gate with this bound sees them, in mean services."""

    def above(limit: float) -> list[int]:
        return [sum(int(np.count_nonzero(visit > limit)) for visit in one.latencies) for one in some]

    sizes = [sum(map(len, one.latencies)) for one in some]
    return Shares(sizes, above(bound * (1 + TOLERANCE)), above(bound), clusters)


def count(counts: Sequence[Counted], rng: np.random.Generator) -> None:
    """Judge one set of launches by gates on each percentile, at their bound and at the edge of their tolerance."""
    world, utilisation = counts[0].world, counts[0].utilisation
    rate = utilisation / SERVICE
    some = launches(world, utilisation, BUDGET + CONFIRMING_LAUNCHES, rng)
    unsettled = [bool(why_unsettled(rate, 1, one.traffic)) for one in some]
    clusters = [clustering_of(facts_of(rate, 1, one.traffic)) for one in some]
    for each in counts:
        truth = latency_percentile(world, utilisation, each.percentile)
        at_bound = shares_of(some, truth * (1 + HARDLY), clusters)
        at_edge = shares_of(some, truth * (1 - HARDLY) / (1 + TOLERANCE), clusters)
        each.gates += 1
        for place, (look, level) in enumerate(zip(LOOKS, LEVELS, strict=True)):
            each.fails_at_look[place] += at_bound.judged(0, look, each.percentile, level) is Verdict.FAIL
            each.passes_at_look[place] += at_edge.judged(0, look, each.percentile, level) is Verdict.PASS
        for shares, wrong in ((at_bound, Verdict.FAIL), (at_edge, Verdict.PASS)):
            verdict, used = decided(shares, each.percentile)
            each.launches += used
            if any(unsettled[:used]):
                each.unsettled += 1
                continue
            each.at_looks += wrong is Verdict.FAIL and at_looks(shares, each.percentile) is wrong
            each.open += verdict is Verdict.INCONCLUSIVE
            if verdict is wrong:
                each.false_fails += wrong is Verdict.FAIL
                each.false_passes += wrong is Verdict.PASS


def percent(part: int, whole: int) -> str:
    """Write a count and its share."""
    return f"{part} ({100 * part / whole:.2f} %)"


def row(one: Counted) -> list[object]:
    """Return the line of a world in the table."""
    return [
        one.world,
        f"{one.utilisation:g}",
        f"{one.percentile:g}",
        one.gates,
        percent(one.false_fails, one.gates),
        percent(one.at_looks, one.gates),
        percent(one.false_passes, one.gates),
        f"{one.worst_look:.2f}",
        f"{50 * one.open / one.gates:.0f} %",
        f"{50 * one.unsettled / one.gates:.0f} %",
        f"{one.launches / (2 * one.gates):.1f}",
    ]


def most_by_chance(gates: int) -> float:
    """Return how many of so many gates may be wrong at their error rate, to what chance adds."""
    by_rate = RATE * gates
    return by_rate + _ERRORS * math.sqrt(by_rate)


def missed(counts: Sequence[Counted]) -> list[str]:
    """Return where gates err more often than they say, by more than chance does."""
    found = []
    for one in counts:
        most = most_by_chance(one.gates)
        for what, wrong in (
            ("fails", one.false_fails),
            ("fails of the looks alone", one.at_looks),
            ("passes", one.false_passes),
        ):
            if wrong > most:
                found.append(
                    f"{one.world} at {one.utilisation:g}, p{one.percentile:g}: {percent(wrong, one.gates)} false {what}"
                )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge gates in every world, print the table and say where they are wrong too often."""
    parser = options(__doc__)
    parser.add_argument("--gates", type=int, default=1000, help="gates in each world, on each percentile")
    parser.add_argument("--world", choices=[*LAWS], action="append", help="only this law of services")
    given = parser.parse_args(arguments)
    everything: list[Counted] = []
    for number, world in enumerate(LAWS):
        for utilisation in UTILISATIONS if world in (given.world or LAWS) else ():
            counts = [Counted(world, utilisation, percentile) for percentile in PERCENTILES]
            rng = np.random.default_rng([SEED, number, round(100 * utilisation)])
            for _ in range(given.gates):
                count(counts, rng)
            everything += counts
            say(f"{world} at {utilisation:g}")
    print_table(
        [
            "services",
            "utilisation",
            "percentile",
            "gates",
            "false fails at the bound",
            "of the looks alone",
            "false passes at the edge",
            "the worst look, in multiples of its level",
            "open",
            "not settled",
            "launches",
        ],
        map(row, everything),
    )
    figures: dict[str, Any] = {"gates": given.gates, "seed": SEED, "worlds": [asdict(one) for one in everything]}
    finish(missed(everything), given.json, figures)


if __name__ == "__main__":
    main()
