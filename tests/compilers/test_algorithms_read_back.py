"""What oneDNN and OpenVINO say of how they compute convolutions and products of matrices."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pytest_ngraph.compilers.torch.onednn import used
from tests.conftest import skip_without
from tests.support.workers import run_code

EXECUTED = "primitive,exec,cpu,{},forward_training,src:f32:a:blocked:aBcd16b::f0,attr-scratchpad:user,,mb1_ic3,0.11"


def test_what_onednn_executes_is_counted_by_kind_and_implementation() -> None:
    lines = [f"onednn_verbose,v1,{EXECUTED.format(each)}" for each in (
        "convolution,jit_dw:avx2", "convolution,jit_dw:avx2", "reorder,jit:uni", "matmul,brg_matmul:avx2", "eltwise,jit"
    )]  # fmt: skip
    assert used(lines) == "convolution jit_dw:avx2 2, matmul brg_matmul:avx2 1"


def test_lines_of_older_versions_are_read_too() -> None:
    lines = [
        "onednn_verbose,exec,cpu,convolution,brgconv:avx512_core,forward_training",
        "onednn_verbose,info,cpu,isa:AVX",
    ]
    assert used(lines) == "convolution brgconv:avx512_core 1"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "onednn_verbose",
        "onednn_verbose,v1,primitive,exec",
        "onednn_verbose,v1,primitive,exec,cpu,convolution",
        "onednn_verbose,v1,primitive,create:cache_miss,cpu,convolution,jit:avx2",
        "onednn_verbose,v1,graph,exec,cpu,100002,convolution,jit",
        "onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation",
        "a line of the model's own, exec,cpu,convolution,jit",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert used([line]) == ""


LISTEN = """
import json, os, sys
from types import SimpleNamespace
import numpy as np
import torch
from pytest_ngraph.compilers.torch.shared import Place, executable_for

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.calls = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8), 0

    def forward(self, images):
        self.calls += 1
        os.write(1, b"a word of the model\\n")
        if sys.argv[1] == "fails" and self.calls == 2:
            raise ValueError("the second call")
        return self.net(images)

net = Net().eval()
place = Place("cpu", torch.device("cpu"), 1, 1, False)
workload = SimpleNamespace(
    spec=SimpleNamespace(scenario="latency"),
    arguments=lambda inputs: ([torch.from_numpy(inputs["images"])], {}),
    flatten=lambda result: [result],
)
executable = executable_for(net, workload, place, {"provider": "first"})
executable.placement = {**executable.placement, "cache": "warm"}
before = [net.calls, dict(executable.placement)]
executable.bind({"images": np.ones((2, 8, 6, 6), "float32")})
executable.run()
result = executable._result
try:
    placements = [dict(executable.placement) for _ in range(2)]
except ValueError as error:
    placements = str(error)
said = [before, placements, net.calls, executable._result is result]
executable.run()
os.write(2, json.dumps(said).encode())
"""


def listened(how: str, **variables: str) -> tuple[Any, str]:
    """Return what the code found, and what it left on standard output."""
    skip_without("torch")
    done = run_code("torch", LISTEN, how, variables={"OMP_NUM_THREADS": "1", **variables})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr[done.stderr.index("[") :]), done.stdout


@pytest.mark.real
def test_pytorch_is_asked_once_in_a_call_of_its_own_and_nothing_is_printed() -> None:
    (before, placements, calls, same), printed = listened("works")

    assert before == [0, {"provider": "first", "cache": "warm"}]
    assert placements[0] == placements[1]
    assert (calls, same) == (2, True)
    # The call before and the call after.
    assert printed == 2 * "a word of the model\n"
    if placements[0]["algorithms"] != "none of oneDNN":
        assert re.fullmatch(r"oneDNN convolution \S+ 1", placements[0]["algorithms"])


@pytest.mark.real
def test_where_the_call_fails_standard_output_is_as_before() -> None:
    (_, placements, _, same), printed = listened("fails")

    assert (placements, same) == ("the second call", True)
    assert printed == 2 * "a word of the model\n"


@pytest.mark.real
def test_whoever_listens_himself_is_left_alone() -> None:
    (_, placements, calls, _), printed = listened("works", ONEDNN_VERBOSE="1")

    assert placements == 2 * [{"provider": "first", "cache": "warm"}]
    assert (calls, printed.count("a word of the model\n")) == (1, 2)


OPENVINO = """
import json
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from pytest_ngraph.compilers.openvino import OpenVinoExecutable, _import_openvino

openvino = _import_openvino()
draw = np.random.default_rng(0)
weights = {
    "a": draw.normal(size=(8, 8, 3, 3)), "b": draw.normal(size=(8, 1, 3, 3)), "c": draw.normal(size=(288, 4)),
    "shape": np.array([1, 288]),
}
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["x", "a"], ["dense"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["dense", "b"], ["apart"], pads=[1, 1, 1, 1], group=8),
        helper.make_node("Reshape", ["apart", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "c"], ["z"]),
    ],
    "net",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 6, 6])],
    [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 4])],
    [numpy_helper.from_array(each.astype("int64" if name == "shape" else "float32"), name)
     for name, each in weights.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
core = openvino.Core()
network = core.read_model(model.SerializeToString(), b"")
compiled = core.compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
nodes = [node.get_rt_info()["primitiveType"].astype(str) for node in compiled.get_runtime_model().get_ops()]
print(json.dumps([OpenVinoExecutable(compiled, "f32").placement["algorithms"], nodes]))
"""


@pytest.mark.real
def test_openvino_says_what_computes_convolutions_and_products() -> None:
    skip_without("openvino", "onnx")
    done = run_code("openvino", OPENVINO)
    assert done.returncode == 0, done.stderr
    said, nodes = json.loads(done.stdout)

    found = {name: int(count) for name, count in (each.rsplit(" ", 1) for each in said.split(", "))}
    assert sum(found.values()) == 3
    assert all(nodes.count(name) >= count for name, count in found.items())
