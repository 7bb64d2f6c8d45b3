"""``ngraph catalogue``: the page of the docs that says what each compiler can do."""

from __future__ import annotations

import argparse

from pytest_ngraph.commands.base import Commands, add_command
from pytest_ngraph.compilers.catalogue import Catalogue


def add(commands: Commands) -> None:
    """Add the command."""
    add_command(
        commands, "catalogue", _run, "Print the page of the docs that says what each compiler can do (Markdown)"
    )


def _run(given: argparse.Namespace) -> None:
    print(catalogue_page(), end="")


def catalogue_page() -> str:
    """Return the catalogue page of the docs, for the compilers that are built in."""
    from pytest_ngraph.commands.compilers_page import compilers_page

    catalogue = Catalogue()
    return compilers_page(catalogue.get(name) for name in catalogue)
