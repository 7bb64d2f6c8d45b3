"""A GPU, and the few names of PyTorch and of TensorRT's Python binding that its adapter uses, without any of them.

What is here stands in the real packages under the same name, and nothing else is here: a name that the adapter gets
wrong is missing. TensorRT's are those of ``python/src/infer/pyCore.cpp``, ``pyGraph.cpp`` and ``parsers/pyOnnx.cpp`` of
its sources, 10.3 to 11; slots stand for properties that can be set.

A network is a JSON file: names, shapes and types of inputs and outputs, each output a multiple of the first input, and
what goes wrong. Calls are enqueued on streams, which compute one of them for each question that an event is asked.
"""

from __future__ import annotations

import ctypes
import enum
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

_NUMPY = {"FLOAT": "float32", "HALF": "float16", "INT32": "int32", "INT64": "int64"}


class Gpu:
    """The state that both packages share: streams with what is enqueued on them, and what was asked of the builder."""

    def __init__(self) -> None:
        self.available, self.count = True, 1
        self.name, self.capability = "Orin", (8, 7)
        self.streams: list[Stream] = []
        self.current: Stream | None = None
        self.capturing: tuple[Stream, CUDAGraph] | None = None
        self.caches_emptied = 0
        self.builds = self.timed_kernels = 0
        self.alive: set[int] = set()

    def enqueue(self, stream: Stream, work: Callable[[], None]) -> None:
        if self.capturing is not None and self.capturing[0] is stream:
            self.capturing[1].works.append(work)
        else:
            stream.queue.append(work)


GPU = Gpu()


# ------------------------------------------------------------------------------------------------------------ PyTorch


class Tensor:
    def __init__(self, array: np.ndarray[Any, Any], device: str | Device) -> None:
        self._array, self.device = array, device

    @property
    def dtype(self) -> str:
        return f"torch.{self._array.dtype.name}"

    def to(self, device: str | Device) -> Tensor:
        return self if device == self.device else Tensor(self._array.copy(), device)

    def data_ptr(self) -> int:
        return self._array.ctypes.data

    def cpu(self) -> Tensor:
        return self.to("cpu")

    def numpy(self) -> np.ndarray[Any, Any]:
        assert self.device == "cpu", "PyTorch gives no arrays of a GPU's memory"
        return self._array


class Stream:
    def __init__(self, device: Device) -> None:
        self.queue: list[Callable[[], None]] = []
        self.done = 0
        GPU.streams.append(self)
        self.cuda_stream = len(GPU.streams)

    def advance(self) -> None:
        if self.queue:
            self.queue.pop(0)()
            self.done += 1

    def synchronize(self) -> None:
        while self.queue:
            self.advance()


class Event:
    def __init__(self, *, enable_timing: bool = False) -> None:
        self._timing = enable_timing
        self._stream: Stream | None = None
        self._goal = 0

    def record(self, stream: Stream | None = None) -> None:
        self._stream = stream or GPU.current
        assert self._stream is not None, "an event on the default stream"
        self._goal = self._stream.done + len(self._stream.queue)

    def synchronize(self) -> None:
        while not self.query():
            pass

    def elapsed_time(self, end_event: Event) -> float:
        """Return a millisecond for each call between the two."""
        assert self._timing
        return float(end_event._goal - self._goal)

    def query(self) -> bool:
        assert self._stream is not None, "an event that was never recorded"
        self._stream.advance()
        return self._stream.done >= self._goal


class CUDAGraph:
    def __init__(self) -> None:
        self.works: list[Callable[[], None]] = []

    def replay(self) -> None:
        assert GPU.current is not None, "a replay on the default stream"
        for work in self.works:
            GPU.current.queue.append(work)


class StreamContext:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._before: Stream | None = None

    def __enter__(self) -> None:
        # As in PyTorch, where a context that is entered inside itself forgets what was before.
        self._before, GPU.current = GPU.current, self._stream

    def __exit__(self, *exception: object) -> None:
        GPU.current = self._before


@contextmanager
def _graph(cuda_graph: CUDAGraph, *, stream: Stream) -> Iterator[None]:
    GPU.capturing = (stream, cuda_graph)
    try:
        yield
    finally:
        GPU.capturing = None


def _emptied() -> None:
    GPU.caches_emptied += 1


