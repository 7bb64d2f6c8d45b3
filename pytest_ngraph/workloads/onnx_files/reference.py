"""The reference outputs of an ONNX file: ONNX Runtime on the CPU with its graph optimisations off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.machine.facts import available_cpus

if TYPE_CHECKING:
    import numpy as np


class NotRun(Exception):
    """A model without reference outputs. The text is the reason."""


def runner(path: Path) -> Callable[[Mapping[str, np.ndarray[Any, Any]]], dict[str, np.ndarray[Any, Any]]]:
    """Return what gives the outputs by name. It and this raise NotRun where ONNX Runtime cannot run the file."""
    import numpy as np
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = len(available_cpus())
    options.log_severity_level = 4  # a failure is raised as well
    refusals = (
        errors.Fail,
        errors.InvalidArgument,
        errors.InvalidGraph,
        errors.InvalidProtobuf,
        errors.NotImplemented,
        errors.RuntimeException,
    )

    @contextmanager
    def explained() -> Iterator[None]:
        try:
            yield
        except refusals as error:
            version = onnxruntime.__version__
            raise NotRun(
                f"ONNX Runtime {version}, which makes the reference outputs, cannot run it: {error}"
            ) from error

    with explained():
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]

    def run(inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        with explained():
            outputs = session.run(names, dict(inputs))
        for name, array in zip(names, outputs, strict=True):
            if not isinstance(array, np.ndarray) or array.dtype.hasobject:
                raise NotRun(f"its output {name!r} is not a tensor of numbers")
        return dict(zip(names, outputs, strict=True))

    return run
