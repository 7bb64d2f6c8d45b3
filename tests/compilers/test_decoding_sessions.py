"""ONNX Runtime's two sessions of a cell that decodes, on a pretended GPU: where prompt and token run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.compilers.onnxruntime import adapter, providers
from pytest_ngraph.errors import Unsupported
from pytest_ngraph.spec.cells import CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model

GPU = Device("cuda:0", threads=2, accelerator="cuda:0")
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class Session:
    """A session of the prompt, or of a token, whose nodes went to these providers."""

    def __init__(self, nodes: Mapping[str, int], inputs: Mapping[str, tuple[str, list[int]]]) -> None:
        self.nodes = Counter({(provider, "MatMul"): count for provider, count in nodes.items()})
        self.inputs = [SimpleNamespace(name=name, type=kind, shape=shape) for name, (kind, shape) in inputs.items()]

    def get_inputs(self) -> list[SimpleNamespace]:
        return self.inputs

    def get_providers(self) -> list[str]:
        return [CUDA, CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {CUDA: {"use_tf32": "0"}}

    def get_session_options(self) -> SimpleNamespace:
        mode = SimpleNamespace(name="ORT_SEQUENTIAL")
        level = SimpleNamespace(name="ORT_ENABLE_ALL")
        return SimpleNamespace(intra_op_num_threads=2, graph_optimization_level=level, execution_mode=mode)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Mapping[str, str | int]]:
    """Give a function that compiles a cell that decodes, and returns where its sessions say that they run."""
    runtime = ModuleType("onnxruntime")
    runtime.__dict__.update(
        __version__="1.31.1",
        GraphOptimizationLevel=SimpleNamespace(ORT_ENABLE_ALL=SimpleNamespace(name="ORT_ENABLE_ALL")),
        get_available_providers=lambda: [CUDA, CPU],
        set_default_logger_severity=lambda severity: None,
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    monkeypatch.setattr(providers, "make_ready", lambda key: None)
    monkeypatch.setattr(providers, "nodes_of", lambda session: session.nodes)

    def compile_it(
        prompt: Mapping[str, int], token: Mapping[str, int], text: str = "", cache: str = "float"
    ) -> Mapping[str, str | int]:
        sessions = {
            False: Session(prompt, {"ids": ("tensor(int64)", [2, 5])}),
            True: Session(token, {"token": ("tensor(int64)", [2, 1]), "cache_0": (f"tensor({cache})", [2, 9, 32])}),
        }
        monkeypatch.setattr(adapter._Setup, "open", lambda setup, *adjust: sessions[setup.is_step])
        spec = Workload(parse_model("block:conv"), 2, decode=4)
        inputs = {"ids": np.zeros((2, 5), np.int64), "next_tokens": np.zeros((2, 4), np.int64)}
        workload: Any = SimpleNamespace(
            spec=spec, open_axes={}, is_bucket=False, graph_precision="f32", kept=None, inputs=inputs
        )
        options = adapter.COMPILER.resolve(CompilerSpec.parse(f"onnxruntime{text}"))
        return adapter.COMPILER.compile(workload, GPU, options).placement

    return compile_it


def test_both_sessions_say_where_they_run(compiled: Callable[..., Any]) -> None:
    placement = compiled({CUDA: 40}, {CUDA: 31})
    assert (placement["nodes"], placement["nodes_of_a_token"]) == (f"{CUDA}:40", f"{CUDA}:31")


def test_nodes_that_a_token_leaves_to_the_cpu_are_shown(compiled: Callable[..., Any]) -> None:
    placement = compiled({CUDA: 40}, {CUDA: 30, CPU: 9}, "[fallback=on]")
    assert (placement["nodes"], placement["nodes_of_a_token"]) == (f"{CUDA}:40", f"{CUDA}:30,{CPU}:9")


@pytest.mark.parametrize(
    ("prompt", "token", "said"),
    [
        ({CUDA: 40}, {CPU: 39}, f"onnxruntime 1.31.1: a token: {CUDA} takes 0 of the 39 nodes, not MatMul"),
        ({CPU: 40}, {CUDA: 39}, f"onnxruntime 1.31.1: {CUDA} takes 0 of the 40 nodes, not MatMul"),
    ],
)
def test_a_part_of_which_the_gpu_takes_nothing_is_refused(
    compiled: Callable[..., Any], prompt: Mapping[str, int], token: Mapping[str, int], said: str
) -> None:
    with pytest.raises(Unsupported) as refused:
        compiled(prompt, token, "[fallback=on]")
    assert str(refused.value) == said


def test_older_versions_are_asked_by_a_call_of_each(
    compiled: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[dict[str, tuple[int, ...]]] = []

    def profiled(open_session: Callable[..., Session], inputs_of: Callable[[Session], Mapping[str, Any]]) -> Any:
        session = open_session()
        called.append({name: array.shape for name, array in inputs_of(session).items()})
        return session.nodes

    monkeypatch.setattr(providers, "nodes_of", lambda session: None)
    monkeypatch.setattr(providers, "profiled_nodes", profiled)
    placement = compiled({CUDA: 40}, {CUDA: 30, CPU: 9}, "[fallback=on]")
    assert called == [{"ids": (2, 5)}, {"token": (2, 1), "cache_0": (2, 9, 32)}]
    assert placement["nodes_of_a_token"] == f"{CUDA}:30,{CPU}:9"


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Have ONNX Runtime say nothing without a call, and collect the kinds of what it is called with."""
    kinds: list[dict[str, Any]] = []

    def profiled(open_session: Callable[..., Session], inputs_of: Callable[[Session], Mapping[str, Any]]) -> Any:
        session = open_session()
        kinds.append({name: str(array.dtype) for name, array in inputs_of(session).items()})
        return session.nodes

    monkeypatch.setattr(providers, "nodes_of", lambda session: None)
    monkeypatch.setattr(providers, "profiled_nodes", profiled)
    return kinds


@pytest.mark.parametrize(
    ("cache", "kind"),
    [("float16", "float16"), ("double", "float64"), ("bool", "bool"), ("int32", "int32"), ("uint8", "uint8")],
)
def test_a_cache_may_be_of_any_kind_of_numbers(
    compiled: Callable[..., Any], older: list[dict[str, Any]], cache: str, kind: str
) -> None:
    compiled({CUDA: 40}, {CUDA: 30, CPU: 9}, "[fallback=on]", cache)
    assert older[1] == {"token": "int64", "cache_0": kind}


def test_a_cache_that_numpy_knows_nothing_of_is_refused_by_its_name(
    compiled: Callable[..., Any], older: list[dict[str, Any]]
) -> None:
    with pytest.raises(Unsupported, match=r"a token takes cache_0 as tensor\(bfloat16\), which NumPy has none of"):
        compiled({CUDA: 40}, {CUDA: 30}, "[fallback=on]", "bfloat16")
