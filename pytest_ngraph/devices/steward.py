"""The steward of a side: a process that knows what cells are made of there, as the side's own Python sees it.

Keys name versions, and models are found along an import path: both are those of the process that asks. The process of
the tests is of this side, so another one is asked. Nothing is built or compiled in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.evidence import Evidence
from pytest_ngraph.devices.sides import NOTHING
from pytest_ngraph.errors import CompileFailed, NgraphError, NotThere
from pytest_ngraph.launches.client import Job
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, Device
from pytest_ngraph.spec.sides import NOT_THERE
from pytest_ngraph.worker import worker
from pytest_ngraph.worker.sides import is_below, is_installed
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds.axes import axis_values
from pytest_ngraph.workloads.kinds.catalogue import kind_of
from pytest_ngraph.workloads.kinds.contract import BY_NAME

Known = dict[str, Any]


class Steward(worker.Worker):
    """A worker that is also asked what it knows of cells."""

    def __init__(self, job: Mapping[str, Any], say: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__(job, say)
        self._job = Job(
            sys_path=tuple(sys.path),
            device=Device.from_json(job["device"]),
            seed=int(job["seed"]),
            artifacts=Path(job["artifacts"]),
            logs=Path(job["logs"]),
            places=job["places"],
            timeout_seconds=0.0,
            variables={},
        )
        self._catalogue = Catalogue()
        for name, place in job["places"].items():
            self._catalogue.add(name, place)
        self._actions = {**self._actions, "know": self._know}

    def _know(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return of each cell what ``sides.NOTHING`` has: ``made_of`` and ``adapter`` as ``Evidence`` gives them.

        The first two are empty where there is nothing to say. ``artifact`` is None where it is to be built.
        """
        evidence = Evidence(self._catalogue, self._job, PROTOCOLS["gate"], self._job.seed, request["environ"])
        return {"cells": [self._of(Cell.from_json(each), evidence) for each in request["cells"]]}

    def _of(self, cell: Cell, evidence: Evidence) -> Known:
        nothing = dict(NOTHING)
        try:
            if refused := self._why_not_there(cell) or self._catalogue.why_not(cell, self._job.device) or "":
                return {**nothing, "refused": refused}
            return {**nothing, **self._known(cell, evidence)}
        except NotThere as error:
            return {**nothing, "refused": f"{NOT_THERE}: {error}"}
        except NgraphError as error:
            return {**nothing, "broken": str(error)}

    def _why_not_there(self, cell: Cell) -> str:
        """Return why the adapter, the model or what either needs is not there, or raise NotThere that says so."""
        model, adapter = cell.workload.model, self._catalogue.get(cell.compiler.name)
        if missing := adapter.missing():
            return f"{NOT_THERE}: {cell.compiler.name}: {missing}"
        if adapter.reads == "nothing":
            return ""
        kind = kind_of(model)
        if missing := kind.missing():
            return f"{NOT_THERE}: model {model.text!r}: {missing}"
        if kind.travels != BY_NAME and not Path(kind.place(model)).exists():
            return f"{NOT_THERE}: model {model.text!r}: no file {Path(kind.place(model)).name!r}"
        if kind.is_asked_when_called:
            # A factory by the arguments that it takes, which are read from its source.
            kind.axes(model)
        axis_values(cell.workload)
        return ""

    def _known(self, cell: Cell, evidence: Evidence) -> Known:
        adapter = self._catalogue.get(cell.compiler.name)
        adapter.resolve(cell.compiler)
        known: Known = {"artifact": "", "onnx": adapter.reads == "onnx"}
        if adapter.reads != "nothing":
            place = (cell.workload, self._job.seed, self._job.artifacts)
            known["remarks"] = artifacts.drop_damaged(*place)
            found = artifacts.find(*place, known["onnx"])
            known["artifact"] = None if found is None else found.key
        files = evidence.files(cell)
        if strays := [file for file in files if self._strays(file)]:
            # What lies in the working tree says nothing of the side.
            raise CompileFailed(
                f"{cell.label}: it is found in {strays[0]}, in the working tree and not in that of its side: what puts "
                "the working tree on the import path (an editable install, a .pth file) hides the other side"
            )
        known |= {"adapter": evidence.adapter(cell.compiler.name), "made_of": evidence.made_of(cell)}
        return {**known, "files": files}

    def _strays(self, file: str) -> bool:
        side = self._side
        if side is None or not side.tree:
            return False
        return is_below(file, side.root) and not is_below(file, side.tree) and not is_installed(file, side.root)


main = partial(worker.main, made=Steward)
