"""Inductor: torch.compile of the whole graph, or a package made ahead of time, with its weights frozen into it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

from pytest_ngraph import interpreter
from pytest_ngraph.compilers.base import Executable, Option
from pytest_ngraph.compilers.decoding import Decoding
from pytest_ngraph.compilers.toolkit import torch_cuda
from pytest_ngraph.compilers.torch.ahead import compile_ahead
from pytest_ngraph.compilers.torch.decoding import TorchDecoder
from pytest_ngraph.compilers.torch.shared import (
    Place,
    Tally,
    TorchCompiler,
    describe,
    executable_for,
    load_module,
    take_place,
    without_script_deprecation,
)
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, digest

if TYPE_CHECKING:
    from pytest_ngraph.explain.profile import Profile
    from pytest_ngraph.workloads.loaded import LoadedWorkload

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# Those that record a CUDA graph, which happens at the second call.
_GRAPHS = ("reduce-overhead", "max-autotune")
_GRAPH_CALLS = 3
# Steps that are called while a cell that decodes is built, and how many graphs a prompt and they may be.
_BUILT_STEPS = 3
# Every cell of a worker is a variant of the same forward() to Dynamo, which gives up after 8 by default.
_VARIANTS = 10_000
# What kernels are once they are compiled: of a C++ compiler, and of Triton for NVIDIA's, AMD's and Intel's GPUs.
_BINARIES = {".so", ".cubin", ".hsaco", ".spv", ".zebin"}


class InductorCompiler(TorchCompiler):
    """``inductor[mode=...,freezing=on|off]``: fullgraph, compiled and called under inference mode.

    Shapes are static, or ``dynamic=True`` with the open axes marked. With ``aot`` the exported program, of static
    shapes, is compiled to a package, which is loaded and called as a deployment would.
    """

    name = "inductor"
    rough_seconds = (15.0, 4.0)
    decodes = True
    # Before, weights were inputs of what was to have them as constants.
    since = "0.4.0"
    options = (
        *TorchCompiler.options,
        Option("mode", "default", "The mode of torch.compile", choices=_MODES),
        Option("freezing", "on", "Treat weights as constants, as the other compilers do", choices=("on", "off")),
        Option("aot", "", "Export, compile to a package and load that: no guards in a call", kind="flag"),
    )

    def found_beside(self, spec: CompilerSpec, device: Device, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return which C++ compiler $CXX names and what it says that it is, and on a GPU the installed Triton."""
        named = variables.get("CXX")
        found = shutil.which(named, path=variables.get("PATH")) if named else None
        cxx = {} if not named or found is None else {"CXX": named, "version": _version_of(found)}
        return {**cxx, **torch_cuda.triton_for(device.accelerator)}

    def load(self) -> None:
        """Import PyTorch and the parts of it that only compiling needs, which take seconds."""
        # Its compiling processes get this path and know nothing else of how a worker finds the standard library.
        os.environ.setdefault("TORCH_CUSTOM_PYTHONPATH", interpreter.path_for_others())
        with without_script_deprecation():
            import torch._dynamo
            import torch._inductor.compile_fx  # noqa: F401

    def why_not(self, cell: Cell, device: Device) -> str | None:
        """Return the reason of the base class, what it cannot compile without, or a mode without meaning here."""
        if reason := super().why_not(cell, device):
            return reason
        options = dict(cell.compiler.options)
        mode = options.get("mode")
        if mode in _GRAPHS and cell.workload.decode is not None:
            return f"mode={mode} with decode: a CUDA graph overwrites the cache that it has just given"
        if "aot" in options and (cell.workload.shapes != "static" or cell.workload.decode is not None):
            return "a package of inductor[aot] is of one call with static shapes: neither dynamic ones nor decode"
        if device.accelerator == "cpu":
            return _why_not_on_cpu(mode)
        if mode in _GRAPHS and "aot" in options:
            return f"mode={mode} records CUDA graphs, which a package made ahead of time has none of"
        if mode in _GRAPHS and cell.workload.scenario == "throughput":
            return f"mode={mode} replays one CUDA graph, which cannot run beside itself"
        if find_spec("triton") is None:
            return "needs triton on a GPU (pip install triton)"
        return None

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Compile the module by calling it, which is what makes torch.compile compile."""
        place = take_place(workload, device, options)
        with without_script_deprecation(), catch_warnings():
            # Where f32 is asked for, f32 is meant.
            filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
            if options["aot"]:
                return compile_ahead(workload, place, _settings(place, options), _facts(options))
            return _compile(workload, place, options)

    def explain(
        self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], executable: Executable, calls: int
    ) -> Profile:
        """Profile another compilation, whose kernels are marked."""
        from pytest_ngraph.explain.runtimes.torch import profile_compiled, refuse_gpu

        refuse_gpu(device.accelerator)
        if options["aot"]:
            raise Unsupported(
                "inductor[aot]: a package has no marks of its kernels, so nothing says what ran in a call"
            )
        place = take_place(workload, device, options)
        with without_script_deprecation():
            marked = _compile(workload, place, options, {"cpp.enable_kernel_profile": True})
        marked.bind(workload.copied_inputs)
        return profile_compiled(marked.run, calls)


def _why_not_on_cpu(mode: str | None) -> str | None:
    if mode == "reduce-overhead":
        return "mode=reduce-overhead is CUDA graphs, on a CPU it would be mode=default under another name"
    if find_cxx() is None:
        if named := os.environ.get("CXX"):
            return f"needs a C++ compiler and $CXX={named} is not one on PATH"
        return "needs a C++ compiler: none of g++, clang++, c++ on PATH and no $CXX"
    return None


@cache
def _version_of(program: str) -> str:
    """Return the first line of what a compiler says when it is asked for its version, and nothing if it says none."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.partition("\n")[0].strip()


