"""Is a broken int8 network caught? The check of outputs that every launch makes, on EfficientNets, MobileNets and VGGs.

The second paper times an int8 EfficientNetB0 whose accuracy is 0.43 %, and has a MobileNetV2 of 0.09 % (section 5.2.1).
So each of these networks that a suite of this project names is quantised as its cells are, and then wrongly, in ways
that such an accuracy comes by: calibrated on inputs sixteen times darker, so that all saturates, and a hundred times
brighter, so that little is left; with one range for every layer, as TVM takes it where nothing was calibrated; with
zero points that quantisers and dequantisers do not agree on; and, milder, with one scale doubled and one layer's
channels turned round. Each file is run by ONNX Runtime and judged as a launch judges it, on inputs that it was not
calibrated on. The file as it is must pass; what the model gives for *other* inputs, the control, must not. The last
network is trained on digits, so that the accuracy of what was caught is known, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from benchmarks.kept import each_network
from pytest_ngraph.compilers.toolkit.equality import Agreement, Comparison
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.precisions import parse
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.quantising.calibration import Calibration
from pytest_ngraph.workloads.quantising.quantise import quantise
from pytest_ngraph.workloads.references import References

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "int8_faults.json"
DLAS = HERE.parent / "example_suites" / "dlas"
# Of the suites: the CIFAR forms and torchvision's are the second paper's, timm's B3 to B5 the first paper's. The others
# are those of these families that pages and examples name.
NETWORKS: tuple[tuple[str, int | None], ...] = (
    ("cifar.py:MobileNetV1", None), ("cifar.py:MobileNetV2", None), ("cifar.py:VGG16", None),
    ("torchvision:mobilenet_v2", 224), ("torchvision:efficientnet_b0", 224),
    ("timm:efficientnet_b3", 224), ("timm:efficientnet_b4", 224), ("timm:efficientnet_b5", 224),
    ("timm:efficientnet_b0", 128), ("timm:mobilenetv2_100", 128), ("timm:mobilenetv3_small_100", 128),
    ("timm:mobilenetv3_large_100", 128), ("timm:vgg11", 64), ("timm:vgg16", 64),
    ("digits.py:Digits", None),
)  # fmt: skip
RIGHT, CONTROL = "as it is", "other inputs"
# The range of all activations that TVM's quantiser takes where nothing was calibrated (its global_scale).
_GLOBAL_RANGE = 8.0
_LEVELS = 127.0
_OFF = 64
_CALLS = 3
# How many times as bright as what is timed are inputs that are calibrated on.
BRIGHTNESS: Mapping[str, float] = {"darker": 1 / 16, "brighter": 100.0}
Arrays = Mapping[str, "np.ndarray[Any, Any]"]


class Graph:
    """An int8 file whose scales, zero points and weights can be changed."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}

    def activations(self) -> list[onnx.NodeProto]:
        """Return the nodes that quantise what is computed, not what is stored."""
        nodes = self.model.graph.node
        return [node for node in nodes if node.op_type == "QuantizeLinear" and node.input[1] in self._stored]

    def weights(self) -> list[onnx.NodeProto]:
        """Return the nodes that read the stored weights of layers."""
        nodes = [node for node in self.model.graph.node if node.op_type == "DequantizeLinear"]
        stored = [self._stored.get(node.input[0]) for node in nodes]
        return [node for node, tensor in zip(nodes, stored, strict=True) if tensor is not None and len(tensor.dims) > 1]

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """Return what is stored under a name."""
        return np.asarray(numpy_helper.to_array(self._stored[name]))

    def replace(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Store something else under a name, for all that read it."""
        self._stored[name].CopyFrom(numpy_helper.from_array(value, name))

    def give(self, node: onnx.NodeProto, place: int, value: np.ndarray[Any, Any]) -> None:
        """Give one node something else to read, and no other."""
        name = f"wrong {len(self.model.graph.initializer)}"
        self.model.graph.initializer.append(numpy_helper.from_array(np.array(value, order="C"), name))
        node.input[place] = name


def _scaled(graph: Graph, scale_of: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> None:
    for name in dict.fromkeys(node.input[1] for node in graph.activations()):
        graph.replace(name, np.asarray(scale_of(graph.read(name)), np.float32))


def one_range(graph: Graph) -> None:
    """Take one range for every activation."""
    _scaled(graph, lambda scale: np.full_like(scale, _GLOBAL_RANGE / _LEVELS))


def zero_points(graph: Graph) -> None:
    """Move the zero point of every quantiser, and of no dequantiser."""
    for node in graph.activations():
        zero = graph.read(node.input[2])
        graph.give(node, 2, np.asarray((zero.astype(np.int64) + _OFF) % 256, zero.dtype))


def one_scale(graph: Graph) -> None:
    """Double the scale of one quantiser in the middle."""
    node = (nodes := graph.activations())[len(nodes) // 2]
    graph.give(node, 1, graph.read(node.input[1]) * 2)


def one_layer(graph: Graph) -> None:
    """Turn round the channels of one layer in the middle."""
    node = (nodes := graph.weights())[len(nodes) // 2]
    graph.give(node, 0, graph.read(node.input[0])[::-1])


FAULTS: Mapping[str, Callable[[Graph], None]] = {
    "one range for all": one_range,
    "zero points": zero_points,
    "one scale doubled": one_scale,
    "one layer turned": one_layer,
}


def miscalibrated(file: Path, timed: Arrays, times: float, target: Path) -> Path:
    """Quantise an f32 file on inputs of another brightness than those that are timed."""
    random = np.random.default_rng(99)
    data = [
        {name: (random.permuted(array) * times).astype(array.dtype) for name, array in timed.items()}
        for _ in range(_CALLS)
    ]
    calibration = Calibration(lambda: iter(data), len(data), "inputs of another brightness")
    quantise(file, target, target.with_name("twin.onnx"), calibration, parse("int8"), "broken")
    return target


def broken(file: Path, fault: Callable[[Graph], None], target: Path) -> Path:
    """Write an int8 file with a fault."""
    graph = Graph(onnx.load(file))
    fault(graph)
    onnx.save(graph.model, target)
    return target


def calls_of(file: Path) -> Callable[[Arrays], list[np.ndarray[Any, Any]]]:
    """Return what calls a file by ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}

    def run(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
        return list(session.run(None, {name: array for name, array in inputs.items() if name in names}))

    return run


def judged(expected: References, timed: Arrays, run: Callable[[Arrays], list[np.ndarray[Any, Any]]]) -> dict[str, Any]:
    """Judge a file as a launch does: by the inputs that are timed, then by the set that no calibration has seen."""
    first, unseen = Comparison("int8"), Comparison("int8", expected.means)
    first.add(run(timed), expected.timed)
    for number in range(expected.calls):
        call = expected.call(number)
        unseen.add(run(call.inputs), call.outputs, call.rows)
    return said(first.agreement(), unseen.agreement())


def control(expected: References) -> dict[str, Any]:
    """Judge what the model gives for the next input of the set."""
    unseen = Comparison("int8", expected.means)
    for number in range(expected.calls):
        call = expected.call(number)
        unseen.add(expected.foreign(number), call.outputs, call.rows)
    return said(unseen.agreement())


def said(*agreements: Agreement) -> dict[str, Any]:
    """Return the figures of the last comparison, and the first objection of all."""
    last = agreements[-1]
    top1 = last.top1_matches / last.top1_samples if last.top1_samples else None
    objection = next((each.reason for each in agreements if each.reason), "")
    return {"cosine": last.cosine, "centred": last.centred_cosine, "top1": top1, "caught": objection}


def measure(name: str, size: int | None, root: Path) -> dict[str, Any]:
    """Return all figures of one network."""
    workload = Workload(parse_model(name, [DLAS]), image_size=size, precision="int8")
    made = artifacts.build(workload, 0, root, True)
    assert made.onnx is not None
    expected, timed = artifacts.reference(made), artifacts.timed_inputs(root, made.key)
    plain = artifacts.find(Workload(workload.model, image_size=size), 0, root, True)
    assert plain is not None
    assert plain.onnx is not None
    scored = _accuracy(workload, timed)

    def row(file: Path) -> dict[str, Any]:
        run = calls_of(file)
        return judged(expected, timed, run) | ({} if scored is None else {"accuracy": scored(run)})

    target = root / "broken.onnx"
    rows = {RIGHT: row(made.onnx)}
    rows |= {fault: row(miscalibrated(plain.onnx, timed, times, target)) for fault, times in BRIGHTNESS.items()}
    rows |= {fault: row(broken(made.onnx, breaks, target)) for fault, breaks in FAULTS.items()}
    rows[CONTROL] = control(expected)
    return {"network": name, "size": size, "rows": rows}


def _accuracy(
    workload: Workload, timed: Arrays
) -> Callable[[Callable[[Arrays], list[np.ndarray[Any, Any]]]], float] | None:
    """Return what says how often a file is right, by the model's own samples, or None where it has none."""
    import torch

    from pytest_ngraph.workloads.building import build

    built = build(workload, 0)
    if (evaluate := built.evaluate) is None:
        return None

    def share(run: Callable[[Arrays], list[np.ndarray[Any, Any]]]) -> float:
        def predict(samples: torch.Tensor) -> torch.Tensor:
            [name] = timed
            return torch.cat([torch.from_numpy(run({name: each.numpy()})[0]) for each in samples.split(1)])

        return float(np.mean(np.asarray(evaluate(predict)["top1"], dtype=float)))

    return share


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the figures as Markdown: the centred cosine, and whether it was caught."""
    columns = [RIGHT, *BRIGHTNESS, *FAULTS, CONTROL]
    lines = [f"| network | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for each in results:
        cells = [_cell(each["rows"][column]) for column in columns]
        size = f" {each['size']}" if each["size"] else ""
        lines.append(f"| {each['network']}{size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Mapping[str, Any]) -> str:
    centred = "-" if row["centred"] is None else f"{row['centred']:.2f}"
    right = f", {100 * row['accuracy']:.1f} % right" if "accuracy" in row else ""
    return f"{'caught' if row['caught'] else 'passes'}, {centred}{right}"


def main() -> None:
    """Measure what is not there yet, and print all of it."""
    results = each_network(
        __doc__, RESULTS, NETWORKS, lambda name, size, root: measure(name, size, root / "artifacts"), table
    )
    rows = [each["rows"] for each in results]
    false = sum(bool(each[RIGHT]["caught"]) for each in rows)
    print(f"\nright files that were refused: {false} of {len(rows)}")
    for fault in (*BRIGHTNESS, *FAULTS, CONTROL):
        print(f"{fault}: {sum(bool(each[fault]['caught']) for each in rows)} of {len(rows)} caught")


if __name__ == "__main__":
    main()
