"""Content keys of artifacts, and the files that a user's model was last made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_ngraph.machine import imports
from pytest_ngraph.machine.facts import version_of, version_of_module
from pytest_ngraph.machine.files import file_digest, write
from pytest_ngraph.optimizers.catalogue import steps_of
from pytest_ngraph.spec.cells import Workload, digest
from pytest_ngraph.spec.precisions import NNCF, QUANTISED, normal, parse
from pytest_ngraph.workloads.kinds.axes import axis_values
from pytest_ngraph.workloads.kinds.catalogue import kind_of
from pytest_ngraph.workloads.modules.casting import changes_graph
from pytest_ngraph.workloads.shapes.elsewhere import is_open, open_sizes

# Raise this when the way weights, inputs, references or ONNX files are made changes.
RECIPE = 2
# Raise this when the way modules are exported, or where the files lie, changes.
_EXPORT_RECIPE = 2
# Raise this when the way f16, bf16 and int8 files are made from what is f32 changes.
_PRECISION_RECIPE = 1
# Raise this when the way optimizers are applied changes, or what one of this package makes.
_OPTIMIZE_RECIPE = 2
# Raise this when what the options of int8 mean changes. Plain int8 is of the one above.
_QUANTISING_RECIPE = 1
# Raise this when the way files with open axes are made changes.
_SHAPES_RECIPE = 2
# Raise this when what is called, drawn or exported of a model that decodes changes.
_DECODE_RECIPE = 1
_EXPORTED_BY = ("onnx", "onnxscript", "onnx-ir")
_CONVERTED_BY = ("onnx", "onnx2torch", "torch")
_QUANTISED_BY = ("onnx", "onnxruntime")
_TREE: list[str] = []


def of_tree(tree: str) -> None:
    """Keep the lists of files that this process makes apart from those of other trees: it is of another side."""
    _TREE[:] = [tree]


def has_files(workload: Workload) -> bool:
    """Return whether the model, or what is done to it, comes from files of the user's, which its key must follow."""
    return kind_of(workload.model).has_files or bool(workload.optimizers)


def sample_key(workload: Workload, seed: int, files: Mapping[str, str]) -> str:
    """Return the content key of inputs and reference outputs, as 64 hex digits: one for all precisions.

    ``files`` maps each of the user's files to its sha256 and each other package that they import to its version.
    """
    name = kind_of(workload.model).key_name(workload.model)
    return digest({**_request(workload, seed), "model": name, "files": contents(files)})


def network_key(workload: Workload, seed: int, files: Mapping[str, str]) -> str:
    """Return the content key of what ``optimize`` leaves of a model, whatever it is called with and exported to."""
    name = kind_of(workload.model).key_name(workload.model)
    request = _request(replace(workload, batch=1, decode=None), seed)
    return digest({**request, "network": name, "files": contents(files)})


