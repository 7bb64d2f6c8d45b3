"""What tuning TVM has found, as files: a database of TVM's own format for each task, and what each has cost.

A task is a kernel to find a schedule for, such as a convolution with the operators fused to it. It is known by its
structure, so that models, batches and depths that share a kernel share what was found for it.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pytest_ngraph.machine import files, turns

# The names are TVM's: ``JSONDatabase(work_dir=...)`` opens the folder of a task.
WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
_HISTORY = "history.json"
_BEST = "best.jsonl"
# What TVM writes for the seconds of a candidate that could not be built or run.
FAILED_SECONDS = 1e10
_POSTPROCESSING = "EnterPostproc"
_POLL_SECONDS = 0.5
_SEAL = b"\n#sha256 "


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a search may cost: trials of one task, trials without gain, and seconds of all tasks (0: no limit)."""

    trials: int
    patience: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Trials that were made at one go.

    ``times`` has for each its seconds, or None where it failed, ``error`` is why the last one did. There is no list
    where nothing was left to try. ``seconds`` is what all of them cost.
    """

    times: tuple[float | None, ...] | None
    seconds: float
    cost_model: str
    error: str = ""

    @classmethod
    def of(cls, times: Sequence[float | str] | None, seconds: float, cost_model: str) -> Batch:
        """Return a batch from what each trial gave: its seconds, or why there are none."""
        if times is None:
            return cls(None, seconds, cost_model)
        numbers = tuple(None if isinstance(taken, str) else taken for taken in times)
        failed = [taken for taken in times if isinstance(taken, str)]
        return cls(numbers, seconds, cost_model, failed[-1] if failed else "")

    def first(self, trials: int) -> Batch:
        """Return the batch as it would have been with so many trials at most."""
        if self.times is None or len(self.times) <= trials:
            return self
        return replace(self, times=self.times[:trials], seconds=self.seconds * trials / len(self.times))


@dataclass(frozen=True, slots=True)
class Spent:
    """What the search for one task costs, over all batches of it.

    ``idle_trials`` are those since the best one, ``exhausted`` says that nothing is left to try, ``error`` is what went
    wrong last while nothing had worked yet.
    """

    trials: int = 0
    seconds: float = 0.0
    best_seconds: float | None = None
    idle_trials: int = 0
    exhausted: bool = False
    error: str = ""
    cost_models: tuple[str, ...] = ()

    def after(self, batch: Batch) -> Spent:
        """Return the sum after another batch."""
        best, idle = self.best_seconds, self.idle_trials
        for taken in batch.times or ():
            idle += 1
            if taken is not None and (best is None or taken < best):
                best, idle = taken, 0
        return Spent(
            trials=self.trials + len(batch.times or ()),
            seconds=self.seconds + batch.seconds,
            best_seconds=best,
            idle_trials=idle,
            exhausted=self.exhausted or batch.times is None,
            error="" if best is not None else batch.error or self.error,
            cost_models=tuple(sorted({*self.cost_models, *([batch.cost_model] if batch.times else [])})),
        )

    def is_finished(self, limits: Limits) -> bool:
        """Return whether no further trial of this task is due, whatever the others cost."""
        return self.exhausted or self.trials >= limits.trials or self.idle_trials >= limits.patience


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel of a model: the hash of its structure, its name there, and how often the model calls it."""

    structure: str
    name: str
    weight: int


