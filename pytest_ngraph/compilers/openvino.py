"""OpenVINO on the CPU: one synchronous infer request, f32 forced and read back."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import THREADS, Compiler, Executable, Option, threads_of
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec import Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

_HINTS = {"latency": "LATENCY", "throughput": "THROUGHPUT"}


class OpenVinoExecutable(Executable):
    """One infer request with its inputs set once: 14 us a call of a tiny model, where passing them takes 24 to 42."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._request: Any = compiled.create_infer_request()
        self._inputs: list[Any] = []

    @cached_property
    def placement(self) -> Mapping[str, str | int]:  # type: ignore[override]
        """Read back what really runs; not part of compiling, for walking the runtime's graph takes its time."""
        import openvino

        def read(name: str) -> str:
            value = self._compiled.get_property(name)
            return str(getattr(value, "name", value))

        kinds = Counter(
            node.get_rt_info()["runtimePrecision"].astype(str) for node in self._compiled.get_runtime_model().get_ops()
        )
        return {
            "provider": "+".join(self._compiled.get_property("EXECUTION_DEVICES")),
            "precision": self._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name(),
            "runtime_precision": ",".join(f"{kind}:{count}" for kind, count in sorted(kinds.items())),
            "threads": int(self._compiled.get_property("INFERENCE_NUM_THREADS")),
            "streams": int(self._compiled.get_property("NUM_STREAMS")),
            "hint": read("PERFORMANCE_HINT"),
            "execution_mode": read("EXECUTION_MODE_HINT"),
            "pinning": read("ENABLE_CPU_PINNING"),
            "version": openvino.__version__.partition("-")[0],
        }

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Set the arrays as the request's inputs, without a copy where they are contiguous."""
        import numpy as np
        import openvino

        self._inputs = []
        for port in self._compiled.inputs:
            name = next(name for name in port.get_names() if name in inputs)
            tensor = openvino.Tensor(np.ascontiguousarray(inputs[name]), shared_memory=True)
            self._request.set_tensor(port, tensor)
            self._inputs.append(tensor)

    def run(self) -> None:
        """Infer once, synchronously, on what is bound."""
        self._request.infer(share_inputs=True, share_outputs=True)

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the last call's outputs as arrays of their own."""
        return [self._request.get_tensor(port).data.copy() for port in self._compiled.outputs]

    def close(self) -> None:
        """Let go of the request and the compiled model."""
        self._request = self._compiled = None
        self._inputs = []


class OpenVinoCompiler(Compiler):
    """``openvino[hint=latency|throughput,streams=N]``: the CPU plugin on the shared ONNX file."""

    name = "openvino"
    requires = ("openvino",)
    extra = "openvino"
    reads = "onnx"
    options = (
        THREADS,
        Option("hint", "latency", "What the runtime tunes itself for", choices=tuple(_HINTS)),
        Option("streams", "0", "Parallel streams; 0 leaves it to the hint", kind="int", minimum=0),
    )

    def load(self) -> None:
        """Import the runtime without its telemetry."""
        _import_openvino()

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Read the workload's ONNX file and compile it for the CPU in f32."""
        openvino = _import_openvino()
        settings: dict[str, Any] = {
            # By itself it takes bf16 where the CPU has it: half the time at 1e-2 of error.
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": _HINTS[options["hint"]],
            "INFERENCE_NUM_THREADS": threads_of(device, options),
            # The worker's CPU affinity says where threads run, for this compiler as for every other.
            "ENABLE_CPU_PINNING": False,
        }
        if options["streams"]:
            settings["NUM_STREAMS"] = options["streams"]
        core = openvino.Core()
        try:
            model = core.read_model(workload.onnx_path)
        except RuntimeError as error:
            raise Unsupported(f"openvino {openvino.__version__} cannot read it: {_gist(error)}") from error
        if model.is_dynamic():
            raise Unsupported("openvino: the ONNX file has dynamic shapes, which are another measurement")
        try:
            compiled = core.compile_model(model, "CPU", settings)
        except RuntimeError as error:
            raise CompileFailed(f"openvino {openvino.__version__}: {_gist(error)}") from error
        return OpenVinoExecutable(compiled)


def _import_openvino() -> Any:
    """Import OpenVINO without its telemetry, which writes into the home folder and calls home from a thread."""
    # Where that package cannot be imported OpenVINO takes the stub that it brings for this case.
    absent = sys.modules.setdefault("openvino_telemetry", None) is None  # type: ignore[arg-type]
    import openvino

    if absent:
        del sys.modules["openvino_telemetry"]
    return openvino


def _gist(error: Exception) -> str:
    """Return what happened: the last line that is not about where in the C++ sources it happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    return (telling or lines or [type(error).__name__])[-1]


COMPILER = OpenVinoCompiler()
