"""``ngraph reduce``: the smallest part of a model's graph that still fails as a test's cell does."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.commands.base import Commands, add_command, add_store, path, say_folded, takes_rest
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.settings import duration, read_value
from pytest_ngraph.spec.cells import CompilerSpec

if TYPE_CHECKING:
    from pytest_ngraph.commands.reduce_of_tests import Asked

TAKES_REST = True
_NOT_REDUCED, _INTERRUPTED = 1, 130
# What the command says itself.
OURS = ("--ngraph-store", "--ngraph-against", "--ngraph-side", "--ngraph-offline", "--ngraph-resume")


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "reduce", _run, "Cut a model's graph to the smallest part that still fails as a test does"
    )
    parser.add_argument("test", metavar="TEST", help="The id of a test whose cell is slow, wrong or cannot be compiled")
    parser.add_argument(
        "--cell", default="", metavar="TEXT", help="Which of several cells that fail: a part of its name"
    )
    parser.add_argument(
        "--out", type=path, default=Path("reduced"), metavar="FOLDER", help="Where to write (default: reduced)"
    )
    parser.add_argument("--force", action="store_true", help="Write over the files of an earlier reduction")
    parser.add_argument(
        "--keep-weights",
        action="store_true",
        help="Keep the weights as they are (default: drawn again, so that a private model can be shared; names and "
        "documentation are left out in any case)",
    )
    parser.add_argument(
        "--baseline", default="", metavar="COMPILER", help="What parts are compared with (default: that of the test)"
    )
    parser.add_argument(
        "--budget",
        default="30min",
        metavar="TIME",
        help="How long to search: then the smallest part so far is written (default: 30min)",
    )
    parser.add_argument(
        "--error-rate",
        default="0.01",
        metavar="FRACTION",
        help="How often a whole search for a slow part may be wrong, shared out to its judgements (default: 0.01)",
    )
    add_store(parser, "Store of results")
    takes_rest(parser)


def _run(given: argparse.Namespace) -> int:
    from pytest_ngraph.commands.reduce_of_tests import reduce_test
    from pytest_ngraph.reducing.reduction import Ended

    try:
        for line in reduce_test(_asked(given), given.rest):
            say_folded(line)
    except Ended as ended:
        say_folded(f"not reduced: {ended}")
        return _NOT_REDUCED
    except KeyboardInterrupt:
        say_folded("interrupted: the same command goes on from here")
        return _INTERRUPTED
    return 0


def _asked(given: argparse.Namespace) -> Asked:
    """Return what was given, read. Raise SpecError for what cannot be used, before any test runs."""
    from pytest_ngraph.commands.reduce_of_tests import Asked
    from pytest_ngraph.reducing.writing import check_folder

    if refused := next((word for word in given.rest if word.partition("=")[0] in OURS), ""):
        raise SpecError(f"{refused} is for this command to say (behind -- expected pytest's other options)")
    if given.test.startswith("-"):
        raise SpecError(f"{given.test!r} is no test (expected its id, such as tests/test_speed.py::test_fast[tvm])")
    try:
        seconds = duration(given.budget)
    except ValueError as error:
        raise SpecError(f"--budget: {given.budget!r} is not allowed (expected {error})") from None
    rate = read_value("error_rate", given.error_rate, lambda *_: "--error-rate")
    folder = given.out.absolute()
    check_folder(folder, force=given.force)
    baseline = CompilerSpec.parse(given.baseline) if given.baseline else None
    store = store_path(given.store).absolute()
    return Asked(given.test, given.cell, folder, given.keep_weights, baseline, seconds, rate, store, given.force)
