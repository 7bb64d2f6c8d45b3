"""The marker: its keywords, how markers merge, how options narrow them, and the points a test expands to."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.known import Devices
from pytest_ngraph.errors import SpecError
from pytest_ngraph.planner import IDENTITY, baseline_for
from pytest_ngraph.settings import Budget, Settings
from pytest_ngraph.spec import PRECISIONS, SCENARIOS, Cell, CompilerSpec, ModelRef, Workload
from pytest_ngraph.workloads.axes import AXES, axes_taken, refuse_unless_taken

SINGULAR = ("model", "width", "image_size", "precision", "scenario", "depth", "batch")
PLURAL: Mapping[str, str] = {"models": "model", "batches": "batch", "depths": "depth"}
TERMS = ("compilers", "devices", "baseline", "budget", "tolerance", "rebuild")
KEYWORDS = (*SINGULAR, *PLURAL, *TERMS)
FIXTURES: Mapping[str | None, str] = {
    None: "ngraph_cell",
    "batches": "ngraph_batches",
    "depths": "ngraph_depths",
    "models": "ngraph_models",
}
_NUMBERS = ("batch", "depth", "width", "image_size")
_WORDS: Mapping[str, tuple[str, ...]] = {"precision": PRECISIONS, "scenario": SCENARIOS}


@dataclass(frozen=True, slots=True)
class Point:
    """One item of a test: its cells, those of a sweep in ascending order; ``asked`` is the sweep as written.

    A point of a test that only asks for its device-compiler pair has no cells.
    """

    device: str
    compiler: CompilerSpec
    cells: tuple[Cell, ...] = ()
    asked: tuple[Any, ...] = ()
    deselected: bool = False


# Stands for a test whose grid the options, ``compilers=`` or ``devices=`` emptied.
NARROWED_AWAY = [("narrowed-away", Point("", IDENTITY, deselected=True))]


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
    rebuild: bool | None = None


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
        devices=_names("devices", merged["devices"], "a device or a list of them") if "devices" in merged else None,
        baseline=_compilers(merged["baseline"], "baseline")[0] if "baseline" in merged else None,
        budget=_budget(merged["budget"]) if "budget" in merged else None,
        tolerance=_tolerance(merged["tolerance"]) if "tolerance" in merged else None,
        rebuild=_rebuild(merged["rebuild"]) if "rebuild" in merged else None,
    )


def check_fixtures(fixtures: Sequence[str], marker: Marker) -> None:
    """Raise SpecError for a plural axis with the wrong fixture, and for a sweep's fixture without its axis.

    ``fixtures`` are those of a grid that the test asks for.
    """
    right = FIXTURES[marker.plural]
    accepted = (right, "ngraph_callable") if marker.plural is None else (right,)
    wrong = [name for name in fixtures if name not in accepted]
    if wrong and marker.plural is not None:
        raise SpecError(f"{marker.plural}= goes with the fixture {right}, not with {wrong[0]}")
    if wrong:
        needed = next(plural for plural, name in FIXTURES.items() if name == wrong[0])
        raise SpecError(f"the fixture {wrong[0]} needs {needed}= in the marker")
    if not fixtures and marker.axes:
        axis = marker.plural or next(iter(marker.axes))
        raise SpecError(f"{axis}= goes with the fixture {right}, which the test does not ask for")


@contextlib.contextmanager
def _about(what: str) -> Iterator[None]:
    """Put what was given in front of the SpecErrors about it."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{what}: {error}") from None


def _listed(keyword: str, value: Any, expected: str) -> tuple[Any, ...]:
    """Return the values of an axis: one value, or a list, tuple or range of several."""
    values = tuple(value) if isinstance(value, (list, tuple, range)) else (value,)
    if not values:
        raise SpecError(f"{keyword}={value!r} is empty (expected {expected})")
    return values


def _values(keyword: str, value: Any) -> tuple[Any, ...]:
    axis = PLURAL.get(keyword, keyword)
    if axis in _NUMBERS:
        return _numbers(keyword, value)
    if axis in _WORDS:
        return _words(axis, value, _WORDS[axis])
    return _names(keyword, value, "a reference such as timm:resnet18, or a list of them")


