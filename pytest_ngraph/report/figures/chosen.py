"""What a figure is, what part of a run it is made of, and how it looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_ngraph.report.figures.panels import Panel
from pytest_ngraph.report.figures.size import Size
from pytest_ngraph.report.html.content import Content
from pytest_ngraph.report.html.drawing import Look
from pytest_ngraph.spec.cells import Cell

# Of the axes that the paper does not vary: what it has, said or not.
_THEIR_IMAGES = frozenset({"size224", "size244"})
# What a cell is by the paper's axes: model, batch, depth, width.
Place = tuple[str, int, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The part of a run that a figure is made of: its reports, of one device where the figure is of one.

    ``models`` are those that a user named, if any.
    """

    content: Content
    models: tuple[str, ...]
    size: Size


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: its name, what its caption says, how its panels are made, and the command that measures its cells.

    ``metrics`` are what a cell must have to be in it, ``cells`` those of the paper's.
    """

    name: str
    says: str
    panels: Callable[[Chosen], list[Panel]]
    metrics: tuple[str, ...]
    command: str
    cells: tuple[Place, ...] = ()
    of_devices: bool = False

    @property
    def title(self) -> str:
        """Return what a user calls it."""
        return f"figure {self.name}"

    @property
    def how(self) -> str:
        """Say how a run comes to have what it shows."""
        return (
            f"measure it: {self.command}" if self.command else "give the bytes of a sample: --sizes MODEL=BEFORE:AFTER"
        )

    def missing(self, chosen: Chosen) -> tuple[list[str], list[str]]:
        """Return, by name, what of the paper's cells the run has not, where nothing was chosen and it has some.

        First the cells of models that are in it, then the models that are not in it at all.
        """
        if chosen.models:
            return [], []
        have = {
            place_of(report.cell)
            for report in chosen.content.reports
            if report.baseline is not None
            and all(metric in report.estimates for metric in self.metrics)
            and _THEIR_IMAGES.issuperset(report.cell.workload.axis_labels("batch", "depth", "width"))
        }
        if not have & set(self.cells):
            return [], []
        models = {model for model, *_ in have}
        some = _listed([place for place in self.cells if place not in have and place[0] in models])
        return list(some), list(dict.fromkeys(model for model, *_ in self.cells if model not in models))


def _listed(places: Sequence[Place]) -> Iterator[str]:
    """Name cells, those together that differ in batch, then in width, then in depth only."""
    batches: dict[tuple[str, int | None, int | None], list[int]] = {}
    for model, batch, depth, width in places:
        batches.setdefault((model, depth, width), []).append(batch)
    widths: dict[tuple[str, int | None, tuple[int, ...]], list[int]] = {}
    for (model, depth, width), at in batches.items():
        widths.setdefault((model, depth, tuple(at)), []).append(width or 0)
    depths: dict[tuple[str, tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for (model, depth, at_batches), wide in widths.items():
        depths.setdefault((model, tuple(wide), at_batches), []).append(depth or 0)
    for (model, wide_at, at_batches), deep in depths.items():
        axes = (("depth", deep), ("width", wide_at), ("batch", at_batches))
        yield " ".join([model, *(f"{name} {', '.join(map(str, values))}" for name, values in axes if any(values))])


def place_of(cell: Cell) -> Place:
    """Return a cell by the paper's axes."""
    workload = cell.workload
    return workload.model.text, workload.batch, workload.depth, workload.width


def look_of(content: Content) -> Look:
    """Return the look of a figure: the colours and shapes that the page has, black for the baselines."""
    look = Look.of(content)
    colours = {name: "#000000" if name in content.baselines else colour for name, colour in look.colours.items()}
    return replace(look, colours=colours)
