"""What preparing a compressed cell costs beside the dense one, and that nothing is prepared twice.

A second time, another batch in the same process, another batch in another process, and a worker that builds the network
again begin with what is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.pairs import Pair, alternate, finish, median_interval, options, print_table, run_child, say

STEPS = ("channel_prune=0.5", "channel_prune[of=macs]=0.5", "weight_prune=0.8")
_SEARCHED = STEPS[1]
# Builds the artifact of each of these workloads, as the builder of a run does: inputs, reference and ONNX file. What is
# there already is a worker's, which builds the network again.
_CODE = """
import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, {home!r})
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.loaded import LoadedWorkload
for optimize, batch in {asked!r}:
    workload = Workload(parse_model({model!r}), batch, image_size={size}, optimize=optimize)
    made = artifacts.build(workload, 0, Path({root!r}), True)
    if {module!r}:
        LoadedWorkload(workload, 0, made).module()
"""


class Builder:
    """Builds artifacts of a model in a process of its own and takes its seconds."""

    def __init__(self, model: str, size: int, folder: Path) -> None:
        self._model, self._size, self._folder = model, size, folder

    def seconds(self, *asked: tuple[str, int], root: Path | None = None, module: bool = False) -> float:
        """Return the wall seconds of a process that builds what is asked for, into an empty folder if none is given.

        With ``module`` it builds the networks once more, as a worker of a compiler that reads modules does.
        """
        home = str(Path(__file__).resolve().parents[1])
        with TemporaryDirectory(dir=self._folder) as empty:
            there = str(root or empty)
            code = _CODE.format(home=home, asked=asked, model=self._model, size=self._size, root=there, module=module)
            return run_child([sys.executable, "-W", "ignore", "-c", code], self._folder).seconds

    def again(self, optimize: str, batch: int = 1, *, module: bool = False) -> float:
        """Return the seconds of a process that finds what another one has built, at batch 1."""
        with TemporaryDirectory(dir=self._folder) as kept:
            self.seconds((optimize, 1), root=Path(kept))
            return self.seconds((optimize, batch), root=Path(kept), module=module)


def row(what: str, pairs: list[Pair]) -> tuple[str, ...]:
    """Return a row: seconds of both sides, and the ratio of the pairs."""
    sides = ([pair.ours for pair in pairs], [pair.theirs for pair in pairs])
    ratio = median_interval(pair.ratio for pair in pairs).text(1.0, 2)
    return (what, *(median_interval(side).text(1.0, 1) for side in sides), ratio)


def compared(builder: Builder) -> dict[str, tuple[Callable[[], float], Callable[[], float]]]:
    """Return what is measured beside what."""
    first = STEPS[0]
    once, searched = partial(builder.seconds, (first, 1)), partial(builder.seconds, (_SEARCHED, 1))
    dense = partial(builder.seconds, ("dense", 1))
    return {
        **{f"{steps}, beside dense": (partial(builder.seconds, (steps, 1)), dense) for steps in STEPS},
        f"{first} once more, beside the first time": (partial(builder.again, first), once),
        f"{first} at two batches in one process, beside one": (
            partial(builder.seconds, (first, 1), (first, 8)),
            once,
        ),
        f"{_SEARCHED} at another batch in another process, beside the first time": (
            partial(builder.again, _SEARCHED, 8),
            searched,
        ),
        f"{_SEARCHED} built again by a worker, beside {first}": (
            partial(builder.again, _SEARCHED, module=True),
            partial(builder.again, first, module=True),
        ),
    }


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
        for what, (ours, theirs) in compared(Builder(given.model, given.image_size, Path(place))).items():
            say(what)
            results[what] = list(alternate(ours, theirs, given.pairs))
    print_table(("seconds", "it", "beside", "ratio"), [row(what, pairs) for what, pairs in results.items()])
    missed = [
        f"{what}: {ratio:.2f} times as long (goal: at most {given.goal:g})"
        for what, pairs in results.items()
        if (ratio := median_interval(pair.ratio for pair in pairs).median) > given.goal
    ]
    finish(missed, given.json, {"pairs": results, "options": {"model": given.model, "goal": given.goal}})


if __name__ == "__main__":
    main()