def _numbers(keyword: str, value: Any) -> tuple[int, ...]:
    expected = "whole numbers >= 1"
    values = _listed(keyword, value, expected)
    for one in values:
        if not isinstance(one, int) or isinstance(one, bool) or one < 1:
            raise SpecError(f"{keyword}={value!r}: {one!r} is not allowed (expected {expected})")
    return tuple(dict.fromkeys(values))


def _words(keyword: str, value: Any, known: Sequence[str]) -> tuple[str, ...]:
    allowed = ", ".join(known)
    values = _listed(keyword, value, allowed)
    for one in values:
        if one not in known:
            raise SpecError(f"{keyword}={value!r}: {one!r} is not allowed (allowed: {allowed})")
    return tuple(dict.fromkeys(values))


def _names(keyword: str, value: Any, expected: str) -> tuple[str, ...]:
    values = _listed(keyword, value, expected)
    for one in values:
        if not isinstance(one, str) or not one.strip():
            raise SpecError(f"{keyword}={value!r}: {one!r} is not allowed (expected {expected})")
    return tuple(dict.fromkeys(values))


def _compilers(value: Any, keyword: str = "compilers") -> tuple[CompilerSpec, ...]:
    names = _names(keyword, value, "a compiler such as openvino or onnxruntime[graph=basic], or a list of them")
    with _about(f"{keyword}={value!r}"):
        specs = tuple(CompilerSpec.parse(name) for name in names)
        if keyword == "baseline" and len(specs) > 1:
            raise SpecError("expected one compiler")
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


def _rebuild(value: Any) -> bool:
    if not isinstance(value, bool):
        raise SpecError(f"rebuild={value!r} is not allowed (allowed: True, False)")
    return value


