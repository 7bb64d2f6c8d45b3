"""The paper's Figures 1 and 5 to 12, and transfer cost reduction: what each shows of a run, and what measures it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from types import MappingProxyType

from pytest_ngraph.axes import AXES
from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.figures.chosen import Chosen, Figure, Place, look_of
from pytest_ngraph.report.figures.panels import Panel, Row, curves, pair, squares
from pytest_ngraph.report.html.content import estimate_rows, interval_of
from pytest_ngraph.report.html.pictures.sizes import models_by_size
from pytest_ngraph.report.paper.published import FAMILIES
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.families import family_of
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.results.reversals import not_looked_for
from pytest_ngraph.spec.cells import Cell

SUITE = "pytest example_suites/paper"
# The paper names neither of the two; these are closest in their numbers of parameters.
PAIR = ("timm:efficientnet_b5", "timm:swin_s3_tiny_224")
_PAIR_BATCH = 8
_SIDES = ("baseline", "compiled")
_NETWORKS = tuple(model for family in FAMILIES.values() for model in family)
_SIZES = {model: (family, size) for family, models in FAMILIES.items() for size, model in enumerate(models)}
_BATCHES = (1, 2, 4, 8, 16)


def named(model: str) -> str:
    """Name a model as a figure does."""
    return model.removeprefix("timm:")


def _is_network(report: CellReport) -> bool:
    return report.cell.workload.depth is None and report.cell.workload.width is None


def _networks(chosen: Chosen, metric: str, y: str, **how: object) -> list[Panel]:
    """Return a panel for each network over batches, the paper's families first, each by its sizes."""
    content = replace(chosen.content, reports=[report for report in chosen.content.reports if _is_network(report)])
    look = look_of(content)
    found: dict[str, list[Row]] = {}
    for row in estimate_rows(content, (metric,)):
        found.setdefault(row["subject"], []).append(row)
    names = {row["compiler"] for rows in found.values() for row in rows}
    panels = []
    sizes = {model: place for place, model in enumerate(models_by_size(chosen.content.reports))}

    def order(one: tuple[str, list[Row]]) -> tuple[object, ...]:
        subject, rows = one
        return (*_family_order(rows[0]["model"]), sizes[rows[0]["model"]], natural(subject))

    for subject, rows in sorted(found.items(), key=order):
        family, _ = _SIZES.get(rows[0]["model"], (family_of(rows[0]["model"]), 0))
        place = (family, subject)
        made = curves([named(subject)], rows, look, names, x="batch", y=y, place=place, **how)  # type: ignore[arg-type]
        panels.append(made)
    return panels


def _family_order(model: str) -> tuple[object, ...]:
    """Return where the family of a model stands: the paper's first, in its order, and the sizes that it has of them."""
    family, size = _SIZES.get(model, (family_of(model), 0))
    known = list(FAMILIES)
    return known.index(family) if family in known else len(known), natural(family), size


def throughput(chosen: Chosen) -> list[Panel]:
    """Figure 5."""
    return _networks(chosen, "throughput", "samples/s", zero=True, number="~s")


def speedup(chosen: Chosen) -> list[Panel]:
    """Figure 6."""
    return _networks(chosen, "speedup", "speed-up", line_at=1.0)


def efficiency(chosen: Chosen) -> list[Panel]:
    """Figure 8."""
    return _networks(chosen, "ase", "ASE", line_at=1.0, zero=True)


def resilience(chosen: Chosen) -> list[Panel]:
    """Figure 9."""
    return _networks(chosen, "bsr", "BSR", line_at=1.0)


def cpu(chosen: Chosen) -> list[Panel]:
    """Figure 12: what is used and what is saved in panels of their own, since they have axes of their own."""
    used = _networks(chosen, "cpu_percent", "CPU [%]", zero=True)
    saved = _networks(chosen, "cpu_reduction_percent", "CPU [%]", line_at=0.0)
    return [
        replace(panel, title=(*panel.title, what), place=panel.place and (panel.place[0] + what, panel.place[1]))
        for panels, what in ((used, "used"), (saved, "saved"))
        for panel in panels
    ]


