"""From collected items to launch groups: cells that one claim can connect are measured together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from pytest_ngraph.load.neighbours import cell_beside, neighbours_of, with_neighbours
from pytest_ngraph.plan.items import ItemPlan
from pytest_ngraph.spec.cells import Cell, LaunchRecord, Protocol, Reading
from pytest_ngraph.spec.states import hardly_counts, same_state

# Seconds that starting workers takes beside what they import, and those that a cell takes beside compiling, warming up
# and its visits; rough, for estimates only.
_START_SECONDS = 1.2
_CELL_SECONDS = 0.15
# What a call is taken to last before it was measured.
_CALL_SECONDS = 1e-3
# Where a machine stays in its states for this long, the one that is waited for does not come back within a launch.
_LONG_DWELL_SECONDS = 30.0


@dataclass(slots=True)
class Group:
    """Cells measured together, and the tests that want them. ``name`` is for people."""

    name: str
    cells: tuple[Cell, ...]
    items: list[ItemPlan] = field(default_factory=list)
    is_split: bool = False
    # A long launch of it did not count, so that shorter ones of some of its tests are tried.
    is_hurried: bool = False
    # What is known of the group so far; ``invalid`` are the reasons of launches that do not count.
    invalid: list[str] = field(default_factory=list)
    launches: list[LaunchRecord] = field(default_factory=list)
    # Those that do not count among them, in their order; read where nothing is measured.
    finished: list[LaunchRecord] = field(default_factory=list)
    call_seconds: dict[Cell, float] = field(default_factory=dict)
    # What each launch was to measure, those that did not count among them.
    tried: list[frozenset[Cell]] = field(default_factory=list)
    fruitless: int = 0
    fruitless_in_a_row: int = 0
    outside_in_a_row: int = 0
    is_known: bool = False
    # The state that the machine should be in: asked for, or the usual one when the first of the launches began.
    chosen: Reading | None = None
    usual: Reading | None = None
    # How long the machine stays in a state, as far as earlier runs say.
    dwell_seconds: float = 0.0

    @property
    def device(self) -> str:
        """Return the one device of the group."""
        return self.cells[0].device

    @property
    def spent_seconds(self) -> float:
        """Return how long its launches took that count, in whatever run they were measured."""
        return sum(record.seconds for record in self.launches)

    def seconds_before(self, launch: LaunchRecord) -> float:
        """Return how long those took that were begun before one of them."""
        before = takewhile(lambda record: record.identity != launch.identity, self.launches)
        return sum(record.seconds for record in before)

    @property
    def is_given_up(self) -> bool:
        """Return whether launch after launch did not count, so that another hardly would."""
        return hardly_counts(self.fruitless_in_a_row, self.outside_in_a_row)

    @property
    def controls(self) -> dict[Cell, Cell]:
        """Return the second processes that control baselines, each with the baseline's cell that it is a twin of.

        The smallest workload is the first. A launch needs one, of any baseline in it: what makes one of two equal
        processes faster shows in the smallest as well.
        """
        baselines = sorted((cell for item in self.items for cell in item.baselines), key=_size)
        return {replace(cell, replica=1): cell for cell in baselines}

    def launches_with(self, cells: Sequence[Cell]) -> list[LaunchRecord]:
        """Return the launches that measured all of these cells, in the one state of the machine that is judged."""
        return same_state(self.holding(cells), self.chosen, waits=True)

    def holding(self, cells: Sequence[Cell]) -> list[LaunchRecord]:
        """Return the launches that measured all of these cells, in whatever state."""
        return [record for record in self.launches if record.holds(cells)]

    def baselines(self) -> dict[Cell, Cell]:
        """Return what each cell is compared with. The first test that names a cell decides."""
        against: dict[Cell, Cell] = {}
        for item in self.items:
            by_workload = {cell.workload: cell for cell in item.baselines}
            # The cells of the other side as well: both are as fast as they are beside the one baseline of here.
            for cell in (*item.cells, *item.others):
                against.setdefault(cell, by_workload[cell.workload])
        return against

    def parts(self, items: Iterable[ItemPlan]) -> list[list[Cell]]:
        """Return the cells that these tests need, by launch: one for all, or one for each compiler once split.

        What a test needs stays together, so that every claim finds its cells in one launch.
        """
        found: dict[object, dict[Cell, None]] = {}
        for item in items:
            seat = (item.cells[0].compiler, item.cells[0].replica) if self.is_split else None
            found.setdefault(seat, {}).update(dict.fromkeys(item.all_cells))
        return [list(cells) for cells in found.values()]


def _size(cell: Cell) -> tuple[int, int, int]:
    workload = cell.workload
    return workload.depth or 0, workload.sequence or 0, workload.batch


def groups_of(items: Iterable[ItemPlan]) -> list[Group]:
    """Join the items that share a cell into groups, in the order of their first items."""
    parent: dict[int, int] = {}

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    owner: dict[Cell, int] = {}
    plans = list(items)
    for number, plan in enumerate(plans):
        parent[number] = number
        for cell in plan.all_cells:
            first = owner.setdefault(cell, number)
            low, high = sorted((root(first), root(number)))
            parent[high] = low
    members: dict[int, list[ItemPlan]] = {}
    for number, plan in enumerate(plans):
        members.setdefault(root(number), []).append(plan)
    return [_group(plans_of_group) for plans_of_group in members.values()]


def _group(plans: Sequence[ItemPlan]) -> Group:
    cells = tuple(dict.fromkeys(cell for plan in plans for cell in plan.all_cells))
    models = dict.fromkeys(cell.workload.model.text for cell in cells)
    widths = dict.fromkeys(cell.workload.width for cell in cells)
    width = f" width{next(iter(widths))}" if len(widths) == 1 and None not in widths else ""
    return Group(f"{cells[0].device} {', '.join(models)}{width}", cells, list(plans))


def patience_seconds(launch_seconds: float, dwell_seconds: float) -> float:
    """Return how long a launch that takes so many seconds waits for a state of the machine to come back.

    Whether to wait or to launch again, nobody knows. Waiting for as long as a launch takes costs at most twice the
    better of the two. Where the machine stays in a state for half a minute and more, waiting is mostly in vain.
    """
    return launch_seconds / 4 if dwell_seconds >= _LONG_DWELL_SECONDS else launch_seconds


def start_seconds(cells: Sequence[Cell]) -> float:
    """Estimate the wall seconds until the workers of these cells can be asked. What they import is left out."""
    # Each neighbour has a process of its own.
    workers = len({(cell.compiler, cell.replica, cell.side) for cell in cells}) + len(neighbours_of(cells))
    return _START_SECONDS * max(1.0, workers / 2)


def launch_seconds(cells: Sequence[Cell], protocol: Protocol, call_seconds: dict[Cell, float]) -> float:
    """Estimate the wall seconds of one launch. An unknown call is taken to be short.

    Neighbours are prepared and warmed up as cells are, and make a call before each visit beside them.
    """
    from pytest_ngraph.launches.order import blocks_in, under_load
    from pytest_ngraph.load.beside import seconds_beside
    from pytest_ngraph.worker.timing import visit_seconds

    everything = with_neighbours(cells)
    known = {cell: call_seconds.get(cell, _CALL_SECONDS) for cell in everything}
    blocks = blocks_in({cell: known[cell] for cell in cells}, protocol)
    total = start_seconds(cells)
    for cell in everything:
        warm = protocol.long_warmup_seconds if known[cell] > 0.05 else protocol.warmup_seconds
        total += _CELL_SECONDS + max(warm, protocol.warmup_calls * known[cell])
    for cell in cells:
        call, beside = known[cell], cell_beside(cell)
        loaded = under_load(cell, call)
        stay = visit_seconds(call, protocol) if loaded is None else loaded.seconds
        if beside is not None:
            stay = seconds_beside(stay, known[beside]) + known[beside]
        total += blocks * (stay + max(protocol.discard_seconds, call))
    return total
