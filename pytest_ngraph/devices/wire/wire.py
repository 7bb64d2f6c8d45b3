"""What goes over the wire to a device and back: requests, and the numbered lines of JSON that answer them.

A request is one JSON object. A result is a list of lines ``[number, kind, fields]``, numbered from 0: the events of a
sink as they happen, then one of the kind ``answer``. Cells stand in lines by their place in the request.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pytest_ngraph import errors
from pytest_ngraph.devices.wire import values
from pytest_ngraph.launches.launch import GroupTooLarge, LaunchPlan
from pytest_ngraph.spec.achieved import NAMES
from pytest_ngraph.spec.cells import Cell, CompileRecord, ModelRef, Outcome, Protocol, Reading, Visit, digest
from pytest_ngraph.spec.resources import peaks
from pytest_ngraph.spec.resources.power import Power
from pytest_ngraph.texts.shown import cleaned, kept, one_line
from pytest_ngraph.worker.answers import clean_placement

# Raise this when a device of before and a client of after would misunderstand each other.
PROTO = 4
METHODS = (
    "hello", "missing", "sides", "known", "artifacts", "build", "tune", "launch", "memory", "evaluate", "agree",
    "power",
)  # fmt: skip
# Results that cost minutes: a device keeps them until it is asked again.
KEPT = ("launch", "memory", "evaluate", "agree", "power")
MOMENTS = ("begun", "blocks", "ended")
_READ_APART = ("outcome", "placement", "achieved", "evaluation", "agreed", "peaks", "unread", "power")
_SHOWN = 200
_PROGRESS_SECONDS = 1.0
# How long a launch may wait, and for what, says nothing of what it measures.
_UNSAID = ("states", "patience_seconds", "crowding")
_UNREADABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, OverflowError)
_WHOLE_FIELDS = (
    "model_bytes",
    "peak_memory_bytes",
    "tuning_trials",
    "peak_gpu_memory_bytes",
    "top1_matches",
    "top1_samples",
)
# Of outputs that cannot be compared it is infinite, or not a number.
_AGREEMENTS = ("max_error", "cosine", "centred_cosine")
# What ``environment.disturbance`` reads; None where the machine does not say.
_COUNTED = ("set_busy_seconds", "set_steal_seconds", "own_seconds", "throttled")
_ERRORS: Mapping[str, type[errors.NgraphError]] = {
    kind.__name__: kind
    for kind in (
        GroupTooLarge,
        errors.SpecError,
        errors.Unsupported,
        errors.CompileFailed,
        errors.DeviceBusy,
        errors.DeviceLost,
        errors.DeviceUnusable,
    )
}


@contextmanager
def strictly(what: str, read: str) -> Iterator[None]:
    """Turn whatever reading ``what`` raises into DeviceUnusable with what was read."""
    try:
        yield
    except _UNREADABLE as error:
        said = one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        raise errors.DeviceUnusable(f"{what} cannot be understood: {read[:_SHOWN]!r} ({said})") from None


# Requests


@dataclass(frozen=True, slots=True)
class Request:
    """One method of a bench, to be run on a device.

    ``bench`` is what the bench there is made of (device, seed, protocol, limits, import path, project, environment),
    ``asked`` what the method takes, and ``terms`` what the result does not depend on.
    """

    method: str
    bench: Mapping[str, Any]
    asked: Mapping[str, Any] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the request as JSON."""
        named = {"method": self.method, "bench": self.bench, "asked": self.asked, "terms": self.terms}
        return json.dumps({"proto": PROTO, **named})

    @classmethod
    def from_text(cls, text: str) -> Request:
        """Read a request. Raise DeviceUnusable for one that is broken or speaks another protocol."""
        with strictly("the request", text):
            data = json.loads(text)
            proto = values.whole(data["proto"])
        if proto != PROTO:
            raise errors.DeviceUnusable(f"the client speaks protocol {proto}, this agent {PROTO}; upgrade the older")
        with strictly("the request", text):
            if data["method"] not in METHODS:
                raise ValueError(f"unknown method {data['method']!r}")
            return cls(
                data["method"],
                values.mapping(data["bench"]),
                values.mapping(data["asked"]),
                values.mapping(data["terms"]),
            )

    @property
    def digest(self) -> str:
        """Return what a result is kept under: the same request, however long it may wait, has the same result.

        That of a launch has the evidence keys of its cells, so it is not the same once the software there is another.
        """
        asked = dict(self.asked)
        if "plan" in asked:
            asked["plan"] = {key: value for key, value in asked["plan"].items() if key not in _UNSAID}
        return digest([PROTO, self.method, dict(self.bench), asked])


