"""What the whole model gives its values: all of them, for every sample that outputs are compared on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.reducing.graph import Graph, NoPart
from pytest_ngraph.workloads.onnx_files.tensors import graph_inputs, is_large

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

# The sample that is timed, and others to compare on, of which there must be two.
_LEAST_SAMPLES = 3
_MOST_BYTES = 512 << 20


class Recorded:
    """All values of a model for some samples, in files of a folder. What is constant of them is the same in each.

    Values that are no tensors of numbers, such as sequences and texts, are not among them.
    """

    def __init__(self, graph: Graph, samples: Sequence[Arrays], folder: Path) -> None:
        """Run the model on each sample, or on fewer where its values are large. Raise SpecError where it cannot run."""
        import numpy as np
        from onnx import numpy_helper

        self._weights = {name: numpy_helper.to_array(tensor) for name, tensor in graph.stored.items()}
        run = _runner(graph, folder)
        kept = self._held = list[Any]()
        limit = len(samples)
        for number, sample in enumerate(samples):
            if number >= max(limit, _LEAST_SAMPLES):
                break
            found = {name: array for name, array in run(sample).items() if _is_numbers(array)}
            bytes_each = sum(array.nbytes for array in found.values())
            limit = min(limit, 1 + _MOST_BYTES // max(1, bytes_each))
            path, names = folder / f"values-{number}.npz", list(found)
            arrays: dict[str, Any] = {str(index): found[name] for index, name in enumerate(names)}
            np.savez(path, **arrays)
            kept.append((np.load(path), {name: str(index) for index, name in enumerate(names)}))

    @property
    def count(self) -> int:
        """Return the number of samples."""
        return len(self._held)

    def array(self, name: str, sample: int = 0) -> np.ndarray[Any, Any]:
        """Return a value in a sample. Raise NoPart where it is no tensor of numbers."""
        if name in self._weights:
            weight: np.ndarray[Any, Any] = self._weights[name]
            return weight
        held, places = self._held[sample]
        if name not in places:
            raise NoPart(f"{name} is no tensor of numbers")
        array: np.ndarray[Any, Any] = held[places[name]]
        return array

    def is_fixed(self, name: str) -> bool:
        """Return whether a value has one shape in all samples."""
        return name in self._weights or len({self.array(name, each).shape for each in range(self.count)}) == 1

    def samples(self, names: Sequence[str]) -> list[Arrays]:
        """Return some values in every sample."""
        return [{name: self.array(name, sample) for name in names} for sample in range(self.count)]


def _is_numbers(array: object) -> bool:
    import numpy as np

    return isinstance(array, np.ndarray) and array.dtype.kind in "fiub"


def _runner(graph: Graph, folder: Path) -> Any:
    """Return what gives all values of a model by name: ONNX Runtime without its optimisations."""
    import onnx
    import onnxruntime

    whole = onnx.ModelProto()
    whole.CopyFrom(graph.model)
    known = {value.name for value in whole.graph.output}
    names = [name for name in graph.makers if name not in known]
    whole.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    path = folder / "values.onnx"
    onnx.save(whole, path, save_as_external_data=is_large(whole), location="values.onnx.data")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common class
        raise SpecError(f"ONNX Runtime cannot give the values inside of the model: {error}") from error
    kinds = {value.name: value.type.tensor_type.elem_type for value in graph_inputs(whole)}
    outputs = [each.name for each in session.get_outputs()]

    def run(sample: Arrays) -> dict[str, Any]:
        # A model in another precision is given the same numbers in it.
        fed = {
            name: array.astype(onnx.helper.tensor_dtype_to_np_dtype(kinds[name]))
            for name, array in zip(kinds, sample.values(), strict=True)
        }
        try:
            return {**fed, **dict(zip(outputs, session.run(outputs, fed), strict=True))}
        except Exception as error:
            raise SpecError(f"ONNX Runtime cannot give the values inside of the model: {error}") from error

    return run
