"""An int8 EfficientNet of 0.4 % accuracy, as in the second paper's Table 5, is caught by the check of outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.compilers.toolkit.equality import MIN_COSINE, Agreement, Comparison
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.precisions import parse
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.artifacts import Artifact
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.quantising.calibration import Calibration
from pytest_ngraph.workloads.quantising.quantise import quantise
from tests.conftest import ROOT, skip_without

NETWORKS = (("timm:efficientnet_b0", 64), ("cifar.py:MobileNetV2", None), ("cifar.py:VGG16", None))
IMAGENET = 1000


@pytest.fixture(scope="module", params=NETWORKS, ids=[name for name, _ in NETWORKS])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """An f32 file with its reference, of a network with random weights."""
    skip_without("torch", "timm", "onnx", "onnxscript", "onnxruntime")
    name, size = request.param
    model = parse_model(name, (ROOT / "example_suites" / "dlas",))
    return artifacts.build(Workload(model, 4, image_size=size), 0, tmp_path_factory.mktemp("broken") / "cache", True)


def agreement_of(network: Artifact, folder: Path, times: float) -> Agreement:
    """Quantise on noise of another brightness, and compare what comes of it as it is after the last visit."""
    import onnxruntime

    assert network.onnx is not None
    [given] = network.meta["inputs"]
    random = np.random.default_rng(99)
    data = [{given["name"]: (random.standard_normal(given["shape"]) * times).astype(np.float32)} for _ in range(3)]
    target = folder / "model.onnx"
    calibration = Calibration(lambda: iter(data), len(data), "noise")
    quantise(network.onnx, target, folder / "twin.onnx", calibration, parse("int8"), "broken")
    session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    reference = artifacts.reference(network)
    comparison = Comparison("int8", reference.means)
    for number in range(reference.calls):
        call = reference.call(number)
        outputs: list[Any] = session.run(None, dict(call.inputs))
        comparison.add(outputs, call.outputs, call.rows)
    return comparison.agreement()


@pytest.mark.real
def test_int8_with_scales_of_such_data_is_right(network: Artifact, tmp_path: Path) -> None:
    assert agreement_of(network, tmp_path, 1.0).reason == ""


@pytest.mark.real
@pytest.mark.parametrize(
    "times", [1 / 16, 100.0], ids=["darker, so that all saturates", "brighter, so that little is left"]
)
def test_int8_with_scales_of_other_data_is_a_mismatch(network: Artifact, tmp_path: Path, times: float) -> None:
    agreement = agreement_of(network, tmp_path, times)

    assert agreement.reason != ""
    assert agreement.centred_cosine is not None
    assert agreement.centred_cosine < 0.25
    if network.meta["outputs"][0]["shape"][1] == IMAGENET and times < 1:
        # The EfficientNet that answers the same whatever it is shown: a raw cosine would have let it pass.
        assert agreement.cosine >= MIN_COSINE["int8"]
        assert "centred cosine" in agreement.reason
