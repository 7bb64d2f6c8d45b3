"""The execution providers of ONNX Runtime: what each runs, how it is set, and which nodes of a graph it took."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.machine import gpu
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    import numpy as np

# (provider, operator): how many such nodes.
Nodes = Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Provider:
    """An execution provider: ONNX Runtime's name, the kind of device it runs on, and the package that has it.

    ``precisions`` are those that it computes in. It may take others and compute them in float32.
    """

    name: str
    accelerator: str
    precisions: tuple[str, ...]
    package: str

    @property
    def absent(self) -> str:
        """Return the message that the installed package lacks the provider, with what to do."""
        return (
            f"the installed ONNX Runtime has no {self.name} (pip uninstall onnxruntime, pip install {self.package}: "
            "they are one import package, of which an environment holds one)"
        )


# The keys of the first two are kinds of device, whose own providers they are; the others have to be named.
PROVIDERS: Mapping[str, Provider] = {
    # It computes float16 in float32 where the CPU is an x86.
    "cpu": Provider("CPUExecutionProvider", "cpu", ("f32", "int8"), "onnxruntime"),
    # It computes between Q and DQ in float32.
    "cuda": Provider("CUDAExecutionProvider", "cuda", ("f32", "tf32", "f16", "bf16"), "onnxruntime-gpu"),
    # Whether it uses TF32 is settled once in a process, so it never does here.
    "tensorrt": Provider("TensorrtExecutionProvider", "cuda", ("f32", "f16", "bf16", "int8"), "onnxruntime-gpu"),
    "openvino": Provider("OpenVINOExecutionProvider", "cpu", ("f32", "int8"), "onnxruntime-openvino"),
}

_OF_16_BITS = ("f16", "bf16")
_X86 = ("x86_64", "amd64")

# Packages with the libraries that a provider loads, under the names that they have for each CUDA.
_OF_CUDA = tuple(
    f"nvidia-{library}{of}" for library in ("cublas", "cudnn", "cufft") for of in ("", "-cu11", "-cu12", "-cu13")
)
_OF_TENSORRT = tuple(f"tensorrt{of}" for of in ("", "-cu11", "-cu12", "-cu13"))
_LIBRARIES: Mapping[str, tuple[str, ...]] = {"cuda": _OF_CUDA, "tensorrt": (*_OF_TENSORRT, *_OF_CUDA)}


def why_not(key: str, precision: str, device: Device) -> str | None:
    """Return the reason why a provider cannot run a precision on a device, or None. Nothing is imported."""
    provider = PROVIDERS[key]
    if device.accelerator.partition(":")[0] != provider.accelerator:
        return f"provider {key} on device {device.accelerator} (it runs on {provider.accelerator})"
    if precision not in provider.precisions:
        return f"precision {precision} (its provider {key} runs {', '.join(provider.precisions)})"
    found = find_spec("onnxruntime")
    if key == "cpu" or found is None or found.origin is None:
        return None
    # Every provider but the CPU's is a library of its own.
    libraries = (Path(found.origin).parent / "capi").glob(f"*onnxruntime_providers_{key}.*")
    return None if any(libraries) else provider.absent


def check_precision(precision: str, device: Device) -> None:
    """Raise Unsupported for a precision that the GPU has no arithmetic for: the provider would compute something else.

    NVML is asked, as ONNX Runtime does not say. Raises SpecError where that cannot be had.
    """
    if device.accelerator == "cpu" or precision not in gpu.NEWER_ONLY:
        return
    try:
        reason = gpu.find(device.accelerator).lacks(precision)
    except gpu.Unreadable as error:
        reason = f"precision {precision}: NVML does not say whether this GPU has it ({error})"
    if reason is not None:
        raise Unsupported(reason)


def libraries_of(key: str) -> dict[str, str]:
    """Return the versions of what a provider loads of other packages, by their names. Nothing is imported."""
    found = {name: version_of(name) for name in _LIBRARIES.get(key, ())}
    return {name: version for name, version in found.items() if version is not None}


def computes(key: str, written: str) -> dict[str, str]:
    """Return the precision in which a provider computes a file, and in which it is written where that is another.

    On x86 the CPU's has no arithmetic of 16 bits: it casts what flows into each node to f32, and weights once. On other
    processors it has some, of convolutions for one, and does not say which nodes compute so. CUDA's computes between Q
    and DQ in f32, and OpenVINO's is told f32 for what is not quantised.
    """
    is_short = written in _OF_16_BITS
    casts = {
        "cpu": is_short and platform.machine().lower() in _X86,
        "cuda": written == "int8",
        "openvino": is_short,
    }
    return {"precision": "f32", "written_in": written} if casts.get(key) else {"precision": written}


def settings_of(key: str, device: Device, precision: str, threads: int, requests: int) -> dict[str, str]:
    """Return the provider's options, with everything explicit that precision and speed hang on."""
    index = device.accelerator.partition(":")[2] or "0"
    settings: Mapping[str, dict[str, str]] = {
        "cpu": {},
        "cuda": {"device_id": index, "use_tf32": "1" if precision == "tf32" else "0"},
        "tensorrt": {"device_id": index},
        # OpenVINO itself would take bf16 where the CPU has it.
        "openvino": {
            "device_type": "CPU",
            "precision": "FP32",
            "num_of_threads": str(threads),
            "num_streams": str(requests),
        },
    }
    return settings[key]


