"""Compilers that work ahead of time - ExecuTorch, IREE, AOTInductor: what they load, read back, refuse and say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.compilers import executorch, iree
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.compilers.toolkit import torch_cuda
from pytest_ngraph.compilers.toolkit.kept import built
from pytest_ngraph.compilers.torch import ahead, inductor
from pytest_ngraph.conformance.cases import Case
from pytest_ngraph.conformance.laboratory import Laboratory
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.onnx_files import tensors
from tests.conftest import skip_without
from tests.support import workers

MODELS = "pytest_ngraph.conformance.models"
CONV = Case("conv", f"{MODELS}:ConvNet", batches=(2,))
BROKEN = Case("graph-break", f"{MODELS}:GraphBreak", batches=(2,))


def node(name: str, op: str = "call_function") -> SimpleNamespace:
    return SimpleNamespace(op=op, target=SimpleNamespace(__name__=name))


def part(*names: str, backend: str = "XnnpackBackend") -> SimpleNamespace:
    inside = SimpleNamespace(graph=SimpleNamespace(nodes=[node(name) for name in names]))
    return SimpleNamespace(backend_id=backend, original_module=SimpleNamespace(graph_module=inside))


def lowered(*names: str, parts: Mapping[str, SimpleNamespace] | None = None) -> SimpleNamespace:
    nodes = [node("x", "placeholder"), *(node(name) for name in names), node("output", "output")]
    return SimpleNamespace(graph=SimpleNamespace(nodes=nodes), named_children=lambda: list((parts or {}).items()))


def test_nodes_are_counted_where_they_compute_and_not_where_values_are_handed_on() -> None:
    both = {"a": part("aten.linear.default", "getitem", "aten.relu.default"), "b": part("aten.gelu.default")}
    given = lowered("executorch_call_delegate", "getitem", "aten.argmax.default", parts=both)
    assert executorch._nodes(given) == (3, 1)


def test_what_was_delegated_elsewhere_or_not_at_all_is_none_of_xnnpacks() -> None:
    given = lowered("aten.argmax.default", parts={"a": part("aten.relu.default", backend="CoreMLBackend")})
    assert executorch._nodes(given) == (0, 1)
    assert executorch._said(0, 7, 0) == "none of 7 nodes"
    assert executorch._said(6, 1, 2) == "6 of 7 nodes, in 2 parts"


@pytest.mark.parametrize(("asked", "got"), [(1, 2), (2, 1)])
def test_a_pool_of_other_threads_than_were_given_is_no_cell(
    asked: int, got: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "model.vmfb").write_bytes(b"module")
    monkeypatch.setattr(iree, "_Loaded", lambda device, path: None)
    monkeypatch.setattr(iree, "_device", lambda threads: None)
    monkeypatch.setattr(iree, "_threads", lambda driver: got)
    monkeypatch.setattr(iree, "_build", lambda workload, level, folder: {"inputs": []})
    kept = SimpleNamespace(built=lambda compiler, facts, build: (tmp_path, build(tmp_path), False))
    workload: Any = SimpleNamespace(kept=kept, graph_precision="f32")
    with pytest.raises(CompileFailed, match=f"asked for {asked} threads, its pool has {got}"):
        iree.COMPILER.compile(workload, Device(threads=asked), {"threads": 0, "level": "O3"})

    pool = SimpleNamespace(_threadpool_get_thread_count=lambda: got, _unsafe_reset_threadpool=lambda threads: None)
    with pytest.raises(CompileFailed, match=f"asked for {asked} threads, its pool has {got}"):
        executorch._settle(pool, asked)


def test_what_iree_cannot_lower_is_named_and_any_other_failure_is_one() -> None:
    said = (
        "Error invoking IREE compiler tool iree-compile\nError code: 1\nDiagnostics:\n"
        "m.mlirbc:3:10: error: failed to legalize operation 'torch.operator' that was explicitly marked illegal\n"
        '    %1 = torch.operator "onnx.RoiAlign"(%0)'
    )
    found = iree._failure(said)
    assert isinstance(found, Unsupported)
    assert "cannot compile onnx.RoiAlign: failed to legalize operation 'torch.operator'" in str(found)
    generic = (
        """m:1:1: error: failed to legalize operation 'torch.operator': "torch.operator"(%0) <{name = "onnx.X"}>"""
    )
    assert "cannot compile onnx.X: " in str(iree._failure(generic))
    other = iree._failure("Error invoking iree-compile\nm.mlirbc:1:1: error: out of stack\nmore")
    assert isinstance(other, CompileFailed)
    assert str(other).endswith(": out of stack")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"iree", "iree.runtime"}, 'iree.compiler not installed (pip install "pytest-ngraph[iree]")'),
        ({"iree"}, "iree.compiler and iree.runtime not installed"),
        (set(), 'not installed (pip install "pytest-ngraph[iree]")'),
        ({"iree", "iree.compiler", "iree.runtime"}, ""),
    ],
)
def test_half_of_iree_is_not_iree(there: set[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> ModuleSpec | None:
        return ModuleSpec(name, None) if name in there else None

    monkeypatch.setattr("pytest_ngraph.compilers.base.find_spec", find)
    monkeypatch.setattr(iree, "find_spec", find)
    found = iree.COMPILER.missing() or ""
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_package_is_for_one_shape_no_graph_of_cuda_and_has_no_profile() -> None:
    dynamic = Cell("local", CompilerSpec.parse("inductor[aot]"), Workload(parse_model("block:conv"), shapes="dynamic"))
    assert "neither dynamic ones nor decode" in (inductor.COMPILER.why_not(dynamic, Device()) or "")
    decoding = replace(dynamic, workload=replace(dynamic.workload, shapes="static", decode=2))
    assert "neither dynamic ones nor decode" in (inductor.COMPILER.why_not(decoding, Device()) or "")
    for adapter in (executorch.COMPILER, iree.COMPILER):
        assert adapter.why_not(dynamic, Device()) == "shapes dynamic (it runs static)"
    spec = CompilerSpec.parse("inductor[aot,mode=reduce-overhead]")
    cell = Cell("cuda", spec, Workload(parse_model("block:conv")))
    on_gpu = inductor.COMPILER.why_not(cell, Device("cuda", accelerator="cuda:0")) or ""
    assert "a package made ahead of time has none of" in on_gpu or "is built without CUDA" in on_gpu
    assert "CUDA graphs" in (inductor.COMPILER.why_not(cell, Device()) or "")
    nothing: Any = None
    with pytest.raises(Unsupported, match=r"inductor\[aot\]: a package has no marks of its kernels"):
        inductor.COMPILER.explain(nothing, Device(), {"aot": True}, nothing, 3)


def test_a_model_of_more_weights_than_one_message_holds_is_none_of_irees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("onnx")
    import onnx
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 400]) for name in "xy"]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [400], bytes(1600), raw=True)
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "graph", value[:1], value[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "model.onnx")
    assert [each.name for each in iree._read(tmp_path / "model.onnx").graph.input] == ["x"]
    monkeypatch.setattr(tensors, "_MOST_INLINE_BYTES", 1000)
    with pytest.raises(Unsupported, match="more than 2 GB of weights"):
        iree._read(tmp_path / "model.onnx")


def load_with(monkeypatch: pytest.MonkeyPatch, load: Callable[..., Any], index: int | None, in_flight: int) -> Any:
    """Load a package by this function of a PyTorch that pretends to be there, on a GPU of this index."""
    package = ModuleType("torch._inductor.package")
    package.__dict__["load_package"] = load
    for name in ("torch", "torch._inductor"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "torch._inductor.package", package)
    place: Any = SimpleNamespace(in_flight=in_flight, device=SimpleNamespace(index=index))
    return ahead._loaded(Path("model.pt2"), place)


def test_a_package_is_loaded_with_what_this_pytorch_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def told(**given: Any) -> Any:
        asked.append(given)
        return SimpleNamespace(loader=SimpleNamespace(run=lambda tensors: [sum(tensors)]))

    def of_2_6(path: str, model_name: str = "model", run_single_threaded: bool = False) -> Any:
        return told()

    def of_2_7(path: str, model_name: str = "model", run_single_threaded: bool = False, num_runners: int = 1) -> Any:
        return told(num_runners=num_runners)

    def of_2_8(path: str, model_name: str = "model", num_runners: int = 1, device_index: int = -1) -> Any:
        return told(num_runners=num_runners, device_index=device_index)

    for load in (of_2_6, of_2_7, of_2_8):
        for index in (None, 0):
            assert load_with(monkeypatch, load, index, 1)(1, 2, key=3) == [6]
    assert asked == [
        {}, {}, {"num_runners": 1}, {"num_runners": 1},
        {"num_runners": 1, "device_index": -1}, {"num_runners": 1, "device_index": 0},
    ]  # fmt: skip
    asked.clear()
    load_with(monkeypatch, of_2_7, None, 4)
    load_with(monkeypatch, of_2_8, 1, 4)
    assert asked == [{"num_runners": 4}, {"num_runners": 4, "device_index": 1}]
    monkeypatch.setattr(ahead, "version_of", lambda name: "2.6.0")
    said = r"inductor\[aot\]: torch 2\.6\.0 loads no package with "
    with pytest.raises(Unsupported, match=f"{said}num_runners=4, a newer one does"):
        load_with(monkeypatch, of_2_6, None, 4)
    for load in (of_2_6, of_2_7):
        with pytest.raises(Unsupported, match=f"{said}device_index=1, a newer one does"):
            load_with(monkeypatch, load, 1, 1)


def test_a_package_for_a_gpu_is_of_its_triton_and_one_for_a_cpu_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Mapping[str, Any]] = []

    @contextmanager
    def kept(shelf: Any, compiler: str, facts: Mapping[str, Any], build: Any) -> Iterator[Any]:
        seen.append(facts)
        (tmp_path / "model.pt2").write_bytes(b"package")
        yield tmp_path, {}, True

    monkeypatch.setattr(ahead, "built", kept)
    monkeypatch.setattr(ahead, "load_module", lambda workload, place: None)
    monkeypatch.setattr(ahead, "describe", lambda module, workload, place: {"version": "2.13.0"})
    monkeypatch.setattr(ahead, "_loaded", lambda path, place: None)
    monkeypatch.setattr(ahead, "executable_for", lambda *given: SimpleNamespace())
    workload: Any = SimpleNamespace(kept=None)
    for version in ("3.5.0", "3.6.0"):
        monkeypatch.setattr(torch_cuda, "version_of", {"triton": version}.get)
        for accelerator in ("cuda:0", "cpu"):
            place: Any = SimpleNamespace(accelerator=accelerator)
            ahead.compile_ahead(workload, place, {"freezing": True}, {"mode": "default"})
    plain = {"version": "2.13.0", "mode": "default", "settings": {"freezing": "True"}}
    assert seen == [{**plain, "triton": "3.5.0"}, plain, {**plain, "triton": "3.6.0"}, plain]


def test_what_is_built_where_nothing_is_kept_lasts_as_long_as_it_is_used() -> None:
    def build(folder: Path) -> Mapping[str, Any]:
        (folder / "program").write_bytes(b"1")
        return {"nodes": 1}

    with built(None, "mine", {}, build) as (folder, meta, loaded):
        assert ((folder / "program").read_bytes(), meta, loaded) == (b"1", {"nodes": 1}, False)
    assert not folder.exists()


@pytest.fixture(scope="module")
def examine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., dict[str, Any]]]:
    laboratory = Laboratory(Catalogue(), tmp_path_factory.mktemp("ahead"))

    def examine(text: str, case: Case = CONV, **kwargs: Any) -> dict[str, Any]:
        answer = workers.examined(laboratory, CompilerSpec.parse(text), case, **kwargs)
        assert not any(answer.get("found", {}).values()), answer["found"]
        assert not answer.get("stdout")
        return answer

    with workers.forking_conformance():
        yield examine


@pytest.mark.real
def test_inductor_builds_a_package_once_and_loads_it(examine: Callable[..., dict[str, Any]]) -> None:
    skip_without("torch")
    first, second = (examine("inductor[aot]", process=process) for process in (0, 1))
    assert (first["loaded"], second["loaded"]) == (False, True)
    assert (first["placement"]["package"], second["placement"]["package"]) == ("built", "loaded")
    assert (first["placement"]["guards"], first["placement"]["threads"]) == ("none", 1)


@pytest.mark.real
def test_executorch_says_what_xnnpack_took(examine: Callable[..., dict[str, Any]]) -> None:
    skip_without("torch", "executorch")
    first, second = (examine("executorch", process=process) for process in (0, 1))
    assert (first["loaded"], second["loaded"]) == (False, True)
    # XNNPACK's partitioner leaves the mean over two dimensions to a portable kernel where it is not kept.
    assert first["placement"]["provider"] == "XnnpackBackend+portable kernels"
    assert first["placement"]["delegated"] == "12 of 13 nodes, in 2 parts"
    assert first["placement"]["kernels"] == "aten::mean 1"
    assert second["placement"]["threads"] == 1
    assert examine("executorch", BROKEN)["unsupported"].startswith("torch.export cannot take the whole graph")


@pytest.mark.real
@pytest.mark.parametrize("threads", [1, 2])
def test_iree_runs_on_the_threads_that_it_is_given(examine: Callable[..., dict[str, Any]], threads: int) -> None:
    skip_without("iree", "onnxscript")
    found = examine("iree", threads=threads)["placement"]
    driver = "local-sync" if threads == 1 else "local-task"
    assert (found["provider"], found["threads"], found["precision"]) == (f"llvm-cpu on {driver}", threads, "f32")