@dataclass(frozen=True, slots=True)
class TaskRecords:
    """The folder of one task: TVM's database of all trials, what each batch cost, and each schedule that was a gain."""

    folder: Path

    @property
    def history(self) -> list[Batch]:
        """Return the batches of the task, the oldest first."""
        content = self._sealed(_HISTORY)
        batches = json.loads(content) if content else []
        return [Batch(**{**each, "times": None if each["times"] is None else tuple(each["times"])}) for each in batches]

    def add(self, batch: Batch) -> None:
        """Keep a batch whose records TVM has just written, and those of its schedules that were a gain."""
        history = self.history
        trials, new = trials_in(history), len(batch.times or ())
        # What a process that was killed here had kept of a batch is not of this one.
        gains = [gain for gain in self._gains()[1] if gain[0] < trials]
        lines = (self.folder / RECORDS).read_bytes().splitlines()[-new:] if new else []
        for trial, line in enumerate(lines, start=trials):
            seconds = _seconds(line)
            if seconds is not None and (not gains or seconds < gains[-1][1]):
                gains.append((trial, seconds, line))
        kernel = next(iter(_whole_lines(self.folder / WORKLOADS)), None)
        if gains and kernel is not None:
            written = (b"[%d,%s,%s]\n" % (trial, repr(seconds).encode(), line) for trial, seconds, line in gains)
            _seal(self.folder / _BEST, kernel + b"\n" + b"".join(written))
        _seal(self.folder / _HISTORY, json.dumps([asdict(each) for each in (*history, batch)]).encode("utf-8"))

    def heal(self) -> None:
        """Make the folder where it is missing, and drop what a process that was killed has not finished."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not _keep_whole_lines(self.folder / WORKLOADS):
            # Records refer to the line of their kernel.
            (self.folder / RECORDS).unlink(missing_ok=True)
        _keep_whole_lines(self.folder / RECORDS, most=trials_in(self.history))

    def best(self, trials: int) -> tuple[str, str] | None:
        """Return the line of the kernel and that of the fastest schedule among its first trials, if there is one."""
        kernel, gains = self._gains()
        records = [record for trial, _, record in gains if trial < trials]
        return (kernel.decode("utf-8"), records[-1].decode("utf-8")) if records else None

    def _gains(self) -> tuple[bytes, list[tuple[int, float, bytes]]]:
        """Return the line of the kernel and the trials that were faster than all before: number, seconds and record."""
        content = self._sealed(_BEST)
        if not content:
            return b"", []
        kernel, *lines = content.splitlines()
        parts = [line[1:-1].split(b",", 2) for line in lines]
        return kernel, [(int(trial), float(seconds), record) for trial, seconds, record in parts]

    def _sealed(self, name: str) -> bytes:
        """Return one of our files. Where it is damaged the task is forgotten and searched for again."""
        content = _unsealed(self.folder / name)
        if content is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True, exist_ok=True)
        return content or b""


class Records:
    """The folder of everything that was found for one target."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, task: Task) -> TaskRecords:
        """Return the records of a task."""
        return TaskRecords(self._folder / "tasks" / task.structure)

    def tasks_of(self, model: str) -> list[Task] | None:
        """Return the tasks of a model, by the key of its contents, or None where they are not known yet."""
        content = _unsealed(self._model(model))
        return [Task(**each) for each in json.loads(content)] if content else None

    def remember(self, model: str, tasks: Iterable[Task]) -> None:
        """Keep which tasks a model has."""
        self._model(model).parent.mkdir(exist_ok=True)
        _seal(self._model(model), json.dumps([asdict(task) for task in tasks]).encode("utf-8"))

    def within(self, tasks: Iterable[Task], limits: Limits) -> tuple[dict[Task, Spent], Task | None]:
        """Follow a search within limits through the trials of these tasks (see ``follow``)."""
        return follow({task: self.of(task).history for task in tasks}, limits)

    def write_best(self, spent: Mapping[Task, Spent], folder: Path) -> None:
        """Write the best schedule of each task within its trials into one database of TVM's format.

        Opening the database replays every record, so that it holds no others.
        """
        kernels: list[str] = []
        records: list[str] = []
        for kernel, record in filter(None, (self.of(task).best(each.trials) for task, each in spent.items())):
            records.append(f"[{len(kernels)},{record.partition(',')[2]}\n")
            kernels.append(kernel + "\n")
        (folder / WORKLOADS).write_text("".join(kernels), encoding="utf-8")
        (folder / RECORDS).write_text("".join(records), encoding="utf-8")

    @contextmanager
    def writing(self, waiting: Callable[[], None]) -> Iterator[Path]:
        """Hold the right to write here. ``waiting`` is called twice a second while another process is.

        Gives an empty folder for passing needs, which goes in the end, or with the next writer's. The kernel frees the
        lock with its process.
        """
        with (self._folder / "lock").open("w") as lock:
            turns.take(lock, waiting, pause_seconds=_POLL_SECONDS)
            scratch = self._folder / "scratch"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                # A new folder: what a writer that was killed had started may still be writing to the old one.
                yield Path(tempfile.mkdtemp(dir=scratch))
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    def _model(self, model: str) -> Path:
        return self._folder / "models" / f"{model}.json"


