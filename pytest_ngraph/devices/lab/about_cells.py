"""What a remote device says of cells: asked about all that a run will need at once, and kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_ngraph.devices.wire import values
from pytest_ngraph.errors import CompileFailed, DeviceUnusable, SpecError, Unsupported
from pytest_ngraph.spec.cells import Cell, Workload

# One request's worth: it may be silent for no longer than any other.
_MOST_AHEAD = 500
# What a question may be refused for that is the fault of one of its cells.
_OF_A_CELL = (SpecError, CompileFailed, Unsupported, DeviceUnusable)


@dataclass(frozen=True, slots=True)
class AboutCell:
    """What a device says of a cell: why it is refused, its evidence key, whether it is the same as on side ``other``.

    The key is None where it is refused, or its model has to be built first.
    """

    refused: str | None
    key: str | None
    is_same: bool
    other: str | None = None

    @classmethod
    def read(cls, answer: Any, other: str | None) -> AboutCell:
        """Read what a device says, or raise one of the errors that ``wire.strictly`` turns around."""
        refused, key, is_same = answer
        said = (None if refused is None else values.said(refused), None if key is None else values.said(key))
        return cls(*said, values.flag(is_same), other)


# Asks the device about cells, each with the side that it is compared with, and gives an answer for each.
Ask = Callable[[Sequence[Cell], Sequence[str | None]], Sequence[AboutCell]]


class AboutCells:
    """Asks for what is not known yet. Each request is a process on the device, and starts one more for each side.

    So the first question is also asked about every cell that is expected. What was shipped does not change during a
    run, so that answers hold; but for models that were not built, until they are.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._expected: dict[Cell, str | None] = {}
        self._known: dict[Cell, AboutCell] = {}

    def expect(self, cells: Mapping[Cell, str | None]) -> None:
        """Ask about these cells, too, with the next question: each with the side that it is compared with, if any."""
        self._expected.update(cells)

    def of(self, cells: Iterable[Cell]) -> dict[Cell, AboutCell]:
        """Return what the device says of some cells."""
        wanted = dict.fromkeys(cells)
        if lacking := [cell for cell in wanted if cell not in self._known]:
            self._learn({cell: self._expected.get(cell) for cell in lacking})
        return {cell: self._known[cell] for cell in wanted}

    def same(self, cells: Sequence[Cell], other: str) -> set[Cell]:
        """Return those cells that are made of the same as on the side ``other``, as far as is known."""
        known = self._known
        if lacking := [cell for cell in cells if cell not in known or known[cell].other != other]:
            self._learn(dict.fromkeys(lacking, other))
        return {cell for cell in cells if known[cell].is_same}

    def unsettled(self, workloads: Collection[Workload]) -> dict[Cell, str | None]:
        """Return the cells of which more may be known once these workloads were built, as ``expect`` takes them."""
        return {
            cell: said.other
            for cell, said in self._known.items()
            if cell.workload in workloads
            and said.refused is None
            and (said.key is None or (said.other is not None and not said.is_same))
        }

    def built(self, workloads: Iterable[Workload]) -> None:
        """Forget what was not known of other cells with the models of these workloads, which were built.

        The files that one batch is made of are those of all, so the next question is about all of them once more, and
        about what was held to be another than they are on the other side.
        """
        models = {workload.model for workload in workloads}
        of_them = {cell: said for cell, said in self._known.items() if cell.workload.model in models}
        lacking = {cell for cell, said in of_them.items() if said.key is None and said.refused is None}
        for cell, said in of_them.items():
            if cell in lacking or (said.other is not None and replace(cell, side=said.other) in lacking):
                del self._known[cell]

    def know(self, cells: Iterable[Cell], answers: Iterable[AboutCell]) -> None:
        """Keep what the device said of some cells."""
        self._known.update(zip(cells, answers, strict=True))

    def _learn(self, wanted: Mapping[Cell, str | None]) -> None:
        # A list at once: tests that measure by a call add to it from another thread.
        expected = list(self._expected.items())
        ahead = [(cell, other) for cell, other in expected if cell not in self._known and cell not in wanted]
        if ahead := ahead[:_MOST_AHEAD]:
            together = {**wanted, **dict(ahead)}
            try:
                self.know(together, self._ask(list(together), list(together.values())))
            except _OF_A_CELL:
                # Whoever asks for the cell that is at fault gets its error, and nobody else.
                self._expected.clear()
            else:
                return
        self.know(wanted, self._ask(list(wanted), list(wanted.values())))
