"""The command ``ngraph``: what is not a test run - a look at this machine, at what is stored, and at the lab."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from pytest_ngraph.commands import (
    agent,
    baseline,
    bisect,
    bounds,
    catalogue,
    choose,
    compare,
    devices,
    doctor,
    enroll,
    explain,
    export,
    history,
    hub,
    init,
    pareto,
    reduce,
    report,
    runs,
    signer,
    simulate,
    store,
)
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.texts.shown import excerpt

# In the order of the help.
COMMANDS = (
    init,
    doctor,
    compare,
    bisect,
    reduce,
    explain,
    report,
    pareto,
    choose,
    export,
    runs,
    baseline,
    bounds,
    history,
    store,
    catalogue,
    devices,
    hub,
    enroll,
    signer,
    agent,
    simulate,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Return its exit status.

    It is 0; 1 where a command says that what it shows is not as it should be; 2 with the error on standard error; 3
    where an answer is undecided; 141, as a shell says it of SIGPIPE, where nobody reads any more what it prints, such
    as after ``| head``.

    Without a command the help is printed, and the status is 2.
    """
    parser = argparse.ArgumentParser(prog="ngraph", description="Graph compilers on real devices, beside pytest")
    parser.add_argument("--version", action="store_true", help="Print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for module in COMMANDS:
        module.add(commands)
    try:
        try:
            return _run(parser, _parsed(parser, sys.argv[1:] if arguments is None else arguments))
        finally:
            # Else it is found out at the interpreter's end, where nobody can do anything about it.
            sys.stdout.flush()
    except BrokenPipeError:
        _read_no_more()
        return 128 + signal.SIGPIPE


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse arguments. A command that starts another program gets what stands behind ``--`` for it as it is."""
    words = list(arguments)
    starting = {module.__name__.rpartition(".")[2] for module in COMMANDS if getattr(module, "TAKES_REST", False)}
    if not starting.intersection(words[:1]) or "--" not in words:
        return parser.parse_args(words)
    end = words.index("--")
    given = parser.parse_args(words[:end])
    given.rest = words[end + 1 :]
    return given


def _run(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    if given.version:
        print(f"pytest-ngraph {version_of('pytest-ngraph') or 'of a checkout that is not installed'}")
        return 0
    if given.command is None:
        # An empty command in a script is an error all the same.
        parser.print_help()
        return 2
    try:
        return int(given.run(given) or 0)
    except NgraphError as error:
        return _failed(given.command, str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        # A file or folder that cannot be used. A traceback would end with 1, which is an answer.
        place = f"{error.filename}: " if error.filename is not None else ""
        return _failed(given.command, f"{place}{error.strerror or error}")


def _failed(command: str, why: str) -> int:
    """Say on standard error why a command failed. Return its exit status."""
    print(excerpt(f"ngraph {command}: {why}"), file=sys.stderr)
    return 2


def _read_no_more() -> None:
    """Discard what is still to be printed. Standard output is flushed once more at the end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    raise SystemExit(main())
