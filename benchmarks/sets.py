"""Finished sets of measurements on disk, one at a time, and the children that end with the script that makes them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import monotonic
from types import FrameType
from typing import Any

from pytest_ngraph.machine.facts import describe

Json = dict[str, Any]


class Sets:
    """A JSON file with a set in each line; what is in it is finished, and nothing else ever is."""

    def __init__(self, file: Path) -> None:
        self._file = file
        content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"machines": [], "sets": []}
        self._machines: list[Json] = content["machines"]
        self.all: list[Json] = content["sets"]

    def of(self, row: str) -> list[Json]:
        """Return the sets of a row, oldest first."""
        return [one for one in self.all if one["row"] == row]

    def add(self, one: Mapping[str, Any]) -> None:
        """Append a set with the machine it was made on; the file is the old one or the new one, never half of it."""
        # The name of a machine says nothing about it.
        machine = {key: value for key, value in describe().items() if key != "node"}
        if machine not in self._machines:
            self._machines.append(machine)
        self.all.append({**one, "machine": self._machines.index(machine)})
        new = self._file.with_suffix(".new")
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(_as_lines(self._machines, self.all), encoding="utf-8")
        new.replace(self._file)


def _as_lines(machines: Sequence[Json], sets: Sequence[Json]) -> str:
    def lines(values: Sequence[Json]) -> str:
        return ",\n".join(json.dumps(value, separators=(",", ":")) for value in values)

    return f'{{"machines":[\n{lines(machines)}\n],"sets":[\n{lines(sets)}\n]}}\n'


class Session:
    """The minutes that a script may take."""

    def __init__(self, minutes: float) -> None:
        self._ends = monotonic() + 60 * minutes

    @property
    def seconds_left(self) -> float:
        """Return the seconds that are left; a set that has not finished by then is given up."""
        return self._ends - monotonic()

    def has_time(self, earlier_seconds: Sequence[float]) -> bool:
        """Tell whether one more set fits, which takes as long as the earlier ones; the first of a row may try."""
        return self.seconds_left > (median(earlier_seconds) if earlier_seconds else 0.0)


def end_well() -> None:
    """Let a request to end unwind the script like an interrupt, so that nothing is left behind."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def run_pytest(folder: Path, arguments: Sequence[str], *, timeout_seconds: float) -> tuple[int, float, str]:
    """Run pytest in a folder; return its exit status, wall seconds and output. It ends with this process.

    The folder's conftest has to ask for that, see ``verdicts.CONFTEST``; 124 is the status of what took too long.
    """
    home = str(Path(__file__).resolve().parents[1])
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "PYTEST_ADDOPTS")}
    environment["PYTHONPATH"] = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *arguments]
    output = folder / "output.txt"
    began = monotonic()
    with output.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            status = 124
        finally:
            # Its workers are killed by the kernel when it ends.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return status, monotonic() - began, output.read_text(encoding="utf-8", errors="replace")
