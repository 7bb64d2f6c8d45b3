"""ONNX Runtime on the CPU: one session with every setting explicit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import THREADS, Compiler, Executable, Option, threads_of
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec import Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

_PROVIDER = "CPUExecutionProvider"
_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "layout": "ORT_ENABLE_LAYOUT",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "disabled": "ORT_DISABLE_ALL",
}
_ERRORS_ONLY = 3


class OnnxRuntimeExecutable(Executable):
    """A session with its inputs and outputs bound: 6.4 us a call of a tiny model where session.run takes 8.5."""

    def __init__(self, session: Any, placement: Mapping[str, str | int]) -> None:
        self._session = session
        self._binding: Any = None
        self._inputs: list[Any] = []
        self.placement = placement

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Bind the arrays themselves, without a copy, and leave each output's buffer to the runtime."""
        from onnxruntime import OrtValue

        self._binding = self._session.io_binding()
        # An exporter drops inputs that the graph does not use.
        used = [each.name for each in self._session.get_inputs()]
        self._inputs = [OrtValue.ortvalue_from_numpy(inputs[name]) for name in used]
        for name, value in zip(used, self._inputs, strict=True):
            self._binding.bind_ortvalue_input(name, value)
        for each in self._session.get_outputs():
            self._binding.bind_output(each.name)

    def run(self) -> None:
        """Run the session once on what is bound."""
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the last call's outputs as arrays of their own."""
        return [array.copy() for array in self._binding.copy_outputs_to_cpu()]

    def close(self) -> None:
        """Let go of the session and what is bound to it."""
        self._session = self._binding = None
        self._inputs = []


class OnnxRuntimeCompiler(Compiler):
    """``onnxruntime[graph=all|layout|extended|basic|disabled]``: the CPU provider, operators one after the other."""

    name = "onnxruntime"
    requires = ("onnxruntime",)
    extra = "onnxruntime"
    reads = "onnx"
    options = (
        THREADS,
        Option("graph", "all", "How far the graph is optimised", choices=tuple(_LEVELS)),
    )

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Open a session on the workload's ONNX file."""
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as errors

        level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[options["graph"]], None)
        if level is None:
            raise Unsupported(f"onnxruntime {onnxruntime.__version__} has no graph={options['graph']}")
        # The session's own severity does not cover what is logged before there is a session.
        onnxruntime.set_default_logger_severity(_ERRORS_ONLY)
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = _ERRORS_ONLY
        settings.graph_optimization_level = level
        settings.intra_op_num_threads = threads_of(device, options)
        settings.inter_op_num_threads = 1
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        try:
            session = onnxruntime.InferenceSession(str(workload.onnx_path), settings, providers=[_PROVIDER])
        except errors.NotImplemented as error:
            raise Unsupported(f"onnxruntime {onnxruntime.__version__}: {_first_line(error)}") from error
        except (errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.InvalidProtobuf) as error:
            raise CompileFailed(f"onnxruntime {onnxruntime.__version__}: {_first_line(error)}") from error
        if session.get_providers()[0] != _PROVIDER:
            raise CompileFailed(f"onnxruntime fell back: asked for {_PROVIDER}, got {session.get_providers()}")
        used = session.get_session_options()
        return OnnxRuntimeExecutable(
            session,
            {
                "provider": session.get_providers()[0],
                # The CPU provider runs the graph in the types it is written in.
                "precision": workload.spec.precision,
                "threads": used.intra_op_num_threads,
                "graph": used.graph_optimization_level.name,
                "execution": used.execution_mode.name,
                "version": onnxruntime.__version__,
            },
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


COMPILER = OnnxRuntimeCompiler()
