"""The search itself: from both ends by halves, then by dropping nodes, until nothing can be left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ngraph.reducing.graph import Graph

Nodes = tuple[int, ...]


class Search:
    """Delta debugging over the nodes of a graph. ``best`` are the fewest that are known to fail, at any moment.

    ``fails`` says whether some nodes fail by themselves; what it raises ends the search where it is. All nodes are
    taken to fail, which is seen before.
    """

    def __init__(self, graph: Graph, fails: Callable[[Nodes], bool]) -> None:
        self._graph, self._fails = graph, fails
        self.best: Nodes = tuple(range(len(graph)))
        self.is_minimal = False

    def run(self) -> None:
        """Search to the end: then no single node of ``best`` can be left out."""
        self._from_the_end()
        self._one_branch()
        self._from_the_start()
        self._one_component()
        self._drop()
        self.is_minimal = True

    def _try(self, nodes: Nodes) -> bool:
        if not nodes or len(nodes) >= len(self.best) or not self._fails(nodes):
            return False
        self.best = nodes
        return True

    def _from_the_end(self) -> None:
        whole, low, high = self.best, 0, len(self.best)
        while high - low > 1:
            middle = (low + high) // 2
            if self._try(whole[:middle]):
                high = middle
            else:
                low = middle

    def _one_branch(self) -> None:
        """Leave out what the last node does not depend on, or all others."""
        last = self.best[-1]
        if not self._try((last,)):
            self._try(self._graph.before(last, self.best))

    def _from_the_start(self) -> None:
        whole, low, high = self.best, 0, len(self.best)
        while high - low > 1:
            middle = (low + high) // 2
            if self._try(whole[middle:]):
                low = middle
            else:
                high = middle

    def _one_component(self) -> None:
        parts = self._graph.components(self.best)
        if len(parts) > 1:
            any(self._try(part) for part in parts)

    def _drop(self) -> None:
        """Leave out runs of nodes, shorter and shorter ones, until no single one can be left out."""
        size = len(self.best) // 2
        while size:
            start, dropped = 0, False
            while start < len(self.best):
                if self._try(self.best[:start] + self.best[start + size :]):
                    dropped = True
                else:
                    start += size
            size = min(size, len(self.best) // 2) if dropped else size // 2
