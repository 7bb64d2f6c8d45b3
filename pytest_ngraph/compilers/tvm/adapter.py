"""Apache TVM: the shared ONNX file as kernels of TVM's own, with the schedules it starts from or with tuned ones."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import THREADS, Compiler, Executable, Option, Progress, threads_of
from pytest_ngraph.compilers.tvm.algorithms import ALGORITHMS, Choice
from pytest_ngraph.compilers.tvm.importing import import_intrinsics, import_tvm
from pytest_ngraph.compilers.tvm.records import RECORDS, WORKLOADS, Limits, Records
from pytest_ngraph.errors import CompileFailed, NgraphError, SpecError, Unsupported
from pytest_ngraph.machine.facts import versions
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, digest
from pytest_ngraph.workloads import folders

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.explain.profile import Profile
    from pytest_ngraph.workloads.loaded import LoadedWorkload

# Raise this when the way from the ONNX file to kernels changes, for what was tuned before fits other kernels, or what
# is kept of a search.
_RECIPE = 2
_LIBRARY = "model.so"
_TUNING = ("tuned", "trials", "patience", "seconds")
# Of the option algorithm: what TVM does by itself.
_DEFAULT = "default"
# Those that TVM itself looks for.
_NAMED_LINKERS = ("CXX", "CC")
_LINKERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")


class TvmExecutable(Executable):
    """A function of a virtual machine with its inputs bound: 0.9 us a call of a tiny model, with arrays passed 15."""

    def __init__(self, machine: Any, place: Any, inputs: Sequence[str]) -> None:
        self._machine, self._place, self._inputs = machine, place, tuple(inputs)
        self.enqueues = place.type != "cpu"
        self._call: Any = None
        self._result: Any = None

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Copy the arrays to where TVM wants them: aligned to 64 bytes, on the device."""
        import numpy as np
        import tvm

        # Not ascontiguousarray, which gives a number alone a dimension.
        arrays = [np.require(inputs[name], requirements="C") for name in self._inputs]
        tensors = [tvm.runtime.tensor(array, self._place) for array in arrays]
        self._machine.save_function("main", "bound", *tensors)
        self._call = self._machine["bound"]

    def run(self) -> None:
        """Call the function once."""
        self._result = self._call()

    def outputs(self) -> Sequence[np.ndarray]:
        """Return the last call's outputs as arrays of their own."""
        return [tensor.numpy() for tensor in _flat(self._result)]

    def synchronize(self) -> None:
        """Wait for the device. Calls on a CPU have finished when they return."""
        if self.enqueues:
            self._place.sync()

    @property
    def machine(self) -> Any:
        """Return the virtual machine, whose kernels can be looked at."""
        return self._machine

    def close(self) -> None:
        """Release the virtual machine, what is bound to it and its outputs."""
        self._machine = self._call = self._result = None


