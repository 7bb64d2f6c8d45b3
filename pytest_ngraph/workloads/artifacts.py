"""The content-addressed cache of inputs, reference outputs and static ONNX files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import CompileFailed, SpecError, Unsupported, about
from pytest_ngraph.spec.cells import DENSE, Workload, digest
from pytest_ngraph.spec.precisions import QUANTISED, parse
from pytest_ngraph.spec.shapes.mixes import STATIC, is_bucketed
from pytest_ngraph.workloads import folders, keys, references
from pytest_ngraph.workloads.kinds.catalogue import kind_of
from pytest_ngraph.workloads.modules import arrays, casting
from pytest_ngraph.workloads.references import References
from pytest_ngraph.workloads.shapes import elsewhere, padding

if TYPE_CHECKING:
    from pytest_ngraph.workloads.kinds.onnx import OnnxSource
    from pytest_ngraph.workloads.optimizing import Found
    from pytest_ngraph.workloads.quantising.calibration import Calibration
    from pytest_ngraph.workloads.source import TorchSource

ONNX_NAME = "model.onnx"
SYMMETRIC_NAME = "symmetric.onnx"
_ONNX = ".onnx"
_SAMPLE = "sample-"
_F32 = "f32"
# These leave a file as it is.
_AS_WRITTEN = (_F32, "tf32")


@dataclass(frozen=True, slots=True)
class Artifact:
    """A workload made ready: where its inputs, reference outputs and ONNX file are. It never changes once it is there.

    ``directory`` holds inputs.npz, which is f32 and the same for all precisions. So is ``key``. The outputs for them,
    and a set of further inputs with theirs, are kept apart: see ``references.find``.
    ``onnx`` is in the precision of the workload, None where it was not asked for or where the model cannot be exported
    (``meta["onnx_unsupported"]`` is then the reason). ``meta`` has ``parameters``, ``model_bytes`` (parameters and
    buffers in the precision, or the size of the ONNX file; None where it is not known), ``inputs`` and ``outputs``
    (name, dtype and shape of each), ``project_files`` (path to sha256, other packages to version), ``export_seconds``
    and ``notes``. ``beside`` is the artifact of the other sizes at which a build for open shapes is tried, ``lengths``
    has those of the further lengths of a mix, and ``builds`` those of its buckets, each of which is built for itself.
    """

    key: str
    directory: Path
    onnx: Path | None
    meta: Mapping[str, Any]
    beside: Artifact | None = None
    lengths: Mapping[int, Artifact] = field(default_factory=dict)
    builds: Mapping[int, Artifact] = field(default_factory=dict)


def find(
    workload: Workload, seed: int, root: Path, want_onnx: bool, path: Sequence[str] | None = None
) -> Artifact | None:
    """Return the artifact of a workload where it is in the cache under ``root``, or None where it has to be built.

    ``path`` is the import path of the workers that build it (``sys.path``). Imports nothing heavy. Raises SpecError
    for an axis that the model does not take.
    """
    files = keys.known_files(workload, seed, root, path)
    found = None if files is None else _read(workload, seed, root, _wants_own_onnx(workload, want_onnx), files)
    if found is None:
        return None
    parts = [(part, find(part.workload, seed, root, part.wants_onnx, path)) for part in _parts(workload, want_onnx)]
    whole = _together(found, [(part, other) for part, other in parts if other is not None])
    if any(other is None for _, other in parts) or (whole.builds and _padding_of(root, whole) != ""):
        return None
    return whole


def drop_damaged(workload: Workload, seed: int, root: Path, path: Sequence[str] | None = None) -> list[str]:
    """Remove what is damaged of the artifact of a workload, so that it is built again. Return what to say of it.

    Reads all of its files, once in a process: for the process that starts the workers, not for each of them.
    """
    files = keys.known_files(workload, seed, root, path)
    if files is None:
        return []
    for part in _parts(workload, want_onnx=False):
        if dropped := drop_damaged(part.workload, seed, root, path):
            return dropped
    plain = _folders(_plain(workload), seed, root, files)[1]
    key = keys.sample_key(workload, seed, files)
    places = [*_folders(workload, seed, root, files), plain, _conversion(plain), *references.folders_of(root, key)]
    return [said for folder in dict.fromkeys(places) if (said := folders.drop_damaged(folder))]


def reference(artifact: Artifact) -> References:
    """Return what the model of an artifact must give, for the process that judges: no compiler runs in it.

    Raises CompileFailed where it has been deleted.
    """
    return reference_of(artifact.directory.parent, artifact.key)


def reference_of(root: Path, key: str) -> References:
    """Return the reference of an artifact by its key. Raise CompileFailed where it has been deleted."""
    found = references.find(root, key)
    if found is None:
        raise _gone(root / f"{_SAMPLE}{key[:32]}")
    return found


def _gone(folder: Path) -> CompileFailed:
    return CompileFailed(f"the reference of {folder} is gone: delete that folder, too, and run again")


def timed_inputs(root: Path, key: str) -> Mapping[str, Any]:
    """Return the inputs that are timed of an artifact, by name. Raise CompileFailed where it has been deleted."""
    folder = root / f"{_SAMPLE}{key[:32]}"
    meta = folders.read(folder)
    if meta is None:
        raise _gone(folder)
    return arrays.load(folder / "inputs.npz", [each["name"] for each in meta["inputs"]])


def work_of(root: Path, key: str) -> tuple[int, int] | None:
    """Return the multiply-accumulates of a call of an artifact and its parameters, or None where they are not known."""
    sample = folders.read(root / f"{_SAMPLE}{key[:32]}") or {}
    macs, parameters = sample.get("macs"), sample.get("parameters")
    return None if macs is None or parameters is None else (int(macs), int(parameters))


def bounds_of(root: Path, key: str, precision: str) -> str:
    """Return the precision whose bounds the outputs of an artifact are held to where they are asked for in one.

    A file that is quantised, or written in f16 or bf16, is measured and its reference made as it is: what is rounded to
    another one of its steps is as far off as in a file that was made so here.
    """
    if precision not in _AS_WRITTEN:
        return precision
    found = (folders.read(root / f"{_SAMPLE}{key[:32]}") or {}).get("computes_in", _F32)
    return precision if found == _F32 else str(found)


def build(workload: Workload, seed: int, root: Path, want_onnx: bool) -> Artifact:
    """Return the artifact of a workload, made and kept under ``root`` where it is not there yet.

    Raises SpecError where the model cannot be made as the suite wrote it and Unsupported where it cannot run at this
    batch or image size or be had in this precision. A model that cannot be exported is no error here: see
    ``Artifact.onnx``.
    """
    found = find(workload, seed, root, want_onnx)
    if found is not None:
        return found
    if reason := kind_of(workload.model).why_not(workload) or elsewhere.why_not(workload):
        raise Unsupported(f"{workload.label}: {reason}")
    parts = [(part, _build_part(workload, part, seed, root)) for part in _parts(workload, want_onnx)]
    want_onnx = _wants_own_onnx(workload, want_onnx)
    source = _opened(workload, seed, root)
    sample, onnx = _folders(workload, seed, root, source.files)
    unquantised = _plain(workload)
    plain = _folders(unquantised, seed, root, source.files)[1]
    if source.starts_from_onnx:
        _make_onnx(source, unquantised, plain, [])

    def inputs(seed: int, batch: int) -> Mapping[str, Any]:
        return source.inputs(plain / ONNX_NAME, seed, batch)

    key = keys.sample_key(workload, seed, source.files)
    if references.find(root, key) is None:
        shutil.rmtree(references.folder_of(root, key), ignore_errors=True)  # it is whole, what it refers to is not
    expected = _make(
        references.folder_of(root, key),
        lambda folder: references.write(
            folder, inputs, source.runner(plain / ONNX_NAME), workload.batch, seed, workload.label
        ),
    )
    if _knows_no_layers(folders.read(sample), folders.read(plain)):
        shutil.rmtree(sample, ignore_errors=True)
    known = _make(sample, lambda folder: source.write_sample(folder, plain / ONNX_NAME, expected["outputs"]))
    if not source.starts_from_onnx:
        # The sample may be another process's, and what is exported now has to be its network.
        refuse_other_weights(workload, known["weights"], source.weights, sample)
    if want_onnx or source.starts_from_onnx:
        names = [each["name"] for each in known["outputs"]]
        if workload.base_precision == QUANTISED:
            exported = _make_onnx(source, unquantised, plain, names)
            file = _onnx_file(unquantised, plain)
            if _is_from_before(folders.read(onnx)):
                shutil.rmtree(onnx, ignore_errors=True)
            _make(
                onnx,
                lambda folder: _quantise(
                    file, exported, _calibration(source, inputs, workload, seed), folder, workload
                ),
            )
        else:
            _make_onnx(source, workload, onnx, names)
    if _is_converted(workload, want_onnx):
        _make(_conversion(onnx), lambda folder: _try_conversion(onnx, references.find(root, key), sample, known))
    keys.remember_files(workload, seed, root, source.files)
    artifact = _read(workload, seed, root, want_onnx, source.files)
    if artifact is None:
        raise _unreadable(root)
    whole = _together(artifact, parts)
    if whole.builds:
        _refuse_padding(source, workload, root, whole)
    return whole


@dataclass(frozen=True, slots=True)
class _Part:
    """What is made ready beside a workload, for the field of its artifact that has it."""

    field: str
    length: int
    workload: Workload
    wants_onnx: bool


def _parts(workload: Workload, want_onnx: bool) -> list[_Part]:
    """Return at which other sizes a model has to be known, and what is built of it apart: none of static shapes."""
    # Only of a file are inputs and reference made by one.
    once = want_onnx and kind_of(workload.model).is_onnx
    other = elsewhere.elsewhere(workload)
    return [
        *([] if other is None else [_Part("beside", 0, other, once)]),
        *(_Part("lengths", length, each, once) for length, each in elsewhere.lengths(workload).items()),
        *(_Part("builds", length, each, want_onnx) for length, each in elsewhere.builds(workload).items()),
    ]


def _wants_own_onnx(workload: Workload, want_onnx: bool) -> bool:
    """Return whether a file of the workload itself is wanted: not where each of its buckets has one."""
    return want_onnx and not is_bucketed(workload.shapes)


def _build_part(workload: Workload, part: _Part, seed: int, root: Path) -> Artifact:
    what = {
        "beside": f"which is tried at {elsewhere.where(workload)}, too",
        "lengths": f"some of whose calls have a length of {part.length}",
        "builds": f"some of whose calls are padded to a length of {part.length}",
    }
    with about(f"shapes={workload.shapes}, {what[part.field]}"):
        return build(part.workload, seed, root, part.wants_onnx)


def _together(found: Artifact, parts: Iterable[tuple[_Part, Artifact]]) -> Artifact:
    known: dict[str, dict[int, Artifact]] = {"lengths": {}, "builds": {}, "beside": {}}
    for part, artifact in parts:
        known[part.field][part.length] = artifact
    return replace(found, beside=known["beside"].get(0), lengths=known["lengths"], builds=known["builds"])


def onnx_bytes(artifact: Artifact) -> int | None:
    """Return the bytes of the ONNX files that are deployed, those of the weights among them. None where there are none.

    Of a mix that is padded they are the files of all its builds, weights that these share once.
    """
    if not artifact.builds:
        known = artifact.meta.get("onnx_bytes")
        return None if known is None else int(known)
    found: dict[Path, int] = {}
    for each in artifact.builds.values():
        found |= {} if each.onnx is None else folders.sizes(folders.owner_of(each.onnx))
    return sum(found.values()) or None


def _padding_folder(root: Path, whole: Artifact) -> Path:
    """Return the folder that says whether a model gives the same for calls that are padded to its buckets."""
    at = {length: each.key for length, each in whole.lengths.items()}
    to = {length: each.key for length, each in whole.builds.items()}
    return root / f"padding-{digest({'own': whole.key, 'at': at, 'to': to})[:32]}"


def _padding_of(root: Path, whole: Artifact) -> str | None:
    """Return why a model cannot be padded to its buckets, or nothing. None where that was not looked at."""
    known = folders.read(_padding_folder(root, whole))
    return None if known is None else str(known["unsupported"])


def _refuse_padding(source: TorchSource | OnnxSource, workload: Workload, root: Path, whole: Artifact) -> None:
    """Raise Unsupported where the model itself, before any compiler, gives something else for calls that are padded."""

    def look(folder: Path) -> Mapping[str, Any]:
        samples = {workload.sequence or 0: whole, **whole.lengths}
        calls = {length: (timed_inputs(root, each.key), reference(each).timed) for length, each in samples.items()}

        def run(bucket: int, inputs: Mapping[str, Any]) -> list[Any]:
            file = whole.builds[bucket].onnx or whole.builds[bucket].directory
            return list(source.runner(file)(inputs).values())

        return {"unsupported": padding.disagreement(padding.padding_of(whole, workload), calls, run)}

    if reason := _make(_padding_folder(root, whole), look)["unsupported"]:
        raise Unsupported(f"{workload.label}: {reason}")


def _plain(workload: Workload) -> Workload:
    """Return what inputs and reference of an ONNX file are made by: its static f32 copy."""
    return replace(workload, precision="f32", shapes=STATIC)


def look(workload: Workload, seed: int, root: Path) -> None:
    """Learn which files a model is made of, so that its key is known, and make nothing of it.

    For what may prove to be the same on another side, of which nothing is measured. Raises as ``build``.
    """
    if keys.known_files(workload, seed, root) is not None:
        return
    if kind_of(workload.model).is_onnx:
        files = open_source(workload, seed).files
    else:
        from pytest_ngraph.workloads.building import build as build_module

        files = build_module(workload, seed).files
    root.mkdir(parents=True, exist_ok=True)
    keys.remember_files(workload, seed, root, files)


def refuse_other_weights(
    workload: Workload, made_with: Sequence[Sequence[float]], built: Sequence[Sequence[float]], folder: Path
) -> None:
    """Raise SpecError where a module that was built has not the weights that its references were made with."""
    from pytest_ngraph.workloads.modules.fingerprint import is_same

    if is_same(made_with, built):
        return
    text = workload.model.text
    if workload.optimize != DENSE:
        from pytest_ngraph.workloads.optimizing import OTHER_WEIGHTS

        raise SpecError(
            f"model {text!r}: {workload.optimize}: what is left of it has not the weights that the reference outputs "
            f"were made with: {OTHER_WEIGHTS}; else a file that the model reads has changed: delete {folder}"
        )
    raise SpecError(
        f"model {text!r}: its weights are not those that the reference outputs were made with; what builds it must "
        "give the same ones in each process (they may come from torch's, NumPy's or Python's global generator, which "
        f"are seeded), or a file it reads has changed: delete {folder}"
    )


def why_no_module(artifact: Artifact) -> str:
    """Return why the ONNX file of an artifact cannot be converted to a PyTorch module, or nothing where it can.

    That was found out when the artifact was built for a compiler that reads modules.
    """
    assert artifact.onnx is not None
    meta = folders.read(_conversion(folders.owner_of(artifact.onnx)))
    return "it was not converted when its artifact was built" if meta is None else str(meta["unsupported"])


def _is_converted(workload: Workload, want_onnx: bool) -> bool:
    # Where each of its buckets is built for itself, no module is made of the whole.
    if is_bucketed(workload.shapes):
        return False
    return kind_of(workload.model).is_onnx and not want_onnx and not casting.changes_graph(workload.precision)


def _conversion(onnx: Path) -> Path:
    """Return the folder that says whether the file of an ONNX folder can be converted to a module here."""
    return onnx.with_name(keys.conversion_name(onnx.name))


def _try_conversion(
    onnx: Path, expected: References | None, sample: Path, known: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Convert the ONNX file and hold the module to the reference, where no compiler runs."""
    from pytest_ngraph.workloads.onnx_files.to_torch import convert, disagreement

    if expected is None:
        raise _unreadable(onnx)
    inputs = arrays.load(sample / "inputs.npz", [each["name"] for each in known["inputs"]])
    try:
        return {"unsupported": disagreement(convert(onnx / ONNX_NAME), inputs, expected.timed)}
    except Unsupported as error:
        return {"unsupported": str(error)}