def moved(cell: Cell, where: Callable[[ModelRef], ModelRef]) -> Cell:
    """Return a cell with its model, and that of its neighbour, found in another place."""
    workload = cell.workload
    beside = None if workload.beside is None else where(workload.beside)
    return replace(cell, workload=replace(workload, model=where(workload.model), beside=beside))


def plan_moved(plan: LaunchPlan, where: Callable[[ModelRef], ModelRef]) -> LaunchPlan:
    """Return a plan with its models found in another place. Of the artifacts only those that its cells read."""
    cells = {cell: moved(cell, where) for cell in plan.cells}
    artifacts = {cells[cell]: key for cell, key in plan.artifacts.items() if cell in cells}
    return replace(plan, cells=tuple(cells.values()), artifacts=artifacts)


def plan_to_json(plan: LaunchPlan) -> dict[str, Any]:
    """Return a JSON-able form of a plan. Of the artifacts only those that its cells read."""
    return {
        "cells": [cell.to_json() for cell in plan.cells],
        "protocol": plan.protocol.to_json(),
        "seed": plan.seed,
        "artifacts": [plan.artifacts.get(cell) for cell in plan.cells],
        "splittable": plan.splittable,
        "states": [_reading_to_json(state) for state in plan.states],
        "patience_seconds": plan.patience_seconds,
        "crowding": plan.crowding,
        "slow_call_seconds": plan.slow_call_seconds,
        "spare_memory_share": plan.spare_memory_share,
        "own_outputs": plan.own_outputs,
    }


def plan_from_json(data: Mapping[str, Any]) -> LaunchPlan:
    """Read the form that ``plan_to_json`` writes."""
    cells = tuple(Cell.from_json(each) for each in data["cells"])
    keys = {cell: values.text(key) for cell, key in zip(cells, data["artifacts"], strict=True) if key is not None}
    return LaunchPlan(
        cells,
        Protocol(**data["protocol"]),
        values.whole(data["seed"]),
        keys,
        bool(data["splittable"]),
        tuple(values.reading(state) for state in data["states"]),
        values.real(data["patience_seconds"]),
        values.real(data["slow_call_seconds"]),
        values.real(data["spare_memory_share"]),
        values.flag(data["own_outputs"]),
        None if data.get("crowding") is None else values.real(data["crowding"]),
    )


# Lines, as a device writes them


class Lines:
    """A sink on the device, which writes what it gets as numbered lines."""

    def __init__(self, write: Callable[[str], None], cells: Sequence[Cell] = ()) -> None:
        self._write = write
        self._number = 0
        self.know(cells, str)
        self._doing, self._said = "", -_PROGRESS_SECONDS

    def know(self, cells: Sequence[Cell], reported: Callable[[str], str]) -> None:
        """Learn the cells of a request, and how to rewrite texts for a person to whom paths here say nothing."""
        self._numbers, self._reported = {cell: number for number, cell in enumerate(cells)}, reported

    def say(self, kind: str, **fields: Any) -> None:
        """Write one line."""
        self._write(json.dumps([self._number, kind, fields], separators=(",", ":")))
        self._number += 1

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        """Write what preparing a cell gave."""
        record = replace(record, reason=self._reported(record.reason))
        self.say("prepared", cell=self._numbers[cell], record=record.to_json())

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        """Write one visit."""
        arrays = {each.name: getattr(visit, each.name) for each in fields(visit) if each.compare}
        if visit.stolen_ns:
            arrays["stolen_ns"] = visit.stolen_ns
        if visit.around:
            arrays["around"] = [_pair_to_json(pair) for pair in visit.around]
        self.say("visited", cell=self._numbers[cell], block=block, position=position, visit=arrays)

    def block_done(self, block: int, readings: tuple[Reading, Reading] | None) -> None:
        """Write that a block is complete."""
        self.say("block_done", block=block, readings=readings and _pair_to_json(readings))

    def progress(self, doing: str, done: int, total: int) -> None:
        """Write what is being done. At most once a second where only the step differs."""
        now, what = time.monotonic(), doing.partition(" ")[0]
        if what != self._doing or now - self._said >= _PROGRESS_SECONDS:
            self._doing, self._said = what, now
            self.say("progress", doing=self._reported(doing), done=done, total=total)

    def surroundings(self, when: str, snapshot: Mapping[str, Any]) -> None:
        """Write the state of the machine."""
        self.say("surroundings", when=when, snapshot=dict(snapshot))

    def note(self, text: str) -> None:
        """Write what a user wants to know at once."""
        self.say("note", text=self._reported(text))

    def answer(self, value: Any) -> None:
        """Write what the request gave: the last line."""
        self.say("answer", ok=True, value=value)

    def refuse(self, error: BaseException) -> None:
        """Write why the request gave nothing: the last line."""
        self.say("answer", **refusal(error, self._reported))


