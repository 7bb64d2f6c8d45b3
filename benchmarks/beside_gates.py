"""How often gates beside a neighbour are wrong, where it slows some calls and others not, by each second channel.

There is no clock: calls are drawn, and judged by the looks, levels and fresh launches of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.decision_worlds import percent
from benchmarks.pairs import finish, options, print_table, say
from benchmarks.server_gates import most_by_chance
from tests.support.neighbour_worlds import WORLDS, Drawn, drawn

SEED = 18
# Launches of few kinds: what a few of them have in common nobody sees (docs/measuring.md).
NOT_HELD = ("launches that differ",)
# What is to be found, in tolerances beyond the bound, where another channel may speak against it.
FAR = -6.0
SECONDS = ("", "mean", "fastest")


@dataclass(frozen=True, slots=True)
class Counted:
    """What became of the gates of a world, with a second channel or with none (an empty name)."""

    world: str
    second: str
    gates: int
    false_fails: int
    false_passes: int
    found: int
    kept: int
    launches: float


def counted(name: str, second: str, some: Drawn) -> Counted:
    """Judge gates at their bound, at the edge of their tolerance, far beyond their bound and far within it."""
    at_bound, at_edge, far, well = (some.judged(truth, second) for truth in (0.0, -1.0, FAR, -FAR))
    return Counted(
        name,
        second,
        len(at_bound[1]),
        int(at_bound[2].sum()),
        int(at_edge[1].sum()),
        int(far[2].sum()),
        int(well[1].sum()),
        float((far[0].launches + far[0].fresh).mean()),
    )


def row(one: Counted) -> list[object]:
    """Return the line of a world and a channel in the table."""
    return [
        one.world,
        one.second or "none",
        percent(one.false_fails, one.gates),
        percent(one.false_passes, one.gates),
        percent(one.found, one.gates),
        percent(one.kept, one.gates),
        f"{one.launches:.1f}",
    ]


def missed(counts: Sequence[Counted]) -> list[str]:
    """Return where gates err more often than they say with the channel that they have, by more than chance does."""
    found = []
    for one in counts:
        most = most_by_chance(one.gates)
        if one.second != "mean" or one.world in NOT_HELD:
            continue
        for what, wrong in (("fails", one.false_fails), ("passes", one.false_passes)):
            if wrong > most:
                found.append(f"{one.world}: {percent(wrong, one.gates)} false {what}")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge gates in every world, print the table and say where they are wrong too often."""
    parser = options(__doc__)
    parser.add_argument("--gates", type=int, default=4000, help="gates in each world")
    given = parser.parse_args(arguments)
    everything = []
    for number, (name, world) in enumerate(WORLDS.items()):
        some = drawn(world, given.gates, SEED + number)
        everything += [counted(name, second, some) for second in SECONDS]
        say(name)
    print_table(
        [
            "the neighbour slows",
            "second channel",
            "false fails at the bound",
            "false passes at the edge",
            "found six tolerances below the bound",
            "passed six above it",
            "launches of the former",
        ],
        map(row, everything),
    )
    figures: dict[str, Any] = {"gates": given.gates, "seed": SEED, "worlds": [asdict(one) for one in everything]}
    finish(missed(everything), given.json, figures)


if __name__ == "__main__":
    main()
