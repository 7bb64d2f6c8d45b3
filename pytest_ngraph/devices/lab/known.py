"""The devices that a run may name - this machine's, and those of the registry - with a bench for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices import local
from pytest_ngraph.errors import DeviceOffline, SpecError, known
from pytest_ngraph.machine import gpu
from pytest_ngraph.machine.facts import cpu_model
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.spec import precisions
from pytest_ngraph.workloads.kinds import kind_of

if TYPE_CHECKING:
    from pytest_ngraph.devices.bench import Bench
    from pytest_ngraph.devices.registry import Registry
    from pytest_ngraph.sides import SidesOfRun
    from pytest_ngraph.spec.cells import ModelRef
    from pytest_ngraph.spec.sides import OtherSide


class Devices:
    """What a run knows of devices. Remote ones are asked when something of theirs is first needed.

    ``folders`` gives the conftests' folders, which are known after collection. ``note`` shows a user what is waited
    for. A run that only ``collects`` asks no remote device: an editor that lists tests has no certificate, and
    should not wait for a lab. ``sides`` gives the other sides of the run, known after collection as well.
    """

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        rootdir: Path,
        folders: Callable[[], Sequence[str]],
        note: Callable[[str], None],
        *,
        collects: bool = False,
        sides: Callable[[], SidesOfRun | None] = lambda: None,
    ) -> None:
        self._settings, self._catalogue, self._rootdir = settings, catalogue, rootdir
        self._folders, self._note, self._collects, self._sides = folders, note, collects, sides
        self._benches: dict[str, Bench] = {}
        self._labels: dict[str, Callable[[SidesOfRun], Mapping[str, OtherSide]]] = {}
        self._others: dict[str, Mapping[str, OtherSide]] = {}
        self._offline: dict[str, DeviceOffline] = {}
        self._missing: dict[tuple[str, str | ModelRef], str | None] = {}

    @cached_property
    def registry(self) -> Registry:
        """Return the hubs and devices of the configuration. Raise SpecError for one that cannot be used."""
        from pytest_ngraph.devices.registry import read_registry

        return read_registry(self._settings.config, self._rootdir)

    def check(self, name: str) -> None:
        """Raise SpecError for a name that is neither this machine's nor in the registry."""
        if self._is_known(name):
            return
        names = [*local.KNOWN, *sorted(self.registry.devices)]
        raise SpecError(
            f"unknown device {name!r} ({known(name, names)}); others are named in [tool.ngraph.devices.NAME]"
        )

    def _is_known(self, name: str) -> bool:
        return local.is_known(name) or name in self.registry.devices

    def kind_of(self, name: str) -> str:
        """Return what kind of accelerator a device has: ``cpu`` or ``cuda``."""
        if local.is_known(name):
            return local.kind_of(name)
        entry = self.registry.devices.get(name)
        return entry.accelerator.partition(":")[0] if entry is not None else "cpu"

    def is_asked(self, name: str) -> bool:
        """Return whether a device is asked what it is and has in this run."""
        return local.is_known(name) or not self._collects

    def bench(self, name: str) -> Bench:
        """Return the bench of a device, made at the first call.

        Raises SpecError for a GPU that is not there, DeviceOffline and DeviceUnusable for a remote device.
        """
        if name in self._offline:
            # It was asked and waited for once; the others of the run go on at once.
            raise self._offline[name]
        if name not in self._benches:
            try:
                self._benches[name] = self._made(name)
            except DeviceOffline as offline:
                self._offline[name] = offline
                raise
        return self._benches[name]

    def _made(self, name: str) -> Bench:
        settings = self._settings
        if local.is_known(name):
            device = local.device_named(name, settings)
            sides = self._sides()
            here = () if sides is None else sides.here.values()
            job = local.job(settings, self._catalogue, device, self._folders(), here)
            self._labels[name] = lambda sides: sides.known_here
            return local.LocalBench(job, self._catalogue, settings.protocol, settings.seed, self._rootdir)
        self.check(name)
        if settings.offline:
            from pytest_ngraph.devices.stored import StoredBench

            entry = self.registry.devices[name]
            self._labels[name] = lambda sides: sides.known_offline(name)
            threads = settings.threads or entry.threads
            return StoredBench(
                name, entry.accelerator, threads, settings.store, protocol=settings.protocol.name, seed=settings.seed
            )
        from pytest_ngraph.devices.lab.remote import remote_bench

        made = remote_bench(name, self.registry, settings, self._catalogue, self._folders, self._rootdir, self._note)
        self._labels[name] = made.take_sides
        return made

    def other_sides(self, name: str) -> Mapping[str, OtherSide]:
        """Return the other sides of the run on a device, by what asks for them. Those of the device are asked for once.

        Raises SpecError for one that cannot be had, and what ``bench`` raises.
        """
        sides = self._sides()
        if sides is None:
            return {}
        self.bench(name)
        if name not in self._others:
            self._others[name] = self._labels[name](sides)
        return self._others[name]

    def cpu(self, name: str) -> str:
        """Return the model of a device's processor."""
        return cpu_model() if local.is_known(name) else str(self.bench(name).facts()["cpu"])

    def gpu(self, name: str) -> str:
        """Return the name of the GPU that a device computes on, nothing where it has none or does not say."""
        if not local.is_known(name):
            return gpu.name_in(self.bench(name).facts())
        accelerator = self.bench(name).device.accelerator
        return "" if accelerator == "cpu" else gpu.name_in({"gpu": gpu.find(accelerator).facts()})

    def missing(self, name: str, compiler: str) -> str | None:
        """Return what a compiler lacks on a device, or that the device is offline, or None where it can run there."""
        if (name, compiler) not in self._missing:
            here = self._catalogue.get(compiler).missing
            self._missing[name, compiler] = self._asked(name, here, lambda bench: bench.missing(compiler))
        return self._missing[name, compiler]

    def missing_for(self, name: str, model: ModelRef) -> str | None:
        """Return what a model lacks on a device, or None."""
        if (name, model) not in self._missing:
            here = kind_of(model).missing
            self._missing[name, model] = self._asked(name, here, lambda bench: bench.missing_for(model))
        return self._missing[name, model]

    def missing_quantiser(self, name: str, precision: str) -> str | None:
        """Return what a precision lacks on a device, or None. A remote one refuses such cells itself."""
        return precisions.missing(precision) if local.is_known(name) else None

    def _asked(self, name: str, here: Callable[[], str | None], remote: Callable[[Bench], str | None]) -> str | None:
        if local.is_known(name):
            return here()
        if not self._is_known(name):
            # Names in options are checked after collection; there it is said.
            return None
        if not self.is_asked(name):
            return None
        try:
            return remote(self.bench(name))
        except DeviceOffline as offline:
            return str(offline)

    def close(self) -> None:
        """Release every device."""
        for bench in self._benches.values():
            bench.close()
