"""The file of a saved baseline: one JSON object with a digest over it, written whole and read strictly."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.report.export.files import write_text
from pytest_ngraph.spec.cells import Cell, digest
from pytest_ngraph.spec.states import state_named
from pytest_ngraph.stats.sessions import Mean

FORMAT, SCHEMA = "pytest-ngraph baseline", 1
# In the rootdir, to be committed.
FOLDER = ".ngraph-baselines"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_LARGEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class SavedMetric:
    """A metric of a cell: value and interval in its unit, and the mean of its launches on the working scale."""

    value: float
    low: float
    high: float
    mean: Mean


@dataclass(frozen=True, slots=True)
class SavedCell:
    """A cell as it was measured.

    ``key`` finds it again in another checkout, ``evidence`` says whether anything of it has changed, ``threads`` how
    many its runtime had, ``state`` in which state the machine was (empty where it reported none).
    """

    key: str
    label: str
    device: str
    evidence: str
    baseline: str
    threads: str
    state: str
    metrics: Mapping[str, SavedMetric]


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved baseline. ``origin`` says which run it is of: number, uid, start, commit, and its launches' digest."""

    name: str
    saved_at: str
    made_by: str
    origin: Mapping[str, str]
    protocol: str
    seed: str
    machines: Mapping[str, Machine]
    cells: Sequence[SavedCell]

    def cell(self, key: str) -> SavedCell | None:
        """Return the cell of a key, or None."""
        return next((cell for cell in self.cells if cell.key == key), None)

    def with_cell(self, cell: SavedCell, machine: Machine) -> Saved:
        """Return the same with a cell more, or with another one in its place."""
        others = [one for one in self.cells if one.key != cell.key]
        return replace(self, cells=[*others, cell], machines={**self.machines, cell.device: machine})


def key_of(cell: Cell, rootdir: Path) -> str:
    """Return what finds a cell in another checkout and on another day: all that it is, files from the rootdir on."""
    data = cell.to_json()
    model = data["workload"]["model"]
    model["locator"] = model["locator"].removeprefix(f"{rootdir}/")
    workload = {name: value for name, value in data["workload"].items() if value is not None}
    return digest({**data, "workload": workload})[:32]


# Names


def path_of(name: str, rootdir: Path) -> Path:
    """Return where the baseline of a name is. Raise SpecError for what is no name."""
    if not _NAME.match(name) or name.endswith(".json"):
        raise SpecError(
            f"baseline {name!r} is not allowed (expected a name of letters, digits, '_', '-' and '.', at most 100, "
            "that begins with a letter or a digit and has no .json)"
        )
    return rootdir / FOLDER / f"{name}.json"


def names_in(rootdir: Path) -> list[str]:
    """Return the names of the baselines that are there."""
    found = (path.stem for path in (rootdir / FOLDER).glob("*.json"))
    return sorted(name for name in found if _NAME.match(name))


def named(text: str, rootdir: Path, invocation_dir: Path) -> Path:
    """Return the file of what ``--ngraph-compare`` was given: a name, or a file by a path or its ending."""
    return invocation_dir / text if "/" in text or text.endswith(".json") else path_of(text, rootdir)


def check(path: Path, missing: str) -> None:
    """Read a baseline before anything is measured. Raise SpecError for one that cannot be used.

    ``missing`` says what a cell that it does not have does. A file that is not there may be a name mistyped: only where
    cells are recorded it is made.
    """
    if missing != "record" or path.exists():
        read(path)


# Writing


def write(saved: Saved, path: Path) -> None:
    """Put a baseline in its file: readers see the old or the whole new one. Raise StoreError where it cannot be."""
    fields = _to_json(saved)
    text = json.dumps({**fields, "digest": digest(fields)}, indent=1, sort_keys=True, allow_nan=False)
    write_text(text + "\n", path)


def _to_json(saved: Saved) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "name": saved.name,
        "saved_at": saved.saved_at,
        "made_by": saved.made_by,
        "origin": dict(saved.origin),
        "protocol": saved.protocol,
        "seed": saved.seed,
        "machines": {
            device: {"name": one.name, "hardware": dict(one.hardware), "software": dict(one.software)}
            for device, one in saved.machines.items()
        },
        "cells": [_cell_to_json(cell) for cell in sorted(saved.cells, key=lambda cell: (cell.label, cell.key))],
    }


def _cell_to_json(cell: SavedCell) -> dict[str, Any]:
    names = ("key", "label", "device", "evidence", "baseline", "threads", "state")
    metrics = {
        name: {
            "value": one.value,
            "low": one.low,
            "high": one.high,
            "mean": one.mean.theta,
            "variance": one.mean.variance,
            "launches": list(one.mean.sessions),
        }
        for name, one in cell.metrics.items()
    }
    return {**{name: getattr(cell, name) for name in names}, "metrics": metrics}


def made_by() -> str:
    """Return which version makes a baseline."""
    return f"pytest-ngraph {version_of('pytest-ngraph') or 'of a checkout'}"


# Reading


