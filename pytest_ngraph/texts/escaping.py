"""Text as a cell of a table in another format: what Markdown or a spreadsheet would interpret is escaped."""

from __future__ import annotations

import re

from pytest_ngraph.texts.shown import clean

# What a spreadsheet takes for the beginning of a formula, also in its wide forms; and the sign of a text itself.
_FORMULA = ("=", "+", "-", "@", "'", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_PIPE = re.compile(r"(\\*)\|")
_MARKDOWN = re.compile(r"[\\|`]|\](?=[\[(])|!(?=\[)")


def csv_text(text: str) -> str:
    """Return a clean text that no spreadsheet takes for a formula.

    Where it begins with what a formula begins with, or with an apostrophe, an apostrophe stands before it: who drops
    the first apostrophe of a cell has the clean text.
    """
    shown = clean(text)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown


def markdown_text(text: str) -> str:
    """Return a text as one line of Markdown that shows it: no cell ends in it, no HTML begins, nothing is linked."""
    line = " ".join(clean(text).split())
    return _MARKDOWN.sub(lambda match: "\\" + match[0], line.replace("&", "&amp;").replace("<", "&lt;"))


def markdown_code(text: str) -> str:
    """Return a text as a code span of one line, for a table of Markdown: nobody is mentioned in it, nothing is linked.

    A pipe is escaped, as it would end the cell. Behind a backslash it gets a space, since no cell can hold the two.
    """
    line = " ".join(clean(text).split())
    if not line:
        return ""
    line = _PIPE.sub(lambda match: match[1] + " " * (len(match[1]) % 2) + "\\|", line)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{pad}{line}{pad}{fence}"