def _make_onnx(
    source: TorchSource | OnnxSource, workload: Workload, folder: Path, names: Sequence[str]
) -> Mapping[str, Any]:
    """Publish the ONNX file of a workload as its source writes it, and return its meta data."""
    shares = keys.shares_weights(workload)

    def write(scratch: Path) -> Mapping[str, Any]:
        # Beside the weights that it shares, where it will lie with those of others.
        path = folders.shared_file(scratch / folder.name, _ONNX) if shares else scratch / ONNX_NAME
        return source.write_onnx(path, names, workload.precision, elsewhere.open_sizes(workload))

    return _make(folder, write, shares=shares)


def _onnx_file(workload: Workload, folder: Path) -> Path:
    """Return the ONNX file that is published with a folder."""
    return folders.shared_file(folder, _ONNX) if keys.shares_weights(workload) else folder / ONNX_NAME


def _make(folder: Path, write: Callable[[Path], Mapping[str, Any]], *, shares: bool = False) -> Mapping[str, Any]:
    """Publish a folder where it is not there yet, and return its meta data."""
    if folders.read(folder) is None:
        folders.publish(folder, write, shares=shares)
    meta = folders.read(folder)
    if meta is None:
        raise _unreadable(folder)
    return meta


def _unreadable(folder: Path) -> OSError:
    return OSError(f"{folder}: what was just written there cannot be read back")


