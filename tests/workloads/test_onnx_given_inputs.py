"""Inputs that an ONNX file says something of itself: their ranges, or whole samples beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import skip_without

skip_without("onnx", "onnxruntime")

import onnx  # noqa: E402
from onnx import helper  # noqa: E402

from pytest_ngraph.errors import SpecError  # noqa: E402
from pytest_ngraph.workloads.kinds import parse_model  # noqa: E402
from pytest_ngraph.workloads.kinds.onnx import KIND  # noqa: E402
from pytest_ngraph.workloads.onnx_files import soundness  # noqa: E402
from pytest_ngraph.workloads.onnx_files.inputs import (  # noqa: E402
    RANGES,
    SAMPLES,
    drawn,
    example_inputs,
    fitted,
    write_samples,
)
from tests.support import cut_models  # noqa: E402


def saved(folder: Path, **metadata: str) -> Path:
    model = cut_models.model([cut_models.node("Relu", "image", "out")], [cut_models.value("out", 4, 8)], [])
    helper.set_model_props(model, {{"ranges": RANGES, "samples": SAMPLES}[key]: each for key, each in metadata.items()})
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(0).normal(50, 4, 4000).astype(np.float32),
        np.maximum(np.random.default_rng(0).normal(0, 4, 4000), 0).astype(np.float16),
        np.random.default_rng(0).integers(0, 30_000, 4000),
        np.random.default_rng(0).integers(0, 2, 4000),
        np.random.default_rng(0).random(4000) < 0.1,
        np.where(np.random.default_rng(0).random(4000) < 0.2, -np.inf, 0).astype(np.float32),
        np.zeros(40, np.float32),
        np.full(40, 3.5, np.float32),
    ],
    ids=["floats", "rectified", "indices", "masks", "flags", "infinities", "zeros", "equal"],
)
def test_what_is_drawn_from_a_range_is_like_what_it_was_fitted_to(array: np.ndarray[Any, Any]) -> None:
    spread = json.loads(json.dumps(fitted([array[:20], array[20:]])))

    made = drawn(spread, array.shape, np.random.default_rng(1)).astype(array.dtype)

    # But for what is cut off of numbers that are written down.
    assert float(array.min()) - 1e-3 <= float(made.min())
    assert float(made.max()) <= float(array.max()) + 1e-3
    same = np.isfinite(array)
    assert np.isfinite(made).mean() == pytest.approx(same.mean(), abs=0.05)
    assert (made == 0).mean() == pytest.approx((array == 0).mean(), abs=0.05)
    one, other = (each[np.isfinite(each)].astype(float) for each in (array, made))
    assert other.mean() == pytest.approx(one.mean(), abs=0.1 * (one.std() + 1e-9) + 1e-3)


def test_a_file_that_says_its_range_is_given_inputs_in_it(tmp_path: Path) -> None:
    spread = {"zeros": 0.5, "mean": 900.0, "std": 20.0, "low": 800.0, "high": 1000.0}
    path = saved(tmp_path, ranges=json.dumps({"image": spread}))

    made = example_inputs(path, 3, "onnx:m.onnx")["image"]

    assert made.dtype == np.float32
    assert set(np.unique(made[made != 0] // 100)) <= {8.0, 9.0, 10.0}
    assert (made == 0).any()
    assert not np.array_equal(made, example_inputs(path, 4, "onnx:m.onnx")["image"])
    # One that says nothing is given what it was before.
    plain = example_inputs(saved(tmp_path), 3, "onnx:m.onnx")["image"]
    assert np.abs(plain).max() <= 3


def test_samples_beside_a_file_are_its_inputs_the_first_one_where_it_is_timed(tmp_path: Path) -> None:
    samples = [{"image": np.full((4, 8), number, np.float32)} for number in range(4)]
    write_samples(tmp_path / "m.npz", ["image"], samples)
    path = saved(tmp_path, samples="m.npz")

    def given(seed: int, **more: Any) -> float:
        (number,) = np.unique(example_inputs(path, seed, "onnx:m.onnx", folder=tmp_path, **more)["image"])
        return float(number)

    assert given(9, is_timed=True) == 0
    assert {given(seed) for seed in range(1_000_000, 1_000_008)} == {1, 2, 3}
    assert example_inputs(path, 9, "t", {4: 1}, folder=tmp_path)["image"].shape == (1, 8)
    # They count as a part of the model.
    model = parse_model("onnx:m.onnx", (tmp_path,))
    assert [file.name for file in KIND.files(model)] == ["m.onnx", "m.npz"]


@pytest.mark.parametrize(
    "said",
    ["{", "[]", "3", '{"image": 3}', '{"image": {"low": 1}}', '{"image": {"low": 2, "high": 1}}',
     '{"image": {"low": 0.5, "high": 1}}', '{"image": {"values": [], "shares": []}}',
     '{"image": {"values": ["a"], "shares": [1]}}', '{"image": {"low": 0, "high": 1' + "0" * 400 + "}}",
     '{"image": {"values": [1], "shares": [0]}}', '{"image": {"values": [1, 2], "shares": [1, -1]}}',
     '{"image": {"zeros": 0, "mean": NaN, "std": 1, "low": 0, "high": 1}}',
     '{"image": {"zeros": 2, "mean": 0, "std": 1, "low": 0, "high": 1}}',
     '{"image": {"zeros": 0, "mean": 0, "std": -1, "low": 0, "high": 1}}'],
)  # fmt: skip
def test_ranges_that_are_none_are_refused_with_the_model(tmp_path: Path, said: str) -> None:
    with pytest.raises(SpecError, match=r"model 'onnx:m\.onnx': its metadata 'ngraph\.inputs' are no ranges"):
        example_inputs(saved(tmp_path, ranges=said), 3, "onnx:m.onnx")


def test_samples_of_another_shape_or_that_are_none_are_refused_with_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path, samples="m.npz")
    with pytest.raises(SpecError, match=r"samples of its inputs, .*m\.npz, cannot be read"):
        example_inputs(path, 3, "onnx:m.onnx", folder=tmp_path)
    (tmp_path / "m.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(SpecError, match=r"samples of its inputs, .*m\.npz, cannot be read"):
        example_inputs(path, 3, "onnx:m.onnx", folder=tmp_path)
    write_samples(tmp_path / "m.npz", ["image"], [{"image": np.zeros((4, 9), np.float32)}] * 2)
    with pytest.raises(SpecError, match=r"its samples of input 'image' have shape \[4, 9\], not \[4, 8\]"):
        example_inputs(path, 3, "onnx:m.onnx", folder=tmp_path)


@pytest.mark.parametrize("name", ["../m.npz", "/etc/passwd", "a/../../m.npz"])
def test_samples_outside_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match="which is outside its folder"):
        soundness.load(saved(tmp_path, samples=name), "onnx:m.onnx")
