"""Tables as markup: every text escaped, names in a column that stays in sight, numbers to the right."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence

from pytest_ngraph.texts.shown import clean

# Plain texts; a cell that is already markup is a ``Markup``.
Attributes = Mapping[str, str]


class Markup(str):
    """A text that is markup already."""

    __slots__ = ()


def shown(text: object) -> Markup:
    """Write a text as HTML that shows it, also as an attribute."""
    return text if isinstance(text, Markup) else Markup(html.escape(clean(str(text))))


def element(name: str, content: object = "", **attributes: str) -> Markup:
    """Return an element. A trailing underscore of an attribute's name goes, the others become hyphens."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{shown(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>{shown(content)}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """Return markup and texts one after the other."""
    return Markup("".join(map(shown, parts)))


def exact_head(title: str, unit: str) -> Markup:
    """Return the heading of estimates, which are three columns for who copies them: value, lower and upper end."""
    named = f"{title} [{unit}]" if unit else title
    ends = (element("data", value=name) for name in (named, f"{title} low", f"{title} high"))
    return joined([title, *ends])


def exact(words: str, value: float, low: float | None, high: float | None) -> Markup:
    """Return an estimate as it is read, with all digits of it and of its interval for who copies it."""
    numbers = ("" if one is None or not math.isfinite(one) else repr(float(one)) for one in (value, low, high))
    return joined([words, *(element("data", value=number) for number in numbers)])


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Iterable[str] = (),
    each: Sequence[Mapping[str, str]] = (),
) -> Markup:
    """Return a table whose first column names its rows.

    ``numbers`` are the headings of columns of numbers, ``each`` the attributes of each row.
    """
    right = set(numbers)
    looks = [{"class_": "number"} if heading in right else {} for heading in headings]
    head = joined(element("th", title, scope="col", **look) for title, look in zip(headings, looks, strict=True))
    body = []
    for place, (first, *others) in enumerate(rows):
        cells = [element("td", cell, **look) for cell, look in zip(others, looks[1:], strict=True)]
        attributes = each[place] if each else {}
        body.append(element("tr", joined([element("th", first, scope="row"), *cells]), **attributes))
    return element("table", joined([element("thead", element("tr", head)), element("tbody", joined(body))]))