def refusal(error: BaseException, reported: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the answer to a request that raised. An error that is not this package's comes with its traceback."""
    name = next((each.__name__ for each in type(error).__mro__ if each.__name__ in _ERRORS), None)
    if name is not None or isinstance(error, errors.NgraphError):
        return {"ok": False, "error": name or "CompileFailed", "reason": reported(str(error))}
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-6))
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return {"ok": False, "error": "DeviceUnusable", "reason": reported(kept(f"{reason}\n{detail}".rstrip()))}


# Lines, as a client reads them


@dataclass(frozen=True, slots=True)
class Event:
    """A line: its number, its kind, and what the method of a sink of that name takes."""

    number: int
    kind: str
    values: tuple[Any, ...]

    def play(self, sink: object) -> None:
        """Call the sink's method of this kind."""
        getattr(sink, self.kind)(*self.values)


def event_of(line: str, cells: Sequence[Cell] = ()) -> Event:
    """Read a line. Raise DeviceUnusable with what was read where it is not one."""
    with strictly("a line of the device", line):
        number, kind, fields = json.loads(line)
        return Event(values.whole(number), kind, _VALUES[kind](values.mapping(fields), cells))


def event_kind(line: str) -> str:
    """Return the kind of a line. Raise DeviceUnusable with what was read where it is not one."""
    with strictly("a line of the device", line):
        number, kind, fields = json.loads(line)
        values.whole(number), values.mapping(fields)
        return values.text(kind)


def is_final(line: str) -> bool:
    """Return whether an answer is what measuring gave, and not a failure that another try may not have."""
    answer = json.loads(line)[2]
    return bool(answer["ok"]) or answer["error"] == GroupTooLarge.__name__


def lines_of(text: str) -> list[str]:
    """Return the lines of a result, of which the last is its answer. Raise DeviceUnusable where that is not so."""
    with strictly("the device's answer", text):
        lines = [json.dumps(line, separators=(",", ":")) for line in json.loads(text)]
        if json.loads(lines[-1])[1] != "answer":
            raise ValueError("its last line is no answer")
        return lines


def result_of(lines: Sequence[str]) -> str:
    """Return the lines of a result as the one JSON text that ``lines_of`` reads."""
    return f"[{','.join(lines)}]"


def value_of(answer: Mapping[str, Any], device: str) -> Any:
    """Return what a request gave. Raise the error that it ended with, which then names the device."""
    if answer["ok"]:
        return answer["value"]
    raise _ERRORS[answer["error"]](f"device {device!r}: {answer['reason']}")


