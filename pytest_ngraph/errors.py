"""The errors of the project: each carries what was given, where, what is allowed and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pytest_ngraph.texts.shown import kept


class NgraphError(Exception):
    """Base of every error this package raises on purpose. Its text is shown to users as it is, so it is clean."""

    def __str__(self) -> str:
        """Return the text, cleaned: parts of it often come from other programs."""
        return kept(super().__str__())


class SpecError(NgraphError, ValueError):
    """A name, option, axis or value in a suite, on the command line or in a file that cannot be used."""


class NotThere(SpecError):
    """A model, a factory, an argument of it or an adapter that is named and does not exist where it is looked for."""


class Unsupported(NgraphError):
    """A compiler cannot run this cell in principle. The text is the reason."""


class CompileFailed(NgraphError):
    """A compiler accepted the cell and then failed to compile it."""


class StoreError(NgraphError):
    """The store of results cannot be read or written. The old data are untouched."""


class DeviceBusy(NgraphError):
    """Another run holds the device, and waiting for it was given up."""


class DeviceLost(NgraphError):
    """A device went away while it was asked: its link was cut, its agent killed, its hub gone."""


class DeviceUnusable(NgraphError):
    """A device answers and must not be measured: another version, a failed expectation, a certificate of a stranger."""


class DeviceOffline(NgraphError):
    """A device is known and not there. The text says since when."""


class ClaimError(NgraphError):
    """A claim that cannot be judged as it was made, such as one across two launch groups."""


@contextmanager
def about(what: str) -> Iterator[None]:
    """Put what was given in front of the SpecErrors about it."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{what}: {error}") from None


def known(name: str, names: Iterable[str]) -> str:
    """Return what is known instead of a name, in the given order, and the nearest of it, for a message."""
    # Only what goes wrong needs it.
    import difflib

    listed = list(names)
    close = difflib.get_close_matches(name, listed, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"known: {', '.join(listed)}{hint}"
