"""The course of a launch: what a device reports of one must be able to happen, in this order."""

from __future__ import annotations

from pytest_ngraph.devices.wire import wire
from pytest_ngraph.errors import DeviceUnusable
from pytest_ngraph.launches.launch import GroupTooLarge
from pytest_ngraph.spec.cells import Cell


class Course:
    """Follows the events of one launch: it begins, cells are prepared and then visited once a block, and it ends."""

    def __init__(self) -> None:
        self._moments: list[str] = []
        self._prepared: set[Cell] = set()
        self._visited: set[tuple[Cell, int]] = set()
        self._blocks = 0

    def follow(self, event: wire.Event) -> None:
        """Take the next event. Raise DeviceUnusable for one that cannot be the next of a launch."""
        wrong = ""
        if event.kind == "surroundings":
            wrong = self._moment(event.values[0])
        elif event.kind == "answer":
            wrong = self._end(event)
        elif event.kind in ("prepared", "visited", "block_done") and self._moments[:1] != ["begun"]:
            wrong = "before the launch began"
        elif event.kind in ("prepared", "visited", "block_done") and "ended" in self._moments:
            wrong = "after the launch ended"
        elif event.kind == "prepared":
            self._prepared.add(event.values[0])
        elif event.kind == "visited":
            wrong = self._visit(*event.values[:2])
        elif event.kind == "block_done":
            wrong = "" if event.values[0] == self._blocks else f"of block {event.values[0]} after {self._blocks} blocks"
            self._blocks += 1
        if wrong:
            raise DeviceUnusable(f"the device reports what cannot be: {event.kind!r} {wrong}")

    def _moment(self, when: str) -> str:
        if (when == "begun") == bool(self._moments) or self._moments[-1:] == ["ended"]:
            return f"{when!r} after {', '.join(self._moments) or 'nothing'}"
        self._moments.append(when)
        return ""

    def _visit(self, cell: Cell, block: int) -> str:
        if cell not in self._prepared:
            return "of a cell that was not prepared"
        if block != self._blocks or (cell, block) in self._visited:
            return (
                f"of block {block} again" if (cell, block) in self._visited else f"of block {block} too early or late"
            )
        self._visited.add((cell, block))
        return ""

    def _end(self, event: wire.Event) -> str:
        answer = event.values[0]
        measured = answer["ok"] or answer["error"] == GroupTooLarge.__name__
        return "without an end of the launch" if measured and "ended" not in self._moments else ""
