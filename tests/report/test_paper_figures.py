"""The paper's figures in their size in print: what files say of their size, what they lack, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.figures.chosen import Chosen
from pytest_ngraph.report.figures.files import Request, write_paper_figures
from pytest_ngraph.report.figures.layout import legend_names, sheets, wrapped
from pytest_ngraph.report.figures.panels import curves, dashes_of, pair
from pytest_ngraph.report.figures.paper import FIGURES, depths
from pytest_ngraph.report.figures.size import HIGHEST_MM, Size, size_of
from pytest_ngraph.report.html.content import Content, read_content
from pytest_ngraph.report.html.drawing import Look
from pytest_ngraph.report.html.pictures import palette
from pytest_ngraph.report.html.pictures.palette import colours_of, shapes_of
from pytest_ngraph.report.results.transfer import sizes_of
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.support.report_stores import FAILED, Lab, write_store

PT = 72 / 25.4
SPECIAL = "models.py:a_b&50%#{x}~^\\\\$"
LAB = Lab(
    compilers=("identity", "openvino", "onnxruntime"),
    models=(
        "timm:resnet18",
        "timm:resnet50",
        "timm:efficientnet_b5",
        "timm:swin_s3_tiny_224",
        SPECIAL,
        "timm:efficientnet_b3",
        "timm:swin_tiny",
    ),
    batches=(1, 2, 8),
    depths=(1, 2, 6),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two machines."""
    skip_without("altair", "vl_convert")
    path = tmp_path_factory.mktemp("figures") / "results.sqlite"
    write_store(path, LAB, failed=FAILED)
    return path


def content_of(path: Path) -> Content:
    with Store.open(path, read_only=True) as opened:
        return read_content(opened, opened.runs()[-1])


def ran(*words: object) -> int:
    return main(["report", *map(str, words)])


def test_sizes_are_read_with_their_units() -> None:
    assert size_of(None, None) == Size(88.0, 8.0)
    assert size_of("10in", "7.5").width_mm == pytest.approx(254)
    assert size_of("250pt", "9pt").width_pt == pytest.approx(250)
    assert size_of("page", "8").width_mm == 180
    assert size_of("8.8 cm", "8").width_mm == pytest.approx(88)


@pytest.mark.parametrize("width", ["0mm", "-3", "9999mm", "wide", "88", "mm", "nan", "1e2mm", "88mm 88mm", ""])
def test_a_width_that_is_none_is_refused_with_what_is_allowed(width: str) -> None:
    with pytest.raises(
        SpecError, match=r"--width: .* \(expected a length from 50mm to 420mm with its unit, mm, cm, in, pt"
    ):
        size_of(width, None)


@pytest.mark.parametrize("font", ["0", "40", "-8", "big", "8em", "nan", "inf", ""])
def test_type_that_no_paper_prints_is_refused(font: str) -> None:
    with pytest.raises(SpecError, match=r"--font: .* \(expected the size of type in points, 6 to 12; papers print"):
        size_of(None, font)


def fonts_of(pdf: bytes) -> set[float]:
    """Return the sizes of type that the streams of a PDF set, in points."""
    streams = [found[1] for found in re.finditer(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL)]
    sizes = set()
    for stream in streams:
        try:
            text = zlib.decompress(stream)
        except zlib.error:
            continue
        sizes |= {float(size) for size in re.findall(rb"/\S+ ([\d.]+) Tf", text)}
    return sizes


@pytest.mark.parametrize(("width", "millimetres", "font"), [("88mm", 88, 8), ("page", 180, 7)])
def test_files_have_the_width_and_the_type_that_were_asked_for(
    store: Path, tmp_path: Path, width: str, millimetres: float, font: float
) -> None:
    from PIL import Image

    words = ("--store", store, "--figures", tmp_path, "--figure", "6", "--device", "xeon", "--format", "pdf,svg,png")
    assert ran(*words, "--width", width, "--font", font) == 0

    pdf = (tmp_path / "figure-6.pdf").read_bytes()
    box = re.search(rb"/MediaBox ?\[([\d. ]+)\]", pdf)
    assert box is not None
    left, low, right, high = map(float, box[1].split())
    assert right - left == pytest.approx(millimetres * PT, abs=0.01)
    assert 0 < high - low <= HIGHEST_MM * PT
    assert fonts_of(pdf) == {font}
    assert b"/FontFile2" in pdf

    svg = (tmp_path / "figure-6.svg").read_text(encoding="utf-8")
    head = re.match(r'<svg [^>]*width="([\d.]+)mm" height="([\d.]+)mm" viewBox="([-\d.]+) 0 ([\d.]+) ([\d.]+)"', svg)
    assert head is not None
    assert float(head[1]) == pytest.approx(millimetres)
    # A unit of the picture is a point, so that sizes of type in it are points, too.
    assert float(head[4]) == pytest.approx(millimetres * PT, abs=0.001)
    assert {float(size) for size in re.findall(r'font-size="([\d.]+)px"', svg)} == {font}
    with Image.open(tmp_path / "figure-6.png") as image:
        assert image.width == pytest.approx(millimetres / 25.4 * 600, abs=1)
        assert image.info["dpi"][0] == pytest.approx(600, abs=1)


