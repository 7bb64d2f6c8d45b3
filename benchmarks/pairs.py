"""Two things measured in turn, what their pairs say, and how every script here prints and keeps it."""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from pytest_ngraph.machine.facts import describe, summary_line


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure of each side, taken directly after one another."""

    ours: float
    theirs: float

    @property
    def difference(self) -> float:
        return self.ours - self.theirs

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some values and an interval that holds the true median at this confidence."""

    median: float
    low: float
    high: float
    confidence: float

    def text(self, factor: float = 1.0, digits: int = 2) -> str:
        low, high = (f"{factor * end:.{digits}f}" for end in (self.low, self.high))
        return f"{factor * self.median:.{digits}f} [{low}, {high}] ({100 * self.confidence:.0f} %)"


@dataclass(frozen=True, slots=True)
class Finished:
    """What a child process took: wall seconds and peak resident bytes."""

    seconds: float
    peak_bytes: int


def alternate(ours: Callable[[], float], theirs: Callable[[], float], pairs: int, *, warmups: int = 0) -> list[Pair]:
    """Take one figure of each side in turn, in the order A B B A, so that a drift hits both alike."""
    for _ in range(warmups):
        ours()
        theirs()
    taken = []
    for number in range(pairs):
        if number % 2 == 0:
            mine = ours()
            other = theirs()
        else:
            other = theirs()
            mine = ours()
        taken.append(Pair(mine, other))
        say(f"pair {number + 1} of {pairs}: {mine:.4g} against {other:.4g}")
    return taken


def median_interval(values: Iterable[float], confidence: float = 0.95) -> Spread:
    """Return the median with its sign-test interval, which assumes nothing about how the values are distributed.

    It runs from the k-th smallest to the k-th largest of n values and misses the true median with probability
    2 P(Binomial(n, 1/2) < k). The narrowest that reaches ``confidence`` is taken; few values reach less than asked.
    """
    ordered = sorted(values)
    count = len(ordered)
    reached = [1 - 2 * sum(math.comb(count, i) for i in range(k)) / 2**count for k in range(1, count // 2 + 1)]
    k = max((k for k, level in enumerate(reached, start=1) if level >= confidence), default=1)
    return Spread(statistics.median(ordered), ordered[k - 1], ordered[-k], reached[k - 1] if reached else 0.0)


def run_child(command: Sequence[str], folder: Path) -> Finished:
    """Run a command with its output discarded; show the end of what it said where it fails.

    Its peak counts from this process's own, which the kernel hands on at the fork: these scripts stay small.
    Bytecode is kept, as users keep it: a shell that forbids it has every run compile all modules.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with (folder / "child-errors.txt").open("w+b") as errors:
        began = perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            said = errors.read()[-2000:].decode("utf-8", "replace")
            raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}\n{said}")
    return Finished(seconds, used.ru_maxrss * 1024)


def say(text: str) -> None:
    """Tell on standard error how far a script is: standard output is the table."""
    print(text, file=sys.stderr, flush=True)


def options(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with what every script takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="also write the raw figures here")
    return parser


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a Markdown table."""
    for line in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(map(str, line))} |")


def finish(missed: Sequence[str], file: Path | None, figures: Mapping[str, Any]) -> None:
    """Say where this was measured and how the goals went; write the raw figures where that was asked for."""
    machine, load = describe(), os.getloadavg()
    verdict = f"goal missed by {'; '.join(missed)}" if missed else "goal met"
    if file is not None:
        content = {"verdict": verdict, **figures, "load_at_the_end": load, "machine": machine}
        file.write_text(json.dumps(content, indent=1, default=asdict) + "\n", encoding="utf-8")
    print(f"\n{summary_line(machine)}; load average at the end {load[0]:.1f} (1 min), {load[2]:.1f} (15 min)\n")
    print(verdict)
