"""The marker: its keywords, how markers merge, how options narrow them, and the points a test expands to."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import SpecError
from pytest_ngraph.planner import IDENTITY, ONNX_BASELINE
from pytest_ngraph.settings import Budget, Settings
from pytest_ngraph.spec import PRECISIONS, Cell, CompilerSpec, ModelRef, Workload
from pytest_ngraph.workloads.axes import check_axes

SINGULAR = ("model", "width", "image_size", "precision", "depth", "batch")
PLURAL: Mapping[str, str] = {"models": "model", "batches": "batch", "depths": "depth"}
TERMS = ("compilers", "devices", "baseline", "budget", "tolerance")
KEYWORDS = (*SINGULAR, *PLURAL, *TERMS)
FIXTURES: Mapping[str | None, str] = {
    None: "ngraph_cell",
    "batches": "ngraph_batches",
    "depths": "ngraph_depths",
    "models": "ngraph_models",
}
_NUMBERS = ("batch", "depth", "width", "image_size")


@dataclass(frozen=True, slots=True)
class Point:
    """One item of a test: its cells, those of a sweep in the marker's order; ``asked`` is the sweep as written."""

    device: str
    compiler: CompilerSpec
    cells: tuple[Cell, ...] = ()
    asked: tuple[Any, ...] = ()
    deselected: bool = False


@dataclass(frozen=True, slots=True)
class Marker:
    """The merged marker of a test, checked: axis values, the swept axis, and the test's own terms."""

    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    plural: str | None = None
    compilers: tuple[CompilerSpec, ...] | None = None
    devices: tuple[str, ...] | None = None
    baseline: CompilerSpec | None = None
    budget: Budget | None = None
    tolerance: float | None = None


