"""The other sides of a bench: their stewards say what cells are made of there, and builders build it."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import PurePath
from typing import Any

from pytest_ngraph.checks.other_data import Difference
from pytest_ngraph.checks.provenance import objection
from pytest_ngraph.devices.bench import Answer, Progress
from pytest_ngraph.devices.evidence import Evidence
from pytest_ngraph.launches.client import Job, WorkerClient, WorkerEnded, worker_environment
from pytest_ngraph.machine import facts
from pytest_ngraph.sides import unusable
from pytest_ngraph.spec.cells import Cell, Outcome, Protocol, digest
from pytest_ngraph.spec.sides import Side
from pytest_ngraph.worker.answers import refusal
from pytest_ngraph.worker.sides import placed

# A workload as JSON, what it is called, and whether its ONNX file is wanted.
Wanted = tuple[Mapping[str, Any], str, bool]
# With less of the machine's memory free no process is kept that is not needed now.
_SPARE_SHARE = 0.5
_STEWARD = "pytest_ngraph.devices.steward"
# Of a cell whose steward does not say anything else.
NOTHING: Mapping[str, Any] = {
    "refused": "", "broken": "", "artifact": None, "onnx": False, "made_of": None, "files": [], "adapter": None,
    "remarks": [],
}  # fmt: skip


class Sides:
    """Answers for the cells of other sides, each by a process of that side, which lives until ``close``."""

    def __init__(self, job: Job, protocol: Protocol, evidence: Callable[[], Evidence]) -> None:
        """Keep what they are started with. ``evidence`` gives what works out the keys of here."""
        self._job, self._protocol, self._evidence = job, protocol, evidence
        self._stewards: dict[str, WorkerClient] = {}
        self._on = cache(job.on)

    def know(self, cells: Sequence[Cell]) -> dict[Cell, Mapping[str, Any]]:
        """Return what is known of those of the cells that are of other sides: see ``Steward``.

        Nothing is where the process of the side cannot be asked. Why, building says.
        """
        known: dict[Cell, Mapping[str, Any]] = {}
        for label in dict.fromkeys(cell.side for cell in cells if cell.side):
            mine = [cell for cell in cells if cell.side == label]
            known |= zip(mine, self._asked(label, mine), strict=True)
        return known

    def keys(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Return the evidence key of those of the cells that are of other sides, None where it is to be built first."""
        made_of = self._made_of(cells, _Here(self._job, self._evidence()))
        return {cell: None if each is None else self._key(cell, each) for cell, each in made_of.items()}

    def same_content(self, cells: Sequence[Cell], other: str = "") -> set[Cell]:
        """Return those cells that are made of the same as the same cells on another side, as far as is known.

        ``other`` is the label of that side, empty for here.
        """
        here = _Here(self._job, self._evidence())
        found = self._made_of(cells, here)
        if not other:
            return {cell for cell, each in found.items() if each is not None and here.is_same(cell, each)}
        theirs = {cell: replace(cell, side=other) for cell in cells}
        known = self._made_of([*theirs.values()], here)
        return {
            cell
            for cell, twin in theirs.items()
            if (mine := found.get(cell)) is not None
            and (its := known.get(twin)) is not None
            and (self._is_same(cell, mine, twin, its, here) or self._are_as_here(cell, mine, twin, its, here))
        }

    def _are_as_here(
        self, cell: Cell, mine: Mapping[str, Any], twin: Cell, its: Mapping[str, Any], here: _Here
    ) -> bool:
        """Return whether two cells are made of what they are here, one of them of a side that is only a tree."""
        if self._job.sides[cell.side].content and self._job.sides[twin.side].content:
            # What is here need not even be there.
            return False
        return here.is_same(cell, mine) and here.is_same(twin, its)

    def _is_same(self, cell: Cell, mine: Mapping[str, Any], twin: Cell, its: Mapping[str, Any], here: _Here) -> bool:
        """Return whether two cells are made of the same on their sides, neither of which needs to be as it is here."""
        one, two = self._job.sides[cell.side], self._job.sides[twin.side]
        if one.content != two.content or digest(dict(mine)) != digest(dict(its)):
            return False
        if one.tree and two.tree:
            between = Side(two.label, one.tree, two.tree)
            return not Difference(between, self._on(one.label).sys_path).shows(self._files(cell, here))
        # Of one of them, if any, the project's files are those of here.
        tree, files = (one, twin) if one.tree else (two, cell)
        between = Side(tree.label, tree.root, tree.tree)
        return not Difference(between, self._job.sys_path).shows(self._files(files, here))

    def _files(self, cell: Cell, here: _Here) -> list[str]:
        """Return the files that a cell of a side is made of, where they lie on that side."""
        (known,) = self._asked(cell.side, [cell])
        if known["made_of"] is not None:
            return list(known["files"])
        return [placed(self._job.sides[cell.side], file) for file in here.files(cell)]

    def build(self, cells: Sequence[Cell], progress: Progress) -> list[Answer]:
        """Build what the compilers of cells of one side read, as the adapters of that side say."""
        label = cells[0].side
        job, answers = self._on(label), dict[Cell, Answer]()
        wanted = []
        for cell, known in zip(cells, self._asked(label, cells), strict=True):
            if reason := known["refused"] or known["broken"]:
                outcome = known.get("outcome") or (Outcome.UNAVAILABLE if known["refused"] else Outcome.FAILED).value
                answers[cell] = {"ok": False, "outcome": outcome, "reason": reason}
            elif known["artifact"] != "":
                wanted.append((cell, known["onnx"]))
        asked = [(job.sent(cell)["workload"], cell.label, onnx) for cell, onnx in wanted]
        built = build(job, self._protocol, asked, progress) if asked else []
        answers |= zip(
            (cell for cell, _ in wanted), (explained(label, job.sides[label].tree, each) for each in built), strict=True
        )
        return [answers.get(cell, {"ok": True}) for cell in cells]

    def _key(self, cell: Cell, made_of: Mapping[str, Any]) -> str:
        # Outputs that nothing of here was held against say nothing to a run that holds them to it.
        own = {"outputs": "own"} if self._job.own_outputs else {}
        return self._evidence().key_of(cell, made_of, {"content": self._job.sides[cell.side].content, **own})

    def _made_of(self, cells: Sequence[Cell], here: _Here) -> dict[Cell, Mapping[str, Any] | None]:
        """Return what cells of other sides are made of, None where their models have to be built first.

        Nothing has to be built where the files of the model here are known, the tree has the same ones, and nothing
        else shows that it may differ: then it is made of what the same cell is here.
        """
        made_of: dict[Cell, Mapping[str, Any] | None] = {}
        for cell, known in self.know(cells).items():
            made_of[cell] = known["made_of"]
            if known["made_of"] is None and known["adapter"] is not None and not self._job.sides[cell.side].content:
                made_of[cell] = here.expected(cell, known["adapter"])
        return made_of

    def close(self) -> None:
        """End the stewards."""
        while self._stewards:
            self._stewards.popitem()[1].kill()

    def _asked(self, label: str, cells: Sequence[Cell]) -> list[Mapping[str, Any]]:
        job = self._on(label)
        try:
            if label not in self._stewards:
                self._stewards[label] = started(job, f"steward of {label}", self._protocol, _STEWARD)
            steward = self._stewards[label]
            sent = [job.sent(cell) for cell in cells]
            answer = steward.request("know", cells=sent, environ=dict(os.environ))
        except WorkerEnded as ended:
            self._stewards.pop(label, None)
            return self._nothing(cells, ended_answer(ended))
        except BaseException:
            # Interrupted, as a cell of a notebook is: its answer would be taken for that to the next question.
            if (asked := self._stewards.pop(label, None)) is not None:
                asked.kill()
            raise
        if not answer["ok"]:
            return self._nothing(cells, answer)
        # What is timed meanwhile must not share its CPUs with it.
        steward.park()
        return list(answer["cells"])

    @staticmethod
    def _nothing(cells: Sequence[Cell], answer: Answer) -> list[Mapping[str, Any]]:
        return [{**NOTHING, "broken": refusal(answer), "outcome": answer["outcome"]} for _ in cells]


