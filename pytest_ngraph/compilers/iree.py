"""IREE on the CPU: the shared ONNX file as native code of LLVM's (llvm-cpu), run by its virtual machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import THREADS, Compiler, Executable, Option, threads_of
from pytest_ngraph.compilers.toolkit.kept import built
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.spec.cells import Device
from pytest_ngraph.texts.shown import one_line
from pytest_ngraph.workloads.onnx_files.tensors import is_large

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

_MODULE, _IMPORTED = "model.vmfb", "model.mlirbc"
_TARGET = "llvm-cpu"
# Older operators are brought to this version: of them IREE's importer lowers some only, as its own tool warns.
_OPSET = 17
_LEVELS = ("O0", "O1", "O2", "O3")
# What would change types is named, whatever the level does by itself. Doubles become f32, as IREE has it by default:
# its importer writes the attributes of operators as such.
_SETTINGS = (
    "--iree-llvmcpu-target-cpu=host",
    "--iree-input-demote-f32-to-f16=false",
    "--iree-input-demote-i64-to-i32=false",
)
# Threads of its task system, by the names that it gives them.
_WORKER = "iree-worker-"
_TASKS = Path("/proc/self/task")
# What its importer has no lowering for, and what its code generator says that it cannot distribute.
_CANNOT = re.compile(r"failed to legalize|unsupported|restricted to workgroup distributed contexts")
_ERROR = re.compile(r"error: (.*)")
_OPERATOR = re.compile(r'torch\.operator"?[^"]*"(onnx\.\w+)"')
_SHOWN = 160


class IreeExecutable(Executable):
    """A function of a loaded module with its inputs in buffers of the device: it returns when the outputs are there."""

    def __init__(self, loaded: _Loaded, inputs: Sequence[str], placement: Mapping[str, str | int]) -> None:
        self._loaded: _Loaded | None = loaded
        self._names = inputs
        self._arguments: Any = None
        self._results: Any = None
        self._arrays: list[Any] = []
        self.placement = placement

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Copy the inputs to the device, in the order of the function."""
        import iree.runtime

        assert self._loaded is not None
        self._arrays = [iree.runtime.asdevicearray(self._loaded.device, inputs[name]) for name in self._names]
        self._arguments = iree.runtime.VmVariantList(len(self._arrays))
        for array in self._arrays:
            self._arguments.push_ref(array._buffer_view)

    def run(self) -> None:
        """Invoke the function once and wait, as it does, until all of it is done."""
        self._results = self._loaded.invoke(self._arguments)  # type: ignore[union-attr]

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the last call's outputs as arrays of their own."""
        import iree.runtime

        assert self._loaded is not None
        views = [self._results.get_as_object(at, iree.runtime.HalBufferView) for at in range(len(self._results))]
        return [iree.runtime.DeviceArray(self._loaded.device, view).to_host().copy() for view in views]

    def close(self) -> None:
        """Release the module, its inputs and its outputs."""
        self._loaded = self._arguments = self._results = None
        self._arrays = []


class _Loaded:
    """A module on a device, and the function in it that is the network."""

    def __init__(self, device: Any, path: Path) -> None:
        import iree.runtime

        self.device = device
        instance = iree.runtime.VmInstance()
        # Copied, because the file may be of a folder that goes.
        module = iree.runtime.VmModule.copy_buffer(instance, path.read_bytes())
        self._context = iree.runtime.VmContext(instance, [iree.runtime.create_hal_module(instance, device), module])
        # Beside each function there is one of the same name that only enqueues, and one that initialises.
        [name] = [each for each in module.function_names if "$" not in each and not each.startswith("__")]
        self._function = module.lookup_function(name)
        self._list = iree.runtime.VmVariantList

    def invoke(self, arguments: Any) -> Any:
        results = self._list(1)
        self._context.invoke(self._function, arguments, results)
        return results