def transfer(chosen: Chosen) -> list[Panel]:
    """Transfer cost reduction per second (section IV), where the sizes of a sample were given."""
    return _networks(chosen, "tcr_per_second", "TCR/s [bytes/s]", zero=True, number="~s")


def _blocks(chosen: Chosen, metric: str, *without: str) -> dict[tuple[object, ...], list[Row]]:
    """Return the rows of blocks, by what they are but for some axes: what they are called, depth, width and batch."""
    content = replace(chosen.content, reports=[one for one in chosen.content.reports if not _is_network(one)])
    found: dict[tuple[object, ...], list[Row]] = {}
    axes = [axis for axis in ("width", "depth", "batch") if axis not in without]
    for row in estimate_rows(content, (metric,)):
        place = (_without_sizes(row), *(row[axis] or 0 for axis in axes), row["compiler"] if "width" in without else "")
        found.setdefault(place, []).append(row)
    return dict(sorted(found.items(), key=lambda one: (natural(str(one[0][0])), *one[0][1:])))


def _without_sizes(row: Row) -> str:
    """Name a block with the axes that no figure has, such as its precision: those of another are no point of its."""
    sizes = {axis.label(row[axis.name]) for axis in AXES if axis.name in ("depth", "width") and row[axis.name]}
    return " ".join(part for part in row["subject"].split(" ") if part not in sizes)


def depths(chosen: Chosen) -> list[Panel]:
    """Figure 7."""
    stacks = _blocks(chosen, "speedup", "depth")
    stacks = {place: rows for place, rows in stacks.items() if len({row["depth"] for row in rows}) > 1}
    return _over_blocks(chosen, stacks, ("width", "batch"), x="depth", y="speed-up")


def widths(chosen: Chosen) -> list[Panel]:
    """Figure 10: of each block the depth that has most widths, the deepest of several."""
    found = _blocks(chosen, "ase", "width", "batch")
    most: dict[object, tuple[int, int]] = {}
    for (model, depth, _), rows in found.items():
        count = len({row["width"] for row in rows})
        most[model] = max(most.get(model, (0, 0)), (count, int(str(depth))))
    return [
        squares([_block(str(model)) + (f", depth {depth}" if depth else ""), str(compiler)], rows, chosen.size.font_pt)
        for (model, depth, compiler), rows in found.items()
        if most[model][1] == depth and most[model][0] > 1
    ]


def block_resilience(chosen: Chosen) -> list[Panel]:
    """Figure 11."""
    return _over_blocks(chosen, _blocks(chosen, "bsr", "batch"), ("width", "depth"), x="batch", y="BSR")


def _over_blocks(
    chosen: Chosen, found: Mapping[tuple[object, ...], list[Row]], axes: tuple[str, str], *, x: str, y: str
) -> list[Panel]:
    """Return a panel for each stack, titled with what the other two axes are, with the line at 1."""
    look, names = look_of(chosen.content), {row["compiler"] for rows in found.values() for row in rows}
    panels = []
    for (model, *at, _), rows in found.items():
        where = ", ".join(f"{axis} {value}" for axis, value in zip(axes, at, strict=True) if value)
        panels.append(curves([_block(str(model)), where], rows, look, names, x=x, y=y, line_at=1.0))
    return panels


def _block(name: str) -> str:
    model, space, axes = name.partition(" ")
    return {"block:conv": "conv blocks", "block:mha": "attention blocks"}.get(model, named(model)) + space + axes


