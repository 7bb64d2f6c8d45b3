"""Transformers through each adapter: whole numbers and masks in, outputs held to those of the network itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.conformance.cases import Case
from pytest_ngraph.conformance.laboratory import Laboratory
from pytest_ngraph.spec.cells import CompilerSpec
from tests.conftest import skip_without
from tests.support import workers

pytestmark = pytest.mark.real

_TINY = "heads=2,hidden=32,layers=2,positions=24,vocab=60"
MODELS = {
    "bert": f"bert-base-uncased[{_TINY},mask=lengths]",
    "distilbert": f"distilbert-base-uncased[{_TINY}]",
    "roberta": f"roberta-base[{_TINY},mask=lengths]",
    "gpt2": f"gpt2[{_TINY},mask=lengths]",
    "llama": "llama-68m[heads=4,hidden=32,kv_heads=2,layers=2,positions=24,vocab=60]",
    "vit": "deit-tiny-patch16-224[heads=2,hidden=32,layers=2,labels=10]",
    "whisper": "whisper-tiny[heads=2,hidden=32,layers=2,positions=20]",
}
# Each adapter meets two kinds of masks or inputs, and each network an adapter that reads ONNX and one that does not.
RUNS = [
    ("identity", "gpt2"),
    ("torchscript", "bert"),
    ("torchscript", "llama"),
    ("inductor", "roberta"),
    ("onnxruntime", "bert"),
    ("onnxruntime", "llama"),
    ("onnxruntime", "whisper"),
    ("openvino", "gpt2"),
    ("openvino", "vit"),
    ("openvino", "distilbert"),
    ("tvm", "roberta"),
]
NEEDS = {"onnxruntime": ("onnxscript", "onnxruntime"), "openvino": ("onnxscript", "openvino"), "tvm": ("tvm",)}


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with workers.forking_conformance():
        yield Laboratory(Catalogue(), tmp_path_factory.mktemp("transformers"))


@pytest.mark.parametrize(("compiler", "name"), RUNS)
def test_an_adapter_gives_what_the_network_gives(laboratory: Laboratory, compiler: str, name: str) -> None:
    needs = ("torch", "transformers", *NEEDS.get(compiler, ()))
    skip_without(*needs)
    size = 32 if name == "vit" else None
    case = Case(name, f"transformers:{MODELS[name]}", batches=(2,), image_size=size, needs=needs)
    answer = workers.examined(laboratory, CompilerSpec.parse(compiler), case)
    assert not any(answer["found"].values()), answer["found"]
    # The exporter says things of its own there, and workers answer by it.
    assert answer["stdout"] == ""
