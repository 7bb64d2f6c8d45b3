"""The command ``ngraph``: what is not a test run - a look at this machine, at what is stored, and at the lab."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pytest_ngraph.commands import agent, catalogue, devices, doctor, enroll, export, hub, report, runs, simulate, store
from pytest_ngraph.environment import version_of
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.shown import excerpt

# In the order of the help.
COMMANDS = (doctor, report, export, runs, store, catalogue, devices, hub, enroll, agent, simulate)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status: 0, what the command says, or 2 with the error on standard error.

    Without one the help is printed.
    """
    parser = argparse.ArgumentParser(prog="ngraph", description="Graph compilers on real devices, beside pytest")
    parser.add_argument("--version", action="store_true", help="Print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for module in COMMANDS:
        module.add(commands)
    given = parser.parse_args(arguments)
    if given.version:
        print(f"pytest-ngraph {version_of('pytest-ngraph') or 'of a checkout that is not installed'}")
        return 0
    if given.command is None:
        # An empty command in a script is an error all the same.
        parser.print_help()
        return 2
    try:
        status: int | None = given.run(given)
    except NgraphError as error:
        print(excerpt(f"ngraph {given.command}: {error}"), file=sys.stderr)
        return 2
    return status or 0


if __name__ == "__main__":
    raise SystemExit(main())
