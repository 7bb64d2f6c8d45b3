"""How wrong, right and open verdicts are on a simulated host whose other guest comes and goes, by what a launch counts.

The hosts are those of ``tests.support.crowded_worlds``. A launch counts as in this project, by the medians of all
visits as they come, or by a low quantile of all batches if the machine was left alone in a share of its glances; where
it was not another launch takes its place. What a launch is worth by that is judged as gates are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.decision_worlds import percent
from benchmarks.pairs import finish, options, print_table, say
from pytest_ngraph.quantities.quantity import QUANTILE
from pytest_ngraph.spec.cells import LEFT_ALONE
from tests.support.crowded_worlds import MEDIANS, MINDS, WHAT_COUNTS, Host, Rule
from tests.support.launch_worlds import Judged, judge_world

# In tolerances from the bound: misses it by one (the edge), is at it, and has room of a half and of one.
TRUTHS = (-1.0, 0.0, 0.5, 1.0)
BUDGET, SEED, RATE = 16, 71, 0.01
STAYS = (0.02, 0.1, 0.5, 3.0)
TRIED = "what counts: by what was left alone"

RULES: Mapping[str, Rule] = {
    "medians of all visits": MEDIANS,
    "the fastest quarter, alone in a quarter": Rule(0.25, 0.25),
    "the fastest tenth, alone in a quarter": Rule(0.1, 0.25),
    "the fastest tenth, of all launches": Rule(0.1),
    "by what was left alone, without steady blocks": Rule(QUANTILE, LEFT_ALONE, of_alone=True),
    TRIED: WHAT_COUNTS,
}


@dataclass(frozen=True, slots=True)
class Found:
    """What one rule makes of one host: scatter and mean error of launches, launches made for each that counts."""

    scatter: float
    error: float
    made: float
    judged: Mapping[float, Judged]


def found_by(rule: Rule, host: Host, gates: int) -> Found:
    """Judge gates of a host by a rule."""
    some, made = host.values(rule, np.random.default_rng(SEED + 1), 5000)
    judged = judge_world(host.scatter(rule), TRUTHS, budget=BUDGET, gates=gates, seed=SEED)
    return Found(float(some.std()), float(some.mean()), made, dict(zip(TRUTHS, judged, strict=True)))


def row_of(minds: str, stay: float, name: str, one: Found) -> list[object]:
    """Return the line of a rule on a host in the table."""
    edge, bound, half, room = (one.judged[truth] for truth in TRUTHS)
    return [
        minds,
        f"{1000 * stay:.0f} ms",
        name,
        f"{one.scatter:.1%}, {one.error:+.1%}",
        percent(bound.fails, bound.gates),
        percent(edge.passes, edge.gates),
        percent(edge.fails, edge.gates),
        percent(half.passes, half.gates),
        f"{one.made * room.launches:.1f}, {one.made * edge.launches:.1f}",
    ]


def missed(minds: str, stay: float, name: str, one: Found) -> list[str]:
    """Return which promised rates a rule exceeds on a host."""
    edge, bound, *_ = (one.judged[truth] for truth in TRUTHS)
    where = f"{name}, {minds}, {1000 * stay:.0f} ms"
    wrong = {"fails": (bound.fails, bound.gates), "passes": (edge.passes, edge.gates)}
    return [
        f"{where}: {percent(*counts)} false {what}" for what, counts in wrong.items() if counts[0] > RATE * counts[1]
    ]


def main() -> None:
    """Print the table, and whether what counts keeps the promised rates."""
    parser = options(__doc__)
    parser.add_argument("--gates", type=int, default=1000, help="gates on each host by each rule")
    given = parser.parse_args()
    rows, short, figures = [], list[str](), []
    for minds, slow in MINDS.items():
        for stay in STAYS:
            for name, rule in RULES.items():
                one = found_by(rule, Host(stay, slow), given.gates)
                rows.append(row_of(minds, stay, name, one))
                figures.append({"minds": minds, "stay_seconds": stay, "rule": name, "found": one})
                short += missed(minds, stay, name, one) if name == TRIED else []
            say(f"{minds}, {1000 * stay:.0f} ms")
    print_table(
        [
            "the compiled cell minds the guest",
            "it stays for",
            "a launch by",
            "its scatter, error",
            "false fails at the bound",
            "false passes at the edge",
            "found at the edge",
            "pass with half a tolerance of room",
            "launches made with room of one, at the edge",
        ],
        rows,
    )
    finish(short, given.json, {"gates": given.gates, "seed": SEED, "hosts": figures})


if __name__ == "__main__":
    main()
