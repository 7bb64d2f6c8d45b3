"""ONNX files with something wrong in each, written by onnx's helper where it writes such, else by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

Write = Callable[[Path], None]


def _model(nodes: list[Any], weights: list[Any] = [], opset: int = 17, outputs: tuple[str, ...] = ("y",)) -> Any:  # noqa: B006
    from onnx import TensorProto, helper

    def value(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4])

    graph = helper.make_graph(nodes, "graph", [value("x")], [value(name) for name in outputs], weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.mine", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _save(path: Path, model: Any) -> None:
    path.write_bytes(model.SerializeToString())


def sound(path: Path) -> None:
    from onnx import helper

    _save(path, _model([helper.make_node("Relu", ["x"], ["y"])]))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("# a model card, saved under the wrong name\n")


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(4096))


def cut(path: Path) -> None:
    sound(path)
    path.write_bytes(path.read_bytes()[:-20])


def nested(path: Path) -> None:
    """Subgraphs in subgraphs, 20,000 deep: a file of some 200 KB that a careless reader recurses into."""
    data = b""
    for _ in range(20_000):  # ModelProto.graph.node.attribute.g.node.attribute.g ...
        for tag in (b"\x32", b"\x2a", b"\x0a"):  # g of an attribute, attribute of a node, node of a graph
            data = tag + _length(len(data)) + data
        if len(data) > 200_000:
            break
    path.write_bytes(b"\x3a" + _length(len(data)) + data)


def _length(number: int) -> bytes:
    said = b""
    while number > 127:
        said += bytes([number & 127 | 128])
        number >>= 7
    return said + bytes([number])


def cyclic(path: Path) -> None:
    from onnx import helper

    _save(
        path,
        _model(
            [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"])], [], 17, ("b",)
        ),
    )


def _weight(dims: list[int], data: bytes) -> Any:
    from onnx import TensorProto

    return TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=data)


def truncated(path: Path) -> None:
    from onnx import helper

    _save(path, _model([helper.make_node("MatMul", ["x", "w"], ["y"])], [_weight([4, 4], b"\0" * 8)]))


def bomb(path: Path) -> None:
    """A tensor of four terabytes, of which the file has four bytes."""
    from onnx import helper

    _save(path, _model([helper.make_node("MatMul", ["x", "w"], ["y"])], [_weight([4, 1 << 40], b"\0" * 4)]))


def opset(path: Path) -> None:
    from onnx import helper

    _save(path, _model([helper.make_node("Relu", ["x"], ["y"])], opset=999))


def unknown(path: Path) -> None:
    from onnx import helper

    _save(path, _model([helper.make_node("Frobnicate", ["x"], ["y"])]))


def custom(path: Path) -> None:
    """Valid, as any domain may have any operator, and of no use without a library that has it."""
    from onnx import helper

    _save(path, _model([helper.make_node("Frobnicate", ["x"], ["y"], domain="com.mine")]))


def mute(path: Path) -> None:
    from onnx import helper

    _save(path, _model([helper.make_node("Relu", ["x"], ["y"])], outputs=()))


def dangling(path: Path) -> None:
    from onnx import helper

    _save(path, _model([helper.make_node("Add", ["x", "nowhere"], ["y"])]))


def halved(path: Path) -> None:
    """A node with one of its two inputs."""
    from onnx import helper

    _save(path, _model([helper.make_node("Gather", ["x"], ["y"])]))


def _external(path: Path, location: str) -> None:
    from onnx import TensorProto, helper

    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    _save(path, _model([helper.make_node("MatMul", ["x", "w"], ["y"])], [weight]))


def lacking(path: Path) -> None:
    _external(path, "weights.bin")


def short(path: Path) -> None:
    (path.parent / "short.bin").write_bytes(b"\0" * 8)
    _external(path, "short.bin")


def escaping(path: Path) -> None:
    (path.parents[1] / "secret.bin").write_bytes(b"\0" * 64)
    _external(path, "../secret.bin")


def absolute(path: Path) -> None:
    _external(path, "/etc/hostname")


# What is wrong, and what a user reads of it.
BROKEN: dict[Write, str] = {
    empty: "empty.onnx is empty; export the model again",
    text: "text.onnx is not an ONNX file: ",
    garbage: "garbage.onnx is not an ONNX file: ",
    cut: "cut.onnx is not a valid ONNX file: ",
    nested: "nested.onnx is not an ONNX file: ",
    cyclic: "cyclic.onnx is not a valid ONNX file: Nodes in a graph must be topologically sorted",
    truncated: "truncated.onnx is not a valid ONNX file: tensor 'w' of shape [4, 4]: ",
    bomb: "bomb.onnx is not a valid ONNX file: tensor 'w' of shape [4, 1099511627776]: ",
    opset: "opset.onnx is not a valid ONNX file: it asks for opset 999, the newest that onnx",
    unknown: "unknown.onnx is not a valid ONNX file: No Op registered for Frobnicate",
    custom: "custom.onnx is a valid ONNX file, and ONNX Runtime",
    mute: "mute.onnx has no outputs; name what it computes in graph.output",
    dangling: "dangling.onnx is not a valid ONNX file: Nodes in a graph must be topologically sorted",
    halved: "halved.onnx is not a valid ONNX file: Node",
    lacking: "weights.bin: No such file or directory",
    short: "short.onnx is not a valid ONNX file: ",
    escaping: "escaping.onnx keeps tensor 'w' in '../secret.bin', which is outside its folder",
    absolute: "absolute.onnx keeps tensor 'w' in '/etc/hostname', which is outside its folder",
}
