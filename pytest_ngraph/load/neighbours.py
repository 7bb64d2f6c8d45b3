"""Neighbours as they are written: ``none``, ``timm:resnet50``, ``timm:resnet50+batch=8@onnxruntime[threads=1]``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import NEIGHBOUR, Cell, CompilerSpec, ModelRef, Workload
from pytest_ngraph.texts.shown import one_line

NONE = "none"
# What the process of a neighbour is asked for.
LOOP = "beside"
# The sizes that a neighbour may be given, in the order of a workload's fields.
SIZES = ("batch", "sequence", "depth", "width", "image_size")
FORM = (
    "none, or MODEL[+batch=N][+image_size=N][@COMPILER], such as timm:resnet50 or "
    f"timm:resnet50+batch=8@onnxruntime[threads=1]; sizes are {', '.join(SIZES)}"
)
_SIZE = re.compile(r"\+([A-Za-z_]+)=([^+@\[\]/]*)\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A second model that runs on purpose: its reference, its sizes, and what compiles it (None: as the cell's).

    ``str()`` is the normal form: equal neighbours are written equally, and a batch of 1 is not written.
    """

    model: str
    sizes: tuple[tuple[str, int], ...] = ()
    compiler: CompilerSpec | None = None

    def __str__(self) -> str:
        sizes = "".join(f"+{name}={value}" for name, value in self.sizes)
        return f"{self.model}{sizes}" + ("" if self.compiler is None else f"@{self.compiler}")


def normal(text: str) -> str:
    """Return the normal form of what runs beside a cell. Raise SpecError that says what is allowed."""
    text = text.strip()
    return NONE if text == NONE else str(parse(text))


@lru_cache(maxsize=256)
def parse(text: str) -> Neighbour:
    """Read a neighbour. Raise SpecError that says what was given and what is allowed."""
    said = f"neighbour {one_line(text)!r}"
    front, at, named = text.strip().rpartition("@")
    compiler = None
    if at and _NAME.match(named.partition("[")[0]):
        try:
            compiler = CompilerSpec.parse(named)
        except SpecError as error:
            raise SpecError(f"{said}: {error}") from None
    elif at and "/" in named.partition("[")[0]:
        # A folder may have that letter in its name.
        front = text.strip()
    elif at:
        raise SpecError(f"{said}: {one_line(named)!r} is no compiler (expected {FORM})")
    else:
        front = named
    given: dict[str, int] = {}
    while (found := _SIZE.search(front)) is not None:
        name, value = found[1], found[2]
        if name not in SIZES or not value.isdecimal() or int(value) < 1:
            raise SpecError(
                f"{said}: {one_line(found[0])!r} is not allowed (expected {FORM}, each a whole number >= 1)"
            )
        if name in given:
            raise SpecError(f"{said}: {name} is given twice")
        given[name] = int(value)
        front = front[: found.start()]
    if not all(front.partition(":")):
        raise SpecError(f"{said}: {one_line(front)!r} is no reference of a model (expected {FORM})")
    sizes = tuple((name, given[name]) for name in SIZES if name in given and (name, given[name]) != ("batch", 1))
    return Neighbour(front, sizes, compiler)


def with_neighbour(workload: Workload, neighbour: Neighbour, model: ModelRef) -> Workload:
    """Return a workload with a neighbour of this model beside it."""
    return replace(workload, neighbour=str(replace(neighbour, model=model.text)), beside=model)


def cell_beside(cell: Cell) -> Cell | None:
    """Return what runs beside a cell as a cell of its own, None where nothing does.

    Raises SpecError where the cell does not say where that model is found and what compiles it.
    """
    workload = cell.workload
    if workload.neighbour == NONE:
        return None
    found = parse(workload.neighbour)
    if workload.beside is None or found.compiler is None:
        raise SpecError(
            f"{cell.label}: its neighbour is named and nothing says where its model is found, or what compiles it "
            "(expected a cell that a marker or ngraph.measure made)"
        )
    return Cell(cell.device, found.compiler, Workload.of(workload.beside, dict(found.sizes)), NEIGHBOUR, side=cell.side)


def with_neighbours(cells: Iterable[Cell]) -> list[Cell]:
    """Return these cells, and then each of what runs beside one of them."""
    cells = list(cells)
    return list(dict.fromkeys([*cells, *neighbours_of(cells)]))


def neighbours_of(cells: Iterable[Cell]) -> list[Cell]:
    """Return what runs beside these cells, each neighbour once: those that have the same one share its process."""
    return list(dict.fromkeys(beside for cell in cells if (beside := cell_beside(cell)) is not None))
