"""``ngraph compare``: every cell of the suite against the same cell on another side, with no line in the suite."""

from __future__ import annotations

import argparse

from pytest_ngraph.commands.base import Commands, add_command, takes_rest
from pytest_ngraph.sides import read

# What stands behind -- is for pytest.
TAKES_REST = True
# As pytest says it of itself.
_INTERRUPTED = 2


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "compare", _run, "Measure the suite's cells here and on another side, and say what became slower"
    )
    parser.add_argument(
        "side",
        metavar="SIDE",
        help="What to compare with: a git revision, merge-base, NAME==VERSION, python:PATH, several with commas",
    )
    parser.add_argument(
        "of",
        nargs="?",
        default=None,
        metavar="OF",
        help="What is compared with it, named in the same way (default: what is here)",
    )
    takes_rest(parser)


def _run(given: argparse.Namespace) -> int:
    from pytest_ngraph.bisecting.judging import run_pytest

    # Before pytest has collected anything.
    for side in filter(None, (given.side, given.of)):
        read(side)
    options = [f"--ngraph-against={given.side}", "--ngraph-gate-changes"]
    options += [f"--ngraph-side={given.of}"] if given.of else []
    try:
        return run_pytest([*options, *given.rest])
    except KeyboardInterrupt:
        # It has said what is kept, and how to go on.
        return _INTERRUPTED
