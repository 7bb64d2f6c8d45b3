"""What preparing a compressed cell costs beside the dense one, and that a second time, and another batch, cost less."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.pairs import Pair, alternate, finish, median_interval, options, print_table, run_child, say

STEPS = ("channel_prune=0.5", "channel_prune[of=macs]=0.5", "weight_prune=0.8")
# Builds the artifact of each of these workloads, as the builder of a run does: inputs, reference and ONNX file.
_CODE = """
import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, {home!r})
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
for optimize, batch in {asked!r}:
    workload = Workload(parse_model({model!r}), batch, image_size={size}, optimize=optimize)
    artifacts.build(workload, 0, Path({root!r}), True)
"""


class Builder:
    """Builds artifacts of a model in a process of its own and takes its seconds."""

    def __init__(self, model: str, size: int, folder: Path) -> None:
        self._model, self._size, self._folder = model, size, folder

    def seconds(self, *asked: tuple[str, int], root: Path | None = None) -> float:
        """Return the wall seconds of a process that builds what is asked for, into an empty folder if none is given."""
        home = str(Path(__file__).resolve().parents[1])
        with TemporaryDirectory(dir=self._folder) as empty:
            there = str(root or empty)
            code = _CODE.format(home=home, asked=asked, model=self._model, size=self._size, root=there)
            return run_child([sys.executable, "-W", "ignore", "-c", code], self._folder).seconds

    def again(self, optimize: str) -> float:
        """Return the seconds of a process that finds what was built."""
        with TemporaryDirectory(dir=self._folder) as kept:
            self.seconds((optimize, 1), root=Path(kept))
            return self.seconds((optimize, 1), root=Path(kept))


def row(what: str, pairs: list[Pair]) -> tuple[str, ...]:
    """Return a row: seconds of both sides, and the ratio of the pairs."""
    sides = ([pair.ours for pair in pairs], [pair.theirs for pair in pairs])
    ratio = median_interval(pair.ratio for pair in pairs).text(1.0, 2)
    return (what, *(median_interval(side).text(1.0, 1) for side in sides), ratio)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pairs", type=int, default=3, help="measurements of each side")
    parser.add_argument("--model", default="timm:resnet18", help="a model that takes an image size")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument(
        "--goal", type=float, default=3.0, help="the most times as long as what stands beside it that it may take"
    )
    given = parser.parse_args()
    results: dict[str, list[Pair]] = {}
    with TemporaryDirectory() as place:
        builder = Builder(given.model, given.image_size, Path(place))
        for steps in STEPS:
            say(steps)
            results[f"{steps}, beside dense"] = list(
                alternate(partial(builder.seconds, (steps, 1)), partial(builder.seconds, ("dense", 1)), given.pairs)
            )
        first = STEPS[0]
        results[f"{first} once more, beside the first time"] = list(
            alternate(lambda: builder.again(first), lambda: builder.seconds((first, 1)), given.pairs)
        )
        results[f"{first} at two batches in one process, beside one"] = list(
            alternate(lambda: builder.seconds((first, 1), (first, 8)), lambda: builder.seconds((first, 1)), given.pairs)
        )
    print_table(("seconds", "it", "beside", "ratio"), [row(what, pairs) for what, pairs in results.items()])
    missed = [
        f"{what}: {ratio:.2f} times as long (goal: at most {given.goal:g})"
        for what, pairs in results.items()
        if (ratio := median_interval(pair.ratio for pair in pairs).median) > given.goal
    ]
    finish(missed, given.json, {"pairs": results, "options": {"model": given.model, "goal": given.goal}})


if __name__ == "__main__":
    main()
