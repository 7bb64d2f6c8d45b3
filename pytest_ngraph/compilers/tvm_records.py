"""What tuning TVM has found, as files: a database of TVM's own format for each task, and what each has cost.

A task is a kernel to find a schedule for, such as a convolution with the operators fused to it. It is known by its
structure, so that models, batches and depths that share a kernel share what was found for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# The names are TVM's: ``JSONDatabase(work_dir=...)`` opens the folder of a task.
WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
_SPENT = "spent.json"
_BEST = "best.jsonl"
# What TVM writes for the seconds of a candidate that could not be built or run.
FAILED_SECONDS = 1e10
_POSTPROCESSING = "EnterPostproc"
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a search may cost: trials of one task, trials without gain, and seconds of all tasks (0: no limit)."""

    trials: int
    patience: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """What the search for one task has cost so far, over all sessions.

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

    def after(self, times: Sequence[float | str] | None, seconds: float, cost_model: str) -> Spent:
        """Return the sum after another batch, where ``times`` has for each trial its seconds or why there are none.

        None says that there was nothing left to try.
        """
        best, idle, error = self.best_seconds, self.idle_trials, self.error
        for taken in times or ():
            idle += 1
            if isinstance(taken, str):
                error = taken if best is None else ""
            elif best is None or taken < best:
                best, idle, error = taken, 0, ""
        return Spent(
            trials=self.trials + len(times or ()),
            seconds=self.seconds + seconds,
            best_seconds=best,
            idle_trials=idle,
            exhausted=self.exhausted or times is None,
            error=error,
            cost_models=tuple(sorted({*self.cost_models, *([cost_model] if times else [])})),
        )

    def is_finished(self, limits: Limits) -> bool:
        """Tell whether no further trial of this task is due, whatever the others cost."""
        return self.exhausted or self.trials >= limits.trials or self.idle_trials >= limits.patience


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel of a model: the hash of its structure, its name there, and how often the model calls it."""

    structure: str
    name: str
    weight: int


@dataclass(frozen=True, slots=True)
class TaskRecords:
    """The folder of one task."""

    folder: Path

    @property
    def spent(self) -> Spent:
        """Return what the task has cost; nothing where no batch of trials has been finished."""
        try:
            fields = json.loads((self.folder / _SPENT).read_text(encoding="utf-8"))
            return Spent(**{**fields, "cost_models": tuple(fields["cost_models"])})
        except FileNotFoundError:
            return Spent()

    def write(self, spent: Spent) -> None:
        """Keep what the task has cost and, apart from all that was tried, the fastest schedule that was found."""
        record = _fastest(_whole_lines(self.folder / RECORDS))
        kernel = next(iter(_whole_lines(self.folder / WORKLOADS)), None)
        if record is not None and kernel is not None:
            _replace(self.folder / _BEST, kernel + b"\n" + record + b"\n")
        _replace(self.folder / _SPENT, json.dumps(asdict(spent)).encode("utf-8"))

    def heal(self) -> None:
        """Make the folder where it is missing, and drop what a process that was killed has half written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not _keep_whole_lines(self.folder / WORKLOADS):
            # Records refer to the line of their kernel.
            (self.folder / RECORDS).unlink(missing_ok=True)
        _keep_whole_lines(self.folder / RECORDS)

    def best(self) -> tuple[str, str] | None:
        """Return the line of the kernel and that of the fastest schedule found for it; None where there is none."""
        try:
            kernel, record, _ = (self.folder / _BEST).read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return None
        return kernel, record


class Records:
    """The folder of everything that was found for one target."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, task: Task) -> TaskRecords:
        """Return the records of a task."""
        return TaskRecords(self._folder / "tasks" / task.structure)

    def tasks_of(self, model: str) -> list[Task] | None:
        """Return the tasks of a model, by the key of its contents; None where they are not known yet."""
        try:
            return [Task(**each) for each in json.loads(self._model(model).read_text(encoding="utf-8"))]
        except FileNotFoundError:
            return None

    def remember(self, model: str, tasks: Iterable[Task]) -> None:
        """Keep which tasks a model has."""
        self._model(model).parent.mkdir(exist_ok=True)
        _replace(self._model(model), json.dumps([asdict(task) for task in tasks]).encode("utf-8"))

    def is_complete(self, tasks: Iterable[Task], limits: Limits) -> bool:
        """Tell whether nothing is left to search for these tasks within the limits."""
        return is_complete([self.of(task).spent for task in tasks], limits)

    def write_best(self, tasks: Iterable[Task], folder: Path) -> None:
        """Write the best schedule of each task into one database of TVM's format: opening it replays every record."""
        kernels: list[str] = []
        records: list[str] = []
        for kernel, record in filter(None, (self.of(task).best() for task in tasks)):
            records.append(f"[{len(kernels)},{record.partition(',')[2]}\n")
            kernels.append(kernel + "\n")
        (folder / WORKLOADS).write_text("".join(kernels), encoding="utf-8")
        (folder / RECORDS).write_text("".join(records), encoding="utf-8")

    @contextmanager
    def writing(self, waiting: Callable[[], None]) -> Iterator[Path]:
        """Be the one that writes here; ``waiting`` is called twice a second while another process is.

        Gives an empty folder for passing needs, which goes in the end, or with the next writer's. The kernel frees the
        lock with its process.
        """
        with (self._folder / "lock").open("w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    waiting()
                    time.sleep(_POLL_SECONDS)
            scratch = self._folder / "scratch"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                # Of its own: what a writer that was killed had started may still be writing to where it was told to.
                yield Path(tempfile.mkdtemp(dir=scratch))
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    def _model(self, model: str) -> Path:
        return self._folder / "models" / f"{model}.json"


def is_complete(spent: Sequence[Spent], limits: Limits) -> bool:
    """Tell whether every task is finished, or all together have cost what they may."""
    return bool(
        all(each.is_finished(limits) for each in spent)
        or (limits.seconds and sum(each.seconds for each in spent) >= limits.seconds)
    )


def _read(line: bytes) -> Any:
    """Return the JSON of a line, or None where it is not whole."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _whole_lines(file: Path) -> list[bytes]:
    """Return the lines of a file that are JSON; none where the file is missing."""
    try:
        return [line for line in file.read_bytes().split(b"\n") if _read(line) is not None]
    except FileNotFoundError:
        return []


def _keep_whole_lines(file: Path) -> int:
    """Drop every line that is not JSON, end the last one, and return how many there are."""
    lines = _whole_lines(file)
    whole = b"".join(line + b"\n" for line in lines)
    if file.exists() and file.read_bytes() != whole:
        _replace(file, whole)
    return len(lines)


def _fastest(lines: Iterable[bytes]) -> bytes | None:
    """Return the record with the least mean time, of those that worked and that change anything."""
    found: Mapping[bytes, float] = {
        line: sum(seconds) / len(seconds)
        for line in lines
        for _, ((instructions, _), seconds, *_) in [_read(line)]
        # TVM passes over a schedule without instructions.
        if seconds and max(seconds) < FAILED_SECONDS and instructions and instructions[0][0] != _POSTPROCESSING
    }
    return min(found, key=found.__getitem__, default=None)


def _replace(file: Path, content: bytes) -> None:
    """Write a file so that it is there whole or as it was before."""
    scratch = file.with_name(f".{file.name}-{os.getpid()}")
    scratch.write_bytes(content)
    scratch.replace(file)
