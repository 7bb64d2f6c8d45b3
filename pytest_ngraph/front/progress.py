"""The live progress line of long measurements, and plain lines where there is no terminal."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.texts.shown import excerpt, one_line

if TYPE_CHECKING:
    import pytest

_PLAIN_EVERY_SECONDS = 20.0
_LIVE_EVERY_SECONDS = 0.1
# So many times as long as it was said to be is said again.
_FAR_OFF = 2


class Steps:
    """What a session does, in words and not more often than an eye or a log can take. Where it is shown, others say.

    A ``live`` line rewrites itself; otherwise there is now and then a line.
    """

    def __init__(self, *, silent: bool, live: bool) -> None:
        self._silent, self._live = silent, live and not silent
        self._shown_at = 0.0
        self._launch_started = 0.0
        self._launch_seconds = 0.0
        self._launch_key, self._said_seconds = ("", 0), 0.0

    def note(self, text: str) -> None:
        """Print a line that stays."""
        raise NotImplementedError

    def _show(self, text: str) -> None:
        """Show what is being done now."""
        raise NotImplementedError

    def group_started(self, name: str, cells: int, launches: int, seconds: float) -> None:
        """Show what the launches of a group will cost, before they begin."""
        self._launch_started, self._launch_seconds = time.monotonic(), seconds
        # A line that rewrites itself says by itself which launch it is.
        key = (name, 0 if self._live else launches)
        # The first launch knows how long calls take.
        is_far_off = seconds > _FAR_OFF * self._said_seconds
        if not self._silent and (self._launch_key != key or is_far_off):
            self._launch_key, self._said_seconds = key, seconds
            self.note(f"measuring {name}: {cells} cells, up to launch {launches}, about {units.about(seconds)} each")

    def progress(self, name: str, launch: int, of: int, doing: str, done: int, total: int) -> None:
        """Show a step, not more often than an eye or a log can take."""
        now = time.monotonic()
        if self._silent or now - self._shown_at < (_LIVE_EVERY_SECONDS if self._live else _PLAIN_EVERY_SECONDS):
            return
        if not self._live and not self._shown_at:
            # The first step is announced by its group; a plain log starts counting from here.
            self._shown_at = now
            return
        self._shown_at = now
        left = max(0.0, self._launch_seconds - (now - self._launch_started))
        remaining = f", about {units.about(round(left))} left" if left >= 1 else ""
        self._show(f"launch {launch} of {max(of, launch)}: {doing} ({done + 1} of {total}){remaining}")

    def side_by_side(self, doing: str) -> None:
        """Show what several devices do at once, not more often than an eye or a log can take."""
        now = time.monotonic()
        if not self._silent and now - self._shown_at >= (_LIVE_EVERY_SECONDS if self._live else _PLAIN_EVERY_SECONDS):
            self._shown_at = now
            self._show(doing)


class Progress(Steps):
    """Shows what the session does: one line that rewrites itself on a terminal, now and then a line otherwise.

    Silent in the workers of pytest-xdist, which have no terminal, and with ``-q -q``.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._capture: Any = config.pluginmanager.get_plugin("capturemanager")
        quiet = config.get_verbosity() < -1 or hasattr(config, "workerinput")
        terminal = self._reporter is not None and bool(self._reporter.isatty)
        super().__init__(silent=quiet or self._reporter is None, live=terminal)
        self._writer: Any = config.get_terminal_writer() if self._reporter is not None else None
        # How wide the current line is for its writer where the cursor stands at its left, after a line was erased.
        self._erased_width = 0
        self._drawn = False

    def note(self, text: str) -> None:
        """Print a line that stays. On a terminal it goes on in further lines, in a log it is one."""
        if not self._silent:
            from pytest_ngraph.front.header import wrapped

            with self._open():
                self._erase()
                self._begin_line()
                said = excerpt(f"ngraph: {text}").splitlines()
                for line in wrapped(said, shutil.get_terminal_size().columns) if self._live else said:
                    self._reporter.write_line(line)

    def idle(self) -> None:
        """Take the live line away."""
        if self._live and self._drawn:
            with self._open():
                self._erase()

    def _show(self, text: str) -> None:
        text = one_line(text)
        with self._open():
            if not self._live:
                self._begin_line()
                self._reporter.write_line(f"ngraph: {text}")
                return
            width = shutil.get_terminal_size().columns
            if not self._drawn:
                self._begin_line()
            self._reporter.rewrite(f"ngraph: {text}"[: width - 1], erase=True)
            self._drawn = True

    def _erase(self) -> None:
        if self._drawn:
            self._reporter.rewrite("", erase=True)
            # A rewritten line leaves the cursor after its spaces; the next line starts at the left again.
            self._reporter.write("\r")
            self._erased_width = self._writer.width_of_current_line
            self._drawn = False

    def _begin_line(self) -> None:
        """Leave the line with the letters of tests, which with ``-q`` pytest itself does not know to be begun."""
        self._reporter.ensure_newline()
        if self._writer.width_of_current_line not in (0, self._erased_width):
            self._reporter.write("\n")

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """Show output while a test is captured."""
        if self._capture is None:
            yield
            return
        with self._capture.global_and_fixture_disabled():
            yield
