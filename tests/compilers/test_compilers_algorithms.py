"""``tvm[algorithm=NAME]``: what each computes, what cannot take it, and that what is said of it is true."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.compilers.tvm.adapter import COMPILER
from pytest_ngraph.compilers.tvm.algorithms import ALGORITHMS, Convolution, tile_of, why_not
from pytest_ngraph.compilers.tvm.counting import Share
from pytest_ngraph.devices.evidence import Evidence
from pytest_ngraph.errors import SpecError
from pytest_ngraph.front.summary.notes import placement_lines
from pytest_ngraph.launches.client import Job
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support.workers import run_code

# What is asked for


def test_an_algorithm_that_is_misspelt_is_refused_with_those_there_are() -> None:
    with pytest.raises(SpecError) as caught:
        COMPILER.resolve(CompilerSpec.parse("tvm[algorithm=winogrand]"))

    assert str(caught.value) == (
        "compiler 'tvm[algorithm=winogrand]': option algorithm='winogrand' is not allowed (allowed: default, direct, "
        "gemm, winograd, spatial_pack)"
    )


def test_nothing_is_asked_for_by_default_and_tuning_is_another_matter() -> None:
    assert COMPILER.resolve(CompilerSpec.parse("tvm"))["algorithm"] == "default"
    options = COMPILER.resolve(CompilerSpec.parse("tvm[algorithm=gemm,trials=8]"))
    assert (options["algorithm"], options["tuned"], options["trials"]) == ("gemm", True, 8)
    assert not COMPILER.tunes(COMPILER.resolve(CompilerSpec.parse("tvm[algorithm=gemm]")))


def key(text: str, folder: Path) -> str | None:
    job = Job((), Device("local", (0,), 1), 0, folder / "artifacts", folder / "logs", {}, 60.0)
    cell = Cell("local", CompilerSpec.parse(text), Workload(parse_model("block:conv")))
    return Evidence(Catalogue(), job, PROTOCOLS["gate"], 0).key(cell)


def test_each_algorithm_is_a_cell_of_its_own_and_one_without_keeps_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = [key(text, tmp_path) for text in ("tvm", "tvm[untuned]", "tvm[trials=8]")]
    named = [key(of(algorithm), tmp_path) for algorithm in ALGORITHMS]

    assert None not in plain
    assert len({*plain, *named}) == len(plain) + len(named)
    monkeypatch.setattr(COMPILER, "options", [each for each in COMPILER.options if each.name != "algorithm"])
    assert [key(text, tmp_path) for text in ("tvm", "tvm[untuned]", "tvm[trials=8]")] == plain


@pytest.mark.parametrize("precision", ["f16", "int8"])
def test_it_is_computed_in_f32_only(precision: str) -> None:
    cell = Cell(
        "local", CompilerSpec.parse("tvm[algorithm=gemm]"), Workload(parse_model("block:conv"), precision=precision)
    )

    assert COMPILER.why_not(cell, Device()) == f"precision {precision} (it runs f32)"


def of(algorithm: str) -> str:
    return f"tvm[algorithm={algorithm}]"


# What cannot take it


def layer(
    out: int = 8,
    channels: int = 8,
    size: tuple[int, int] = (3, 3),
    *,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    constant: bool = True,
) -> Convolution:
    return Convolution(
        image=(1, channels, 9, 9),
        weights=(out, channels // groups, *size),
        result=(1, out, 9, 9),
        strides=(stride, stride),
        padding=(1, 1, 1, 1),
        dilation=(dilation, dilation),
        groups=groups,
        constant=constant,
    )


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (layer(), None),
        (layer(groups=8), "depthwise"),
        (layer(groups=2), "grouped"),
        (layer(size=(1, 1)), "of 1x1"),
        (layer(size=(1, 3)), "of 1x3"),
        (layer(stride=2), "of stride 2"),
        (layer(dilation=2), "of dilation 2"),
        (layer(constant=False), "with weights that the network computes"),
        (layer(out=1, channels=1), None),
    ],
)
def test_winograd_is_for_dense_convolutions_of_3x3_and_stride_1(what: Convolution, reason: str | None) -> None:
    assert why_not("winograd", what) == reason


def test_direct_takes_everything_and_the_others_all_that_has_constant_weights() -> None:
    odd = layer(size=(5, 5), stride=2, dilation=2, groups=4)

    assert [why_not(algorithm, odd) for algorithm in ("direct", "gemm", "spatial_pack")] == [None] * 3
    assert why_not("direct", layer(constant=False)) is None
    assert why_not("gemm", layer(constant=False)) == "with weights that the network computes"


@pytest.mark.parametrize(
    ("what", "lanes"),
    [
        (layer(out=64, channels=64), (16, 16)),
        (layer(out=24, channels=3), (3, 12)),
        (layer(out=24, channels=24, groups=24), (12, 12)),
        (layer(out=8, channels=8, groups=4), (2, 2)),
    ],
)
def test_channels_are_packed_in_the_largest_blocks_that_divide_them(what: Convolution, lanes: tuple[int, int]) -> None:
    assert what.lanes == lanes
    assert why_not("spatial_pack", what) is None


@pytest.mark.parametrize("what", [layer(out=1), layer(out=17), layer(out=4, channels=8, groups=4)])
def test_channels_that_no_block_divides_are_not_packed(what: Convolution) -> None:
    assert why_not("spatial_pack", what) == "with output channels that come in no blocks"


@pytest.mark.parametrize(
    ("height", "width", "side"), [(1, 1, 2), (2, 2, 2), (3, 3, 4), (4, 4, 4), (6, 2, 2), (7, 7, 4), (56, 56, 4)]
)
def test_the_tile_takes_the_fewest_multiplications(height: int, width: int, side: int) -> None:
    assert tile_of(height, width) == side


# What is said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Share(3, 1000), "3 of 3 convolutions, 100 % of MACs"),
        (Share(2, 999), "2 of 3 convolutions, 99 % of MACs"),
        (Share(1, 9), "1 of 3 convolutions, under 1 % of MACs"),
        (Share(1, 10), "1 of 3 convolutions, 1 % of MACs"),
    ],
)
def test_a_share_is_never_said_to_be_more_than_it_is(found: Share, said: str) -> None:
    assert found.of(Share(3, 1000)) == said


def test_the_summary_says_how_much_has_the_algorithm() -> None:
    placement = (("provider", "llvm"), ("precision", "f32"), ("threads", "1"), ("algorithm", "gemm for 1 of 2 ..."))
    report: Any = SimpleNamespace(
        record=SimpleNamespace(placement=placement),
        cell=Cell("local", CompilerSpec.parse(of("gemm")), Workload(parse_model("block:conv"))),
    )
    assert placement_lines([report], 80) == ["  ran tvm[algorithm=gemm]: llvm, f32, 1 thread, gemm for 1 of 2 ..."]


# On the runtime

TRY = """
import json, sys
import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from pytest_ngraph.compilers.tvm.importing import import_tvm
tvm = import_tvm()
from tvm.relax.frontend.onnx import from_onnx
from pytest_ngraph.compilers.tvm import algorithms
from pytest_ngraph.compilers.tvm.adapter import prepare
from pytest_ngraph.compilers.tvm.algorithms import ALGORITHMS, Choice
from pytest_ngraph.compilers.tvm.counting import convolutions, share_of
from pytest_ngraph.errors import Unsupported

