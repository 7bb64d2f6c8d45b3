"""A benchmark of networks whose figures are kept network by network, so that it goes on where it was ended."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pytest_ngraph.machine.facts import describe

Size = TypeVar("Size", bound="int | None")


def each_network(
    description: str | None,
    results: Path,
    networks: Sequence[tuple[str, Size]],
    measure: Callable[[str, Size, Path], dict[str, Any]],
    table: Callable[[Sequence[dict[str, Any]]], str],
) -> list[dict[str, Any]]:
    """Measure the networks that are not there yet, each in a folder of its own, print all and return their figures."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, default=results, help="where the figures are kept and gone on with")
    parser.add_argument("--report", action="store_true", help="print what there is")
    given = parser.parse_args()
    fresh: dict[str, Any] = {"machine": describe(), "results": []}
    kept = json.loads(given.json.read_text()) if given.json.exists() else fresh
    figures: list[dict[str, Any]] = kept["results"]
    done = {(each["network"], each["size"]) for each in figures}
    for name, size in () if given.report else networks:
        if (name, size) in done:
            continue
        with tempfile.TemporaryDirectory(prefix=f"{results.stem}-") as root:
            figures.append(measure(name, size, Path(root)))
        given.json.write_text(json.dumps(kept, indent=1) + "\n")
        print(table(figures[-1:]).splitlines()[-1], flush=True)
    print(table(figures))
    return figures
