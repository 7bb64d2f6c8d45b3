"""How far the estimate of `assert_capacity` is from a capacity that is known, and how often its interval has it.

There is no clock: launches are drawn as ``server_gates`` draws them, in the windows that a run would have, and what
estimates is what estimates in a run: by four launches, and by as many as a gate at its bound, which is where the truth
is, took until it was decided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Any

import numpy as np

from benchmarks.pairs import finish, options, print_table, say
from benchmarks.server_gates import BUDGET, HARDLY, decided, shares_of
from pytest_ngraph.capacity.replay import Launches
from pytest_ngraph.load.queues import clustering_of, facts_of
from pytest_ngraph.quantities.quantity import LEVEL
from pytest_ngraph.stats import CONFIRMING_LAUNCHES
from tests.support.server_worlds import LAWS, SERVICE, latency_percentile, launches

# Of what can be served at all: the capacity that is true, and at which of its shares it is measured.
CAPACITIES = (0.1, 0.3, 0.6, 0.85)
MEASURED_AT = (1.0, 0.3)
PERCENTILE, LAUNCHES, SEED = 99.0, 4, 18
COVERED, BIAS = 0.97, 0.03


@dataclass(slots=True)
class Counted:
    """The estimates of one capacity, in shares of the true one, and how many intervals have it."""

    world: str
    capacity: float
    measured_at: float
    ratios: list[float] = field(default_factory=list)
    covered: int = 0
    # By as many launches as a gate takes, which the same launches decide.
    is_stopped: bool = False
    launches: int = 0
    # Half of the interval of the percentile at the true capacity, as a fraction.
    halves: list[float] = field(default_factory=list)

    @property
    def estimates(self) -> int:
        return len(self.ratios)


def estimate(one: Counted, rng: np.random.Generator) -> None:
    """Estimate a capacity once, from some launches.

    Whether the interval has it is asked by what it is made of: the percentile at the true capacity.
    """
    truth = one.capacity / SERVICE
    within = latency_percentile(one.world, one.capacity, PERCENTILE) * SERVICE
    rate = one.measured_at * truth
    some = launches(one.world, rate * SERVICE, BUDGET + CONFIRMING_LAUNCHES if one.is_stopped else LAUNCHES, rng)
    if one.is_stopped:
        clusters = [clustering_of(facts_of(rate, 1, each.traffic)) for each in some]
        shares = shares_of(some, within / SERVICE * (1 + HARDLY), clusters)
        some = some[: decided(shares, PERCENTILE)[1]]
    one.launches += len(some)
    services = [np.concatenate(launch.services) * SERVICE for launch in some]
    replayed = Launches([each.tolist() for each in services], 1, [str(rng.integers(1 << 62)) for _ in some])
    low, value, high = replayed.percentile(truth, PERCENTILE, LEVEL)
    one.covered += low <= within * (1 + 1e-9) and within * (1 - 1e-9) <= high
    one.halves.append(math.log(high / value))
    one.ratios.append(replayed.value(rate, PERCENTILE, within) / truth)


def row(one: Counted) -> list[object]:
    """Return the line of a capacity in the table."""
    low, high = np.quantile(one.ratios, (0.05, 0.95))
    return [
        one.world,
        f"{100 * one.capacity:.0f} %",
        f"{100 * one.capacity * one.measured_at:.3g} %",
        f"{one.launches / one.estimates:.1f}{', until a gate was decided' if one.is_stopped else ''}",
        one.estimates,
        f"{100 * (fmean(one.ratios) - 1):+.1f} %",
        f"{100 * (median(one.ratios) - 1):+.1f} %",
        f"{low:.2f} to {high:.2f}",
        f"{one.covered} ({100 * one.covered / one.estimates:.1f} %)",
        f"{100 * median(one.halves):.1f} %",
    ]


def missed(counts: Sequence[Counted]) -> list[str]:
    """Return where estimates are off in the middle, or intervals have the truth too seldom."""
    found = []
    for one in counts:
        until = ", until a gate was decided" if one.is_stopped else ""
        where = f"{one.world}, capacity {one.capacity:g}, measured at {one.measured_at:g} of it{until}"
        if one.covered < COVERED * one.estimates:
            found.append(f"{where}: {one.covered} of {one.estimates} intervals have it")
        if abs(off := median(one.ratios) - 1) > BIAS:
            found.append(f"{where}: off by {100 * off:+.1f} %")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Estimate known capacities again and again, print the table and say where they are off."""
    parser = options(__doc__)
    parser.add_argument("--estimates", type=int, default=200, help="estimates of each capacity")
    parser.add_argument("--world", choices=[*LAWS], action="append", help="only this law of services")
    given = parser.parse_args(arguments)
    everything: list[Counted] = []
    for number, world in enumerate(LAWS):
        for capacity in CAPACITIES if world in (given.world or LAWS) else ():
            for at, is_stopped in (*((at, False) for at in MEASURED_AT), (1.0, True)):
                one = Counted(world, capacity, at, is_stopped=is_stopped)
                seed = [SEED, number, round(100 * capacity), round(100 * at), *([1] if is_stopped else [])]
                rng = np.random.default_rng(seed)
                for _ in range(given.estimates):
                    estimate(one, rng)
                everything.append(one)
                say(f"{world}, {capacity:g}, measured at {at:g} of it{', stopped' if is_stopped else ''}")
    print_table(
        [
            "services",
            "capacity, of what can be served",
            "measured at",
            "launches",
            "estimates",
            "off on average",
            "off in the middle",
            "nine of ten are",
            "99 % intervals that have it",
            "half of the interval of the percentile",
        ],
        map(row, everything),
    )
    figures: dict[str, Any] = {
        "estimates": given.estimates,
        "launches": LAUNCHES,
        "seed": SEED,
        "worlds": [asdict(one) for one in everything],
    }
    finish(missed(everything), given.json, figures)


if __name__ == "__main__":
    main()
