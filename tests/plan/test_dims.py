"""Sizes of open dimensions: in a reference, by ``dims=`` in the marker, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads import keys
from pytest_ngraph.workloads.kinds import kind_of, parse_model
from tests.conftest import Suite
from tests.plan.test_grid import grid, mark


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "b.onnx").write_bytes(b"")
    return tmp_path


def models(folder: Path, options: tuple[str, ...] | None = None, **keywords: Any) -> list[str]:
    """Return the models of a test's cells, in the order of its items."""
    points = grid(search=(folder,), models=options).points(mark(**keywords))
    return [cell.workload.model.text for _, point in points for cell in point.cells]


def parse(text: str, folder: Path) -> ModelRef:
    return parse_model(text, (folder,))


def test_a_reference_has_its_sizes_in_text_locator_and_key_whatever_their_order(folder: Path) -> None:
    one, other = (parse(f"onnx:b.onnx[{inner}]", folder) for inner in ("T=7,S=128", "S=128, T=7"))

    assert one == other == ModelRef("onnx:b.onnx[S=128,T=7]", "onnx", f"{folder / 'b.onnx'}[S=128,T=7]")
    plain = parse("onnx:b.onnx", folder)
    assert plain == ModelRef("onnx:b.onnx", "onnx", str(folder / "b.onnx"))
    found = {
        keys.sample_key(Workload(model), 0, {"b.onnx": "0"})
        for model in (one, plain, parse("onnx:b.onnx[S=1]", folder))
    }
    assert len(found) == 3
    kind = kind_of(one)
    assert (kind.place(one), kind.key_name(one), kind.key_name(plain)) == (str(folder / "b.onnx"), "[S=128,T=7]", "")
    assert kind.moved(one, "files/b.onnx") == ModelRef(one.text, "onnx", "files/b.onnx[S=128,T=7]")


def test_names_that_exporters_give_can_be_written(folder: Path) -> None:
    assert parse("onnx:b.onnx[past_length + 1=9,2*s0=4]", folder).text == "onnx:b.onnx[2*s0=4,past_length + 1=9]"


