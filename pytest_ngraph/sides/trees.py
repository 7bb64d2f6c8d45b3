"""The files of a commit in a folder of their own, as they are in the commit, kept by its content."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.files import file_digest
from pytest_ngraph.sides.git import EXECUTABLE, LINK, SUBMODULE, Blobs, Entry, Repository
from pytest_ngraph.spec.cells import digest
from pytest_ngraph.workloads import folders

# Hidden, so that pytest finds no tests in what is kept below a rootdir.
_KEPT, _FILES = ".tree-", "files"
_POINTER = re.compile(rb"version https?://\S+\noid sha256:(?P<name>[0-9a-f]{64})\nsize (?P<size>\d+)\n\Z")
_MOST_POINTER_BYTES, _MOST_LINK_BYTES = 1024, 4096
# Without these nothing can be measured; what else is missing may not be needed.
_NEEDED = (".py", ".onnx")


@dataclass(frozen=True, slots=True)
class Missing:
    """A path of a commit that has no content here: why, and the object that would bring it.

    ``within`` is the path of the submodule that it is a file of, if any.
    """

    path: str
    kind: str
    object: str
    why: str
    within: str = ""


def keep(repository: Repository, commit: str, cache: Path, progress: Callable[[str], None]) -> Path:
    """Return the folder with the files of a commit, made where it is not kept whole already.

    Large files and submodules that are here have their contents in it. What was fetched since it was made is in another
    folder beside it, as another run may measure from the first one. Raises SpecError for what cannot be written as the
    commit has it.
    """
    tree = repository.tree(commit)
    folder = cache / f"{_KEPT}{tree}"
    while (meta := _kept(folder, progress)) is not None:
        missing = [Missing(**each) for each in meta["missing"]]
        still = [each for each in missing if not _is_here(repository, each)]
        complete = cache / f"{_KEPT}{tree}-{digest([[each.path, each.object] for each in still])[:16]}"
        if still == missing or complete == folder:
            return folder / _FILES
        folder = complete
    progress(f"reading the files of {commit[:7]}")
    folders.publish(folder, lambda scratch: _write(repository, tree, scratch / _FILES), deep=True)
    return folder / _FILES


def _kept(folder: Path, progress: Callable[[str], None]) -> dict[str, Any] | None:
    if said := folders.drop_damaged(folder):
        progress(said)
    return folders.read(folder)


def unusable(tree: str | Path) -> dict[str, str]:
    """Return which paths in the folder of a side's tree have no content there, and why. Empty without a tree."""
    return {each.path: each.why for each in _missing(tree)}


def check(tree: Path, import_path: Iterable[str], root: Path, progress: Callable[[str], None]) -> None:
    """Raise SpecError where what is missing in a tree is surely needed, by its name or by the import path of here.

    Name the rest.
    """
    missing = _missing(tree)
    entries = [PurePosixPath(entry).relative_to(root) for entry in import_path if Path(entry).is_relative_to(root)]
    needed = [
        each
        for each in missing
        if PurePosixPath(each.path).suffix in _NEEDED
        or (each.kind == SUBMODULE and any(entry.is_relative_to(each.path) for entry in entries))
    ]
    if needed:
        more = f" (and {len(needed) - 1} more)" if len(needed) > 1 else ""
        raise SpecError(f"{needed[0].path} of the other side{more}: {needed[0].why}")
    for each in missing:
        progress(f"not on the other side: {each.path}: {each.why}")


def _missing(tree: str | Path) -> list[Missing]:
    meta = folders.read(Path(tree).parent) if tree else None
    return [Missing(**each) for each in (meta or {}).get("missing", ())]


def _is_here(repository: Repository, missing: Missing) -> bool:
    if missing.kind == SUBMODULE:
        return _submodule(repository, missing.path, missing.object) is not None
    if missing.kind == LINK:
        return False
    # A submodule has large files of its own.
    owner = repository if not missing.within else _repository(repository.root / missing.within)
    return owner is not None and _is_whole(_large_file(owner, missing.object), missing.object)


def _large_file(repository: Repository, name: str) -> Path:
    return repository.large_files / name[:2] / name[2:4] / name


def _is_whole(large_file: Path, name: str) -> bool:
    return large_file.is_file() and file_digest(large_file) == name


