"""The export for an issue or a pull request: cells first, numbers folded, never larger than a comment may be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.report.export.tables import write_export
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.store.rows import Origin
from tests.support.exported import networks, report

ORIGIN = Origin(3, "a" * 32)
METRICS = (
    "throughput latency cpu_percent speedup ase bsr rtr compile_seconds load_seconds export_seconds first_call_seconds "
    "warmup_seconds model_bytes peak_memory_bytes"
)
NUMBERS = dict.fromkeys(METRICS.split(), (1.234567, 0.02, 4))


def exported(reports: list[CellReport], folder: Path) -> str:
    write_export(reports, folder / "e.md", "gate", ORIGIN)
    return (folder / "e.md").read_text(encoding="utf-8")


def many(models: int) -> list[CellReport]:
    """Return nine cells a model, with all the numbers that a run of a CPU gives."""
    return [
        report(compiler, f"timm:resnet18_of_the_year_{model}", batch, NUMBERS)
        for model in range(models)
        for compiler in ("identity", "onnxruntime", "openvino[hint=latency,streams=2]")
        for batch in (1, 4, 8)
    ]


def test_cells_come_first_and_every_number_is_folded(tmp_path: Path) -> None:
    text = exported(networks(), tmp_path)

    cells, folded, numbers = text.partition("\n<details><summary>Every number (50)</summary>\n")
    assert folded
    assert cells.startswith("**Results of pytest-ngraph (device local, baseline identity), with 99 % intervals")
    assert cells.count("\n| timm:") == 15
    assert "| timm:resnet18 | 2 | openvino | 113 [111, 115] | 2.00 [1.94, 2.06] |" in cells
    assert "| timm:convnext_tiny | 1 | tvm | mismatch |" in cells
    assert numbers.count("\n| ") == 50 + 2
    assert "In all rows: device local, " in numbers
    assert text.endswith(f"</details>\n\n<!-- {ORIGIN} -->\n")


def test_27_cells_fit_a_comment_with_all_their_numbers(tmp_path: Path) -> None:
    text = exported(many(3), tmp_path)

    assert len(text.encode()) < 65_536
    assert "cut off" not in text
    assert text.count("\n| ") == 27 + 2 + 27 * len(NUMBERS) + 2


@pytest.mark.parametrize("models", [10, 200])
def test_what_a_comment_cannot_hold_is_cut_off_and_says_so(models: int, tmp_path: Path) -> None:
    text = exported(many(models), tmp_path)

    assert 60_000 < len(text.encode()) <= 65_536
    assert f" of {9 * models * len(NUMBERS)} numbers are cut off here: `--ngraph-export=FILE.csv`" in text
    assert (f" of {9 * models} cells are cut off here" in text) == (models == 200)
    assert text.count("<details>") == text.count("</details>")
    assert text.endswith(f"<!-- {ORIGIN} -->\n")


def test_names_are_texts_and_nothing_is_no_table(tmp_path: Path) -> None:
    (first, *_) = networks()
    named = replace(first, cell=replace(first.cell, device="a|b</details><b>"))

    text = exported([named], tmp_path)

    assert "<b>" not in text
    assert text.count("</details>") == 1
    assert "|" not in exported([], tmp_path)