@pytest.mark.parametrize("inner", ["", "S", "S=", "=3", "S=0", "S=-1", "S=1.5", "S=x", "S=1,", "S=٣", "128"])
def test_brackets_with_something_else_are_refused(folder: Path, inner: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse(f"onnx:b.onnx[{inner}]", folder)
    assert str(refused.value).startswith(f"model 'onnx:b.onnx[{inner}]': ")
    assert "in its brackets is not allowed (expected a name and a whole number >= 1 for each" in str(refused.value)


@pytest.mark.parametrize("size", ["2147483648", "9" * 30, "9" * 5000])
def test_a_size_that_no_tensor_has_is_refused(folder: Path, size: str) -> None:
    with pytest.raises(SpecError, match=r"dimension 'S' is too large \(allowed: at most 2147483647\)$"):
        parse(f"onnx:b.onnx[S={size}]", folder)
    assert parse("onnx:b.onnx[S=2147483647]", folder)


def test_a_dimension_that_is_given_twice_is_refused(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"model 'onnx:b.onnx\[S=1,S=2\]': dimension 'S' is given twice"):
        parse("onnx:b.onnx[S=1,S=2]", folder)


def test_dims_in_the_marker_are_the_other_way_to_write_it(folder: Path) -> None:
    [(name, point)] = grid(search=(folder,)).points(mark(model="onnx:b.onnx", dims={"T": np.int64(7), "S": 128}))

    assert name == "local-null-onnx:b.onnx[S=128,T=7]"
    assert point.cells[0].workload.model == parse("onnx:b.onnx[S=128,T=7]", folder)
    assert point.cells[0].workload.label == "onnx:b.onnx[S=128,T=7] batch1"


def test_several_dims_are_several_points_for_each_model(folder: Path) -> None:
    (folder / "c.onnx").write_bytes(b"")
    given: dict[str, Any] = {"model": ["onnx:b.onnx", "onnx:c.onnx[T=1]"], "dims": [{"S": 8}, {"S": 16}, {"S": 8}]}

    assert models(folder, **given) == [
        "onnx:b.onnx[S=8]", "onnx:b.onnx[S=16]", "onnx:c.onnx[S=8,T=1]", "onnx:c.onnx[S=16,T=1]"
    ]  # fmt: skip
    [(_, point)] = grid(search=(folder,)).points(mark(models=["onnx:b.onnx"], dims=[{"S": 8}, {"S": 16}]))
    assert point.asked == ("onnx:b.onnx[S=8]", "onnx:b.onnx[S=16]")
    assert [cell.workload.model.text for cell in point.cells] == list(point.asked)


def test_the_same_size_twice_is_no_contradiction_and_another_is(folder: Path) -> None:
    assert models(folder, model="onnx:b.onnx[S=8]", dims={"S": 8, "T": 2}) == ["onnx:b.onnx[S=8,T=2]"]
    with pytest.raises(SpecError, match=r"dims=\{'S': 9\}: model 'onnx:b.onnx\[S=8\]' gives S=8 itself; write one"):
        models(folder, model="onnx:b.onnx[S=8]", dims={"S": 9})


def test_a_model_of_the_command_line_takes_the_dims_of_the_marker(folder: Path) -> None:
    assert models(folder, ("onnx:b.onnx",), dims={"S": 8}) == ["onnx:b.onnx[S=8]"]


@pytest.mark.parametrize(
    ("option", "left"),
    [
        ("onnx:b.onnx[T=1,S=8]", ["onnx:b.onnx[S=8,T=1]"]),
        ("onnx:b.onnx", ["onnx:b.onnx[S=8,T=1]", "onnx:b.onnx[S=16]"]),
        ("onnx:b.onnx[S=9]", []),
        ("onnx:c.onnx", []),
    ],
)
def test_the_command_line_narrows_by_model_and_by_sizes(folder: Path, option: str, left: list[str]) -> None:
    assert models(folder, (option,), model=["onnx:b.onnx[S=8,T=1]", "onnx:b.onnx[S=16]"]) == left


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({}, "dims={}: {} is not allowed (expected a mapping of open dimensions"),
        ([], "dims=[] is empty"),
        ([{}], "{} is not allowed"),
        ("S=128", "'S=128' is not allowed (expected a mapping of open dimensions"),
        (128, "128 is not allowed"),
        ({"S": 0}, "0 is not allowed for S"),
        ({"S": True}, "True is not allowed for S"),
        ({"S": 1.0}, "1.0 is not allowed for S"),
        ({"S": [1, 2]}, "[1, 2] is not allowed for S"),
        ({"S": "8"}, "'8' is not allowed for S"),
        ({1: 8}, "1 is no name of a dimension"),
        ({" ": 8}, "' ' is no name of a dimension"),
        ({"S,T": 8}, "'S,T' cannot be written in a reference"),
        ({"a[0]": 8}, "'a[0]' cannot be written in a reference"),
        (({"S": 1}, 2), "2 is not allowed"),
        (iter([{"S": 1}]), "can be read only once"),
    ],
)
def test_what_can_be_no_dims_is_refused(dims: Any, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        mark(model="onnx:b.onnx", dims=dims)
    assert said in str(refused.value)


@pytest.mark.parametrize("model", ["timm:resnet18", "block:conv", "net.py:make"])
def test_other_models_take_no_dims_which_is_said_at_collection(suite: Suite, model: str) -> None:
    (suite.path / "net.py").write_text("def make(): pass")
    suite.write(
        f"""
        @pytest.mark.ngraph(model="{model}", dims={{"S": 128}})
        def test_speed(ngraph_cell):
            pass
        """.replace("\n        ", "\n")
    )
    result = suite.collect("--ngraph-compiler=null")
    result.stdout.fnmatch_lines([f"*dims={{'S': 128}}: model '{model}': it does not take dims (ONNX files do*"])


def test_ids_rows_and_measure_have_the_sizes(suite: Suite) -> None:
    (suite.path / "b.onnx").write_bytes(b"")
    suite.write(
        """
        @pytest.mark.ngraph(model="onnx:b.onnx", dims=[{"S": 8}, {"S": 16}])
        def test_speed(ngraph_cell):
            assert_speedup(ngraph_cell, at_least=1.5)

        @pytest.mark.ngraph
        def test_longer(ngraph):
            few, many = ngraph.measure(model="onnx:b.onnx", dims=[{"S": 8}, {"S": 16}])
            assert [few.workload.model.text, many.workload.model.text] == ["onnx:b.onnx[S=8]", "onnx:b.onnx[S=16]"]
            assert ngraph.measure(model="onnx:b.onnx", dims={"S": 8}).workload == few.workload
        """.replace("\n        ", "\n")
    )
    result = suite.run("--ngraph-export=t.csv")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines_random(
        [
            "PASSED test_suite.py::test_speed[[]local-null[[]sample_us=20[]]-onnx:b.onnx[[]S=8[]][]]",
            "*onnx:b.onnx[[]S=16[]]*",
        ]
    )
    assert "onnx:b.onnx[S=16]" in (suite.path / "t.csv").read_text()
    # What was measured is found again, by either way to write it.
    suite.write(
        """
        @pytest.mark.ngraph(model="onnx:b.onnx[S=16]")
        def test_speed(ngraph_cell):
            assert_speedup(ngraph_cell, at_least=1.5)
        """.replace("\n        ", "\n")
    )
    suite.run().stdout.fnmatch_lines(["measured 0 launches*"])
