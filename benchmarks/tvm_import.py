"""What importing TVM's tensor intrinsics costs, in a process and in the builders of its tuner, with our cure."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks.pairs import Pair, alternate, finish, median_interval, options, print_table, run_child, say
from pytest_ngraph.compilers.tvm.adapter import configuration_of
from pytest_ngraph.compilers.tvm.candidates import Bench, Candidate
from pytest_ngraph.compilers.tvm.importing import import_intrinsics, import_tvm
from pytest_ngraph.spec.cells import Device

_OURS = "from pytest_ngraph.compilers.tvm import importing; importing.import_{}()"
IMPORTS = {
    "import of TVM in a process": (_OURS.format("tvm"), "import tvm"),
    "the same with its tensor intrinsics": (_OURS.format("intrinsics"), "import tvm, tvm.s_tir.tensor_intrin"),
}
_PATIENCE_SECONDS = 300.0


def found_candidates(count: int, configuration: dict[str, Any]) -> list[Any]:
    """Return candidate schedules of a 3x3 convolution with 64 channels of 56 x 56, as TVM's tuner draws them."""
    tvm = import_tvm()
    import_intrinsics()
    from tvm import te, topi
    from tvm.s_tir.meta_schedule import TuneContext
    from tvm.s_tir.meta_schedule.cost_model import RandomModel
    from tvm.s_tir.meta_schedule.database import MemoryDatabase

    images, weights = te.placeholder((1, 64, 56, 56), name="images"), te.placeholder((64, 64, 3, 3), name="weights")
    kernel = te.create_prim_func([images, weights, topi.nn.conv2d(images, weights, 1, 1, 1)])
    context = TuneContext(
        kernel,
        target=tvm.target.Target(configuration),
        space_generator="post-order-apply",
        search_strategy="evolutionary",
        rand_state=1,
        num_threads=configuration["num-cores"],
    )
    context.pre_tuning(count, count, database=MemoryDatabase(), cost_model=RandomModel(seed=0))
    return list(context.generate_measure_candidates())


def our_build(candidates: Sequence[Any], configuration: dict[str, Any], builders: int) -> float:
    """Return the seconds that our builders take for all candidates, from their start on."""
    import tvm

    asked = [Candidate(tvm.ir.save_json(each.sch.mod), []) for each in candidates]
    with TemporaryDirectory() as folder:
        began = perf_counter()
        with Bench(configuration, "cpu", Path(folder), builders=builders, threads=1) as bench:
            built = bench.build(asked, lambda _: None)
            seconds = perf_counter() - began
    check([each for each in built if isinstance(each, str)])
    return seconds


def their_build(candidates: Sequence[Any], configuration: dict[str, Any], builders: int) -> float:
    """Return the seconds that the builders of TVM's tuner take for all candidates, from their start on."""
    import tvm
    from tvm.s_tir.meta_schedule.builder import BuilderInput, LocalBuilder

    builder = LocalBuilder(max_workers=builders, timeout_sec=_PATIENCE_SECONDS)
    target = tvm.target.Target(configuration)
    asked = [BuilderInput(each.sch.mod, target) for each in candidates]
    began = perf_counter()
    built = builder.build(asked)
    seconds = perf_counter() - began
    check([str(each.error_msg) for each in built if each.error_msg is not None])
    for each in built:
        shutil.rmtree(Path(str(each.artifact_path)).parent)
    return seconds


def check(failures: Sequence[str]) -> None:
    """End the script where a candidate was not built: it would have taken no time."""
    if failures:
        raise SystemExit(f"{len(failures)} candidates were not built: {failures[0]}")


def row(what: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Return a row: seconds of both sides, and the ratio of the pairs."""
    sides = (
        median_interval(side).text(1.0, 1) for side in ([pair.ours for pair in pairs], [pair.theirs for pair in pairs])
    )
    return (what, *sides, median_interval(pair.ratio for pair in pairs).text(1.0, 2))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pairs", type=int, default=3, help="measurements of each side")
    parser.add_argument("--candidates", type=int, default=32, help="candidates to build")
    parser.add_argument("--builders", type=int, default=2, help="processes that build side by side")
    parser.add_argument("--goal", type=float, default=0.5, help="the most of TVM's own time that building may take")
    given = parser.parse_args()
    home = Path(__file__).resolve().parents[1]
    results: dict[str, list[Pair]] = {}
    with TemporaryDirectory() as place:
        for what, codes in IMPORTS.items():
            say(what)
            ours, theirs = (runner(code, home, Path(place)) for code in codes)
            results[what] = alternate(ours, theirs, given.pairs)
    if find_spec("cloudpickle") is None:
        say("TVM's own builders need cloudpickle, which is not installed: they are left out")
    else:
        import_tvm()
        configuration = configuration_of(Device(threads=given.builders), given.builders)
        drawn = found_candidates(given.candidates, configuration)
        for what, some, builders in (
            ("the first candidate of a builder", drawn[:1], 1),
            (f"{len(drawn)} candidates by {given.builders} builders", drawn, given.builders),
        ):
            say(what)
            results[what] = alternate(
                lambda some=some, builders=builders: our_build(some, configuration, builders),  # type: ignore[misc]
                lambda some=some, builders=builders: their_build(some, configuration, builders),  # type: ignore[misc]
                given.pairs,
            )
    print_table(("seconds", "ours", "TVM's own way", "ratio"), [row(what, pairs) for what, pairs in results.items()])
    slow = {what: median_interval(pair.ratio for pair in pairs).median for what, pairs in results.items()}
    missed = [
        f"{what}: {ratio:.2f} of the time (goal: at most {given.goal:g})"
        for what, ratio in slow.items()
        if ratio > given.goal
    ]
    finish(missed, given.json, {"pairs": results, "options": {"candidates": given.candidates, "goal": given.goal}})


def runner(code: str, home: Path, folder: Path) -> Callable[[], float]:
    """Return what takes the wall seconds of a process that runs this code."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(home)!r}); {code}"]
    return lambda: run_child(command, folder).seconds


if __name__ == "__main__":
    main()
