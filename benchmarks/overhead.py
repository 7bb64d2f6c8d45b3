"""What the plugin adds to a pytest run that does not use it: seconds, and what it imports."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.pairs import alternate, finish, median_interval, options, print_table, run_child

HEAVY = ("torch", "numpy", "scipy", "onnxruntime", "openvino", "tensorrt", "tvm", "dask", "altair")
_IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)$")
_CONFTEST = """
import atexit, json, pathlib, sys
atexit.register(lambda: pathlib.Path("modules.json").write_text(json.dumps(sorted(sys.modules))))
"""


def pytest_command(*, with_plugin: bool, flags: Sequence[str] = ()) -> list[str]:
    """Return the command of an all but empty run; other plugins are off, for what they import we would get free."""
    names = sorted({entry.name for entry in entry_points(group="pytest11")})
    if "ngraph" not in names:
        raise SystemExit("the plugin is not installed here: no entry point 'ngraph'")
    off = [f"-pno:{name}" for name in names if not (with_plugin and name == "ngraph")]
    return [sys.executable, *flags, "-m", "pytest", "-q", *off, "empty_test.py"]


def heavy_imports(folder: Path) -> list[str]:
    """Return which heavy packages a run with the plugin has imported by its end."""
    conftest = folder / "conftest.py"
    conftest.write_text(_CONFTEST)
    try:
        run_child(pytest_command(with_plugin=True), folder)
    finally:
        conftest.unlink()
    loaded = json.loads((folder / "modules.json").read_text())
    if "pytest_ngraph.plugin" not in loaded:
        raise SystemExit("the run with the plugin did not load it")
    return [name for name in HEAVY if name in loaded]


def import_costs(folder: Path, runs: int = 5) -> dict[str, float]:
    """Return the median seconds of each module that is imported with the plugin only, its own imports apart."""
    ours = [_import_seconds(folder, with_plugin=True) for _ in range(runs)]
    theirs = _import_seconds(folder, with_plugin=False)
    names = [name for name in ours[0] if name not in theirs]
    return {name: statistics.median(run.get(name, 0.0) for run in ours) for name in names}


def _import_seconds(folder: Path, *, with_plugin: bool) -> dict[str, float]:
    command = pytest_command(with_plugin=with_plugin, flags=("-X", "importtime"))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    matches = filter(None, map(_IMPORT_LINE.match, done.stderr.splitlines()))
    return {match[2]: int(match[1]) * 1e-6 for match in matches}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--pairs", type=int, default=30, help="runs with and without the plugin")
    parser.add_argument("--warmups", type=int, default=3, help="pairs that do not count")
    parser.add_argument("--goal-ms", type=float, default=30.0, help="what the plugin may add")
    given = parser.parse_args()
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "empty_test.py").write_text("def test_nothing():\n    pass\n")
        heavy = heavy_imports(folder)
        pairs = alternate(
            lambda: run_child(pytest_command(with_plugin=True), folder).seconds,
            lambda: run_child(pytest_command(with_plugin=False), folder).seconds,
            given.pairs,
            warmups=given.warmups,
        )
        costs = import_costs(folder)
    added = median_interval(pair.difference for pair in pairs)
    ratio = median_interval(pair.ratio for pair in pairs)
    dearest = sorted(costs.items(), key=lambda cost: -cost[1])[:5]
    print_table(
        ("an empty pytest run", "with the plugin"),
        [
            (f"added, ms, over {given.pairs} pairs", added.text(1e3, 1)),
            ("ratio of wall times", ratio.text(1.0, 3)),
            ("heavy packages imported", ", ".join(heavy) or "none"),
            (f"modules imported on top: {len(costs)}, ms", f"{1e3 * sum(costs.values()):.1f}"),
            *((f"of these `{name}`, ms", f"{1e3 * seconds:.1f}") for name, seconds in dearest),
        ],
    )
    missed = [f"importing {', '.join(heavy)}"] if heavy else []
    if added.median > given.goal_ms / 1e3:
        missed.append(f"{1e3 * added.median - given.goal_ms:.1f} ms (goal: at most {given.goal_ms:g} ms)")
    finish(
        missed, given.json, {"added_seconds": added, "ratio": ratio, "heavy": heavy, "pairs": pairs, "imports": costs}
    )


if __name__ == "__main__":
    main()
