"""Interpreters of other environments: what they have, and which of them cannot serve."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ngraph import sides
from pytest_ngraph.errors import SpecError
from pytest_ngraph.sides import pythons
from pytest_ngraph.spec.sides import Side
from tests.support import git_repository as repositories


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of this interpreter without any package."""
    folder = tmp_path_factory.mktemp("environments") / "old"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def install(environment: Path, name: str, version: str, record: str = "") -> None:
    """Put a package into an environment, as an installer leaves it."""
    (site,) = environment.glob("lib/python*/site-packages")
    (site / name).mkdir(exist_ok=True)
    (site / name / "__init__.py").write_text(f"__version__ = {version!r}\n")
    for old in site.glob(f"{name}-*.dist-info"):
        (old / "METADATA").unlink()
        (old / "RECORD").unlink()
        old.rmdir()
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(record)


@pytest.fixture
def resolve(tmp_path: Path) -> Callable[[str], Side]:
    def resolve(text: str) -> Side:
        return sides.resolve(sides.read(text), rootdir=tmp_path, cache=tmp_path / "sides", progress=lambda line: None)

    return resolve


def fake(folder: Path, facts: object) -> Path:
    """Write a program that answers as an interpreter would that these tests have not got."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "python"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
    program.chmod(0o755)
    return program


def test_an_environment_is_named_by_its_folder_and_known_by_what_it_has(
    bare: Path, resolve: Callable[[str], Side], tmp_path: Path
) -> None:
    install(bare, "numpy", "1.26.4", "numpy/__init__.py,sha256=1,1")
    install(bare, "Some_Runtime", "1.2")

    side = resolve(f"python:{bare}")

    assert side.python == str(bare / "bin" / "python")
    assert side.versions == (("numpy", "1.26.4"), ("some-runtime", "1.2"))
    assert side.label == f"python:old@{side.content[:7]}"
    assert (side.tree, side.packages) == ("", ())
    # By the program, and relative to the rootdir.
    (tmp_path / "env").symlink_to(bare)
    assert resolve(f"python:{bare}/bin/python") == side
    assert resolve("python:env").python == str(tmp_path / "env" / "bin" / "python")

    install(bare, "Some_Runtime", "1.3")
    newer = resolve(f"python:{bare}")
    install(bare, "Some_Runtime", "1.3", "some_runtime/__init__.py,sha256=2,2")
    rebuilt = resolve(f"python:{bare}")
    assert len({side.content, newer.content, rebuilt.content}) == 3


def test_an_environment_without_numpy_is_refused(bare: Path, resolve: Callable[[str], Side], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "new")], check=True)
    with pytest.raises(SpecError, match=r"python:new: .*new/bin/python has no numpy, and a worker needs it"):
        resolve("python:new")


def test_modules_of_this_environment_are_not_those_of_another(
    bare: Path, resolve: Callable[[str], Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("")
    (tmp_path / "json.py").write_text("raise SystemExit('of the project')")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "new")], check=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match="has no numpy"):
        resolve("python:new")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"version": [3, 9, 18], "implementation": "cpython"}, "is cpython 3.9.18, and a worker needs CPython 3.10"),
        ({"version": [2, 7, 18], "implementation": "cpython"}, "is cpython 2.7.18"),
        ({"version": [3, 11, 1], "implementation": "pypy"}, "is pypy 3.11.1"),
        ("hello", 'is no Python interpreter that works: "hello"'),
        ({"version": "x"}, "is no Python interpreter that works"),
        ([], "is no Python interpreter that works"),
    ],
)
def test_what_cannot_serve_is_refused(resolve: Callable[[str], Side], tmp_path: Path, facts: object, why: str) -> None:
    fake(tmp_path / "bin", facts)
    with pytest.raises(SpecError) as error:
        resolve("python:bin/python")
    assert str(error.value).startswith(f"python:bin/python: {tmp_path}/bin/python ")
    assert why in str(error.value)


@pytest.mark.parametrize("minor", [6, 7, 8, 9])
def test_a_real_interpreter_that_is_too_old_says_so(minor: int) -> None:
    program = shutil.which(f"python3.{minor}")
    if program is None or subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no Python 3.{minor} here")
    with pytest.raises(SpecError, match=rf"is cpython 3\.{minor}\.\d+, and a worker needs CPython 3.10 or newer"):
        pythons.ask(Path(program), "python:old")


def test_paths_to_nothing_and_to_what_is_no_program_are_refused(resolve: Callable[[str], Side], tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=rf"python:nowhere: there is no {tmp_path}/nowhere \(expected an interpreter"):
        resolve("python:nowhere")
    (tmp_path / "folder").mkdir()
    with pytest.raises(SpecError, match="is not the folder of an environment: it has no bin/python"):
        resolve("python:folder")
    (tmp_path / "file").write_text("text")
    with pytest.raises(SpecError, match="file cannot be started: Permission denied"):
        resolve("python:file")
    (tmp_path / "crash").write_text("#!/bin/sh\necho cannot open shared object >&2\nexit 3\n")
    (tmp_path / "crash").chmod(0o755)
    with pytest.raises(SpecError, match="no Python interpreter that works: cannot open shared object"):
        resolve("python:crash")


def test_a_name_is_looked_for_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake(tmp_path / "programs", [])
    monkeypatch.setenv("PATH", str(program.parent))
    assert pythons.find("python", tmp_path) == program


def test_a_side_may_have_all_of_it_and_a_short_name(bare: Path, tmp_path: Path, resolve: Callable[[str], Side]) -> None:
    install(bare, "numpy", "1.26.4")
    repositories.make(tmp_path)
    branch = "feature/" + "very-long-name-" * 5
    for name in (branch, f"{branch}x"):
        repositories.git(tmp_path, "branch", name)

    one, other = (resolve(f"{name},python:{bare}") for name in (branch, f"{branch}x"))

    assert one.tree == other.tree != ""
    assert one.python != ""
    assert one.label != other.label
    assert max(len(one.label), len(other.label)) <= 60
    assert one.label.startswith("feature/very-long-name-")
    named = resolve(f"python:{bare}").label
    assert resolve(f"main,python:{bare}").label.split("+")[1] == named