class TvmCompiler(Compiler):
    """``tvm`` (``tvm[untuned]``), ``tvm[tuned]`` or ``tvm[trials=N,patience=P,seconds=S]``: cells of their own.

    ``algorithm=direct|gemm|winograd|spatial_pack`` says how convolutions are computed, tuned or not.
    ``load`` leaves out PyTorch, which TVM would import, and the tensor intrinsics, which only the search for schedules
    needs.
    """

    name = "tvm"
    rough_seconds = (15.0, 1.0)
    requires = ("tvm", "onnx")
    variables = ("TVM_",)
    extra = "tvm"
    reads = "onnx"
    named_only = True
    accelerators = ("cpu", "cuda")
    verified: Mapping[str, str] = {"cpu": "x86-64 Linux", "cuda": "unverified on hardware"}
    options = (
        THREADS,
        Option("untuned", "", "The schedules that TVM starts from; so it is where nothing else is said", kind="flag"),
        Option("tuned", "", "Schedules searched for: 1500 trials per task, 150 without gain", kind="flag"),
        Option("trials", "1500", "At most so many trials per task", kind="int"),
        Option("patience", "150", "Stop a task after so many trials without gain", kind="int"),
        Option("seconds", "0", "At most so many seconds for all tasks; 0: no limit", kind="number", minimum=0),
        Option(
            "algorithm", _DEFAULT, "How convolutions are computed, where they can be", choices=(_DEFAULT, *ALGORITHMS)
        ),
    )

    def load(self) -> None:
        """Import TVM and its reader of ONNX files."""
        import_tvm()
        super().load()
        import tvm.relax.frontend.onnx  # noqa: F401

    def resolve(self, spec: CompilerSpec) -> dict[str, Any]:
        """Return the options. Naming any of the search's asks for it. Raises SpecError for both of two opposites."""
        values = super().resolve(spec)
        given = [name for name in _TUNING if name in dict(spec.options)]
        if values["untuned"] and given:
            raise SpecError(
                f"compiler {str(spec)!r}: untuned and {', '.join(given)} exclude each other (allowed: tvm[untuned], "
                "tvm[tuned] or tvm[trials=N,patience=P,seconds=S])"
            )
        return {**values, "tuned": bool(given), "untuned": not given}

    def why_not(self, cell: Cell, device: Device) -> str | None:
        """Return the reason of the base class, or that there is nothing to link what TVM compiles."""
        if reason := super().why_not(cell, device):
            return reason
        if find_linker() is None:
            if named := next((name for name in _NAMED_LINKERS if os.environ.get(name)), None):
                return f"needs a compiler to link with, and ${named}={os.environ[named]} is not one on PATH"
            return f"needs a compiler to link with: none of {', '.join(_LINKERS)} on PATH and no $CXX or $CC"
        return None

    def tunes(self, options: Mapping[str, Any]) -> bool:
        """Return whether schedules have to be searched for."""
        return bool(options["tuned"])

    def tuning_plan(self, options: Mapping[str, Any]) -> str:
        """Return what the search may cost."""
        trials, patience, seconds = (options[name] for name in ("trials", "patience", "seconds"))
        plan = f"at most {trials} trials per task, stops a task after {patience} without gain"
        return f"{plan}, at most {seconds:g} s for all tasks of a cell" if seconds else plan

    def tune(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], progress: Progress) -> None:
        """Search for a schedule of every kernel of the model that has none within the limits."""
        tvm = import_tvm()
        threads = threads_of(device, options)
        configuration = configuration_of(device, threads)
        records, model = _records(workload, configuration), _model(workload, options)
        limits, choice = _limits(options), _choice(options)
        known = records.tasks_of(model)
        if known is not None and records.within(known, limits)[1] is None:
            return
        waiting = "waiting for another run that tunes for the same target"
        with records.writing(lambda: progress(waiting, 0, 1)) as scratch:
            progress(f"looking for the tasks of {workload.spec.label}", 0, 1)
            import_intrinsics()
            from pytest_ngraph.compilers.tvm.candidates import Bench
            from pytest_ngraph.compilers.tvm.tuning import kernels_of, search

            target = tvm.target.Target(configuration)
            cpus = len(device.cpus) or threads
            with _telling():
                module, _ = read(workload.onnx_path)
                module = prepare(module, target, choice)
                if choice is not None:
                    choice.check(module)
                kernels = kernels_of(module, target)
                records.remember(model, kernels)
                with Bench(configuration, device.accelerator, scratch, builders=cpus, threads=threads) as bench:
                    search(kernels, records, limits, target, bench, seed=workload.seed, cpus=cpus, progress=progress)

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Build a shared library of the workload's ONNX file, or take the one of an earlier launch, and load it."""
        tvm = import_tvm()
        threads = threads_of(device, options)
        # Read when the pool of threads starts, which is at the first call.
        os.environ["TVM_NUM_THREADS"] = str(threads)
        configuration = configuration_of(device, threads)
        schedules = _Schedules(workload, configuration, options) if options["tuned"] else None
        choice = _choice(options)
        facts = {**_facts(configuration), "schedules": schedules.key if schedules else None}
        if choice is not None:
            facts["algorithm"] = choice.algorithm

        def build(folder: Path) -> Mapping[str, Any]:
            with _telling():
                return _build(workload, configuration, schedules, choice, folder / _LIBRARY)

        with contextlib.ExitStack() as stack:
            if workload.kept is not None:
                folder, meta, loaded = workload.kept.built(self.name, facts, build)
            else:
                folder, loaded = Path(stack.enter_context(TemporaryDirectory())), False
                meta = build(folder)
            place = tvm.runtime.device(device.accelerator)
            machine = tvm.relax.VirtualMachine(load_library(folder / _LIBRARY), place)
            size = (folder / _LIBRARY).stat().st_size
        executable = TvmExecutable(machine, place, meta["inputs"])
        executable.loaded, executable.model_bytes = loaded, size
        executable.placement = {
            "provider": configuration["kind"],
            # TVM computes in the types that the graph is written in.
            "precision": workload.graph_precision,
            "threads": int(tvm.runtime.num_threads()),
            "target": " ".join(f"{key}={value}" for key, value in configuration.items() if key != "host"),
            "schedules": "tuned" if schedules else "untuned",
            "kernels": meta["kernels"],
            # Libraries that were kept before there was the option say nothing of it.
            **meta.get("algorithm", {}),
            **(schedules.placement(meta["tuned"]) if schedules else {}),
            "version": str(tvm.__version__),
        }
        if schedules:
            executable.tuning_seconds, executable.tuning_trials = schedules.seconds, schedules.trials
        return executable

    def explain(
        self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], executable: Executable, calls: int
    ) -> Profile:
        """Look at the kernels of the same virtual machine. Raise Unsupported on a GPU, where they are only enqueued."""
        from pytest_ngraph.explain.runtimes.tvm import profile

        if executable.enqueues or not isinstance(executable, TvmExecutable):
            raise Unsupported("tvm's instrument sees a GPU's kernels enqueued, not run")
        return profile(executable.machine, executable.run, calls)


