"""The library's language models token by token: what they give on a cache is what they give for the whole text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.plan.decoding import checked
from pytest_ngraph.spec.cells import CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without

SMALL = "layers=2,hidden=64,heads=2,intermediate=128,vocab=211,positions=64"
GPT2, LLAMA = f"transformers:gpt2[{SMALL}]", f"transformers:llama-68m[{SMALL},kv_heads=1]"


def workload(reference: str) -> Workload:
    return Workload(parse_model(reference, ()), batch=2, sequence=7, decode=4)


def test_what_generates_no_text_and_prompts_of_other_lengths_are_refused() -> None:
    with pytest.raises(SpecError, match=r"decode=4: model 'transformers:bert-base-uncased' generates no tokens"):
        checked(workload("transformers:bert-base-uncased"))
    said = (
        r"^decode=4: model 'transformers:gpt2\[layers=2,mask=lengths\]': texts of lengths of their own "
        r"\(mask=lengths\) are not decoded, .*allowed with decode=: mask=full"
    )
    with pytest.raises(SpecError, match=said):
        checked(workload("transformers:gpt2[mask=lengths,layers=2]"))
    # What generates nothing anyway is not told to leave its mask out.
    with pytest.raises(SpecError, match="generates no tokens"):
        checked(workload("transformers:bert-base-uncased[mask=lengths]"))
    assert checked(workload(GPT2)).decode == 4


def test_a_text_that_outgrows_the_positions_of_a_model_is_refused_before_it_is_built() -> None:
    assert checked(replace(workload(GPT2), sequence=60)).decode == 4
    with pytest.raises(SpecError, match=r"decode=4 after a prompt of 61: .*sequence is 65 \(allowed: at most 64"):
        checked(replace(workload(GPT2), sequence=61))
    # By itself the prompt is as long as the model takes.
    with pytest.raises(SpecError, match=r"decode=4 after a prompt of 64: "):
        checked(replace(workload(LLAMA), sequence=None))


@pytest.mark.real
@pytest.mark.parametrize("reference", [f"{GPT2[:-1]},attention=eager]", LLAMA])
def test_each_token_has_the_logits_of_the_whole_text(reference: str) -> None:
    skip_without("torch", "transformers")
    import torch

    from pytest_ngraph.workloads.building import build

    built = build(workload(reference), 0)
    inputs = built.example_inputs(2)
    with torch.no_grad():
        tokens = built.module(**inputs)
        text = torch.cat([inputs["input_ids"], inputs["next_tokens"]], dim=1)
        whole = built.module.module(text, torch.ones_like(text))[0]
    assert len(tokens) == 5
    for index, logits in enumerate(tokens):
        assert float((whole[:, 6 + index] - logits).abs().max()) < 1e-5
        assert index == 4 or (logits.argmax(dim=1) == inputs["next_tokens"][:, index]).all()


@pytest.mark.real
@pytest.mark.parametrize("reference", [GPT2, LLAMA])
def test_both_runtimes_take_their_prompts_and_steps(reference: str, tmp_path: Path) -> None:
    skip_without("torch", "transformers", "onnx", "onnxscript", "onnxruntime", "openvino")
    from pytest_ngraph.compilers.catalogue import BUILT_IN, load
    from pytest_ngraph.compilers.decoding import Decoding
    from pytest_ngraph.workloads import artifacts
    from pytest_ngraph.workloads.loaded import LoadedWorkload

    artifact = artifacts.build(workload(reference), 0, tmp_path / "artifacts", True)
    loaded = LoadedWorkload(workload(reference), 0, artifact)
    for text in ("onnxruntime", "openvino", "openvino[stateful=on]"):
        spec = CompilerSpec.parse(text)
        adapter = load(spec.name, BUILT_IN[spec.name])
        made = adapter.compile(loaded, Device("local", (0,), 1), adapter.resolve(spec))
        executable = Decoding.of(made, loaded.spec, text)
        executable.bind(loaded.inputs)
        for _ in range(2):  # The second call begins a cache of its own.
            executable.run()
            outputs = executable.outputs() or ()
            for output, expected in zip(outputs, artifacts.reference(artifact).timed, strict=True):
                assert np.abs(output - expected).max() < 1e-5
        executable.close()
