"""ONNX files of a project, with the batch that each can be run at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pytest_ngraph.texts.shown import one_line

_SKIPPED = frozenset({"build", "dist", "node_modules", "site-packages", "venv"})
_MOST_FILES = 20


@dataclass(frozen=True, slots=True)
class FoundFile:
    """An ONNX file from the root on. ``batch`` is 0 where it takes any. ``why_not`` says what it lacks to be run."""

    path: str
    batch: int = 0
    why_not: str = ""


def found_onnx_files(root: Path) -> list[FoundFile]:
    """Return the ONNX files below a folder, in a fixed order, at most twenty."""
    paths = list(_paths(root))[:_MOST_FILES]
    return [_read(path, path.relative_to(root).as_posix()) for path in paths]


def _paths(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        # A name with brackets would be read as one with sizes.
        folders[:] = sorted(name for name in folders if name[0] not in "." and name not in _SKIPPED and _is_plain(name))
        yield from (Path(folder) / name for name in sorted(names) if name.endswith(".onnx") and _is_plain(name))


def _is_plain(name: str) -> bool:
    return name.isprintable() and not set("[]:,") & set(name)


def _read(path: Path, name: str) -> FoundFile:
    if find_spec("onnx") is None:
        return FoundFile(name, why_not="onnx is not installed, so that its inputs are not known")
    import onnx

    from pytest_ngraph.workloads.onnx_files.tensors import graph_inputs

    try:
        inputs = graph_inputs(onnx.load(str(path), load_external_data=False))
    # Protobuf has errors of its own for what is no ONNX file, such as one that git-lfs has yet to fetch.
    except Exception as error:  # noqa: BLE001
        return FoundFile(name, why_not=f"it cannot be read: {one_line(str(error), 120)}")
    shapes = [value.type.tensor_type.shape.dim for value in inputs]
    leading = [dims[0] for dims in shapes if dims]
    fixed = [dim.dim_value for dim in leading if dim.dim_value > 0]
    batch_name = next((dim.dim_param for dim in leading if dim.dim_param), "")
    others = [dim.dim_param for dims in shapes for dim in list(dims)[1:] if dim.dim_value <= 0]
    unknown = [each for each in dict.fromkeys(others) if each != batch_name]
    if not leading:
        return FoundFile(name, why_not="it has no input with a batch")
    if unknown:
        sizes = ",".join(f"{each or 'unnamed'}=128" for each in unknown)
        return FoundFile(name, why_not=f"give its open dimensions sizes: onnx:{name}[{sizes}]")
    return FoundFile(name, fixed[0] if len(fixed) == len(leading) else 0)
