"""Tidy tables as files: CSV, JSON and Parquet with every digit, Markdown for people."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_ngraph.errors import SpecError, StoreError
from pytest_ngraph.machine import files
from pytest_ngraph.texts.escaping import csv_text, markdown_text
from pytest_ngraph.texts.shown import clean

Rows = Sequence[Mapping[str, object]]


def write_rows(rows: Rows, path: Path, format: str | None = None, *, types: Mapping[str, type] | None = None) -> None:
    """Write a table whose columns are the keys of ``types``, then the rows' keys in the order of their appearance.

    ``format`` is one of ``FORMATS``, by default the path's suffix. SpecError says what is allowed, or what is not
    installed. Units stand in the keys. ``None`` is an empty cell, in JSON and Parquet null, as are NaN and infinities
    in JSON, which does not have them. Texts are clean, and in CSV an apostrophe stands before what a spreadsheet would
    take for a formula (see ``csv_text``). ``types`` (bool, int, float or str) keep the columns of a Parquet file the
    same from run to run, where a run has no value that would show it. A column not among them has the type of its
    values.
    """
    name = path.suffix.lstrip(".").lower() if format is None else format
    if name not in FORMATS:
        raise SpecError(f"export {path}: unknown format {name!r} (known: {', '.join(FORMATS)})")
    columns = list(dict.fromkeys([*(types or {}), *(key for row in rows for key in row)]))
    rows = [{key: clean(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows]
    if name == "parquet":
        write_bytes(_parquet(columns, rows, types or {}), path)
    else:
        write_text(_TEXTS[name](columns, rows), path)


def write_text(text: str, path: Path) -> None:
    """Put a text in a file, in UTF-8, as ``write_bytes`` does."""
    write_bytes(text.encode(), path)


def write_bytes(content: bytes, path: Path) -> None:
    """Put bytes in a file so that readers see the old or the whole new one. Raise StoreError where it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, content, durable=True)
    except OSError as error:
        raise StoreError(
            f"export {path}: {error.strerror or error}; what was there before is intact; choose another place"
        ) from error


def _csv(columns: Sequence[str], rows: Rows) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    if columns:
        writer.writeheader()
    writer.writerows(
        {key: csv_text(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows
    )
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
    return f"{value:.6g}" if isinstance(value, float) else markdown_text(str(value))


def _parquet(columns: Sequence[str], rows: Rows, types: Mapping[str, type]) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise SpecError(
            'export: Parquet needs pyarrow, which is not installed: pip install "pytest-ngraph[parquet]", or take .csv'
        ) from None
    arrow = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    arrays = {}
    for column in columns:
        values = [row.get(column) for row in rows]
        kind = _type_of(values, types.get(column))
        arrays[column] = pyarrow.array([None if value is None else kind(value) for value in values], arrow[kind])
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(arrays), file)
    return file.getvalue()


def _type_of(values: Sequence[object], given: type | None) -> type:
    """Return the narrowest of bool, int, float and str that holds all values and is not narrower than the given one."""
    kinds = {type(value) for value in values if value is not None} | ({given} if given else set())
    if len(kinds) == 1 and kinds <= {bool, int}:
        return kinds.pop()
    return float if kinds and kinds <= {int, float} else str


_TEXTS: Mapping[str, Callable[[Sequence[str], Rows], str]] = {"csv": _csv, "json": _json, "md": _markdown}
FORMATS = (*_TEXTS, "parquet")
