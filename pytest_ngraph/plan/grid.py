"""The grid of a test: how options narrow its marker, and the points that are left."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_ngraph.axes import row_of
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.lab.known import Devices
from pytest_ngraph.devices.local import is_known as is_local
from pytest_ngraph.errors import SpecError, about
from pytest_ngraph.load.neighbours import cell_beside
from pytest_ngraph.optimizers.catalogue import Optimizers
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.plan import decoding, neighbours
from pytest_ngraph.plan.items import IDENTITY, ItemPlan, baseline_for, item_plan
from pytest_ngraph.plan.marker import PLURAL, SINGULAR, Marker
from pytest_ngraph.spec.cells import Cell, CompilerSpec, ModelRef, Workload
from pytest_ngraph.spec.dims import with_dims
from pytest_ngraph.spec.optimizing import parse
from pytest_ngraph.spec.shapes.mixes import with_largest
from pytest_ngraph.workloads.kinds import Models, kind_of
from pytest_ngraph.workloads.kinds.axes import TAKEN, axes_taken, check_values, refuse_unless_taken

OPTIMIZE = "optimize"


@dataclass(frozen=True, slots=True)
class Grid:
    """What a test's marker expands over: settings, compilers, devices, models, and where paths are looked for."""

    settings: Settings
    catalogue: Catalogue
    devices: Devices
    search: tuple[Path, ...]
    models: Models = field(default_factory=Models)
    optimizers: Optimizers = field(default_factory=Optimizers)

    def pairs(self, marker: Marker) -> list[tuple[str, ItemPlan]]:
        """Return the items of a test that only asks for its device-compiler pair, each with its id."""
        self._check_names(marker)
        targets = self._targets(marker, marker.baseline or self.settings.baseline or IDENTITY)
        return [
            (name, self._item((), marker, device=device, compiler=compiler)) for device, compiler, name in targets
        ] or self._nothing(marker)

    def points(self, marker: Marker) -> list[tuple[str, ItemPlan]]:
        """Return the items of a test, each with its id. One deselected point where the options leave nothing.

        Raises SpecError for a reference, axis, compiler or device that cannot be used.
        """
        self._check_names(marker)
        models = self._models(marker)
        marker = replace(marker, axes={**marker.axes, "model": tuple(models)})
        kept = {name: self._narrowed(name, values) for name, values in marker.axes.items()}
        swept = self._swept(marker, kept)
        asked = marker.axes[PLURAL[marker.plural]] if marker.plural else ()
        outer = [name for name in SINGULAR if name in kept and name != PLURAL.get(marker.plural or "")]
        targets, named = functools.cache(functools.partial(self._targets, marker)), self.settings.baseline
        axis_id = functools.cache(_axis_id)
        beside = neighbours.models_of(kept.get(neighbours.NEIGHBOUR, ()), self.models, self.catalogue, self.search)
        points: list[tuple[str, ItemPlan]] = []
        for values in itertools.product(*(kept[name] for name in outer)) if swept else ():
            fixed = dict(zip(outer, values, strict=True))
            workloads = [self._workload({**fixed, **more}, models) for more in swept]
            label = "".join(f"-{axis_id(name, value)}" for name, value in fixed.items())
            for device, compiler, name in targets(baseline_for(workloads[0].model, marker.baseline, named)):
                cells = [
                    Cell(device, compiler, neighbours.beside(workload, compiler, beside, self.catalogue))
                    for workload in workloads
                ]
                points.append((name + label, self._item(cells, marker, asked=asked)))
        return points or self._nothing(marker)

    def _item(self, cells: Iterable[Cell], marker: Marker, **more: Any) -> ItemPlan:
        """Plan an item on the terms of its test."""
        settings = self.settings
        return item_plan(
            "",
            cells,
            settings,
            baseline=marker.baseline,
            budget=marker.budget or settings.budget,
            tolerance=marker.tolerance if marker.tolerance is not None else settings.tolerance,
            rebuild=bool(marker.rebuild),
            marker=marker,
            grid=self,
            **more,
        )

    def _nothing(self, marker: Marker) -> list[tuple[str, ItemPlan]]:
        """Return what stands for a test whose grid the options, ``compilers=`` or ``devices=`` emptied."""
        return [("narrowed-away", self._item((), marker, deselected=True))]

    def missing(self, point: ItemPlan) -> str | None:
        """Return what has to be installed before a point can be measured, or None. Nothing is imported to find out."""
        model = point.cells[0].workload.model if point.cells else None
        needed = {str(point.compiler): point.compiler}
        if model is not None:
            baseline = point.baselines[0].compiler
            needed.setdefault(f"{baseline}, the baseline,", baseline)
            if (beside := cell_beside(point.cells[0])) is not None:
                needed.setdefault(f"{beside.compiler}, of the neighbour,", beside.compiler)
        for role, spec in needed.items():
            if (missing := self.devices.missing(point.device, spec.name)) is not None:
                return f"{role} on {point.device}: {missing}"
        for cell in point.cells:
            if (missing := self.devices.missing_quantiser(point.device, cell.workload.precision)) is not None:
                return missing
        if model is None or all(self.catalogue.get(spec.name).reads == "nothing" for spec in needed.values()):
            return None
        for each in dict.fromkeys(filter(None, (model, point.cells[0].workload.beside))):
            if (missing := self.devices.missing_for(point.device, each)) is not None:
                return f"model {each}: {missing}"
        return self.optimizers.missing(point.cells[0].workload) if is_local(point.device) else None

    def _targets(self, marker: Marker, baseline: CompilerSpec) -> list[tuple[str, CompilerSpec, str]]:
        """Return the device-compiler pairs of a test, with what ids call them.

        ``baseline`` is left out unless it was named.
        """
        return [
            (device, compiler, f"{device}-{compiler}")
            for device in self.settings.devices
            if marker.devices is None or device in marker.devices
            for compiler in self._compilers(marker, baseline, device)
        ]

    def _check_names(self, marker: Marker) -> None:
        """Raise SpecError where a marker names an unknown compiler, device or optimizer."""
        for name in marker.devices or ():
            with about(f"devices={name!r}"):
                self.devices.check(name)
        for text in marker.axes.get(OPTIMIZE, ()):
            with about(f"{OPTIMIZE}={text!r}"):
                self.optimizers.check(parse(text))
        named = [("compilers", spec) for spec in marker.compilers or ()]
        for keyword, spec in [*named, *([("baseline", marker.baseline)] if marker.baseline else [])]:
            with about(f"{keyword}={str(spec)!r}"):
                self.catalogue.check(spec)

    def _compilers(self, marker: Marker, baseline: CompilerSpec, device: str) -> list[CompilerSpec]:
        """Return the compilers of a test on a device: what both marker and options name, where both do."""
        wanted, offered = marker.compilers, self.settings.compilers
        if offered is None:
            return list(wanted) if wanted is not None else self.default_compilers(baseline, device)
        if wanted is None:
            return list(offered)
        pairs = itertools.product(offered, wanted)
        return list(dict.fromkeys(spec for one, other in pairs if (spec := _in_both(one, other, baseline)) is not None))

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
        models: dict[str, ModelRef] = {}
        for text in references:
            model = self.models.parse(text, self.search)
            each = [with_dims(model, sizes, taken=kind_of(model).takes_dims) for sizes in marker.dims]
            models |= {one: self.models.parse(one, self.search) for one in each or [model.text]}
        for model in models.values():
            taken = axes_taken(model)
            for name in (name for name in TAKEN if name in marker.axes):
                keyword = marker.plural if marker.plural and PLURAL[marker.plural] == name else name
                with about(f"{keyword}={_few(marker.axes[name])}"):
                    refuse_unless_taken(model, name, taken)
                    for value in marker.axes[name]:
                        check_values(model, {name: value})
        return models

    def _workload(self, axes: dict[str, Any], models: Mapping[str, ModelRef]) -> Workload:
        """Return the workload at a point. A precision behind the steps of ``optimize`` is that of the workload."""
        model, axes = models[axes.pop("model")], with_largest(axes)
        if OPTIMIZE not in axes:
            return decoding.checked(Workload.of(model, axes))
        steps, given = parse(axes[OPTIMIZE]), axes.get("precision")
        if steps.precision and given not in (None, steps.precision):
            raise SpecError(
                f"{OPTIMIZE}={axes[OPTIMIZE]!r} and precision={given!r}: two precisions of a network; give one"
            )
        precision = {"precision": steps.precision} if steps.precision else {}
        places = self.optimizers.places_of(steps)
        return decoding.checked(Workload.of(model, {**axes, OPTIMIZE: steps.optimize, **precision}, places))

    def _narrowed(self, name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        allowed = self.settings.narrowing.get(name)
        if name == OPTIMIZE:
            return self._optimizations(values, allowed)
        if allowed is None:
            return values
        if name == "model":
            # A reference without sizes of its open dimensions names the model with any.
            named = {self.models.spelled(text) for text in allowed}
            return tuple(value for value in values if value in named or self.models.bare(value) in named)
        return tuple(value for value in values if value in allowed)

    def _optimizations(self, values: tuple[str, ...], allowed: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return what is done to networks, once each, as far as it is named. Steps name themselves in any precision."""
        known = dict.fromkeys(self.optimizers.normal(parse(text)) for text in values)
        if allowed is None:
            return tuple(map(str, known))
        named = {self.optimizers.normal(parse(text)) for text in allowed}
        return tuple(str(one) for one in known if one in named or replace(one, precision="") in named)

    def _swept(self, marker: Marker, kept: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
        """Return the points of the swept axis, its reference point among them. One empty dict without a sweep."""
        if marker.plural is None:
            return [{}]
        name = PLURAL[marker.plural]
        row, values = row_of(name), kept[name]
        if values and row is not None and row.is_number:
            values = tuple(sorted({*values} if row.first is None else {row.first, *values}))
        return [{name: value} for value in values]


def _in_both(offered: CompilerSpec, wanted: CompilerSpec, baseline: CompilerSpec) -> CompilerSpec | None:
    """Return the compiler that an option and a marker both name, or None.

    A bare name stands for each variant that the other names, but for the baseline, which is compared with itself only
    where it is named.
    """
    if offered == wanted:
        return wanted
    if offered.name != wanted.name:
        return None
    if not wanted.options and offered != baseline:
        return offered
    return wanted if not offered.options else None


def _few(values: tuple[Any, ...], most: int = 20) -> str:
    return ", ".join(map(str, values[:most])) + (", ..." if len(values) > most else "")


def _axis_id(name: str, value: Any) -> str:
    row = row_of(name)
    return str(value) if row is None else row.label(value)


def check_settings(
    settings: Settings, catalogue: Catalogue, devices: Devices | None, places: Mapping[str, str]
) -> None:
    """Check the names of devices and compilers in the options. Raise SpecError that says where they stand.

    ``places`` says so, by the field of the option. Without ``devices`` theirs are not checked.
    """
    if devices is not None:
        for name in settings.devices:
            with about(places["devices"]):
                devices.check(name)
    named = {"compilers": settings.compilers or (), "baseline": filter(None, [settings.baseline])}
    for option, specs in named.items():
        for spec in specs:
            with about(places[option]):
                catalogue.check(spec)
