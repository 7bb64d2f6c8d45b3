"""Which stored passes for memory count in a claim of today."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pytest_ngraph.session.untimed import UntimedPasses
from pytest_ngraph.spec.cells import CompileRecord, LaunchRecord, Outcome
from tests.support.measuring import cell

CELL = cell("null")


def passed(number: int, **said: Any) -> LaunchRecord:
    return LaunchRecord(number, number, "gate", {CELL: CompileRecord(Outcome.OK, peak_memory_bytes=1, **said)}, {})


def test_a_pass_that_left_children_out_counts_no_longer() -> None:
    old, read, silent = (
        passed(1),
        passed(2, peaks=(("running", 2),)),
        passed(3, unread=(("run_peak_memory_bytes", "no /proc"),)),
    )
    store = SimpleNamespace(launches=lambda evidence, kind: [old, read, silent] if kind == "memory" else [])

    run = SimpleNamespace(_run=SimpleNamespace(store=store))
    found = UntimedPasses._memory_passes(cast("UntimedPasses", run), {CELL: "e"})

    assert [one.number for one in found] == [2, 3]