class _Schedules:
    """What a search within limits has found for a workload, and what it has cost: no more, whatever others found."""

    def __init__(self, workload: LoadedWorkload, configuration: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        records = _records(workload, configuration)
        tasks = records.tasks_of(_model(workload, options))
        if tasks is None:
            raise CompileFailed(f"tvm: {workload.spec.label} has not been tuned for this target")
        self._records: Records = records
        self._spent, _ = records.within(tasks, _limits(options))
        self.trials = sum(each.trials for each in self._spent.values())
        self.seconds = sum(each.seconds for each in self._spent.values())
        self.key = digest([records.of(task).best(each.trials) for task, each in self._spent.items()])

    @contextlib.contextmanager
    def database(self) -> Iterator[Any]:
        """Give TVM the best schedule of each task."""
        from tvm.s_tir.meta_schedule.database import JSONDatabase

        # Replaying a record may ask for one of them.
        import_intrinsics()
        with TemporaryDirectory() as scratch:
            folder = Path(scratch)
            self._records.write_best(self._spent, folder)
            yield JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))

    def check(self, tuned: int) -> None:
        """Raise CompileFailed where not a single kernel of the model would be a tuned one."""
        if self._spent and not tuned:
            said = next((each.error for each in self._spent.values() if each.error), "too little was tried")
            raise CompileFailed(f"tvm: tuning has found no schedule for any of {len(self._spent)} tasks: {said}")

    def placement(self, tuned: int) -> dict[str, str | int]:
        """Return how much of the model is tuned, and with what effort."""
        models = sorted({model for each in self._spent.values() for model in each.cost_models})
        return {"tuned_kernels": tuned, "tuning_trials": self.trials, "cost_model": "+".join(models) or "none"}


def configuration_of(device: Device, threads: int) -> dict[str, Any]:
    """Return TVM's target for a device, as JSON. Raise Unsupported where the device is not there."""
    import tvm

    host = {"kind": "llvm", "mcpu": str(tvm.target.codegen.llvm_get_system_cpu()), "num-cores": threads}
    if device.accelerator == "cpu":
        return host
    place = tvm.runtime.device(device.accelerator)
    if not place.exist:
        raise Unsupported(f"tvm {tvm.__version__} finds no device {device.accelerator}")
    return {
        "kind": "cuda",
        "arch": f"sm_{place.compute_version.replace('.', '')}",
        "max_threads_per_block": int(place.max_threads_per_block),
        "max_shared_memory_per_block": int(place.max_shared_memory_per_block),
        "thread_warp_size": int(place.warp_size),
        "host": host,
    }


def read(path: Path) -> tuple[Any, list[str]]:
    """Return an ONNX file as a Relax module with its weights as constants, and the names of its inputs in order.

    Raises Unsupported where TVM's reader says that it does not know an operator, or a way to use one.
    """
    import onnx
    import tvm
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.load(str(path))
    weights = {each.name for each in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in weights]
    if not all(size.HasField("dim_value") for each in inputs for size in each.type.tensor_type.shape.dim):
        raise Unsupported("tvm: the ONNX file has dynamic shapes, which are another measurement")
    # Where it fails it prints what it was reading.
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            module = from_onnx(model, keep_params_in_input=False, sanitize_input_names=False)
        except (tvm.error.OpError, NotImplementedError, ValueError) as error:
            raise Unsupported(f"tvm {tvm.__version__} cannot read it: {_gist(error)}") from error
    return module, [each.name for each in inputs]


def prepare(module: Any, target: Any, choice: Choice | None = None) -> Any:
    """Return a module as calls of fused kernels: for tuning and for compiling, which must come to the same ones."""
    import tvm
    from tvm.relax import pipeline, transform

    legalizers = None if choice is None else choice.legalizers(module)
    with target, tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(
            [
                transform.DecomposeOpsForInference(),
                *pipeline.library_dispatch_passes(target),
                transform.LegalizeOps(legalizers),
                transform.AnnotateTIROpPattern(),
                transform.FoldConstant(),
                transform.FuseOps(),
                transform.FuseTIR(),
            ]
        )(module)