def torch() -> ModuleType:
    """Return the stand-in for PyTorch."""
    module, cuda = ModuleType("torch"), ModuleType("torch.cuda")
    values: dict[str, Any] = {
        "__version__": "2.13.0",
        "cuda": cuda,
        "version": ModuleType("torch.version"),
        "device": Device,
        "from_numpy": lambda array: Tensor(array, "cpu"),
        "empty": lambda shape, *, dtype, device: Tensor(np.empty(shape, dtype.removeprefix("torch.")), device),
        **{name: f"torch.{name}" for name in (*_NUMPY.values(), "bfloat16", "int8", "uint8", "bool")},
    }
    of_cuda: dict[str, Any] = {
        "is_available": lambda: GPU.available,
        "device_count": lambda: GPU.count,
        "set_device": lambda device: None,
        "synchronize": lambda device: None,
        "get_device_name": lambda device: GPU.name,
        "get_device_capability": lambda device: GPU.capability,
        "empty_cache": _emptied,
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": CUDAGraph,
        "stream": StreamContext,
        "graph": _graph,
    }
    module.__dict__.update(values)
    cuda.__dict__.update(of_cuda)
    module.__dict__["version"].__dict__["cuda"] = "12.6"
    return module


class Device:
    """What ``torch.device`` gives, as far as it is asked."""

    def __init__(self, text: str) -> None:
        self.type, _, index = text.partition(":")
        self.index = int(index)


# ----------------------------------------------------------------------------------------------------------- TensorRT


class NetworkDefinitionCreationFlag(enum.IntEnum):
    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1


class NetworkDefinitionCreationFlag11(enum.IntEnum):
    STRONGLY_TYPED = 0


class WeakNetworkDefinitionCreationFlag(enum.IntEnum):
    EXPLICIT_BATCH = 0


class BuilderFlag(enum.Enum):
    FP16 = 0
    INT8 = 1
    TF32 = 6
    BF16 = 17


class BuilderFlag11(enum.Enum):
    TF32 = 6


