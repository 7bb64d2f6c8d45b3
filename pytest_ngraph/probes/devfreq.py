"""The load of a Jetson's GPU by the file of its driver: NVML does not say it there."""

from __future__ import annotations

from pathlib import Path

from pytest_ngraph.probes.contract import LoadSensor, Unreadable, number_of

ROOT = Path("/sys/class/devfreq")
# The GPUs of the modules by how their drivers call them, from TX1 to Orin and Thor.
_GPUS = ("gpu", "gm20b", "gp10b", "gv11b", "ga10b", "gb10b")


class DevfreqLoad(LoadSensor):
    """How busy the GPU is, in thousandths, by its ``load`` file."""

    name = "devfreq"
    resolution_seconds = 0.1
    looks_back_seconds = 0.5

    def __init__(self, root: Path = ROOT) -> None:
        """Take the folder of devfreq."""
        self._root = root

    @property
    def covers(self) -> str:  # type: ignore[override]
        """Return which GPU is read."""
        return f"the GPU {self._file().parent.parent.name}, all of its processes"

    def read(self) -> float:
        """Return the load of the moment."""
        path = self._file()
        load = number_of(path)
        if not 0 <= load <= 1000:
            raise Unreadable(f"{path}: {load} (expected thousandths, 0 to 1000)")
        return load / 1000

    def _file(self) -> Path:
        for folder in sorted(self._root.glob("*")):
            if any(name in folder.name for name in _GPUS) and (path := folder / "device" / "load").exists():
                return path
        raise Unreadable(f"no load file of a GPU below {self._root}: not a Jetson")
