"""What a measurement is keyed by: contents, versions, options and machine - never a commit, a path or a date."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pytest_ngraph.compilers.catalogue import BUILT_IN, Catalogue
from pytest_ngraph.environment import file_digest, fingerprint, version_of, version_of_module
from pytest_ngraph.spec import Cell, Device, Protocol, digest
from pytest_ngraph.workloads import keys

# Raise this when the way of measuring changes so that launches of before and after must not be mixed.
RECIPE = 2


class Evidence:
    """Works out the evidence key of cells; what a run cannot change is looked up once."""

    def __init__(self, catalogue: Catalogue, device: Device, protocol: Protocol, seed: int, artifacts: Path) -> None:
        self._catalogue, self._seed, self._artifacts = catalogue, seed, artifacts
        self._common = {
            "recipe": RECIPE,
            "machine": fingerprint(device.accelerator),
            "device": device.to_json(),
            "protocol": protocol.to_json(),
            "seed": seed,
        }
        self._adapters: dict[str, Mapping[str, str | None]] = {}

    def key(self, cell: Cell) -> str | None:
        """Return the evidence key of a cell as 64 hex digits; None where its model has to be built first.

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
        files = keys.known_files(cell.workload, self._seed, self._artifacts)
        if files is None:
            return None
        sample = keys.sample_key(cell.workload, self._seed, files)
        return keys.onnx_key(cell.workload, sample) if onnx else sample

    def _adapter(self, name: str) -> Mapping[str, str | None]:
        """Return what an adapter is: versions of what it requires, and its own file where it is not ours."""
        if name not in self._adapters:
            facts = {module: version_of_module(module) for module in self._catalogue.get(name).requires}
            facts["pytest-ngraph"] = version_of("pytest-ngraph")
            if name not in BUILT_IN:
                place = self._catalogue.place(name).partition(":")[0]
                spec = find_spec(place)
                facts[place] = file_digest(Path(spec.origin)) if spec is not None and spec.origin else None
            self._adapters[name] = facts
        return self._adapters[name]