def check_outcome(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a worker's answer if it is one, or raise one of the errors that ``strictly`` turns around."""
    if type(answer["ok"]) is not bool:
        raise TypeError(f"ok is {answer['ok']!r}")
    if not answer["ok"]:
        Outcome(answer["outcome"])
        return {**answer, "reason": values.said(answer["reason"])}
    return answer


def record_from_json(data: Mapping[str, Any]) -> CompileRecord:
    """Read what ``CompileRecord.to_json`` writes, with every value checked."""
    record = CompileRecord.from_json(data)
    for each in fields(record):
        value = getattr(record, each.name)
        # What passes gave is checked where it is read, and the rest below.
        if each.name in _READ_APART or (value is None and each.default is None):
            continue
        if isinstance(each.default, str):
            values.text(value)
        elif each.name in ("loaded", "outputs_told_apart"):
            values.flag(value)
        elif each.name == "warmup_seconds":
            for seconds in value:
                values.seconds(seconds)
        elif each.name in _WHOLE_FIELDS:
            values.count(value)
        elif each.name in _AGREEMENTS:
            values.number(value)
        else:
            values.seconds(value)
    return replace(
        record,
        reason=values.said(record.reason),
        implausible=values.said(record.implausible),
        placement=clean_placement(record.placement),
        achieved=tuple((_counted(name, NAMES), values.count(number)) for name, number in record.achieved),
        peaks=tuple((_counted(name, peaks.NAMES), values.count(number)) for name, number in record.peaks),
        unread=tuple((values.line(name), values.said(why)) for name, why in record.unread),
        power=None if record.power is None else _said_of_power(record.power),
    )


def _said_of_power(power: Power) -> Power:
    return replace(
        power,
        covers=values.line(power.covers),
        why_no_energy=values.said(power.why_no_energy),
        why_no_load=values.said(power.why_no_load),
        invalid=values.said(power.invalid),
    )


def _counted(name: str, names: Collection[str]) -> str:
    """Return the name of a number, of a network or of a peak. Raise ValueError for one that is not known."""
    if name not in names:
        raise ValueError(f"{name!r} counts nothing that is known")
    return name


def snapshot_from_json(data: Any) -> Mapping[str, Any]:
    """Read what ``environment.snapshot`` gave on a device."""
    snapshot: Mapping[str, Any] = cleaned(values.mapping(data))
    values.real(snapshot["at"])
    for name in _COUNTED:
        if snapshot[name] is not None:
            values.real(snapshot[name])
    if snapshot["governor"] is not None:
        values.text(snapshot["governor"])
    return snapshot


def _prepared(fields: Mapping[str, Any], cells: Sequence[Cell]) -> tuple[Any, ...]:
    return _one_of(cells, fields["cell"]), record_from_json(fields["record"])


def _visited(fields: Mapping[str, Any], cells: Sequence[Cell]) -> tuple[Any, ...]:
    visit = values.visit(values.mapping(fields["visit"]))
    return _one_of(cells, fields["cell"]), values.count(fields["block"]), values.count(fields["position"]), visit


def _block_done(fields: Mapping[str, Any], cells: Sequence[Cell]) -> tuple[Any, ...]:
    readings = fields["readings"]
    return values.count(fields["block"]), None if readings is None else values.pair(readings)


def _progress(fields: Mapping[str, Any], cells: Sequence[Cell]) -> tuple[Any, ...]:
    return values.line(fields["doing"]), values.count(fields["done"]), values.count(fields["total"])


def _surroundings(fields: Mapping[str, Any], cells: Sequence[Cell]) -> tuple[Any, ...]:
    if fields["when"] not in MOMENTS:
        raise ValueError(f"when is {fields['when']!r}")
    return fields["when"], snapshot_from_json(fields["snapshot"])


def _note(fields: Mapping[str, Any], cells: Sequence[Cell]) -> tuple[Any, ...]:
    return (values.said(fields["text"]),)


def _answer(fields: Mapping[str, Any], cells: Sequence[Cell]) -> tuple[Any, ...]:
    if not values.flag(fields["ok"]):
        if fields["error"] not in _ERRORS:
            raise ValueError(f"unknown error {fields['error']!r}")
        return ({**fields, "reason": values.said(fields["reason"])},)
    fields["value"]
    return (fields,)


_VALUES: Mapping[str, Callable[[Mapping[str, Any], Sequence[Cell]], tuple[Any, ...]]] = {
    "prepared": _prepared,
    "visited": _visited,
    "block_done": _block_done,
    "progress": _progress,
    "surroundings": _surroundings,
    "note": _note,
    "answer": _answer,
}


def _pair_to_json(pair: tuple[Reading, Reading]) -> list[Any]:
    return [_reading_to_json(each) for each in pair]


def _reading_to_json(reading: Reading) -> list[Any]:
    return [reading.arithmetic_ns, list(reading.crossing_ns)]


def _one_of(cells: Sequence[Cell], number: Any) -> Cell:
    place = values.whole(number)
    if not 0 <= place < len(cells):
        raise IndexError(f"cell {place} of {len(cells)}")
    return cells[place]
