"""What compilers keep between launches - built engines, tuning records - in folders that are keyed by content."""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pytest_ngraph.machine import clock, files
from pytest_ngraph.machine.facts import fingerprint
from pytest_ngraph.spec.cells import Cell, Device, digest
from pytest_ngraph.workloads import folders

if TYPE_CHECKING:
    from pytest_ngraph.workloads.artifacts import Artifact

# Raise this when the layout of what is kept changes.
_RECIPE = 1


class Kept:
    """The shelf of one workload on this machine, beside the store of results.

    ``workload`` is the content key of what is compiled. With ``rebuild`` nothing that was built is reused, and what is
    built is dropped with ``close``. ``variables`` are those of the environment by which compilers decide what they
    build: under others something else is measured, so it is built again.
    """

    def __init__(
        self,
        root: Path,
        workload: str,
        *,
        accelerator: str = "cpu",
        rebuild: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._root, self._workload, self._rebuild = root, workload, rebuild
        self._accelerator, self._variables = accelerator, dict(variables or {})
        self._scratch: list[Path] = []
        # What was damaged, and what looking for it took: that is part of no time that is measured.
        self.remarks: list[str] = []
        self.checking_seconds = 0.0

    @classmethod
    def of(
        cls,
        cell: Cell,
        artifact: Artifact | None,
        artifacts: Path,
        device: Device,
        variables: Mapping[str, str] | None = None,
    ) -> Kept:
        """Return the shelf of a cell. ``artifacts`` is the cache of artifacts, beside which it stands."""
        onnx = artifact.onnx if artifact is not None else None
        content = {
            "artifact": artifact.key if artifact is not None else cell.workload.model.text,
            # The folder of the ONNX file is named by its content.
            "onnx": folders.owner_of(onnx).name if onnx is not None else None,
            "axes": cell.workload.axis_labels(),
            # Where an adapter is the user's, that of another side may make something else of the same.
            **({"side": cell.side} if cell.side else {}),
        }
        return cls(
            artifacts.parent / "compiled",
            digest(content),
            accelerator=device.accelerator,
            rebuild=cell.rebuild,
            variables=variables,
        )

    def built(
        self, compiler: str, facts: Mapping[str, Any], build: Callable[[Path], Mapping[str, Any]]
    ) -> tuple[Path, Mapping[str, Any], bool]:
        """Return the folder of what was built from these facts, its meta data, and whether it had been built before.

        ``facts`` (JSON-able) holds all that matters of options, versions and device. The workload, the machine and the
        variables are added here. ``build`` fills an empty folder with files and returns JSON-able meta data. What it
        raises passes through, and nothing is kept.
        """
        if self._rebuild:
            folder = self._root / f"{folders.SCRATCH}{uuid.uuid4().hex}"
            self._scratch.append(folder)
            folders.publish(folder, build)
            return folder, folders.read(folder) or {}, False
        folder = self._root / self._name(compiler, facts)
        began = clock.seconds()
        said = folders.drop_damaged(folder)
        self.checking_seconds += clock.seconds() - began
        if said:
            self.remarks.append(said)
            sys.stderr.write(f"{said}\n")
        meta = folders.read(folder)
        if meta is not None:
            return folder, meta, True
        folders.publish(folder, build)
        return folder, folders.read(folder) or {}, False

    def records(self, compiler: str, facts: Mapping[str, Any]) -> Path:
        """Return the folder, made where it is missing, for the tuning records or timing caches of these facts.

        It is shared by all workloads and launches, those that rebuild among them, and by machines of one kind under any
        name: a container has a new one each time, and a search takes days. The writer has to make sure that nobody
        else writes there.
        """
        key = self._key(compiler, facts)
        key["machine"] = {name: fact for name, fact in key["machine"].items() if name not in ("node", "python")}
        folder = self._root / f"{compiler}-records-{digest(key)[:32]}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def build_seconds(self, compiler: str, facts: Mapping[str, Any], seconds: float | None) -> float | None:
        """Keep how long building from these facts took. With None, return what is kept, or None where nothing is."""
        if self._rebuild:
            return None
        file = self._root / f"{self._name(compiler, facts)}.seconds"
        if seconds is None:
            try:
                number, known = file.read_text(encoding="ascii").split()
                return float(number) if known == digest(number) else None
            except (OSError, ValueError):
                return None
        self._root.mkdir(parents=True, exist_ok=True)
        files.write(file, f"{seconds!r} {digest(repr(seconds))}")
        return None

    def close(self) -> None:
        """Drop what was built for this process only."""
        for folder in self._scratch:
            shutil.rmtree(folder, ignore_errors=True)
        self._scratch = []

    def _name(self, compiler: str, facts: Mapping[str, Any]) -> str:
        """Return what is built of the workload from these facts is called."""
        return f"{compiler}-{digest({**self._key(compiler, facts), 'workload': self._workload})[:32]}"

    def _key(self, compiler: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "recipe": _RECIPE,
            "compiler": compiler,
            "machine": fingerprint(self._accelerator),
            "facts": dict(facts),
            # Without any it is the key of before they were part of it.
            **({"variables": self._variables} if self._variables else {}),
        }


@contextmanager
def built(
    keep: Kept | None, compiler: str, facts: Mapping[str, Any], build: Callable[[Path], Mapping[str, Any]]
) -> Iterator[tuple[Path, Mapping[str, Any], bool]]:
    """Give what ``Kept.built`` returns, in a folder that lasts as long as the context where nothing is kept."""
    if keep is not None:
        yield keep.built(compiler, facts, build)
        return
    with TemporaryDirectory() as scratch:
        yield Path(scratch), build(Path(scratch)), False