def rank(chosen: Chosen) -> list[Panel]:
    """Figure 1: two models that are named, or else the paper's two, or else all pairs that change places."""
    pairs = list(_pairs(chosen))
    several = len({cells[0].device for cells in pairs}) > 1 or chosen.content.has_devices
    known = {report.cell: report for report in chosen.content.reports}
    panels = []
    for first, second in pairs:
        report = known[first]
        assert report.baseline is not None
        compilers = f"{report.baseline.compiler} and {first.compiler}"
        rows = []
        for role, cell in enumerate((first, second), 1):
            for side, one in zip(_SIDES, (known[cell].baseline, cell), strict=True):
                assert one is not None
                estimate = known[one].estimates["throughput"]
                low, high = interval_of(estimate)
                rows.append({"role": role, "side": side, "value": estimate.value, "low": low, "high": high})
        names = [f"\N{BLACK CIRCLE} {named(first.workload.model.text)}",
                 f"\N{BLACK UP-POINTING TRIANGLE} {named(second.workload.model.text)}"]  # fmt: skip
        axes = ", ".join([f"batch {first.workload.batch}", *first.workload.axis_labels("batch")])
        mark = ["change places"] if _key(first, second) in _changed(chosen) else []
        title = [*([first.device] if several else []), *names, compilers, axes, *mark]
        panels.append(pair(title, rows, _SIDES))
    return panels


def _pairs(chosen: Chosen) -> Iterator[tuple[Cell, Cell]]:
    """Yield the compiled cells of each pair, the one that is the faster with the baseline first."""
    known = {report.cell: report for report in chosen.content.reports}
    alike: dict[object, list[CellReport]] = {}
    for report in chosen.content.reports:
        baseline = known.get(report.baseline) if report.baseline is not None else None
        if baseline is None or "throughput" not in baseline.estimates or "throughput" not in report.estimates:
            continue
        cell, workload = report.cell, report.cell.workload
        kind = (cell.target, cell.side, cell.rebuild, workload.batch, *workload.axis_labels("batch"))
        alike.setdefault(kind, []).append(report)
    changed = _changed(chosen)
    is_there = set(PAIR) <= {report.cell.workload.model.text for reports in alike.values() for report in reports}
    wanted = set(chosen.models) if len(chosen.models) == 2 else set(PAIR) if is_there and not chosen.models else set()
    found: list[tuple[Cell, Cell]] = []
    for reports in alike.values():
        for pair_of in combinations(reports, 2):
            one, other = sorted(pair_of, key=lambda each: _before(known, each), reverse=True)
            models = {each.cell.workload.model.text for each in (one, other)}
            if models == wanted or (not wanted and _key(one.cell, other.cell) in changed):
                found.append((one.cell, other.cell))
    if wanted:
        batches = {first.workload.batch for first, _ in found}
        at = _PAIR_BATCH if _PAIR_BATCH in batches else max(batches, default=0)
        found = [cells for cells in found if cells[0].workload.batch == at]
    yield from found


def _key(first: Cell, second: Cell) -> tuple[object, ...]:
    workload = first.workload
    models = frozenset((workload.model.text, second.workload.model.text))
    return first.device, str(first.compiler), workload.batch, tuple(workload.axis_labels("batch")), models


def _changed(chosen: Chosen) -> set[tuple[object, ...]]:
    """Return the pairs that change places, as ``_key`` names them."""
    return {
        (each.device, each.compiler, each.batch, each.axes, frozenset((each.first, each.second)))
        for each in chosen.content.reversals
    }


def _before(known: Mapping[Cell, CellReport], report: CellReport) -> float:
    assert report.baseline is not None
    return known[report.baseline].estimates["throughput"].value


def changes(chosen: Chosen) -> str:
    """Say how it was found out which pairs change places."""
    protocol = chosen.content.run.protocol
    if protocol == "paper":
        return "Whether two change places is read from points, as in the paper, without error control."
    why = not_looked_for(protocol)
    if why:
        return "Whether they change places was not looked for: the protocol controls no error."
    return (
        "Pairs that change places, as their panels say, have 99 % intervals of their ratios on opposite sides of 1; of "
        f"the {len(chosen.content.reversals)} such pairs of the run at most 5 % are expected to be chance."
    )


def _places(models: Sequence[str], batches: Sequence[int], depths: Sequence[int | None] = (None,),
            widths: Sequence[int | None] = (None,)) -> tuple[Place, ...]:  # fmt: skip
    return tuple((model, batch, depth, width) for model in models for depth in depths for width in widths
                 for batch in batches)  # fmt: skip


