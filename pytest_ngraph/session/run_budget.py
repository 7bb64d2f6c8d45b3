"""The time that a run may take (``--ngraph-run-budget``), and which group may still spend of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pytest_ngraph import units
from pytest_ngraph.plan.groups import Group
from pytest_ngraph.store.connection import make_folder

# Gates that hold with some room are decided in three to six launches: a first look, and as much again.
_LOOKS_TO_COME = 2
# A file of notes that nobody has touched for so long is of a run that was killed with all of its processes.
_FORGOTTEN_SECONDS = 7 * 24 * 3600.0
_NOTES = "run-budget-"


class Notes:
    """What the processes of one run (pytest-xdist) tell each other of its time, in a file beside the store.

    Each appends lines: when the run began, which test it is at, which tests are over, which groups have been reached.
    Each holds a lock on a byte of the file, at its process id, which the kernel frees when it ends, however it ends: so
    the test that a process was at when it died is over. Where the file cannot be written each process has the whole
    budget to itself. The clock is that of the machine, which all its processes share.
    """

    def __init__(self, folder: Path, run: str, clock: Callable[[], float] | None = None) -> None:
        self._path, self._process = path_of_notes(folder, run), os.getpid()
        self._began = (clock or time.monotonic)()
        self._over: set[str] = set()
        self._reached: set[str] = set()
        self._at: dict[int, str] = {}
        self._read, self._rest = 0, b""
        # Each device of a run has a thread.
        self._lock = threading.Lock()
        self._fd: int | None = None
        with contextlib.suppress(OSError):
            make_folder(folder)
            _forget_old(folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._path, flags, 0o600)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._process)
        self._write({"began": self._began})

    @property
    def began(self) -> float:
        """When the first process of the run began, by the machine's clock."""
        self._catch_up()
        return self._began

    def begins(self, test: str) -> None:
        """Note that this process is at a test."""
        self._write({"at": test, "process": self._process})

    def ends(self, test: str) -> None:
        """Note that a test is over."""
        self._write({"over": test})

    def reach(self, group: Group) -> None:
        """Note that the tests of a group begin."""
        self._write({"reached": _name_of(group)})

    def has_reached(self, group: Group) -> bool:
        """Return whether the tests of a group have begun in any process."""
        self._catch_up()
        return _name_of(group) in self._reached

    def is_over(self, group: Group) -> bool:
        """Return whether all tests of a group are over, in whatever process."""
        self._catch_up()
        with self._lock:
            left = {item.test for item in group.items} - self._over
            at = {process: test for process, test in self._at.items() if test in left}
        return left <= {test for process, test in at.items() if not self._lives(process)}

    def _lives(self, process: int) -> bool:
        if process == self._process or self._fd is None:
            return True
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, process)
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, process)
        except OSError:
            return True
        return False

    def _write(self, note: dict[str, object]) -> None:
        if self._fd is not None:
            # A full disk costs what the others do not learn.
            with contextlib.suppress(OSError):
                # The line break before it ends what a process that was killed has left half written.
                os.write(self._fd, b"\n" + json.dumps(note).encode("utf-8") + b"\n")

    def _catch_up(self) -> None:
        """Read what has been written since this was last called, as far as its lines are whole."""
        if self._fd is None:
            return
        with self._lock:
            self._take_new(self._fd)

    def _take_new(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            while more := os.pread(fd, 1 << 16, self._read):
                self._read += len(more)
                self._rest += more
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            # Lines of others are taken for what they are: nobody else writes here, but a line may be half one.
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                self._take(json.loads(line))

    def _take(self, note: object) -> None:
        if not isinstance(note, dict):
            return
        began = note.get("began")
        if isinstance(began, float) and math.isfinite(began):
            self._began = min(self._began, began)
        if isinstance(process := note.get("process"), int):
            self._at[process] = str(note.get("at"))
        if "over" in note:
            self._over.add(str(note["over"]))
        if "reached" in note:
            self._reached.add(str(note["reached"]))


def path_of_notes(folder: Path, run: str) -> Path:
    """Return the file in which the processes of a run share its time."""
    return folder / f"{_NOTES}{run}"


def _name_of(group: Group) -> str:
    """Return what a group is called in every process: they have collected the same tests."""
    return group.items[0].nodeid if group.items else group.name


def _forget_old(folder: Path) -> None:
    for path in folder.glob(f"{_NOTES}*"):
        # Another process may have removed it first.
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _FORGOTTEN_SECONDS:
                path.unlink()


class RunBudget:
    """Keeps the time of a run for the groups to come, and gives what is left to the gates that are undecided.

    A group to come keeps what two of its first looks take, one that has had its first look keeps one more. Beyond that
    an undecided gate takes what it needs, as long as there is any. ``seconds`` is wall time from here on, whatever it
    is spent on, or None for a run without a limit. ``is_over`` says whether no test waits for a group any more. Where
    several processes share a run they share its time by ``notes``.
    """

    def __init__(
        self,
        seconds: float | None,
        is_over: Callable[[Group], bool],
        clock: Callable[[], float] | None = None,
        notes: Notes | None = None,
    ) -> None:
        self.seconds = seconds
        self._is_over, self._clock, self._notes = is_over, clock or time.monotonic, notes
        self._began = self._clock()
        self._groups: list[tuple[Group, float]] = []
        self._reached: dict[int, float] = {}

    def expect(self, group: Group, first_look_seconds: float) -> None:
        """Keep time for a group whose tests are to come."""
        self._groups.append((group, first_look_seconds))

    @property
    def is_spent(self) -> bool:
        """Return whether the run has taken as long as it may."""
        return self.seconds is not None and self._left(self.seconds) <= 0

    def reach(self, group: Group) -> None:
        """Note that the tests of a group begin."""
        if id(group) not in self._reached:
            self._reached[id(group)] = self._clock()
            if self._notes is not None:
                self._notes.reach(group)

    def waits(self, group: Group) -> Callable[[], None]:
        """Note that a group begins to wait for its device. Returns what is called once it has it.

        The time of others is none of its own.
        """
        since = self._clock()

        def is_there() -> None:
            if id(group) in self._reached:
                self._reached[id(group)] += self._clock() - since

        return is_there

    def allows(self, group: Group) -> bool:
        """Return whether a group may have a launch more than its first look."""
        if self.seconds is None:
            return True
        left, now = self._left(self.seconds), self._clock()
        if left <= 0:
            return False
        its_own = _LOOKS_TO_COME * sum(seconds for one, seconds in self._groups if one is group)
        kept = sum(self._kept(other, seconds) for other, seconds in self._groups if other is not group)
        return left > kept or now - self._reached.get(id(group), now) < its_own

    def why(self, group: Group) -> str:
        """Return why a group gets no further launch, or nothing where it may have one."""
        if self.seconds is None or self.allows(group):
            return ""
        what = f"the run's budget of {units.seconds(self.seconds)} is spent"
        if not self.is_spent:
            what = f"what is left of the run's budget of {units.seconds(self.seconds)} is kept for tests to come"
        return f"{what} (--ngraph-run-budget)"

    def _left(self, seconds: float) -> float:
        began = self._began if self._notes is None else min(self._began, self._notes.began)
        return seconds - (self._clock() - began)

    def _kept(self, group: Group, first_look_seconds: float) -> float:
        """Return the seconds that are kept for a group."""
        if self._is_over(group) or (self._notes is not None and self._notes.is_over(group)):
            return 0.0
        reached = id(group) in self._reached or (self._notes is not None and self._notes.has_reached(group))
        return (_LOOKS_TO_COME - reached) * first_look_seconds
