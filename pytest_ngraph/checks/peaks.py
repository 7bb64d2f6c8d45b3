"""The most memory that a worker and what it has started held, by phase, seen from the process that watches it."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Lock, Thread

from pytest_ngraph.checks.oversight import children_of
from pytest_ngraph.machine import gpu
from pytest_ngraph.spec.resources.peaks import COMPILING, GPU, HOST, RUNNING

_LOOK_SECONDS = 0.01
_PROC = Path("/proc")


class Peaks:
    """Looks at a process again and again until ``stop``: first while it compiles, after ``next_phase`` while it runs.

    ``bytes_of`` has the peak of each phase that could be read, and ``why_unreadable`` is why there is none.
    """

    where = ""

    def __init__(self, pid: int) -> None:
        """Begin to look at a process."""
        self.bytes_of: dict[str, int] = {}
        self.why_unreadable = ""
        self._pid, self._phase = pid, COMPILING
        self._over, self._one_at_a_time = Event(), Lock()
        self._thread = Thread(target=self._watch, name=f"memory of {pid}", daemon=True)
        self._thread.start()

    @property
    def most(self) -> int | None:
        """Return the peak of all phases, None where there is none."""
        return max(self.bytes_of.values(), default=None)

    def next_phase(self) -> None:
        """Note that the process is compiled and was called once."""
        with self._one_at_a_time:
            self._look()
            self._end_phase()
            self._phase = RUNNING

    def stop(self) -> None:
        """Read once more, then stop."""
        if self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        self._look()
        self._end_phase()

    def _keep(self, held: int) -> None:
        self.bytes_of[self._phase] = max(held, self.bytes_of.get(self._phase, 0))

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            with self._one_at_a_time:
                self._look()

    def _look(self) -> None:
        raise NotImplementedError

    def _end_phase(self) -> None:
        """Note what the whole phase has said."""


class HostPeaks(Peaks):
    """Resident memory: the kernel's own peak of the process, or what it held together with what it has started.

    Of children it is what is theirs alone and their part of what is shared (``Pss``): what a fork has in common with
    its parent is not counted twice.
    """

    where = HOST

    def _look(self) -> None:
        children = children_of(self._pid)
        if children and (own := _in_file(self._pid, "status", "VmRSS:")) is not None:
            self._keep(own + sum(map(_of_child, children)))

    def _end_phase(self) -> None:
        peak = _in_file(self._pid, "status", "VmHWM:")
        if peak is None or (self._phase == RUNNING and self.why_unreadable):
            self.why_unreadable = self.why_unreadable or f"{_PROC / str(self._pid)} does not say the peak of a process"
            self.bytes_of.pop(self._phase, None)
            return
        self._keep(peak)
        if self._phase == COMPILING:
            try:
                # From here on it is that of the next phase.
                (_PROC / str(self._pid) / "clear_refs").write_text("5", encoding="ascii")
            except OSError as error:
                self.why_unreadable = f"the kernel's peak cannot be begun again: {error.strerror or error}"


class GpuPeaks(Peaks):
    """What was held on a GPU, by looking every few milliseconds."""

    where = GPU

    def __init__(self, device: gpu.Gpu, pid: int) -> None:
        """Begin to look at what a process holds on a GPU."""
        self._device = device
        super().__init__(pid)

    def _look(self) -> None:
        try:
            self._keep(self._device.held_bytes(self._pid, children_of(self._pid)))
        except gpu.Unreadable as reason:
            self.why_unreadable = str(reason)


def _of_child(pid: int) -> int:
    own = _in_file(pid, "smaps_rollup", "Pss:")
    return own if own is not None else _in_file(pid, "status", "VmRSS:") or 0


def _in_file(pid: int, file: str, name: str) -> int | None:
    """Return the bytes in a line of a process's file, None where it is not there."""
    try:
        with (_PROC / str(pid) / file).open(encoding="ascii", errors="replace") as lines:
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)
    except (OSError, ValueError, IndexError):
        return None
