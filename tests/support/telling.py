"""An adapter of a user's repository: it writes a line to a file when it compiles, and calls take as long as is said.

Where a file FILE.hold has ``N LINE``, what wrote that line (or anything, for ``*``) waits in its N-th visit until
the file is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SOURCE = """
import os
import time

from pytest_ngraph import Compiler, Executable, Option


class Waiting(Executable):
    placement = {"provider": "waiting"}

    def __init__(self, seconds, hold, line):
        self._seconds, self._hold, self._line, self._bound = seconds, hold, line, 0

    def bind(self, inputs):
        # Once before the visits, and at the beginning of each.
        while self._is_held(self._bound):
            time.sleep(0.05)
        self._bound += 1

    def _is_held(self, visit):
        try:
            with open(self._hold) as file:
                number, line = file.read().split(" ", 1)
        except FileNotFoundError:
            return False
        return visit >= int(number) and line in (self._line, "*")

    def run(self):
        time.sleep(self._seconds)

    def outputs(self):
        return None


class Telling(Compiler):
    name = "telling"
    reads = "nothing"
    options = (Option("ms", "1", "Milliseconds of a call", kind="number"), Option("file", "", "A file", kind="text"))

    def compile(self, workload, device, options):
        with open(options["file"], "a") as file:
            file.write(f"LINE\\n")
        return Waiting(options["ms"] / 1000, options["file"] + ".hold", f"LINE")


ADAPTER = Telling()
"""


@contextmanager
def holding(file: Path, visit: int, line: str = "*") -> Iterator[None]:
    """Let what writes this line to a file, or whatever does, measure no further than into one of its visits, inside."""
    hold, new = file.with_name(f"{file.name}.hold"), file.with_name(f"{file.name}.new")
    new.write_text(f"{visit} {line}")
    new.rename(hold)
    try:
        yield
    finally:
        hold.unlink()


def adapter_that_writes(line: str) -> str:
    """Return the source of the adapter. ``line`` is what it writes, as the inside of an f-string."""
    return _SOURCE.replace("LINE", line)
