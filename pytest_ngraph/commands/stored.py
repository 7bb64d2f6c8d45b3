"""What commands read from the store: one run, by default the latest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from pytest_ngraph.store.rows import RunRow
    from pytest_ngraph.store.sqlite import Store


@contextmanager
def stored_run(path: Path, number: int | None, protocol: str = "") -> Iterator[tuple[Store, RunRow]]:
    """Open a store for reading and give one of its runs. Raise SpecError for a store or a run that is not there.

    Without a number it is the latest, where there are any under ``protocol`` the latest of these.
    """
    from pytest_ngraph.store.sqlite import Store

    if not path.exists():
        raise SpecError(f"--store: no file {path} (run pytest with ngraph tests first, or name another store)")
    with Store.open(path, read_only=True) as store:
        runs = {run.id: run for run in store.runs()}
        if not runs:
            raise SpecError(f"{path} holds no run yet")
        under = [run.id for run in runs.values() if run.protocol == protocol]
        chosen = max(under or runs) if number is None else number
        if chosen not in runs:
            raise SpecError(f"--run: no run {chosen} in {path} (there: {', '.join(map(str, runs))})")
        yield store, runs[chosen]
        for line in store.damage_lines:
            print(line, file=sys.stderr)


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the option by which models have a transfer cost reduction."""
    parser.add_argument(
        "--sizes",
        action="append",
        default=[],
        metavar="MODEL=BEFORE:AFTER",
        help="Bytes of a sample without and with the compression that a model computes: gives it TCR/s",
    )
