"""Shipping: a project's files as a zip and those of its models as blobs, named by content, from a client to a device.

Nothing of it is installed there: a project is unpacked into a folder of its own and stands on the import path of the
process that measures, and only there. What lies outside the rootdir is taken to be installed on the device.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import subprocess
import time
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_ngraph.errors import DeviceUnusable, SpecError
from pytest_ngraph.machine.files import file_digest, sync
from pytest_ngraph.spec.cells import ModelRef, digest
from pytest_ngraph.texts.shown import one_line
from pytest_ngraph.workloads.kinds import kind_of
from pytest_ngraph.workloads.kinds.contract import AS_FILES, BY_NAME, IN_PROJECT, guarded

MOST_FILES = 20_000
MOST_BYTES = 256 << 20
# What Linux takes: of a name all, of a path what the device's own folder leaves of 4096.
MOST_NAME_BYTES, MOST_PATH_BYTES = 255, 3000
_MEGABYTE = 1 << 20
# The same files give the same zip, whenever and by whom they were written.
_WHEN, _MODE = (1980, 1, 1, 0, 0, 0), 0o644
_NOT_SOURCES = ("__pycache__", "node_modules", "site-packages")
_SCRATCH = ".making-"
# What an archive raises that holds the same name twice, or is made by means that are not known here.
_CONFUSED = (NotImplementedError, EOFError, FileExistsError, NotADirectoryError)
_IN_USE_SECONDS = 24 * 3600.0
_GIT_SECONDS = 60.0
_SYNCED_ONE_BY_ONE = 200
# What stands in a reference instead of the folder that a file is in.
PROJECT, FILES = "project", "files"


# On the client


@dataclass(frozen=True)
class Project:
    """The files of a rootdir that go to a device, as they are now."""

    rootdir: Path
    names: frozenset[str]
    data: bytes

    @cached_property
    def sha256(self) -> str:
        """Return the name of the zip: the sha256 of its content."""
        return hashlib.sha256(self.data).hexdigest()

    def path_of(self, entries: Iterable[str]) -> list[str]:
        """Return those folders of an import path that go to the device, relative to the rootdir, in order."""
        folders = {str(parent) for name in self.names for parent in PurePosixPath(name).parents}
        inside = (_inside(Path(entry), self.rootdir) for entry in entries)
        return list(dict.fromkeys(entry for entry in inside if entry is not None and entry in folders))

    def reference(self, model: ModelRef) -> ModelRef:
        """Return a reference that the device can follow. Raise SpecError for a file that does not go there."""
        kind = kind_of(model)
        if kind.travels != IN_PROJECT:
            return model
        path = kind.place(model)
        name = _inside(Path(path), self.rootdir)
        if name is None:
            raise SpecError(
                f"model {model.text!r}: {path} is outside the rootdir {self.rootdir}, so it does not go to a remote "
                "device; move it below the rootdir, or install it on the device and name it as pkg.module:factory"
            )
        if name not in self.names:
            raise SpecError(
                f"model {model.text!r}: {name} does not go to a remote device, as git ignores it; take it out of "
                ".gitignore or add it to the repository"
            )
        return kind.moved(model, f"{PROJECT}/{name}")


@dataclass(frozen=True)
class Bundle:
    """The files of a model with the sha256 of each, the model first, and how the device refers to it."""

    name: str
    files: tuple[tuple[Path, str], ...]
    reference: ModelRef

    @property
    def contents(self) -> dict[str, str]:
        """Return the sha256 of each file by its name, as ``lay_out`` takes them."""
        return {path.name: content for path, content in self.files}


def pack(rootdir: Path) -> Project:
    """Return a project's files as a zip: those that git tracks, as they are now, and untracked Python files.

    What git ignores stays here. Outside of a repository all Python files go. Raises SpecError where git cannot read the
    repository, and where there are too many files or bytes, with the largest of them.
    """
    rootdir = rootdir.resolve()
    return _packed(rootdir, _names(rootdir), f"the project in {rootdir}")


def pack_all(folder: Path, what: str) -> Project:
    """Return all files of a folder as a zip. Raise SpecError, which calls it ``what``, where there are too many."""
    folder = folder.resolve()
    names = (Path(place, name).relative_to(folder).as_posix() for place, _, files in os.walk(folder) for name in files)
    return _packed(folder, names, what)


def _packed(rootdir: Path, found: Iterable[str], what: str) -> Project:
    own = (name for name in found if _is_own(rootdir / name, rootdir))
    # A rootdir may be a home folder: it is not read to its end to say that it is too large.
    names = sorted(islice(own, MOST_FILES + 1))
    for name in names:
        if long := too_long(name):
            raise SpecError(f"{rootdir / name} does not go to a remote device: {long}; give it a shorter name")
    sizes = {name: (rootdir / name).stat().st_size for name in names}
    if len(names) > MOST_FILES or sum(sizes.values()) > MOST_BYTES:
        largest = sorted(names, key=lambda name: -sizes[name])[:3]
        total, most = sum(sizes.values()) / _MEGABYTE, MOST_BYTES // _MEGABYTE
        shown = ", ".join(f"{name} ({sizes[name] / _MEGABYTE:.1f} MiB)" for name in largest)
        raise SpecError(
            f"{what} is too large for a remote device: {len(names)} files with {total:.0f} MiB, "
            f"allowed are {MOST_FILES} with {most} MiB; the largest: {shown}; take what tests do not read out of the "
            "repository, or choose a smaller --rootdir"
        )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            facts = zipfile.ZipInfo(name, _WHEN)
            facts.external_attr = (stat.S_IFREG | _MODE) << 16
            facts.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(facts, (rootdir / name).read_bytes())
    return Project(rootdir, frozenset(names), packed.getvalue())


def too_long(name: str) -> str | None:
    """Return what is too long in a relative path for the file systems of devices, or None."""
    long = next((part for part in name.split("/") if len(os.fsencode(part)) > MOST_NAME_BYTES), None)
    if long is not None:
        return f"the name {long[:20]!r}... in it has {len(os.fsencode(long))} bytes (at most {MOST_NAME_BYTES})"
    if len(os.fsencode(name)) > MOST_PATH_BYTES:
        return f"its path has {len(os.fsencode(name))} bytes (at most {MOST_PATH_BYTES})"
    return None


def bundle(model: ModelRef) -> Bundle:
    """Return the files that a model is made of, as they are now. Raise SpecError where they cannot go to a device."""
    kind = kind_of(model)
    paths = guarded(model.text, f"files() of its kind {model.scheme!r}", lambda: [*kind.files(model)])
    if not paths:
        raise SpecError(f"model {model.text!r}: its kind {model.scheme!r} names no files of it")
    for each in paths:
        if each.resolve().parent != paths[0].parent.resolve() or not each.is_file():
            raise SpecError(f"model {model.text!r}: its data {each} must be a file in the folder of the model")
    files = [(path, content_of(path)) for path in paths]
    name = digest([[path.name, content] for path, content in files])[:32]
    return Bundle(name, tuple(files), kind.moved(model, f"{FILES}/{name}/{files[0][0].name}"))


def content_of(path: Path) -> str:
    """Return the sha256 of a file. Raise SpecError where it cannot be read."""
    try:
        return file_digest(path)
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from None


def _names(rootdir: Path) -> Iterator[str]:
    """Yield the paths of a project's files, relative to its rootdir."""
    tracked = _git(rootdir, ["ls-files", "-z", "--cached", "--recurse-submodules"])
    others = _git(rootdir, ["ls-files", "-z", "--others", "--exclude-standard", "--", "*.py"])
    if tracked is not None and others is not None:
        known = set(filter(None, tracked.split("\0")))
        yield from known
        # Environments that git does not ignore are not the project's, and of another machine.
        is_foreign = cache(lambda folder: _is_foreign(rootdir / folder))
        new = sorted(set(filter(None, others.split("\0"))) - known)
        yield from (name for name in new if not any(map(is_foreign, list(PurePosixPath(name).parents)[:-1])))
        return
    for folder, below, files in os.walk(rootdir):
        here = Path(folder)
        below[:] = [name for name in below if not _is_foreign(here / name)]
        yield from ((here / name).relative_to(rootdir).as_posix() for name in files if name.endswith(".py"))


