"""An adapter of a compiler that the plugin does not know: ONNX's own reference evaluator, in pure NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph import Compiler, Executable
from pytest_ngraph.compilers.base import threads_of

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.spec import Device
    from pytest_ngraph.workloads.loaded import LoadedWorkload


class _Evaluated(Executable):
    def __init__(self, evaluator: Any, threads: int) -> None:
        self._evaluator = evaluator
        # NumPy takes as many as the worker was started for.
        self.placement = {"provider": "onnx.reference", "precision": "f32", "threads": threads}

    def bind(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._inputs = dict(inputs)

    def run(self) -> None:
        self._outputs = self._evaluator.run(None, self._inputs)

    def outputs(self) -> Sequence[np.ndarray[Any, Any]]:
        return list(self._outputs)


class OnnxReference(Compiler):
    """Runs the shared ONNX file node by node."""

    name = "onnxreference"
    requires = ("onnx",)
    install = "onnx"
    reads = "onnx"

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Load the file; heavy imports stay in here, so that collecting tests stays cheap."""
        from onnx.reference import ReferenceEvaluator

        return _Evaluated(ReferenceEvaluator(str(workload.onnx_path)), threads_of(device, options))


COMPILER = OnnxReference()
