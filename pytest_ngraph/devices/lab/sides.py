"""The other sides of a run on one remote device: their files go there, packages and interpreters are its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pytest_ngraph.devices.wire import shipping, wire
from pytest_ngraph.devices.wire.sides import MOST_SIDES, KnownRuntimes, SentSide, known_runtimes
from pytest_ngraph.errors import SpecError
from pytest_ngraph.sides.asked import Asked
from pytest_ngraph.sides.of_run import SidesOfRun
from pytest_ngraph.sides.resolving import Code, label_of
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.spec.sides import OtherSide, Side
from pytest_ngraph.worker.sides import placed
from pytest_ngraph.workloads.kinds import kind_of

# Asks the device for packages and interpreters, as ``wire.sides.read_runtimes`` reads them.
AskRuntimes = Callable[[Sequence[str]], Any]


class RemoteSides:
    """What is sent to a device of the other sides of a run, by their labels."""

    def __init__(self, sides: SidesOfRun, rootdir: Path, ask: AskRuntimes) -> None:
        """Ask the device for packages and interpreters. Raise SpecError for a side that cannot be had there."""
        if len(sides.asked) > MOST_SIDES:
            raise SpecError(f"{len(sides.asked)} other sides are too many for a remote device (at most {MOST_SIDES})")
        self._rootdir = rootdir
        self._code: dict[str, Code] = {}
        self._sent: dict[str, SentSide] = {}
        texts = list(dict.fromkeys(asked.runtimes for asked in sides.asked.values() if asked.runtimes))
        said = dict(zip(texts, ask(texts) if texts else (), strict=True))
        labels: dict[str, str] = {}
        for text, asked in sides.asked.items():
            code = sides.code[text]
            found = self._runtimes(asked, said)
            label = labels[text] = label_of(code, found.labels)
            self._sent[label] = SentSide(label, runtimes=asked.runtimes, content=found.content)
            if code is not None:
                self._code[label] = code
        self.known: Mapping[str, OtherSide] = sides.known(labels)
        # Files are read where something is measured.
        self._archive = cache(self._packed)

    @staticmethod
    def _runtimes(asked: Asked, said: Mapping[str, Any]) -> KnownRuntimes:
        if not asked.runtimes:
            return KnownRuntimes((), "")
        answer = said[asked.runtimes]
        with wire.strictly(f"what {asked.runtimes} is there", str(answer)):
            return known_runtimes(asked, answer)

    def tree(self, label: str) -> str:
        """Return the folder with the files of a side here, empty where it has none of its own."""
        code = self._code.get(label)
        return code.tree if code is not None else ""

    def archives(self) -> Iterable[shipping.Project]:
        """Return the files of the sides, as they go to the device. Raise SpecError for those that cannot go there."""
        return [self._archive(label) for label in self._code]

    def bundles(self, model: ModelRef) -> dict[str, shipping.Bundle | None]:
        """Return the files of a model on those sides, by label, that have one of their own: None where it is not there.

        It is one that goes to a device by its files, and so by itself.
        """
        kind, found = kind_of(model), dict[str, shipping.Bundle | None]()
        for label, code in self._code.items():
            place = kind.place(model)
            there = placed(Side(label, code.root, code.tree), place)
            if there != place:
                is_there = Path(there).is_file()
                found[label] = shipping.bundle(kind.moved(model, there)) if is_there else None
        return found

    def to_json(self, moved: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
        """Return the sides as a request names them. ``moved`` has bundles of here with those of each side, by label."""
        return [
            SentSide(
                label,
                self._archive(label).sha256 if label in self._code else "",
                moved.get(label, {}),
                sent.runtimes,
                sent.content,
            ).to_json()
            for label, sent in self._sent.items()
        ]

    def _packed(self, label: str) -> shipping.Project:
        """Return the part of a side's files that stands for the rootdir."""
        code = self._code[label]
        folder = Path(code.tree) / self._rootdir.resolve().relative_to(Path(code.root).resolve())
        return shipping.pack_all(folder, label)
