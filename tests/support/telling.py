"""An adapter of a user's repository: it writes a line to a file when it compiles, and calls take as long as is said."""

from __future__ import annotations

_SOURCE = """
import os
import time

from pytest_ngraph import Compiler, Executable, Option


class Waiting(Executable):
    placement = {"provider": "waiting"}

    def __init__(self, seconds):
        self._seconds = seconds

    def bind(self, inputs):
        pass

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
        return Waiting(options["ms"] / 1000)


ADAPTER = Telling()
"""


def adapter_that_writes(line: str) -> str:
    """Return the source of the adapter. ``line`` is what it writes, as the inside of an f-string."""
    return _SOURCE.replace("LINE", line)
