"""The other sides of a run: fetched once, and what its sessions know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pytest_ngraph import sides
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.spec.sides import OtherSide, Side

# Beside the store, as everything that is kept.
FOLDER = "sides"


def check_sides(settings: Settings) -> None:
    """Raise SpecError where an option names what can be no side. Neither git nor packages are asked."""
    for text in filter(None, (settings.against, settings.side)):
        sides.read(text)


def fetched(
    texts: Iterable[str | None], settings: Settings, rootdir: Path, note: Callable[[str], None]
) -> Mapping[str, Side]:
    """Return the sides that are asked for, in options or in markers, each by what asks for it.

    Raises SpecError for one that cannot be had.
    """
    cache = settings.store.parent / FOLDER
    return {
        text: sides.resolve(sides.read(text), rootdir=rootdir, cache=cache, progress=note)
        for text in sorted(set(filter(None, texts)))
    }


def known(found: Mapping[str, Side]) -> Mapping[str, OtherSide]:
    """Return what sessions know of sides, by what asks for them."""
    return {text: OtherSide(side.label, sides.read(text).always) for text, side in found.items()}