def find_cxx() -> str | None:
    """Return the C++ compiler that is used: $CXX where it is set, else the first of the usual names on PATH."""
    named = os.environ.get("CXX")
    return next(filter(None, map(shutil.which, [named] if named else ["g++", "clang++", "c++"])), None)


def _settings(place: Place, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of inductor, the same whether it compiles at a call or ahead of time."""
    import torch._inductor

    settings = {
        **torch._inductor.list_mode_options(options["mode"]),
        "freezing": options["freezing"] == "on",
        # Named so that it is part of the cache's key: PyTorch before 2.13 reuses kernels made for other counts.
        "cpp.threads": place.threads,
    }
    if cxx := find_cxx():
        settings["cpp.cxx"] = (cxx,)
    return settings


def _facts(options: Mapping[str, Any]) -> dict[str, str | int]:
    """Return what the placement says of how it is compiled."""
    cxx = find_cxx()
    return {"mode": options["mode"], "freezing": options["freezing"], "cxx": Path(cxx).name if cxx else "none"}


def _compile(
    workload: LoadedWorkload, place: Place, options: Mapping[str, Any], further: Mapping[str, Any] | None = None
) -> Executable:
    import torch
    from torch._dynamo.exc import TorchDynamoException, UserError
    from torch._dynamo.exc import Unsupported as GraphBreak
    from torch._dynamo.utils import counters
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

    module = load_module(workload, place)
    settings = {**_settings(place, options), **(further or {})}
    kernels = _Kernels.of(workload, settings)
    counters.clear()
    # Dynamo decides as it traces whether weights become constants, and by this alone: with the settings it would come
    # after that and freeze nothing. A worker has the cells of one specification; pytest's own process sets it back.
    torch._inductor.config.freezing = settings["freezing"]
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = _VARIANTS
    is_open = bool(workload.open_axes)
    on_graphs = place.accelerator != "cpu" and options["mode"] in _GRAPHS
    # Its calls are of several shapes, before they are padded or after.
    is_counted = is_open or workload.is_bucket
    tally = Tally()
    facts = describe(module, workload, place)
    executable: Any
    decode = workload.spec.decode
    if decode is not None:
        given = {"fullgraph": True, "dynamic": False, "backend": _counting(tally, settings)}
        first, step = (torch.compile(part, **given) for part in module.parts())
        # Their calls compile them: one for the prompt, and up to two for a step, whose own cache may lie in memory
        # otherwise than that of the prompt. A third step needs no other.
        executable = Decoding(TorchDecoder((first, step), module.arguments, place, facts), min(_BUILT_STEPS, decode))
        executable.bind(workload.copied_inputs)
    else:
        # A backend of its own: to Dynamo two with equal settings are one, and what it built for another cell of the
        # same code would be called for this one. With CUDA graphs, until that was tried on a GPU, as ever.
        is_as_ever = on_graphs and not is_counted
        how: dict[str, Any] = {"options": settings} if is_as_ever else {"backend": _counting(tally, settings)}
        compiled = torch.compile(module, fullgraph=True, dynamic=is_open, **how)
        executable = executable_for(compiled, workload, place, facts)
        executable.bind(workload.inputs_built_with)
        executable.leave_open(workload.open_axes)
    try:
        for _ in range(_GRAPH_CALLS if on_graphs else 1):
            executable.run()
        executable.synchronize()
    except ConstraintViolationError as error:
        raise Unsupported(f"torch.compile(dynamic=True) fixes what is to stay open: {_first_line(error)}") from error
    except (GraphBreak, UserError) as error:
        raise Unsupported(f"torch.compile cannot take the whole graph: {_first_line(error)}") from error
    except TorchDynamoException as error:
        raise CompileFailed(f"torch.compile: {_first_line(error)}") from error
    if decode is not None and tally.graphs > _BUILT_STEPS:
        raise Unsupported(
            f"torch.compile compiled its step again for each token, {tally.graphs - 1} times for {_BUILT_STEPS} of "
            "them; what changes from one to the next, as a number that the module counts up does, has to be a tensor"
        )
    if settings["freezing"] and tally.weights:
        raise Unsupported(
            f"freezing=on: torch.compile left {tally.weights} weights as inputs, so that they are no constants; "
            "inductor[freezing=off] measures it so"
        )
    made: Any = executable.decoder if isinstance(executable, Decoding) else executable
    if is_counted or decode is not None:
        tally.done()
        made.tally = tally
    caches = counters["inductor"]
    if on_graphs and caches["cudagraph_skips"]:
        raise Unsupported(f"mode={options['mode']}: inductor records no CUDA graph of this model, it only warns of it")
    # A hit says that nothing was compiled. Of constants that oneDNN has packed inductor keeps no graph, and makes it
    # again each time past that cache; its kernels are kept all the same, by their code.
    is_bypassed = caches["fxgraph_cache_bypass"] > 0
    is_kept = kernels.are_kept() if is_bypassed else caches["fxgraph_cache_hit"] > 0
    kernels.leave_mark()
    made.loaded = is_kept and not caches["fxgraph_cache_miss"]
    # Its own is not read here: that would be a call in the time of compiling.
    made.placement = {
        **facts,
        **_facts(options),
        "graphs": counters["stats"]["unique_graphs"],
        "graph_breaks": sum(counters["graph_break"].values()),
        "cache": "cold" if not made.loaded else "kernels" if is_bypassed else "warm",
        # Cold in a folder that was used already still finds precompiled headers and kernels of other graphs.
        "cache_folder": kernels.folder_was,
    }
    built: Executable = made
    return built


class _Kernels:
    """The folder in which inductor keeps its kernels, and whether it had those of a cell before that was compiled.

    ``triton`` is that of Triton, which compiles those for a GPU and keeps them in a folder of its own.
    """

    def __init__(self, folder: Path | None, triton: Path | None, cell: str) -> None:
        self._folders = [each for each in (folder, triton) if each is not None]
        self._mark = None if folder is None else folder / f"ngraph-{cell}"
        self._before, self._kernels = self._binaries(), _generated_kernels()
        self._was_built = self._mark is not None and self._mark.exists()
        self.folder_was = "unknown" if folder is None else "used" if any(folder.glob("*")) else "empty"

    @classmethod
    def of(cls, workload: LoadedWorkload, settings: Mapping[str, Any]) -> _Kernels:
        """Return those of a workload, compiled with these settings."""
        # Without a folder of its own, Triton's is in inductor's.
        named = (os.environ.get(name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"))
        folder, triton = (Path(each) if each else None for each in named)
        artifact = workload.artifact.key if workload.artifact is not None else ""
        cell = digest([artifact, workload.spec.label, sorted((key, str(value)) for key, value in settings.items())])
        return cls(folder, triton, cell)

    def are_kept(self) -> bool:
        """Return whether no kernel was built now, all of them being here. Ask when the cell is compiled.

        Of a graph without any kernel that says nothing: such a cell was built here before where it left its mark.
        """
        has_kernels = _generated_kernels() > self._kernels
        return (has_kernels or self._was_built) and self._binaries() == self._before

    def leave_mark(self) -> None:
        """Note that the cell was built here, once it is."""
        if self._mark is not None and self._mark.parent.is_dir():
            self._mark.touch()

    def _binaries(self) -> set[Path]:
        return {path for folder in self._folders for path in folder.rglob("*") if path.suffix in _BINARIES}


def _generated_kernels() -> int:
    """Return how many kernels inductor has written in this process."""
    from torch._inductor import metrics

    return int(metrics.generated_kernel_count)


def _counting(tally: Tally, settings: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    """Return inductor with these settings as a backend that counts the graphs that it compiles, and their weights."""
    from torch._inductor.compile_fx import compile_fx
    from torch.nn import Parameter

    def compile_one(graph: Any, inputs: Any) -> Any:
        tally.graphs += 1
        tally.weights += sum(isinstance(each, Parameter) for each in inputs)
        return compile_fx(graph, inputs, config_patches=dict(settings))

    return compile_one


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


COMPILER = InductorCompiler()
