"""One try of a cell in a fresh process: compiled, run, and compared on inputs that it has not seen, untimed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_ngraph.axes import AXES
from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.devices.sides import Builder
from pytest_ngraph.launches.client import WorkerClient, WorkerEnded
from pytest_ngraph.launches.referee import Referee
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Outcome, Protocol, Workload
from pytest_ngraph.worker.answers import record_of, refusal
from pytest_ngraph.workloads.kinds import parse_model


def no_progress(doing: str, done: int, total: int) -> None:
    """Say nothing: a step of a search has a line of its own."""


class Trying:
    """Tries cells on one bench. ``protocol`` says how workers are set up."""

    def __init__(self, bench: LocalBench, protocol: Protocol, seed: int) -> None:
        self._bench, self._seed = bench, seed
        self._protocol = replace(protocol, allocator="default")
        self._builder = Builder(bench.job, protocol)

    def close(self) -> None:
        """End the process that builds."""
        self._builder.close()

    def build(self, cell: Cell, *, onnx: bool) -> Mapping[str, Any]:
        """Build what a cell's model is made into. The answer is that of a builder."""
        workload = cell.workload
        (answer,) = self._builder.build([(workload.to_json(), workload.label, onnx)], no_progress)
        return answer

    def try_(self, cell: Cell, *, onnx: bool) -> CompileRecord:
        """Return what becomes of a cell. What cannot even be built is ``lost``: that is no compiler's doing."""
        built = self.build(cell, onnx=onnx)
        if not built["ok"]:
            return CompileRecord(Outcome.LOST, refusal(built))
        client, referee = None, Referee(self._bench.job)
        try:
            draw = random.Random(self._seed)  # noqa: S311 - an address layout, not a secret
            client = WorkerClient(self._bench.job, str(cell.compiler), protocol=self._protocol, draw=draw)
            return self._asked(client, referee, cell)
        except WorkerEnded as ended:
            return CompileRecord(ended.outcome, ended.reason)
        finally:
            if client is not None:
                client.kill()
            referee.close()

    def _asked(self, client: WorkerClient, referee: Referee, cell: Cell) -> CompileRecord:
        client.greet(cell.compiler.name, [cell.workload.model])
        client.hello()
        answer = client.request("prepare", number=0, cell=cell.to_json(), artifact=None, outputs=referee.folder)
        if not answer["ok"]:
            return CompileRecord(Outcome(answer["outcome"]), refusal(answer))
        record = record_of(answer)
        if record.outcome is Outcome.OK:
            record = referee.first(cell, answer, record)
        if record.outcome is not Outcome.OK:
            return record

        def ask(inputs: str, names: list[str], outputs: str) -> Mapping[str, Any] | CompileRecord:
            given = client.request("check", number=0, inputs=inputs, names=names, outputs=outputs)
            return given if given["ok"] else CompileRecord(Outcome(given["outcome"]), refusal(given))

        record = referee.check(cell, record, self._seed, ask)
        client.close()
        return record


def cell_of(path: Path, batch: int, like: Cell, compiler: CompilerSpec | None = None) -> Cell:
    """Return the cell of an ONNX file whose shapes are fixed, by a compiler and in the scenario of another cell."""
    model = parse_model(f"onnx:{path.name}", (path.parent,))
    precision = like.workload.precision if like.workload.precision == "tf32" else "f32"
    workload = Workload(model, batch, precision=precision, scenario=like.workload.scenario)
    return Cell(like.device, compiler or like.compiler, workload)


def sizes_of(cell: Cell) -> str:
    """Return the sizes of a cell that its parts have in their shapes, such as ``batch1 seq128``."""
    rows = [row for row in AXES if row.of in ("input", "model") and row.is_number]
    return " ".join(row.label(value) for row in rows if (value := cell.workload.value(row.name)) is not None)