def _quantise(
    file: Path,
    exported: Mapping[str, Any],
    calibration: Callable[[], Calibration],
    folder: Path,
    workload: Workload,
) -> Mapping[str, Any]:
    """Write the int8 copy of an f32 file. A model that has no such file has no copy for that reason."""
    from pytest_ngraph.workloads.quantising.quantise import quantise

    if "onnx_unsupported" in exported:
        return exported
    precision = parse(workload.precision)
    made = quantise(file, folder / ONNX_NAME, folder / SYMMETRIC_NAME, calibration(), precision, workload.label)
    seconds = (exported.get("export_seconds") or 0.0) + made["quantise_seconds"]
    sizes = {"onnx_bytes": made["onnx_bytes"], "model_bytes": made["onnx_bytes"]}
    return {**exported, "export_seconds": seconds, **sizes, "quantised": made["quantised"]}


def _calibration(
    source: TorchSource | OnnxSource, inputs: Callable[[int, int], Mapping[str, Any]], workload: Workload, seed: int
) -> Callable[[], Calibration]:
    """Return what says what a model is calibrated on: its own samples where it brings some, else drawn ones."""
    from pytest_ngraph.workloads.quantising import calibration

    def chosen() -> Calibration:
        batch, samples = workload.batch, parse(workload.precision).samples
        timed, items = inputs(seed, batch), source.calibration_inputs()
        if items is not None:
            return calibration.brought(items, timed, workload.model.text, batch, samples)
        stacked = samples is None or calibration.draws_one(inputs, timed, seed + 1, batch)
        return calibration.drawn(inputs, seed, batch, samples, stacked)

    return chosen


