"""What a measurement is keyed by: contents, versions, options and machine - never a commit, a path or a date."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pytest_ngraph.compilers.catalogue import BUILT_IN, Catalogue
from pytest_ngraph.compilers.toolkit.variables import deciding
from pytest_ngraph.launches.client import Job
from pytest_ngraph.load.neighbours import cell_beside, with_neighbours
from pytest_ngraph.machine import modes
from pytest_ngraph.machine.facts import fingerprint, version_of_module
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Protocol, digest
from pytest_ngraph.workloads import keys
from pytest_ngraph.workloads.modules.project_files import imported_files

# Raise this when the way of measuring changes so that launches of before and after must not be mixed.
RECIPE = 2
# Raise this when what a neighbour does beside a cell changes.
_NEIGHBOUR_RECIPE = 1
# The version of this package whose adapters and timing are still those of today. Raise it to the version that changes
# what a call takes or what is compiled; releases that change neither keep the launches of those before.
SINCE = "0.1.0"


class Evidence:
    """Works out the evidence key of cells. What a run cannot change is looked up once.

    ``environ`` are the variables of the process that runs the tests.
    """

    def __init__(
        self, catalogue: Catalogue, job: Job, protocol: Protocol, seed: int, environ: Mapping[str, str] | None = None
    ) -> None:
        self._catalogue, self._job, self._protocol, self._seed = catalogue, job, protocol, seed
        self._environ = os.environ if environ is None else environ
        self._adapters: dict[str, Mapping[str, Any]] = {}
        self._beside: dict[CompilerSpec, Mapping[str, str]] = {}

    @cached_property
    def _common(self) -> Mapping[str, Any]:
        job = self._job
        mode = modes.chosen(job.power_mode)
        return {
            "recipe": RECIPE,
            "machine": fingerprint(job.device.accelerator),
            **({"power_mode": mode} if mode else {}),
            "device": job.device.to_json(),
            "protocol": self._protocol.to_json(),
            "seed": self._seed,
            **({"variables": dict(job.variables)} if job.variables else {}),
        }

    def key(self, cell: Cell) -> str | None:
        """Return the evidence key of a cell as 64 hex digits, or None where its model has to be built first.

        A user's model is known by the files it imports, and which these are is known once it was built.
        """
        made_of = self.made_of(cell)
        return None if made_of is None else self.key_of(cell, made_of)

    def key_of(self, cell: Cell, made_of: Mapping[str, Any], side: Mapping[str, Any] | None = None) -> str:
        """Return the key of a cell that is made of this: what ``made_of`` gave, in a process of its side if it has one.

        ``side`` is what else decides of that side. Cells of two sides have different keys whatever they are made of.
        """
        return digest(
            {
                **self._common,
                "compiler": str(cell.compiler),
                "replica": cell.replica,
                **made_of,
                "axes": cell.workload.axis_labels(),
                **({"rebuild": True} if cell.rebuild else {}),
                **({} if side is None else {"side": dict(side)}),
            }
        )

    def made_of(self, cell: Cell) -> dict[str, Any] | None:
        """Return what is compiled, and by what: contents and versions. None where a model has to be built first.

        What runs beside the cell decides of its times as it does itself.
        """
        made, beside = self._made_of(cell), cell_beside(cell)
        if made is None or beside is None:
            return made
        other = self._made_of(beside)
        return None if other is None else {**made, "neighbour": other, "neighbour_recipe": _NEIGHBOUR_RECIPE}

    def _made_of(self, cell: Cell) -> dict[str, Any] | None:
        model: str | None = cell.workload.model.text
        reads = self._catalogue.get(cell.compiler.name).reads
        if reads != "nothing":
            model = self._content(cell, onnx=reads == "onnx")
        if model is None:
            return None
        opened = keys.opened(cell.workload) if reads != "nothing" else {}
        beside = self._found_beside(cell)
        return {
            "adapter": self.adapter(cell.compiler.name),
            "model": model,
            **opened,
            **({"found_beside": beside} if beside else {}),
        }

    def _found_beside(self, cell: Cell) -> Mapping[str, str]:
        """Return what the adapter finds that a cell is compiled or run by, beside the packages that it requires."""
        known = self._beside
        if cell.compiler not in known:
            adapter = self._catalogue.get(cell.compiler.name)
            known[cell.compiler] = adapter.found_beside(cell.compiler, self._job.device, self._environ)
        return known[cell.compiler]

    def files(self, cell: Cell) -> list[str]:
        """Return the paths of the user's files that a cell is made of, as far as they are known."""
        known: dict[str, str] = {}
        for each in with_neighbours([cell]):
            name = each.compiler.name
            if self._catalogue.get(name).reads != "nothing":
                known |= keys.known_files(each.workload, self._seed, self._job.artifacts, self._job.sys_path) or {}
            if name not in BUILT_IN:
                known |= imported_files(self._catalogue.place(name).partition(":")[0], self._job.sys_path)
        return [path for path in known if os.path.isabs(path)]  # noqa: PTH117 - a name of a package is no path

    def _content(self, cell: Cell, *, onnx: bool) -> str | None:
        files = keys.known_files(cell.workload, self._seed, self._job.artifacts, self._job.sys_path)
        if files is None:
            return None
        sample = keys.sample_key(cell.workload, self._seed, files)
        return keys.onnx_key(cell.workload, sample) if onnx else sample

    def adapter(self, name: str) -> Mapping[str, Any]:
        """Return what an adapter is: versions of what it requires, and, unless it is built in, the files it imports.

        The variables of built-in adapters are in every key, those of another only here.
        """
        if name not in self._adapters:
            adapter = self._catalogue.get(name)
            facts: dict[str, Any] = {module: version_of_module(module) for module in adapter.requires}
            facts["pytest-ngraph"] = adapter.since or SINCE
            if name not in BUILT_IN:
                place = self._catalogue.place(name).partition(":")[0]
                facts[place] = keys.contents(imported_files(place, self._job.sys_path))
                facts["from"] = version_of_module(place.partition(".")[0])
                if given := deciding(self._environ, adapter.variables):
                    facts["variables"] = given
            self._adapters[name] = facts
        return self._adapters[name]
