"""Figures as files: PDF, SVG and PNG in their true size, each with a caption that says what was measured, and how."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from pytest_ngraph import units
from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.export.files import write_bytes, write_text
from pytest_ngraph.report.export.layout import escaped
from pytest_ngraph.report.export.tables import SPREADS
from pytest_ngraph.report.figures.chosen import Chosen, Figure
from pytest_ngraph.report.figures.layout import Sheet, sheets
from pytest_ngraph.report.figures.paper import changes, figures_of
from pytest_ngraph.report.figures.size import HIGHEST_MM, Size
from pytest_ngraph.report.html.content import Content
from pytest_ngraph.report.html.libraries import drawing
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.reversals import Reversal
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.texts.shown import clean, excerpt

FORMATS = ("pdf", "svg", "png")
_DOTS_PER_INCH = 600
_LIBRARIES = ("torch", "timm", "onnxruntime", "openvino", "tensorrt", "apache-tvm")


@dataclass(frozen=True, slots=True)
class Request:
    """What a user wants drawn: figures by name, in a size and formats, of some models, devices and compilers."""

    figures: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ()
    size: Size = field(default_factory=Size)
    formats: tuple[str, ...] = ("pdf",)


def write_paper_figures(
    content: Content, folder: Path, request: Request, more: Mapping[str, Figure] = MappingProxyType({})
) -> Iterator[str]:
    """Write the figures of a run with their captions. Yield what to say: the files, and what a figure lacks.

    Several devices are never in one figure but the paper's first, which is about them: each has files of its own.
    Raises SpecError for what cannot be chosen, for a figure that was named and has nothing to show, and where there is
    none at all, StoreError for a folder that cannot be written.
    """
    check_formats(request)
    wanted = figures_of(request.figures, more)
    models, reports = _chosen(content, request)
    content = replace(content, reports=reports, reversals=_among(content, reports))
    devices = list(dict.fromkeys(report.cell.device for report in reports))
    written, lacking = 0, []
    for figure in wanted:
        of = [None] if figure.of_devices else devices
        empty = 0
        for device in of:
            part = content if device is None else _on(content, device)
            chosen = Chosen(part, models, request.size)
            panels = figure.panels(chosen)
            if not panels:
                empty += 1
                where = f" of device {device}" if len(of) > 1 else ""
                lacking.append(f"{figure.title}{where}: {_nothing(chosen, figure)}")
                continue
            written += 1
            suffix = suffix_of(device) if device is not None and len(devices) > 1 else ""
            yield from _write(figure, chosen, list(sheets(panels, request.size)), folder, suffix, request)
        if empty == len(of) and request.figures:
            raise SpecError(f"--figure {figure.name}: {lacking[-1].partition(': ')[2]}")
    yield from lacking
    if not written:
        raise SpecError(f"{folder}: the run has nothing for any of the figures")


def check_formats(request: Request) -> None:
    """Raise SpecError where a format is not known."""
    unknown = [name for name in request.formats if name not in FORMATS]
    if unknown or not request.formats:
        raise SpecError(f"--format: {','.join(unknown) or 'none'} (known: {', '.join(FORMATS)})")


def _chosen(content: Content, request: Request) -> tuple[tuple[str, ...], list[CellReport]]:
    """Return the models that were named, and the reports of what was chosen. Second processes are no results."""
    reports = [report for report in content.reports if not report.cell.replica]
    plain = {report.cell for report in reports if not report.cell.rebuild}
    reports = [one for one in reports if not one.cell.rebuild or replace(one.cell, rebuild=False) not in plain]
    known = list(dict.fromkeys(report.cell.workload.model.text for report in reports))
    models = tuple(_named("--model", name, known) for name in request.models)
    devices, compilers = chosen_names(content, reports, request)
    chosen = [
        report
        for report in reports
        if (not models or report.cell.workload.model.text in models)
        and report.cell.device in devices
        and str(report.cell.compiler) in compilers
    ]
    if not chosen:
        raise SpecError("--figures: the run has no cell of all that was chosen together; leave out one of the options")
    return models, chosen


def chosen_names(
    content: Content, reports: Sequence[CellReport], request: Request
) -> tuple[Collection[str], Collection[str]]:
    """Return the devices and the compilers that were chosen, all where none was; a baseline stays with its rivals."""
    devices = [_named("--device", name, _of(reports, "device")) for name in request.devices]
    compilers = [_named("--compiler", name, _of(reports, "compiler")) for name in request.compilers]
    return devices or _of(reports, "device"), [*compilers, *content.baselines] if compilers else _of(
        reports, "compiler"
    )


def _of(reports: Sequence[CellReport], axis: str) -> list[str]:
    return list(dict.fromkeys(str(getattr(report.cell, axis)) for report in reports))


def _named(option: str, name: str, known: Sequence[str]) -> str:
    """Return what the run calls something, which may be given without the library in front of it."""
    found = [one for one in known if name in (one, one.partition(":")[2])]
    if len(found) == 1:
        return found[0]
    if found:
        raise SpecError(f"{option}: {name!r} is several: {', '.join(found)}")
    near = get_close_matches(name, known, 3, 0.5) or list(known)[:10]
    more = f" and {len(known) - len(near)} more" if len(known) > len(near) else ""
    raise SpecError(f"{option}: {name!r} is not in this run (there: {', '.join(map(clean, near))}{more})")


def _among(content: Content, reports: Sequence[CellReport]) -> list[Reversal]:
    there = {(one.cell.device, str(one.cell.compiler), one.cell.workload.model.text) for one in reports}
    return [
        each
        for each in content.reversals
        if {(each.device, each.compiler, each.first), (each.device, each.compiler, each.second)} <= there
    ]


def _on(content: Content, device: str) -> Content:
    return replace(content, reports=[report for report in content.reports if report.cell.device == device])


def _nothing(chosen: Chosen, figure: Figure) -> str:
    """Say why a figure has nothing to show, and what measures it."""
    # What only lacks sizes does not lack a time.
    failed = [_why(report) for report in chosen.content.reports if figure.command and _is_failed(report)]
    why = f"; without a time: {'; '.join(failed[:3])}" if failed else ""
    return f"the run has nothing for it{why}; {figure.how}"


def _is_failed(report: CellReport) -> bool:
    return report.failure is not None and report.failure.outcome is not Outcome.OK and not report.estimates


def _why(report: CellReport) -> str:
    reason = report.failure.reason if report.failure is not None else report.invalid
    return excerpt(f"{report.cell.label}: {report.outcome}" + (f" ({reason})" if reason else ""))


def suffix_of(device: str) -> str:
    """Return what the files of one device of several are called by."""
    return "-" + "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in device
    )


def _write(
    figure: Figure, chosen: Chosen, made: Sequence[Sheet], folder: Path, suffix: str, request: Request
) -> Iterator[str]:
    stem = f"figure-{figure.name}{suffix}"
    yield from write_sheets(stem, f"{figure.title}{suffix}", made, folder, request)
    cells, models = figure.missing(chosen)
    missing = [*cells, *([f"all of {', '.join(models)}"] if models else [])]
    if missing:
        yield f"{figure.title}{suffix}: not measured: {'; '.join(missing)}; {figure.how}"
    texts = [caption(figure, chosen, sheet, cells) for sheet in made]
    yield from write_captions(stem, texts, folder, request)


def write_sheets(stem: str, title: str, made: Sequence[Sheet], folder: Path, request: Request) -> Iterator[str]:
    """Write the files of a figure. Yield their names, and of how many they are where they are several."""
    for name, sheet in zip(_names(stem, len(made)), made, strict=True):
        for format in request.formats:
            path = folder / f"{name}.{format}"
            write_bytes(_encoded(sheet, format), path)
            yield str(path)
    if len(made) > 1:
        counts = ", ".join(str(len(sheet.panels)) for sheet in made)
        total = sum(len(sheet.panels) for sheet in made)
        split = f"{len(made)} files ({counts})"
        yield f"{title}: {total} panels do not fit {HIGHEST_MM:g}mm of height: {split}"


def write_captions(stem: str, texts: Sequence[str], folder: Path, request: Request) -> Iterator[str]:
    """Write the caption of each file of a figure, as text and for LaTeX. Yield what to say."""
    for number, (name, text) in enumerate(zip(_names(stem, len(texts)), texts, strict=True), 1):
        whole = (f"Part {number} of {len(texts)}. " if len(texts) > 1 else "") + text
        write_text(whole + "\n", folder / f"{name}.txt")
        write_text(_environment(name, whole, request), folder / f"{name}.tex")
    yield f"{folder / stem}.txt, .tex: its caption"


def _names(stem: str, count: int) -> list[str]:
    return [stem if number == 1 else f"{stem}-part{number}" for number in range(1, count + 1)]


def caption(figure: Figure, chosen: Chosen, sheet: Sheet, missing: Sequence[str] = ()) -> str:
    """Return what a reader must know of a figure: what it shows, with which intervals, measured how, on what."""
    content = chosen.content
    run = content.run
    parts = [figure.says]
    if figure.of_devices:
        parts.append(changes(chosen))
    if figure.name.isdecimal():
        parts.append(f"After Figure {figure.name} of NGraphBench (Furutanpey et al.).")
    used = [report for report in content.reports if any(metric in report.estimates for metric in figure.metrics)]
    launches = {estimate.launches for one in used for name, estimate in one.estimates.items() if name in figure.metrics}
    over = _range(launches) + (" launch" if launches == {1} else " launches")
    spread = SPREADS.get(run.protocol, "")
    parts.append(f"Protocol {run.protocol}, {spread + ', ' if spread else ''}of {over}.")
    if any(panel.is_cut for panel in sheet.panels):
        parts.append("Whiskers that end in an open triangle go on beyond the frame.")
    failed = [_why(report) for report in content.reports if _is_failed(report)]
    if failed:
        parts.append(f"Without a time: {'; '.join(failed)}.")
    if missing:
        parts.append(f"Not measured: {'; '.join(missing)}.")
    parts += [machine(content, device) for device in dict.fromkeys(report.cell.device for report in used)]
    parts.append(made_by(content))
    return " ".join(map(clean, parts))


def made_by(content: Content) -> str:
    """Say from which store and run a figure is, and of when."""
    run = content.run
    origin = str(content.origin) if content.origin is not None else f"made by pytest-ngraph from run {run.id}"
    return f"{origin[0].upper()}{origin[1:]}, {run.started_at[:10]}."


def machine(content: Content, device: str) -> str:
    """Say on what machine a device's cells were measured, with the versions of what ran."""
    facts = content.run.on(device).environment
    gpu = facts.get("gpu") or {}
    known = [
        str(facts.get("cpu") or "a CPU that is not known"),
        f"{len(facts.get('affinity') or [0])} CPUs used",
        *([f"GPU {gpu['name']}"] if gpu.get("name") else []),
        *([units.size(facts["memory_bytes"])] if facts.get("memory_bytes") else []),
        f"{facts.get('system', 'unknown system')} {facts.get('kernel', '')}".strip(),
    ]
    versions = facts.get("versions") or {}
    known += [f"{name} {versions[name]}" for name in _LIBRARIES if name in versions]
    return f"Device {device}: {', '.join(known)}."


def _range(numbers: set[int]) -> str:
    if not numbers:
        return "0"
    return str(min(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def _environment(name: str, text: str, request: Request) -> str:
    """Return a LaTeX figure with its caption; the file beside it is what it includes."""
    # What is wider than a column takes both of them.
    kind = "figure*" if request.size.width_mm > 100 else "figure"
    lines = (
        "% needs \\usepackage{graphicx}",
        rf"\begin{{{kind}}}",
        r"\centering",
        rf"\includegraphics[width={request.size.width_mm:g}mm]{{{name}}}",
        rf"\caption{{{escaped(text)}}}",
        rf"\label{{fig:ngraph-{name}}}",
        rf"\end{{{kind}}}",
    )
    return "".join(f"{line}\n" for line in lines)


def _encoded(sheet: Sheet, format: str) -> bytes:
    _, convert = drawing()
    if format == "svg":
        return sheet.in_millimetres.encode()
    made: bytes = (
        convert.svg_to_pdf(sheet.svg) if format == "pdf" else convert.svg_to_png(sheet.svg, ppi=_DOTS_PER_INCH)
    )
    return made
