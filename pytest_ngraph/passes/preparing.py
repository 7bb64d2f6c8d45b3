"""A cell alone in a fresh worker, compiled and ready to be asked for outputs."""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_ngraph.checks import provenance
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.launches.client import Job, WorkerClient
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome, Protocol
from pytest_ngraph.worker.answers import record_of, refusal
from pytest_ngraph.workloads.folders import SCRATCH


class Refused(NgraphError):
    """A cell that was not prepared, or not asked in the end: ``record`` is what became of it."""

    def __init__(self, record: CompileRecord) -> None:
        super().__init__(record.reason)
        self.record = record


@dataclass(frozen=True, slots=True)
class Prepared:
    """A compiled cell in its worker, what preparing it gave, and the key of the artifact that it read, if any.

    ``answer`` is the worker's, with the outputs that it handed over.
    """

    client: WorkerClient
    record: CompileRecord
    artifact: str | None
    answer: Mapping[str, Any]

    def ask(self, do: str, **fields: Any) -> Mapping[str, Any]:
        """Return the answer to a request. Raise Refused where it is not ok, and WorkerEnded."""
        answer = self.client.request(do, number=0, **fields)
        if not answer["ok"]:
            raise Refused(CompileRecord(Outcome(answer["outcome"]), refusal(answer)))
        return answer


@contextmanager
def prepared(
    job: Job,
    cell: Cell,
    protocol: Protocol,
    seed: int,
    artifact: str | None,
    allocator: str = "default",
    outputs: str | None = None,
) -> Iterator[Prepared]:
    """Give a cell, compiled in a worker of its own that ends with the context. Raises Refused and WorkerEnded.

    Its outputs are not held to the reference: what they are worth is what is asked. Launches are held to it. They are
    handed over in the folder ``outputs``, where one is given.
    """
    client: WorkerClient | None = None
    on = job.on(cell.side)
    try:
        draw = random.Random(seed)  # noqa: S311 - an address layout, not a secret
        untimed = replace(protocol, allocator=allocator)
        client = WorkerClient(on, str(cell.compiler), protocol=untimed, draw=draw, own_caches=cell.rebuild)
        client.greet(cell.compiler.name, [cell.workload.model])
        client.hello()
        with scratch(job) as folder:
            into = outputs or str(folder)
            answer = client.request("prepare", number=0, cell=on.sent(cell), artifact=artifact, outputs=into)
        if not answer["ok"]:
            raise Refused(CompileRecord(Outcome(answer["outcome"]), refusal(answer)))
        record = record_of(answer)
        if on.side is not None:
            record = provenance.read_back(on.side, answer["provenance"], record)
        if record.outcome is not Outcome.OK:
            raise Refused(record)
        yield Prepared(client, record, answer["artifact"], answer)
        client.close()
    finally:
        if client is not None:
            client.kill()


@contextmanager
def scratch(job: Job) -> Iterator[Path]:
    """Give a folder that is removed in the end. The first process that writes into it creates it."""
    folder = job.artifacts / f"{SCRATCH}{uuid.uuid4().hex}"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def done(record: CompileRecord) -> CompileRecord:
    """Return what is kept of a pass beside what it is for: where the cell ran. Its times are no measurements."""
    return CompileRecord(Outcome.OK, placement=record.placement)
