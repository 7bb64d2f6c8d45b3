"""What a device is sent of the other sides of a run, and what it says of its packages and interpreters: checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ngraph.devices.wire import values
from pytest_ngraph.errors import SpecError
from pytest_ngraph.sides import packages
from pytest_ngraph.sides.asked import Asked, read
from pytest_ngraph.sides.resolving import MOST_LABEL

# Of one run. Each may unpack an archive and look at packages before anything is measured.
MOST_SIDES = 16
MOST_RUNTIMES_LETTERS = 4096
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
# As ``shipping.bundle`` names them.
_BUNDLE = re.compile(r"[0-9a-f]{32}\Z")
_MOST_VERSIONS = 1 << 12


@dataclass(frozen=True, slots=True)
class SentSide:
    """A side as a request names it.

    ``archive`` is the sha256 of the zip with its files, empty where the side has no revision of its own. ``files`` has
    the bundles of models of here, each with that which the model is on this side, or nothing where the side has not got
    it. ``runtimes`` names its packages and interpreter as ``--ngraph-against`` does, and ``content`` is the digest of
    what the device said that they are.
    """

    label: str
    archive: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    runtimes: str = ""
    content: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form that ``sent_sides`` reads back."""
        return {
            "label": self.label,
            "archive": self.archive,
            "files": dict(self.files),
            "runtimes": self.runtimes,
            "content": self.content,
        }


@dataclass(frozen=True, slots=True)
class KnownRuntimes:
    """What a device says of packages and an interpreter: what they are called, and the digest of what they are."""

    labels: tuple[str, ...]
    content: str


def sent_sides(data: Any) -> list[SentSide]:
    """Read the sides of a request. Raise one of the errors that ``strictly`` turns around for anything else."""
    if not isinstance(data, list) or len(data) > MOST_SIDES:
        raise ValueError(f"at most {MOST_SIDES} sides are allowed")
    found = [_sent(values.mapping(each)) for each in data]
    if len({side.label for side in found}) != len(found):
        raise ValueError("two sides with one label")
    return found


def read_runtimes(text: Any) -> Asked:
    """Read packages and an interpreter. Raise one of the errors that ``strictly`` turns around for anything else."""
    if len(values.text(text)) > MOST_RUNTIMES_LETTERS:
        raise ValueError(f"packages and an interpreter have at most {MOST_RUNTIMES_LETTERS} letters")
    try:
        asked = read(text)
    except SpecError as error:
        raise ValueError(str(error)) from None
    if any(package.wheel for package in asked.packages):
        raise ValueError(f"{text!r} names a wheel, which is a file of another machine")
    if asked.runtimes != text:
        raise ValueError(f"{text!r} is more than packages and an interpreter")
    return asked


def known_runtimes(asked: Asked, data: Any) -> KnownRuntimes:
    """Read what a device says of packages and an interpreter. What it has must be what it was asked for."""
    said = values.mapping(data)
    labels = tuple(values.line(label) for label in said["labels"])
    if len(labels) != len(asked.packages) + bool(asked.python) or not all(0 < len(each) <= 200 for each in labels):
        raise ValueError(f"{list(labels)!r} are no names of {asked.runtimes!r}")
    if labels[: len(asked.packages)] != tuple(map(str, asked.packages)):
        raise ValueError(f"{list(labels)!r} is not what was asked for, which is {asked.runtimes!r}")
    if not _SHA256.match(values.text(said["content"])):
        raise ValueError(f"{said['content']!r} is no digest")
    versions = dict(said["versions"])
    if len(versions) > _MOST_VERSIONS:
        raise ValueError(f"{len(versions)} versions")
    for package in asked.packages:
        there = versions.get(package.name)
        if there is None or not packages.is_version(values.text(there), package.version):
            raise ValueError(f"{package} was asked for, and the device has {package.name} {there}")
    return KnownRuntimes(labels, str(said["content"]))


def _sent(data: Mapping[str, Any]) -> SentSide:
    label = values.line(data["label"])
    if label != data["label"] or not 0 < len(label) <= MOST_LABEL:
        raise ValueError(f"{label!r} is no label of a side")
    archive, content = values.text(data["archive"]), values.text(data["content"])
    for name in filter(None, (archive, content)):
        if not _SHA256.match(name):
            raise ValueError(f"{name!r} is no sha256")
    files = {values.text(here): values.text(there) for here, there in values.mapping(data["files"]).items()}
    for name in filter(None, (*files, *files.values())):
        if not _BUNDLE.match(name):
            raise ValueError(f"{name!r} is no name of a model's files")
    runtimes = values.text(data["runtimes"])
    if runtimes:
        read_runtimes(runtimes)
    if bool(runtimes) != bool(content) or not (archive or runtimes):
        raise ValueError(f"{label!r} is made of nothing, or of something that is not named")
    return SentSide(label, archive, files, runtimes, content)
