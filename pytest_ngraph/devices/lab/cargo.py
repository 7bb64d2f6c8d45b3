"""What goes to a device before it is asked: the project, the files of models and the other sides, each sent once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.catalogue import BUILT_IN, Catalogue
from pytest_ngraph.devices.agent import tasks
from pytest_ngraph.devices.wire import shipping
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.spec.cells import Device, ModelRef
from pytest_ngraph.workloads.kinds import kind_of
from pytest_ngraph.workloads.kinds.contract import AS_FILES

if TYPE_CHECKING:
    from pytest_ngraph.devices.lab.sides import RemoteSides
    from pytest_ngraph.devices.registry import DeviceEntry

# Sends what is known by this sha256 and so large, which is read in parts.
Send = Callable[[str, int, Callable[[int, int], bytes]], None]


class Cargo:
    """What the benches of a run's requests are made of on one device.

    What was packed does not change during a run, unless it is told to pack again.
    """

    def __init__(
        self,
        entry: DeviceEntry,
        device: Device,
        power_mode: Mapping[str, str],
        settings: Settings,
        catalogue: Catalogue,
        folders: Callable[[], Sequence[str]],
        rootdir: Path,
        send: Send,
    ) -> None:
        """Keep what is packed when it is first asked for.

        ``power_mode`` is that in which the run began, and ``folders`` are those of the conftests.
        """
        self._entry, self._device, self._settings, self._catalogue = entry, device, settings, catalogue
        self._power_mode = power_mode
        self._folders, self._rootdir, self._send = folders, rootdir, send
        self._bundles: dict[ModelRef, shipping.Bundle] = {}
        self.timeout_seconds = entry.timeout_seconds or settings.timeout_seconds
        self.sides: RemoteSides | None = None

    def made_of(self, models: Sequence[ModelRef]) -> dict[str, Any]:
        """Send what is not there yet, and return what a bench for these models is made of."""
        project, sides = self._project, self.sides
        for archive in (project, *(sides.archives() if sides is not None else ())):
            self._send(archive.sha256, len(archive.data), partial(_slice_of, archive.data))
        bundles: dict[str, dict[str, str]] = {}
        moved: dict[str, dict[str, str]] = {}
        for model in models:
            if kind_of(model).travels == AS_FILES:
                bundle = self._bundle(model)
                there = sides.bundles(model) if sides is not None else {}
                for label, other in there.items():
                    moved.setdefault(label, {})[bundle.name] = other.name if other is not None else ""
                for each in filter(None, (bundle, *there.values())):
                    bundles[each.name] = dict(each.contents)
                    for path, content in each.files:
                        self._send(content, path.stat().st_size, partial(_part_of, path))
        compared: dict[str, Any] = {}
        if sides is not None:
            own_outputs = self._settings.against_outputs == "own"
            compared = {"sides": sides.to_json(moved), "own_outputs": own_outputs}
        imported = [str(Path(entry).absolute()) for entry in [*sys.path, *self._folders()] if Path(entry).is_dir()]
        return tasks.bench_of(
            self._entry,
            self._device,
            protocol=self._settings.protocol,
            seed=self._settings.seed,
            timeout_seconds=self.timeout_seconds,
            places={name: self._catalogue.place(name) for name in self._catalogue if name not in BUILT_IN},
            project=project.sha256,
            path=project.path_of(imported),
            files=bundles,
            power_mode=dict(self._power_mode),
            **compared,
        )

    def reference(self, model: ModelRef) -> ModelRef:
        """Return a reference that the device can follow."""
        as_files = kind_of(model).travels == AS_FILES
        return self._bundle(model).reference if as_files else self._project.reference(model)

    def pack_again(self) -> None:
        """Forget what was packed: it may have changed since."""
        self._bundles.clear()
        self.__dict__.pop("_project", None)

    @cached_property
    def _project(self) -> shipping.Project:
        return shipping.pack(self._rootdir)

    def _bundle(self, model: ModelRef) -> shipping.Bundle:
        if model not in self._bundles:
            self._bundles[model] = shipping.bundle(model)
        return self._bundles[model]


def _slice_of(data: bytes, offset: int, size: int) -> bytes:
    return data[offset : offset + size]


def _part_of(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)
