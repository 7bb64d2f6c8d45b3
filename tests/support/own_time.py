"""A plugin for suites on null: calls of null, and what they are timed by, take the CPU time of their thread.

A call that busy-waits by the wall clock is longer for every time that others had its CPU within it, so that the verdict
of a gate on a busy machine is not the one that its true values have. By the time of its own thread it is as long as it
says, whatever else runs. Nothing of this package knows of it: the workers of such a suite begin in
``own_time_worker``, which leaves the wall clock to calls of all others, to loads and to neighbours. What a visit waited
for others is no objection to its clock.

Tests whose point is the wall clock - those marked ``measures``, ``real`` or ``lab`` - run without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pytest_ngraph.checks.oversight import Seen, Watch
from pytest_ngraph.launches import launch
from pytest_ngraph.launches.client import Job, WorkerClient
from pytest_ngraph.spec.cells import Visit
from pytest_ngraph.worker.answers import visit_of

MODULE = "tests.support.own_time_worker"
# Stands in the answer to a visit whose calls took their own time.
SAID = "own_time"
_begin, _answered = WorkerClient.__init__, Watch.answered


class _OwnVisit(Visit):
    """A visit in the time of its own thread."""


class _OwnSeen(Seen):
    """The same as the launching process saw it: all that it waited for a CPU, by the kernel's account, was for others.

    ``undisturbed`` lets nobody ask what others did.
    """

    @property
    def held_up_ns(self) -> float:
        return self.delay_ns


def _started(self: WorkerClient, job: Job, name: str, **how: Any) -> None:
    # Another side may have another package, and its Python nothing of these tests.
    is_like_here = job.side is None or not (job.side.python or job.side.packages)
    if is_like_here and name != "builder":
        how.setdefault("module", MODULE)
    _begin(self, job, name, **how)


def _visit_of(answer: Mapping[str, Any]) -> Visit:
    visit = visit_of(answer)
    return _OwnVisit(**_values(visit)) if SAID in answer else visit


def _seen(self: Watch, visit: Visit) -> Seen:
    seen = _answered(self, visit)
    return _OwnSeen(**_values(seen)) if isinstance(visit, _OwnVisit) else seen


def _values(of: Any) -> dict[str, Any]:
    return {each.name: getattr(of, each.name) for each in fields(of)}


WorkerClient.__init__ = _started  # type: ignore[method-assign]
launch.visit_of = _visit_of  # type: ignore[attr-defined]
Watch.answered = _seen  # type: ignore[method-assign]
