"""The progress of a session on standard error: a line that rewrites itself on a terminal, plain lines otherwise."""

from __future__ import annotations

import shutil
import sys

from pytest_ngraph.front.progress import Steps
from pytest_ngraph.texts.shown import excerpt, one_line


class StreamProgress(Steps):
    """Shows what a session does. Silent where it is told to be, and where there is no standard error stream.

    The stream is asked for each time: a notebook, for one, puts others in its place.
    """

    def __init__(self, *, quiet: bool) -> None:
        terminal = sys.stderr is not None and sys.stderr.isatty()
        super().__init__(silent=quiet or sys.stderr is None, live=terminal)
        self._width = 0

    def note(self, text: str) -> None:
        """Print a line that stays."""
        if not self._silent:
            self.idle()
            self._write(excerpt(f"ngraph: {text}") + "\n")

    def idle(self) -> None:
        """Take the live line away."""
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _show(self, text: str) -> None:
        line = f"ngraph: {one_line(text)}"
        if not self._live:
            self._write(line + "\n")
            return
        line = line[: shutil.get_terminal_size().columns - 1]
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            # The stream was closed: nobody reads, and what is measured is worth more than saying so.
            self._silent, self._live = True, False
