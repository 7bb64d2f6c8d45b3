"""Which cells ``ngraph explain`` is about: as tables, ids of tests or words name them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.commands.collected_tests import with_tests
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Cell, Protocol, protocol_of

if TYPE_CHECKING:
    from pytest_ngraph.compilers.catalogue import Catalogue
    from pytest_ngraph.devices.local import LocalBench
    from pytest_ngraph.front.run import State

_MOST_NAMED, _NEAR = 8, 0.6


@dataclass(frozen=True)
class Offered:
    """Cells that can be explained, with what asks for them and where they run.

    ``tests`` are the cells of each collected test, its baseline first. ``evidence`` is under which the store has
    launches of a cell, where it has some.
    """

    bench: LocalBench
    catalogue: Catalogue
    protocol: Protocol
    store: Path
    cells: Sequence[Cell]
    evidence: Mapping[Cell, str] = field(default_factory=dict)
    tests: Mapping[str, Sequence[Cell]] = field(default_factory=dict)


def choose(names: Sequence[str], expression: str, offered: Offered) -> list[Cell]:
    """Return the one or two cells that are meant. Raise SpecError with what there is, and what is near what was given.

    A test stands for its cell, with what it is compared with before it where nothing else was named.
    """
    if expression:
        if names:
            raise SpecError(f"-k {expression}: not beside {names[0]!r} (expected names of cells, or an expression)")
        found = _matching(expression, offered.cells)
        if not 1 <= len(found) <= 2:
            there = _there(offered.cells, found)
            raise SpecError(f"-k {expression}: fits {_some(found)} (expected one cell or two){there}")
        return found
    if not names and len(offered.tests) == 1:
        names = [*offered.tests]
    if not 1 <= len(names) <= 2:
        raise SpecError(f"expected one CELL or two, or -k (given: {len(names)}){_there(offered.cells)}")
    chosen = [_named(name, offered) for name in names]
    if len(names) == 1:
        return list(chosen[0])
    both = [cells[-1] for cells in chosen]
    if both[0] == both[1]:
        raise SpecError(f"{names[0]!r} and {names[1]!r} are the same cell: {both[0].label}")
    return both


def _named(name: str, offered: Offered) -> Sequence[Cell]:
    """Return the cell of a name, or those of a test: what it is compared with, and its own."""
    if "::" in name:
        tests = {test: cells for test, cells in offered.tests.items() if test == name or test.endswith(f"/{name}")}
        if not tests:
            tests = {test: cells for test, cells in offered.tests.items() if test.partition("[")[0] == name}
        if len(tests) != 1:
            near = "; ".join(list(tests or offered.tests)[:_MOST_NAMED]) or "none"
            raise SpecError(f"{name!r}: fits {units.count(len(tests), 'test')} (expected one; collected: {near})")
        (cells,) = tests.values()
        if not 1 <= len(cells) <= 2:
            raise SpecError(f"{name!r}: measures {_some(cells)}; name one or two of them{_there(cells)}")
        return cells
    words = name.lower().split()
    exact = [cell for cell in offered.cells if name in _names(cell)]
    some = exact or [cell for cell in offered.cells if set(words) <= set(_words(cell))]
    some = _plainest(some, words)
    if len(some) != 1:
        raise SpecError(f"{name!r}: fits {_some(some)} (expected one){_there(offered.cells, some, name)}")
    return some


def _names(cell: Cell) -> tuple[str, ...]:
    """Return how a cell is named: as tables do, without its device, and as the ids of tests do."""
    label, workload = cell.label, cell.workload
    without = label.removeprefix(f"{cell.device}:")
    dashed = "-".join([cell.device, str(cell.compiler), workload.model.text, *workload.axis_labels()])
    return label, without, dashed, dashed.removeprefix(f"{cell.device}-")


def _words(cell: Cell) -> list[str]:
    """Return what may be said of a cell, word by word, also where it is at its default."""
    workload = cell.workload
    model = workload.model.text
    said = [*cell.label.split(), cell.device, str(cell.compiler), cell.compiler.name, model, model.rpartition(":")[2]]
    said += [workload.precision, workload.scenario, f"b{workload.batch}"]
    said += [f"{workload.image_size}px"] if workload.image_size else []
    return [word.lower() for word in said]


def _plainest(cells: Sequence[Cell], words: Sequence[str]) -> list[Cell]:
    """Return those of several that fit which are nothing more than was said: no second process, nothing rebuilt."""
    for is_plain in (
        lambda cell: not cell.replica,
        lambda cell: not cell.side,
        lambda cell: not cell.rebuild,
        lambda cell: not cell.compiler.options,
        lambda cell: cell.workload.precision == "f32",
        lambda cell: cell.workload.scenario == "latency",
    ):
        if len(cells) > 1:
            cells = [cell for cell in cells if is_plain(cell)] or list(cells)
    return list(cells)


class _Fits:
    """Whether a word of an expression is among those of a cell."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, word: str, /, **_: object) -> bool:
        return word.lower() in self._text