def bind_threads(module: Any, target: Any) -> Any:
    """Give every kernel that has no schedule DLight's default one for a GPU: without any it would not be launched."""
    import tvm
    from tvm.s_tir import dlight

    rules = ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Fallback")
    with target, tvm.transform.PassContext(opt_level=3):
        return dlight.ApplyDefaultSchedule(*(getattr(dlight.gpu, rule)() for rule in rules))(module)


def load_library(path: Path) -> Any:
    """Load a library that TVM built, and unload it with the last that refers to it."""
    import tvm_ffi

    # TVM's own way of loading keeps every library, weights and all, until the process ends.
    return tvm_ffi.load_module(str(path), keep_module_alive=False)


def find_linker() -> str | None:
    """Return the compiler that TVM links with: $CXX or $CC where one is set, else the first of those it looks for."""
    named = next(filter(None, map(os.environ.get, _NAMED_LINKERS)), None)
    return next(filter(None, map(shutil.which, [named] if named else _LINKERS)), None)


def _build(
    workload: LoadedWorkload,
    configuration: Mapping[str, Any],
    schedules: _Schedules | None,
    choice: Choice | None,
    library: Path,
) -> dict[str, Any]:
    """Write a workload's shared library.

    Return its inputs' names, how many kernels it has and how many tuned, and what has the algorithm of choice.
    """
    import tvm
    from tvm.relax import transform

    target = tvm.target.Target(dict(configuration))
    module, inputs = read(workload.onnx_path)
    module = prepare(module, target, choice)
    # Before schedules take its loops apart.
    algorithm = {} if choice is None else choice.check(module)
    tuned = 0
    if schedules is not None:
        with schedules.database() as database, target, database, tvm.transform.PassContext(opt_level=3):
            module = transform.MetaScheduleApplyDatabase()(module)
        tuned = sum(bool(kernel.attrs.get("tirx.is_scheduled", False)) for kernel in _kernels(module))
        schedules.check(tuned)
    if configuration["kind"] != "llvm":
        module = bind_threads(module, target)
    with tvm.transform.PassContext(opt_level=3):
        # Named, for by itself it would take one for GPUs that fuses and schedules once more.
        built = tvm.relax.build(module, target=target, relax_pipeline=tvm.relax.get_pipeline("default"))
    built.export_library(str(library))
    return {"inputs": inputs, "kernels": len(_kernels(module)), "tuned": tuned, "algorithm": algorithm}


def _kernels(module: Any) -> list[Any]:
    import tvm

    return [function for _, function in module.functions_items() if isinstance(function, tvm.tirx.PrimFunc)]


def _facts(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return what schedules and libraries depend on besides the workload and the machine."""
    return {
        "recipe": _RECIPE,
        "target": dict(configuration),
        "versions": versions(("apache-tvm", "apache-tvm-ffi")),
    }


def _limits(options: Mapping[str, Any]) -> Limits:
    return Limits(options["trials"], options["patience"], options["seconds"])


def _records(workload: LoadedWorkload, configuration: Mapping[str, Any]) -> Records:
    if workload.kept is None:
        raise Unsupported("tvm: tuned schedules are kept beside the store of results, and this process keeps nothing")
    return Records(workload.kept.records("tvm", _facts(configuration)))


def _choice(options: Mapping[str, Any]) -> Choice | None:
    return None if options["algorithm"] == _DEFAULT else Choice(options["algorithm"])


def _model(workload: LoadedWorkload, options: Mapping[str, Any]) -> str:
    # The folder of the ONNX file is named by its content.
    name = folders.owner_of(workload.onnx_path).name
    return name if options["algorithm"] == _DEFAULT else f"{name}-{options['algorithm']}"


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    """Raise whatever TVM raises as CompileFailed: its C++ picks any of Python's classes."""
    import tvm

    try:
        yield
    except (NgraphError, MemoryError):
        raise
    except Exception as error:
        raise CompileFailed(f"tvm {tvm.__version__}: {type(error).__name__}: {_gist(error)}") from error


def _flat(result: Any) -> Iterator[Any]:
    """Yield the tensors of a result, which is one or a tuple of them."""
    if hasattr(result, "numpy"):
        yield result
    else:
        for each in result:
            yield from _flat(each)


def _gist(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


COMPILER = TvmCompiler()
