"""What measuring will take, before it begins: by rule of thumb at first, by what the store remembers afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.load.neighbours import with_neighbours
from pytest_ngraph.load.scenarios import as_compiled
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.plan.groups import Group, launch_seconds, start_seconds
from pytest_ngraph.plan.rough import SHORT_SECONDS, rough_seconds
from pytest_ngraph.spec.cells import NEIGHBOUR, Cell, Workload
from pytest_ngraph.workloads.kinds import kind_of

# Seconds of one CPU, of a build process and of a worker until it can be asked, by what its compiler reads: PyTorch is
# what takes long to import.
_BUILDER_SECONDS = 3.0
_WORKER_SECONDS = {"module": 3.0, "onnx": 1.2, "nothing": 0.4}
# Making a model for its digest and its reference outputs, and exporting it.
_MODEL_SECONDS, _EXPORT_SECONDS = 1.5, 2.5
# Checking the outputs of a cell before and after it is timed, and asking it for its first calls.
_CHECK_SECONDS = 0.1
# Calls of a cell that runs alone.
_CALLS_ALONE = 6


@dataclass(frozen=True, slots=True)
class Known:
    """What a store remembers of a launch: its group, the labels of its cells, its wall seconds, whether it counted."""

    group: str
    cells: frozenset[str]
    seconds: float
    counted: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """What the first looks of a device's groups take, in wall seconds.

    ``groups`` are those to measure, ``launches`` how many each of them needs. ``build_seconds`` are for what is built
    once, ``launch_seconds`` for all launches and ``memory_seconds`` for the passes that measure memory. ``stored``
    groups have their launches in the store already, unless what they rest on has changed: then they take
    ``stored_seconds`` more. A search for code (``searches``) is not in any of these. ``passes`` are those in which
    cells that are not timed are evaluated, in ``pass_seconds`` and what the evaluation itself takes. Of ``untold``
    workloads nothing says how long a call takes: it is taken to be short.
    """

    groups: int = 0
    launches: int = 0
    build_seconds: float = 0.0
    launch_seconds: float = 0.0
    memory_seconds: float = 0.0
    stored: int = 0
    stored_seconds: float = 0.0
    searches: tuple[str, ...] = ()
    passes: int = 0
    pass_seconds: float = 0.0
    untold: int = 0

    @property
    def seconds(self) -> float:
        """Return the sum."""
        return self.build_seconds + self.launch_seconds + self.memory_seconds + self.pass_seconds


class Estimator:
    """Estimates what groups of cells will take on a device of so many CPUs.

    How long calls take of networks of well-known names is known on CPUs only (``computes_on_cpus``).
    """

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        cpus: int,
        known: Sequence[Known] = (),
        *,
        computes_on_cpus: bool = True,
    ) -> None:
        self._settings, self._catalogue, self._cpus = settings, catalogue, max(1, cpus)
        self._computes_on_cpus = computes_on_cpus
        self._known: dict[tuple[str, frozenset[str]], list[Known]] = {}
        for one in known:
            self._known.setdefault((one.group, one.cells), []).append(one)

    def cost(self, groups: Sequence[Group], cells_of: Mapping[int, Sequence[Cell]], launches: int) -> Cost:
        """Return what the first looks of groups take. ``cells_of`` has the cells of each, its controls included."""
        new, stored, evaluated = [], [], dict[Cell, None]()
        for group in groups:
            if all(item.is_untimed for item in group.items):
                evaluated |= dict.fromkeys(cell for item in group.items for cell in item.cells)
                continue
            found = self._launches_of(group, cells_of[id(group)])
            if sum(one.counted for one in found) >= launches and not self._settings.fresh:
                stored.append(launches * median(one.seconds for one in found))
            else:
                new.append((group, cells_of[id(group)], found))
        cells = list(dict.fromkeys(cell for _, mine, _ in new for cell in mine))
        # What was exported for an earlier run is kept.
        unbuilt = dict.fromkeys([*(cell for _, mine, found in new if not found for cell in mine), *evaluated])
        searches = dict.fromkeys(str(cell.compiler) for cell in cells if self._searches(cell))
        return Cost(
            groups=len(new),
            launches=launches,
            build_seconds=self._building(list(dict.fromkeys(map(as_compiled, with_neighbours(unbuilt))))),
            launch_seconds=sum(self._launching(mine, found, launches) for _, mine, found in new),
            memory_seconds=sum(self._memory(group, launches) for group, _, _ in new),
            stored=len(stored),
            stored_seconds=sum(stored),
            searches=tuple(searches),
            passes=len(evaluated),
            pass_seconds=sum(map(self._alone, evaluated)),
            untold=len(
                {cell.workload for _, mine, found in new if not found for cell in self._untold(with_neighbours(mine))}
            ),
        )

    def call_seconds(self, cells: Iterable[Cell]) -> dict[Cell, float]:
        """Return about how long a call of each cell takes, without those of which nothing says it."""
        rough = {cell: self._call_seconds(cell) for cell in cells}
        return {cell: seconds for cell, seconds in rough.items() if seconds is not None}

    def _call_seconds(self, cell: Cell) -> float | None:
        if self._reads(cell) == "nothing":
            return SHORT_SECONDS
        return rough_seconds(cell.workload, self._cpus) if self._computes_on_cpus else None

    def _untold(self, cells: Sequence[Cell]) -> list[Cell]:
        return [cell for cell in cells if self._call_seconds(cell) is None]

    def _launches_of(self, group: Group, cells: Sequence[Cell]) -> Sequence[Known]:
        return self._known.get((group.name, frozenset(cell.label for cell in cells)), ())

    def _reads(self, cell: Cell) -> str:
        return self._catalogue.get(cell.compiler.name).reads

    def _searches(self, cell: Cell) -> bool:
        adapter = self._catalogue.get(cell.compiler.name)
        return adapter.tunes(adapter.resolve(cell.compiler))

    def _building(self, cells: Sequence[Cell]) -> float:
        """Return the seconds of building what cells read, in one process after the other."""
        made: dict[Workload, bool] = {}
        for cell in cells:
            if self._reads(cell) != "nothing":
                made[cell.workload] = made.get(cell.workload, False) or self._reads(cell) == "onnx"
        if not made:
            return 0.0
        exported = [workload for workload, onnx in made.items() if onnx and not kind_of(workload.model).is_onnx]
        return _BUILDER_SECONDS + _MODEL_SECONDS * len(made) + _EXPORT_SECONDS * len(exported)

    def _launching(self, cells: Sequence[Cell], found: Sequence[Known], launches: int) -> float:
        if found:
            return launches * median(one.seconds for one in found)
        starts: dict[object, float] = {}
        compiling = later = 0.0
        everything = with_neighbours(cells)
        calls = self.call_seconds(everything)
        for cell in everything:
            # Each neighbour has a process of its own.
            seat = cell if cell.replica == NEIGHBOUR else (str(cell.compiler), cell.replica)
            starts[seat] = _WORKER_SECONDS[self._reads(cell)]
            first, again = self._catalogue.get(cell.compiler.name).rough_seconds
            compiling += first
            later += first if cell.rebuild else again
        # Workers import side by side; what they compile they compile one after the other.
        starting = max([*starts.values(), sum(starts.values()) / self._cpus]) - start_seconds(cells)
        measuring = launch_seconds(cells, self._settings.protocol, calls)
        each = max(0.0, starting) + measuring + _CHECK_SECONDS * len(everything)
        return launches * each + compiling + (launches - 1) * later

    def _memory(self, group: Group, launches: int) -> float:
        """Return the seconds of the passes in which each cell runs alone, for the tests that look at memory."""
        cells = dict.fromkeys(cell for item in group.items if item.looks_at_memory for cell in item.cells)
        return launches * sum(map(self._alone, cells))

    def _alone(self, cell: Cell) -> float:
        """Return the seconds of a worker that runs just this cell, from its start on."""
        calls = _CALLS_ALONE * (self._call_seconds(cell) or 0.0)
        return _WORKER_SECONDS[self._reads(cell)] + _MODEL_SECONDS + _CHECK_SECONDS + calls