def _matching(expression: str, cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells whose names fit an expression, as pytest's -k does. Raise SpecError for what is none."""
    from _pytest.mark import expression as words

    try:
        read = words.Expression.compile(expression)
    # Before pytest 9 it was an error of its own.
    except (SyntaxError, getattr(words, "ParseError", SyntaxError)) as error:
        raise SpecError(f"-k {expression}: {error} (expected words with and, or, not)") from None
    found = []
    for cell in cells:
        text = " ".join(_words(cell))
        if not cell.replica and read.evaluate(_Fits(text)):
            found.append(cell)
    return found


def _some(cells: Sequence[Cell]) -> str:
    return units.count(len(cells), "cell") if cells else "no cell"


def _there(cells: Sequence[Cell], found: Sequence[Cell] = (), name: str = "") -> str:
    """Return a list of cells to choose from, the nearest to what was given first."""
    labels = list(dict.fromkeys(cell.label for cell in (found or cells) if not cell.replica))
    if not labels:
        return "; there is no cell: run the suite first, or put its tests behind --"
    near = _near(name, cells) if name and not found else []
    shown = (near or labels)[:_MOST_NAMED]
    more = f"\n  and {len(labels) - len(shown)} more" if len(labels) > len(shown) else ""
    return f"\n{'near' if near else 'there'}:\n  " + "\n  ".join(shown) + more


def _near(name: str, cells: Iterable[Cell]) -> list[str]:
    """Return the cells to whose words those that were given come near, the nearest first."""
    given = name.lower().split()
    near: dict[str, float] = {}
    for cell in cells:
        if not cell.replica:
            words = _words(cell)
            each = [max((SequenceMatcher(None, one, word).ratio() for word in words), default=0.0) for one in given]
            near[cell.label] = sum(each) / max(1, len(each))
    return sorted((label for label, ratio in near.items() if ratio >= _NEAR), key=lambda label: -near[label])


# Where cells come from


@contextmanager
def stored_cells(path: Path, number: int | None) -> Iterator[Offered]:
    """Give the cells of a run of the store, with what explains them here: its seed, protocol and threads."""
    from pytest_ngraph.commands.stored import stored_run
    from pytest_ngraph.compilers.catalogue import Catalogue
    from pytest_ngraph.devices.local import LocalBench, job, local_device
    from pytest_ngraph.options.project import read_project
    from pytest_ngraph.options.settings import resolve

    here = Path.cwd()
    with stored_run(path, number) as (store, run):
        cells = dict(store.cells(run.id))
    protocol = protocol_of(run.protocol)
    project = read_project(here, "name the store with --store")
    said = replace(project, words=[*project.words, *run.command])
    options = {"threads": given[-1:] if (given := said.given("--ngraph-threads")) else None}
    settings = resolve(options, project.ini, rootdir=project.rootdir, invocation_dir=here, environ=os.environ)
    settings = replace(settings, store=here / path, seed=run.seed, protocol=protocol)
    catalogue = Catalogue()
    bench = LocalBench(job(settings, catalogue, local_device(settings), []), catalogue, protocol, run.seed)
    try:
        yield Offered(bench, catalogue, protocol, settings.store, [*cells], cells)
    finally:
        bench.close()


def with_collected(words: Sequence[str], store: Path | None, use: Callable[[Offered], None]) -> None:
    """Have pytest collect tests and give their cells to ``use`` in place of running them. ``words`` are pytest's.

    Raises SpecError where pytest collects nothing that is measured on this machine, and what ``use`` raises.
    """
    with_tests("explain", ["--disable-warnings", *words], store, lambda state: use(_offered(state)))


def _offered(state: State) -> Offered:
    """Return the cells of the collected tests of the first device of this machine that they measure on."""
    from pytest_ngraph.devices.local import LocalBench

    state.plan()
    for session in state.sessions:
        bench = session.bench
        if not isinstance(bench, LocalBench) or not session.plans:
            continue
        tests: dict[str, list[Cell]] = {}
        for plan in session.plans:
            # A cell that is its own baseline is compared with nothing else.
            against = [cell for cell in plan.baselines if all(cell.compiler != mine.compiler for mine in plan.cells)]
            mine = [replace(cell, replica=0) for cell in plan.cells]
            tests.setdefault(plan.test, []).extend(dict.fromkeys((*against, *mine)))
        cells = list(dict.fromkeys(cell for some in tests.values() for cell in some))
        settings = session.settings
        return Offered(bench, session.catalogue, settings.protocol, settings.store, cells, {}, tests)
    raise SpecError("none of these tests measures anything on this machine (expected tests on local or cuda)")
