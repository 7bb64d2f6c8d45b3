"""The untimed pass in which one cell runs alone, for the peak of its memory."""

from __future__ import annotations

import random
from dataclasses import replace

from pytest_ngraph.measure.answers import record_of, refusal
from pytest_ngraph.measure.client import Job, WorkerClient, WorkerEnded
from pytest_ngraph.spec import Cell, CompileRecord, Outcome, Protocol


def memory_pass(
    job: Job, cell: Cell, protocol: Protocol, seed: int, calls: int = 5
) -> tuple[CompileRecord, int | None]:
    """Run a cell alone in a fresh, untimed process; return its record and the process's peak resident bytes.

    The allocator is the default one: memory is reported as a user would see it.
    """
    client: WorkerClient | None = None
    try:
        draw = random.Random(seed)  # noqa: S311 - an address layout, not a secret
        client = WorkerClient(job, str(cell.compiler), protocol=replace(protocol, allocator="default"), draw=draw)
        return _measure(client, cell, calls)
    except WorkerEnded as ended:
        return CompileRecord(ended.outcome, ended.reason), None
    finally:
        if client is not None:
            client.kill()


def _measure(client: WorkerClient, cell: Cell, calls: int) -> tuple[CompileRecord, int | None]:
    client.greet(cell.compiler.name)
    client.hello()
    record = record_of(client.request("prepare", number=0, cell=cell.to_json(), artifact=None))
    if record.outcome is not Outcome.OK:
        return record, None
    visited = client.request(
        "visit", number=0, calls=1, seconds=0, least_batches=calls, discard_seconds=0, rebind=False
    )
    if not visited["ok"]:
        return CompileRecord(Outcome(visited["outcome"]), refusal(visited)), None
    client.close()
    peak = client.peak_memory_bytes
    # The times of a pass that nobody else was kept away from are not measurements.
    return CompileRecord(Outcome.OK, peak_memory_bytes=peak, model_bytes=record.model_bytes), peak