_ALL = _places(_NETWORKS, _BATCHES)
_MORE = _places(_NETWORKS, _BATCHES[1:])
_ROWS = (
    Figure("1", "Throughput of two models with the baseline and compiled: where the lines cross they change places. "
           "The first (solid, circles) is the faster one with the baseline; of either the compiler is named.",
           rank, ("throughput",), f"{SUITE}/test_compiler_support.py -k rank", _places(PAIR, (_PAIR_BATCH,)),
           of_devices=True),
    Figure("5", "Throughput by batch, a panel for each network.",
           throughput, ("throughput",), f"{SUITE}/test_compiler_support.py -k gain", _ALL),
    Figure("6", "Throughput over that of the baseline by batch, a panel for each network; the dashed rule is at 1.",
           speedup, ("speedup",), f"{SUITE}/test_compiler_support.py -k gain", _ALL),
    Figure("7", "Throughput of stacks of equal blocks over that of the baseline, by the number of blocks; the dashed "
           "rule is at 1.",
           depths, ("speedup",), f"{SUITE}/test_depth_scaling.py",
           (*_places(("block:conv",), (8, 16), range(1, 7), (64, 96)),
            *_places(("block:mha",), (8, 16), range(1, 7), (128, 256)))),
    Figure("8", "Absolute scaling efficiency, ASE(b) = T(b) / (b T(1)), by batch, a panel for each network; at the "
           "dashed rule a larger batch costs nothing.",
           efficiency, ("ase",), f"{SUITE}/test_batch_scaling.py", _MORE),
    Figure("9", "Batch scaling resilience, the ASE of a compiler over that of the baseline, by batch, a panel for each "
           "network; the dashed rule is at 1.",
           resilience, ("bsr",), f"{SUITE}/test_batch_resilience.py -k networks", _MORE),
    Figure("10", "Absolute scaling efficiency of blocks by width and batch: the darker, the lower.",
           widths, ("ase",), f"{SUITE}/test_width_friction.py",
           (*_places(("block:conv",), _BATCHES[1:], (6,), (64, 96, 128, 256)),
            *_places(("block:mha",), _BATCHES[1:], (6,), (128, 256, 384, 512)))),
    Figure("11", "Batch scaling resilience of blocks by batch, for their widths and depths; the dashed rule is at 1.",
           block_resilience, ("bsr",), f"{SUITE}/test_batch_resilience.py -k blocks",
           (*_places(("block:conv",), _BATCHES[1:], (1, 3, 6), (64, 96)),
            *_places(("block:mha",), _BATCHES[1:], (1, 3, 6), (128, 256)))),
    Figure("12", "CPU time over wall time while calls run, in per cent of all CPUs of the device, by batch, and how "
           "much less than the baseline each compiler uses.",
           cpu, ("cpu_percent",), f"{SUITE}/test_resource_use.py", _ALL),
    Figure("tcr", "Transfer cost reduction per second, TCR/s: bytes of a sample that need not be sent, times the "
           "samples compressed per second, by batch.",
           transfer, ("tcr_per_second",), ""),
)  # fmt: skip
FIGURES: Mapping[str, Figure] = MappingProxyType({figure.name: figure for figure in _ROWS})
_DRAWINGS = ("2", "3", "4")


def figures_of(names: Sequence[str], more: Mapping[str, Figure] = MappingProxyType({})) -> list[Figure]:
    """Return the figures of these names, all of NGraphBench's where there is none. Raise SpecError for one not there.

    ``more`` are those of others, which come where they are named.
    """
    wanted = list(dict.fromkeys(name.strip().lower() for text in names for name in text.split(",")))
    known = f"known: {', '.join((*FIGURES, *more))}"
    for name in wanted:
        if name in _DRAWINGS:
            raise SpecError(f"--figure: Figure {name} of the paper is a sketch and shows no measurement ({known})")
        if name not in FIGURES and name not in more:
            raise SpecError(f"--figure: {name!r} is not one of the paper's figures ({known})")
    return [more.get(name) or FIGURES[name] for name in wanted] if wanted else list(FIGURES.values())