class TensorIOMode(enum.Enum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(enum.Enum):
    DEVICE = 0
    HOST = 1


class DataType(enum.Enum):
    FLOAT = 0
    HALF = 1
    INT32 = 3
    INT64 = 8


class ErrorCode:
    """One code of the parser; before 11 ``name`` is a method that cannot be called."""

    UNSUPPORTED_NODE = object()

    def __init__(self, code: str) -> None:
        self._code = code

    def name(self) -> str:
        raise TypeError

    def __str__(self) -> str:
        return f"ErrorCode.{self._code}"


class Severity(enum.Enum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING = Severity.INTERNAL_ERROR, Severity.ERROR, Severity.WARNING

    def __init__(self) -> None:
        pass

    def log(self, severity: Severity, msg: str) -> None:
        raise NotImplementedError


class IHostMemory(bytearray):
    """The real one gives its bytes by the buffer protocol, too."""


class ITensor:
    __slots__ = ("name", "shape")

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = name, shape


class INetworkDefinition:
    __slots__ = ("_flags", "_read")

    def __init__(self, flags: int) -> None:
        self._flags, self._read = flags, dict[str, Any]()

    @property
    def num_inputs(self) -> int:
        return len(self._read["inputs"])

    @property
    def num_outputs(self) -> int:
        return len(self._read["outputs"])

    def get_input(self, index: int) -> ITensor:
        return self._tensor("inputs", index)

    def get_output(self, index: int) -> ITensor:
        return self._tensor("outputs", index)

    def _tensor(self, kind: str, index: int) -> ITensor:
        name, shape = list(self._read[kind].items())[index]
        return ITensor(name, tuple(shape["shape"]))


class ParserError:
    __slots__ = ("_code", "_desc")

    def __init__(self, code: str, desc: str) -> None:
        self._code, self._desc = code, desc

    def code(self) -> ErrorCode:
        return ErrorCode(self._code)

    def __str__(self) -> str:
        return f"In node 4 (importer): {self._code}: {self._desc}"


class OnnxParser:
    __slots__ = ("_errors", "_network")

    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        self._network = network
        self._errors: list[ParserError] = []

    def parse_from_file(self, model: str) -> bool:
        read = json.loads(Path(model).read_text(encoding="utf-8"))
        self._errors = [ParserError(*error) for error in read.get("parser_errors", [])]
        self._network._read = read
        return not self._errors

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]


class ITimingCache:
    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> IHostMemory:
        return IHostMemory(self.content)


class IOptimizationProfile:
    __slots__ = ("shapes",)

    def __init__(self) -> None:
        self.shapes: dict[str, list[list[int]]] = {}

    def set_shape(self, input: str, min: tuple[int, ...], opt: tuple[int, ...], max: tuple[int, ...]) -> None:
        self.shapes[input] = [list(min), list(opt), list(max)]


class IBuilderConfig:
    __slots__ = ("_cache", "_flags", "_profiles", "builder_optimization_level")
    tf32_by_default = True

    def __init__(self, flags: type[enum.Enum]) -> None:
        self._flags = {flags["TF32"]} if self.tf32_by_default else set()
        self._cache: ITimingCache | None = None
        self._profiles: list[IOptimizationProfile] = []
        self.builder_optimization_level = 3

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        self._profiles.append(profile)
        return len(self._profiles) - 1

    def set_flag(self, flag: enum.Enum) -> None:
        self._flags.add(flag)

    def clear_flag(self, flag: enum.Enum) -> None:
        self._flags.discard(flag)

    def get_flag(self, flag: enum.Enum) -> bool:
        return flag in self._flags

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache | None:
        return None if serialized_timing_cache.startswith(b"damaged") else ITimingCache(serialized_timing_cache)

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        if cache.content.startswith(b"another GPU") and not ignore_mismatch:
            return False
        self._cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache | None:
        return self._cache


class Builder:
    __slots__ = ("_logger", "max_threads")
    flags: type[enum.Enum] = BuilderFlag
    strong = 1

    def __init__(self, logger: ILogger) -> None:
        self._logger, self.max_threads = logger, 0

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        return INetworkDefinition(flags)

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig(self.flags)

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> IHostMemory | None:
        read = network._read
        for error in read.get("builder_errors", []):
            self._logger.log(Severity.ERROR, error)
        self._logger.log(Severity.WARNING, "this is no error")
        if read.get("builder_errors"):
            return None
        profiles = [profile.shapes for profile in config._profiles]
        if any(size < 0 for told in read["inputs"].values() for size in told["shape"]) and not profiles:
            self._logger.log(Severity.ERROR, "Network has dynamic inputs, but no optimization profile was defined.")
            return None
        GPU.builds += 1
        if config._cache is None or not config._cache.content:
            GPU.timed_kernels += 1
        if config._cache is not None:
            config._cache.content = b"timings"
        asked = {
            "strong": bool(network._flags & 1 << self.strong),
            "flags": sorted(flag.name for flag in config._flags),
            "level": config.builder_optimization_level,
            "threads": self.max_threads,
            **({"profiles": profiles} if profiles else {}),
        }
        return IHostMemory(json.dumps({**read, "asked": asked}).encode())


class IExecutionContext:
    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self._addresses: dict[str, int] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._is_set_up = False
        GPU.alive.add(id(self))

    def __del__(self) -> None:
        GPU.alive.discard(id(self))

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        self._is_set_up = False
        return name not in self._engine._read.get("refused_buffers", ())

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        least, _, largest = self._engine._read["asked"]["profiles"][0][name]
        if not all(low <= size <= high for low, size, high in zip(least, shape, largest, strict=True)):
            self._engine._logger.log(Severity.ERROR, f"Dimensions {list(shape)} of {name} are not in its profile.")
            return False
        self._shapes[name] = shape
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        told: list[int] = self._engine._tensors[name]["shape"]
        first = next(iter(self._shapes.values()), ())
        return tuple(first[axis] if size < 0 and first else size for axis, size in enumerate(told))

    def execute_async_v3(self, stream_handle: int) -> bool:
        read = self._engine._read
        if GPU.capturing is not None and (read.get("cannot_be_captured") or not self._is_set_up):
            return False
        if read.get("cannot_run"):
            self._engine._logger.log(Severity.ERROR, read["cannot_run"])
            return False
        self._is_set_up = True
        # Addresses are those of the moment, as in a graph that replays them.
        GPU.enqueue(GPU.streams[stream_handle - 1], self._compute(dict(self._addresses)))
        return True

    def _compute(self, addresses: Mapping[str, int]) -> Callable[[], None]:
        def compute() -> None:
            first = next(iter(self._engine._read["inputs"]))
            value = self._array(first, addresses[first], shapes)
            for factor, name in enumerate(self._engine._read["outputs"], start=2):
                self._array(name, addresses[name], shapes)[...] = value * factor

        # Shapes are those of the moment, too.
        shapes = {name: self.get_tensor_shape(name) for name in self._engine._tensors}
        return compute

    def _array(self, name: str, address: int, shapes: Mapping[str, tuple[int, ...]]) -> np.ndarray[Any, Any]:
        kind = np.dtype(_NUMPY[self._engine._tensors[name]["type"]])
        size = int(np.prod(shapes[name])) * kind.itemsize
        memory = (ctypes.c_char * size).from_address(address)
        return np.frombuffer(memoryview(memory), kind).reshape(shapes[name])


class ICudaEngine:
    def __init__(self, read: Mapping[str, Any], logger: ILogger) -> None:
        self._read, self._logger = read, logger
        # Not in the order of the network.
        self._tensors = dict(reversed({**read["inputs"], **read["outputs"]}.items()))

    num_layers = 7

    @property
    def num_io_tensors(self) -> int:
        return len(self._tensors)

    def get_tensor_name(self, index: int) -> str:
        names: list[str] = list(self._tensors)
        return names[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self._read["inputs"] else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self._tensors[name]["type"]]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name]["shape"])

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.HOST if name in self._read.get("on_host", ()) else TensorLocation.DEVICE

    def create_execution_context(self) -> IExecutionContext | None:
        if said := self._read.get("no_context"):
            self._logger.log(Severity.ERROR, said)
            return None
        return IExecutionContext(self)


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
        read = json.loads(bytes(serialized_engine))
        return None if read.get("unreadable") else ICudaEngine(read, self._logger)


