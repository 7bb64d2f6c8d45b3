"""Logs: what a worker printed, or said when it failed, where that is more than is shown."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from pytest_ngraph.texts.shown import ALL_OF_IT, KEPT_BYTES, is_long, kept

MOST_BYTES = 1 << 26
_FILES_KEPT, _MOST_BYTES_KEPT, _DAY_SECONDS = 20, 1 << 28, 24 * 3600.0
# As ``keep_log`` names them: nothing else in the folder may be deleted.
_LOG = re.compile(r"(\d{8}-\d{6})-.*-\d+\.log")
_STAMP = "%Y%m%d-%H%M%S"
_PATH_BYTES = 4200


def with_log(text: str, folder: Path, name: str) -> str:
    """Return what is kept of a text. Where that is more than is shown, its last line names the log with all of it."""
    if not is_long(text):
        return kept(text)
    return kept(text, KEPT_BYTES - _PATH_BYTES) + log_line(folder, name, text)


def log_line(folder: Path, name: str, text: str) -> str:
    """Keep a text in a log, and return the line that names it, or nothing where the log cannot be written."""
    try:
        return f"\n{ALL_OF_IT}{keep_log(folder, name, text)}"
    except OSError:
        # A full disk is reported by what needs it more.
        return ""


def keep_log(folder: Path, name: str, text: str) -> Path:
    """Write a text to a log of this folder, cleaned and ``MOST_BYTES`` at most, and return its path.

    The latest few are kept, and of those of the last day as many as there is room for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Names of files have 255 bytes.
    safe = re.sub(r"[^\w.=-]+", "_", name, flags=re.ASCII).strip("_")[:120]
    begin, number = f"{time.strftime(_STAMP)}-{safe}-{os.getpid()}", 0
    while True:
        path = folder / f"{begin}{f'-{number}' if number else ''}.log"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(kept(text, MOST_BYTES))
            break
        except FileExistsError:
            number += 1
    _tidy(folder)
    return path


def _tidy(folder: Path) -> None:
    kept = sorted((log for log in folder.iterdir() if _LOG.fullmatch(log.name)), key=lambda log: log.name, reverse=True)
    yesterday = time.strftime(_STAMP, time.localtime(time.time() - _DAY_SECONDS))
    size = 0
    for place, log in enumerate(kept):
        # Another run tidies, too.
        size += log.stat().st_size if log.exists() else 0
        if place and (size > _MOST_BYTES_KEPT or (place >= _FILES_KEPT and log.name < yesterday)):
            log.unlink(missing_ok=True)
