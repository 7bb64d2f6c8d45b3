"""The bench: what the launcher and the session ask of a device, on this machine or remote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from typing import Protocol as TypingProtocol

from pytest_ngraph.launches.launch import Sink as _Measured

if TYPE_CHECKING:
    from pytest_ngraph.launches.launch import LaunchPlan
    from pytest_ngraph.spec.cells import Cell, CompileRecord, Device, ModelRef, Protocol

# What is being done, its step, and of how many.
Progress = Callable[[str, int, int], None]
# The snapshots before and after a pass, and between them the record of its cell.
Passed = tuple[Mapping[str, Any], "CompileRecord", Mapping[str, Any]]
# The same of several cells.
PassedTogether = tuple[Mapping[str, Any], "list[CompileRecord]", Mapping[str, Any]]
# ``{"ok": True, ...}``, or ``{"ok": False, "outcome": ..., "reason": ...}``.
Answer = Mapping[str, Any]


class Sink(_Measured, TypingProtocol):
    """Where a launch on a device puts what it measures, and the state of the machine around it."""

    def surroundings(self, when: str, snapshot: Mapping[str, Any]) -> None:
        """Take ``environment.snapshot`` of the device: ``begun``, ``blocks`` (before the first visit) or ``ended``.

        ``begun`` comes before anything else, ``ended`` after everything, also where the launch fails. ``blocks`` comes
        each time something was prepared before the first visit. The last one counts.
        """


class Bench(TypingProtocol):
    """A device that measures, one thing at a time. It is asked from one thread, but ``close`` may come from another.

    Whatever becomes of a cell is in the answers. What becomes of the device raises: DeviceLost (a link that was cut, an
    agent that was killed), DeviceUnusable (another version, a failed expectation), DeviceOffline.
    """

    @property
    def device(self) -> Device:
        """Return the device with its CPUs, threads and accelerator."""

    def missing(self, compiler: str) -> str | None:
        """Return what must be installed on the device before a compiler runs there, or None."""

    def missing_for(self, model: ModelRef) -> str | None:
        """Return what must be installed on the device before a model can be built there, or None."""

    def expect(self, cells: Mapping[Cell, str | None]) -> None:
        """Learn which cells will be asked about, each with the label of the side that it is compared with, if any.

        A device that is far away then says what it knows of all of them at once. Nothing is asked for before then.
        """

    def look_again(self) -> None:
        """Forget what was learnt of files, which may have changed since: what is asked next is about what they are."""

    def refusals(self, cells: Sequence[Cell]) -> dict[Cell, str]:
        """Return the cells that cannot run on the device in principle, each with the reason."""

    def facts(self) -> Mapping[str, Any]:
        """Return what machine the device is, as ``environment.describe`` says it there."""

    def held(self, waiting: Callable[[str], None]) -> AbstractContextManager[None]:
        """Hold the device exclusively. ``waiting`` is called with who holds it, where that is somebody else."""

    def keys(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Return the evidence key of each cell, or None where its model has to be built first."""

    def artifacts(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        """Return the key of what each cell's compiler reads: None where it is not built, "" where it reads nothing."""

    def remarks(self) -> list[str]:
        """Return what a user wants to know that was seen there since this was last called."""

    def same_content(self, cells: Sequence[Cell], other: str = "") -> set[Cell]:
        """Return those cells of other sides that are made of the same as the same cells here, as far as is known.

        With ``other``, the label of a side, they are compared with the same cells of that side instead. Of such a cell
        there is nothing to measure. A cell of which that is not known is not among them.
        """

    def build(self, wanted: Sequence[Cell], progress: Progress) -> list[Answer]:
        """Build what the compiler of each cell reads: the module of its model, or also the ONNX file."""

    def tune(self, cell: Cell, progress: Progress) -> Answer:
        """Make a compiler search for the best way to compile a cell. Reports nothing where that was done before."""

    def launch(self, plan: LaunchPlan, sink: Sink) -> None:
        """Run one launch. What it measures goes to ``sink`` as it arrives. Raises GroupTooLarge as ``run_launch``."""

    def memory(
        self, cell: Cell, protocol: Protocol, seed: int
    ) -> tuple[Mapping[str, Any], CompileRecord, Mapping[str, Any]]:
        """Run a cell alone and untimed. Return the snapshots before and after, and between them its record."""

    def evaluate(self, cell: Cell, protocol: Protocol, seed: int, progress: Progress) -> Passed:
        """Ask a model's own evaluation about a compiled cell, in a pass of its own. Returns as ``memory`` does."""

    def agree(self, cell: Cell, dense: Cell, samples: int, protocol: Protocol, seed: int, progress: Progress) -> Passed:
        """Call two cells on the same seeded inputs, each in a pass of its own. The record is that of the first."""

    def power(self, cells: Sequence[Cell], protocol: Protocol, seed: int, progress: Progress) -> PassedTogether:
        """Measure what cells draw, in one pass of all of them beside idle windows. There is a record of each."""

    def close(self) -> None:
        """Release the device. A request that is under way in another thread ends with DeviceLost."""
