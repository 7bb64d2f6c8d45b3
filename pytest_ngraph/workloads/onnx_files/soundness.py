"""Judge an ONNX file itself: what is wrong with it is no compiler's refusal.

What ONNX Runtime runs without optimisation is sound, also where onnx's checker is stricter. What it cannot run has no
reference outputs, and the checker says whether the file or the runtime is to blame.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.errors import NgraphError, SpecError
from pytest_ngraph.workloads.onnx_files.reference import NotRun
from pytest_ngraph.workloads.onnx_files.tensors import all_tensors

if TYPE_CHECKING:
    import onnx

_STANDARD_DOMAINS = ("", "ai.onnx")


def load(path: Path, text: str) -> onnx.ModelProto:
    """Return a model without the data that lie beside it. Raise SpecError for what is none that can be run."""
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise SpecError(f"model {text!r}: cannot read {path}: {error.strerror}") from error
    except MemoryError:
        raise
    except Exception as error:  # each format that onnx reads has errors of its own
        raise SpecError(f"model {text!r}: {path} is not an ONNX file: {error}; export the model again") from error
    if not model.HasField("graph"):
        holds = "is empty" if not path.stat().st_size else "holds no graph"
        raise SpecError(f"model {text!r}: {path} {holds}; export the model again")
    if not model.graph.output:
        raise SpecError(f"model {text!r}: {path} has no outputs; name what it computes in graph.output")
    _check_places(model, path, text)
    return model


@contextmanager
def judged(path: Path, text: str) -> Iterator[None]:
    """Turn what a broken file makes of this block into a SpecError that says what is wrong with the file."""
    try:
        yield
    except (NgraphError, MemoryError):
        raise
    except Exception as error:  # whatever a broken file makes onnx, numpy or the runtime raise
        if said := complaint(path):
            raise SpecError(
                f"model {text!r}: {path} is not a valid ONNX file: {said}; export it again, until "
                f"onnx.checker.check_model(FILE, full_check=True) accepts it (it failed with {_gist(error)})"
            ) from error
        if not isinstance(error, NotRun):
            raise
        raise SpecError(
            f"model {text!r}: {path} is a valid ONNX file, and {error}; without reference outputs nothing of it can be "
            "measured"
        ) from error


def complaint(path: Path) -> str | None:
    """Return what onnx has to say against a file, None where it is valid."""
    import onnx

    try:
        model = onnx.load(path)
        known = onnx.defs.onnx_opset_version()
        for opset in model.opset_import:
            if opset.domain in _STANDARD_DOMAINS and opset.version > known:
                newest = f"the newest that onnx {onnx.__version__} knows is {known}"
                return f"it asks for opset {opset.version}, {newest} (where there is such a one, update onnx)"
        for tensor in all_tensors(model):
            if reason := _short_of_data(tensor):
                return reason
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:  # noqa: BLE001 - the checker, shape inference and the reader raise what they like
        return _gist(error)
    return None


def _gist(error: Exception) -> str:
    """Return the first lines of an error: the checker's go on with the whole node."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:2]) or type(error).__name__


def _short_of_data(tensor: onnx.TensorProto) -> str | None:
    """Return what is said of a tensor whose data are not as many as its shape needs."""
    from onnx import numpy_helper

    try:
        numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        return f"tensor {tensor.name!r} of shape {list(tensor.dims)}: {error}"
    return None


def _check_places(model: onnx.ModelProto, path: Path, text: str) -> None:
    """Raise SpecError for data outside the folder of the file, which is where they travel and are read."""
    folder = path.parent.resolve()
    samples = next((each.value for each in model.metadata_props if each.key == "ngraph.samples"), "")
    if samples and folder not in Path(os.path.normpath(folder / samples)).parents:
        raise SpecError(
            f"model {text!r}: {path} keeps samples of its inputs in {samples!r}, which is outside its folder; put them "
            "beside it"
        )
    for tensor in all_tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location" and folder not in Path(os.path.normpath(folder / entry.value)).parents:
                raise SpecError(
                    f"model {text!r}: {path} keeps tensor {tensor.name!r} in {entry.value!r}, which is outside its "
                    "folder; save it with its data beside it (onnx.save(..., location=NAME))"
                )
