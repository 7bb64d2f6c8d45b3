"""What a worker's answers say, as records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.spec.cells import CompileRecord, Outcome, Visit
from pytest_ngraph.texts.shown import kept, one_line

DEVICE_TIMES = ("device_call_seconds", "copy_in_seconds", "copy_out_seconds")
# What really ran is some facts, each a word or a line.
_FACTS, _NAME_LETTERS, _FACT_LETTERS = 64, 100, 1000


def clean_placement(facts: Iterable[Sequence[Any]]) -> tuple[tuple[str, str], ...]:
    """Return what an adapter says of where it really ran, each fact as one line of limited length."""
    first = itertools.islice(facts, _FACTS)
    return tuple((one_line(str(name), _NAME_LETTERS), one_line(str(fact), _FACT_LETTERS)) for name, fact in first)


def number_of(whose: str, name: str, value: Any, *, whole: bool = False) -> float | int | None:
    """Return a number that an adapter gives, or None. Raise CompileFailed for what is none, or below zero."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0) or isinstance(value, (bool, str)):
        raise CompileFailed(f"{whose} {name} is {one_line(repr(value), 60)} (expected a number from 0, or None)")
    return int(number) if whole else number


def refusal(answer: Mapping[str, Any]) -> str:
    """Return the reason in an answer that is not ok, clean and no longer than is kept."""
    return kept(str(answer["reason"]))


def record_of(answer: Mapping[str, Any]) -> CompileRecord:
    """Return the record that an answer to ``prepare`` gives, before its outputs are compared."""
    if not answer["ok"]:
        return CompileRecord(Outcome(answer["outcome"]), refusal(answer))
    placement = clean_placement(answer["placement"])
    return CompileRecord(
        Outcome.OK,
        export_seconds=answer["export_seconds"],
        compile_seconds=answer["compile_seconds"],
        loaded=answer["loaded"],
        built_seconds=answer["built_seconds"],
        first_call_seconds=answer["first_call_seconds"],
        model_bytes=answer["model_bytes"],
        placement=placement,
        tuning_seconds=answer["tuning_seconds"],
        tuning_trials=answer["tuning_trials"],
        new_shape_seconds=answer.get("elsewhere", {}).get("seconds"),
        achieved=tuple((name, int(count)) for name, count in answer["achieved"]),
        **answer["device_times"],
    )


def visit_of(answer: Mapping[str, Any]) -> Visit:
    """Return the visit that an answer to ``visit`` gives."""
    names = ("wall_ns", "cpu_ns", "run_delay_ns", "faults", "request_ns")
    arrays: dict[str, Any] = {name: tuple(answer[name]) for name in names}
    return Visit(calls=int(answer["calls"]), **arrays)
