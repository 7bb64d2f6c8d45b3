"""The file of a saved baseline: one JSON object with a digest over it, written whole and read strictly."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.settings import is_file
from pytest_ngraph.report.baselines.saved import Saved, SavedCell, SavedMetric, SavedSweep, sweep_key
from pytest_ngraph.report.baselines.strict import Fields, Wrong, no_number, once, shown
from pytest_ngraph.report.export.files import write_text
from pytest_ngraph.spec.cells import digest
from pytest_ngraph.spec.states import state_named
from pytest_ngraph.stats.sessions import Mean

# Schema 1 had no sweeps.
FORMAT, SCHEMA = "pytest-ngraph baseline", 2
# In the rootdir, to be committed.
FOLDER = ".ngraph-baselines"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_LARGEST_BYTES = 64 << 20


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
    return invocation_dir / text if is_file(text) else path_of(text, rootdir)


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
        "sweeps": [_sweep_to_json(sweep) for sweep in sorted(saved.sweeps or (), key=lambda one: (one.label, one.key))],
    }


def _cell_to_json(cell: SavedCell) -> dict[str, Any]:
    names = ("key", "label", "device", "evidence", "baseline", "threads", "state")
    metrics = {name: _metric_to_json(one) for name, one in cell.metrics.items()}
    return {**{name: getattr(cell, name) for name in names}, "metrics": metrics}


def _sweep_to_json(sweep: SavedSweep) -> dict[str, Any]:
    names = ("key", "metric", "label", "device", "evidence", "threads", "state", "scale")
    fields = {name: getattr(sweep, name) for name in names}
    return {**fields, "cells": list(sweep.cells), **_metric_to_json(sweep.saved)}


def _metric_to_json(one: SavedMetric) -> dict[str, Any]:
    return {
        "value": one.value,
        "low": one.low,
        "high": one.high,
        "mean": one.mean.theta,
        "variance": one.mean.variance,
        "launches": list(one.mean.sessions),
    }


def made_by() -> str:
    """Return which version makes a baseline."""
    return f"pytest-ngraph {version_of('pytest-ngraph') or 'of a checkout'}"


# Reading


def read(path: Path) -> Saved:
    """Return the baseline of a file. Raise SpecError that names the file, the key and what is expected there."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise SpecError(f"baseline {path}: over {_LARGEST_BYTES >> 20} MiB (expected a baseline's file)")
        fields = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_number, object_pairs_hook=once)
    except FileNotFoundError:
        there = ", ".join(sorted(one.stem for one in path.parent.glob("*.json"))) or "none"
        raise SpecError(f"baseline {path}: no such file (there: {there}); make it with: ngraph baseline save") from None
    except OSError as error:
        raise SpecError(f"baseline {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise SpecError(f"baseline {path}: no JSON that can be read: {error}") from None
    try:
        return _saved(Fields(fields, ""))
    except Wrong as wrong:
        raise SpecError(f"baseline {path}: {wrong}") from None


def _saved(fields: Fields) -> Saved:
    if (found := fields.text("format")) != FORMAT:
        raise Wrong(f"format is {shown(found)} (expected {FORMAT!r})")
    version = fields.number("schema", "a whole number")
    if version not in (1, SCHEMA):
        newer = "; it was made by a newer pytest-ngraph" if version > SCHEMA else ""
        raise Wrong(f"schema is {version:g} (expected 1 or {SCHEMA}{newer})")
    said = fields.text("digest")
    content = {"format": FORMAT, "schema": int(version), **fields.given()}
    if digest(content) != said:
        raise Wrong("digest does not fit the file: it is damaged or was edited; save it again, or take it from git")
    saved = Saved(
        name=fields.text("name"),
        saved_at=fields.text("saved_at"),
        made_by=fields.text("made_by"),
        origin=fields.texts("origin"),
        protocol=fields.text("protocol"),
        seed=fields.text("seed"),
        machines={device: _machine(one) for device, one in fields.objects("machines").items()},
        cells=[_cell(one) for one in fields.list_of_objects("cells")],
        sweeps=None if version == 1 else [_sweep(one) for one in fields.list_of_objects("sweeps")],
    )
    fields.end()
    try:
        datetime.fromisoformat(saved.saved_at)
    except ValueError:
        raise Wrong(
            f"saved_at is {shown(saved.saved_at)} (expected a time such as 2026-01-31T12:00:00+00:00)"
        ) from None
    parts: dict[str, Sequence[SavedCell | SavedSweep]] = {"cells": saved.cells, "sweeps": saved.sweeps or ()}
    for part, ones in parts.items():
        keys = Counter(one.key for one in ones)
        for number, one in enumerate(ones):
            if one.device not in saved.machines:
                raise Wrong(f"{part}[{number}].device is {shown(one.device)} (expected one of machines)")
            if keys[one.key] > 1:
                raise Wrong(f"{part}[{number}].key is there twice: {one.label}")
    return saved


def _machine(fields: Fields) -> Machine:
    machine = Machine(fields.text("name"), fields.texts("hardware"), fields.texts("software"))
    fields.end()
    return machine


def _cell(fields: Fields) -> SavedCell:
    key, label, device, evidence = (fields.text(name) for name in ("key", "label", "device", "evidence"))
    baseline, threads, state = (fields.text(name, may_be_empty=True) for name in ("baseline", "threads", "state"))
    _check_state(label, state)
    metrics = {name: _metric(_known(name), one) for name, one in fields.objects("metrics").items()}
    fields.end()
    return SavedCell(key, label, device, evidence, baseline, threads, state, metrics)


def _sweep(fields: Fields) -> SavedSweep:
    key, label, device, evidence = (fields.text(name) for name in ("key", "label", "device", "evidence"))
    metric, cells = _known(fields.text("metric")), fields.several_texts("cells")
    threads, state = (fields.text(name, may_be_empty=True) for name in ("threads", "state"))
    scale = fields.number("scale", "a number not below 0", 0.0)
    _check_state(label, state)
    if key != sweep_key(metric, cells):
        raise Wrong(f"the key of {label} does not fit its metric and cells")
    if METRICS[metric].scale == "log" and scale != 1:
        raise Wrong(f"the scale of {label} is {scale:g} (expected 1 for a ratio)")
    return SavedSweep(key, metric, label, device, cells, evidence, threads, state, scale, _metric(metric, fields))


def _check_state(label: str, state: str) -> None:
    if state:
        try:
            state_named(state)
        except ValueError:
            raise Wrong(f"the state of {label} is {shown(state)} (expected such as 75us/360ns)") from None


def _known(name: str) -> str:
    if name not in METRICS:
        raise Wrong(f"metric {name!r} is not known (known: {', '.join(METRICS)})")
    return name


def _metric(name: str, fields: Fields) -> SavedMetric:
    value, low, high = (fields.number(key) for key in ("value", "low", "high"))
    mean = Mean(
        fields.number("mean"), fields.number("variance", "a number not below 0", 0.0), fields.counts("launches")
    )
    fields.end()
    if not low <= value <= high:
        raise Wrong(f"{name}: {value:g} is not within its interval of {low:g} to {high:g}")
    return SavedMetric(value, low, high, mean)
