"""Calls that are padded to buckets: what is appended, what of the outputs is real, and who cannot be padded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.shapes.mixes import parse
from pytest_ngraph.workloads import artifacts, folders
from pytest_ngraph.workloads.artifacts import Artifact
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.shapes.elsewhere import builds, elsewhere, is_open, lengths, why_not
from pytest_ngraph.workloads.shapes.padding import Padding, disagreement, padding_of
from tests.conftest import skip_without

ROOT = Path(__file__).parents[2]
MIX = "mix[sequence=4x1+9x2,buckets=8+12]"
PADDING = Padding(parse(MIX), {"tokens": (1,), "attention_mask": (1,), "scale": ()}, ((1,), ()))


def workload(name: str = "Masked", shapes: str = MIX) -> Workload:
    model = parse_model(f"tests/support/workload_models/masked.py:{name}", (ROOT,))
    return Workload(model, 2, sequence=9, shapes=shapes)


def artifact(inputs: dict[str, tuple[int, ...]], outputs: dict[str, tuple[int, ...]], **more: object) -> Artifact:
    meta = {
        kind: [{"name": name, "shape": list(shape)} for name, shape in each.items()]
        for kind, each in (("inputs", inputs), ("outputs", outputs))
    }
    return Artifact("key", Path(), None, meta, **more)  # type: ignore[arg-type]


def test_what_is_appended_is_zero_and_masked() -> None:
    inputs = {"tokens": np.full((2, 5), 7), "attention_mask": np.ones((2, 5), np.int64), "scale": np.ones(3)}

    padded = PADDING.pad(inputs, 8)

    assert PADDING.length_of(inputs) == 5
    assert padded["tokens"].tolist() == [[7] * 5 + [0] * 3] * 2
    assert padded["attention_mask"].tolist() == [[1] * 5 + [0] * 3] * 2
    assert padded["scale"].tolist() == [1, 1, 1]
    assert {name: each.dtype for name, each in padded.items()} == {name: each.dtype for name, each in inputs.items()}
    other = replace(PADDING, inputs={"key_padding_mask": (1,)}, ones=frozenset({"key_padding_mask"}))
    assert other.pad({"key_padding_mask": np.zeros((1, 2), bool)}, 4)["key_padding_mask"].tolist() == [[0, 0, 1, 1]]


def test_of_a_padded_call_what_was_asked_for_is_given() -> None:
    vectors, pooled = np.arange(16.0).reshape(1, 8, 2), np.ones((1, 2))

    real = PADDING.real([vectors, pooled], 3)

    assert real[0].shape == (1, 3, 2)
    assert real[1] is not None
    assert real[1].shape == (1, 2)
    # What has another number of outputs is for those to judge who compare it.
    assert len(PADDING.real([vectors], 3)) == 1


def test_axes_are_known_by_two_lengths_of_the_same_model() -> None:
    long = artifact({"tokens": (2, 12), "key_padding_mask": (2, 12)}, {"vectors": (2, 12, 9), "pooled": (2, 9)})
    short = artifact({"tokens": (2, 4), "key_padding_mask": (2, 4)}, {"vectors": (2, 4, 9), "pooled": (2, 9)})
    own = artifact({"tokens": (2, 9), "key_padding_mask": (2, 9)}, {}, lengths={4: short}, builds={12: long})

    found = padding_of(own, workload())

    assert found.inputs == {"tokens": (1,), "key_padding_mask": (1,)}
    assert found.outputs == ((1,), ())
    assert found.ones == {"key_padding_mask"}


def test_an_output_that_follows_the_length_in_another_way_is_refused() -> None:
    long = artifact({"tokens": (2, 12)}, {"pairs": (2, 6, 9)})
    own = artifact({"tokens": (2, 9)}, {"pairs": (2, 5, 9)}, builds={12: long})

    with pytest.raises(Unsupported, match="its output 'pairs' has 5 along axis 1 for 9 tokens and 6 for 12"):
        padding_of(own, workload())


def test_a_model_is_asked_itself_whether_it_can_be_padded() -> None:
    plain = Padding(parse(MIX), {"tokens": (1,)}, ((),))
    calls = {length: ({"tokens": np.ones((1, length))}, [np.ones((1, 1))]) for length in (4, 9)}

    assert disagreement(plain, calls, lambda bucket, fed: [fed["tokens"].max(axis=1, keepdims=True)]) == ""
    said = disagreement(plain, calls, lambda bucket, fed: [fed["tokens"].mean(axis=1, keepdims=True)])
    assert said.startswith("a call of 4 tokens that is padded to 8 gives something else")
    assert said.endswith("none of its inputs is a mask, so it cannot be padded to buckets")


def test_the_size_of_a_padded_mix_is_that_of_its_files_and_shared_weights_once(tmp_path: Path) -> None:
    def build(name: str, graph: bytes) -> Artifact:
        folder = tmp_path / name

        def write(scratch: Path) -> dict[str, str]:
            path = folders.shared_file(scratch / name, ".onnx")
            path.parent.mkdir()
            path.write_bytes(graph)
            (path.parent / "of-both").write_bytes(b"weights" * 100)
            return {}

        folders.publish(folder, write, shares=True)
        return Artifact(name, folder, folders.shared_file(folder, ".onnx"), {"onnx_bytes": 700 + len(graph)})

    short, long = build("onnx-short", b"12"), build("onnx-long", b"123")
    whole = Artifact("whole", tmp_path, None, {"model_bytes": 700}, builds={16: short, 24: long})
    assert artifacts.onnx_bytes(short) == 702
    assert artifacts.onnx_bytes(whole) == 705
    assert artifacts.onnx_bytes(replace(whole, builds={})) is None


def test_a_padded_mix_is_static_builds_and_a_plain_one_is_open() -> None:
    padded, plain = workload(), workload(shapes="mix[sequence=4x1+9x2]")

    assert not is_open(padded)
    assert elsewhere(padded) is None
    assert {length: (each.shapes, each.sequence) for length, each in builds(padded).items()} == {
        8: ("static", 8),
        12: ("static", 12),
    }
    assert is_open(plain)
    assert builds(plain) == {}
    for each in (padded, plain):
        assert {length: other.shapes for length, other in lengths(each).items()} == {4: "static"}
    assert why_not(replace(padded, precision="int8")) is not None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Ignores", "its mask attention_mask does not keep them out, so it cannot be padded"),
        ("Maskless", "none of its inputs is a mask, so it cannot be padded"),
        ("Halved", "along axis 1 for"),
    ],
)
def test_a_model_that_cannot_be_padded_is_refused_before_any_compiler_runs(
    tmp_path: Path, name: str, said: str
) -> None:
    skip_without("torch")

    for _ in range(2):
        with pytest.raises(Unsupported) as raised:
            artifacts.build(workload(name), 0, tmp_path / "artifacts", want_onnx=False)
        assert said in str(raised.value)
        # Nobody takes what is there for a model that may be padded.
        assert artifacts.find(workload(name), 0, tmp_path / "artifacts", want_onnx=False) is None


@pytest.mark.parametrize("name", ["Masked", "Alone"])
def test_a_model_that_can_be_padded_has_an_artifact_for_each_length_and_bucket(tmp_path: Path, name: str) -> None:
    skip_without("torch")
    root = tmp_path / "artifacts"

    made = artifacts.build(workload(name), 0, root, want_onnx=False)

    assert artifacts.find(workload(name), 0, root, want_onnx=False) == made
    assert (set(made.lengths), set(made.builds), made.beside) == ({4}, {8, 12}, None)
    assert padding_of(made, workload(name)).outputs[0] == (1,)
