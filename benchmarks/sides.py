"""What a second side costs: a run that measures it against one that does not, and a run in which nothing changed."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.pairs import Pair, alternate, finish, median_interval, options, print_table, run_child, say
from tests.support.git_repository import make
from tests.support.lab import Lab

_NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(4)))

    def forward(self, images):
        return self.layers(images)

    def example_inputs(self, batch):
        return torch.randn(batch, 16, 32, 32)
"""
_SUITE = """
import pytest

@pytest.mark.ngraph(model="net.py:Net", batch={batches})
def test_cell(ngraph_cell):
    pass
"""
_EMPTY = """
import pytest

@pytest.mark.parametrize("batch", {batches})
def test_cell(batch):
    pass
"""
_OPTIONS = ("--ngraph-compiler=onnxruntime", "--ngraph-baseline=onnxruntime[graph=basic]", "--ngraph-inconclusive=warn")


def project(folder: Path, source: str, batches: int) -> Path:
    """Write a project with a suite of so many cells, in a repository of its own with one commit."""
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / ".gitignore").write_text(".ngraph/\n__pycache__/\nchild-errors.txt\n")
    (folder / "net.py").write_text(_NET)
    (folder / "test_cells.py").write_text(source.format(batches=list(range(1, batches + 1))))
    return make(folder, {})


def seconds(folder: Path, *words: str) -> float:
    """Run pytest on a project and return the wall seconds of it all."""
    return run_child([sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *words], folder).seconds


def second_side(root: Path, pairs: int) -> list[Pair]:
    """Measure three launches with a second side of the same content, and without, in turn."""
    suite = project(root / "measured", _SUITE, 2)
    options = (*_OPTIONS, "--ngraph-budget=3", "--ngraph-fresh")
    both = ("--ngraph-against=HEAD,always", "--ngraph-gate-changes")
    return alternate(lambda: seconds(suite, *options, *both), lambda: seconds(suite, *options), pairs, warmups=1)


def unchanged(root: Path, gates: int, pairs: int) -> list[Pair]:
    """Gate cells in which nothing changed, and run as many tests that do nothing, in turn."""
    gated, empty = project(root / "unchanged", _SUITE, gates), project(root / "empty", _EMPTY, gates)
    options = (*_OPTIONS, "--ngraph-against=HEAD", "--ngraph-gate-changes")
    return alternate(lambda: seconds(gated, *options), lambda: seconds(empty), pairs, warmups=1)


def unchanged_on_a_device(root: Path, gates: int, runs: int) -> list[float]:
    """Gate cells in which nothing changed on a device behind a hub, both on this machine: the seconds of each run."""
    gated = project(root / "remote", _SUITE, gates)
    with Lab(root / "lab") as lab:
        lab.start_hub()
        lab.start_agent("device")
        options = (*_OPTIONS, "--ngraph-against=HEAD", "--ngraph-gate-changes", "--ngraph-device=device")
        registry = f"--ngraph-config={lab.registry('device')}"
        return [seconds(gated, *options, registry) for _ in range(runs)]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--gates", type=int, default=50, help="gates in which nothing changed")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each kind")
    parser.add_argument("--goal", type=float, default=1.9, help="what the ratio of wall times may be")
    parser.add_argument("--goal-seconds", type=float, default=3.0, help="what the run without a change may take")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        say("a second side")
        measured = second_side(Path(folder), given.pairs)
        say("nothing changed")
        same = unchanged(Path(folder), given.gates, given.pairs)
        say("nothing changed, on a device")
        first, *later = unchanged_on_a_device(Path(folder), given.gates, 1 + given.pairs)
    ratio, beyond = median_interval(pair.ratio for pair in measured), median_interval(p.difference for p in same)
    took = median(pair.ours for pair in same)
    print_table(
        ("question", "figure"),
        [
            ("two sides / one, three launches of two cells, wall time", ratio.text()),
            (f"{given.gates} gates in which nothing changed, seconds", f"{took:.2f}"),
            ("of that beyond as many tests that do nothing, seconds", beyond.text()),
            ("the same on a device, seconds", f"{median(later):.2f}"),
            ("of the first run there, which ships the project and reads its models, seconds", f"{first:.2f}"),
        ],
    )
    missed = []
    if ratio.median > given.goal:
        missed.append(f"{ratio.median - given.goal:.2f} for a second side (goal: at most {given.goal:g} times one)")
    if took > given.goal_seconds:
        missed.append(f"{took - given.goal_seconds:.2f} s where nothing changed (goal: at most {given.goal_seconds:g})")
    figures: dict[str, Any] = {"second_side": measured, "gates": given.gates, "unchanged": same}
    figures["unchanged_on_a_device_seconds"] = [first, *later]
    finish(missed, given.json, figures)


if __name__ == "__main__":
    main()
