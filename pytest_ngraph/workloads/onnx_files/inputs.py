"""Make inputs for an ONNX model from its signature, with integers that are valid indices.

A file may say itself what its inputs are like, in its metadata: ``ngraph.inputs`` has the range of each as JSON (see
``fitted``), ``ngraph.samples`` names a file beside it with whole samples (see ``write_samples``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.workloads.onnx_files.tensors import graph_inputs

if TYPE_CHECKING:
    import numpy as np
    import onnx

_PASSES_ON = frozenset(
    {"Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
_KEEPS_SHAPE = frozenset({"Cast", "DequantizeLinear", "Identity"})
RANGES, SAMPLES = "ngraph.inputs", "ngraph.samples"
_FEW = 8  # values that are listed one by one
_SPREAD = 3.0  # floats are standard normal within this many deviations


def example_inputs(
    path: Path,
    seed: int,
    text: str,
    batches: Mapping[int, int] | None = None,
    *,
    folder: Path | None = None,
    is_timed: bool = False,
) -> dict[str, np.ndarray[Any, Any]]:
    """Return inputs by name for a model with static shapes. ``batches`` maps first dimensions to those wanted instead.

    What the file says of its inputs comes first: its samples, which lie in ``folder`` and of which the first is for
    what ``is_timed``, then its ranges. Of others floats are standard normal, cut at three deviations. Integers that
    reach a Gather as its indices are below the gathered dimension, other integers are 0 or 1, the range that masks and
    token types have. Raises SpecError for an input that is no number, and for a file that says what cannot be, naming
    the model (``text``).
    """
    import numpy as np
    import onnx

    model = onnx.load(path, load_external_data=False)
    limits, ranges = _index_limits(model), _ranges(model, text)
    recorded = _sample(model, folder, seed, text, is_timed=is_timed)
    random = np.random.default_rng([seed, 1])  # not the numbers that the weights were made of
    made: dict[str, np.ndarray[Any, Any]] = {}
    for value in graph_inputs(model):
        tensor = value.type.tensor_type
        first, *rest = [dim.dim_value for dim in tensor.shape.dim] or [0]
        shape = ((batches or {}).get(first, first), *rest) if tensor.shape.dim else ()
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if value.name in recorded:
            if recorded[value.name].shape[1:] != shape[1:]:
                has = list(recorded[value.name].shape)
                raise SpecError(f"model {text!r}: its samples of input {value.name!r} have shape {has}, not {[*shape]}")
            made[value.name] = _rows(recorded[value.name], shape).astype(kind)
        elif value.name in ranges:
            made[value.name] = drawn(ranges[value.name], shape, random).astype(kind)
        elif kind.kind == "f":
            made[value.name] = random.standard_normal(shape).clip(-_SPREAD, _SPREAD).astype(kind)
        elif kind.kind in "iu":
            made[value.name] = random.integers(0, limits.get(value.name, 2), shape).astype(kind)
        elif kind.kind == "b":
            made[value.name] = random.integers(0, 2, shape).astype(kind)
        else:
            name = onnx.TensorProto.DataType.Name(tensor.elem_type)
            raise SpecError(
                f"model {text!r}: input {value.name!r} is of type {name}, for which no values are made; measure the "
                "part of the graph that takes numbers (onnx.utils.extract_model)"
            )
    return {name: np.asarray(array) for name, array in made.items()}


def fitted(samples: Sequence[np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Return the range of arrays as JSON: what ``drawn`` needs to draw others like them.

    That is how often each of a few values comes, for numbers that are no floats; the least and the largest where they
    are many; and of floats the share that is zero, and of the others mean, standard deviation, least and largest.
    """
    import numpy as np

    flat = np.concatenate([np.ravel(each) for each in samples])
    is_float = flat.dtype.kind not in "iub"
    found, counts = np.unique(flat, return_counts=True)
    if len(found) <= _FEW and (not is_float or not np.isfinite(found).all()):
        kind = float if is_float else int
        return {"values": [kind(each) for each in found], "shares": [_short(each / flat.size) for each in counts]}
    if not is_float:
        return {"low": int(flat.min()), "high": int(flat.max())}
    numbers = flat[np.isfinite(flat)].astype(np.float64)
    others = numbers[numbers != 0]
    if not others.size:
        return {"values": [0.0], "shares": [1.0]}
    facts = {"mean": others.mean(), "std": others.std(), "low": others.min(), "high": others.max()}
    return {"zeros": _short(1 - others.size / flat.size), **{name: _short(each) for name, each in facts.items()}}


