"""How often verdicts are wrong, right and open in simulated worlds of launches, and what that costs in launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pairs import finish, options, print_table, say
from tests.support.launch_worlds import INDEPENDENT, WORLDS, Judged, judge_world

# In tolerances from the bound: misses it by two and by one (the edge), is at it, and has room of half, one and two.
TRUTHS = (-2.0, -1.0, 0.0, 0.5, 1.0, 2.0)
SUITES = (50, 250)
RATE, SEED = 0.01, 71


def percent(part: int, whole: int) -> str:
    """Write a share with as many digits as its count has."""
    share = 100 * part / whole
    return f"{share:.2f} %" if 0 < share < 10 else f"{share:.0f} %" if share in (0, 100) else f"{share:.1f} %"


def row(name: str, budget: int, judged: Mapping[float, Judged]) -> list[object]:
    """Return the line of a world in the table."""
    twice, edge, bound, half = (judged[truth] for truth in TRUTHS[:4])
    return [
        name,
        budget,
        percent(bound.fails, bound.gates),
        percent(edge.passes, edge.gates),
        percent(edge.fails, edge.gates),
        percent(twice.fails, twice.gates),
        percent(bound.undecided, bound.gates),
        percent(edge.undecided, edge.gates),
        f"{half.launches:.1f}, {bound.launches:.1f}, {edge.launches:.1f}",
        *(percent(*half.red_suites[size]) for size in SUITES),
    ]


def missed(name: str, judged: Mapping[float, Judged]) -> list[str]:
    """Return which goals a world of the default budget misses."""
    _, edge, bound, half = (judged[truth] for truth in TRUTHS[:4])
    found = []
    if name in INDEPENDENT:
        for what, count, gates in (("fails", bound.fails, bound.gates), ("passes", edge.passes, edge.gates)):
            if count > RATE * gates:
                found.append(f"{name}: {percent(count, gates)} false {what}")
    power = {"normal, 1 %": 0.95, "normal, 2 %": 0.95, "normal, 3 %": 0.90}.get(name)
    if power is not None and edge.fails < power * edge.gates:
        found.append(f"{name}: {percent(edge.fails, edge.gates)} of regressions found")
    red, suites = half.red_suites[SUITES[0]]
    if red > {"normal, 1 %": 0.01, "normal, 2 %": 0.01, "normal, 3 %": 0.05}.get(name, 1.0) * suites:
        found.append(f"{name}: {percent(red, suites)} of suites red")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge all worlds by the default budget and by half of it, print the table and say which goals were missed."""
    parser = options(__doc__)
    parser.add_argument("--gates", type=int, default=100_000, help="gates in each world")
    given = parser.parse_args(arguments)
    rows, counts, short = [], [], []
    for budget in (16, 8):
        for name, scatter in WORLDS.items():
            all_truths = judge_world(scatter, TRUTHS, budget=budget, gates=given.gates, seed=SEED, suites=SUITES)
            judged = dict(zip(TRUTHS, all_truths, strict=True))
            rows.append(row(name, budget, judged))
            short += missed(name, judged) if budget == 16 else []
            counts.append({"world": name, "budget": budget, "truths": {str(one): judged[one] for one in TRUTHS}})
            say(f"{name}, budget {budget}")
    print_table(
        [
            "launches",
            "budget",
            "false fails at the bound",
            "false passes at the edge",
            "found at the edge",
            "at twice the tolerance",
            "open at the bound",
            "open at the edge",
            "launches with half a tolerance of room, at the bound, at the edge",
            *(f"suites of {size} red with half a tolerance of room" for size in SUITES),
        ],
        rows,
    )
    figures: dict[str, Any] = {"gates": given.gates, "seed": SEED, "worlds": counts}
    finish(short, given.json, figures)


if __name__ == "__main__":
    main()