def test_nothing_is_cut_at_the_edges(store: Path) -> None:
    """What is drawn is within the sheet: vl-convert gives a drawing all the room that it takes."""
    content = content_of(store)
    chosen = Chosen(replace(content, reports=[one for one in content.reports if one.cell.device == "xeon"]), (), Size())
    (sheet,) = sheets(FIGURES["5"].panels(chosen), Size())
    left = re.search(r'viewBox="(-?[\d.]+) 0 ([\d.]+)', sheet.svg)
    assert left is not None
    assert -10 <= float(left[1]) <= 0
    assert float(left[2]) == pytest.approx(88 * PT, abs=0.001)


def test_two_machines_are_never_in_one_figure_but_the_first_which_says_so(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("--store", store, "--figures", tmp_path, "--figure", "5,1") == 0
    assert {path.name for path in tmp_path.glob("*.pdf")} == {
        "figure-1.pdf", "figure-5-xeon.pdf", "figure-5-orin.pdf",
    }  # fmt: skip
    ours = (tmp_path / "figure-5-xeon.txt").read_text(encoding="utf-8")
    assert "Device xeon: A processor of xeon, 8 CPUs used" in ours
    assert "orin" not in ours
    both = (tmp_path / "figure-1.txt").read_text(encoding="utf-8")
    assert "Device xeon: " in both
    assert "Device orin: " in both
    titles = {panel.title[0] for panel in FIGURES["1"].panels(Chosen(content_of(store), (), Size()))}
    assert titles == {"xeon", "orin"}
    out = capsys.readouterr().out
    assert "figure 5-xeon: not measured: timm:resnet18 batch 4, 16; timm:resnet50 batch 4, 16; " in out
    assert "; all of timm:resnet101, timm:efficientnet_b4, " in out
    # A caption is of what is in the figure.
    assert "Not measured: timm:resnet18 batch 4, 16; timm:resnet50 batch 4, 16; " in ours
    assert "resnet101" not in ours
    assert "; measure it: pytest example_suites/paper/test_compiler_support.py -k gain" in out


def test_a_caption_says_how_it_was_measured_and_what_has_no_time(store: Path, tmp_path: Path) -> None:
    assert ran("--store", store, "--figures", tmp_path, "--figure", "6", "--device", "xeon", "--model", "resnet18") == 0
    text = (tmp_path / "figure-6.txt").read_text(encoding="utf-8")
    for part in (
        "Throughput over that of the baseline",
        "After Figure 6 of NGraphBench",
        "Protocol gate, with 99 % intervals over launches, of 4 launches.",
        "torch 2.13.0",
        "Made by pytest-ngraph from run",
    ):
        assert part in text
    ran("--store", store, "--figures", tmp_path, "--figure", "5", "--device", "xeon")
    assert "Without a time: xeon:openvino models.py" in (tmp_path / "figure-5.txt").read_text(encoding="utf-8")


def test_latex_prints_a_figure_of_models_with_signs_of_its_own(store: Path, tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    assert ran("--store", store, "--figures", tmp_path, "--figure", "9", "--device", "xeon", "--model", SPECIAL) == 0
    figure = (tmp_path / "figure-9.tex").read_text(encoding="utf-8")
    assert figure.startswith("% needs \\usepackage{graphicx}\n")
    assert r"\includegraphics[width=88mm]{figure-9}" in figure
    packages = r"\usepackage{graphicx,textcomp}\usepackage[T1]{fontenc}"
    (tmp_path / "t.tex").write_text(
        f"\\documentclass[twocolumn]{{article}}{packages}\\begin{{document}}\n{figure}\\end{{document}}\n"
    )
    done = subprocess.run(["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_forty_models_in_a_column_are_all_there_on_sheets_no_higher_than_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without("altair", "vl_convert")
    path = tmp_path / "many.sqlite"
    models = tuple(f"timm:resnet{number}_with_a_long_name_of_its_own" for number in range(40))
    write_store(
        path,
        Lab(devices=("xeon",), compilers=("identity", "openvino"), models=models, batches=(1, 2), depths=(),
            launches=2, samples=2, together=False),
    )  # fmt: skip
    assert ran("--store", path, "--figures", tmp_path / "out", "--figure", "6", "--width", "column") == 0
    made = sorted((tmp_path / "out").glob("*.pdf"))
    out = capsys.readouterr().out
    said = re.search(r"figure 6: 40 panels do not fit 225mm of height: (\d+) files \(([\d, ]+)\)", out)
    assert said is not None
    assert len(made) == int(said[1]) > 1
    assert sum(map(int, said[2].split(", "))) == 40
    for number, pdf in enumerate(made):
        box = re.search(rb"/MediaBox ?\[([\d. ]+)\]", pdf.read_bytes())
        assert box is not None
        assert float(box[1].split()[3]) <= HIGHEST_MM * PT
        assert pdf.with_suffix(".txt").read_text().startswith("Part "), number


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--figure", "99"),
            "--figure: '99' is not one of the paper's figures (known: 1, 5, 6, 7, 8, 9, 10, 11, 12, tcr, dlas-3,",
        ),
        (("--figure", "3"), "--figure: Figure 3 of the paper is a sketch and shows no measurement"),
        (("--width", "0mm"), "--width: '0mm' (expected a length from 50mm to 420mm"),
        (("--width", "-3"), "--width: '-3' (expected a length"),
        (("--font", "40"), "--font: '40' (expected the size of type in points, 6 to 12"),
        (
            ("--model", "timm:resnet19"),
            "--model: 'timm:resnet19' is not in this run (there: timm:resnet18, timm:resnet50",
        ),
        (("--device", "tpu"), "--device: 'tpu' is not in this run (there: orin, xeon)"),
        (("--compiler", "tvm"), "--compiler: 'tvm' is not in this run"),
        (("--figure", "7", "--format", "gif"), "--format: gif (known: pdf, svg, png)"),
        (
            ("--figure", "tcr"),
            "--figure tcr: the run has nothing for it; give the bytes of a sample: --sizes MODEL=BEFORE:AFTER",
        ),
        (("--figure", "tcr", "--sizes", "timm:x=2:1"), "--sizes: 'timm:x' is not in this run"),
        (("--figure", "tcr", "--sizes", "timm:x=1:2"), "--sizes: 'timm:x=1:2' (expected MODEL=BEFORE:AFTER, bytes of"),
        (("--figure", "7", "--model", "resnet18"), "; measure it: pytest example_suites/paper/test_depth_scaling.py"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_what_can(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert ran("--store", store, "--figures", tmp_path / "out", *words) != 0
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.pdf"))


def test_options_of_figures_without_a_folder_are_refused(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("--store", store, "--figure", "5") != 0
    assert "--figure is for figures: give --figures DIR as well" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert ran("--store", store, "--figures", tmp_path / "file", "--figure", "10", "--device", "xeon") != 0
    assert "file/figure-10.pdf: File exists; what was there before is intact; choose another" in capsys.readouterr().err


def test_a_figure_without_data_is_said_by_name_where_all_are_asked_for(store: Path, tmp_path: Path) -> None:
    content = content_of(store)
    models = [one for one in content.reports if one.cell.workload.model.text == "timm:resnet18"]
    few = [one for one in models if one.cell.device == "xeon" and one.cell.workload.batch == 1]
    lines = list(write_paper_figures(replace(content, reports=few), tmp_path, Request(formats=("svg",))))
    assert {path.name for path in tmp_path.glob("*.svg")} == {"figure-5.svg", "figure-6.svg", "figure-12.svg"}
    assert (
        "figure 10: the run has nothing for it; measure it: pytest example_suites/paper/test_width_friction.py" in lines
    )
    assert any(line.startswith("figure 1: ") and "test_compiler_support.py -k rank" in line for line in lines)


def test_a_network_of_smaller_images_is_none_of_the_papers_cells(store: Path) -> None:
    content = content_of(store)
    small = [
        replace(one, cell=replace(one.cell, workload=replace(one.cell.workload, image_size=64)))
        for one in content.reports
        if one.cell.workload.depth is None
    ]
    assert FIGURES["6"].missing(Chosen(replace(content, reports=small), (), Size())) == ([], [])
    assert FIGURES["6"].missing(Chosen(content, (), Size()))[1][0] == "timm:resnet101"


@pytest.mark.parametrize("axes", [{"optimize": "weight_prune=0.8"}, {"precision": "bf16"}])
def test_what_was_done_to_a_block_makes_panels_of_their_own(store: Path, axes: dict[str, Any]) -> None:
    """A pruned stack and the dense one were two points of one line."""
    content = content_of(store)
    reports = [one for one in content.reports if one.cell.workload.depth is not None and one.cell.device == "xeon"]
    others = [replace(one, cell=replace(one.cell, workload=replace(one.cell.workload, **axes))) for one in reports]
    alone = depths(Chosen(replace(content, reports=reports), (), size_of(None, None)))
    both = depths(Chosen(replace(content, reports=[*reports, *others]), (), size_of(None, None)))
    (value,) = axes.values()
    assert alone
    assert {panel.title for panel in both if value not in panel.title[0]} == {panel.title for panel in alone}
    assert len(both) == 2 * len(alone)


def test_transfer_cost_reduction_is_drawn_where_sizes_are_given(store: Path, tmp_path: Path) -> None:
    words = ("--figures", tmp_path, "--figure", "tcr", "--device", "xeon", "--sizes", "timm:resnet18=150528:2048")
    assert ran("--store", store, *words) == 0
    assert (tmp_path / "figure-tcr.pdf").stat().st_size > 1000
    assert sizes_of(["a=b=3:1"]) == {"a=b": (3.0, 1.0)}


def test_a_pair_that_is_named_is_drawn_whether_it_changes_places_or_not(store: Path) -> None:
    content = content_of(store)
    pair = FIGURES["1"].panels(Chosen(content, ("timm:resnet18", "timm:resnet50"), Size()))
    assert len(pair) == 4
    assert all("batch 8" in panel.title for panel in pair)
    both = FIGURES["1"].panels(Chosen(content, ("timm:efficientnet_b3", "timm:swin_tiny"), Size()))
    assert {panel.title[3]: "change places" in panel.title for panel in both} == {
        "identity and openvino": True,
        "identity and onnxruntime": False,
    }
    more = FIGURES["1"].panels(Chosen(content, ("timm:efficientnet_b3", "timm:swin_tiny", "timm:resnet18"), Size()))
    assert len(more) > 1
    assert all("change places" in panel.title for panel in more)


def test_under_quick_the_first_figure_says_that_nobody_looked(store: Path, tmp_path: Path) -> None:
    content = content_of(store)
    quick = replace(content, run=replace(content.run, protocol="quick"), reversals=[])
    list(write_paper_figures(quick, tmp_path, Request(("1",), formats=("svg",))))
    text = (tmp_path / "figure-1.txt").read_text(encoding="utf-8")
    assert "Whether they change places was not looked for: the protocol controls no error." in text
    assert "Protocol quick, with one standard error to each side, within one launch" in text


def test_compilers_are_told_apart_without_colour() -> None:
    names = [f"compiler{number}" for number in range(8)]
    look = Look(colours_of(names, {names[0]}), shapes_of(names), palette.dashes_of(names))
    assert len({tuple(dash) for dash in dashes_of(look).values()}) == 8
    assert len(set(look.shapes.values())) == 8


def test_a_whisker_that_dwarfs_all_points_ends_at_the_frame_and_shows_it() -> None:
    names = ["a"]
    look = Look(colours_of(names, set()), shapes_of(names), palette.dashes_of(names))
    rows = [
        {"compiler": "a", "batch": batch, "value": value, "low": value - off, "high": value + off}
        for batch, value, off in ((1, 1.0, 0.1), (2, 2.0, 0.1), (4, 1.5, 50.0))
    ]
    panel = curves(["x"], rows, look, names, x="batch", y="speed-up")
    assert panel.is_cut
    assert [layer["mark"].get("shape") for layer in panel.layers[-2:]] == ["triangle-up", "triangle-down"]
    assert legend_names([panel]) == ["a"]
    calm = curves(["x"], rows[:2], look, names, x="batch", y="speed-up")
    assert not calm.is_cut


def test_names_are_broken_and_never_cut() -> None:
    name = "efficientnet_b5_with_an_endlessly_longsinglewordwithoutanysign batch8"
    lines = wrapped(name, 50.0, 8.0)
    assert len(lines) > 4
    assert "".join(lines).replace(" ", "") == name.replace(" ", "")


def test_a_pair_whose_whisker_goes_on_shows_it_as_the_curves_do() -> None:
    sides = ("eager", "compiled")
    rows = [
        {"role": role, "side": side, "value": value, "low": value - off, "high": value + off}
        for role, side, value, off in (
            (1, "eager", 100.0, 1.0), (1, "compiled", 150.0, 900.0),
            (2, "eager", 90.0, 1.0), (2, "compiled", 180.0, 1.0),
        )
    ]  # fmt: skip
    panel = pair(["x"], rows, sides)
    assert panel.is_cut
    assert [layer["mark"].get("shape") for layer in panel.layers[-2:]] == ["triangle-up", "triangle-down"]
    assert [len(layer["data"]["values"]) for layer in panel.layers[-2:]] == [1, 1]
    calm = pair(["x"], [{**row, "low": None, "high": None} for row in rows], sides)
    assert not calm.is_cut
    assert len(calm.layers) == 3
