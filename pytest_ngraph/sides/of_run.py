"""The other sides of a run, by what asks for them: read at once, and fetched when a device first needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path

from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.sides.asked import Asked, read
from pytest_ngraph.sides.resolving import Code, code, label_of, runtimes, side_of
from pytest_ngraph.spec.sides import OtherSide, Side

# Beside the store, as everything that is kept.
FOLDER = "sides"


def check_sides(settings: Settings) -> None:
    """Raise SpecError where an option names what can be no side. Neither git nor packages are asked."""
    for text in filter(None, (settings.against, settings.side)):
        read(text)


class SidesOfRun:
    """The sides that options and markers ask for, none where ``texts`` has none.

    Every device measures the code of the same commits. Packages and interpreters are of the device.
    """

    def __init__(
        self, texts: Iterable[str | None], settings: Settings, rootdir: Path, note: Callable[[str], None]
    ) -> None:
        """Read what asks for sides. Raise SpecError for what can be none."""
        self.asked: Mapping[str, Asked] = {text: read(text) for text in sorted(set(filter(None, texts)))}
        self._cache = settings.store.parent / FOLDER
        self._rootdir, self._note = rootdir, note

    def __bool__(self) -> bool:
        return bool(self.asked)

    @cached_property
    def here(self) -> Mapping[str, Side]:
        """The sides on this machine, by what asks for them. Raises SpecError for one that cannot be had."""
        return {
            text: side_of(
                self.code[text], runtimes(asked, rootdir=self._rootdir, cache=self._cache, progress=self._note)
            )
            for text, asked in self.asked.items()
        }

    @cached_property
    def code(self) -> Mapping[str, Code | None]:
        """The files of their revisions, which go to remote devices, None where a side has none.

        Raises SpecError for one that cannot be had.
        """
        return {
            text: code(asked, rootdir=self._rootdir, cache=self._cache, progress=self._note)
            for text, asked in self.asked.items()
        }

    @property
    def known_here(self) -> Mapping[str, OtherSide]:
        """What sessions of this machine's devices know of them."""
        return self.known({text: side.label for text, side in self.here.items()})

    def known_offline(self, device: str) -> Mapping[str, OtherSide]:
        """What sessions know of them on a remote device that is not asked.

        Raises SpecError for an interpreter and for a wheel.
        """
        self.refuse_wheels(device)
        for text, asked in self.asked.items():
            if asked.python:
                raise SpecError(
                    f"against {text!r}: device {device!r} knows which interpreter that is, and is not asked"
                )
        labels = {
            text: label_of(self.code[text], [str(package) for package in asked.packages])
            for text, asked in self.asked.items()
        }
        return self.known(labels)

    def refuse_wheels(self, device: str) -> None:
        """Raise SpecError where a side has a wheel, which is a file of this machine and goes to no device."""
        for text, asked in self.asked.items():
            if wheel := next((package for package in asked.packages if package.wheel), None):
                raise SpecError(
                    f"against {text!r}: {wheel} is a file of this machine, and device {device!r} is another one "
                    f"({wheel.name}=={wheel.version} of an index it could install)"
                )

    def known(self, labels: Mapping[str, str]) -> Mapping[str, OtherSide]:
        """What sessions know of them by what they are called on a device."""
        return {text: OtherSide(labels[text], asked.always) for text, asked in self.asked.items()}
