"""Make the artifact of a PyTorch model: its inputs, its eager outputs and its ONNX file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import NgraphError, SpecError, Unsupported
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads.building import build
from pytest_ngraph.workloads.kinds.catalogue import kind_of
from pytest_ngraph.workloads.kinds.contract import guarded
from pytest_ngraph.workloads.modules import calls
from pytest_ngraph.workloads.modules.arrays import describe, save
from pytest_ngraph.workloads.modules.casting import CAST, cast
from pytest_ngraph.workloads.modules.export import as_array, export, order_of
from pytest_ngraph.workloads.modules.fingerprint import fingerprint
from pytest_ngraph.workloads.modules.seeding import seeded
from pytest_ngraph.workloads.shapes.elsewhere import BATCH, named, open_axes, open_sizes

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.optimizing import Found

_END = object()
_CAST_BYTES = 2  # of a number in f16 or bf16


class TorchSource:
    """A module built once, from which inputs, reference outputs and the ONNX file are written."""

    starts_from_onnx = False

    def __init__(self, workload: Workload, seed: int, found: Found | None = None) -> None:
        """Build the module and its inputs. What is done to the module by a search is put into ``found``."""
        self._workload = workload
        self._seed = seed
        self._achieved: dict[str, Any] = {}
        built = build(workload, seed, self._achieved, found)
        self._module = built.module
        # As it was built: a model may count its calls in a buffer.
        self.weights = fingerprint(built.module)
        self._example_inputs = built.example_inputs
        self.files = built.files
        self._calibration_inputs = built.calibration_inputs
        self._call = self._example(seed, workload.batch)
        if workload.sequence is not None:
            self._refuse_ignored(workload.sequence)

    def inputs(self, onnx: Path, seed: int, batch: int) -> dict[str, np.ndarray[Any, Any]]:
        """Return inputs by name, drawn from a seed."""
        return {name: as_array(tensor) for name, tensor in self._example(seed, batch).tensors.items()}

    def calibration_inputs(self) -> Callable[[], Iterator[dict[str, np.ndarray[Any, Any]]]] | None:
        """Return what gives the samples, by name, that the model brings to be calibrated on, or None."""
        offered, text = self._calibration_inputs, self._workload.model.text
        if offered is None:
            return None
        import torch

        what = "calibration_inputs()"

        def items() -> Iterator[dict[str, np.ndarray[Any, Any]]]:
            with seeded(self._seed + 1):
                given = guarded(text, what, offered)
                if isinstance(given, (str, bytes, Mapping, torch.Tensor)) or not isinstance(given, Iterable):
                    raise SpecError(
                        f"model {text!r}: {what} gave {type(given).__name__} (expected a list, or what else can be "
                        "iterated over, of what example_inputs(batch) gives; of a tensor: [tensor])"
                    )
                left = guarded(text, what, lambda: iter(given))
                while (item := guarded(text, what, lambda: next(left, _END))) is not _END:
                    call = calls.read(text, self._module, item, what)
                    yield {name: as_array(tensor) for name, tensor in call.tensors.items()}

        return items

    def runner(self, onnx: Path) -> Callable[[Mapping[str, np.ndarray[Any, Any]]], dict[str, np.ndarray[Any, Any]]]:
        """Return what calls the module eagerly."""
        return self._run

    def write_sample(self, folder: Path, onnx: Path, outputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Write inputs.npz. Return what is known of the model, which gives these outputs."""
        inputs = {name: as_array(tensor) for name, tensor in self._call.tensors.items()}
        save(folder / "inputs.npz", inputs)
        orders = {name: order for name, tensor in self._call.tensors.items() if (order := order_of(tensor))}
        parameters = list(self._module.parameters())
        held = [*parameters, *self._module.buffers()]
        return {
            "parameters": sum(tensor.numel() for tensor in parameters),
            "model_bytes": sum(tensor.numel() * tensor.element_size() for tensor in held),
            "cast_bytes": sum(
                tensor.numel() * (_CAST_BYTES if tensor.is_floating_point() else tensor.element_size())
                for tensor in held
            ),
            "inputs": describe(inputs),
            "outputs": list(outputs),
            "call": self._call.kind,
            "macs": self._macs(),
            "weights": self.weights,
            "export_seconds": None,
            "notes": [f"its input {name} is given in {order}, and called contiguous" for name, order in orders.items()],
            **({"inputs_given": orders} if orders else {}),
            **({"achieved": self._achieved} if self._achieved else {}),
        }

    def _macs(self) -> int | None:
        """Return the multiply-accumulates of a call as PyTorch counts them, or None where it cannot."""
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        copies = {name: tensor.clone() for name, tensor in self._call.tensors.items()}
        args, kwargs = calls.arguments(self._call.kind, copies)
        counter = FlopCounterMode(display=False)
        try:
            with torch.no_grad(), counter:
                self._module(*args, **kwargs)
        except Exception:  # noqa: BLE001 - the model runs, as its reference was made; that it cannot be counted is no fault
            return None
        return int(counter.get_total_flops() // 2)

    def write_onnx(
        self, path: Path, outputs: Sequence[str], precision: str, opened: Collection[str] = ()
    ) -> dict[str, Any]:
        """Write the static ONNX file in a precision. Return how long the export took, or why there is none.

        Where axes are ``opened`` it is traced at sizes that are not measured. Where the workload decodes there are two:
        see ``decoding.files``.
        """
        if self._workload.decode is not None:
            from pytest_ngraph.workloads.decoding.files import export_both

            return export_both(self._module, self._call.tensors, path, precision)
        module = cast(self._module, precision) if precision in CAST else self._module
        if not opened:
            return export(module, self._call, list(outputs), path, precision)
        sizes = open_sizes(self._workload)
        traced, other = (
            self._example_of({axis: getattr(each, which) for axis, each in sizes.items()})
            for which in ("traced", "tried")
        )
        here, there = (_shapes(each) for each in (traced, other))
        axes = named(open_axes(here, there, self._workload.label), here, sizes)
        return export(module, traced, list(outputs), path, precision, axes)

    def _example_of(self, sizes: Mapping[str, int]) -> calls.Call:
        """Return example inputs of the batch and the length that are given, else of the workload's."""
        more = {name: size for name, size in sizes.items() if name != BATCH}
        return self._example(self._seed, sizes.get(BATCH, self._workload.batch), **more)

    def _example(self, seed: int, batch: int, **more: int) -> calls.Call:
        with seeded(seed):
            example = self._example_inputs(batch, **more)
        return calls.read_call(self._workload.model.text, self._module, example, batch)

    def _refuse_ignored(self, length: int) -> None:
        """Raise SpecError where inputs have the same shapes at any length: cells of two lengths would be one."""
        text, batch = self._workload.model.text, self._workload.batch
        same = []
        # Some models pad their inputs to the next multiple of a length.
        for other in dict.fromkeys((max(1, length // 2), 1, 2 * length, 16 * length)):
            if other == length:
                continue
            try:
                with seeded(self._seed):
                    example = self._example_inputs(batch, sequence=other)
                shapes = _shapes(calls.read_call(text, self._module, example, batch))
            except NgraphError:  # a model may know some lengths only
                continue
            if shapes != _shapes(self._call):
                return
            same.append(other)
        if same or not any(length in shape for shape in _shapes(self._call).values()):
            others = f" as with sequence={', '.join(map(str, same))}" if same else " without that length"
            shown = ", ".join(f"{name} {shape}" for name, shape in _shapes(self._call).items())
            raise SpecError(
                f"model {text!r}: example_inputs({batch}, sequence={length}) gives the same shapes{others} ({shown}): "
                "it ignores the length; make its inputs of so many tokens, or leave sequence out"
            )

    def _run(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the eager outputs by name. The inputs are copied first, as a model may change them in place."""
        import torch

        workload = self._workload
        copies = {name: torch.from_numpy(array.copy()) for name, array in inputs.items()}
        args, kwargs = calls.arguments(self._call.kind, copies)
        torch.set_float32_matmul_precision("highest")  # the user's file may have asked for less
        try:
            with torch.inference_mode():
                outputs = calls.flatten(self._module(*args, **kwargs))
        except Unsupported:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if kind_of(workload.model).has_files:
                at = "" if workload.sequence is None else f" (at batch {workload.batch}, sequence {workload.sequence})"
                raise SpecError(f"model {workload.model.text!r}: its forward raised {said}{at}") from error
            raise Unsupported(f"{workload.label} cannot run: {said}") from error
        if not outputs:
            raise Unsupported(f"{workload.model.text} returns no tensors")
        # Copies: a model may give a tensor that it keeps and writes to again.
        given = [as_array(tensor).copy() for tensor in outputs]
        return dict(zip(calls.output_names(len(given)), given, strict=True))


def _shapes(call: calls.Call) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in call.tensors.items()}
