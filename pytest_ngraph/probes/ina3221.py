"""The INA3221 of Jetson boards by hwmon: voltage and current of power rails, of which one feeds the whole module."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_ngraph.probes.contract import PowerSensor, Unreadable, number_of, text_of

ROOT = Path("/sys/class/hwmon")
# The rails that feed everything else on the module. On boards without such a rail the sum of others would be a guess.
INPUT_RAILS = ("VDD_IN", "POM_5V_IN", "5V_IN")
_LABEL = re.compile(r"in(\d+)_label\Z")
# What its registers count in: volts at its shunt resistor, and of the rail.
_SHUNT_VOLTS, _RAIL_VOLTS = 40e-6, 8e-3
_USUAL_SECONDS = 0.05
# What reading three rails once takes at most: an interval of more is that of all samples of an average.
_LONGEST_ONCE = 0.05


class Ina3221(PowerSensor):
    """The input rail of a Jetson module."""

    name = "ina3221"

    def __init__(self, root: Path = ROOT) -> None:
        """Take the folder of hwmon."""
        self._root = root

    @property
    def covers(self) -> str:  # type: ignore[override]
        """Return which rail is read."""
        folder, number, rail = self._input()
        return f"the whole Jetson module by its input rail {rail} ({folder.name}, channel {number}), not its carrier"

    @property
    def resolution_seconds(self) -> float:  # type: ignore[override]
        """Return over how long a reading tells: by the driver's interval, times the samples that are averaged.

        Older kernels have the samples in the interval, newer ones do not. Where it may be either, it is the longer.
        """
        try:
            folder = self._input()[0]
            interval = number_of(folder / "update_interval") * 1e-3
            samples = number_of(folder / "samples") if (folder / "samples").exists() else 1
        except Unreadable:
            return _USUAL_SECONDS
        return max(_USUAL_SECONDS, interval if interval > _LONGEST_ONCE else interval * max(1, samples))

    def read(self) -> float:
        """Return the power of the input rail: mV x mA are microwatts."""
        volts, amperes = self._volts_and_amperes()
        return volts * amperes

    def step_watts(self) -> float | None:
        """Return what a step of both registers is at what they say now, None where the driver says too little."""
        folder, number, _ = self._input()
        if not (folder / "update_interval").exists() or not (folder / f"shunt{number}_resistor").exists():
            return None
        microohms = number_of(folder / f"shunt{number}_resistor")
        if microohms <= 0:
            return None
        volts, amperes = self._volts_and_amperes()
        return volts * _SHUNT_VOLTS / (microohms * 1e-6) + amperes * _RAIL_VOLTS

    def _volts_and_amperes(self) -> tuple[float, float]:
        folder, number, _ = self._input()
        return number_of(folder / f"in{number}_input") * 1e-3, number_of(folder / f"curr{number}_input") * 1e-3

    def _input(self) -> tuple[Path, str, str]:
        """Return folder, channel and name of the rail that feeds the module. Raise Unreadable where there is none."""
        rails = self.rails()
        for wanted in INPUT_RAILS:
            if wanted in rails:
                return (*rails[wanted], wanted)
        if not rails:
            raise Unreadable(f"no INA3221 below {self._root}: not a Jetson")
        raise Unreadable(
            f"the INA3221 has the rails {', '.join(sorted(rails))}, none of which is known to feed the whole module "
            f"(known: {', '.join(INPUT_RAILS)})"
        )

    def rails(self) -> dict[str, tuple[Path, str]]:
        """Return folder and channel of each rail by its name."""
        found: dict[str, tuple[Path, str]] = {}
        for folder in sorted(self._root.glob("hwmon*")):
            try:
                if text_of(folder / "name") != "ina3221":
                    continue
            except Unreadable:
                continue
            for path in sorted(folder.glob("in*_label")):
                match = _LABEL.match(path.name)
                # Channel 7 is the sum of shunt voltages, which no rail is.
                if match and (folder / f"curr{match[1]}_input").exists():
                    found.setdefault(text_of(path), (folder, match[1]))
        return found
