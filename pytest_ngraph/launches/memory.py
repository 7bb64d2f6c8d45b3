"""The untimed pass in which one cell runs alone, for the peaks of its memory."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from threading import Event, Thread
from typing import Any

from pytest_ngraph.checks import provenance
from pytest_ngraph.launches.client import Job, WorkerClient, WorkerEnded
from pytest_ngraph.launches.referee import Referee
from pytest_ngraph.machine import gpu
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome, Protocol
from pytest_ngraph.worker.answers import record_of, refusal

_LOOK_SECONDS = 0.01


def memory_pass(
    job: Job, cell: Cell, protocol: Protocol, seed: int, calls: int = 5, artifact: str | None = None
) -> tuple[CompileRecord, int | None]:
    """Run a cell alone in a fresh, untimed process. Return its record and the process's peak resident bytes.

    ``artifact`` is the key of what its compiler reads, which is looked for where it is not given.
    The allocator is the default one: memory is reported as a user would see it. On a GPU the record has the peak of
    what the process held there, and where that cannot be read the reason.
    """
    client: WorkerClient | None = None
    held: _HeldOnGpu | None = None
    referee = Referee(job, {cell: artifact} if artifact else None)
    try:
        draw = random.Random(seed)  # noqa: S311 - an address layout, not a secret
        on = job.on(cell.side)
        client = WorkerClient(on, str(cell.compiler), protocol=replace(protocol, allocator="default"), draw=draw)
        if job.device.accelerator != "cpu":
            held = _HeldOnGpu(gpu.find(job.device.accelerator), client.pid)
        return _measure(client, on, referee, cell, seed, calls, held, calls * job.timeout_seconds)
    except WorkerEnded as ended:
        return CompileRecord(ended.outcome, ended.reason), None
    finally:
        if held is not None:
            held.stop()
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
    held: _HeldOnGpu | None,
    timeout: float,
) -> tuple[CompileRecord, int | None]:
    client.greet(cell.compiler.name)
    client.hello()
    answer = client.request("prepare", number=0, cell=job.sent(cell), artifact=None, outputs=referee.folder)
    if not answer["ok"]:
        return CompileRecord(Outcome(answer["outcome"]), refusal(answer)), None
    record = record_of(answer)
    if job.side is not None:
        record = provenance.read_back(job.side, answer["provenance"], record)
    if record.outcome is Outcome.OK:
        record = referee.first(cell, answer, record)
    if record.outcome is not Outcome.OK:
        return record, None
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
    if held is not None:
        held.stop()
    # Before anything else is bound that a user would not have bound.
    peak = client.request("peak")["peak_memory_bytes"]

    def ask(inputs: str, names: list[str], outputs: str) -> Mapping[str, Any] | CompileRecord:
        answer = client.request("check", number=0, inputs=inputs, names=names, outputs=outputs)
        return answer if answer["ok"] else CompileRecord(Outcome(answer["outcome"]), refusal(answer))

    record = referee.check(cell, record, seed, ask)
    client.close()
    if record.outcome is not Outcome.OK:
        return record, None
    # The times of a pass that nobody else was kept away from are not measurements.
    done = CompileRecord(Outcome.OK, peak_memory_bytes=peak, model_bytes=record.model_bytes)
    if held is not None:
        done = replace(done, peak_gpu_memory_bytes=held.peak_bytes, reason=held.why_unreadable)
    return done, peak


class _HeldOnGpu:
    """The most memory of a GPU that a process has held, by looking every few milliseconds until ``stop``."""

    def __init__(self, device: gpu.Gpu, pid: int) -> None:
        self.peak_bytes: int | None = None
        self._device, self._pid = device, pid
        self._said = ""
        self._over = Event()
        self._thread = Thread(target=self._watch, name=f"GPU memory of {pid}", daemon=True)
        self._thread.start()

    @property
    def why_unreadable(self) -> str:
        """Return why there is no peak, nothing where there is one."""
        return f"GPU memory cannot be read: {self._said}" if self.peak_bytes is None else ""

    def stop(self) -> None:
        """Read once more, then stop."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._look()
        self._look()

    def _look(self) -> None:
        try:
            self.peak_bytes = max(self._device.held_bytes(self._pid), self.peak_bytes or 0)
        except gpu.Unreadable as reason:
            self._said = str(reason)
