"""Two networks that change places when they are compiled, and what a release note promised of one of them.

``pytest docs/_pictures/places/test_places.py --ngraph-compiler=onnxruntime,openvino,torchscript --ngraph-budget=6``
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pytest_ngraph import Measurement, assert_order, assert_speedup

MODELS = ["timm:resnet18", "timm:efficientnet_b1"]


@pytest.mark.ngraph(model=MODELS, image_size=64, batch=[1, 8])
def test_compiled_is_faster(ngraph_cell: Measurement) -> None:
    assert_speedup(ngraph_cell, at_least=1.0)


@pytest.mark.ngraph(model="timm:resnet18", image_size=64, batch=8)
def test_release_notes(ngraph_cell: Measurement) -> None:
    """Two of the bounds are so near to what is measured that six launches cannot tell."""
    assert_speedup(ngraph_cell, at_least={"openvino": 1.436, "onnxruntime": 1.437, "torchscript": 1.3})


@pytest.mark.ngraph(models=MODELS, image_size=64, batch=8)
def test_compiling_keeps_the_order(ngraph_models: Mapping[str, Measurement]) -> None:
    assert_order(ngraph_models)
