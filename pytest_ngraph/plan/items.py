"""What one item of a test needs: its cells, what they are compared with, and the terms of its test."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pytest_ngraph.options.settings import Budget, Settings
from pytest_ngraph.plan.marker import Marker
from pytest_ngraph.spec.cells import Cell, CompilerSpec, ModelRef
from pytest_ngraph.store.rows import LeftOut
from pytest_ngraph.workloads.kinds import kind_of

if TYPE_CHECKING:
    from pytest_ngraph.plan.grid import Grid

IDENTITY = CompilerSpec("identity")
# The looks of a gate with a budget of wall time are those of so many launches: a number that depended on how quick
# they were would judge stored launches otherwise than live ones.
_MOST_LAUNCHES = 16
_OF_A_CALL = re.compile(r"#\d+$")


@dataclass(frozen=True, slots=True)
class ItemPlan:
    """What one item needs: its cells, the baseline's cells for the same workloads, and its test's own terms.

    The cells of a sweep are in ascending order, and ``asked`` is the sweep as written. The item of a test that only
    asks for its device-compiler pair has no cells. ``nodeid`` is known once the item is about to run. ``marker`` and
    ``grid`` are what the item was made of: it is ``deselected`` where the options left nothing of them.
    """

    nodeid: str
    cells: tuple[Cell, ...]
    baselines: tuple[Cell, ...]
    budget: Budget
    tolerance: float
    # Its body speaks of memory, which takes passes of its own: a guess, for estimates only.
    looks_at_memory: bool = False
    # It claims what outputs are worth and nothing else, which takes untimed passes and no launches: a guess, too.
    is_untimed: bool = False
    device: str = ""
    compiler: CompilerSpec = IDENTITY
    asked: tuple[Any, ...] = ()
    # The same cells on the other side, in the order of ``cells``, where there is one.
    others: tuple[Cell, ...] = ()
    deselected: bool = False
    marker: Marker = field(default=Marker(), compare=False, repr=False)
    grid: Grid | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        # pytest sorts items by their parameters, and cells know their hash.
        return hash((self.device, self.cells))

    @property
    def test(self) -> str:
        """Return the id of the test. A call of ngraph.measure in it has a number behind that."""
        return _OF_A_CALL.sub("", self.nodeid)

    @property
    def most_launches(self) -> int:
        """Return the number of launches after which the test's budget ends at the latest."""
        return self.budget.launches or _MOST_LAUNCHES

    @property
    def all_cells(self) -> tuple[Cell, ...]:
        """Return the cells, their baselines, and the same cells on the other side."""
        return tuple(dict.fromkeys((*self.baselines, *self.cells, *self.others)))

    def on(self, side: str) -> ItemPlan:
        """Return the plan with its cells on another side instead, which goes by this label."""
        return replace(self, cells=tuple(replace(cell, side=side, replica=0) for cell in self.cells))

    def beside(self, side: str) -> ItemPlan:
        """Return the plan with its cells on another side as well, which goes by this label."""
        # What is compared with a second process here is so within this side.
        return replace(self, others=tuple(replace(cell, side=side, replica=0) for cell in self.cells))

    @property
    def pairs(self) -> Iterable[tuple[Cell, Cell]]:
        """Return each cell with the same on the other side, where there is one."""
        return zip(self.cells, self.others, strict=False)

    @property
    def compared(self) -> list[tuple[Cell, ...]]:
        """Return each cell behind its baseline, and before the same on the other side where there is one."""
        baselines, others = {cell.workload: cell for cell in self.baselines}, dict(self.pairs)
        return [(baselines[cell.workload], cell, *filter(None, [others.get(cell)])) for cell in self.cells]

    def only(self, cells: Collection[Cell]) -> ItemPlan:
        """Return the plan with these cells and what each is compared with alone, the whole where it has none of them.

        Its baselines and other sides come with the cells.
        """
        kept = [row for row in self.compared if not set(cells).isdisjoint(row)]
        if not kept:
            return self
        return replace(
            self,
            cells=tuple(row[1] for row in kept),
            baselines=tuple(dict.fromkeys(row[0] for row in kept)),
            others=tuple(other for row in kept for other in row[2:]),
        )

    def other(self, cell: Cell) -> Cell | None:
        """Return one of the cells on the other side, or None where there is no other side."""
        return dict(self.pairs).get(cell)

    @property
    def missing(self) -> str | None:
        """Return what has to be installed before the item can run, or None."""
        return None if self.grid is None else self.grid.missing(self)


def left_out(plans: Iterable[ItemPlan]) -> list[LeftOut]:
    """Return the cells of some tests that nothing installed can measure, by device, compiler, model and reason."""
    cells: dict[tuple[str, str, str, str], set[str]] = {}
    for plan in plans:
        if (missing := plan.missing) is not None:
            for cell in plan.cells:
                reason = missing.removeprefix(f"{cell.compiler} on {cell.device}: ")
                place = (cell.device, str(cell.compiler), cell.workload.model.text, reason)
                cells.setdefault(place, set()).add(cell.label)
    return [LeftOut(*place, len(found), tuple(sorted(found))) for place, found in cells.items()]


def baseline_for(model: ModelRef, *named: CompilerSpec | None) -> CompilerSpec:
    """Return the compiler that relative metrics of a model divide by: the first named, else the model's default."""
    for spec in named:
        if spec is not None:
            return spec
    return _parsed(kind_of(model).default_baseline)


# Each item of a grid asks, and there may be a hundred thousand.
_parsed = lru_cache(CompilerSpec.parse)


def item_plan(
    nodeid: str,
    cells: Iterable[Cell],
    settings: Settings,
    *,
    baseline: CompilerSpec | None,
    budget: Budget,
    tolerance: float,
    rebuild: bool = False,
    **of_grid: Any,
) -> ItemPlan:
    """Plan one item. A cell whose compiler is its own baseline becomes a second process of it (A/A).

    With ``rebuild`` every launch builds its cells again, the baseline's among them. ``of_grid`` are further fields of
    the plan.
    """
    mine: list[Cell] = []
    baselines: dict[Cell, None] = {}
    for cell in cells:
        against = baseline_for(cell.workload.model, baseline, settings.baseline)
        is_twin = cell.compiler == against
        own = Cell(cell.device, cell.compiler, cell.workload, int(is_twin), rebuild) if is_twin or rebuild else cell
        mine.append(own)
        baselines[Cell(cell.device, against, cell.workload, rebuild=rebuild)] = None
    if mine:
        of_grid = {"device": mine[0].device, "compiler": mine[0].compiler, **of_grid}
    return ItemPlan(nodeid, tuple(mine), tuple(baselines), budget, tolerance, **of_grid)