def read(path: Path) -> Saved:
    """Return the baseline of a file. Raise SpecError that names the file, the key and what is expected there."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise SpecError(f"baseline {path}: over {_LARGEST_BYTES >> 20} MiB (expected a baseline's file)")
        fields = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number, object_pairs_hook=_once)
    except FileNotFoundError:
        there = ", ".join(sorted(one.stem for one in path.parent.glob("*.json"))) or "none"
        raise SpecError(f"baseline {path}: no such file (there: {there}); make it with: ngraph baseline save") from None
    except OSError as error:
        raise SpecError(f"baseline {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise SpecError(f"baseline {path}: no JSON that can be read: {error}") from None
    try:
        return _saved(_Fields(fields, ""))
    except _Wrong as wrong:
        raise SpecError(f"baseline {path}: {wrong}") from None


class _Wrong(Exception):
    """What is wrong in a file, and where."""


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: of two values people see the one and programs take the other."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice")
    return found


class _Fields:
    """An object of the file, each of whose keys is taken once, as what it has to be."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            raise _Wrong(f"{place or 'the file'} is {_named(value)} (expected an object)")
        self._rest, self._place = dict(value), place

    def _take(self, key: str, expected: str, is_right: Callable[[Any], bool]) -> Any:
        place = f"{self._place}.{key}" if self._place else key
        if key not in self._rest:
            raise _Wrong(f"{place} is missing (expected {expected})")
        value = self._rest.pop(key)
        if not is_right(value):
            raise _Wrong(f"{place} is {_named(value)} (expected {expected})")
        return value

    def text(self, key: str, *, may_be_empty: bool = False) -> str:
        """Take a text."""
        return str(self._take(key, "a text", lambda value: isinstance(value, str) and (may_be_empty or bool(value))))

    def number(self, key: str, expected: str = "a number", least: float = -math.inf) -> float:
        """Take a finite number."""
        return float(self._take(key, expected, lambda value: _is_number(value) and value >= least))

    def counts(self, key: str) -> tuple[int, ...]:
        """Take whole numbers from 1 on."""

        def are(value: Any) -> bool:
            return isinstance(value, list) and bool(value) and all(type(one) is int and one > 0 for one in value)

        return tuple(self._take(key, "a list of whole numbers from 1 on", are))

    def texts(self, key: str) -> Mapping[str, str]:
        """Take an object of texts."""

        def are(value: Any) -> bool:
            return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())

        return dict(self._take(key, "an object of texts", are))

    def objects(self, key: str) -> Mapping[str, _Fields]:
        """Take an object of objects."""
        found = self._take(key, "an object", lambda value: isinstance(value, dict))
        return {
            name: _Fields(value, f"{self._place}{'.' if self._place else ''}{key}.{name}")
            for name, value in found.items()
        }

    def list_of_objects(self, key: str) -> list[_Fields]:
        """Take a list of objects."""
        found = self._take(key, "a list", lambda value: isinstance(value, list))
        return [_Fields(value, f"{key}[{number}]") for number, value in enumerate(found)]

    def given(self) -> dict[str, Any]:
        """Return what is left."""
        return dict(self._rest)

    def end(self) -> None:
        """Refuse what nobody took."""
        if self._rest:
            key = next(iter(self._rest))
            raise _Wrong(f"{f'{self._place}.' if self._place else ''}{key} is not known (expected no such key)")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _named(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _saved(fields: _Fields) -> Saved:
    if (found := fields.text("format")) != FORMAT:
        raise _Wrong(f"format is {_named(found)} (expected {FORMAT!r})")
    version = fields.number("schema", "a whole number")
    if version != SCHEMA:
        newer = "; it was made by a newer pytest-ngraph" if version > SCHEMA else ""
        raise _Wrong(f"schema is {version:g} (expected {SCHEMA}{newer})")
    said = fields.text("digest")
    content = {"format": FORMAT, "schema": SCHEMA, **fields.given()}
    if digest(content) != said:
        raise _Wrong("digest does not fit the file: it is damaged or was edited; save it again, or take it from git")
    saved = Saved(
        name=fields.text("name"),
        saved_at=fields.text("saved_at"),
        made_by=fields.text("made_by"),
        origin=fields.texts("origin"),
        protocol=fields.text("protocol"),
        seed=fields.text("seed"),
        machines={device: _machine(one) for device, one in fields.objects("machines").items()},
        cells=[_cell(one) for one in fields.list_of_objects("cells")],
    )
    fields.end()
    try:
        datetime.fromisoformat(saved.saved_at)
    except ValueError:
        raise _Wrong(
            f"saved_at is {_named(saved.saved_at)} (expected a time such as 2026-01-31T12:00:00+00:00)"
        ) from None
    keys = [cell.key for cell in saved.cells]
    for number, cell in enumerate(saved.cells):
        if cell.device not in saved.machines:
            raise _Wrong(f"cells[{number}].device is {_named(cell.device)} (expected one of machines)")
        if keys.count(cell.key) > 1:
            raise _Wrong(f"cells[{number}].key is there twice: {cell.label}")
    return saved


def _machine(fields: _Fields) -> Machine:
    machine = Machine(fields.text("name"), fields.texts("hardware"), fields.texts("software"))
    fields.end()
    return machine


def _cell(fields: _Fields) -> SavedCell:
    key, label, device, evidence = (fields.text(name) for name in ("key", "label", "device", "evidence"))
    baseline, threads, state = (fields.text(name, may_be_empty=True) for name in ("baseline", "threads", "state"))
    if state:
        try:
            state_named(state)
        except ValueError:
            raise _Wrong(f"the state of {label} is {_named(state)} (expected such as 75us/360ns)") from None
    metrics = {name: _metric(name, one) for name, one in fields.objects("metrics").items()}
    fields.end()
    return SavedCell(key, label, device, evidence, baseline, threads, state, metrics)


def _metric(name: str, fields: _Fields) -> SavedMetric:
    if name not in METRICS:
        raise _Wrong(f"metric {name!r} is not known (known: {', '.join(METRICS)})")
    value, low, high = (fields.number(key) for key in ("value", "low", "high"))
    mean = Mean(
        fields.number("mean"), fields.number("variance", "a number not below 0", 0.0), fields.counts("launches")
    )
    fields.end()
    if not low <= value <= high:
        raise _Wrong(f"{name}: {value:g} is not within its interval of {low:g} to {high:g}")
    return SavedMetric(value, low, high, mean)
