"""What a user asks to be measured beside what is here, as it is written: nothing is looked at, nothing runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import split_commas
from pytest_ngraph.texts.shown import one_line, unprintable

ALWAYS, MERGE_BASE = "always", "merge-base"
_PYTHON = "python:"
_ALLOWED = (
    f"expected parts with commas between them: a git revision such as main or {MERGE_BASE}, packages such as "
    f"onnxruntime==1.27.0 or dist/built-1.0-py3-none-any.whl, {_PYTHON}PATH, {ALWAYS}"
)
_EMPTY = re.compile(r"(?:^|,)\s*(?:,|$)")
# What begins as a requirement does: a name, its extras, a comparison.
_MEASURES = "pytest-ngraph"
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*(?:[=!<>]|~=)")
_WHEEL = ".whl"
_ARCHIVES = (_WHEEL, ".tar.gz", ".zip")
# What git allows in no name of a reference, and what names something else than a commit.
_NO_REVISION = re.compile(r"\s|[:?*\[\]\\]|\.\.")


@dataclass(frozen=True, slots=True)
class Package:
    """A package in one version. ``name`` is normalised, and so is ``version``; ``extras`` are in order.

    ``wheel`` is the path of the file that it is taken from, as it was given, empty for one from an index.
    """

    name: str
    version: str
    extras: tuple[str, ...] = ()
    wheel: str = ""

    def __str__(self) -> str:
        if self.wheel:
            return self.wheel
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}=={self.version}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a side is to be made of. ``revision`` may be ``MERGE_BASE``; what was not asked for is empty.

    ``always`` asks to measure also what is the same on both sides.
    """

    text: str
    revision: str = ""
    packages: tuple[Package, ...] = ()
    python: str = ""
    always: bool = False

    @property
    def runtimes(self) -> str:
        """The part of it that is packages and an interpreter, as ``read`` reads it, or nothing."""
        return ",".join([*map(str, self.packages), *([f"{_PYTHON}{self.python}"] if self.python else [])])


@lru_cache(maxsize=256)
def read(text: str) -> Asked:
    """Read parts with commas between them, such as ``main,onnxruntime==1.27.0``. Raise SpecError for anything else."""
    if bad := unprintable(text):
        raise _refused(text, f"it has {bad!r} in it")
    if _EMPTY.search(text):
        raise _refused(text, "a part is empty" if text.strip() else "it is empty")
    revisions, packages, pythons, always = [], [], [], False
    for part in split_commas(text):
        if part == ALWAYS:
            always = True
        elif part.startswith(_PYTHON):
            pythons.append(_interpreter(text, part))
        elif part.endswith(_WHEEL) and "://" not in part and "@" not in part.partition("/")[0]:
            packages.append(_wheel(text, part))
        elif _REQUIREMENT.match(part):
            packages.append(_package(text, part))
        else:
            revisions.append(_revision(text, part))
    if len(revisions) > 1:
        raise _refused(text, f"{revisions[0]} and {revisions[1]} are two revisions, and a side has one at most")
    if len(pythons) > 1:
        raise _refused(text, f"{pythons[0]} and {pythons[1]} are two interpreters, and a side has one at most")
    names = [package.name for package in packages]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise _refused(text, f"{twice} is in it twice")
    if not (revisions or packages or pythons):
        raise _refused(text, f"{ALWAYS} by itself names no side")
    ordered = tuple(sorted(packages, key=lambda package: package.name))
    return Asked(text.strip(), "".join(revisions), ordered, "".join(pythons), always)


def _refused(text: str, why: str) -> SpecError:
    return SpecError(f"against {one_line(text, 200)!r}: {why} ({_ALLOWED})")


def _interpreter(text: str, part: str) -> str:
    path = part.removeprefix(_PYTHON).strip()
    if not path or path.startswith("-"):
        raise _refused(text, f"{part!r} names no interpreter and no folder of an environment")
    return path


def _package(text: str, part: str) -> Package:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version

    pinned = f"{part!r} is not one version of a package: NAME==VERSION is"
    try:
        asked = Requirement(part)
        (specifier,) = asked.specifier
        if specifier.operator != "==" or asked.marker or asked.url:
            raise _refused(text, pinned)
        version = Version(specifier.version)
    except (InvalidRequirement, InvalidVersion, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        raise _refused(text, pinned) from None
    name = _not_ours(text, part, canonicalize_name(asked.name))
    return Package(name, str(version), tuple(sorted(map(canonicalize_name, asked.extras))))


def _wheel(text: str, part: str) -> Package:
    """Read the name and the version of a wheel's file name. The file itself is not looked at."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        name, version, _, _ = parse_wheel_filename(part.rpartition("/")[2])
    except InvalidWheelFilename as error:
        raise _refused(text, f"{part!r} is no name of a wheel: {error}") from None
    return Package(_not_ours(text, part, name), str(version), wheel=part)


def _not_ours(text: str, part: str, name: str) -> str:
    if name == _MEASURES:
        raise _refused(text, f"{part!r}: the code that measures is that of here on both sides")
    return name


def _revision(text: str, part: str) -> str:
    if "://" in part or part.startswith("git+") or "@git+" in part:
        raise _refused(text, f"{part!r} is an address, and nothing is fetched from one")
    if part.startswith(("/", "./", "../", "~")) or part.endswith(("/", *_ARCHIVES)) or part in (".", ".."):
        raise _refused(text, f"{part!r} is a path, and a side is taken from git, an index, a wheel or an interpreter")
    if part.startswith(("-", "^")) or _NO_REVISION.search(part):
        raise _refused(text, f"{part!r} is no revision of git that is one commit")
    return part