def read_marker(marks: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> Marker:
    """Merge the arguments of markers, the nearest first, and check them; raise SpecError with keyword and value."""
    merged: dict[str, Any] = {}
    for arguments, keywords in reversed(list(marks)):
        if arguments:
            raise SpecError(f"positional argument {arguments[0]!r}: only keywords are taken ({', '.join(KEYWORDS)})")
        for keyword, value in keywords.items():
            if keyword not in KEYWORDS:
                raise SpecError(f"unknown keyword {keyword!r} (allowed: {', '.join(KEYWORDS)})")
            # The nearest marker decides whether an axis makes items or is swept.
            merged.pop(PLURAL.get(keyword, ""), None)
            for plural, singular in PLURAL.items():
                if singular == keyword:
                    merged.pop(plural, None)
            merged[keyword] = value
        both = [plural for plural, singular in PLURAL.items() if plural in keywords and singular in keywords]
        if both:
            raise SpecError(f"{both[0]}= and {PLURAL[both[0]]}= together: the axis is either swept or makes items")
    swept = [plural for plural in PLURAL if plural in merged]
    if len(swept) > 1:
        raise SpecError(f"{'= and '.join(swept)}= together: one axis can be swept in an item, the others make items")
    axes = {PLURAL.get(key, key): _values(key, merged[key]) for key in (*SINGULAR, *PLURAL) if key in merged}
    return Marker(
        axes=axes,
        plural=swept[0] if swept else None,
        compilers=_compilers(merged["compilers"]) if "compilers" in merged else None,
        devices=_names("devices", merged["devices"]) if "devices" in merged else None,
        baseline=_compilers(merged["baseline"], "baseline")[0] if "baseline" in merged else None,
        budget=_budget(merged["budget"]) if "budget" in merged else None,
        tolerance=_tolerance(merged["tolerance"]) if "tolerance" in merged else None,
    )


def _listed(keyword: str, value: Any, expected: str) -> tuple[Any, ...]:
    """Return the values of an axis: one value, or a list, tuple or range of several."""
    values = tuple(value) if isinstance(value, (list, tuple, range)) else (value,)
    if not values:
        raise SpecError(f"{keyword}={value!r} is empty (expected {expected})")
    return tuple(dict.fromkeys(values)) if all(isinstance(one, (int, str)) for one in values) else values


def _values(keyword: str, value: Any) -> tuple[Any, ...]:
    axis = PLURAL.get(keyword, keyword)
    if axis in _NUMBERS:
        expected = "whole numbers >= 1"
        values = _listed(keyword, value, expected)
        for one in values:
            if not isinstance(one, int) or isinstance(one, bool) or one < 1:
                raise SpecError(f"{keyword}={value!r}: {one!r} is not allowed (expected {expected})")
        return values
    if axis == "precision":
        values = _listed(keyword, value, ", ".join(PRECISIONS))
        for one in values:
            if one not in PRECISIONS:
                raise SpecError(f"precision={value!r}: {one!r} is not allowed (allowed: {', '.join(PRECISIONS)})")
        return values
    return _names(keyword, value)


def _names(keyword: str, value: Any) -> tuple[str, ...]:
    values = _listed(keyword, value, "a name or a list of names")
    for one in values:
        if not isinstance(one, str) or not one.strip():
            raise SpecError(f"{keyword}={value!r}: {one!r} is not a name")
    return values


def _compilers(value: Any, keyword: str = "compilers") -> tuple[CompilerSpec, ...]:
    try:
        specs = tuple(CompilerSpec.parse(name) for name in _names(keyword, value))
    except SpecError as error:
        raise SpecError(f"{keyword}={value!r}: {error}") from None
    if keyword == "baseline" and len(specs) > 1:
        raise SpecError(f"baseline={value!r}: expected one compiler")
    return specs


def _budget(value: Any) -> Budget:
    try:
        return Budget.parse(str(value))
    except ValueError as error:
        raise SpecError(f"budget={value!r} is not allowed (expected {error})") from None


def _tolerance(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise SpecError(f"tolerance={value!r} is not allowed (expected a fraction between 0 and 1, such as 0.05)")
    return float(value)


@dataclass(frozen=True, slots=True)
class Grid:
    """What a test's marker expands over: the settings, the catalogue and where its paths are looked for."""

    settings: Settings
    catalogue: Catalogue
    search: tuple[Path, ...]

    def targets(self, marker: Marker, baseline: CompilerSpec | None = None) -> list[tuple[str, CompilerSpec]]:
        """Return the device-compiler pairs of a test; ``baseline`` is left out unless it was named."""
        devices = [name for name in self.settings.devices if marker.devices is None or name in marker.devices]
        return [(device, compiler) for device in devices for compiler in self._compilers(marker, baseline)]

    def _compilers(self, marker: Marker, baseline: CompilerSpec | None) -> list[CompilerSpec]:
        wanted = marker.compilers
        for spec in wanted or ():
            self.catalogue.check(spec)
        if self.settings.compilers is None:
            return list(wanted) if wanted is not None else default_compilers(self.catalogue, baseline)
        if wanted is None:
            return list(self.settings.compilers)
        names = {spec.name for spec in wanted if not spec.options}
        return [spec for spec in self.settings.compilers if spec in wanted or spec.name in names]

    def points(self, marker: Marker) -> tuple[list[Point], list[str]]:
        """Return the items of a test and their ids; one deselected point where the options leave nothing.

        Raises SpecError for a reference, axis or compiler that cannot be used.
        """
        if "model" not in marker.axes and not self.settings.models:
            raise SpecError("no model: give model= in the marker or --ngraph-model on the command line")
        if marker.baseline is not None:
            self.catalogue.check(marker.baseline)
        references = marker.axes.get("model", self.settings.models or ())
        models = {text: ModelRef.parse(text, self.search) for text in references}
        for model in models.values():
            check_axes(model, **{axis: axis in marker.axes for axis in ("depth", "width", "image_size")})
        kept = {axis: self._narrowed(axis, values) for axis, values in marker.axes.items()}
        kept["model"] = self._narrowed("model", tuple(models))
        points: list[Point] = []
        ids: list[str] = []
        outer = [axis for axis in SINGULAR if axis in kept and axis != PLURAL.get(marker.plural or "")]
        swept = self._swept(marker, kept)
        asked = marker.axes[PLURAL[marker.plural]] if marker.plural else ()
        targets: dict[CompilerSpec, list[tuple[str, CompilerSpec]]] = {}
        for values in itertools.product(*(kept[axis] for axis in outer)) if swept else ():
            fixed = dict(zip(outer, values, strict=True))
            workloads = [_workload({**fixed, **more}, models) for more in swept]
            baseline = marker.baseline or self.settings.baseline or _default_baseline(workloads[0].model)
            if baseline not in targets:
                targets[baseline] = self.targets(marker, baseline)
            label = "-".join(_axis_id(axis, value) for axis, value in fixed.items())
            for device, compiler in targets[baseline]:
                points.append(
                    Point(device, compiler, tuple(Cell(device, compiler, workload) for workload in workloads), asked)
                )
                ids.append(f"{device}-{compiler}{'-' + label if label else ''}")
        if not points:
            return [Point("", IDENTITY, deselected=True)], ["narrowed-away"]
        return points, ids

    def _narrowed(self, axis: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        allowed = self.settings.narrowing.get(axis)
        return values if allowed is None else tuple(value for value in values if value in allowed)

    def _swept(self, marker: Marker, kept: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
        """Return the points of the swept axis, its reference point among them; one empty dict without a sweep."""
        if marker.plural is None:
            return [{}]
        axis = PLURAL[marker.plural]
        values = kept[axis]
        if not values:
            return []
        if axis in ("batch", "depth"):
            values = tuple(sorted({1, *values}))
        return [{axis: value} for value in values]


def default_compilers(catalogue: Catalogue, baseline: CompilerSpec | None) -> list[CompilerSpec]:
    """Return every installed compiler but the baseline and those that run only when named."""
    specs = [CompilerSpec(name) for name in catalogue if not catalogue.get(name).named_only]
    return [spec for spec in specs if spec != baseline and catalogue.get(spec.name).missing() is None]


def _default_baseline(model: ModelRef) -> CompilerSpec:
    return ONNX_BASELINE if model.scheme == "onnx" else IDENTITY


def _workload(axes: Mapping[str, Any], models: Mapping[str, ModelRef]) -> Workload:
    return Workload(**{**axes, "model": models[axes["model"]]})


def _axis_id(axis: str, value: Any) -> str:
    return str(value) if axis in ("model", "precision") else f"{'size' if axis == 'image_size' else axis}{value}"
