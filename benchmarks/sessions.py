"""Does equal code, measured in real sessions spread over hours, fail against the baseline that the first one saved?"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from benchmarks.pairs import finish, options, print_table, run_child, say
from benchmarks.sides import project
from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.report.baselines.comparing import Against
from pytest_ngraph.report.baselines.saved import Saved
from pytest_ngraph.report.baselines.saving import baseline_of_run
from pytest_ngraph.spec.cells import PROTOCOLS
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.units import seconds as in_seconds

_SUITE = """
import pytest

@pytest.mark.ngraph(model="net.py:Net", batch={batches})
def test_cell(ngraph_cell):
    ngraph_cell.latency
"""
_OPTIONS = (
    "--ngraph-compiler=onnxruntime",
    "--ngraph-baseline=onnxruntime[graph=basic]",
    "--ngraph-budget=3",
    "--ngraph-fresh",
    "--ngraph-inconclusive=warn",
)
TOLERANCE = 0.05
_SHOWN = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL, Verdict.INVALID, Verdict.NOT_JUDGED)


@dataclass(frozen=True, slots=True)
class Row:
    """What a session's metric of a cell was against the first session's."""

    session: int
    at: str
    cell: str
    metric: str
    ratio: float
    low: float
    high: float
    verdict: str


def compared(folder: Path, saved: Saved, session: int) -> Iterator[Row]:
    """Hold the latest run to a baseline as if its code were another: what is the same passes by being the same."""
    with Store.open(folder / ".ngraph" / "results.sqlite", read_only=True) as store:
        run = store.runs()[-1]
        machine = Machine.of(run.on("local").environment)
        held = replace(
            saved,
            cells=[replace(cell, evidence="another") for cell in saved.cells],
            sweeps=[replace(sweep, evidence="another") for sweep in saved.sweeps or ()],
        )
        against = Against(held, store, machine, PROTOCOLS["gate"], run.seed, folder)
        evidence = dict(store.cells(run.id))
        kept = against.now(evidence, store.baselines(run.id))
        sweeps = {sweep.key: TOLERANCE for some in kept for _, sweep, _ in some.sweeps}
        for one in against.compare(kept, dict.fromkeys(evidence, TOLERANCE), sweeps):
            change = one.change
            numbers = (change.value, change.low, change.high)
            yield Row(session, run.started_at, one.cell.label, one.metric, *numbers, one.verdict.value)


def first(folder: Path) -> Saved | None:
    """Return the baseline that the latest run makes, None where others left it no launch that counts."""
    with Store.open(folder / ".ngraph" / "results.sqlite", read_only=True) as store:
        try:
            return baseline_of_run(store, store.runs()[-1], "first", folder)
        except SpecError:
            return None


def judged(rows: Sequence[Row]) -> tuple[list[tuple[object, ...]], list[str]]:
    """Return what became of each metric's comparisons, as rows of a table, and where more than 1 % failed.

    One failure is allowed whatever the count: of so few comparisons it says nothing against 1 %.
    """
    table: list[tuple[object, ...]] = []
    missed = []
    for metric in sorted({row.metric for row in rows}):
        of_it = [row for row in rows if row.metric == metric]
        counts = Counter(row.verdict for row in of_it)
        worst = min((row.ratio for row in of_it if math.isfinite(row.ratio)), default=math.nan)
        table.append((metric, len(of_it), *(counts[one.value] for one in _SHOWN), f"{worst:.3f}"))
        failed = counts[Verdict.FAIL.value]
        if failed > max(1, 0.01 * len(of_it)):
            missed.append(f"{failed} of {len(of_it)} comparisons of {metric} failed (goal: 1 %)")
    return table, missed


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--sessions", type=int, default=30)
    parser.add_argument("--every", type=float, default=240.0, help="seconds from the begin of one to the next")
    given = parser.parse_args()
    rows: list[Row] = []
    with TemporaryDirectory() as place:
        folder = project(Path(place) / "measured", _SUITE, 2)
        saved: Saved | None = None
        for session in range(1, given.sessions + 1):
            began = monotonic()
            run_child([sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *_OPTIONS], folder)
            if saved is None:
                saved = first(folder)
            else:
                rows += compared(folder, saved, session)
            say(
                f"session {session} of {given.sessions} took {in_seconds(monotonic() - began)}: {len(rows)} comparisons"
            )
            if given.json is not None:
                # What there is, should it be ended.
                given.json.write_text(json.dumps({"rows": [asdict(row) for row in rows]}, indent=1))
            if session < given.sessions:
                sleep(max(0.0, given.every - (monotonic() - began)))
    table, missed = judged(rows)
    print_table(("metric", "comparisons", *(one.value for one in _SHOWN), "worst ratio"), table)
    finish(missed, given.json, {"sessions": given.sessions, "every_seconds": given.every, "rows": rows})


if __name__ == "__main__":
    main()
