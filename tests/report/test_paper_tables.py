"""The paper's Tables I to VIII from a store, by one command each, and transfer cost reduction in exports."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.errors import SpecError
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.export.layout import latex
from pytest_ngraph.report.export.specifications import blocks, machines, networks, versions
from pytest_ngraph.report.export.tables import overview
from pytest_ngraph.report.results.cells import CellReport, cell_reports
from pytest_ngraph.report.results.transfer import with_transfer
from pytest_ngraph.store.rows import RunRow
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.support.report_stores import FAILED, Lab, of, write_store

TABLES = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii")
SPECIAL = "models.py:a_b&50%#{x}~^$"
LAB = Lab(
    models=("timm:resnet18", "timm:swin_s3_tiny_224", SPECIAL), batches=(1, 2, 8), depths=(1, 2), widths=(64, 128)
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "results.sqlite"
    write_store(path, LAB, failed=FAILED)
    return path


def read(path: Path) -> tuple[list[CellReport], RunRow]:
    with Store.open(path, read_only=True) as opened:
        run = opened.runs()[-1]
        return cell_reports(opened, run.id), run


def test_machines_are_what_they_said_of_themselves(store: Path) -> None:
    assert machines(*read(store)).rows == (
        ("xeon", "8x A processor of xeon (x86_64)", "N/A", "32.0 GiB", "Linux 6.1"),
        ("orin", "6x A processor of orin (x86_64)", "N/A", "32.0 GiB", "Linux 6.1"),
    )


def test_what_a_machine_did_not_say_is_not_made_up() -> None:
    run = RunRow(1, "run", "2026-01-01", None, "finished", (), 0, "gate", {"cpus": 8, "affinity": [0, 1]}, False, False)
    report = CellReport(of("timm:resnet18", device="local"), None, {}, None, None)
    assert machines([report], run).rows == (("local", "8x not known, 2 of 8 used", "N/A", "", ""),)
    assert versions([report], run).rows == ()


def test_versions_have_a_column_for_each_device(store: Path) -> None:
    table = versions(*read(store))
    assert table.columns == ("Library", "xeon", "orin")
    assert table.rows == (
        ("openvino", "2026.4.1", "2026.4.1"), ("Python", "3.11.9", "3.11.9"), ("torch", "2.13.0", "2.13.0"),
    )  # fmt: skip


def test_networks_are_counted_to_the_unit_and_code_of_a_suite_is_not_run(store: Path) -> None:
    skip_without("torch", "timm")
    table = networks(*read(store))
    assert table.rows == (
        ("timm:resnet18", "Convolutional", "11,689,512", "1,814,083,944", "1,814,073,344"),
        ("timm:swin_s3_tiny_224", "Transformer", "28,328,674", "52,152,040", "4,623,332,352"),
    )
    assert f'Not counted: models.py:<img src=x onerror="window.hurt=1">, {SPECIAL}.' in table.caption


def test_blocks_have_the_papers_parameters(store: Path) -> None:
    skip_without("torch")
    table = blocks(*read(store))
    assert table.rows == (("64", "37,056"), ("128", "147,840"))
    assert table.headings == ("Convolutional: Channels", "Convolutional: Params Per Block")


@pytest.mark.parametrize("name", TABLES[:-1])
def test_each_table_takes_one_command_and_can_be_verified(
    name: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without("torch", "timm")
    file = tmp_path / "table.tex"
    words = [str(file), "--table", name, "--store", str(store)]
    assert main(["export", *words]) == 0
    assert file.read_text(encoding="utf-8").startswith("% needs ")
    assert main(["export", "--verify", *words]) == 0
    capsys.readouterr()


def test_what_a_store_lacks_is_said_with_the_command_that_measures_it(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without("torch")
    few = tmp_path / "few.sqlite"
    write_store(few, Lab(devices=("xeon",), models=(SPECIAL,), batches=(1,), depths=(), launches=1))
    for name, words in (
        ("iv", "the run has nothing for Table IV: no network of timm or torchvision (pytest example_suites/paper/"),
        ("v", "the run has nothing for Table V: no block:conv or block:mha (pytest example_suites/paper/"),
        ("viii", "the run has nothing for Table VIII: no stacks of block:mha"),
        ("ix", "(known: i, ii, iii, iv, v, vi, vii, viii, dlas-2,"),
    ):
        assert main(["export", str(tmp_path / "t.tex"), "--table", name, "--store", str(few)]) != 0
        assert words in capsys.readouterr().err


def test_latex_prints_each_table_and_breaks_long_ones_over_pages(store: Path, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    skip_without("torch", "timm")
    for name in TABLES[:-1]:
        assert main(["export", str(tmp_path / f"{name}.tex"), "--table", name, "--store", str(store)]) == 0
    assert main(["export", str(tmp_path / "all.tex"), "--store", str(store)]) == 0
    texts = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.tex")}
    assert {name for name, text in texts.items() if r"\begin{longtable}" in text} == {"vi", "all"}
    packages = r"\usepackage[textwidth=516pt]{geometry}\usepackage{booktabs,longtable,textcomp}\usepackage[T1]{fontenc}"
    body = "\n".join(rf"\input{{{name}.tex}}" for name in texts)
    (tmp_path / "paper.tex").write_text(
        f"\\documentclass{{article}}{packages}\\begin{{document}}\n{body}\n\\end{{document}}\n"
    )
    for _ in range(3):
        done = subprocess.run(["pdflatex", "-halt-on-error", "paper.tex"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:]


# Transfer cost reduction per second


def test_transfer_cost_reduction_is_a_column_of_exports(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--sizes", "timm:resnet18=150528:528"]
    words = ["--store", str(store), *sizes]
    assert main(["export", str(tmp_path / "tidy.csv"), *words]) == 0
    with (tmp_path / "tidy.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rates = {tuple(row[key] for key in ("device", "compiler", "model", "batch")): row
             for row in rows if row["metric"] == "throughput"}  # fmt: skip
    saved = [row for row in rows if row["metric"] == "tcr_per_second"]
    assert {row["model"] for row in saved} == {"timm:resnet18"}
    assert len(saved) == 2 * 4 * 3
    for row in saved:
        rate = rates[tuple(row[key] for key in ("device", "compiler", "model", "batch"))]
        assert float(row["value"]) == pytest.approx(150_000 * float(rate["value"]))
        assert float(row["high"]) == pytest.approx(150_000 * float(rate["high"]))
        assert row["unit"] == "bytes/s"
    assert main(["export", "--verify", str(tmp_path / "tidy.csv"), *words]) == 0
    assert main(["export", "--verify", str(tmp_path / "tidy.csv"), "--store", str(store)]) == 1
    assert main(["export", str(tmp_path / "all.tex"), *words]) == 0
    assert r"TCR {\scriptsize [MB/s]}" in (tmp_path / "all.tex").read_text(encoding="utf-8")
    capsys.readouterr()


def test_the_page_has_it_as_well(store: Path, tmp_path: Path) -> None:
    skip_without("altair", "vl_convert")
    page = tmp_path / "page.html"
    assert main(["report", str(page), "--store", str(store), "--sizes", "timm:resnet18=150528:528"]) == 0
    assert json.dumps("tcr_per_second") in page.read_text(encoding="utf-8")


def test_sizes_of_a_model_that_is_not_there_are_refused_and_one_launch_has_no_interval() -> None:
    rate = Estimate("throughput", 10.0, 0.0, float("inf"), 1)
    report = CellReport(of("timm:resnet18"), None, {"throughput": rate}, None, None)
    (made,) = with_transfer([report], {"timm:resnet18": (100.0, 20.0)})
    assert made.estimates["tcr_per_second"] == Estimate("tcr_per_second", 800.0, 0.0, float("inf"), 1)
    with pytest.raises(SpecError, match=r"--sizes: 'timm:x' is not in this run \(there: timm:resnet18\)"):
        with_transfer([report], {"timm:x": (2.0, 1.0)})
    (untimed,) = with_transfer([CellReport(of("timm:resnet18"), None, {}, None, None)], {"timm:resnet18": (2.0, 1.0)})
    assert untimed.estimates == {}
    assert "0.0008" in latex(overview([made]), "x")
