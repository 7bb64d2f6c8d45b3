"""What `make dist` built, held to the checkout and tried in an empty environment.

``python -m tests.support.built_package dist`` downloads what the wheel needs. With ``--offline`` nothing is: the wheel
is installed without its dependencies, and those of the Python that runs this stand behind it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.pages import ROOT, project

PACKAGE = "pytest_ngraph"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the one wheel and the one sdist of a folder; raise AssertionError with what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.built_package", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--offline", action="store_true", help="Install nothing but the wheel")
    given = parser.parse_args(arguments)
    (wheel,) = given.folder.glob("*.whl")
    (sdist,) = given.folder.glob("*.tar.gz")
    version = project()["version"]
    assert wheel.name == f"{PACKAGE}-{version}-py3-none-any.whl", wheel.name
    assert sdist.name == f"{PACKAGE}-{version}.tar.gz", sdist.name
    compare(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        try_out(wheel, Path(folder), version, offline=given.offline)
    print(f"{wheel} and {sdist.name}: complete, and the wheel works in an empty environment")
    return 0


def compare(wheel: Path, sdist: Path) -> None:
    """Hold the files of both to those of the package that are tracked, and to what a package says of itself."""
    listed = subprocess.run(["git", "ls-files", PACKAGE], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = set(listed.stdout.split())
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = file.read(metadata).decode()
    in_wheel = {name for name in names if ".dist-info/" not in name}
    assert in_wheel == tracked, f"in the wheel or in git only: {sorted(in_wheel ^ tracked)}"
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked | {"README.md", "LICENSE", "pyproject.toml"} <= held, f"not in the sdist: {sorted(tracked - held)}"
    assert "Project-URL" not in text
    assert "Home-page" not in text


def try_out(wheel: Path, folder: Path, version: str, *, offline: bool) -> None:
    """Install the wheel into a new environment, and run what a user runs first, in an empty folder."""
    environment, work = folder / "environment", folder / "work"
    work.mkdir()
    said(sys.executable, "-m", "venv", environment, cwd=work)
    python, ngraph = environment / "bin" / "python", environment / "bin" / "ngraph"
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if offline:
        said(*install, "--no-index", "--no-deps", wheel.resolve(), cwd=work)
        (packages,) = environment.glob("lib/python*/site-packages")
        (packages / "behind.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    else:
        said(*install, "-c", ROOT / "constraints.txt", wheel.resolve(), cwd=work)
    place = said(python, "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)", cwd=work)
    assert Path(place.strip()).is_relative_to(environment), place
    assert said(ngraph, "--version", cwd=work) == f"pytest-ngraph {version}\n"
    assert "pytest" in said(python, "-m", "pytest", "--version", cwd=work)
    assert "--ngraph-compiler" in said(python, "-m", "pytest", "--help", cwd=work)
    # The plugin loads by its entry point, collects a grid, and measures it; null needs no runtime.
    (work / "test_speed.py").write_text(_SUITE)
    run = said(python, "-m", "pytest", "-p", "no:cacheprovider", *_NULL, "--ngraph-export=results.csv", cwd=work)
    assert "2 passed" in run, run
    assert f"ngraph-{version}" in run, run
    assert (work / "results.csv").read_text().count("throughput") >= 2
    said(ngraph, "store", "check", cwd=work)


_NULL = ("--ngraph-compiler=null[sample_us=200]", "--ngraph-baseline=null[sample_us=400]", "--ngraph-protocol=quick")
_SUITE = """
import pytest
from pytest_ngraph import assert_speedup


@pytest.mark.ngraph(model="block:conv", batch=[1, 8])
def test_speed(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.2)
"""


def said(*command: str | Path, cwd: Path) -> str:
    """Return what a command printed; raise AssertionError with all of it where it does not end with 0."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
