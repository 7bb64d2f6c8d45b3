"""ONNX files, and their artifacts: a static copy, inputs from its signature, its unoptimised outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.files import file_digest
from pytest_ngraph.machine.imports import require
from pytest_ngraph.spec import dims
from pytest_ngraph.spec.cells import DENSE, ModelRef, Workload
from pytest_ngraph.workloads.kinds.axes import LENGTH, axis_values
from pytest_ngraph.workloads.kinds.contract import AS_FILES, Kind, find_file
from pytest_ngraph.workloads.modules.arrays import describe, save
from pytest_ngraph.workloads.modules.calls import POSITIONAL
from pytest_ngraph.workloads.modules.casting import CAST
from pytest_ngraph.workloads.onnx_files import constants, counting, inputs, reference, signature, soundness
from pytest_ngraph.workloads.onnx_files.tensors import external_files, is_large, precision_of
from pytest_ngraph.workloads.quantising.layers import computes_in

if TYPE_CHECKING:
    import numpy as np
    import onnx


_BATCH = "batch"


class OnnxFile(Kind):
    """``onnx:FILE.onnx``: a file with a static or an open batch, and the files beside it.

    ``onnx:FILE.onnx[S=128]`` gives its further open dimensions their sizes. They stand in the locator, too. The axis
    ``sequence`` is another way to give one that is called so.
    """

    form = "onnx:FILE.onnx"
    takes_dims = True
    plural = "ONNX files"
    requires = ("onnx", "onnxruntime")
    extra = "onnxruntime"
    made_by = ("numpy",)
    default_baseline = "onnxruntime[graph=disabled]"
    travels = AS_FILES
    is_onnx = True

    def parse(self, text: str, name: str, search: Sequence[Path]) -> str:
        """Return the path of the file, and the sizes of its open dimensions."""
        return dims.written(str(find_file(text, dims.split(name)[0], search)), dims.read(text))

    def spelled(self, text: str) -> str:
        """Return the reference with the sizes of its open dimensions in one order."""
        return dims.written(dims.split(text)[0], dims.read(text))

    def bare(self, text: str) -> str:
        """Return the reference without the sizes of open dimensions."""
        return dims.split(text)[0]

    def place(self, model: ModelRef) -> str:
        """Return the path of the file."""
        return dims.split(model.locator)[0]

    def moved(self, model: ModelRef, place: str) -> ModelRef:
        """Return the reference with another path."""
        return replace(model, locator=dims.written(place, dims.read(model.locator)))

    def key_name(self, model: ModelRef) -> str:
        """Return the sizes of open dimensions: the file counts by its content."""
        return dims.written("", dims.read(model.locator))

    def axes(self, model: ModelRef) -> Mapping[str, int | None]:
        """Return the length: whether a file has an open dimension for it is seen when it is read."""
        return {LENGTH: None}

    def check_values(self, model: ModelRef, values: Mapping[str, int]) -> None:
        """Refuse a length for which the reference has another size."""
        length = values.get(LENGTH)
        for name, size in dims.read(model.locator).items() if length is not None else ():
            if dims.is_length(name) and size != length:
                raise SpecError(
                    f"model {model.text!r}: {LENGTH}={length} and {name}={size} in its reference are two lengths; give "
                    "one of them"
                )

    def why_not(self, workload: Workload) -> str | None:
        """Return why nothing is done to a file, and why it is not run in a precision that it is not written in."""
        if workload.optimize != DENSE:
            return (
                f"an ONNX file is measured as it is, so nothing is taken away from it (optimize={workload.optimize}); "
                "optimise the network that it was exported from, and name that, or the file that it then gives"
            )
        if workload.precision in CAST:
            return (
                f"an ONNX file is measured in the precision that it is written in, so not in {workload.precision} "
                "(allowed: f32 and tf32, which leave it as it is, and int8)"
            )
        return None

    def files(self, model: ModelRef) -> list[Path]:
        """Return the file and its data. Raise SpecError where they cannot be determined."""
        require(model.text, "onnxruntime", "onnx")
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

        path = Path(self.place(model))
        try:
            beside = external_files(onnx.load(path, load_external_data=False), path.parent)
        except (DecodeError, OSError) as error:
            raise SpecError(f"model {model.text!r}: {path} cannot be read as an ONNX file: {error}") from None
        return [path, *beside]

    def preload(self) -> None:
        """Import what a module is made with."""
        from pytest_ngraph.workloads.onnx_files import to_torch

        to_torch.preload()


KIND = OnnxFile()


class OnnxSource:
    """An ONNX file, from which the static copy and then, from that copy, the sample are written."""

    starts_from_onnx = True
    # Nothing is built of it: the file counts by its content.
    weights: Sequence[Sequence[float]] = ()

    def __init__(self, workload: Workload, seed: int) -> None:
        """Find the files that the model is made of, without reading its weights."""
        require(workload.model.text, "onnxruntime", "onnx", "onnxruntime")
        axis_values(workload)
        self._workload = workload
        self._seed = seed
        self._path = Path(KIND.place(workload.model))
        model = soundness.load(self._path, workload.model.text)
        self.files = {str(path): self._digest(path) for path in (self._path, *external_files(model, self._path.parent))}

    def write_onnx(
        self, path: Path, outputs: Sequence[str], precision: str, opened: Collection[str] = ()
    ) -> dict[str, Any]:
        """Write the copy with the batch fixed and constant weights varied. Return what to know of it.

        The outputs have the names and the copy has the precision that the file gives them. The axes
        that are ``opened``, batch and length, stay as open as they are in the file. Raises SpecError for a file
        that is broken, or that does not have this batch, and Unsupported for an open batch that it does not have.
        """
        with soundness.judged(self._path, self._workload.model.text):
            return self._write_onnx(path, opened)

    def _write_onnx(self, path: Path, opened: Collection[str]) -> dict[str, Any]:
        import numpy as np
        import onnx

        model = onnx.load(self._path)
        sizes, label = dims.read(self._workload.model.locator), self._workload.label
        length = None
        if self._workload.sequence is not None:
            length = signature.length_of(model, label)
            sizes |= {length: self._workload.sequence}
        batch = None if _BATCH in opened else self._workload.batch
        signature.fix_shapes(model, batch, sizes, label, open_length=length if LENGTH in opened else None)
        notes = constants.vary_constant_weights(model, np.random.default_rng(self._seed))
        parameters = _parameters(model)
        onnx.save(
            model,
            path,
            save_as_external_data=is_large(model),
            location=f"{path.name}.data",
        )
        written = sum(file.stat().st_size for file in path.parent.iterdir())
        counts = {"parameters": parameters, "model_bytes": written, "onnx_bytes": written}
        return {**counts, "graph_precision": precision_of(model), "notes": notes}

    def inputs(self, onnx: Path, seed: int, batch: int) -> dict[str, np.ndarray[Any, Any]]:
        """Return inputs of the static copy by name, drawn from a seed, in any batch as if it were the file's."""
        with soundness.judged(self._path, self._workload.model.text):
            return inputs.example_inputs(
                onnx,
                seed,
                self._workload.model.text,
                {self._workload.batch: batch},
                folder=self._path.parent,
                is_timed=seed == self._seed,
            )

    def calibration_inputs(self) -> None:
        """Return None: a file brings no samples."""

    def runner(self, onnx: Path) -> Callable[[Mapping[str, np.ndarray[Any, Any]]], dict[str, np.ndarray[Any, Any]]]:
        """Return what runs the static copy as it is. Both raise SpecError for a file without reference outputs."""
        with soundness.judged(self._path, self._workload.model.text):
            run = reference.runner(onnx)

        def judged_run(fed: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
            with soundness.judged(self._path, self._workload.model.text):
                return run(fed)

        return judged_run

    def write_sample(self, folder: Path, onnx: Path, outputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Write inputs.npz for the static copy. Return what is known of the model, which gives these outputs."""
        from onnx import load

        fed = self.inputs(onnx, self._seed, self._workload.batch)
        save(folder / "inputs.npz", fed)
        model = load(onnx, load_external_data=False)
        return {
            "parameters": _parameters(model),
            "macs": counting.macs(model),
            "computes_in": computes_in(model),
            "inputs": describe(fed),
            "outputs": list(outputs),
            "call": POSITIONAL,
            "export_seconds": None,
            "notes": [],
        }

    def _digest(self, path: Path) -> str:
        try:
            return file_digest(path)
        except OSError as error:
            raise SpecError(f"model {self._workload.model.text!r}: cannot read {path}: {error.strerror}") from error


def _parameters(model: onnx.ModelProto) -> int:
    """Return how many numbers a file stores. Whole numbers of 64 bits are sizes and indices."""
    from onnx import TensorProto

    return sum(math.prod(each.dims) for each in model.graph.initializer if each.data_type != TensorProto.INT64)
