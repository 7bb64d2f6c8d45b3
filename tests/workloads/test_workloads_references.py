"""The set of inputs that outputs are compared on: the same samples for every batch, and what a model must not do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.errors import SpecError, Unsupported
from pytest_ngraph.workloads import folders, references
from pytest_ngraph.workloads.references import SAMPLES, References

Arrays = dict[str, np.ndarray[Any, Any]]
KEY = "0" * 64
WEIGHTS = np.random.default_rng(9).normal(size=(3, 5)).astype("float32")


def draw(seed: int, batch: int) -> Arrays:
    """Draw inputs as a model does whose first dimension is the batch."""
    return {"x": np.random.default_rng(seed).normal(size=(batch, 3)).astype("float32")}


def layer(inputs: Arrays) -> Arrays:
    return {"y": inputs["x"] @ WEIGHTS}


def made(
    root: Path,
    batch: int,
    inputs: Callable[[int, int], Any] = draw,
    run: Callable[[Any], Any] = layer,
    seed: int = 0,
    key: str = KEY,
) -> References:
    """Make a reference and return what is read back of it."""
    folder = references.folder_of(root / "artifacts", key)
    folders.publish(folder, lambda place: references.write(place, inputs, run, batch, seed, "the model"))
    found = references.find(root / "artifacts", key)
    assert found is not None
    return found


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8, 32])
def test_every_batch_is_compared_on_the_same_eight_samples(tmp_path: Path, batch: int) -> None:
    found = made(tmp_path, batch)
    assert found.calls >= 2
    samples = []
    for number in range(found.calls):
        call = found.call(number)
        assert call.inputs["x"].shape == (batch, 3)
        [output] = call.outputs
        np.testing.assert_allclose(output, layer(dict(call.inputs))["y"], rtol=1e-5, atol=1e-6)
        assert call.rows is not None
        samples += [tuple(row) for row in call.inputs["x"][: call.rows]]
    one = made(tmp_path, 1, key="1" * 64)
    assert samples == [tuple(one.call(number).inputs["x"][0]) for number in range(SAMPLES)]
    assert len(set(samples)) == SAMPLES
    # None of them is timed, or what int8 is calibrated on.
    others = {tuple(row) for seed in range(6) for row in draw(seed, batch)["x"]}
    assert not others & set(samples)


def test_batches_share_the_file_of_their_samples(tmp_path: Path) -> None:
    for number, batch in enumerate((1, 2, 32)):
        made(tmp_path, batch, key=str(number) * 64)
    root = references.folder_of(tmp_path / "artifacts", KEY).parent
    assert len(list(root.glob("inputs-*"))) == 1
    assert len(list(root.glob("reference-*"))) == 3


def test_the_reference_does_not_lie_where_workers_are_sent(tmp_path: Path) -> None:
    made(tmp_path, 2)
    assert not references.folder_of(tmp_path / "artifacts", KEY).is_relative_to(tmp_path / "artifacts")


def test_the_outputs_of_other_samples_are_no_samples_own(tmp_path: Path) -> None:
    for batch in (1, 2, 3, 4, 8, 32):
        found = made(tmp_path, batch, key=f"{batch:064d}"[::-1])
        for number in range(found.calls):
            [right], [foreign] = found.call(number).outputs, found.foreign(number)
            assert right.shape == foreign.shape
            assert (np.abs(right - foreign).max(axis=1) > 1e-3).all()


def test_the_mean_is_that_of_all_samples(tmp_path: Path) -> None:
    found = made(tmp_path, 3)
    every = np.concatenate([draw(1_000_000 + number, 1)["x"] for number in range(SAMPLES)]) @ WEIGHTS
    [mean] = found.means
    assert mean is not None
    np.testing.assert_allclose(mean, every.mean(axis=0, keepdims=True), rtol=1e-5, atol=1e-6)


def spectrum(inputs: Arrays, imaginary: float = 1.0) -> Arrays:
    y = inputs["x"] @ WEIGHTS
    return {"y": (y + 1j * imaginary * y[:, ::-1]).astype("complex64")}


@pytest.mark.filterwarnings("error")
def test_the_mean_of_complex_numbers_is_complex(tmp_path: Path) -> None:
    found = made(tmp_path, 3, run=spectrum)
    every = spectrum({"x": np.concatenate([draw(1_000_000 + number, 1)["x"] for number in range(SAMPLES)])})["y"]
    [mean] = found.means
    assert mean is not None
    np.testing.assert_allclose(mean, every.mean(axis=0, keepdims=True), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_a_model_whose_imaginary_parts_are_random_is_refused(tmp_path: Path) -> None:
    scales = iter(range(1, 100))
    with pytest.raises(SpecError, match="the model itself gives other outputs when it is called again"):
        made(tmp_path, 4, run=lambda inputs: spectrum(inputs, next(scales)))


# Inputs and outputs that are not batch first


def test_inputs_without_a_leading_batch_are_drawn_for_whole_calls(tmp_path: Path) -> None:
    def times_first(seed: int, batch: int) -> Arrays:
        return {"x": np.random.default_rng(seed).normal(size=(4, batch, 3)).astype("float32")}

    for batch, calls in ((1, 8), (4, 2), (32, 2)):
        found = made(tmp_path, batch, times_first, key=f"{batch:064d}"[::-1])
        assert found.calls == calls
        one, two = found.call(0), found.call(1)
        assert one.rows is None
        assert one.inputs["x"].shape == (4, batch, 3)
        assert not (one.inputs["x"] == two.inputs["x"]).any()
        assert (found.foreign(0)[0] == two.outputs[0]).all()
        assert (found.foreign(calls - 1)[0] == one.outputs[0]).all()


def test_a_model_that_knows_one_batch_only_is_drawn_for_whole_calls(tmp_path: Path) -> None:
    def fixed(seed: int, batch: int) -> Arrays:
        if batch != 4:
            raise SpecError("batch 4 only")
        return draw(seed, batch)

    found = made(tmp_path, 4, fixed)
    assert found.calls == 2
    # A whole call is what is compared; nothing is known of its rows.
    assert found.call(0).rows is None


def test_samples_that_a_model_mixes_are_kept_as_they_come(tmp_path: Path) -> None:
    def mixes(inputs: Arrays) -> Arrays:
        return {"y": np.cumsum(inputs["x"] @ WEIGHTS, axis=0)}

    found = made(tmp_path, 8, run=mixes)
    call = found.call(1)
    assert call.rows is None
    np.testing.assert_allclose(call.outputs[0], mixes(dict(call.inputs))["y"])


def test_outputs_of_other_shapes_each_time_have_no_mean(tmp_path: Path) -> None:
    def positive(inputs: Arrays) -> Arrays:
        return {"y": np.flatnonzero(inputs["x"] > 0)}

    found = made(tmp_path, 2, run=positive)
    assert found.call(0).rows is None
    assert found.means == [None]


def test_inputs_that_change_their_shape_are_refused(tmp_path: Path) -> None:
    def ragged(seed: int, batch: int) -> Arrays:
        return {"x": np.zeros((seed % 7 + 1, batch, 3), "float32")}

    with pytest.raises(SpecError, match=r"the model: its example_inputs\(2\) gives other names or shapes each time"):
        made(tmp_path, 2, ragged)


def test_large_sets_have_fewer_samples_and_two_at_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "_MOST_BYTES", 100)
    found = made(tmp_path, 2)
    assert (found.calls, len(found.samples)) == (3, 3)
    monkeypatch.setattr(references, "_MOST_BYTES", 1)
    found = made(tmp_path, 8, key="2" * 64)
    assert (found.calls, len(found.samples)) == (2, 2)


# What a model must not do


def test_nan_is_the_models_own_and_said_to_be(tmp_path: Path) -> None:
    def broken(inputs: Arrays) -> Arrays:
        return {"ok": inputs["x"], "score": np.log(inputs["x"])}

    with np.errstate(invalid="ignore"), pytest.raises(SpecError, match=r"the model itself gives NaN, in .* 'score'"):
        made(tmp_path, 2, run=broken)


def test_nan_that_only_the_set_meets_is_found_too(tmp_path: Path) -> None:
    calls: list[int] = []

    def later(inputs: Arrays) -> Arrays:
        calls.append(1)
        return {"y": inputs["x"] * (np.nan if len(calls) > 2 else 1)}

    with pytest.raises(SpecError, match="NaN"):
        made(tmp_path, 2, run=later)


def test_a_model_that_differs_from_itself_is_refused_by_name(tmp_path: Path) -> None:
    random = np.random.default_rng(0)

    def noisy(inputs: Arrays) -> Arrays:
        return {"y": inputs["x"] * random.integers(0, 2, inputs["x"].shape)}

    with pytest.raises(SpecError, match="the model itself gives other outputs when it is called again") as error:
        made(tmp_path, 4, run=noisy)
    assert "'y' is off by" in str(error.value)
    assert "functional.dropout takes training=True" in str(error.value)
    assert references.find(tmp_path / "artifacts", KEY) is None


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_decisions_that_change_are_refused_as_well(tmp_path: Path, dtype: str) -> None:
    random = np.random.default_rng(0)
    with pytest.raises(SpecError, match="gives other outputs"):
        made(tmp_path, 4, run=lambda inputs: {"y": random.integers(0, 2, (4, 9)).astype(dtype)})


def test_a_shape_that_changes_is_told(tmp_path: Path) -> None:
    sizes = iter(range(1, 9))
    with pytest.raises(SpecError, match=r"'y' has shape \(1,\), then \(2,\)"):
        made(tmp_path, 1, run=lambda inputs: {"y": np.ones(next(sizes), "float32")})


def test_rounding_is_no_change(tmp_path: Path) -> None:
    signs = iter([1, -1] * 20)

    def rounds(inputs: Arrays) -> Arrays:
        return {"y": inputs["x"] @ WEIGHTS + np.float32(1e-7) * next(signs)}

    assert made(tmp_path, 4, run=rounds).has_rows


def test_infinity_is_no_failure_of_the_model(tmp_path: Path) -> None:
    def masked(inputs: Arrays) -> Arrays:
        y = inputs["x"] @ WEIGHTS
        y[:, 2] = -np.inf
        return {"y": y}

    found = made(tmp_path, 4, run=masked)
    assert found.has_rows
    [mean] = found.means
    assert mean is not None
    assert np.isfinite(mean).all()


def test_a_model_that_cannot_run_says_so(tmp_path: Path) -> None:
    def fails(inputs: Arrays) -> Arrays:
        raise Unsupported("no kernel")

    with pytest.raises(Unsupported, match="no kernel"):
        made(tmp_path, 2, run=fails)
