"""The paper's Tables I, II, IV and V of a run: its machines, their versions, its networks and its blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.export.layout import Table
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.families import family_of
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.store.rows import RunRow

if TYPE_CHECKING:
    from pytest_ngraph.workloads.facts import Facts

# What the paper calls the style of its families (Table IV).
_STYLES = {
    "ResNets": "Convolutional", "EfficientNets": "Convolutional", "DeiTs": "Transformer", "Swins": "Transformer",
    "ConvNeXts": "Hybrid",
}  # fmt: skip
# Of these only shapes are computed. What else a store names is code of somebody's, which no table runs.
_COUNTED = re.compile(r"(?:timm|torchvision):[A-Za-z0-9_.]+", re.ASCII)
_BLOCKS = {"block:conv": "Convolutional", "block:mha": "Multi-Head Attention"}


@dataclass(frozen=True, slots=True)
class Specified:
    """One of these tables: how it is made, and what it needs where it would have no rows."""

    made: Callable[[Sequence[CellReport], RunRow], Table]
    needs: str


def machines(reports: Sequence[CellReport], run: RunRow) -> Table:
    """Return Table I: the machine of each device, as it described itself when it was measured on."""
    rows = []
    for device in _devices(reports):
        facts = run.on(device).environment
        cpus, used = facts.get("cpus"), len(facts.get("affinity") or ())
        kind = f" ({facts['machine']})" if facts.get("machine") else ""
        share = f", {used} of {cpus} used" if cpus and used and used != cpus else ""
        gpu: Mapping[str, Any] = facts.get("gpu") or {}
        memory = facts.get("memory_bytes")
        rows.append(
            (
                device,
                f"{cpus or used or '?'}x {facts.get('cpu') or 'not known'}{kind}{share}",
                str(gpu.get("name") or "N/A"),
                units.size(memory) if memory else "",
                " ".join(str(facts[key]) for key in ("system", "kernel") if facts.get(key)),
            )
        )
    return Table("Testbed device specifications", ("Device", "CPU", "GPU", "Memory", "System"), tuple(rows), left=5)


def versions(reports: Sequence[CellReport], run: RunRow) -> Table:
    """Return Table II: the version of each library on each device, and of Python and the driver of its GPU."""
    devices = _devices(reports)
    found: dict[str, dict[str, str]] = {}
    for device in devices:
        facts = run.on(device).environment
        here = {"Python": facts.get("python"), **(facts.get("versions") or {})}
        here["GPU driver"] = (facts.get("gpu") or {}).get("driver")
        for name, version in here.items():
            if version:
                found.setdefault(name, {})[device] = str(version)
    rows = tuple(
        (name, *(of.get(device, "") for device in devices))
        for name, of in sorted(found.items(), key=lambda one: natural(one[0].lower()))
    )
    headings = devices if len(devices) > 1 else ["Version"]
    return Table("Library versions", ("Library", *headings), rows, left=1 + len(headings))


def networks(reports: Sequence[CellReport], run: RunRow) -> Table:
    """Return Table IV: parameters and multiply-accumulates of each network of a library, by both ways of counting."""
    facts = _counting()
    counted, left_out = [], []
    for model, pixels in _networks(reports):
        name = model + (f" size{pixels}" if pixels else "")
        try:
            found = facts(model, image_size=pixels or 224) if _COUNTED.fullmatch(model) else None
        except SpecError:
            found = None
        if found is None:
            left_out.append(name)
        else:
            counted.append((name, family_of(model), found))
    # The paper's families and sizes first.
    known = list(_STYLES)
    counted.sort(key=lambda one: (known.index(one[1]) if one[1] in known else len(known), one[1], one[2].parameters))
    rows = [
        (name, _STYLES.get(family, ""), f"{found.parameters:,}", f"{found.macs_paper:,}", f"{found.macs:,}")
        for name, family, found in counted
    ]
    more = f" Not counted: {', '.join(left_out)}." if left_out else ""
    return Table(
        "Network architecture specifications. MACs as the paper counts them take a linear layer once per forward pass "
        f"instead of once per token, so that they compare within a family only.{more}",
        ("Architecture", "Style", "Parameters", "MACs, paper's count", "MACs"),
        tuple(rows),
        left=2,
    )


def _counting() -> Callable[..., Facts]:
    """Return what counts a model. Raise SpecError where PyTorch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise SpecError('Tables IV and V are counted with PyTorch: pip install "pytest-ngraph[torch]"') from None
    from pytest_ngraph.workloads.facts import facts

    return facts


def _networks(reports: Sequence[CellReport]) -> list[tuple[str, int | None]]:
    """Return the models that are no blocks, with another size of their images where they have one."""
    found = {
        (report.cell.workload.model.text, report.cell.workload.image_size)
        for report in reports
        if report.cell.workload.model.text not in _BLOCKS
    }
    return sorted(found, key=lambda one: (natural(one[0]), one[1] or 0))


def blocks(reports: Sequence[CellReport], run: RunRow) -> Table:
    """Return Table V: the parameters that each further block of a stack adds, by width."""
    facts = _counting()
    found = {
        (workload.model.text, workload.width)
        for workload in (report.cell.workload for report in reports)
        if workload.model.text in _BLOCKS and workload.width is not None
    }
    columns = {name: sorted(width for block, width in found if block == name and width) for name in _BLOCKS}
    columns = {name: widths for name, widths in columns.items() if widths}

    def added(block: str, width: int) -> int:
        one, two = (facts(block, depth=depth, width=width).parameters for depth in (1, 2))
        return two - one

    rows = tuple(
        tuple(
            cell
            for block, widths in columns.items()
            for cell in ((str(widths[at]), f"{added(block, widths[at]):,}") if at < len(widths) else ("", ""))
        )
        for at in range(max(map(len, columns.values()), default=0))
    )
    widths_are = {"block:conv": "Channels", "block:mha": "Embedding Dimensions"}
    return Table(
        "Per-block specifications",
        tuple(name for block in columns for name in (widths_are[block], "Params Per Block")),
        rows,
        tuple((_BLOCKS[block], 2) for block in columns),
        left=0,
    )


def _devices(reports: Sequence[CellReport]) -> list[str]:
    return list(dict.fromkeys(report.cell.device for report in reports))


_SUITE = "pytest example_suites/paper"
SPECIFIED: Mapping[str, Specified] = {
    "i": Specified(machines, "no cell was measured in it"),
    "ii": Specified(versions, "its environment names no version"),
    "iv": Specified(networks, f"no network of timm or torchvision ({_SUITE}/test_compiler_support.py -k gain)"),
    "v": Specified(blocks, f"no block:conv or block:mha ({_SUITE}/test_width_friction.py)"),
}
