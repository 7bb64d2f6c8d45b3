"""Make the artifact of a PyTorch model: its inputs, its eager outputs and its ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError, Unsupported
from pytest_ngraph.spec import Workload
from pytest_ngraph.workloads.arrays import describe, save
from pytest_ngraph.workloads.modules import calls
from pytest_ngraph.workloads.modules.building import build
from pytest_ngraph.workloads.modules.export import as_array, export
from pytest_ngraph.workloads.modules.fingerprint import fingerprint
from pytest_ngraph.workloads.modules.seeding import seeded

if TYPE_CHECKING:
    import torch


class TorchSource:
    """A module built once, from which inputs, reference outputs and the ONNX file are written."""

    starts_from_onnx = False

    def __init__(self, workload: Workload, seed: int) -> None:
        """Build the module and its inputs, and run it once, eagerly."""
        self._text = workload.model.text
        built = build(workload, seed)
        self._module = built.module
        self.files = built.files
        with seeded(seed):
            example = built.example_inputs(workload.batch)
        self._call = calls.read_call(self._text, self._module, example, workload.batch)
        self._outputs = self._run(workload)

    def write_sample(self, folder: Path, onnx: Path) -> dict[str, Any]:
        """Write inputs.npz and reference.npz; return what is known of the model."""
        inputs = {name: as_array(tensor) for name, tensor in self._call.tensors.items()}
        names = calls.output_names(len(self._outputs))
        outputs = {name: as_array(tensor) for name, tensor in zip(names, self._outputs, strict=True)}
        save(folder / "inputs.npz", inputs)
        save(folder / "reference.npz", outputs)
        parameters = list(self._module.parameters())
        held = [*parameters, *self._module.buffers()]
        return {
            "parameters": sum(tensor.numel() for tensor in parameters),
            "model_bytes": sum(tensor.numel() * tensor.element_size() for tensor in held),
            "inputs": describe(inputs),
            "outputs": describe(outputs),
            "call": self._call.kind,
            "weights": fingerprint(self._module),
            "export_seconds": None,
            "notes": [],
        }

    def write_onnx(self, path: Path) -> dict[str, Any]:
        """Write the static ONNX file; return how long the export took, or why there is none."""
        return export(self._module, self._call, calls.output_names(len(self._outputs)), path)

    def _run(self, workload: Workload) -> list[torch.Tensor]:
        """Return the eager outputs; the inputs are copied first, as a model may change them in place."""
        import torch

        copies = {name: tensor.clone() for name, tensor in self._call.tensors.items()}
        args, kwargs = calls.arguments(self._call.kind, copies)
        torch.set_float32_matmul_precision("highest")  # the user's file may have asked for less
        try:
            with torch.inference_mode():
                outputs = calls.flatten(self._module(*args, **kwargs))
        except Unsupported:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if workload.model.scheme in ("file", "import"):
                raise SpecError(f"model {self._text!r}: its forward raised {said}") from error
            raise Unsupported(f"{workload.label} cannot run: {said}") from error
        if not outputs:
            raise Unsupported(f"{self._text} returns no tensors")
        return outputs
