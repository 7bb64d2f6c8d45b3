"""``ngraph explain``: what ran inside a cell, node by node, and what makes one of two cells slower."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.commands.base import Commands, add_command, add_store, path, say, takes_rest
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.errors import CompileFailed, SpecError, StoreError, Unsupported
from pytest_ngraph.options.settings import nearby
from pytest_ngraph.session.ledger import NO_TIME
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.texts.shown import one_line
from pytest_ngraph.worker.answers import refusal

if TYPE_CHECKING:
    from pytest_ngraph.commands.explain_cells import Offered
    from pytest_ngraph.explain.explanation import Explanation
    from pytest_ngraph.report.results.stored import Stored
    from pytest_ngraph.spec.cells import Cell, CompileRecord
    from pytest_ngraph.store.sqlite import Store

# What stands behind -- is for pytest.
TAKES_REST = True


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "explain", _run, "Say what runs inside a cell, node by node, and what makes one of two slower"
    )
    parser.add_argument(
        "cells",
        nargs="*",
        metavar="CELL",
        help="A cell as tables name it, some of its words (openvino resnet18 int8) or the id of a test; of two what "
        "differs",
    )
    parser.add_argument("-k", dest="expression", default="", metavar="WORDS", help="Cells by words with and, or, not")
    parser.add_argument(
        "--run", type=int, default=None, metavar="NUMBER", dest="number", help="Run whose cells (default: the latest)"
    )
    parser.add_argument("--again", action="store_true", help="Profile again what was explained before")
    parser.add_argument("--all", action="store_true", help="Show all nodes and parts")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    parser.add_argument("--csv", type=path, default=None, metavar="FILE", help="Write FILE.csv, a row for each node")
    takes_rest(parser)
    add_store(parser, "Store of results")


def _run(given: argparse.Namespace) -> None:
    from pytest_ngraph.commands.explain_cells import stored_cells, with_collected

    file: Path | None = given.csv
    if file is not None and file.suffix != ".csv":
        raise SpecError(f"--csv: {str(file)!r} is not allowed (expected a file name that ends in .csv)")
    tests = list(dict.fromkeys(name for name in given.cells if "::" in name))
    if tests or given.rest:
        with_collected([*tests, *given.rest], given.store, lambda offered: _explain(given, offered))
    else:
        with stored_cells(store_path(given.store), given.number) as offered:
            _explain(given, offered)


def _explain(given: argparse.Namespace, offered: Offered) -> None:
    """Choose the cells, explain what was not explained before, and show it."""
    from pytest_ngraph.commands.explain_cells import choose
    from pytest_ngraph.explain.lines import explanation_rows
    from pytest_ngraph.quantities.explained import as_measured
    from pytest_ngraph.report.export.files import write_rows
    from pytest_ngraph.store.sqlite import Store

    cells = choose(given.cells, given.expression, offered)
    with offered.bench.held(_note):
        keys = _keys(offered, cells)
        with Store.open(offered.store) as store:
            kept = {cell: _of(cell, keys[cell], store, offered, again=given.again) for cell in cells}
            source, refused = _source(store, keys, offered), _refused(store, keys)
    found = {cell: as_measured(each, cell) for cell, each in kept.items()}
    if file := given.csv:
        rows = [row for each in found.values() for row in explanation_rows(each)]
        write_rows(rows, file)
        say(f"written: {nearby(file)}, {units.count(len(rows), 'row')}")
        return
    if given.json:
        say(json.dumps(_json(found, source, refused), indent=1, ensure_ascii=False, allow_nan=False))
        return
    for line in _lines(found, source, offered, keys, refused, is_whole=given.all):
        say(line)


def _note(text: str) -> None:
    import sys

    print(f"  {text}", file=sys.stderr, flush=True)


def _keys(offered: Offered, cells: Sequence[Cell]) -> dict[Cell, str]:
    """Return the evidence of cells, building what must be built. Raise the reason why one cannot run here."""
    bench = offered.bench
    for cell in cells:
        if cell.side:
            raise SpecError(f"{cell.label}: of another side (expected a cell of what is here)")
        if cell.device != bench.device.name:
            raise SpecError(f"{cell.label}: device {cell.device} (expected {bench.device.name}, this machine)")
        if cell.compiler.name not in offered.catalogue:
            raise SpecError(f"{cell.label}: compiler {cell.compiler.name!r} is not built in (put its tests behind --)")
        if missing := bench.missing(cell.compiler.name):
            raise SpecError(f"{cell.label}: {missing}")
    for cell, reason in bench.refusals(cells).items():
        raise Unsupported(f"{cell.label}: {reason}")
    lacking = [cell for cell, key in bench.artifacts(cells).items() if key is None]
    for answer in bench.build(lacking, lambda doing, done, total: _note(doing)) if lacking else ():
        if not answer["ok"]:
            raise CompileFailed(refusal(answer))
    keys = bench.keys(cells)
    return {cell: key for cell, key in keys.items() if key is not None}


def _of(cell: Cell, key: str, store: Store, offered: Offered, *, again: bool) -> Explanation:
    """Return what is kept of a cell, or profile it now and keep that."""
    from pytest_ngraph.explain.explanation import Explanation

    known = None if again else store.explanation(key)
    if known is not None:
        try:
            kept = Explanation.from_json(known[0])
        except StoreError as error:
            _note(f"{cell.label}: {error}: profiled again")
        else:
            _note(f"{cell.label}: explained {known[1][:16].replace('T', ' ')} UTC (--again profiles it once more)")
            return kept
    adapter, bench = offered.catalogue.get(cell.compiler.name), offered.bench
    if adapter.tunes(adapter.resolve(cell.compiler)):
        answer = bench.tune(cell, lambda doing, done, total: _note(f"{doing} ({done} of {total})"))
        if not answer["ok"]:
            raise CompileFailed(f"{cell.label}: {refusal(answer)}")
    _note(f"profiling {cell.label}")
    answer = bench.explain(cell, bench.artifacts([cell])[cell])
    if not answer["ok"]:
        kind = Unsupported if answer["outcome"] == "unsupported" else CompileFailed
        raise kind(f"{cell.label}: {answer['outcome']}: {refusal(answer)}")
    store.explain(cell, key, answer["explanation"])
    return Explanation.from_json(answer["explanation"])


def _source(store: Store, keys: Mapping[Cell, str], offered: Offered) -> Stored:
    """Return what launches have measured of these cells with this very code, if anything."""
    from pytest_ngraph.report.results.stored import Stored

    groups = list(store.related(keys))
    timed = {id(launch): launch for group in groups for launch in group.timed}
    return Stored([*timed.values()], [], offered.protocol, len(offered.bench.device.cpus) or 1)


def _refused(store: Store, keys: Mapping[Cell, str]) -> dict[Cell, CompileRecord]:
    """Return why cells have no time, of those whose latest launch with this very code gave none."""
    return {
        cell: record
        for related in store.related(keys)
        for cell, record in related.failed.items()
        if record.outcome in NO_TIME
    }


def _refusal_lines(record: CompileRecord) -> Iterator[str]:
    """Yield that what is explained has no time, why, and what to do about it."""
    import textwrap

    from pytest_ngraph.explain.lines import WIDTH

    said = [f"it has no time: {record.outcome}: {one_line(record.reason, 300) or 'no reason was given'}"]
    if record.outcome is Outcome.MISMATCH:
        said.append(
            "its outputs were refused: what ran above is not what the model computes. Next: 'ngraph reduce TEST' cuts "
            "its graph to the part that gives them, and --all shows where its nodes run in a lower precision"
        )
    else:
        said.append("what ran above was profiled once and is no measurement; run its test again when that is mended")
    for text in said:
        yield from textwrap.wrap(
            f"  note: {text}", WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
        )


def _lines(
    found: Mapping[Cell, Explanation],
    source: Stored,
    offered: Offered,
    keys: Mapping[Cell, str],
    refused: Mapping[Cell, CompileRecord],
    *,
    is_whole: bool,
) -> Iterator[str]:
    from pytest_ngraph.explain.lines import MOST_ROWS, comparison_lines, explanation_lines
    from pytest_ngraph.quantities.explained import call_words, measured_call

    most = None if is_whole else MOST_ROWS
    for number, (cell, each) in enumerate(found.items()):
        if number:
            yield ""
        measured = measured_call(source, cell)
        yield from explanation_lines(each, call_words(measured), measured.value if measured else None, most)
        if cell in refused and measured is None:
            yield from _refusal_lines(refused[cell])
        known = offered.evidence.get(cell)
        if measured is None and known is not None and known != keys[cell]:
            yield "  note: that run measured other code, versions or settings: run it again"
    if len(found) == 2:
        yield ""
        yield from comparison_lines(_compared(found, source), most)


def _compared(found: Mapping[Cell, Explanation], source: Stored) -> Any:
    from pytest_ngraph.quantities.explained import compared

    (first, one), (second, two) = found.items()
    return compared(source, (first, second), (one, two))


def _json(found: Mapping[Cell, Explanation], source: Stored, refused: Mapping[Cell, CompileRecord]) -> dict[str, Any]:
    from pytest_ngraph.explain.lines import comparison_json
    from pytest_ngraph.quantities.explained import measured_call

    cells = []
    for cell, each in found.items():
        measured = measured_call(source, cell)
        clock = None if measured is None else {"seconds": measured.value, "launches": measured.launches}
        record = refused.get(cell) if measured is None else None
        why = None if record is None else {"outcome": str(record.outcome), "reason": record.reason}
        cells.append({**each.to_json(), "nodes_seconds": each.nodes_seconds, "measured": clock, "refused": why})
    whole: dict[str, Any] = {"cells": cells}
    if len(found) == 2:
        whole["comparison"] = comparison_json(_compared(found, source))
    return whole