class IreeCompiler(Compiler):
    """``iree[level=O0|O1|O2|O3]``: imported from the shared ONNX file, compiled for this CPU.

    One thread is the calling one (``local-sync``), more are those of IREE's task system (``local-task``).
    """

    name = "iree"
    requires = ("iree",)
    variables = ("IREE_",)
    extra = "iree"
    reads = "onnx"
    verified: Mapping[str, str] = {"cpu": "x86-64 Linux, IREE 3.13.0"}
    options = (THREADS, Option("level", "O3", "How far IREE optimises (--iree-opt-level)", choices=_LEVELS))
    rough_seconds = (2.0, 0.1)

    def missing(self) -> str | None:
        """Return the same for both of its packages, which have the folder ``iree`` in common."""
        if said := super().missing():
            return said
        absent = [name for name in ("iree.compiler", "iree.runtime") if find_spec(name) is None]
        return f'{" and ".join(absent)} not installed (pip install "pytest-ngraph[{self.extra}]")' if absent else None

    def load(self) -> None:
        """Import the runtime, the compiler and its importer."""
        import onnx.shape_inference
        import onnx.version_converter  # noqa: F401

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Compile the workload's ONNX file, or take what an earlier launch compiled, and load it."""
        threads = threads_of(device, options)
        facts = {"version": version_of("iree-base-compiler"), "level": options["level"], "settings": list(_SETTINGS)}
        with built(workload.kept, self.name, facts, partial(_build, workload, options["level"])) as found:
            folder, meta, was_built = found
            loaded = _Loaded(_device(threads), folder / _MODULE)
            size = (folder / _MODULE).stat().st_size
        driver = _driver(threads)
        placement = {
            "provider": f"{_TARGET} on {driver}",
            # The file's own types: what would change them is switched off.
            "precision": workload.graph_precision,
            "threads": _threads(driver),
            "level": options["level"],
            "target_cpu": "host",
            "program": "loaded" if was_built else "built",
            "version": version_of("iree-base-runtime") or "unknown",
        }
        if placement["threads"] != threads:
            raise CompileFailed(f"{_named()}: asked for {threads} threads, its pool has {placement['threads']}")
        executable = IreeExecutable(loaded, meta["inputs"], placement)
        executable.loaded, executable.model_bytes = was_built, size
        return executable


def _build(workload: LoadedWorkload, level: str, folder: Path) -> Mapping[str, Any]:
    """Write the compiled module into a folder. Return the names of its inputs, in order."""
    from iree.compiler.tools import CompilerToolError, compile_file

    model = _read(workload.onnx_path)
    imported = folder / _IMPORTED
    _import(model, imported)
    try:
        code = compile_file(
            str(imported),
            target_backends=[_TARGET],
            input_type="onnx",
            extra_args=[*_SETTINGS, f"--iree-opt-level={level}"],
        )
    except CompilerToolError as error:
        raise _failure(str(error)) from None
    (folder / _MODULE).write_bytes(code)
    imported.unlink()
    weights = {each.name for each in model.graph.initializer}
    return {"inputs": [each.name for each in model.graph.input if each.name not in weights]}


def _read(path: Path) -> Any:
    """Return a model with all of its shapes, in operators of a version that IREE lowers."""
    import onnx
    import onnx.version_converter

    model = onnx.load(str(path))
    if is_large(model):
        raise Unsupported(f"{_named()}: the model has more than 2 GB of weights, of which onnx infers no shapes")
    if any(each.domain in ("", "ai.onnx") and each.version < _OPSET for each in model.opset_import):
        try:
            model = onnx.version_converter.convert_version(model, _OPSET)
        except RuntimeError as error:
            said = str(error).strip().splitlines()[0]
            raise Unsupported(f"{_named()} needs operators of opset {_OPSET} or newer: {said}") from error
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _import(model: Any, path: Path) -> None:
    """Write a model as IREE reads it, in binary: as text it would have two letters for each byte of weights."""
    from iree.compiler.extras import onnx_importer
    from iree.compiler.ir import Context

    with Context() as context:
        info = onnx_importer.ModelInfo(model)
        module = info.create_module(context=context).operation
        try:
            onnx_importer.NodeImporter.define_function(info.main_graph, module).import_all()
        except onnx_importer.OnnxImportError as error:
            raise Unsupported(f"{_named()} cannot import it: {str(error).strip().splitlines()[0]}") from error
        with path.open("wb") as file:
            module.write_bytecode(file)


def _failure(said: str) -> Unsupported | CompileFailed:
    """Return what a compilation that failed is: an operator that it cannot lower is no failure."""
    first = one_line((_ERROR.search(said) or re.search(r"(.*\S)", said) or [said] * 2)[1], _SHOWN)
    if _CANNOT.search(first):
        operator = _OPERATOR.search(said)
        return Unsupported(f"{_named()} cannot compile {operator[1] if operator else 'a part of it'}: {first}")
    return CompileFailed(f"{_named()}: {first}")


def _driver(threads: int) -> str:
    return "local-sync" if threads == 1 else "local-task"


def _device(threads: int) -> Any:
    """Return the device of this process. Its pool is made by flags of the process, once."""
    import iree.runtime

    if threads > 1:
        # It would take as many as there are cores, and bind each to one; the worker's CPUs are bound already.
        iree.runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    return iree.runtime.get_device(_driver(threads))


def _threads(driver: str) -> int:
    """Return how many threads compute: those of the pool, or the calling one."""
    if driver == "local-sync":
        return 1
    names = ((task / "comm").read_text(encoding="ascii", errors="replace") for task in _TASKS.iterdir())
    return sum(name.startswith(_WORKER) for name in names)


def _named() -> str:
    return f"iree {version_of('iree-base-compiler')}"


COMPILER = IreeCompiler()
