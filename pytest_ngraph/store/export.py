"""Tidy tables as files: CSV and JSON with every digit, Markdown for people."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_ngraph.errors import SpecError, StoreError

Rows = Sequence[Mapping[str, object]]


def write_rows(rows: Rows, path: Path, format: str | None = None) -> None:
    """Write a table whose columns are the rows' keys, in the order in which they first appear.

    ``format`` is one of ``FORMATS``, by default the path's suffix; SpecError names what is allowed. Units stand in
    the keys. ``None`` is an empty cell, in JSON null, as are NaN and infinities, which JSON does not have.
    """
    name = path.suffix.lstrip(".").lower() if format is None else format
    if name not in FORMATS:
        raise SpecError(f"export {path}: unknown format {name!r} (known: {', '.join(FORMATS)})")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    write_text(FORMATS[name](columns, rows), path)


def write_text(text: str, path: Path) -> None:
    """Put a text in a file so that readers see the old or the whole new one; raise StoreError where it cannot be."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"export {path}: {error.strerror or error}; what was there before is intact; choose another place"
        ) from error


def _csv(columns: Sequence[str], rows: Rows) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    if columns:
        writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _json(columns: Sequence[str], rows: Rows) -> str:
    table = [{column: _json_value(row.get(column)) for column in columns} for row in rows]
    return json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _json_value(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _markdown(columns: Sequence[str], rows: Rows) -> str:
    if not columns:
        return ""
    cells = [[_markdown_value(row.get(column)) for column in columns] for row in rows]
    lines = [[_markdown_value(column) for column in columns], ["---"] * len(columns), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _markdown_value(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return " ".join(text.split()).replace("|", r"\|")


FORMATS: Mapping[str, Callable[[Sequence[str], Rows], str]] = {"csv": _csv, "json": _json, "md": _markdown}
