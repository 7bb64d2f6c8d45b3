"""The marker and what it expands to, without pytest: merging, narrowing, reference points, targets, what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.compilers.base import Compiler
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.lab.known import Devices
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.settings import Budget
from pytest_ngraph.plan.grid import Grid
from pytest_ngraph.plan.marker import KEYWORDS, Marker, check_fixtures, read_marker
from pytest_ngraph.spec.cells import CompilerSpec
from tests.options.test_settings import settings

NULL, IDENTITY = CompilerSpec("null"), CompilerSpec("identity")


class Somewhere(Compiler):
    """Installed or not, as told."""

    def __init__(self, name: str, *requires: str, reads: str = "nothing") -> None:
        self.name, self.requires, self.reads, self.extra = name, requires, reads, name


class Few(Catalogue):
    """A catalogue of just these adapters."""

    def __init__(self, *adapters: Compiler) -> None:
        self._places = {adapter.name: f"nowhere:{adapter.name}" for adapter in adapters}
        self._loaded = {adapter.name: adapter for adapter in adapters}


def mark(**keywords: Any) -> Marker:
    return read_marker([((), keywords)])


def merge(*keywords: dict[str, Any]) -> Marker:
    """Merge markers, the nearest first."""
    return read_marker([((), each) for each in keywords])


def grid(catalogue: Catalogue | None = None, search: tuple[Path, ...] = (), **options: Any) -> Grid:
    chosen = replace(settings(), **{"compilers": (NULL,), **options})
    known = catalogue or Catalogue()
    return Grid(chosen, known, Devices(chosen, known, Path(), tuple, print), search)


def ids(marker: Marker, **options: Any) -> list[str]:
    return [name for name, _ in grid(**options).points(marker)]


def test_a_marker_says_what_each_keyword_means() -> None:
    marker = mark(
        model="block:conv",
        batch=range(1, 4),
        compilers=["null", "openvino[streams=2]"],
        devices="local",
        baseline="null[fixed_us=9]",
        budget="10min",
        tolerance=0.1,
    )

    assert marker.axes == {"model": ("block:conv",), "batch": (1, 2, 3)}
    assert marker.plural is None
    assert marker.compilers == (NULL, CompilerSpec("openvino", (("streams", "2"),)))
    assert marker.devices == ("local",)
    assert marker.baseline == CompilerSpec("null", (("fixed_us", "9"),))
    assert (marker.budget, marker.tolerance) == (Budget(None, 600.0), 0.1)


def test_a_value_given_twice_counts_once() -> None:
    assert mark(batch=[8, 1, 8]).axes["batch"] == (8, 1)


def test_true_does_not_hide_behind_the_one_it_equals() -> None:
    with pytest.raises(SpecError, match="True is not allowed"):
        mark(batch=[1, True])


def test_markers_merge_keyword_by_keyword_and_the_nearest_wins() -> None:
    marker = merge({"batch": 4}, {"batch": [1, 2], "tolerance": 0.1}, {"model": "block:conv", "tolerance": 0.2})

    assert marker.axes == {"batch": (4,), "model": ("block:conv",)}
    assert marker.tolerance == 0.1


@pytest.mark.parametrize(
    ("near", "far", "plural"),
    [("batch", "batches", None), ("batches", "batch", "batches"), ("depths", "depth", "depths")],
)
def test_the_nearest_marker_decides_whether_an_axis_is_swept(near: str, far: str, plural: str | None) -> None:
    marker = merge({near: [2, 3]}, {far: [1]})

    assert marker.plural == plural
    assert list(marker.axes.values()) == [(2, 3)]


def test_a_tolerance_of_nothing_is_refused_wherever_it_stands() -> None:
    with pytest.raises(SpecError, match="tolerance=0 is not allowed"):
        merge({}, {"tolerance": 0})


@pytest.mark.parametrize("keyword", ["bach", "scenarios", "Batch"])
def test_an_unknown_keyword_is_refused_with_all_that_are_known(keyword: str) -> None:
    with pytest.raises(SpecError) as refused:
        mark(**{keyword: 1})

    assert repr(keyword) in str(refused.value)
    assert all(known in str(refused.value) for known in KEYWORDS)


@pytest.mark.parametrize(
    ("fixtures", "keywords"),
    [
        (["ngraph_cell"], {"model": "block:conv"}),
        (["ngraph_cell", "ngraph_callable"], {"batch": [1, 2]}),
        (["ngraph_batches"], {"batches": [1, 2], "depth": 2}),
        (["ngraph_depths"], {"depths": [1, 2]}),
        (["ngraph_models"], {"models": ["block:conv", "block:mha"]}),
        ([], {"compilers": "null"}),
    ],
)
def test_fixtures_that_go_with_the_marker_are_accepted(fixtures: list[str], keywords: dict[str, Any]) -> None:
    check_fixtures(fixtures, mark(**keywords))


@pytest.mark.parametrize(
    ("fixtures", "keywords", "said"),
    [
        (["ngraph_cell"], {"batches": [1, 2]}, "batches= goes with the fixture ngraph_batches, not with ngraph_cell"),
        (["ngraph_callable"], {"depths": [1, 2]}, "depths= goes with the fixture ngraph_depths"),
        (["ngraph_batches", "ngraph_cell"], {"batches": [1, 2]}, "not with ngraph_cell"),
        (["ngraph_depths"], {"depth": 2}, "the fixture ngraph_depths needs depths= in the marker"),
        ([], {"depth": 2}, "depth= goes with the fixture ngraph_cell, which the test does not ask for"),
    ],
)
def test_fixtures_that_do_not_go_with_the_marker_are_refused(
    fixtures: list[str], keywords: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError) as refused:
        check_fixtures(fixtures, mark(**keywords))

    assert said in str(refused.value)


def test_the_reference_point_of_a_sweep_is_always_measured() -> None:
    for axis, name in (("batch", "batches"), ("depth", "depths")):
        ((_, point),) = grid().points(mark(model="block:conv", **{name: [16, 4]}))

        assert [getattr(cell.workload, axis) for cell in point.cells] == [1, 4, 16]
        assert point.asked == (16, 4)


def test_the_reference_point_survives_narrowing() -> None:
    ((_, point),) = grid(batches=(16,)).points(mark(model="block:conv", batches=[1, 4, 16]))

    assert [cell.workload.batch for cell in point.cells] == [1, 16]
    assert point.asked == (1, 4, 16)


def test_a_sweep_without_any_point_left_is_deselected() -> None:
    ((name, point),) = grid(batches=(3,)).points(mark(model="block:conv", batches=[1, 4, 16]))

    assert name == "narrowed-away"
    assert point.deselected


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"batches": (8,)}, ["width64-depth2-batch8", "width96-depth2-batch8"]),
        ({"widths": (96, 128)}, ["width96-depth2-batch1", "width96-depth2-batch8"]),
        ({"image_sizes": (32,), "depths": (2,), "batches": (1,), "widths": (64,)}, ["width64-depth2-batch1"]),
        ({"depths": (1,)}, None),
    ],
)
def test_options_narrow_singular_axes(options: dict[str, Any], left: list[str] | None) -> None:
    marker = mark(model="block:conv", batch=[1, 8], width=[64, 96], depth=2)

    expected = ["narrowed-away"] if left is None else [f"local-null-block:conv-{label}" for label in left]
    assert ids(marker, **options) == expected


def test_models_are_narrowed_by_the_text_of_their_reference() -> None:
    assert ids(mark(model=["block:conv", "block:mha"]), models=("block:mha",)) == ["local-null-block:mha"]
    assert ids(mark(), models=("block:mha",)) == ["local-null-block:mha"]


def test_the_cells_of_a_grid_share_what_they_have_in_common() -> None:
    points = [point for _, point in grid().points(mark(model="block:conv", batch=range(1, 50)))]

    assert len({id(point.cells[0].workload.model) for point in points}) == 1
    assert len({id(point.compiler) for point in points}) == 1


def test_names_in_the_marker_are_checked_even_where_options_leave_nothing() -> None:
    with pytest.raises(SpecError, match="compilers='tensort': unknown compiler"):
        grid(batches=(3,)).points(mark(model="block:conv", batch=1, compilers="tensort"))


def test_by_default_every_installed_compiler_runs_but_the_baseline_and_those_to_be_named() -> None:
    tuned = Somewhere("tuned")
    tuned.named_only = True
    catalogue = Few(Somewhere("identity"), Somewhere("here"), Somewhere("absent", "surely_not_installed"), tuned)

    assert grid(catalogue).default_compilers(IDENTITY, "local") == [CompilerSpec("here")]
    assert grid(catalogue).default_compilers(CompilerSpec("here"), "local") == [IDENTITY]


def test_where_no_compiler_is_installed_every_one_says_what_to_install() -> None:
    catalogue = Few(Somewhere("identity"), Somewhere("absent", "surely_not_installed"))

    assert grid(catalogue).default_compilers(IDENTITY, "local") == [CompilerSpec("absent")]


BARE, BASIC = CompilerSpec.parse("onnxruntime"), CompilerSpec.parse("onnxruntime[graph=basic]")
THREADS = CompilerSpec.parse("onnxruntime[threads=1]")


@pytest.mark.parametrize(
    ("offered", "wanted", "chosen"),
    [
        # A bare name in the marker stands for each variant on the command line, but the baseline.
        ([BARE, BASIC, THREADS], ["onnxruntime"], [BARE, THREADS]),
        ([BASIC], ["onnxruntime"], []),
        # It is compared with itself where it is named.
        ([BARE, BASIC], ["onnxruntime[graph=basic]"], [BASIC]),
        ([BARE, BASIC], ["onnxruntime", "onnxruntime[graph=basic]"], [BARE, BASIC]),
        ([BASIC, BARE], None, [BASIC, BARE]),
        # A bare name on the command line stands for each variant in the marker.
        ([BARE], ["onnxruntime[threads=1]"], [THREADS]),
        ([BARE], ["onnxruntime[threads=1]", "onnxruntime"], [THREADS, BARE]),
        ([BARE, THREADS], ["onnxruntime[threads=1]"], [THREADS]),
        ([BARE, NULL], ["onnxruntime[graph=basic]", "openvino"], [BASIC]),
        ([THREADS], ["onnxruntime[threads=2]"], []),
    ],
)
def test_a_bare_name_stands_for_every_variant_but_the_baseline(
    offered: list[CompilerSpec], wanted: list[str] | None, chosen: list[CompilerSpec]
) -> None:
    narrowing = {} if wanted is None else {"compilers": wanted}
    marker = mark(model="block:conv", baseline=str(BASIC), **narrowing)

    points = [point for _, point in grid(compilers=tuple(offered)).points(marker) if not point.deselected]

    assert [point.compiler for point in points] == chosen


def test_a_baseline_of_the_command_line_or_of_an_onnx_file_is_no_variant_of_a_bare_name(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    disabled = CompilerSpec.parse("onnxruntime[graph=disabled]")
    for option, model, baseline in ((BASIC, "block:conv", BASIC), (None, "onnx:model.onnx", disabled)):
        chosen = grid(compilers=(BARE, baseline), search=(tmp_path,), baseline=option)

        points = [point for _, point in chosen.points(mark(model=model, compilers="onnxruntime"))]

        assert [point.compiler for point in points] == [BARE]


def missing(adapter: Compiler, baseline: Compiler, model: str) -> str | None:
    chosen = grid(Few(adapter, baseline), compilers=(CompilerSpec(adapter.name),))
    marker = mark(model=model, baseline=baseline.name)
    ((_, point),) = chosen.points(marker)
    return point.missing


def test_what_is_missing_is_said_with_the_command_that_brings_it() -> None:
    here, absent = Somewhere("here"), Somewhere("absent", "surely_not_installed")

    assert missing(here, here, "block:conv") is None
    assert missing(absent, here, "block:conv") == (
        'absent on local: not installed (pip install "pytest-ngraph[absent]")'
    )
    assert missing(here, absent, "block:conv") == (
        'absent, the baseline, on local: not installed (pip install "pytest-ngraph[absent]")'
    )


def test_paths_are_looked_for_in_each_folder_in_turn(tmp_path: Path) -> None:
    for folder in ("near", "far"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text("def make(depth): ...\n")
    (tmp_path / "far" / "only.py").write_text("def make(): ...\n")
    search = (tmp_path / "near", tmp_path / "far")

    points = grid(search=search).points(mark(model=["model.py:make", "only.py:make"]))

    found = [point.cells[0].workload.model.locator for _, point in points]
    assert found == [f"{tmp_path}/near/model.py:make", f"{tmp_path}/far/only.py:make"]


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"model": "models.py:make"}, "no file 'models.py' in "),
        ({"model": "model.py:mke"}, "no 'mke' in "),
        ({"model": "model.py:make", "width": 64}, "width=64: model 'model.py:make': it does not take width"),
        ({"model": "model.py:make", "depths": [1, 2]}, "depths=1, 2: model 'model.py:make': it does not take depth"),
    ],
)
def test_what_a_factory_does_not_take_is_refused(tmp_path: Path, keywords: dict[str, Any], said: str) -> None:
    (tmp_path / "model.py").write_text("def make(image_size): ...\n")

    with pytest.raises(SpecError) as refused:
        grid(search=(tmp_path,)).points(mark(**keywords))

    assert said in str(refused.value)


def test_a_folder_that_a_file_is_looked_for_in_is_named_once(tmp_path: Path) -> None:
    """The test's folder is the rootdir in many a project."""
    with pytest.raises(SpecError) as refused:
        grid(search=(tmp_path, tmp_path)).points(mark(model="models.py:make"))

    assert str(refused.value).endswith(f"no file 'models.py' in {tmp_path}")


def test_an_item_is_planned_where_it_is_made() -> None:
    """Its cells, what they are compared with and the terms of its test are in one value."""
    marker = mark(model="block:conv", batches=[1, 4], baseline="null", budget=5, tolerance=0.1, rebuild=True)
    ((_, item),) = grid(compilers=(NULL,), tolerance=0.02).points(marker)

    assert [(cell.compiler, cell.replica, cell.rebuild) for cell in item.cells] == [(NULL, 1, True)] * 2
    assert [(cell.compiler, cell.replica, cell.rebuild) for cell in item.baselines] == [(NULL, 0, True)] * 2
    assert (item.device, item.compiler, item.asked) == ("local", NULL, (1, 4))
    assert (item.budget, item.tolerance) == (Budget(5), 0.1)
    assert (item.nodeid, item.deselected, item.missing) == ("", False, None)


def test_the_item_of_a_pair_has_no_cells() -> None:
    ((_, item),) = grid().pairs(mark())

    assert (item.device, item.compiler, item.cells, item.baselines) == ("local", NULL, (), ())
    assert item.all_cells == ()
