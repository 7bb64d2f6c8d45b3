"""A machine that pretends to measure: launches take no time, and what they would give is known beforehand.

For what must hold of verdicts whatever the machine says: who measures, how often, and what a second run makes of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Suite

# A conftest of a suite. A call of null takes its ``fixed_us``, that of any other compiler a millisecond; every other
# launch finds all but the baseline 1 % slower. ``PRETEND_FACTOR`` makes them slower still, from launch
# ``PRETEND_FROM`` on; ``PRETEND_SECONDS`` is how long a launch takes. Each launch leaves a line in measured.log. In the
# scenario throughput four calls are in flight.
CONFTEST = """
import os
import time
from pathlib import Path

from pytest_ngraph.machine import facts as environment
from pytest_ngraph.devices import local, lock
from pytest_ngraph.spec.cells import CompileRecord, Outcome, Visit

LOG = Path(__file__).with_name("measured.log")


def visit(cell, call_ns):
    if cell.workload.scenario == "latency":
        return Visit(1, (call_ns,) * 9)
    return Visit(4, (call_ns,) * 9, request_ns=(call_ns,) * 36)


def pretended(job, plan, sink, *, spare_memory):
    number = len(LOG.read_text().splitlines()) if LOG.exists() else 0
    factor = float(os.environ.get("PRETEND_FACTOR", "1"))
    if number < int(os.environ.get("PRETEND_FROM", "0")):
        factor = 1
    factor *= 1 + 0.01 * (number % 2)
    time.sleep(float(os.environ.get("PRETEND_SECONDS", "0")))
    baselines = {str(cell.compiler) for cell in plan.cells if cell.replica}
    wall_ns = {}
    for cell in plan.cells:
        wall_ns[cell] = 1000 * float(dict(cell.compiler.options).get("fixed_us", 1000))
        wall_ns[cell] *= 1 if str(cell.compiler) in baselines else factor
        sink.prepared(cell, CompileRecord(Outcome.OK, call_seconds=wall_ns[cell] * 1e-9))
    for block in range(plan.protocol.blocks):
        for position, cell in enumerate(plan.cells):
            sink.visited(cell, block, position, visit(cell, round(wall_ns[cell])))
        sink.block_done(block, None)
    with LOG.open("a") as log:
        log.write(f"{time.time()}\\n")


local.run_launch = pretended
environment.disturbance = lambda *_: ""
# The processes of this suite exclude each other; they need not wait for who really measures.
lock.lock_path = lambda device: LOG.with_name(f"{device}.lock")
"""
# Twice as fast as its baseline.
TWICE = ("--ngraph-compiler=null[fixed_us=1000]", "--ngraph-baseline=null[fixed_us=2000]")
CLAIM = """
@pytest.mark.ngraph(model="block:conv", batch=1{terms})
def test_claim(ngraph_cell): assert_speedup(ngraph_cell, at_least={at_least})
"""


def claim(at_least: float, terms: str = "") -> str:
    """Return a test that claims a speed-up; ``terms`` are further keywords of its marker."""
    return CLAIM.format(at_least=at_least, terms=f", {terms}" if terms else "")


# No number of launches decides this: half of them are a little above the bound, the others a little below.
UNDECIDABLE = claim(1.99, "tolerance=1e-9, budget=4")


class Pretended(Suite):
    """A suite whose launches are pretended."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        super().__init__(pytester)
        (self.path / "conftest.py").write_text(CONFTEST)

    @property
    def measured(self) -> int:
        """Return how many launches were measured so far, by whatever run and process."""
        log = self.path / "measured.log"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def add_compilers(self, folder: str = ".") -> None:
        """Write adapters and a conftest that offers them and pretends."""
        super().add_compilers(folder)
        place = Path(self.path / folder / "conftest.py")
        place.write_text(CONFTEST + place.read_text())
