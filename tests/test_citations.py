"""What comments, docstrings and pages cite is there: pages of the docs, their headings, the steps of the protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MEASURING = "docs/measuring.md"
PROTOCOL = "The protocol, step by step"
# ``docs/page.md``, and behind it the steps or the heading that are meant.
CITED = re.compile(r'(docs/[\w/-]+\.md)(?:#([\w-]+)|, steps? (\d+)(?: and (\d+))?|, "([^"]+)")?')
# A step of a document that nobody has: names of documents are written with their place.
NOWHERE = re.compile(r"\b[A-Z]{4,}(?:\.md)?,? steps? \d|\b(?:MEASUREMENT|ARCHITECTURE)\b|\bshared/design\b")
# What breaks a citation over lines.
JOINT = re.compile(r"\s*\n\s*(?:#\s)?\s*")


def files() -> list[Path]:
    """Return the texts that may cite: sources and pages."""
    folders = ("pytest_ngraph", "tests", "benchmarks", "example_suites", "docs")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")]
    return [path for path in (*sorted(found), *sorted(ROOT.glob("*.md"))) if path != Path(__file__)]


def steps() -> list[int]:
    """Return the numbers of the steps of the protocol, in their order."""
    page = (ROOT / MEASURING).read_text(encoding="utf-8")
    section = page.split(f"\n## {PROTOCOL}\n")[1].split("\n## ")[0]
    return [int(number) for number in re.findall(r"^(\d+)\. \*\*", section, re.MULTILINE)]


def headings(page: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def wrong_in(text: str) -> Iterator[str]:
    """Yield what a text cites and nobody finds."""
    text = JOINT.sub(" ", text)
    for page, name, *numbers, heading in CITED.findall(text):
        if not (ROOT / page).exists():
            yield page
        elif any(numbers) and (page != MEASURING or not {int(each) for each in numbers if each} <= set(steps())):
            yield f"{page}, step {' and '.join(filter(None, numbers))}"
        elif heading and heading not in headings(page):
            yield f'{page}, "{heading}"'
        elif name and name not in map(anchor, headings(page)):
            yield f"{page}#{name}"
    yield from NOWHERE.findall(text)


def test_the_steps_of_the_protocol_are_numbered_one_after_the_other() -> None:
    assert steps() == list(range(1, len(steps()) + 1))
    assert len(steps()) >= 10


def test_what_is_cited_is_there() -> None:
    wrong = {path.relative_to(ROOT): list(wrong_in(path.read_text(encoding="utf-8"))) for path in files()}
    assert len(wrong) > 400
    assert {path: cited for path, cited in wrong.items() if cited} == {}


def test_the_source_cites_the_protocol_where_it_follows_it() -> None:
    cited = {
        int(number)
        for path in (ROOT / "pytest_ngraph").rglob("*.py")
        for page, _, *numbers, _ in CITED.findall(JOINT.sub(" ", path.read_text(encoding="utf-8")))
        for number in numbers
        if page == MEASURING and number
    }
    assert {1, 4, 5, 6, 7, 8, 9, 10, 12} <= cited


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("as in docs/measuring.md, step 4: so it is", []),
        ("docs/measuring.md, steps 6\n    # and 7)", []),
        ("docs/measuring.md, step 99", ["docs/measuring.md, step 99"]),
        ("docs/measuring.md, steps 6\n    and 99", ["docs/measuring.md, step 6 and 99"]),
        ("docs/store.md, step 1", ["docs/store.md, step 1"]),
        ("docs/nothing.md", ["docs/nothing.md"]),
        ('docs/measuring.md, "The protocol, step by\n    step"', []),
        ('docs/measuring.md, "Another"', ['docs/measuring.md, "Another"']),
        ("[it](docs/measuring.md#what-a-verdict-promises)", []),
        ("[it](docs/measuring.md#what-nobody-promises)", ["docs/measuring.md#what-nobody-promises"]),
        ("as MEASUREMENT, step 4 has it", ["MEASUREMENT, step 4"]),
        ("(MEASUREMENT: units)", ["MEASUREMENT"]),
        ("# see PROTOCOL.md step 3", ["PROTOCOL.md step 3"]),
        ("COMPILERS = ('identity',)", []),
    ],
)
def test_a_citation_of_what_is_not_there_is_found(text: str, wrong: list[str]) -> None:
    assert list(wrong_in(text)) == wrong
