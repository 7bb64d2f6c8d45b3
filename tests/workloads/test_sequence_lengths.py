"""The length of inputs: who takes it, what it changes, and what is refused before any compiler runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads import artifacts, keys
from pytest_ngraph.workloads.kinds import Models, parse_model
from pytest_ngraph.workloads.kinds.axes import axes_taken, axis_values
from pytest_ngraph.workloads.loaded import LoadedWorkload
from tests.conftest import skip_without
from tests.plan.test_grid import grid, mark

NETS = """
import torch
from torch import nn


class Tokens(nn.Module):
    def __init__(self, longest=64):
        super().__init__()
        self.embedding, self.places = nn.Embedding(100, 8), nn.Embedding(longest, 8)

    def forward(self, tokens, mask):
        places = torch.arange(tokens.shape[1])
        return (self.embedding(tokens) + self.places(places)) * mask.unsqueeze(-1)

    def example_inputs(self, batch, sequence=16):
        return {
            "tokens": torch.randint(0, 100, (batch, sequence)),
            "mask": (torch.arange(sequence) < max(1, sequence // 2)).long().expand(batch, -1).contiguous(),
        }


class Child(Tokens):
    pass


class Plain(nn.Module):
    def forward(self, x):
        return x + 1

    def example_inputs(self, batch):
        return torch.randn(batch, 8)


class Deaf(Plain):
    def example_inputs(self, batch, sequence):
        return torch.randn(batch, 8)


class Anything(Plain):
    def example_inputs(self, batch, **more):
        return torch.randn(batch, more["sequence"])


class Buckets(Plain):
    def example_inputs(self, batch, sequence):
        return torch.randn(batch, -(-sequence // 32) * 32)


class Few(Plain):
    def example_inputs(self, batch, sequence):
        return torch.randn(batch, {8: 8, 16: 16}[sequence])


class Positional(Plain):
    def example_inputs(self, batch, sequence, /):
        return torch.randn(batch, sequence)


class Late(Plain):
    pass


def late(batch, sequence):
    return torch.randn(batch, sequence)


Late.example_inputs = staticmethod(late)


def made():
    return Tokens()


def plain():
    return Plain()


class Calibrated(Plain):
    def example_inputs(self, batch, sequence):
        return torch.randn(batch, sequence)

    def calibration_inputs(self, sequence):
        return [torch.full((2, sequence), 0.5)]
"""


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "quiet.py").write_text(NETS.partition("class Late")[0])
    return tmp_path


def ref(name: str, folder: Path) -> ModelRef:
    return parse_model(f"quiet.py:{name}", (folder,))


def build(model: ModelRef, root: Path, length: int | None, batch: int = 2, *, onnx: bool = False) -> LoadedWorkload:
    workload = Workload(model, batch, sequence=length)
    made = artifacts.build(workload, 0, root / "artifacts", onnx)
    assert artifacts.find(workload, 0, root / "artifacts", onnx) == made
    return LoadedWorkload(workload, 0, made)


# Who takes it, as far as the source says


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("quiet.py:Tokens", True),
        ("quiet.py:Child", True),
        ("quiet.py:Plain", False),
        ("quiet.py:Deaf", True),
        ("quiet.py:Anything", True),
        ("nets.py:made", True),  # what a function gives is not known
        ("nets.py:plain", True),
        ("nets.py:Plain", True),  # a file that gives any class its inputs later
        ("block:mha", True),
        ("block:conv", False),
        ("timm:resnet18", False),
        ("onnx:nets.py", True),
    ],
)
def test_who_takes_a_length_is_known_without_an_import(nets: Path, text: str, does: bool) -> None:
    assert ("sequence" in axes_taken(parse_model(text, (nets,)))) is does


def test_a_length_is_refused_at_collection_where_the_source_says_that_it_is_not_taken(nets: Path) -> None:
    for text, takes in (("quiet.py:Plain", "no axis but batch"), ("timm:resnet18", "image_size")):
        with pytest.raises(SpecError) as refused:
            grid(search=(nets,)).points(mark(model=text, sequence=[32, 8]))
        said = f"sequence=32, 8: model {text!r}: it does not take sequence (it takes: {takes})"
        assert str(refused.value).startswith(said)
        assert str(refused.value).endswith("example_inputs(batch, sequence=128)") is (text == "quiet.py:Plain")


def test_cells_without_a_length_have_the_text_and_key_of_before(nets: Path) -> None:
    model = ref("Tokens", nets)
    plain, long = Workload(model), Workload(model, sequence=16)

    assert "sequence" not in plain.to_json()
    assert axis_values(plain) == {}
    assert keys.sample_key(plain, 0, {}) != keys.sample_key(long, 0, {})
    # The paper's length is that of every key of before there was another.
    block = parse_model("block:mha")
    assert keys.sample_key(Workload(block), 0, {}) == keys.sample_key(Workload(block, sequence=10), 0, {})
    assert keys.sample_key(Workload(block), 0, {}) != keys.sample_key(Workload(block, sequence=11), 0, {})


# What is made


def test_inputs_reference_and_file_have_the_length_and_the_network_is_the_same(nets: Path) -> None:
    skip_without("torch", "onnx", "onnxscript", "onnxruntime")
    model = ref("Tokens", nets)
    short, long = (build(model, nets, length, onnx=True) for length in (8, 24))

    for loaded, length in ((short, 8), (long, 24)):
        assert {name: array.shape for name, array in loaded.inputs.items()} == {
            "tokens": (2, length),
            "mask": (2, length),
        }
        given = artifacts.reference(loaded.artifact).timed  # type: ignore[arg-type]
        assert [array.shape for array in given] == [(2, length, 8)]
        import onnxruntime

        session = onnxruntime.InferenceSession(str(loaded.onnx_path), providers=["CPUExecutionProvider"])
        [output] = session.run(None, dict(loaded.inputs))
        np.testing.assert_allclose(output, given[0], atol=1e-6)
    assert short.artifact is not None
    assert long.artifact is not None
    assert short.artifact.meta["weights"] == long.artifact.meta["weights"]
    assert LoadedWorkload(long.spec, 0, long.artifact, beside=[short])._is_of_the_same_module(short)


def test_a_kind_with_a_default_makes_nothing_twice(tmp_path: Path) -> None:
    skip_without("torch")
    model = parse_model("block:mha")
    plain, said, longer = (build(model, tmp_path, length) for length in (None, 10, 12))

    assert plain.artifact == said.artifact
    assert [each.inputs["input"].shape for each in (plain, longer)] == [(2, 10, 128), (2, 12, 128)]


# What ignores it, or cannot have it


@pytest.mark.parametrize(
    ("name", "length", "said"),
    [
        (
            "Deaf",
            16,
            r"gives the same shapes as with sequence=8, 1, 32, 256 \(input \(2, 8\)\): it ignores",
        ),
        # Where a size happens to be the length, too.
        ("Deaf", 8, r"example_inputs\(2, sequence=8\) gives the same shapes .*: it ignores the length"),
        ("Positional", 8, r"it does not take sequence \(8 is given\): its example_inputs has no argument of that name"),
        ("Few", 32, r"example_inputs\(2, sequence=32\) raised KeyError: 32"),
        ("Tokens", 65, r"its forward raised IndexError: .* \(at batch 2, sequence 65\)"),
    ],
)
def test_a_model_that_ignores_a_length_or_cannot_have_it_is_refused(
    nets: Path, name: str, length: int, said: str
) -> None:
    skip_without("torch")
    with pytest.raises(SpecError, match=said):
        build(ref(name, nets), nets, length)


def test_what_a_function_gives_is_refused_when_it_is_built(nets: Path) -> None:
    skip_without("torch")
    with pytest.raises(SpecError, match=r"model 'nets.py:plain': it does not take sequence \(16 is given\)"):
        build(parse_model("nets.py:plain", (nets,)), nets, 16)
    assert build(parse_model("nets.py:made", (nets,)), nets, 24).inputs["tokens"].shape == (2, 24)


@pytest.mark.parametrize(("name", "length", "has"), [("Buckets", 16, 32), ("Few", 8, 8), ("Anything", 5, 5)])
def test_a_model_may_pad_or_know_few_lengths(nets: Path, name: str, length: int, has: int) -> None:
    skip_without("torch")
    assert build(ref(name, nets), nets, length).inputs["input"].shape == (2, has)


def test_what_else_takes_a_length_is_told_it(nets: Path) -> None:
    skip_without("torch")
    from pytest_ngraph.workloads.building import build as build_module

    model = parse_model("nets.py:Calibrated", (nets,))
    [sample] = build_module(Workload(model, sequence=4), 0).calibration_inputs()  # type: ignore[misc]
    assert tuple(sample.shape) == (2, 4)


# Kinds from outside

KIND = """
from pytest_ngraph import Built, Kind
from pytest_ngraph.errors import SpecError


class Long(Kind):
    def axes(self, model):
        return {"width": 8, "sequence": 6}

    def check_values(self, model, values):
        if values.get("sequence", 1) > 512:
            raise SpecError(f"model {model.text!r}: sequence={values['sequence']} (allowed: up to 512)")

    def build(self, model, axes, seed):
        import torch

        assert set(axes) == {"width"}, axes
        shape = (axes["width"],)
        return Built(torch.nn.Linear(8, 8), lambda batch, sequence: torch.randn(batch, sequence, *shape))


KIND = Long()
"""


def test_a_kind_says_by_its_contract_that_it_takes_a_length_and_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("torch")
    (tmp_path / "kind_of_lengths.py").write_text(KIND)
    monkeypatch.syspath_prepend(str(tmp_path))
    models = Models()
    models.add("long", "kind_of_lengths:KIND")
    model = models.parse("long:one")

    assert axis_values(Workload(model)) == {"width": 8, "sequence": 6}
    assert build(model, tmp_path, None).inputs["input"].shape == (2, 6, 8)
    assert build(model, tmp_path, 9).inputs["input"].shape == (2, 9, 8)
    with pytest.raises(SpecError, match=r"sequence=8, 513: model 'long:one': sequence=513 \(allowed: up to 512\)"):
        replace(grid(), models=models).points(mark(model="long:one", sequence=[8, 513]))


# ONNX files


def save(path: Path, *dimensions: Any, more: dict[str, list[Any]] | None = None) -> None:
    from onnx import TensorProto, helper
    from onnx import save as save_model

    inputs = {"ids": ["N", *dimensions], **(more or {})}
    nodes = [helper.make_node("Abs", [name], [f"{name}_y"]) for name in inputs]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None) for name in inputs],
    )
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


@pytest.mark.parametrize("name", ["sequence", "seq", "seq_len", "Sequence_Length", "seqlen", "sequence-length"])
def test_an_open_dimension_of_that_name_takes_the_length(tmp_path: Path, name: str) -> None:
    skip_without("onnx", "onnxruntime")
    save(tmp_path / "net.onnx", name, 4)
    by_axis = build(parse_model("onnx:net.onnx", (tmp_path,)), tmp_path, 7)
    by_name = build(parse_model(f"onnx:net.onnx[{name}=7]", (tmp_path,)), tmp_path, None)

    assert by_axis.inputs["ids"].shape == (2, 7, 4)
    assert by_axis.onnx_path.read_bytes() == by_name.onnx_path.read_bytes()
    # Both may be given where they say the same.
    assert build(parse_model(f"onnx:net.onnx[{name}=7]", (tmp_path,)), tmp_path, 7).inputs["ids"].shape == (2, 7, 4)


def test_two_lengths_are_refused_at_collection(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    with pytest.raises(SpecError, match=r"sequence=7: model .*: sequence=7 and seq_len=8 in its reference are two"):
        grid(search=(tmp_path,)).points(mark(model="onnx:net.onnx[seq_len=8]", sequence=7))
    with pytest.raises(SpecError, match=r"sequence=7 and seq_len=8 in its reference are two lengths"):
        grid(search=(tmp_path,)).points(mark(model="onnx:net.onnx", dims={"seq_len": 8}, sequence=[8, 7]))


@pytest.mark.parametrize(
    ("dimensions", "more", "said"),
    [
        (("S", 4), {}, r"no open dimension called sequence, seq, .* \(inputs: ids \[N, S, 4\]\); one of another name"),
        ((128, 4), {}, r"no open dimension called .* \(inputs: ids \[N, 128, 4\]\).*fixed has the length of the file"),
        (("seq", 4), {"mask": ["N", "seq_len"]}, r"its dimensions seq and seq_len may each be the length; .*dims="),
    ],
)
def test_a_file_without_such_a_dimension_or_with_two_is_refused(
    tmp_path: Path, dimensions: tuple[Any, ...], more: dict[str, list[Any]], said: str
) -> None:
    skip_without("onnx", "onnxruntime")
    save(tmp_path / "net.onnx", *dimensions, more=more)
    with pytest.raises(SpecError, match=said):
        build(parse_model("onnx:net.onnx", (tmp_path,)), tmp_path, 7)
