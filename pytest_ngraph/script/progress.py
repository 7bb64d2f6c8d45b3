"""The progress of a session: a line that rewrites itself on a terminal or in a notebook, plain lines otherwise."""

from __future__ import annotations

import shutil
import sys
import uuid
from typing import Any

from pytest_ngraph.front.progress import Steps
from pytest_ngraph.texts.shown import excerpt, one_line


def progress_of(*, quiet: bool) -> StreamProgress:
    """Return what shows what a session does, where this process is."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    # IPython on a terminal is a terminal.
    return NotebookProgress(quiet=quiet) if getattr(shell, "kernel", None) is not None else StreamProgress(quiet=quiet)


class StreamProgress(Steps):
    """Shows what a session does on standard error. Silent where it is told to be, and where there is no such stream.

    The stream is asked for each time: a notebook, for one, puts others in its place.
    """

    def __init__(self, *, quiet: bool, live: bool | None = None) -> None:
        terminal = sys.stderr is not None and sys.stderr.isatty()
        super().__init__(silent=quiet or sys.stderr is None, live=terminal if live is None else live)
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

    def ended(self) -> None:
        """Take the live line away for good: what was asked for is done, or given up."""
        self.idle()

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


class NotebookProgress(StreamProgress):
    """Shows what a session does below the cell that asks for it, in a line that goes once it is done.

    What stays is printed as output: notebooks show all of standard error as if something was wrong.
    """

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet, live=True)
        self._place, self._is_empty = "", True

    def note(self, text: str) -> None:
        """Print a line that stays."""
        if not self._silent:
            sys.stdout.write(excerpt(f"ngraph: {text}") + "\n")

    def idle(self) -> None:
        """Empty the live line."""
        if not self._is_empty:
            self._display("")

    def ended(self) -> None:
        """Empty the live line. The next one is that of the cell which then runs."""
        self.idle()
        self._place = ""

    def _show(self, text: str) -> None:
        self._display(f"ngraph: {one_line(text)}")

    def _display(self, line: str) -> None:
        is_there = bool(self._place)
        self._place, self._is_empty = self._place or uuid.uuid4().hex, not line
        shown: Any = sys.modules["IPython"].display
        shown.display({"text/plain": line}, raw=True, display_id=self._place, update=is_there)