@dataclass(frozen=True, slots=True)
class Grid:
    """What a test's marker expands over: settings, compilers and devices, and where its paths are looked for."""

    settings: Settings
    catalogue: Catalogue
    devices: Devices
    search: tuple[Path, ...]

    def pairs(self, marker: Marker) -> list[tuple[str, Point]]:
        """Return the items of a test that only asks for its device-compiler pair, each with its id."""
        self._check_names(marker)
        pairs = self._targets(marker, marker.baseline or self.settings.baseline or IDENTITY)
        return [(f"{device}-{compiler}", Point(device, compiler)) for device, compiler in pairs] or NARROWED_AWAY

    def points(self, marker: Marker) -> list[tuple[str, Point]]:
        """Return the items of a test, each with its id; one deselected point where the options leave nothing.

        Raises SpecError for a reference, axis, compiler or device that cannot be used.
        """
        self._check_names(marker)
        models = self._models(marker)
        kept = {axis: self._narrowed(axis, values) for axis, values in marker.axes.items()}
        kept["model"] = self._narrowed("model", tuple(models))
        swept = self._swept(marker, kept)
        asked = marker.axes[PLURAL[marker.plural]] if marker.plural else ()
        outer = [axis for axis in SINGULAR if axis in kept and axis != PLURAL.get(marker.plural or "")]
        targets = functools.cache(functools.partial(self._targets, marker))
        points: list[tuple[str, Point]] = []
        for values in itertools.product(*(kept[axis] for axis in outer)) if swept else ():
            fixed = dict(zip(outer, values, strict=True))
            workloads = [_workload({**fixed, **more}, models) for more in swept]
            label = "".join(f"-{_axis_id(axis, value)}" for axis, value in fixed.items())
            for device, compiler in targets(baseline_for(workloads[0].model, marker.baseline, self.settings.baseline)):
                cells = tuple(Cell(device, compiler, workload) for workload in workloads)
                points.append((f"{device}-{compiler}{label}", Point(device, compiler, cells, asked)))
        return points or NARROWED_AWAY

    def missing(self, point: Point, marker: Marker) -> str | None:
        """Return what has to be installed before a point can be measured, or None; nothing is imported to find out."""
        model = point.cells[0].workload.model if point.cells else None
        needed = {str(point.compiler): point.compiler}
        if model is not None:
            baseline = baseline_for(model, marker.baseline, self.settings.baseline)
            needed.setdefault(f"{baseline}, the baseline,", baseline)
        for role, spec in needed.items():
            if (missing := self.devices.missing(point.device, spec.name)) is not None:
                return f"{role} on {point.device}: {missing}"
        if model is None or all(self.catalogue.get(spec.name).reads == "nothing" for spec in needed.values()):
            return None
        missing = self.devices.missing_for(point.device, model)
        return None if missing is None else f"model {model}: {missing}"

    def _targets(self, marker: Marker, baseline: CompilerSpec) -> list[tuple[str, CompilerSpec]]:
        """Return the device-compiler pairs of a test; ``baseline`` is left out unless it was named."""
        devices = [name for name in self.settings.devices if marker.devices is None or name in marker.devices]
        return [(device, compiler) for device in devices for compiler in self._compilers(marker, baseline, device)]

    def _check_names(self, marker: Marker) -> None:
        """Raise SpecError where a marker names an unknown compiler or device."""
        for name in marker.devices or ():
            with _about(f"devices={name!r}"):
                self.devices.check(name)
        named = [("compilers", spec) for spec in marker.compilers or ()]
        for keyword, spec in [*named, *([("baseline", marker.baseline)] if marker.baseline else [])]:
            with _about(f"{keyword}={str(spec)!r}"):
                self.catalogue.check(spec)

    def _compilers(self, marker: Marker, baseline: CompilerSpec, device: str) -> list[CompilerSpec]:
        wanted = marker.compilers
        if self.settings.compilers is None:
            return list(wanted) if wanted is not None else self.default_compilers(baseline, device)
        if wanted is None:
            return list(self.settings.compilers)
        names = {spec.name for spec in wanted if not spec.options}
        return [spec for spec in self.settings.compilers if spec in wanted or spec.name in names]

    def default_compilers(self, baseline: CompilerSpec, device: str) -> list[CompilerSpec]:
        """Return every installed compiler for a device but the baseline and those that run only when named.

        Where none is installed all are returned: their items say what to install instead of passing unseen.
        """
        adapters = {name: self.catalogue.get(name) for name in self.catalogue}
        kind = self.devices.kind_of(device)
        specs = [
            CompilerSpec(name) for name, one in adapters.items() if kind in one.accelerators and not one.named_only
        ]
        others = [spec for spec in specs if spec != baseline]
        return [spec for spec in others if self.devices.missing(device, spec.name) is None] or others

    def _models(self, marker: Marker) -> dict[str, ModelRef]:
        """Find the models of a test and check that each takes the axes that the marker sets."""
        references = marker.axes.get("model", self.settings.models)
        if references is None:
            raise SpecError("no model: give model= in the marker or --ngraph-model on the command line")
        models = {text: ModelRef.parse(text, self.search) for text in references}
        for model in models.values():
            taken = axes_taken(model)
            for axis in (axis for axis in AXES if axis in marker.axes):
                keyword = marker.plural if marker.plural and PLURAL[marker.plural] == axis else axis
                with _about(f"{keyword}={', '.join(map(str, marker.axes[axis]))}"):
                    refuse_unless_taken(model, axis, taken)
        return models

    def _narrowed(self, axis: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        allowed = self.settings.narrowing.get(axis)
        return values if allowed is None else tuple(value for value in values if value in allowed)

    def _swept(self, marker: Marker, kept: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
        """Return the points of the swept axis, its reference point among them; one empty dict without a sweep."""
        if marker.plural is None:
            return [{}]
        axis = PLURAL[marker.plural]
        values = kept[axis]
        if values and axis in ("batch", "depth"):
            values = tuple(sorted({1, *values}))
        return [{axis: value} for value in values]


def _workload(axes: Mapping[str, Any], models: Mapping[str, ModelRef]) -> Workload:
    return Workload(**{**axes, "model": models[axes["model"]]})


def _axis_id(axis: str, value: Any) -> str:
    return str(value) if axis == "model" or axis in _WORDS else f"{'size' if axis == 'image_size' else axis}{value}"
