"""The package as it is built: sdist and wheel are complete, and the wheel works where nothing else of ours is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import skip_without
from tests.support import built_package
from tests.support.pages import ROOT


def build(folder: Path) -> Path:
    """Build a copy of what is tracked, so that the checkout stays as it is; return the folder of what was built."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "benchmarks/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    command = [sys.executable, "-m", "build", "--no-isolation", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_without("build", "setuptools")
    return build(tmp_path_factory.mktemp("checkout"))


@pytest.mark.real
def test_what_is_built_is_complete_and_works_in_an_empty_environment(
    dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert built_package.main([str(dist), "--offline"]) == 0
    assert "the wheel works in an empty environment" in capsys.readouterr().out


@pytest.mark.real
def test_an_index_would_take_it(dist: Path) -> None:
    """The description renders, and the metadata hold together."""
    skip_without("twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, dist.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout + done.stderr


def test_a_file_that_is_left_out_is_named(dist: Path, tmp_path: Path) -> None:
    """Such as the page of the report, which is no Python."""
    import zipfile

    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(tmp_path / wheel.name, "w") as part:
        for name in whole.namelist():
            if not name.endswith("page.css"):
                part.writestr(name, whole.read(name))
    with pytest.raises(AssertionError, match=r"report/html/page\.css"):
        built_package.compare(tmp_path / wheel.name, sdist)
