"""The INA3221 of Jetson boards by hwmon: voltage and current of power rails, of which one feeds the whole module."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_ngraph.probes.contract import PowerSensor, Unreadable, number_of, text_of

ROOT = Path("/sys/class/hwmon")
# The rails that feed everything else on the module. On boards without such a rail the sum of others would be a guess.
INPUT_RAILS = ("VDD_IN", "POM_5V_IN", "5V_IN")
_LABEL = re.compile(r"in(\d+)_label\Z")


class Ina3221(PowerSensor):
    """The input rail of a Jetson module."""

    name = "ina3221"
    resolution_seconds = 0.05

    def __init__(self, root: Path = ROOT) -> None:
        """Take the folder of hwmon."""
        self._root = root

    @property
    def covers(self) -> str:  # type: ignore[override]
        """Return which rail is read."""
        folder, number, rail = self._input()
        return f"the whole Jetson module by its input rail {rail} ({folder.name}, channel {number}), not its carrier"

    def read(self) -> float:
        """Return the power of the input rail: mV x mA are microwatts."""
        folder, number, _ = self._input()
        return number_of(folder / f"in{number}_input") * number_of(folder / f"curr{number}_input") * 1e-6

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
