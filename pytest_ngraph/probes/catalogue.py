"""Which probes there are, and which one a device is measured by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_ngraph.probes.contract import EnergyCounter, LoadSensor, PowerSensor, Probe
from pytest_ngraph.probes.devfreq import DevfreqLoad
from pytest_ngraph.probes.ina3221 import Ina3221
from pytest_ngraph.probes.nvml import NvmlEnergy, NvmlLoad
from pytest_ngraph.probes.rapl import Rapl

SYS = Path("/sys")
# Columns of what a probe is for and of its name, in ``described``.
_WHAT, _NAME = 8, 12
BEHIND_NAMES = _WHAT + _NAME


def energy_probes(accelerator: str = "cpu", sys: Path | None = None) -> Sequence[EnergyCounter | PowerSensor]:
    """Return the probes of energy for a device, the one that covers most first.

    The input of a module has everything in it, CPU and GPU. Else a GPU is asked for a device that computes on one, and
    the CPU packages for one that does not.
    """
    root = sys or SYS
    module = Ina3221(root / "class/hwmon")
    return [module, Rapl(root / "class/powercap") if accelerator == "cpu" else NvmlEnergy(accelerator)]


def load_probes(accelerator: str = "cpu", sys: Path | None = None) -> Sequence[LoadSensor]:
    """Return the probes of a GPU's load for a device, none for one that computes on CPUs."""
    if accelerator == "cpu":
        return []
    return [DevfreqLoad((sys or SYS) / "class/devfreq"), NvmlLoad(accelerator)]


def first_of(probes: Sequence[Probe]) -> tuple[Probe | None, str]:
    """Return the first probe that can be read, or None, with why each does not."""
    reasons = []
    for probe in probes:
        reason = probe.why_not()
        if not reason:
            return probe, ""
        reasons.append(f"{probe.name}: {reason}")
    return None, "; ".join(reasons)


def described(accelerator: str = "cpu", sys: Path | None = None) -> Iterator[str]:
    """Yield a line for each probe of a device: what it covers and how long its windows are, or why it is not there."""
    probes: list[tuple[str, Probe]] = [("energy", each) for each in energy_probes(accelerator, sys)]
    probes += [("load", each) for each in load_probes(accelerator, sys)]
    for what, probe in probes:
        reason = probe.why_not()
        said = f"no: {reason}" if reason else f"yes  {probe.covers}; windows of {probe.window_seconds:g} s"
        yield f"{what:<{_WHAT}}{probe.name:<{_NAME}}{said}"
