"""Parameters and multiply-accumulates by pencil and paper; the fifteen networks are in example_suites/paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.workloads import facts
from pytest_ngraph.workloads.kinds import parse_model

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch")


def test_true_counts_of_blocks_are_those_of_pencil_and_paper() -> None:
    conv = facts("block:conv", depth=2, width=8, image_size=10)
    assert conv.macs == 10 * 10 * 9 * (3 * 8 + 2 * 8 * 8)
    mha = facts("block:mha", width=32)
    assert mha.macs == 10 * 4 * 32 * 32 + 2 * 10 * 10 * 32  # four projections, scores and their weighted sum


def test_a_users_model_is_counted_as_it_is_built() -> None:
    found = facts(parse_model("shapes.py:stack", (Path(__file__).parents[1] / "support" / "workload_models",)))
    assert found.parameters == 2 * 72 + 18
    assert found.macs == 2 * 64 + 16
    assert found.macs_paper == found.parameters


def test_an_onnx_file_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(SpecError, match="only PyTorch models are counted"):
        facts(f"onnx:{tmp_path / 'model.onnx'}")


def test_an_axis_that_a_model_lacks_is_refused() -> None:
    with pytest.raises(SpecError, match="it does not take width"):
        facts("timm:resnet18", width=4)
