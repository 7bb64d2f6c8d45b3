"""What every compiler is tried on, and the pairs that are known not to work, each with its cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pytest_ngraph.spec import ModelRef, Workload


@dataclass(frozen=True, slots=True)
class Case:
    """A model with the batches it is tried at; ``needs`` are import names without which it cannot be made."""

    name: str
    model: str
    batches: tuple[int, ...] = (1, 3)
    depth: int | None = None
    width: int | None = None
    image_size: int | None = None
    needs: tuple[str, ...] = ("torch",)

    def workloads(self) -> list[Workload]:
        """Return the case as workloads, one for each batch."""
        model = ModelRef.parse(self.model, (light_models(),))
        return [Workload(model, batch, self.depth, self.width, self.image_size) for batch in self.batches]


def light_models() -> Path:
    """Return the folder of the third-party models that the onnx wheel brings; it need not be there."""
    spec = find_spec("onnx")
    return Path(spec.origin or "").parent / "backend/test/data/light" if spec else Path("onnx-is-not-installed")


_OWN = "pytest_ngraph.conformance.models"

CASES = (
    Case("conv", f"{_OWN}:ConvNet"),
    Case("transformer", f"{_OWN}:Transformer"),
    Case("hybrid", f"{_OWN}:Hybrid"),
    Case("two-inputs", f"{_OWN}:TwoInputs"),
    Case("integers", f"{_OWN}:Tokens"),
    Case("named-inputs", f"{_OWN}:NamedInputs"),
    Case("nested-outputs", f"{_OWN}:NestedOutputs"),
    Case("block-conv", "block:conv", depth=2, width=8, image_size=32),
    Case("block-mha", "block:mha", depth=2, width=16),
    Case("resnet18", "timm:resnet18", image_size=32, needs=("torch", "timm")),
    Case("squeezenet", "onnx:light_squeezenet.onnx", batches=(1,), needs=("onnx", "torch")),
    Case("shufflenet", "onnx:light_shufflenet.onnx", batches=(1,), needs=("onnx", "torch")),
)

# One process holds this many cells of the same code, as a sweep over batches does.
MANY = Case("many-cells", f"{_OWN}:TwoInputs", batches=tuple(range(1, 11)))

# (compiler, case): the cause. The pair is still tried; where it works, its line here fails the suite.
EXCLUDED: Mapping[tuple[str, str], str] = {
    # Shuffling channels is Reshape, Transpose, Reshape, and onnx2torch's Reshape asks at each call whether the tensor
    # that holds the shape has a zero in it. That is a graph break, and a whole graph is what is measured.
    ("inductor", "shufflenet"): "onnx2torch's Reshape branches on the values of its shape tensor",
}
