"""A compiler from out of tree that fails on one operator; ``how`` says in which way, ``op`` on which."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Executable, Option
from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.machine import clock
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from pytest_ngraph.workloads.loaded import LoadedWorkload

HOWS = (
    "no",
    "refuses",
    "raises",
    "wrong",
    "wrong_pair",
    "wrong_on_large",
    "wrong_weights",
    "crashes",
    "slow",
    "a_bit",
    "flaky",
)
_NODE_NS, _SLOW_NS, _A_BIT = 40_000, 1_500_000, 10.0


class OneBad(Compiler):
    """ONNX Runtime without optimisations, but for an operator: it is refused, computed wrongly or waits."""

    name = "onebad"
    reads = "onnx"
    requires = ("onnxruntime", "onnx")
    options = (
        Option("how", "no", "How it fails", choices=HOWS),
        Option("op", "Tanh", "On which operator", kind="text"),
    )

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        import onnx

        model, how, op = onnx.load(workload.onnx_path), options["how"], options["op"]
        bad = [node for node in _nodes(model.graph) if node.op_type == op]
        if how == "refuses" and bad:
            raise Unsupported(f"onebad knows no operator {op} (node {bad[0].name!r} of {len(model.graph.node)})")
        if how == "raises" and bad:
            raise CompileFailed(f"onebad: {op} cannot be lowered")
        if how == "crashes" and bad:
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == "flaky" and not (mark := Path(os.environ["FLAKY"])).exists():
            mark.touch()
            raise CompileFailed("onebad: a bad day")
        wait_ns = _NODE_NS * len(model.graph.node) * (_A_BIT if how == "a_bit" else 1)
        wait_ns += _SLOW_NS * len(bad) if how == "slow" else 0
        if how == "wrong":
            _spoil(bad)
        if how == "wrong_weights" and _has_weights_of(model):
            _spoil(bad)
        if how == "wrong_pair":
            _spoil_pairs(model, op)
        clip = op if how == "wrong_on_large" else ""
        return _OneBad(model, int(wait_ns), clip)


class _OneBad(Executable):
    # One thread computes, and waits as null does.
    takes_own_time = True

    def __init__(self, model: onnx.ModelProto, wait_ns: int, clipped: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        if clipped:
            _clip(model, clipped)
        data = model.SerializeToString()
        self._session: Any = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self.placement = {"provider": "onebad", "threads": 1}
        self._wait_ns = wait_ns
        self._inputs: dict[str, np.ndarray] = {}
        self._outputs: list[np.ndarray] = []

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        self._inputs = dict(inputs)

    def run(self) -> None:
        end = clock.nanoseconds() + self._wait_ns
        self._outputs = self._session.run(None, self._inputs)
        while clock.nanoseconds() < end:
            pass

    def outputs(self) -> Sequence[np.ndarray]:
        return self._outputs


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _spoil(nodes: Sequence[onnx.NodeProto]) -> None:
    for node in nodes:
        node.op_type = "Sigmoid"


def _has_weights_of(model: onnx.ModelProto) -> bool:
    """Return whether a model has the weights that it is made with in ``cut_models``."""
    from onnx import numpy_helper

    from tests.support.cut_models import weight

    theirs = numpy_helper.to_array(weight("shared", 8, 8))
    return any(
        tuple(each.dims) == (8, 8) and bool((numpy_helper.to_array(each) == theirs).all())
        for each in model.graph.initializer
    )


def _spoil_pairs(model: onnx.ModelProto, op: str) -> None:
    """Spoil the operator where it reads what a MatMul gives: only the two together are wrong."""
    products = {node.output[0] for node in model.graph.node if node.op_type == "MatMul"}
    for node in model.graph.node:
        if node.op_type == op and node.input[0] in products:
            node.op_type = "Sigmoid"


def _clip(model: onnx.ModelProto, op: str) -> None:
    """Lose what is above a hundred of what the operator reads: right but for values that random inputs never have."""
    from onnx import helper

    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.initializer.append(helper.make_tensor("limit_of_clip", 1, [], [100.0]))
    for node in nodes:
        if node.op_type == op:
            clipped = f"{node.input[0]}_clipped"
            model.graph.node.append(helper.make_node("Min", [node.input[0], "limit_of_clip"], [clipped]))
            node.input[0] = clipped
        model.graph.node.append(node)


COMPILER = OneBad()