draw = np.random.default_rng(0)
target = tvm.target.Target({"kind": "llvm", "mcpu": str(tvm.target.codegen.llvm_get_system_cpu())})

def drawn(*shape):
    return draw.normal(size=shape).astype("float32")

def network(nodes, weights, image, result):
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, image)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(each, name) for name, each in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return from_onnx(model, keep_params_in_input=False, sanitize_input_names=False)

def lowered(module, algorithm):
    choice = Choice(algorithm)
    module = prepare(module, target, choice)
    return module, choice.check(module)

def computed(module, image):
    with tvm.transform.PassContext(opt_level=3):
        built = tvm.relax.build(module, target=target, relax_pipeline=tvm.relax.get_pipeline("default"))
    return tvm.relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(image)).numpy()
"""
# name: batch, channels, height, width, out, kernel, strides, padding (top, left, bottom, right), dilation, groups
CASES: dict[str, tuple[Any, ...]] = {
    "3x3": (1, 3, 11, 13, 8, (3, 3), (1, 1), (1, 1, 1, 1), 1, 1),
    "3x3 without padding, batch 2": (2, 4, 9, 7, 6, (3, 3), (1, 1), (0, 0, 0, 0), 1, 1),
    "3x3 with uneven padding": (1, 4, 2, 3, 34, (3, 3), (1, 1), (0, 2, 1, 1), 1, 1),
    "3x3 of one pixel": (1, 4, 1, 1, 16, (3, 3), (1, 1), (1, 1, 1, 1), 1, 1),
    "3x3 of stride 2, batch 3": (3, 4, 8, 8, 8, (3, 3), (2, 2), (1, 1, 1, 1), 1, 1),
    "3x3 of two strides": (2, 4, 8, 9, 8, (3, 3), (1, 2), (0, 1, 2, 1), 1, 1),
    "3x3 of dilation 2": (2, 4, 12, 12, 10, (3, 3), (1, 1), (2, 2, 2, 2), 2, 1),
    "1x1": (2, 8, 7, 7, 16, (1, 1), (1, 1), (0, 0, 0, 0), 1, 1),
    "1x1 of stride 2": (2, 8, 7, 7, 16, (1, 1), (2, 2), (0, 0, 0, 0), 1, 1),
    "1x3": (1, 4, 6, 7, 8, (1, 3), (1, 1), (0, 1, 0, 1), 1, 1),
    "5x5": (2, 5, 12, 12, 10, (5, 5), (1, 1), (2, 2, 2, 2), 1, 1),
    "depthwise": (2, 8, 9, 9, 8, (3, 3), (1, 1), (1, 1, 1, 1), 1, 8),
    "depthwise of stride 2": (1, 24, 9, 9, 24, (5, 5), (2, 2), (2, 2, 2, 2), 1, 24),
    "depthwise into three each": (2, 6, 9, 9, 18, (3, 3), (2, 2), (1, 1, 1, 1), 1, 6),
    "grouped": (2, 8, 9, 9, 16, (3, 3), (1, 1), (1, 1, 1, 1), 1, 4),
}
COMPARE = """
found = {}
for name, case in json.loads(sys.argv[1]).items():
    batch, channels, height, width, out, size, strides, pads, dilation, groups = case
    weights = {"w": drawn(out, channels // groups, *size), "b": drawn(out)}
    image = drawn(batch, channels, height, width)
    padded = torch.nn.functional.pad(torch.tensor(image), (pads[1], pads[3], pads[0], pads[2]))
    expected = torch.nn.functional.conv2d(
        padded, *map(torch.tensor, weights.values()), stride=strides, dilation=dilation, groups=groups
    ).relu().numpy()
    nodes = [
        helper.make_node(
            "Conv", ["x", "w", "b"], ["y"], pads=pads, strides=strides, dilations=[dilation] * 2, group=groups
        ),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    module = network(nodes, weights, image.shape, expected.shape)
    macs = expected.size * weights["w"][0].size
    for algorithm in ALGORITHMS:
        try:
            kernels, said = lowered(module, algorithm)
        except Unsupported as refused:
            found[f"{name} {algorithm}"] = {"refused": str(refused)}
            continue
        error = abs(computed(kernels, image) - expected).max() / abs(expected).max()
        calls = [each for each, function in kernels.functions_items() if isinstance(function, tvm.tirx.PrimFunc)]
        found[f"{name} {algorithm}"] = {
            "error": float(error),
            "said": said,
            "kernels": len(calls),
            "macs": [macs, convolutions(module).macs, share_of(kernels, algorithm).macs],
            "others": [other for other in ALGORITHMS if other != algorithm and share_of(kernels, other).layers],
        }
print(json.dumps(found))
"""


def run(code: str, *arguments: str) -> Any:
    done = run_code("tvm", TRY + code, *arguments, variables={"TVM_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    """Every case by every algorithm, against PyTorch."""
    skip_without("tvm", "onnx", "torch")
    return run(COMPARE, json.dumps(CASES))  # type: ignore[no-any-return]


_NO_WINOGRAD = {
    "3x3 of stride 2, batch 3": "of stride 2",
    "3x3 of two strides": "of stride 2",
    "3x3 of dilation 2": "of dilation 2",
    "1x1": "of 1x1",
    "1x1 of stride 2": "of 1x1",
    "1x3": "of 1x3",
    "5x5": "of 5x5",
    "depthwise": "depthwise",
    "depthwise of stride 2": "depthwise",
    "depthwise into three each": "grouped",
    "grouped": "grouped",
}


@pytest.mark.real
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("case", CASES)
def test_each_computes_what_pytorch_does(compared: dict[str, Any], case: str, algorithm: str) -> None:
    found = compared[f"{case} {algorithm}"]
    if algorithm == "winograd" and case in _NO_WINOGRAD:
        assert found["refused"] == (
            f"algorithm winograd: not to be had for its only convolution of the network: 1 {_NO_WINOGRAD[case]}"
        )
        return
    # Bias and activation are in the same kernel, as they are by default, and its loops are of this algorithm only.
    assert (found["kernels"], found["others"]) == (1, [])
    assert found["said"] == {"algorithm": f"{algorithm} for 1 of 1 convolution, 100 % of MACs"}
    assert found["macs"] == found["macs"][:1] * 3
    assert found["error"] < 1e-5


COUNTED = """
kernel = drawn(8, 8, 3, 3)
convolution = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
transposed = helper.make_node("ConvTranspose", ["y", "w"], ["z"], pads=[1, 1, 1, 1])
strided = helper.make_node("Conv", ["y", "w"], ["z"], pads=[1, 1, 1, 1], strides=[2, 2])
relu, image, half = helper.make_node("Relu", ["y"], ["z"]), [1, 8, 6, 6], [1, 8, 3, 3]
scores = helper.make_node("MatMul", ["x", "x"], ["y"])
named = "lowered"
found = {}

def say(name, module, algorithm):
    try:
        kernels, said = lowered(module, algorithm)
        found[name] = [*said.values(), sorted(v.name_hint for v, f in kernels.functions_items() if f is not None)]
    except Unsupported as refused:
        found[name] = str(refused)

say("both", network([convolution, strided], {"w": kernel}, image, half), "winograd")
say("upwards", network([convolution, transposed], {"w": kernel}, image, image), "direct")
only = helper.make_node("ConvTranspose", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
say("only upwards", network([only, relu], {"w": kernel}, image, image), "direct")
line = helper.make_node("Conv", ["x", "v"], ["y"], pads=[1, 1])
say("line", network([line, relu], {"v": kernel[:, :, 0]}, [1, 8, 6], [1, 8, 6]), "gemm")
say("products", network([scores, relu], {}, image, image), "gemm")
say("products beside", network(
    [convolution, helper.make_node("MatMul", ["y", "x"], ["z"])], {"w": kernel}, image, image
), "gemm")
doubled = [helper.make_node("Mul", ["w", "x"], ["v"]), helper.make_node("Conv", ["x", "v"], ["z"])]
say("computed weights", network(doubled, {"w": drawn(6, 8, 1, 1)}, [1, 8, 1, 1], [1, 6, 1, 1]), "gemm")
two = [convolution, helper.make_node("Conv", ["y", "w"], ["z"], pads=[1, 1, 1, 1])]
say("twice the same", network(two, {"w": kernel}, image, image), "spatial_pack")

# Whoever writes a kernel may call it what he likes.
def pretended(builder, image, weights, layer):
    from tvm import relax, topi
    return builder.call_te(
        topi.nn.conv, image, relax.const(weights), layer.strides, list(layer.padding), layer.dilation, layer.groups,
        "NCHW", "OIHW", primfunc_name_hint=f"conv2d_{named}",
    )

for named in ("gemm", "winograd", "spatial_pack"):
    algorithms._WRITERS[named] = pretended
    say(f"pretended {named}", network([convolution, relu], {"w": kernel}, image, image), named)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def counted() -> dict[str, Any]:
    """What is said of networks in which something else than a convolution looks like one, or pretends to be."""
    skip_without("tvm", "onnx", "torch")
    return run(COUNTED)  # type: ignore[no-any-return]


@pytest.mark.real
def test_what_cannot_take_it_stays_and_is_counted(counted: dict[str, Any]) -> None:
    said, left, kernels = counted["both"]

    # 36 results and 9, each of 72 multiplications.
    assert (said, left) == ("winograd for 1 of 2 convolutions, 80 % of MACs", "1 of stride 2")
    assert kernels == ["conv2d", "conv2d_winograd", "main"]


@pytest.mark.real
def test_a_kernel_that_is_called_twice_is_two_convolutions(counted: dict[str, Any]) -> None:
    said, kernels = counted["twice the same"]

    assert said == "spatial_pack for 2 of 2 convolutions, 100 % of MACs"
    assert kernels == ["conv2d_spatial_pack", "main"]


@pytest.mark.real
@pytest.mark.parametrize("algorithm", ["gemm", "winograd", "spatial_pack"])
def test_what_falls_back_everywhere_is_not_what_it_is_called(counted: dict[str, Any], algorithm: str) -> None:
    assert counted[f"pretended {algorithm}"].startswith(
        f"algorithm {algorithm}: not to be had for its only convolution"
    )


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "only upwards",
            "algorithm direct: not to be had for its only convolution of the network: not of two dimensions",
        ),
        ("line", "algorithm gemm: not to be had for its only convolution of the network: not of two dimensions"),
        ("products", "algorithm gemm: the network has no convolution"),
        (
            "computed weights",
            "algorithm gemm: not to be had for its only convolution of the network: 1 with weights that the network "
            "computes",
        ),
    ],
)
def test_other_convolutions_and_products_are_none(counted: dict[str, Any], name: str, said: str) -> None:
    assert counted[name] == said


@pytest.mark.real
def test_a_transposed_convolution_counts_but_never_as_one_that_has_the_algorithm(counted: dict[str, Any]) -> None:
    assert counted["upwards"][0] == "direct for 1 of 2 convolutions, 50 % of MACs"


@pytest.mark.real
def test_a_product_of_matrices_beside_it_is_not_the_convolution(counted: dict[str, Any]) -> None:
    assert counted["products beside"][0] == "gemm for 1 of 1 convolution, 100 % of MACs"
