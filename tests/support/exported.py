"""A run as its exports see it, made up; run as a script, it writes the golden files of the exports anew."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.export.tables import write_export, write_table
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Outcome, Workload
from pytest_ngraph.workloads.kinds import parse_model

GOLDEN = Path(__file__).parents[1] / "golden" / "exports"
# By its name: the table of the paper that a golden file has, or none for the overview.
FILES = {"overview.tex": None} | {
    f"table_{table}.{suffix}": table for table in ("iii", "vi", "vii", "viii") for suffix in ("tex", "md")
}
# A value, its interval as a fraction to each side, and its launches; one launch has no interval.
Numbers = Mapping[str, tuple[float, float, int]]


def report(
    compiler: str,
    model: str,
    batch: int,
    numbers: Numbers,
    *,
    depth: int | None = None,
    width: int | None = None,
    outcome: Outcome = Outcome.OK,
    rebuild: bool = False,
    device: str = "local",
) -> CellReport:
    """Return a cell of a run with these estimates; all but identity are compared with it."""
    workload = Workload(parse_model(model), batch, depth=depth, width=width)
    cell = Cell(device, CompilerSpec.parse(compiler), workload, rebuild=rebuild)
    baseline = None if compiler == "identity" else Cell(device, CompilerSpec("identity"), workload, rebuild=rebuild)
    record = CompileRecord(outcome, placement=(("provider", "CPU"), ("threads", "2")))
    estimates = {}
    for metric, (value, share, launches) in numbers.items():
        half = abs(value) * share if launches > 1 else math.inf
        estimates[metric] = Estimate(metric, value, value - half, value + half, launches)
    return CellReport(cell, baseline, estimates, None if outcome is Outcome.OK else record, record)


def networks() -> list[CellReport]:
    """Return two families at two batches, a compiler with options, one that failed, and one launch of one cell."""
    reports = []
    for model, rate in (("timm:resnet18", 40.0), ("timm:convnext_tiny", 10.0)):
        for batch in (1, 2, 8):
            reports.append(
                report(
                    "identity",
                    model,
                    batch,
                    {"throughput": (rate * batch**0.5, 0.02, 4), "cpu_percent": (97.5, 0.01, 4)},
                )
            )
            gain = 2.0 if model == "timm:resnet18" else 1.0
            numbers = {
                "throughput": (rate * gain * batch**0.5, 0.02, 4),
                "speedup": (gain, 0.03, 4),
                "cpu_percent": (99.0, 0.01, 4),
                "compile_seconds": (1.5 + batch, 0.1, 4),
            }
            if batch > 1:
                numbers |= {"ase": (batch**-0.5, 0.02, 4), "bsr": (1.0, 0.04, 4)}
            reports.append(report("openvino", model, batch, numbers))
    once = {"throughput": (55.0, 0.0, 1), "speedup": (1.375, 0.0, 1), "compile_seconds": (0.25, 0.0, 1)}
    reports.append(report("onnxruntime[graph=basic,threads=2]", "timm:resnet18", 1, once))
    reports.append(report("tvm", "timm:convnext_tiny", 1, {}, outcome=Outcome.MISMATCH))
    tuned = {"compile_seconds": (12.0, 0.1, 3), "tuning_seconds": (3600.0, 0.0, 1)}
    reports.append(report("tvm[tuned=64]", "timm:resnet18", 1, tuned, rebuild=True))
    return reports


def blocks() -> list[CellReport]:
    """Return stacks of both blocks; slope and retention stand with the deepest."""
    reports = []
    for model, widths in (("block:conv", (64, 96)), ("block:mha", (128,))):
        for width in widths:
            for batch in (8, 16):
                for depth in (1, 6):
                    numbers: dict[str, tuple[float, float, int]] = {"throughput": (100.0 / depth, 0.02, 3)}
                    reports.append(report("identity", model, batch, numbers, depth=depth, width=width))
                    numbers = {**numbers, "speedup": (1.0 + depth / width, 0.02, 3)}
                    if depth == 6:
                        numbers |= {"slope": (1 / width - 0.0125, 0.5, 3), "retention": (1 + 5 / (width + 1), 0.03, 3)}
                    reports.append(report("openvino", model, batch, numbers, depth=depth, width=width))
    return reports


def write(name: str, folder: Path) -> None:
    """Write the export that has this golden file."""
    table = FILES[name]
    if table is None:
        write_export(networks(), folder / name)
    else:
        write_table(table, networks() if table in ("iii", "vi") else blocks(), folder / name)


if __name__ == "__main__":
    for each in FILES:
        write(each, GOLDEN)
