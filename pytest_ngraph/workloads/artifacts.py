"""The content-addressed cache of inputs, reference outputs and static ONNX files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.spec import Workload
from pytest_ngraph.workloads import folders, keys

if TYPE_CHECKING:
    from pytest_ngraph.workloads.modules.source import TorchSource
    from pytest_ngraph.workloads.onnx_files.source import OnnxSource

ONNX_NAME = "model.onnx"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A workload made ready: where its inputs, reference outputs and ONNX file are; immutable once there.

    ``directory`` holds inputs.npz and reference.npz. ``onnx`` is None where it was not asked for or where the model
    cannot be exported (``meta["onnx_unsupported"]`` is then the reason). ``meta`` has ``parameters``, ``model_bytes``
    (parameters and buffers, or the size of the ONNX file), ``inputs`` and ``outputs`` (name, dtype and shape of
    each), ``project_files`` (path to sha256), ``export_seconds`` and ``notes``.
    """

    key: str
    directory: Path
    onnx: Path | None
    meta: Mapping[str, Any]


def find(workload: Workload, seed: int, root: Path, want_onnx: bool) -> Artifact | None:
    """Return the artifact of a workload where it is in the cache under ``root``; None where it has to be built.

    Imports nothing heavy. Raises SpecError for an axis that the model does not take.
    """
    files = keys.known_files(workload, seed, root)
    return None if files is None else _read(workload, seed, root, want_onnx, files)


def build(workload: Workload, seed: int, root: Path, want_onnx: bool) -> Artifact:
    """Return the artifact of a workload, made and kept under ``root`` where it is not there yet.

    Raises SpecError where the model cannot be made as the suite wrote it and Unsupported where it cannot run at this
    batch or image size. A model that cannot be exported is no error here: see ``Artifact.onnx``.
    """
    found = find(workload, seed, root, want_onnx)
    if found is not None:
        return found
    source = _open_source(workload, seed)
    sample, onnx = _folders(workload, seed, root, source.files)
    if source.starts_from_onnx or want_onnx:
        _make_onnx(source, onnx)
    if folders.read(sample) is None:
        folders.publish(sample, lambda folder: source.write_sample(folder, onnx / ONNX_NAME))
    keys.remember_files(workload, seed, root, source.files)
    artifact = _read(workload, seed, root, want_onnx, source.files)
    if artifact is None:
        raise OSError(f"{root}: what was just written there cannot be read back")
    return artifact


def _make_onnx(source: TorchSource | OnnxSource, folder: Path) -> None:
    if folders.read(folder) is None:
        folders.publish(folder, lambda scratch: source.write_onnx(scratch / ONNX_NAME))


def _open_source(workload: Workload, seed: int) -> TorchSource | OnnxSource:
    if workload.model.scheme == "onnx":
        from pytest_ngraph.workloads.onnx_files.source import OnnxSource

        return OnnxSource(workload, seed)
    from pytest_ngraph.workloads.modules.source import TorchSource

    return TorchSource(workload, seed)


def _folders(workload: Workload, seed: int, root: Path, files: Mapping[str, str]) -> tuple[Path, Path]:
    """Return the folder of the sample and, beside it, the folder of the ONNX file."""
    sample = keys.sample_key(workload, seed, files)
    onnx = keys.onnx_key(workload, sample)
    return root / f"sample-{sample[:32]}", root / f"onnx-{onnx[:32]}"


def _read(workload: Workload, seed: int, root: Path, want_onnx: bool, files: Mapping[str, str]) -> Artifact | None:
    sample, onnx = _folders(workload, seed, root, files)
    meta = folders.read(sample)
    if meta is None:
        return None
    meta = {**meta, "project_files": dict(files)}
    key = keys.sample_key(workload, seed, files)
    if not want_onnx and workload.model.scheme != "onnx":
        return Artifact(key, sample, None, meta)
    onnx_meta = folders.read(onnx)
    if onnx_meta is None:
        return None
    notes = [*meta["notes"], *onnx_meta.get("notes", [])]
    path = None if "onnx_unsupported" in onnx_meta else onnx / ONNX_NAME
    return Artifact(key, sample, path, {**meta, **onnx_meta, "notes": notes})
