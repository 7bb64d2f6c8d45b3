"""``ngraph bounds``: proposes a file of bounds from what a run measured, with the margins that its noise asks for."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING

from pytest_ngraph.commands.base import Commands, add_command, add_store
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.commands.stored import stored_run
from pytest_ngraph.errors import SpecError
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.bounds import HELPERS, SIDES
from pytest_ngraph.report.results.verdicts import is_by_history
from pytest_ngraph.spec.cells import target_parts
from pytest_ngraph.stats.verdict import Verdict

if TYPE_CHECKING:
    from pytest_ngraph.store.rows import VerdictRow

_JUDGED = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
_DIGITS = 3


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "bounds", _run, "Propose a file of bounds from what a run measured")
    parser.add_argument("what", choices=("propose",), help="propose: print it, for ngraph_bounds in the ini file")
    parser.add_argument("--run", type=int, metavar="N", dest="number", help="Run (default: the latest under gate)")
    add_store(parser, "Store of results")


def _run(given: argparse.Namespace) -> None:
    with stored_run(store_path(given.store), given.number, "gate") as (store, run):
        rows, facts = store.verdicts(run.id), run.environment
    lines = proposed(rows)
    if not lines:
        raise SpecError(
            f"run {run.id} judged no claim that has a bound (claims of the protocol gate have one: "
            "assert_speedup(cell, at_least=1) for a start)"
        )
    where = " ".join(f"{facts.get('node', '')}, {facts.get('cpu', '')}".split())
    print(f"# Of run {run.id}, {run.started_at[:10]}. These are this machine's: {where}")
    print("\n".join(lines))


def proposed(rows: Iterable[VerdictRow]) -> list[str]:
    """Return the lines of a file of bounds: a table for each test, by helper and compiler.

    A bound is the end of the interval that the claim could fail by, so that what was measured holds it. Where the gate
    could not see its own tolerance it is as much further as what it could see: else the next run would be undecided.
    Of several cells of one compiler the one that is furthest counts. Where a helper claims several quantities in a
    test, or from both sides, a file could give only one of the bounds to all of its claims: they are comments.
    """
    # By test and helper: by side and what is claimed, and by compiler.
    tests: dict[str, dict[str, dict[tuple[str, str], dict[str, float]]]] = {}
    for row in rows:
        helper, target = str(row.extra.get("helper", "")), str(row.extra.get("target", ""))
        # What is held to the history has its bound by itself.
        may_have = helper in HELPERS and row.verdict in _JUDGED and not is_by_history(row)
        bound = _bound(row) if may_have else None
        if bound is None or not target:
            continue
        test, side = row.nodeid.partition("[")[0], SIDES[0 if row.at_least else 1]
        device, compiler = target_parts(target)
        name = compiler if device in ("", "local") else target
        # A percentile of a metric is another thing than its mean. Of several batches each has the same one.
        kind = str(row.extra.get("name", "")).partition("@")[0] or row.metric
        known = tests.setdefault(test, {}).setdefault(helper, {}).setdefault((side, kind), {})
        further = min if row.at_least else max
        known[name] = further(known.get(name, bound), bound)
    lines: list[str] = []
    for test, helpers in tests.items():
        lines += ["", f"[{json.dumps(test)}]"]
        for helper, kinds in helpers.items():
            if len(kinds) > 1:
                lines.append(f"# {helper} claims {len(kinds)} things in this test: keep these bounds in the test.")
            for (side, kind), bounds in kinds.items():
                each = ", ".join(f"{json.dumps(name)} = {bound:g}" for name, bound in bounds.items())
                entry = f"{helper} = {{ {side} = {{ {each} }} }}"
                lines.append(entry if len(kinds) == 1 else f"# {entry}  # {kind}")
    return lines


def _bound(row: VerdictRow) -> float | None:
    """Return a bound that what was measured holds with a margin, or None where there is no number for one."""
    metric, end = METRICS.get(row.metric), row.low if row.at_least else row.high
    if metric is None or end is None or not math.isfinite(end) or row.tolerance is None:
        return None
    visible = max(row.smallest_effect or 0.0, row.tolerance)
    if not math.isfinite(visible):
        return None
    sign = -1 if row.at_least else 1
    if metric.scale == "log":
        if not end > 0 or (row.at_least and visible >= 1):
            return None
        bound = end * (1 + sign * visible) / (1 + sign * row.tolerance)
    else:
        bound = end + sign * (visible - row.tolerance)
    return _rounded(bound, up=not row.at_least)


def _rounded(value: float, *, up: bool) -> float:
    """Return a number with a few digits, rounded to the side on which it is easier to hold."""
    if not value:
        return value
    # Not the last digits, which are of how numbers are written here.
    exact = Decimal(f"{value:.10g}")
    step = Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1)
    return float(exact.quantize(step, rounding=ROUND_CEILING if up else ROUND_FLOOR))