def contents(files: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what counts of files: their names and contents, and of those of one name which folder comes first.

    Where the folders are does not count.
    """
    return [(Path(path).name, files[path]) for path in sorted(files, key=lambda path: (Path(path).name, path))]


def onnx_key(workload: Workload, sample: str) -> str:
    """Return the content key of the static ONNX file, in the precision of the workload, that belongs to a sample."""
    tools = () if kind_of(workload.model).is_onnx else _EXPORTED_BY
    content: dict[str, Any] = {"sample": sample, "made_by": _versions(tools)}
    if shares_weights(workload):
        content |= {"export_recipe": _EXPORT_RECIPE}
    content |= opened(workload)
    if changes_graph(workload.precision):
        content |= {"precision": normal(workload.precision), "precision_recipe": _PRECISION_RECIPE}
    if workload.base_precision == QUANTISED:
        content |= {"quantised_by": _versions(_QUANTISED_BY)}
        if (precision := parse(workload.precision)).options:
            more = _versions((NNCF,)) if precision.by == NNCF else {}
            content |= {"quantising_recipe": _QUANTISING_RECIPE, **({"nncf": more[NNCF]} if more else {})}
    return digest(content)


def opened(workload: Workload) -> dict[str, Any]:
    """Return what decides of a build for open shapes, and nothing of others: its open axes and where it is traced."""
    if not is_open(workload):
        return {}
    sizes = {axis: each.traced for axis, each in open_sizes(workload).items()}
    return {"shapes": sizes, "shapes_recipe": _SHAPES_RECIPE}


def shares_weights(workload: Workload) -> bool:
    """Return whether the ONNX file is exported, so that its large weights lie in files that other exports share.

    Of what starts from an ONNX file, and of int8 ones, there is one file with all of it.
    """
    return not kind_of(workload.model).is_onnx and workload.base_precision != QUANTISED


def conversion_name(onnx: str) -> str:
    """Return the name of what is known of converting the file of an ONNX folder with what is installed."""
    return f"torch-{digest({'onnx': onnx, 'made_by': _versions(_CONVERTED_BY)})[:32]}"


def known_files(workload: Workload, seed: int, root: Path, path: Sequence[str] | None = None) -> dict[str, str] | None:
    """Return the files of the last build with their digests, or None where none is known or any has changed since.

    ``path`` is the import path of the workers that build it (``sys.path``).
    """
    if not has_files(workload):
        return {}
    names = [_dependency_file(workload, seed, root, path, of_batch=of_batch) for of_batch in (False, True)]
    try:
        listed = next((file for file in names if file.exists()), names[0])
        files = json.loads(listed.read_text())["files"]
        return files if all(_content_of(name) == content for name, content in files.items()) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # absent, cut short, or a file that is gone
        return None


def remember_files(workload: Workload, seed: int, root: Path, files: Mapping[str, str]) -> None:
    """Write beside the artifacts which files the model was made from, for ``known_files``."""
    if not has_files(workload):
        return
    target = _dependency_file(workload, seed, root, None)
    known = {"model": workload.model.text, "files": dict(files)}
    write(target, json.dumps(known, indent=1, sort_keys=True))


def _content_of(name: str) -> str | None:
    """Return what a file or another package that a model was made from is now. Raise OSError as ``file_digest``."""
    return file_digest(Path(name)) if Path(name).is_absolute() else version_of_module(name)


def _request(workload: Workload, seed: int) -> dict[str, Any]:
    return {
        "recipe": RECIPE,
        "scheme": workload.model.scheme,
        "axes": _axes(workload),
        "batch": workload.batch,
        "precision": "f32",  # of inputs and reference, whatever that of the graph
        "seed": seed,
        "made_by": _versions(kind_of(workload.model).made_by),
        **_optimized(workload),
        # Nothing of a call that is one: its key is that of before.
        **({} if workload.decode is None else {"decode": workload.decode, "decode_recipe": _DECODE_RECIPE}),
    }


def _axes(workload: Workload) -> dict[str, int]:
    """Return the axes that what is made differs by. A length is among them, for static shapes are made for it."""
    unwritten = kind_of(workload.model).unwritten
    return {axis: value for axis, value in axis_values(workload).items() if unwritten.get(axis) != value}


def _optimized(workload: Workload) -> dict[str, Any]:
    """Return what decides of what is done to the network. Nothing of a dense one: its key is that of before."""
    steps = [*steps_of(workload)]
    if not steps:
        return {}
    by = {name: version for _, each in steps for name, version in _versions(each.made_by).items()}
    asked = [[step.name, each.resolve(step), step.ratio] for step, each in steps]
    return {"optimize": asked, "optimize_recipe": _OPTIMIZE_RECIPE, "optimized_by": by}


def _dependency_file(
    workload: Workload, seed: int, root: Path, path: Sequence[str] | None, *, of_batch: bool = False
) -> Path:
    """Return where the files of a model are listed. Unlike contents, a list is of one place.

    A model is built before it is told the batch and the length, so one list is for all of them: see ``building.build``.
    Until 0.2.0 each batch had its own (``of_batch``).
    """
    model = workload.model
    # Another checkout, or a new copy of the project on a device, imports other files by the same name.
    home = model.kind.partition(":")[0] or kind_of(model).module_of(model)
    place: dict[str, Any] = {"place": str(imports.find(home, path))} if home else {}
    if _TREE:
        # What a kind of model that is installed imports of the project lies there, though the kind does not.
        place["tree"] = _TREE[0]
    places = {"optimizers": dict(workload.optimizers)} if workload.optimizers else {}
    request = _request(workload if of_batch else replace(workload, batch=1, sequence=None), seed)
    key = digest({**request, "locator": model.locator, **place, **places, **({} if of_batch else {"batch": None})})
    return root / f"{key[:32]}.deps.json"


def _versions(distributions: tuple[str, ...]) -> dict[str, str]:
    return {name: version_of(name) or "absent" for name in distributions}