def _is_from_before(meta: Mapping[str, Any] | None) -> bool:
    """Return whether an int8 file was made before it was known how much of it is quantised, and on what."""
    return meta is not None and "quantised" not in meta and "onnx_unsupported" not in meta


def _knows_no_layers(sample: Mapping[str, Any] | None, onnx: Mapping[str, Any] | None) -> bool:
    """Return whether a sample of a file in another precision was made before it was known in what its layers compute.

    None of a network that was exported says in what its file is written, as that is the workload's.
    """
    written = (onnx or {}).get("graph_precision", _F32)
    return sample is not None and written != _F32 and "computes_in" not in sample


def _opened(workload: Workload, seed: int, root: Path) -> TorchSource | OnnxSource:
    """Open what a workload is written from, with what was searched of its network before, and keep what is now."""
    if workload.optimize == DENSE:
        return open_source(workload, seed)
    from pytest_ngraph.workloads.optimizing import found_before, keep_found

    found = found_before(workload, seed, root, keys.known_files(workload, seed, root))
    source = open_source(workload, seed, found)
    keep_found(workload, seed, root, source.files, found)
    return source


def open_source(workload: Workload, seed: int, found: Found | None = None) -> TorchSource | OnnxSource:
    """Return what a workload is written from: a module that is built, or an ONNX file. It draws its inputs, too."""
    if kind_of(workload.model).is_onnx:
        from pytest_ngraph.workloads.kinds.onnx import OnnxSource

        return OnnxSource(workload, seed)
    from pytest_ngraph.workloads.source import TorchSource

    return TorchSource(workload, seed, found)