def is_complete(spent: Sequence[Spent], limits: Limits) -> bool:
    """Return whether every task is finished, or all together have cost what they may."""
    return bool(
        all(each.is_finished(limits) for each in spent)
        or (limits.seconds and sum(each.seconds for each in spent) >= limits.seconds)
    )


def next_task(spent: Mapping[Task, Spent], limits: Limits) -> Task:
    """Return the task to go on with: one for which nothing is known yet, else the one the model spends most time in."""

    def share(task: Task) -> float:
        best = spent[task].best_seconds
        return math.inf if best is None else task.weight * best

    return max((task for task, each in spent.items() if not each.is_finished(limits)), key=share)


def follow(histories: Mapping[Task, Sequence[Batch]], limits: Limits) -> tuple[dict[Task, Spent], Task | None]:
    """Follow a search within limits through what was tried, by any process.

    Returns what it costs for each task, and the task that it would try next and for which nothing further was tried:
    None where the search is complete. Batches are only ever added, so a search that is complete stays what it is,
    however much further others search: a cell means the same schedules in every run.
    """
    spent, batches = dict.fromkeys(histories, Spent()), {task: iter(each) for task, each in histories.items()}
    while not is_complete(list(spent.values()), limits):
        task = next_task(spent, limits)
        batch = next(batches[task], None)
        if batch is None:
            return spent, task
        spent[task] = spent[task].after(batch.first(limits.trials - spent[task].trials))
    return spent, None


def trials_in(history: Iterable[Batch]) -> int:
    """Return the number of trials in some batches."""
    return sum(len(batch.times or ()) for batch in history)


def _read(line: bytes) -> Any:
    """Return the JSON of a line, or None where it is not whole."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _whole_lines(file: Path) -> list[bytes]:
    """Return the lines of a file that are JSON. None where the file is missing."""
    try:
        return [line for line in file.read_bytes().split(b"\n") if _read(line) is not None]
    except FileNotFoundError:
        return []


def _keep_whole_lines(file: Path, most: int | None = None) -> int:
    """Drop every line that is not JSON and all after ``most``, end the last one, and return how many there are."""
    lines = _whole_lines(file)[:most]
    whole = b"".join(line + b"\n" for line in lines)
    if file.exists() and file.read_bytes() != whole:
        files.write(file, whole)
    return len(lines)


def _seconds(line: bytes) -> float | None:
    """Return the mean time of a record that worked and that changes anything, else None."""
    _, ((instructions, _), seconds, *_) = _read(line)
    # TVM passes over a schedule without instructions.
    changes = bool(instructions) and instructions[0][0] != _POSTPROCESSING
    return sum(seconds) / len(seconds) if changes and seconds and max(seconds) < FAILED_SECONDS else None


def _seal(file: Path, content: bytes) -> None:
    """Write a file of this cache with a digest of its content after it."""
    files.write(file, content + _SEAL + hashlib.sha256(content).hexdigest().encode())


def _unsealed(file: Path) -> bytes | None:
    """Return what was written with ``_seal``: nothing without a file, and None, with a warning, where it is damaged."""
    try:
        content, seal, known = file.read_bytes().rpartition(_SEAL)
    except FileNotFoundError:
        return b""
    if seal and hashlib.sha256(content).hexdigest().encode() == known:
        return content
    sys.stderr.write(f"{file} is damaged: what was found there is searched for again\n")
    return None
