"""The pass in which a cell is held to another one, the dense f32 model, on inputs that are drawn from the seed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.launches.client import Job, WorkerEnded
from pytest_ngraph.passes.preparing import Prepared, Refused, done, prepared, scratch
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome, Protocol
from pytest_ngraph.spec.evaluations import Agreed
from pytest_ngraph.worker import handover
from pytest_ngraph.workloads import references

if TYPE_CHECKING:
    import numpy as np

    Outputs = list[np.ndarray[Any, Any]]

Progress = Callable[[str, int, int], None]
_COMPARING = "comparing outputs"
# What the dense model gives is held until the other has given its own.
_MOST_BYTES = 512 << 20


def agreement_pass(
    job: Job, cell: Cell, dense: Cell, protocol: Protocol, seed: int, samples: int, progress: Progress
) -> CompileRecord:
    """Call two cells on the same seeded inputs, each alone in a fresh, untimed process. Return how well they agree.

    So many samples are compared, as many more as fill whole batches, or fewer where outputs would take half a GiB.
    They are the same for all batches where inputs of one sample can be put together.
    """
    try:
        with scratch(job) as folder:
            return _agree(job, cell, dense, protocol, seed, samples, folder, progress)
    except Refused as refused:
        return refused.record
    except WorkerEnded as ended:
        return CompileRecord(ended.outcome, ended.reason)
    except (handover.Unreadable, CompileFailed) as broken:
        return CompileRecord(Outcome.FAILED, str(broken))


def _agree(
    job: Job, cell: Cell, dense: Cell, protocol: Protocol, seed: int, samples: int, folder: Path, progress: Progress
) -> CompileRecord:
    with prepared(job, dense, protocol, seed, None) as one:
        theirs = _Called(one, dense, _sizes(job, dense, one), folder)
        calls = max(2, min(-(-samples // cell.workload.batch), _MOST_BYTES // max(1, 4 * sum(theirs.sizes))))
        expected = [theirs.outputs(call, progress, 2 * calls, call) for call in range(calls)]
    with prepared(job, cell, protocol, seed, None) as other:
        mine = _Called(other, cell, theirs.sizes, folder)
        compared = _Compared(expected, cell)
        for call in range(calls):
            compared.add(call, mine.outputs(call, progress, 2 * calls, calls + call))
        record = done(other.record)
    if mine.digest != theirs.digest:
        raise CompileFailed(
            f"{cell.label}: its inputs from the seed are not those of {dense.label}; example_inputs must give the same "
            "for both, whatever is done to the model"
        )
    return replace(record, agreed=compared.agreed(dense, samples, mine.digest))


def _sizes(job: Job, cell: Cell, one: Prepared) -> list[int]:
    """Return how many numbers each output has: no process may hand over more."""
    found = references.find(job.on(cell.side).artifacts, one.artifact) if one.artifact else None
    if found is None:
        raise CompileFailed(f"{cell.label}: its compiler reads nothing of the model, so its outputs agree with nothing")
    return [array.size for array in found.timed]


class _Called:
    """The outputs of a cell, call by call, and the digest of the inputs that it was shown."""

    def __init__(self, one: Prepared, cell: Cell, sizes: Sequence[int], folder: Path) -> None:
        self._one, self._cell, self.sizes, self._folder = one, cell, sizes, folder
        self._content = hashlib.sha256()

    @property
    def digest(self) -> str:
        return self._content.hexdigest()

    def outputs(self, call: int, progress: Progress, of: int, done: int) -> Outputs:
        """Return what a call gives."""
        answer: Mapping[str, Any] = self._one.ask("seeded", call=call, outputs=str(self._folder))
        progress(_COMPARING, done, of)
        if answer["outputs"] != len(self.sizes):
            raise CompileFailed(f"{self._cell.label}: {answer['outputs']} outputs (expected {len(self.sizes)})")
        self._content.update(str(answer["inputs"]).encode())
        return handover.take(self._folder, self.sizes)


class _Compared:
    """Outputs held to those of the dense model. Those of it for the next sample show what chance gives."""

    def __init__(self, expected: Sequence[Outputs], cell: Cell) -> None:
        from pytest_ngraph.compilers.toolkit.equality import Comparison

        self._expected, self._cell = expected, cell
        self._by_row = all(array.shape[:1] == (cell.workload.batch,) for array in expected[0])
        # What they are held to is not asked here: only how well they agree.
        self._real, self._chance = (Comparison("f32", self._means()) for _ in range(2))

    def add(self, call: int, outputs: Outputs) -> None:
        """Compare the outputs of a call."""
        self._real.add(outputs, self._expected[call])
        self._chance.add(self._foreign(call), self._expected[call])

    def agreed(self, dense: Cell, asked: int, inputs: str) -> Agreed:
        """Return what was found. Raise CompileFailed where outputs cannot be compared at all."""
        real, chance = self._real.agreement(), self._chance.agreement()
        if real.max_error == float("inf"):
            raise CompileFailed(f"{self._cell.label}: beside those of {dense.label}: {real.reason}")
        cosine = _bounded(real.cosine)
        if cosine is None:
            raise CompileFailed(f"{self._cell.label}: beside those of {dense.label}: numbers too large to be compared")
        count = len(self._expected) * (self._cell.workload.batch if self._by_row else 1)
        # Of outputs without a row for each sample a row is none, unless there is one in each call.
        is_scored = real.top1_samples == count
        return Agreed(
            dense.label,
            asked,
            count,
            inputs,
            cosine=cosine,
            centred=_bounded(real.centred_cosine),
            centred_by_chance=_bounded(chance.centred_cosine),
            matches=real.top1_matches if is_scored else 0,
            scored=count if is_scored else 0,
            by_chance=chance.top1_matches if is_scored else 0,
        )

    def _means(self) -> list[np.ndarray[Any, Any] | None]:
        """Return the mean row of each output, or its mean where it has no rows: what all inputs have in common."""
        import numpy as np

        found: list[np.ndarray[Any, Any] | None] = []
        for column in zip(*self._expected, strict=True):
            if any(array.shape != column[0].shape for array in column):
                found.append(None)
                continue
            # Of complex numbers a mean in f64 would be that of their real parts.
            kind = np.result_type(column[0].dtype, np.float64)
            # Where a number is infinite, zeros are compared.
            finite = [np.where(np.isfinite(array), array, 0) for array in column]
            rows = [array.mean(axis=0, keepdims=True, dtype=kind) if self._by_row else array for array in finite]
            found.append(np.asarray(np.mean(np.stack(rows), axis=0, dtype=kind)))
        return found

    def _foreign(self, call: int) -> Outputs:
        """Return what the dense model gave for the sample after each one."""
        import numpy as np

        later = self._expected[(call + 1) % len(self._expected)]
        if not self._by_row:
            return later
        return [np.concatenate([mine[1:], other[:1]]) for mine, other in zip(self._expected[call], later, strict=True)]


def _bounded(value: float | None) -> float | None:
    """Return a cosine within its bounds, which rounding may leave, None where there is none."""
    return None if value is None or math.isnan(value) else max(-1.0, min(1.0, value))