def _folders(workload: Workload, seed: int, root: Path, files: Mapping[str, str]) -> tuple[Path, Path]:
    """Return the folder of the sample and, beside it, the folder of the ONNX file."""
    sample = keys.sample_key(workload, seed, files)
    onnx = keys.onnx_key(workload, sample)
    return root / f"{_SAMPLE}{sample[:32]}", root / f"onnx-{onnx[:32]}"


def _read(workload: Workload, seed: int, root: Path, want_onnx: bool, files: Mapping[str, str]) -> Artifact | None:
    sample, onnx = _folders(workload, seed, root, files)
    meta = folders.read(sample)
    key = keys.sample_key(workload, seed, files)
    if meta is None or references.find(root, key) is None:
        return None
    meta = {**meta, "project_files": dict(files)}
    if workload.precision in casting.CAST:
        # Samples from before there were precisions do not know it.
        meta["model_bytes"] = meta.get("cast_bytes")
    if not want_onnx and not kind_of(workload.model).is_onnx:
        return Artifact(key, sample, None, meta)
    onnx_meta = folders.read(onnx)
    if workload.base_precision == QUANTISED and _is_from_before(onnx_meta):
        return None
    if _knows_no_layers(meta, onnx_meta):
        return None
    if onnx_meta is None or (_is_converted(workload, want_onnx) and folders.read(_conversion(onnx)) is None):
        return None
    notes = [*meta["notes"], *onnx_meta.get("notes", [])]
    path = None if "onnx_unsupported" in onnx_meta else _onnx_file(workload, onnx)
    return Artifact(key, sample, path, {**meta, **onnx_meta, "notes": notes})
