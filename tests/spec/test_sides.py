"""Where the files of a side lie, and that cells of sides keep their names."""

from __future__ import annotations

import pickle

import pytest

from pytest_ngraph.spec.cells import Cell, CompilerSpec, Workload
from pytest_ngraph.spec.sides import Side
from pytest_ngraph.worker.sides import import_path
from pytest_ngraph.workloads.kinds import parse_model

CELL = Cell("local", CompilerSpec("null"), Workload(parse_model("block:conv")))


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/home/ann/project/src", "/kept/tree/src"),
        ("/home/ann/project", "/kept/tree"),
        ("/home/ann/project2/src", "/home/ann/project2/src"),
        ("/home/ann", "/home/ann"),
        ("relative/src", "relative/src"),
        ("", ""),
    ],
)
def test_only_what_lies_in_the_project_moves_to_the_tree(path: str, there: str) -> None:
    assert Side("main@1a2b3c4", root="/home/ann/project", tree="/kept/tree").moved(path) == there
    assert Side("onnxruntime==1.27.0", packages=("/kept/p",)).moved(path) == path


def test_packages_come_first_on_the_import_path() -> None:
    side = Side("both", root="/p", tree="/t", packages=("/kept/a",))
    assert import_path(side, ("/p/src", "/usr/lib")) == ("/kept/a", "/t/src", "/usr/lib")


def test_a_cell_of_a_side_is_another_cell_and_keeps_it_over_processes_and_stores() -> None:
    other = Cell(CELL.device, CELL.compiler, CELL.workload, side="main@1a2b3c4")
    assert other != CELL
    assert hash(other) != hash(CELL)
    assert other.label == f"{CELL.label} (of main@1a2b3c4)"
    assert Cell.from_json(other.to_json()) == other
    assert pickle.loads(pickle.dumps(other)) == other
    # Stores of before there were sides know their cells by this text.
    assert "side" not in CELL.to_json()
