"""What every compiler is tried on, and the pairs that are known not to work, each with its cause."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads.kinds import parse_model


@dataclass(frozen=True, slots=True)
class Case:
    """A model with the batches it is tried at. ``needs`` are import names without which it cannot be made."""

    name: str
    model: str
    batches: tuple[int, ...] = (1, 3)
    depth: int | None = None
    width: int | None = None
    image_size: int | None = None
    needs: tuple[str, ...] = ("torch",)

    def workloads(self, models: Path, precision: str = "f32", scenario: str = "latency") -> list[Workload]:
        """Return the case as workloads, one for each batch. ``models`` is where models lie that the suite wrote."""
        model = parse_model(self.model, (models, light_models()))
        sizes = {"depth": self.depth, "width": self.width, "image_size": self.image_size}
        plain = Workload(model, **sizes, precision=precision, scenario=scenario)  # type: ignore[arg-type]
        return [replace(plain, batch=batch) for batch in self.batches]

    @property
    def kind(self) -> Hashable:
        """Return what cases that share a process have in common."""
        return self.needs, self.batches

    def made_with(self, reads: str) -> tuple[str, ...]:
        """Return the import names of what turns the model into what a compiler reads."""
        is_file = self.model.startswith("onnx:")
        if reads == "onnx":
            return () if is_file else ("onnx", "onnxscript")
        return ("torch", "onnx2torch") if is_file else ()


def light_models() -> Path:
    """Return the folder of the third-party models that the onnx wheel brings. It need not be there."""
    spec = find_spec("onnx")
    return Path(spec.origin or "").parent / "backend/test/data/light" if spec else Path("onnx-is-not-installed")


_OWN = "pytest_ngraph.conformance.models"
_TIMM = ("torch", "timm", "torchvision")
_ONNX = ("onnx", "onnxruntime")
# The suite writes this file itself, with a batch that is open.
OPEN_BATCH = "open_batch.onnx"
# Of the wheel's other light models bvlc_alexnet, vgg19 and zfnet512 are 240 to 575 MB of matrices; densenet121 has the
# operators of inception_v2 and takes minutes to compile.
_LIGHT = ("inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet")

CASES = (
    # Two of each family, small; timm's at one batch, as they take longest to compile.
    Case("conv", f"{_OWN}:ConvNet"),
    Case("conv-timm", "timm:test_resnet", (3,), image_size=64, needs=_TIMM),
    Case("transformer", f"{_OWN}:Transformer"),
    Case("transformer-timm", "timm:test_vit", (3,), image_size=64, needs=_TIMM),
    Case("hybrid", f"{_OWN}:Hybrid"),
    Case("conv-attention", f"{_OWN}:ConvAttention"),
    Case("depthwise", f"{_OWN}:Depthwise"),
    Case("depthwise-timm", "timm:test_efficientnet", (3,), image_size=64, needs=_TIMM),
    Case("block-conv", "block:conv", depth=2, width=8, image_size=32),
    Case("block-mha", "block:mha", depth=2, width=16),
    # Inputs and outputs of all kinds.
    Case("two-inputs", f"{_OWN}:TwoInputs"),
    Case("integers", f"{_OWN}:Tokens"),
    Case("named-inputs", f"{_OWN}:NamedInputs"),
    Case("nested-outputs", f"{_OWN}:NestedOutputs"),
    # Files of others. An open batch is fixed before any compiler sees it: what is measured is static.
    Case("open-batch", f"onnx:{OPEN_BATCH}", needs=_ONNX),
    *(Case(name.replace("_", "-"), f"onnx:light_{name}.onnx", batches=(1,), needs=_ONNX) for name in _LIGHT),
)

# What is tried in each further precision: casts at all kinds of edges, around what lower precisions are hard on.
CAST = tuple(
    replace(case, batches=(3,))
    for case in CASES
    if case.name in ("conv", "transformer", "hybrid", "depthwise", "integers", "named-inputs", "nested-outputs")
)

# One process holds this many cells of the same code, as a sweep over batches does.
MANY = Case("many-cells", f"{_OWN}:TwoInputs", batches=tuple(range(1, 11)))
# It is compiled and closed again and again, to see whether its memory comes back.
HEAVY = Case("heavy", f"{_OWN}:Heavy", batches=(1,))

# compiler, with options where it is so with these only: why closing does not give its memory back. It is still tried;
# where it does, its line here fails the suite.
LEAKS: Mapping[str, str] = {
    # A process compiles each of its cells once, so nothing piles up that it would not hold anyway.
    "torchscript": "PyTorch holds the constants of frozen graphs until the process ends (pytorch/pytorch#96726)",
    "inductor[aot]": "PyTorch keeps a package's library, with the weights in it, once it is loaded",
    # Loading a program and closing it leaves nothing: launches that do not build hold none of it.
    "executorch": "ExecuTorch holds the graphs that it has lowered until the process ends",
}

# (compiler, case, precision): the cause. The pair is still tried; where it works, its line here fails the suite.
EXCLUDED: Mapping[tuple[str, str, str], str] = {
    # onnx2torch's Reshape asks at each call whether the tensor that holds the shape has a zero in it. That is a graph
    # break, and a whole graph is what is measured.
    **{
        (compiler, case, "f32"): "onnx2torch's Reshape branches on the values of its shape tensor"
        for case in ("inception-v2", "resnet50", "shufflenet")
        for compiler in ("inductor", "executorch")
    },
    # Its position embedding is resized to the image at each call.
    ("executorch", "transformer-timm", "f32"): "_upsample_bicubic2d_aa is not in the operators that ExecuTorch takes",
    # Its pooling pads one side more than the other, which PyTorch's pooling cannot and onnx2torch refuses.
    **{
        (compiler, "inception-v1", "f32"): "onnx2torch has no pooling with non symmetrical padding"
        for compiler in ("identity", "torchscript", "inductor", "executorch")
    },
}
