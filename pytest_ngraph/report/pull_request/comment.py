"""The gates of a run as Markdown of a bounded size, for a comment that a bot keeps up to date or a job's summary."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ngraph import units
from pytest_ngraph.report.pull_request.gates import Gate, Gates
from pytest_ngraph.texts.escaping import markdown_code
from pytest_ngraph.texts.shown import one_line

# What GitHub takes as a comment are 65,536 characters, of which none is less than a byte.
COMMENT_BYTES = 1 << 16
# GitHub drops a step's summary that has more than 1 MiB, and says so nowhere.
STEP_BYTES = 900 << 10
_COLUMNS = ("test", "claim", "measured", "bound", "launches", "why")
_HEAD = f"| {' | '.join(_COLUMNS)} |\n|{' --- |' * len(_COLUMNS)}\n"
# A note on what was cut off, and the title over it.
_NOTE_BYTES = 300
_MARKED = re.compile(r"[^\w./,:\[\]=-]+|-{2,}", re.ASCII)
_LONGEST_MARK = 120


@dataclass(frozen=True, slots=True)
class Section:
    """Rows under a title, folded away where nothing has to be done about them.

    ``what`` names them if some are cut off, and ``rest`` says where those are.

    A row is written when there is room for it: of 50,000 gates a comment has a few hundred.
    """

    title: str
    what: str
    rows: Sequence[Any]
    write: Callable[[Any], str]
    head: str = ""
    is_folded: bool = False
    rest: str = "the job's log has them, and the store"

    def lines(self, room_bytes: int) -> str:
        """Return as much of it as there is room for, and how many rows that leaves out."""
        title = f"{self.title} ({len(self.rows)})"
        head = f"\n<details><summary>{title}</summary>\n\n" if self.is_folded else f"\n### {title}\n\n"
        head += self.head
        foot = "\n</details>\n" if self.is_folded else ""
        room_bytes -= _size(head) + _size(foot) + _NOTE_BYTES
        kept: list[str] = []
        for row in self.rows:
            text = self.write(row)
            room_bytes -= _size(text)
            if room_bytes < 0:
                break
            kept.append(text)
        left = len(self.rows) - len(kept)
        note = f"\n{left} of {len(self.rows)} {self.what} are cut off here: {self.rest}.\n"
        if not kept:
            return note
        return head + "".join(kept) + (note if left else "") + foot


def comment(gates: Gates, notes: Iterable[str], mark: str, most_bytes: int = COMMENT_BYTES) -> str:
    """Return the gates as Markdown of at most so many bytes of UTF-8: a sentence, notes, the sections, the mark.

    The sections come in the order of what has to be done about them, and what is cut off is cut off at the end. Where
    there is no room for that nothing is left but the sentence and the mark.
    """
    head, tail = f"{gates.sentence}\n", f"\n{mark}\n"
    more = "".join(f"\n{note}\n" for note in notes)
    sections = [section for section in _sections(gates) if section.rows]
    room = most_bytes - _size(head) - _size(more) - _size(tail)
    if room < _NOTE_BYTES * len(sections):
        return head + tail
    written = ""
    for number, section in enumerate(sections, 1):
        # Each of the others can still say that it is cut off.
        kept_free = _NOTE_BYTES * (len(sections) - number)
        written += section.lines(room - kept_free - _size(written))
    return head + more + written + tail


def mark_of(devices: Sequence[str], suite: str) -> str:
    """Return a comment that no reader sees, the same from run to run of a suite on its devices."""
    return f"<!-- ngraph: device={_marked(','.join(devices))} suite={_marked(suite)} -->"


def _marked(name: str) -> str:
    """Return a name that ends no comment and is no longer than need be; one that was changed has a digest."""
    shown = _MARKED.sub("_", name)
    if shown == name and len(name) <= _LONGEST_MARK:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:12]
    return f"{shown[:_LONGEST_MARK]}:{digest}"


def _sections(gates: Gates) -> Iterable[Section]:
    def folded(title: str, what: str, rows: Sequence[Gate]) -> Section:
        return Section(title, what, rows, _row, _HEAD, is_folded=True)

    yield Section("Failed", "gates that failed", gates.failed, _row, _HEAD)
    yield Section("Failed without a verdict", "tests that failed without a verdict", gates.broken, _row, _HEAD)
    yield Section("Undecided", "undecided gates", gates.undecided, _row, _HEAD)
    warned = "Beyond the bound, but not judged"
    yield Section(warned, "gates that are beyond the bound but not judged", gates.warned, _row, _HEAD)
    improved = "Better than what they are compared with, by more than the tolerance"
    yield Section(improved, "gates that are better than what they are compared with", gates.improved, _row, _HEAD)
    better = "Better than the bound by more than the tolerance"
    yield folded(better, "gates that are better by more than the tolerance", gates.better)
    yield folded("Passed", "gates that passed", gates.passed)
    yield folded("Not judged, or expected to fail", "gates that were not judged", gates.others)
    reasons = list(gates.skipped.items())
    yield Section("Skipped", "reasons for which tests were skipped", reasons, _reason, is_folded=True)


def _reason(reason: tuple[str, int]) -> str:
    why, tests = reason
    return f"- {units.count(tests, 'test')}: {markdown_code(one_line(why))}\n"


def _row(gate: Gate) -> str:
    """Return a row. What a test, a device or a runtime says is in code spans: nothing else of it would be text only."""
    cells = (
        markdown_code(one_line(gate.nodeid)),
        markdown_code(one_line(gate.claim)),
        gate.measured,
        gate.bound,
        str(gate.launches) if gate.launches else "",
        " ".join(filter(None, [f"**{gate.verdict}**", markdown_code(one_line(gate.why))])),
    )
    return f"| {' | '.join(cells)} |\n"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))
