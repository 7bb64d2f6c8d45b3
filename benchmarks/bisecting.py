"""Does bisecting name the commit that added a layer, in real repositories, and never one that added nothing?"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from benchmarks.pairs import finish, print_table, say
from benchmarks.resumed import made_sets, set_options
from benchmarks.sets import Json
from benchmarks.verdicts import clopper_pearson
from tests.support.git_repository import commit, git

FILE = Path(__file__).with_name("results") / "bisecting.json"
# Histories with a commit that adds a layer, and such without one (A/A).
SLOW, EQUAL = "one adds a layer", "none does"
# Candidates of a history, and layers before one is added.
COMMITS, LAYERS = 6, 12
# A network that is nothing but its layers, each a real product of matrices.
_NET = """
LAYERS = {layers}
"""
_ADAPTERS = """
import numpy as np

from net import LAYERS
from pytest_ngraph import Compiler, Executable


class Chain(Executable):
    placement = {"provider": "numpy"}

    def bind(self, inputs):
        draw = np.random.default_rng(0)
        self.layers = [draw.standard_normal((96, 96), dtype=np.float32) / 10 for _ in range(LAYERS)]
        self.values = draw.standard_normal((64, 96), dtype=np.float32)

    def run(self):
        values = self.values
        for layer in self.layers:
            values = np.maximum(values @ layer, 0.0)

    def outputs(self):
        return None


class Chained(Compiler):
    name = "chain"
    reads = "nothing"

    def compile(self, workload, device, options):
        return Chain()


CHAIN = Chained()
"""
_CONFTEST = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("chain", "adapters:CHAIN")
"""
_SUITE = """
import pytest

@pytest.mark.ngraph(model="block:conv", batch=1, compilers="chain")
def test_speed(ngraph_cell):
    pass
"""


def write_history(folder: Path, commits: int, slow: int, layers: int) -> list[str]:
    """Make a repository whose commit ``slow``, of 1 to ``commits``, adds a layer. Return the hashes, the good first.

    Every commit changes another file as well. With ``slow`` 0 none adds a layer.
    """
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text(".ngraph/\n__pycache__/\n")
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "test_speed.py").write_text(_SUITE)
    hashes = []
    for number in range(commits + 1):
        files = {
            "net.py": _NET.format(layers=layers + bool(slow and number >= slow)),
            # Its module is imported by what is measured, so that no commit is the same as the one before it.
            "adapters.py": f"{_ADAPTERS}\nCHANGE = {number}\n",
        }
        hashes.append(commit(folder, files, f"change {number}"))
    return hashes


def search(commits: int, slow: int, layers: int, seed: int, behind: Sequence[str]) -> dict[str, Any]:
    """Search one history. ``named`` is the commit that was named, 0 where none was."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        hashes = write_history(folder, commits, slow, layers)
        began = monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest_ngraph.cli", "bisect", hashes[0], hashes[-1], "--",
             "test_speed.py", "--ngraph-baseline=null", f"--ngraph-seed={seed}", *behind],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])},
            capture_output=True,
            text=True,
        )  # fmt: skip
        seconds = monotonic() - began
        if done.returncode not in (0, 1):
            raise SystemExit(f"ngraph bisect ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        first = next((line for line in done.stdout.splitlines() if line.startswith("first bad: ")), "")
        (file,) = (folder / ".ngraph").glob("bisect-*.json")
        steps = json.loads(file.read_text())["steps"]
    return {
        "seed": seed,
        "slow": slow,
        "named": hashes.index(first.removeprefix("first bad: ")) if first else 0,
        "nothing_slower": any(line.startswith("nothing here is slower: ") for line in done.stdout.splitlines()),
        "is_open": any(step["answer"] == "open" for step in steps),
        "said": done.stdout,
        "judgements": len(steps),
        "launches": sum(step["launches"] for step in steps),
        "seconds": seconds,
    }


def make(row: str, number: int, behind: Sequence[str]) -> Json:
    """Make one search; which commit is slow is drawn by its number."""
    slow = random.Random(number).randint(1, COMMITS) if row == SLOW else 0
    one = search(COMMITS, slow, LAYERS, number, behind)
    say(f"slow {slow or 'none'}, named {one['named'] or 'none'}, {one['launches']} launches")
    return {**one, "wall_seconds": round(one.pop("seconds"), 1)}


def main() -> None:
    """Make searches until the time is over or there are enough of each kind, and print what they named."""
    parser = set_options(__doc__, FILE, minutes=15.0, most=10)
    parser.add_argument("--behind", default="", help="further arguments for pytest")
    given = parser.parse_args()
    sets = made_sets(given, [SLOW, EQUAL], lambda row, number, _: make(row, number, given.behind.split()), say)
    found = sets.all
    rows = [
        (
            each["row"],
            each["seed"],
            each["slow"] or "none",
            each["named"] or ("none: nothing slower" if each["nothing_slower"] else "none: undecided"),
            each["judgements"],
            each["launches"],
            f"{each['wall_seconds']:.0f}",
        )
        for each in found
    ]
    print_table(("history", "seed", "slow commit", "named", "judgements", "launches", "s"), rows)
    named = [each for each in found if each["named"]]
    wrong = [each for each in named if each["named"] != each["slow"]]
    print(f"\nnamed: {len(named)} of {len(found)}, rightly {len(named) - len(wrong)}")
    equal = [each for each in found if not each["slow"]]
    if equal:
        false = sum(bool(each["named"]) for each in equal)
        nothing = sum(each["nothing_slower"] for each in equal)
        _, most = clopper_pearson(false, len(equal))
        print(
            f"A/A: {len(equal)} searches of equal code, {nothing} said that nothing is slower, {false} named a commit"
        )
        print(f"     (at most {100 * most:.0f} % of such searches name one, at 95 %)")
    missed = [f"search {each['seed']}, which named {each['named']}" for each in wrong]
    finish([*missed, *(f"no search: {row}" for row in (SLOW, EQUAL) if not sets.of(row))], None, {})


if __name__ == "__main__":
    main()