def _git(rootdir: Path, words: Sequence[str]) -> str | None:
    """Return what git says, or None outside of a repository. Raise SpecError with why where it cannot read one."""
    try:
        done = subprocess.run(
            ["git", *words],  # noqa: S607
            cwd=rootdir,
            capture_output=True,
            timeout=_GIT_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        said = f"git cannot be started: {error.strerror}"
    except subprocess.TimeoutExpired:
        said = f"git did not answer within {_GIT_SECONDS:g} s"
    else:
        if done.returncode == 0:
            return done.stdout.decode("utf-8", "surrogateescape")
        said = one_line(done.stderr.decode(errors="replace")) or f"git ended with status {done.returncode}"
        if "not a git repository (or any" in said:
            # Git stops at mount points, below which a repository may lie that this is not of.
            return None
    # Where a folder may not be looked into, it is none.
    repository = next((each for each in (rootdir, *rootdir.parents) if os.path.lexists(each / ".git")), None)
    if repository is None:
        return None
    raise SpecError(
        f"what goes of {rootdir} to a remote device are the files that git tracks in {repository}, and they cannot be "
        f"listed: {said}; make 'git ls-files' work there for this user"
    )


def _is_foreign(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _NOT_SOURCES or (folder / "pyvenv.cfg").exists()


def _is_own(path: Path, rootdir: Path) -> bool:
    """Return whether a file exists and its content is in the project, also where it is reached by a link."""
    try:
        str(path).encode("utf-8")
        return path.is_file() and path.resolve().is_relative_to(rootdir)
    except (OSError, UnicodeEncodeError):
        return False


def _inside(path: Path, rootdir: Path) -> str | None:
    path = path.resolve()
    return path.relative_to(rootdir).as_posix() if path.is_relative_to(rootdir) else None


# On the device


def unpack(archive: Path, folder: Path, *, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES) -> Path:
    """Unpack a zip into a folder named by it, all or nothing, where it is not there yet, and return that folder.

    Raises DeviceUnusable for an archive that would leave the folder, hold anything but plain files, or grow too large.
    """
    target = folder / archive.name
    if not target.is_dir():
        if not archive.is_file():
            raise DeviceUnusable(f"the project {archive.name[:12]} is not here, or only a part of it; run again")
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f"{_SCRATCH}{uuid.uuid4().hex}"
        scratch.mkdir()
        try:
            with zipfile.ZipFile(archive) as opened:
                for facts, name in _checked(opened.infolist(), most_files, most_bytes):
                    path = scratch / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with opened.open(facts) as packed, path.open("xb") as file:
                        _copy(packed, file, facts.file_size)
            _move(scratch, target)
        except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, *_CONFUSED) as error:
            raise DeviceUnusable(f"the project {archive.name[:12]} cannot be unpacked: {error}") from None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    os.utime(target)
    return target


def _checked(
    entries: Sequence[zipfile.ZipInfo], most_files: int, most_bytes: int
) -> Iterator[tuple[zipfile.ZipInfo, PurePosixPath]]:
    """Yield the entries of an archive with their paths, if all of them may be unpacked."""
    if len(entries) > most_files or sum(facts.file_size for facts in entries) > most_bytes:
        raise DeviceUnusable(f"the project is larger than {most_files} files or {most_bytes // _MEGABYTE} MiB")
    for facts in entries:
        path, kind = PurePosixPath(facts.filename), stat.S_IFMT(facts.external_attr >> 16)
        plain = kind in (0, stat.S_IFREG) and not facts.filename.endswith("/") and not facts.flag_bits & 1
        if not plain or path.is_absolute() or not path.parts or {"..", "."} & {*path.parts} or "\\" in facts.filename:
            raise DeviceUnusable(f"the project holds {facts.filename!r}, which is not a plain file inside of it")
        if long := too_long(facts.filename):
            raise DeviceUnusable(f"the project holds {facts.filename[:200]!r}, which cannot be unpacked: {long}")
    yield from ((facts, PurePosixPath(facts.filename)) for facts in entries)


def _copy(packed: Any, file: Any, size: int) -> None:
    """Copy what an entry says it holds. One that holds more is a bomb."""
    shutil.copyfileobj(packed, file, _MEGABYTE)
    if file.tell() != size:
        raise zipfile.BadZipFile(f"an entry of {size} bytes holds {file.tell()}")


def lay_out(blobs: Path, name: str, files: Mapping[str, str], folder: Path) -> Path:
    """Put blobs (file name to sha256) side by side into a folder of this name, all or nothing, and return it."""
    target = folder / name
    if not target.is_dir():
        scratch = folder / f"{_SCRATCH}{uuid.uuid4().hex}"
        scratch.mkdir(parents=True)
        try:
            for file, content in files.items():
                if Path(file).name != file or file in ("", ".", ".."):
                    raise DeviceUnusable(f"{file!r} is not the name of a file")
                if long := too_long(file):
                    raise DeviceUnusable(f"{file[:200]!r} cannot be written: {long}")
                # ONNX takes a file with a second name for an attack, so it is a copy.
                shutil.copyfile(blobs / content, scratch / file)
            _move(scratch, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    os.utime(target)
    return target


def located(model: ModelRef, project: Path | None, files: Mapping[str, Path]) -> ModelRef:
    """Return a reference that ``Project.reference`` or ``bundle`` made, with the path of its file on this device."""
    kind = kind_of(model)
    if kind.travels == BY_NAME:
        return model
    sort, _, rest = kind.place(model).partition("/")
    if kind.travels == IN_PROJECT and sort == PROJECT and project is not None:
        return kind.moved(model, str(_below(project, rest)))
    name, _, file = rest.partition("/")
    if kind.travels == AS_FILES and sort == FILES and name in files:
        return kind.moved(model, str(_below(files[name], file)))
    raise DeviceUnusable(f"model {model.text!r}: {model.locator!r} is nothing that was shipped")


def _below(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DeviceUnusable(f"{name!r} leaves the folder that was shipped")
    return path


def _move(scratch: Path, target: Path) -> None:
    """Put a finished folder in its place. Where its name is on disk, so is all that is in it, also without power."""
    files = [(place, names) for place, _, names in os.walk(scratch, topdown=False)]
    if sum(len(names) for _, names in files) > _SYNCED_ONE_BY_ONE and hasattr(os, "sync"):
        # One by one that takes minutes on an SD card.
        os.sync()
    else:
        for place, names in files:
            for name in names:
                sync(Path(place, name))
            sync(Path(place))
    try:
        scratch.rename(target)
    except OSError:
        # Another process was quicker.
        if not target.is_dir():
            raise
    else:
        sync(target.parent)


def tidy(folders: Iterable[Path], most_bytes: int) -> None:
    """Remove the longest unused files of these folders until they are small enough, but none of today's."""
    found: list[tuple[float, Path]] = []
    for path in (path for folder in folders if folder.is_dir() for path in folder.iterdir()):
        try:
            found.append((path.stat().st_mtime, path))
        except FileNotFoundError:
            continue
    total, now = 0, time.time()
    for used, path in sorted(found, reverse=True):
        total += _size(path)
        # Whoever waits for a lock would hold another one than who comes next.
        if total > most_bytes and now - used > _IN_USE_SECONDS and path.name != ".lock":
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file())