def drawn(spread: Mapping[str, Any], shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return random numbers in a range that ``fitted`` gave."""
    import numpy as np

    if "values" in spread:
        shares = np.asarray(spread["shares"], dtype=np.float64)
        return random.choice(np.asarray(spread["values"]), size=shape, p=shares / shares.sum())
    if "mean" not in spread:
        return random.integers(spread["low"], spread["high"], shape, endpoint=True)
    numbers = random.normal(spread["mean"], spread["std"], shape).clip(spread["low"], spread["high"])
    return np.where(random.random(shape) < spread["zeros"], 0.0, numbers)


def write_samples(path: Path, names: Sequence[str], samples: Sequence[Mapping[str, np.ndarray[Any, Any]]]) -> None:
    """Write whole samples of inputs, two or more, which a file may name in its metadata."""
    import numpy as np

    arrays = {
        f"{number}-{index}": each[name] for number, each in enumerate(samples) for index, name in enumerate(names)
    }
    np.savez(path, names=np.asarray(names, dtype=np.str_), **arrays)  # type: ignore[arg-type]


def _short(number: Any) -> float:
    return float(f"{float(number):.6g}")


def _ranges(model: onnx.ModelProto, text: str) -> dict[str, Mapping[str, Any]]:
    """Return the ranges that a file gives of its inputs. Raise SpecError for what can be none."""
    said = next((each.value for each in model.metadata_props if each.key == RANGES), "{}")
    try:
        ranges = json.loads(said)
        if not isinstance(ranges, dict) or not all(map(_is_range, ranges.values())):
            raise ValueError("each is {values, shares}, {low, high} or {zeros, mean, std, low, high}")
    # A whole number may be larger than any float.
    except (ValueError, RecursionError, OverflowError) as error:
        raise SpecError(f"model {text!r}: its metadata {RANGES!r} are no ranges of inputs: {error}") from None
    return ranges


def _is_range(spread: object) -> bool:
    if not isinstance(spread, dict):
        return False
    if set(spread) == {"values", "shares"}:
        values, shares = spread["values"], spread["shares"]
        are_lists = isinstance(values, list) and isinstance(shares, list) and 0 < len(values) == len(shares)
        # A mask may have infinities among its values.
        are_numbers = are_lists and all(type(each) in (int, float) for each in values)
        return are_numbers and all(map(_is_number, shares)) and min(shares) >= 0 and sum(shares) > 0
    if set(spread) not in ({"low", "high"}, {"zeros", "mean", "std", "low", "high"}):
        return False
    if not all(map(_is_number, spread.values())) or spread["low"] > spread["high"]:
        return False
    whole = all(isinstance(each, int) for each in spread.values())
    return bool(spread["std"] >= 0 and 0 <= spread["zeros"] <= 1) if "std" in spread else whole


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _sample(
    model: onnx.ModelProto, folder: Path | None, seed: int, text: str, *, is_timed: bool
) -> dict[str, np.ndarray[Any, Any]]:
    """Return one of the samples of a file by its inputs' names, none where it has none."""
    import zipfile

    import numpy as np

    name = next((each.value for each in model.metadata_props if each.key == SAMPLES), "")
    if not name or folder is None:
        return {}
    path = folder / name
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            names = [str(each) for each in held["names"]]
            others = (len(held.files) - 1) // max(1, len(names)) - 1
            number = 0 if is_timed or others < 1 else 1 + seed % others
            return {name: held[f"{number}-{index}"] for index, name in enumerate(names)}
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise SpecError(f"model {text!r}: the samples of its inputs, {path}, cannot be read: {error}") from None


def _rows(array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an array with another number of rows: its first ones, from the beginning again where they are too few."""
    import numpy as np

    return array if array.shape == shape or not shape else np.resize(array, shape)


def _index_limits(model: onnx.ModelProto) -> dict[str, int]:
    """Map each input that reaches a Gather as its indices to the least of the gathered dimensions."""
    shapes = _constant_shapes(model)
    limits: dict[str, int] = {}
    for value in graph_inputs(model):
        reached, sizes = {value.name}, []
        for node in model.graph.node:  # nodes are in topological order
            if node.op_type == "Gather" and node.input[1] in reached and node.input[0] in shapes:
                sizes.append(_gathered(node, shapes))
            elif node.op_type in _PASSES_ON and reached.intersection(node.input):
                reached.update(node.output)
        if sizes:
            limits[value.name] = min(sizes)
    return limits


def _constant_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Map the tensors that the file holds to their shapes, those that are cast or dequantised first, too."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            held = next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
            shapes |= {name: tuple(held.dims) for name in node.output} if held is not None else {}
        elif node.op_type in _KEEPS_SHAPE and node.input and node.input[0] in shapes:
            shapes |= dict.fromkeys(node.output, shapes[node.input[0]])
    return shapes


def _gathered(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    return shapes[node.input[0]][axis]
