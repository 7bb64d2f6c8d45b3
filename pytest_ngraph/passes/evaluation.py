"""The pass in which a model's own evaluation is asked about a compiled cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.launches.client import Job, WorkerEnded
from pytest_ngraph.passes.preparing import Refused, done, prepared
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome, Protocol
from pytest_ngraph.spec.evaluations import Evaluation

Progress = Callable[[str, int, int], None]


def evaluation_pass(
    job: Job, cell: Cell, protocol: Protocol, seed: int, progress: Progress, artifact: str | None = None
) -> CompileRecord:
    """Evaluate a cell alone in a fresh, untimed process. Return its record, with what the evaluation gave.

    ``artifact`` is the key of what its compiler reads, where it is known. Each call of the cell is a sign of life: the
    limit of a request is that between two of them.
    """
    try:
        with prepared(job, cell, protocol, seed, artifact) as one:
            answer = one.ask("evaluate", progress=progress)
            record = replace(done(one.record), evaluation=_read(cell, answer["evaluation"]))
    except Refused as refused:
        return refused.record
    except WorkerEnded as ended:
        return CompileRecord(ended.outcome, ended.reason)
    except CompileFailed as broken:
        return CompileRecord(Outcome.FAILED, str(broken))
    return record


def _read(cell: Cell, said: object) -> Evaluation:
    """Read what a worker says, which may be of another side."""
    try:
        return Evaluation.from_json(said)  # type: ignore[arg-type]
    except (ValueError, TypeError, KeyError) as error:
        raise CompileFailed(f"{cell.label}: what its evaluation gave cannot be understood: {error}") from None
