"""What collecting a large grid costs, against the same number of items from pytest's own parametrize."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.pairs import Finished, alternate, finish, median_interval, options, print_table, run_child

MODELS = ["block:conv", "block:mha"]
WIDTHS, DEPTHS = 10, 10
PER_BATCH = len(MODELS) * WIDTHS * DEPTHS
SIDES = ("ours", "theirs")

_GRID = """
import pytest

@pytest.mark.ngraph(model={models}, width={widths}, depth={depths}, batch={batches})
def test_grid(ngraph_cell):
    pass
"""
_STACKED = """
import pytest

@pytest.mark.parametrize("model", {models})
@pytest.mark.parametrize("width", {widths})
@pytest.mark.parametrize("depth", {depths})
@pytest.mark.parametrize("batch", {batches})
def test_grid(model, width, depth, batch):
    pass
"""
_COUNTING = """
from pathlib import Path

def pytest_collection_finish(session):
    Path(__file__).with_name("items").write_text(str(len(session.items)))
"""


def write_suite(folder: Path, source: str, batches: int) -> Path:
    """Write a suite of ``PER_BATCH`` items for each batch size, which counts what it collects."""
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(_COUNTING)
    widths, depths = [8 * step for step in range(1, WIDTHS + 1)], list(range(1, DEPTHS + 1))
    text = source.format(models=MODELS, widths=widths, depths=depths, batches=list(range(1, batches + 1)))
    (folder / "test_grid.py").write_text(text)
    return folder


def collect(suite: Path, items: int) -> Finished:
    """Collect a suite in a process of its own; end the script where it has another number of items."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-pno:cacheprovider"]
    done = run_child([*command, "--ngraph-compiler=null", "--ngraph-baseline=null"], suite)
    found = int((suite / "items").read_text())
    if found != items:
        raise SystemExit(f"{suite}: {found} items collected, expected {items}")
    return done


def compare(items: int, pairs: int) -> dict[str, Any]:
    """Collect both suites in turn; return seconds pair by pair and the peak bytes of each side."""
    peaks: dict[str, int] = {}
    with TemporaryDirectory() as place:
        batches = items // PER_BATCH
        suites = {
            "ngraph": write_suite(Path(place) / "ngraph", _GRID, batches),
            "parametrize": write_suite(Path(place) / "parametrize", _STACKED, batches),
        }

        def seconds(kind: str) -> float:
            done = collect(suites[kind], items)
            peaks[kind] = max(done.peak_bytes, peaks.get(kind, 0))
            return done.seconds

        taken = alternate(lambda: seconds("ngraph"), lambda: seconds("parametrize"), pairs)
    return {"items": items, "pairs": taken, "peak_bytes": peaks}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[100_000], help=f"sizes, rounded up to {PER_BATCH}")
    parser.add_argument("--pairs", type=int, default=3, help="collections of each kind")
    parser.add_argument("--goal", type=float, default=1.5, help="what the ratio of wall times may be")
    given = parser.parse_args()
    figures = [compare(PER_BATCH * math.ceil(items / PER_BATCH), given.pairs) for items in given.items]
    rows, missed = [], []
    for figure in figures:
        ratio = figure["ratio"] = median_interval(pair.ratio for pair in figure["pairs"])
        each = [1e6 * median(getattr(pair, side) for pair in figure["pairs"]) / figure["items"] for side in SIDES]
        peak = {kind: size / (1 << 20) for kind, size in figure["peak_bytes"].items()}
        rows.append(
            (
                f"{figure['items']:,}",
                ratio.text(),
                f"{each[0]:.0f} / {each[1]:.0f}",
                f"{peak['ngraph']:.0f} / {peak['parametrize']:.0f}",
            )
        )
        if ratio.median > given.goal:
            missed.append(
                f"{ratio.median - given.goal:.2f} at {figure['items']:,} items (goal: at most {given.goal:g})"
            )
    print_table(("items", "ngraph / parametrize, wall time", "us an item, whole run", "peak memory, MiB"), rows)
    finish(missed, given.json, {"sizes": figures})


if __name__ == "__main__":
    main()
