"""What a measurement is keyed by: contents, versions, options and machine - never a commit, a path or a date."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pytest_ngraph.compilers.catalogue import BUILT_IN, Catalogue
from pytest_ngraph.launches.client import Job, decides
from pytest_ngraph.machine.facts import fingerprint, version_of_module
from pytest_ngraph.spec.cells import Cell, Protocol, digest
from pytest_ngraph.workloads import keys
from pytest_ngraph.workloads.modules.project_files import imported_files

# Raise this when the way of measuring changes so that launches of before and after must not be mixed.
RECIPE = 2
# The version of this package whose adapters and timing are still those of today. Raise it to the version that changes
# what a call takes or what is compiled; releases that change neither keep the launches of those before.
SINCE = "0.1.0"


class Evidence:
    """Works out the evidence key of cells. What a run cannot change is looked up once."""

    def __init__(self, catalogue: Catalogue, job: Job, protocol: Protocol, seed: int) -> None:
        self._catalogue, self._job, self._seed = catalogue, job, seed
        self._common = {
            "recipe": RECIPE,
            "machine": fingerprint(job.device.accelerator),
            "device": job.device.to_json(),
            "protocol": protocol.to_json(),
            "seed": seed,
            **({"variables": dict(job.variables)} if job.variables else {}),
        }
        self._adapters: dict[str, Mapping[str, Any]] = {}

    def key(self, cell: Cell) -> str | None:
        """Return the evidence key of a cell as 64 hex digits, or None where its model has to be built first.

        A user's model is known by the files it imports, and which these are is known once it was built.
        """
        model: str | None = cell.workload.model.text
        reads = self._catalogue.get(cell.compiler.name).reads
        if reads != "nothing":
            model = self._content(cell, onnx=reads == "onnx")
        if model is None:
            return None
        return digest(
            {
                **self._common,
                "compiler": str(cell.compiler),
                "replica": cell.replica,
                "adapter": self._adapter(cell.compiler.name),
                "model": model,
                "axes": cell.workload.axis_labels(),
                **({"rebuild": True} if cell.rebuild else {}),
            }
        )

    def _content(self, cell: Cell, *, onnx: bool) -> str | None:
        files = keys.known_files(cell.workload, self._seed, self._job.artifacts, self._job.sys_path)
        if files is None:
            return None
        sample = keys.sample_key(cell.workload, self._seed, files)
        return keys.onnx_key(cell.workload, sample) if onnx else sample

    def _adapter(self, name: str) -> Mapping[str, Any]:
        """Return what an adapter is: versions of what it requires, and, unless it is built in, the files it imports.

        The variables of built-in adapters are in every key, those of another only here.
        """
        if name not in self._adapters:
            adapter = self._catalogue.get(name)
            facts: dict[str, Any] = {module: version_of_module(module) for module in adapter.requires}
            facts["pytest-ngraph"] = SINCE
            if name not in BUILT_IN:
                place = self._catalogue.place(name).partition(":")[0]
                facts[place] = keys.contents(imported_files(place, self._job.sys_path))
                facts["from"] = version_of_module(place.partition(".")[0])
                if given := {key: value for key, value in os.environ.items() if decides(key, adapter.variables)}:
                    facts["variables"] = given
            self._adapters[name] = facts
        return self._adapters[name]