class _Here:
    """What the same cells are made of here, looked up once for each of them while one question is answered."""

    def __init__(self, job: Job, evidence: Evidence) -> None:
        self._job, self._evidence = job, evidence
        self._made_of = cache(evidence.made_of)
        self._files = cache(evidence.files)
        self._differences: dict[str, Difference] = {}

    def files(self, cell: Cell) -> list[str]:
        """Return the paths of the user's files that a cell of another side is made of here."""
        return self._files(replace(cell, side=""))

    def is_same(self, cell: Cell, made_of: Mapping[str, Any]) -> bool:
        """Return whether a cell of another side is made of the same, and nothing else shows that it may differ."""
        twin = replace(cell, side="")
        ours = self._made_of(twin)
        # As JSON, in which what is of there comes from another process.
        is_same = ours is not None and digest(dict(made_of)) == digest(ours)
        return is_same and not self._difference(cell.side).shows(self._files(twin))

    def expected(self, cell: Cell, adapter: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what a cell of a side with this adapter is made of, where it is surely the same as here, or None."""
        twin = replace(cell, side="")
        ours = self._made_of(twin)
        if ours is None or not self._difference(cell.side).has_all(self._files(twin)):
            return None
        expected = {**ours, "adapter": adapter}
        return expected if self.is_same(cell, expected) else None

    def _difference(self, label: str) -> Difference:
        if label not in self._differences:
            self._differences[label] = Difference(self._job.sides[label], self._job.sys_path)
        return self._differences[label]


class Builder:
    """A process that builds for one job, replaced where it ends early, and stopped between requests.

    Importing PyTorch and its exporter takes longer than exporting a small model. What is imported stays as it was, so
    it is kept for models only that no file of a user's decides, which could change meanwhile.
    """

    def __init__(self, job: Job, protocol: Protocol) -> None:
        self._job, self._protocol = job, protocol
        self._client: WorkerClient | None = None
        self._environment: Mapping[str, str] = {}
        self._turn = threading.Lock()
        # Whether the process built for an earlier request.
        self._is_old = False

    def build(
        self, wanted: Sequence[Wanted], progress: Progress, *, is_kept: bool = True, looks: bool = False
    ) -> list[Answer]:
        """Build what compilers read. With ``is_kept`` the process stays for the next request, if there is memory.

        With ``looks`` nothing is made: which files a model is made of is learnt, and no more.
        """
        with self._turn:
            return self._answers(wanted, progress, is_kept=is_kept, looks=looks)

    def close(self) -> None:
        """End the process, but for one that another thread builds with."""
        if self._turn.acquire(blocking=False):
            try:
                self._kill()
            finally:
                self._turn.release()

    def _answers(self, wanted: Sequence[Wanted], progress: Progress, *, is_kept: bool, looks: bool) -> list[Answer]:
        answers: list[Answer] = []
        if self._environment != self._current_environment():
            # A process has the variables of when it was started.
            self._kill()
        try:
            for number, (workload, label, onnx) in enumerate(wanted):
                progress(f"{'reading' if looks else 'exporting' if onnx else 'building'} {label}", number, len(wanted))
                request = {"workload": workload, **({} if looks else {"want_onnx": onnx})}
                answers.append(self._answer("look" if looks else "build", request))
        except BaseException:
            # Interrupted: whatever it is at is wanted no more.
            self._kill()
            raise
        if self._client is not None and is_kept and facts.spare_memory_share() > _SPARE_SHARE:
            self._client.park()
            self._is_old = True
        elif self._client is not None:
            self._client.close()
            self._kill()
        return answers

    def _kill(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.kill()

    def _answer(self, action: str, request: Mapping[str, Any]) -> Answer:
        try:
            if self._client is None:
                self._environment = self._current_environment()
                self._client, self._is_old = started(self._job, "builder", self._protocol), False
            return _held_to(self._job, self._client.request(action, **request))
        except WorkerEnded as ended:
            self._client = None
            if self._is_old and ended.outcome is not Outcome.TIMEOUT:
                # It may have ended while it was stopped, or of what it built for others.
                self._is_old = False
                return self._answer(action, request)
            return ended_answer(ended)

    def _current_environment(self) -> Mapping[str, str]:
        job = self._job
        return worker_environment(job.device, self._protocol.allocator, 0, job.artifacts, job.variables)


def build(
    job: Job, protocol: Protocol, wanted: Sequence[Wanted], progress: Progress, *, looks: bool = False
) -> list[Answer]:
    """Build what compilers read, or look at models, in one process of the job's side that ends with it."""
    return Builder(job, protocol).build(wanted, progress, is_kept=False, looks=looks)


def started(job: Job, name: str, protocol: Protocol, module: str = "") -> WorkerClient:
    """Start a process of the job's side that times nothing. Raise WorkerEnded where it cannot be started."""
    draw = random.Random(0)  # noqa: S311 - an address layout, not a secret
    if not module:
        return WorkerClient(job, name, protocol=protocol, draw=draw)
    return WorkerClient(job, name, protocol=protocol, draw=draw, module=module)


def explained(label: str, tree: str, answer: Answer) -> Answer:
    """Return an answer that says, of a file which a commit has and the tree of its side has not, why that is so."""
    if answer["ok"]:
        return answer
    for path, why in unusable(tree).items():
        if path in answer["reason"] or PurePath(path).name in answer["reason"]:
            return {**answer, "reason": f"{answer['reason']}\n{path} of {label}: {why}"}
    return answer


def ended_answer(ended: WorkerEnded) -> Answer:
    """Return the answer to what a process did not live to answer."""
    return {"ok": False, "outcome": ended.outcome.value, "reason": ended.reason}


def _held_to(job: Job, answer: Answer) -> Answer:
    """Return an answer, or why what was built is not of the side that was asked for."""
    if job.side is None or not answer["ok"]:
        return answer
    reason = objection(job.side, answer["provenance"])
    return {"ok": False, "outcome": Outcome.FAILED.value, "reason": reason} if reason else answer