def _submodule(repository: Repository, path: str, commit: str) -> Repository | None:
    """Return the repository of a submodule where it is checked out here and has the commit."""
    inner = _repository(repository.root / path)
    return inner if inner is not None and inner.commit(commit) is not None else None


def _repository(folder: Path) -> Repository | None:
    """Return the repository whose root is a folder, None where none can be read."""
    if not (folder / ".git").exists():
        return None
    try:
        found = Repository(folder)
    except SpecError:
        return None
    return found if found.root == folder else None


def _write(repository: Repository, tree: str, target: Path) -> dict[str, Any]:
    target.mkdir()
    links: list[tuple[str, str]] = []
    missing = list(_write_files(repository, tree, target, links))
    missing += _write_links(target, links)
    return {"missing": [{name: getattr(each, name) for name in each.__slots__} for each in missing]}


def _write_files(
    repository: Repository, tree: str, target: Path, links: list[tuple[str, str]], below: str = ""
) -> Iterator[Missing]:
    """Write what is a file, and note what is a link. Yield what has no content here."""
    with repository.reading() as blobs:
        for entry in repository.entries(tree):
            path = below + _checked(entry.path)
            if entry.mode == SUBMODULE:
                (target / path).mkdir(parents=True, exist_ok=True)
                inner = _submodule(repository, entry.path, entry.object)
                if inner is None:
                    fetch = f"git submodule update --init {entry.path}"
                    why = f"a submodule whose commit {entry.object[:7]} is not here ({fetch} brings its newest)"
                    yield Missing(path, SUBMODULE, entry.object, why)
                else:
                    yield from _write_files(inner, inner.tree(entry.object), target, links, f"{path}/")
            elif entry.mode == LINK:
                links.append((path, os.fsdecode(blobs.read(entry.object, _MOST_LINK_BYTES) or b"")))
            else:
                yield from _write_file(repository, blobs, entry, target, path, below)


def _write_file(
    repository: Repository, blobs: Blobs, entry: Entry, target: Path, path: str, below: str
) -> Iterator[Missing]:
    place = target / path
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("xb") as file:
        content = blobs.read(entry.object, _MOST_POINTER_BYTES, file)
        pointer = _POINTER.match(content) if content else None
        if pointer is not None:
            name = pointer["name"].decode()
            if not _copy_large(_large_file(repository, name), name, file):
                fetch = (
                    f"git -C {below.rstrip('/')} lfs fetch --all origin" if below else "git lfs fetch origin REVISION"
                )
                why = f"a pointer of git-lfs whose content is not here ({fetch} brings it)"
                yield Missing(path, "large file", name, why, below.rstrip("/"))
                file.write(content or b"")
        elif content:
            file.write(content)
        if entry.mode == EXECUTABLE:
            os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) | 0o111)


def _copy_large(source: Path, name: str, file: IO[bytes]) -> bool:
    """Copy a large file if it is here and whole. Nothing is written otherwise."""
    content = hashlib.sha256()
    try:
        with source.open("rb") as kept:
            while chunk := kept.read(1 << 20):
                content.update(chunk)
                file.write(chunk)
    except FileNotFoundError:
        return False
    if content.hexdigest() != name:
        file.seek(0)
        file.truncate()
        return False
    return True


def _write_links(target: Path, links: Iterable[tuple[str, str]]) -> Iterator[Missing]:
    """Make the links that stay inside, after all files, so that none is written through a link."""
    made = []
    for path, to in links:
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not to or PurePosixPath(to).is_absolute() or not _is_inside(os.path.normpath(place.parent / to), target):
            yield Missing(path, LINK, to, "a link that leaves the repository")
        else:
            place.symlink_to(to)
            made.append((path, to))
    root = os.path.realpath(target)
    for path, to in made:
        # By way of other links it may go on.
        if not _is_inside(os.path.realpath(target / path), Path(root)):
            (target / path).unlink()
            yield Missing(path, LINK, to, "a link that leaves the repository")


def _is_inside(path: str, folder: Path) -> bool:
    return Path(path).is_relative_to(folder)


def _checked(path: str) -> str:
    """Return a path of a commit. Raise SpecError for one that no checkout would write."""
    parts = path.split("/")
    if {"", ".", ".."} & set(parts) or any(part.lower() == ".git" for part in parts):
        raise SpecError(f"the commit has a file {json.dumps(path)}, which no checkout would write")
    return path
