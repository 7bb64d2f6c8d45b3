"""Text of others - of models, runtimes, devices, files and stores - as it may be shown and kept: clean and bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SHOWN_LINES = 20
SHOWN_WIDTH = 400
KEPT_BYTES = 1 << 16
# Where a text ends that was cut: the file which has the rest.
ALL_OF_IT = "all of it: "
# More of a tail than of a head is nobody's first line; an error's type is in the first, its place in the last ones.
_TAIL_LINES = 8
# ECMA-48: CSI and the strings that end in ST or BEL (OSC, DCS, SOS, PM, APC), then any other escape. A string without
# an end loses its introducer only, so that it hides nothing.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x80-\x9f\n\r]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
# Where str.splitlines ends a line, \r\n once.
_LINE_ENDS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SPACES = re.compile(r"[^\S\n ]")
# What has no text in it.
_BARE = frozenset({int, float, bool, type(None)})
_LEFT_OUT = re.compile(r"^\.\.\. (\d+) (line|letter)s? more$", re.MULTILINE)


def clean(text: str) -> str:
    """Return a text of lines without anything that a terminal, a browser or an XML parser would obey.

    Escape sequences go. Every other letter that is not printable - control codes, bidi overrides, halves of surrogate
    pairs - stands as Python writes it, such as ``\\x07``. Every end of a line is ``\\n`` and every space a space.
    """
    if text.isprintable():
        return text
    lines = _SPACES.sub(_space, _LINE_ENDS.sub("\n", _SEQUENCES.sub("", text))).split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_visible, line)) for line in lines)


def cleaned(value: Any) -> Any:
    """Return a JSON-able value with every text in it clean. Tuples come back as lists."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(key) if isinstance(key, str) else key: cleaned(item) for key, item in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    # Most of what is long are numbers.
    return [item if type(item) in _BARE else cleaned(item) for item in value]


def one_line(text: str, most: int = SHOWN_WIDTH) -> str:
    """Return a text as one clean line of at most so many letters."""
    # What is cut off is not looked at; sequences and spaces that go leave enough.
    words = " ".join(clean(text[: 16 * most]).split())
    return words if len(words) <= most and len(text) <= 16 * most else f"{words[: most - 1]}…"


def kept(text: str, most_bytes: int = KEPT_BYTES) -> str:
    """Return a clean text of at most so many bytes: where it was longer its middle is left out, and says so."""
    # Cleaning takes its time, and makes a text up to six times as long.
    return _cut(clean(_cut(text, 4 * most_bytes)), most_bytes)


def excerpt(text: str, lines: int = SHOWN_LINES) -> str:
    """Return what is shown of a text at once: its first and last lines, and between them how many more there are.

    Where its last line says which file has all of it, so does what is shown.
    """
    found = [_narrow(line) for line in clean(text).rstrip("\n").split("\n")]
    if len(found) <= lines:
        return "\n".join(found)
    log = found.pop().strip() if found[-1].strip().startswith(ALL_OF_IT) else ""
    tail = min(_TAIL_LINES, lines // 2)
    head, hidden = lines - tail - 1, found[lines - tail - 1 : -tail]
    more = f"{_left_out(chr(10).join(hidden))}{f', all of it in {log.removeprefix(ALL_OF_IT)}' if log else ''}"
    return "\n".join([*found[:head], more, *found[-tail:]])


def is_long(text: str) -> bool:
    """Return whether a text is shown in part only."""
    return len(text) > KEPT_BYTES or text.count("\n") >= SHOWN_LINES or excerpt(text) != clean(text).rstrip("\n")


def unprintable(text: str) -> str:
    """Return the first letter of a name that cannot be shown as it is, or nothing. Spaces of any kind can."""
    return next((letter for letter in text if letter in "\t\n" or clean(letter) not in (letter, " ")), "")


def _narrow(line: str) -> str:
    return line if len(line) <= SHOWN_WIDTH else f"{line[:SHOWN_WIDTH]} {_more(len(line) - SHOWN_WIDTH, 'letter')}"


def _more(count: int, thing: str) -> str:
    return f"... {count} {thing}{'' if count == 1 else 's'} more"


def _left_out(text: str) -> str:
    """Return how much a text is that is left out, in which some may have been left out before."""
    lines, letters = text.count("\n") + 1, len(text)
    for number, thing in _LEFT_OUT.findall(text):
        # What says so stands between two halves of a line, or for some lines.
        letters += int(number) if thing == "letter" else 0
        lines += int(number) - 1 if thing == "line" else -2
    return _more(lines, "line") if lines > 1 else _more(letters, "letter")


def _cut(text: str, most_bytes: int) -> str:
    """Leave out the middle of a text, whole lines where there are any, so that at most so many bytes are left."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= most_bytes:
        return text
    # Room for what says so.
    half = (most_bytes - 100) // 2
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    # Half a line is better than none.
    head, tail = head.rpartition("\n")[0] or head, tail.partition("\n")[2] or tail
    return "\n".join([head, _left_out(text[len(head) : len(text) - len(tail)].strip("\n")), tail])


def _space(match: re.Match[str]) -> str:
    return "    " if match[0] == "\t" else " "


def _visible(letter: str) -> str:
    # Joiners have a meaning in many scripts, and no other.
    if letter.isprintable() or letter in "\u200c\u200d":
        return letter
    return letter.encode("unicode_escape").decode("ascii")
