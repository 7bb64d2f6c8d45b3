"""The untimed pass in which one cell runs alone, for the peaks of its memory."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_ngraph.checks import provenance
from pytest_ngraph.checks.peaks import GpuPeaks, HostPeaks, Peaks
from pytest_ngraph.launches.client import Job, WorkerClient, WorkerEnded
from pytest_ngraph.launches.referee import Referee
from pytest_ngraph.machine import gpu
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome, Protocol
from pytest_ngraph.spec.resources.peaks import COMPILING, GPU, HOST, METRIC_OF, RUNNING
from pytest_ngraph.worker.answers import record_of, refusal


def memory_pass(
    job: Job, cell: Cell, protocol: Protocol, seed: int, calls: int = 5, artifact: str | None = None
) -> tuple[CompileRecord, int | None]:
    """Run a cell alone in a fresh, untimed process. Return its record and the process's peak resident bytes.

    ``artifact`` is the key of what its compiler reads, which is looked for where it is not given.
    The allocator is the default one: memory is reported as a user would see it. What the process starts is counted,
    too. The record has the peaks until the cell was called once, and while further calls run; on a GPU also those of
    what was held there. It has the reason of each that cannot be read.
    """
    client: WorkerClient | None = None
    seen: list[Peaks] = []
    referee = Referee(job, {cell: artifact} if artifact else None)
    try:
        draw = random.Random(seed)  # noqa: S311 - an address layout, not a secret
        on = job.on(cell.side)
        untimed = replace(protocol, allocator="default")
        client = WorkerClient(on, str(cell.compiler), protocol=untimed, draw=draw, own_caches=cell.rebuild)
        seen.append(HostPeaks(client.pid))
        if job.device.accelerator != "cpu":
            seen.append(GpuPeaks(gpu.find(job.device.accelerator), client.pid))
        return _measure(client, on, referee, cell, seed, calls, seen, calls * job.timeout_seconds)
    except WorkerEnded as ended:
        return CompileRecord(ended.outcome, ended.reason), None
    finally:
        for each in seen:
            each.stop()
        if client is not None:
            client.kill()
        referee.close()


def _measure(
    client: WorkerClient,
    job: Job,
    referee: Referee,
    cell: Cell,
    seed: int,
    calls: int,
    seen: Sequence[Peaks],
    timeout: float,
) -> tuple[CompileRecord, int | None]:
    client.greet(cell.compiler.name)
    client.hello()
    answer = client.request("prepare", number=0, cell=job.sent(cell), artifact=None, outputs=referee.folder)
    if not answer["ok"]:
        return CompileRecord(Outcome(answer["outcome"]), refusal(answer)), None
    for each in seen:
        each.next_phase()
    record = record_of(answer)
    if job.side is not None:
        record = provenance.read_back(job.side, answer["provenance"], record)
    if record.outcome is Outcome.OK:
        record = referee.first(cell, answer, record)
    if record.outcome is not Outcome.OK:
        return record, None
    loaded = record.loaded
    visited = client.request(
        "visit",
        timeout=timeout,
        number=0,
        calls=1,
        seconds=0,
        least_batches=calls,
        discard_seconds=0,
        rebind=False,
    )
    if not visited["ok"]:
        return CompileRecord(Outcome(visited["outcome"]), refusal(visited)), None
    # Before anything else is bound that a user would not have bound.
    for each in seen:
        each.stop()
    own = client.request("peak")["peak_memory_bytes"]

    def ask(inputs: str, names: list[str], outputs: str) -> Mapping[str, Any] | CompileRecord:
        answer = client.request("check", number=0, inputs=inputs, names=names, outputs=outputs)
        return answer if answer["ok"] else CompileRecord(Outcome(answer["outcome"]), refusal(answer))

    record = referee.check(cell, record, seed, ask)
    client.close()
    if record.outcome is not Outcome.OK:
        return record, None
    # The times of a pass that nobody else was kept away from are not measurements.
    done = _with_peaks(CompileRecord(Outcome.OK, model_bytes=record.model_bytes), seen, own, loaded=loaded)
    return done, done.peak_memory_bytes


def _with_peaks(record: CompileRecord, seen: Sequence[Peaks], own: int | None, *, loaded: bool) -> CompileRecord:
    """Return a record with all peaks, and why those are missing that are. ``own`` is the worker's own word."""
    named: dict[str, int] = {}
    unread: dict[str, str] = {}
    for each in seen:
        for phase in (COMPILING, RUNNING):
            name, peak, why = METRIC_OF[each.where, phase], each.bytes_of.get(phase), each.why_unreadable
            if phase == COMPILING and loaded and peak is not None:
                peak, why = None, "what was compiled before was loaded (rebuild=True in the marker compiles each time)"
            if peak is None:
                unread[name] = why or "it was never seen"
            else:
                named[name] = peak
    gpus = [each for each in seen if each.where == GPU]
    why_no_gpu = next((each.why_unreadable for each in gpus if each.most is None), "")
    if why_no_gpu:
        unread[METRIC_OF[GPU, ""]] = why_no_gpu
    hosts = [each.most for each in seen if each.where == HOST]
    if any(each.why_unreadable for each in seen if each.where == HOST):
        # The worker's own word is that of all phases where the kernel could not be told to begin its peak again.
        hosts.append(own)
    return replace(
        record,
        peak_memory_bytes=max((each for each in hosts if each is not None), default=None),
        peak_gpu_memory_bytes=next((each.most for each in gpus), None),
        reason=f"GPU memory cannot be read: {why_no_gpu}" if why_no_gpu else "",
        peaks=tuple(sorted(named.items())),
        unread=tuple(sorted(unread.items())),
    )
