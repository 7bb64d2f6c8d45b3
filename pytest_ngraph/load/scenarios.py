"""Scenarios as they are written: ``latency``, ``throughput``, or ``server[rate=20]`` with how many calls arrive."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from pytest_ngraph.axes import SCENARIOS
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.texts.shown import one_line

SERVER = "server"
LEAST_RATE, MOST_RATE = 1.0, 100_000.0
FORM = (
    f"{', '.join(SCENARIOS)}, or {SERVER}[rate=N] with N calls a second from {LEAST_RATE:g} to {MOST_RATE:.0f}, "
    f"such as {SERVER}[rate=20]"
)
# Calls that a compiler keeps in flight: its option, where it has one.
_REQUESTS = "requests"
_SERVER = re.compile(SERVER + r"\s*\[\s*rate\s*=\s*([^\],]*?)\s*\]\Z")
_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?\Z")


def normal(text: str) -> str:
    """Return the normal form of a scenario. Raise SpecError that says what is allowed."""
    text = text.strip()
    if text in SCENARIOS:
        return text
    rate = rate_of(text)
    if rate is None:
        raise SpecError(f"scenario {one_line(text)!r} is not allowed (allowed: {FORM})")
    return server(rate)


def server(rate: float) -> str:
    """Return the scenario in which so many calls arrive a second, in its normal form."""
    return f"{SERVER}[rate={f'{rate:.3f}'.rstrip('0').rstrip('.')}]"


@lru_cache(maxsize=256)
def rate_of(scenario: str) -> float | None:
    """Return how many calls arrive a second, or None where each is made when there is room for it.

    Raises SpecError for a rate that is not allowed.
    """
    found = _SERVER.match(scenario)
    if found is None:
        return None
    given = found[1]
    if not _NUMBER.match(given) or not LEAST_RATE <= float(given) <= MOST_RATE:
        raise SpecError(
            f"scenario {one_line(scenario)!r}: rate={one_line(given)!r} is not allowed (expected calls a second from "
            f"{LEAST_RATE:g} to {MOST_RATE:.0f}, with three decimals at most)"
        )
    return float(given)


def slots_of(cell: Cell) -> int:
    """Return how many calls of a cell under load run beside each other: one, or what its compiler was told."""
    given = dict(cell.compiler.options).get(_REQUESTS, "")
    return int(given) if given.isdecimal() and int(given) else 1


def as_compiled(cell: Cell) -> Cell:
    """Return a cell as its compiler sees it: what arrives, and when, and what runs beside it, is none of its business.

    Under load it is compiled for one call after the other, with ``requests=N`` for so many in flight.
    """
    if cell.workload.neighbour != "none":
        cell = replace(cell, workload=replace(cell.workload, neighbour="none", beside=None))
    workload = cell.workload
    if rate_of(workload.scenario) is None:
        return cell
    several = dict(cell.compiler.options).get(_REQUESTS, "0") != "0"
    return replace(cell, workload=replace(workload, scenario="throughput" if several else "latency"))