def with_caches(settings: Mapping[str, str], engines: Path, timings: Path) -> dict[str, str]:
    """Return the TensorRT provider's options with the folders where its engines and its timing cache are kept."""
    folders = {"engine": engines, "timing": timings}
    enabled = {f"trt_{kind}_cache_enable": "1" for kind in folders}
    return {**settings, **enabled, **{f"trt_{kind}_cache_path": str(folder) for kind, folder in folders.items()}}


@cache
def make_ready(key: str) -> None:
    """Do what a provider needs in a process before its first session."""
    if key not in ("cuda", "tensorrt"):
        return
    import onnxruntime

    if key == "tensorrt":
        # It has no switch for TF32, which it uses by default, but TensorRT obeys this.
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
        # Loads TensorRT's libraries where pip has put them, which the dynamic linker does not know.
        with suppress(ImportError):
            import tensorrt  # noqa: F401
    if hasattr(onnxruntime, "preload_dlls"):  # the same for CUDA's, since 1.21
        onnxruntime.preload_dlls()


def nodes_of(session: Any) -> Nodes | None:
    """Return how many nodes of which operator each provider took, or None before ONNX Runtime 1.24.

    Nodes are counted as they were handed out, before providers fuse them.
    """
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:
        return None
    return Counter((part.ep_name, node.op_type) for part in ask() for node in part.get_nodes())


def profiled_nodes(
    open_session: Callable[[Callable[[Any], None]], Any], inputs_of: Callable[[Any], Mapping[str, np.ndarray]]
) -> Nodes:
    """Return the same for older versions, from the profile of one call. What a provider compiles is one node there.

    ``open_session`` opens a session for this alone: it is given what adjusts the session's settings. ``inputs_of``
    says what that session is called with.
    """
    from onnxruntime import GraphOptimizationLevel as Level

    with TemporaryDirectory() as folder:

        def profile(settings: Any) -> None:
            settings.enable_profiling = True
            if settings.graph_optimization_level != Level.ORT_DISABLE_ALL:
                # As far as the graph is optimised when providers are asked what they take.
                settings.graph_optimization_level = Level.ORT_ENABLE_BASIC
            settings.profile_file_prefix = str(Path(folder) / "profile")

        session = open_session(profile)
        session.run(None, dict(inputs_of(session)))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return Counter(
        (event["args"]["provider"], event["args"]["op_name"])
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    )


def tally(nodes: Nodes, wanted: str) -> dict[str, int]:
    """Return the number of nodes by provider, the wanted one first."""
    counts = Counter({wanted: 0})
    for (provider, _), count in nodes.items():
        counts[provider] += count
    return dict(counts)


def left_over(nodes: Nodes, wanted: str) -> str:
    """Return how many nodes the wanted provider took, and which operators it left to others."""
    counts = tally(nodes, wanted)
    left = sorted({operator for provider, operator in nodes if provider != wanted})
    return (
        f"{wanted} takes {counts[wanted]} of the {sum(counts.values())} nodes, "
        f"not {', '.join(left) or 'those that ONNX Runtime adds'}"
    )
