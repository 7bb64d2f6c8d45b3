"""Lines added to the files that a project has: entries of pytest's ini file, and what git is to ignore."""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

IGNORED = ".ngraph/"
# In pytest's order; a file counts where it has one of these sections, and pytest.ini always.
_FILES: Mapping[str, tuple[str, ...]] = {
    "pytest.toml": ("pytest",),
    ".pytest.toml": ("pytest",),
    "pytest.ini": ("pytest",),
    ".pytest.ini": ("pytest",),
    "pyproject.toml": ("tool.pytest", "tool.pytest.ini_options"),
    "tox.ini": ("pytest",),
    "setup.cfg": ("tool:pytest",),
}


def ini_file(root: Path) -> tuple[Path, str]:
    """Return the file that pytest reads its settings from in a folder, or will, and the section they are in."""
    for name, sections in _FILES.items():
        path = root / name
        if not path.is_file():
            continue
        text = _text(path)
        for section in sections:
            if _header(section).search(text):
                return path, section
        if name in ("pytest.ini", ".pytest.ini"):
            return path, "pytest"
    known = root / "pyproject.toml"
    return (known, "tool.pytest.ini_options") if known.is_file() else (root / "pytest.ini", "pytest")


def with_entries(text: str, section: str, entries: Mapping[str, str], *, is_toml: bool) -> str | None:
    """Return the text of an ini file with the entries that it does not have, and nothing else changed.

    None where that cannot be done by adding lines under the section's head, as in a file that writes it another way.
    """
    missing = {name: value for name, value in entries.items() if not re.search(rf"^\s*{name}\s*=", text, re.MULTILINE)}
    if not missing:
        return text
    end = "\r\n" if "\r\n" in text else "\n"
    lines = "".join(
        f'{name} = "{value}"{end}' if is_toml else f"{name} = {value}{end}" for name, value in missing.items()
    )
    found = _header(section).search(text)
    if found is not None:
        after = text.find("\n", found.start()) + 1
        head, rest = (text[:after], text[after:]) if after else (text + end, "")
        changed = head + lines + rest
    else:
        gap = "" if not text else end if text.endswith("\n") else 2 * end
        changed = f"{text}{gap}[{section}]{end}{lines}"
    return changed if _has_added(text, changed, section, missing, is_toml=is_toml) else None


def with_ignored(text: str) -> str:
    """Return the text of a .gitignore that has the store's folder."""
    if any(line.strip().strip("/") in (".ngraph", "**/.ngraph") for line in text.splitlines()):
        return text
    end = "\r\n" if "\r\n" in text else "\n"
    return f"{text}{'' if not text or text.endswith(chr(10)) else end}{IGNORED}{end}"


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _header(section: str) -> re.Pattern[str]:
    name = r"\s*\.\s*".join(map(re.escape, section.split(".")))
    return re.compile(rf"^[ \t]*\[\s*{name}\s*\][ \t]*(?:[#;].*)?\r?$", re.MULTILINE)


def _has_added(before: str, after: str, section: str, entries: Mapping[str, str], *, is_toml: bool) -> bool:
    """Return whether a changed file says what it said before and the entries, read by a parser of its format."""
    old, new = (_toml(before), _toml(after)) if is_toml else (_ini(before), _ini(after))
    if old is None or new is None:
        return False
    place: Any = new
    for part in section.split(".") if is_toml else [section]:
        place = place.get(part, {})
    if any(place.pop(name, None) != value for name, value in entries.items()):
        return False
    return _without_empty(new) == _without_empty(old)


def _without_empty(table: Mapping[str, Any]) -> dict[str, Any]:
    inner = {name: _without_empty(value) if isinstance(value, dict) else value for name, value in table.items()}
    return {name: value for name, value in inner.items() if value != {}}


def _toml(text: str) -> dict[str, Any] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    return table


def _ini(text: str) -> dict[str, Any] | None:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    return {name: dict(parser[name]) for name in parser.sections()}