def tensorrt(version: str = "10.13.0", *, strong: bool = True) -> ModuleType:
    """Return the stand-in for TensorRT: 11 has no flags for precisions; without ``strong`` there is no strong typing.

    The classes in it are shared, so of two stand-ins the one made last counts.
    """
    module = ModuleType("tensorrt")
    of_11 = version.startswith("11")
    Builder.flags = BuilderFlag11 if of_11 else BuilderFlag
    creation: type[enum.IntEnum] = NetworkDefinitionCreationFlag11 if of_11 else NetworkDefinitionCreationFlag
    Builder.strong = int(creation["STRONGLY_TYPED"])
    if not strong:
        creation = WeakNetworkDefinitionCreationFlag
    classes = (TensorIOMode, TensorLocation, ILogger, Builder, OnnxParser, Runtime)
    module.__dict__.update({each.__name__: each for each in classes})
    module.__dict__.update(
        {"__version__": version, "NetworkDefinitionCreationFlag": creation, "BuilderFlag": Builder.flags}
    )
    return module


# What the adapter uses, by class, for whoever has the real binding.
USED: Mapping[str, tuple[str, ...]] = {
    "NetworkDefinitionCreationFlag": ("STRONGLY_TYPED",),
    "BuilderFlag": ("TF32",),
    "TensorIOMode": ("INPUT",),
    "TensorLocation": ("HOST",),
    "DataType": ("FLOAT", "HALF", "BF16", "INT8", "INT32", "INT64", "UINT8", "BOOL"),
    "ErrorCode": ("UNSUPPORTED_NODE",),
    "ILogger": ("INTERNAL_ERROR", "ERROR", "log"),
    "INetworkDefinition": ("num_inputs", "num_outputs", "get_input", "get_output"),
    "ITensor": ("name", "shape"),
    "OnnxParser": ("parse_from_file", "num_errors", "get_error"),
    "ParserError": ("code", "__str__"),
    "ITimingCache": ("serialize",),
    "IBuilderConfig": (
        "builder_optimization_level", "set_flag", "clear_flag", "get_flag", "create_timing_cache", "set_timing_cache",
        "get_timing_cache", "add_optimization_profile",
    ),
    "IOptimizationProfile": ("set_shape",),
    "Builder": (
        "max_threads", "create_network", "create_builder_config", "build_serialized_network",
        "create_optimization_profile",
    ),
    "Runtime": ("deserialize_cuda_engine",),
    "ICudaEngine": (
        "num_layers", "num_io_tensors", "get_tensor_name", "get_tensor_mode", "get_tensor_dtype", "get_tensor_shape",
        "get_tensor_location", "create_execution_context",
    ),
    "IExecutionContext": ("set_tensor_address", "execute_async_v3", "set_input_shape", "get_tensor_shape"),
}  # fmt: skip
# The functions of TensorRT's libraries that the binding cannot be loaded without.
ENTRY_POINTS = (
    "createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL", "createNvOnnxParser_INTERNAL", "getBuilderPluginRegistry",
    "getNvOnnxParserVersion", "getPluginRegistry", "initLibNvInferPlugins",
)  # fmt: skip
