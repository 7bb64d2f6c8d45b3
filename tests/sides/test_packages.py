"""Packages of a side: installed into folders of their own by pip, from wheels that these tests write."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ngraph import sides
from pytest_ngraph.checks.other_data import Difference
from pytest_ngraph.errors import SpecError
from pytest_ngraph.sides import packages
from pytest_ngraph.sides.asked import Package
from pytest_ngraph.spec.sides import Side
from tests.support import wheels

pytestmark = pytest.mark.real
# Of a name that no index has.
NAME = "ngraph_tests_layer"
DASHED = NAME.replace("_", "-")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, which is all that pip looks in."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    wheels.write(tmp_path / "wheels", NAME, "1.0")
    wheels.write(tmp_path / "wheels", NAME, "1.1", requires=["numpy<1", f"{NAME}_more>=2", "absent; extra == 'x'"])
    return tmp_path / "wheels"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def resolve(tmp_path: Path, said: list[str]) -> Callable[[str], Side]:
    def resolve(text: str) -> Side:
        return sides.resolve(sides.read(text), rootdir=tmp_path, cache=tmp_path / "sides", progress=said.append)

    return resolve


def printed(side: Side, code: str, python: str = sys.executable) -> str:
    """Return what a program prints with the packages of a side first on its path."""
    script = f"import sys; sys.path[:0] = {list(side.packages)!r}; {code}"
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.usefixtures("index")
def test_a_package_comes_into_a_folder_of_its_own_and_nowhere_else(
    resolve: Callable[[str], Side], said: list[str]
) -> None:
    before = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}

    side = resolve(f"{NAME}==1.0")

    assert side.label == f"{DASHED}==1.0"
    assert side.versions == ((DASHED, "1.0"),)
    assert printed(side, f"import {NAME}; print({NAME}.VERSION)") == "1.0"
    assert (side.root, side.tree, side.python, len(side.content)) == ("", "", "", 64)
    assert {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()} == before
    assert said == [f"installing {DASHED}==1.0 into a folder of its own"]

    said.clear()
    assert resolve(f"{NAME}==1.0.0") == side or said  # another text of the same version
    said.clear()
    assert resolve(f"{NAME}==1.0") == side
    assert said == []


def test_pip_is_found_where_another_library_imported_distutils(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hooked:
        """As the finder of setuptools is once distutils is there: asked for pip, it takes modules away, and warns."""

        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            raise UserWarning(f"{name}: Setuptools is replacing distutils")

    monkeypatch.setattr(sys, "meta_path", [Hooked(), *sys.meta_path])

    assert packages._has_pip()


@pytest.mark.usefixtures("index")
def test_a_damaged_one_is_installed_again_and_its_content_is_what_it_was(
    resolve: Callable[[str], Side], said: list[str]
) -> None:
    side = resolve(f"{NAME}==1.0")
    (Path(side.packages[0]) / NAME / "__init__.py").write_text("VERSION = '9.9'\n")
    said.clear()

    assert resolve(f"{NAME}==1.0") == side
    assert printed(side, f"import {NAME}; print({NAME}.VERSION)") == "1.0"
    assert said[0].endswith("is damaged: removed, and made again")


def test_other_content_of_the_same_version_is_other_content(
    index: Path, resolve: Callable[[str], Side], tmp_path: Path
) -> None:
    first = resolve(f"{NAME}==1.0")
    wheels.write(index, NAME, "1.0", code="SLOWER = True\n")
    other = sides.resolve(
        sides.read(f"{NAME}==1.0"), rootdir=tmp_path, cache=tmp_path / "other", progress=lambda line: None
    )
    assert other.content != first.content
    assert (other.label, other.versions) == (first.label, first.versions)


@pytest.mark.usefixtures("index")
def test_what_it_asks_for_and_does_not_get_is_said(resolve: Callable[[str], Side], said: list[str]) -> None:
    numpy = importlib.metadata.version("numpy")
    resolve(f"{NAME}==1.1")
    assert said[1:] == [
        f"{NAME} 1.1 asks for numpy<1, which is {numpy} here",
        f"{NAME} 1.1 asks for {NAME}_more>=2, which is not here",
    ]


@pytest.mark.usefixtures("index")
def test_what_its_extras_ask_for_is_said_where_they_are_asked_for(
    resolve: Callable[[str], Side], said: list[str]
) -> None:
    side = resolve(f"{NAME}[x]==1.1")
    assert side.label == f"{DASHED}[x]==1.1"
    assert said[-1] == f"{NAME} 1.1 asks for absent, which is not here"


def test_what_another_package_of_the_side_brings_is_met(
    index: Path, resolve: Callable[[str], Side], said: list[str]
) -> None:
    wheels.write(index, f"{NAME}_more", "2.5")
    side = resolve(f"{NAME}==1.1,{NAME}_more==2.5")
    assert side.label == f"{DASHED}==1.1+{DASHED}-more==2.5"
    assert len(side.packages) == 2
    assert side.versions == ((DASHED, "1.1"), (f"{DASHED}-more", "2.5"))
    assert [line for line in said if "more>=2" in line] == []


@pytest.mark.usefixtures("index")
def test_a_version_that_is_not_there_names_those_that_are(resolve: Callable[[str], Side], tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=rf"{DASHED}==7.0: no such version that fits .* \(known: 1.0, 1.1\)"):
        resolve(f"{NAME}==7.0")
    with pytest.raises(SpecError, match=rf"{DASHED}-none==1.0: the index has no {DASHED}-none that fits"):
        resolve(f"{NAME}_none==1.0")
    assert [path.name for path in (tmp_path / "sides").iterdir()] == [".gitignore"]


def test_what_is_no_wheel_is_said_in_a_few_lines(index: Path, resolve: Callable[[str], Side]) -> None:
    (index / f"{NAME}-3.0-py3-none-any.whl").write_bytes(b"not an archive")
    with pytest.raises(SpecError, match=rf"{DASHED}==3.0 cannot be installed:\n") as error:
        resolve(f"{NAME}==3.0")
    assert len(str(error.value).splitlines()) <= 10


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PIP_TARGET", "elsewhere"),
        ("PIP_PREFIX", "elsewhere"),
        ("PIP_ROOT", "elsewhere"),
        ("PIP_USER", "1"),
        ("PIP_DRY_RUN", "1"),
        ("PIP_CONSTRAINT", "constraint.txt"),
        ("PIP_REQUIREMENT", "constraint.txt"),
        ("PIP_REQUIRE_HASHES", "1"),
        ("PIP_CONFIG_FILE", "pip.conf"),
    ],
)
@pytest.mark.usefixtures("index")
def test_settings_of_pip_that_lead_to_another_place_are_not_followed(
    resolve: Callable[[str], Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    (tmp_path / "constraint.txt").write_text(f"{NAME}==1.1\n")
    (tmp_path / "pip.conf").write_text(
        "[global]\nno-index = true\n[install]\nuser = true\n"
        f"constraint = {tmp_path}/constraint.txt\nfind-links = {tmp_path}/wheels\n"
    )
    monkeypatch.setenv(name, value if value == "1" else str(tmp_path / value))
    if name == "PIP_CONFIG_FILE":
        # Where packages come from is followed from a file, too.
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.delenv("PIP_NO_INDEX")

    side = resolve(f"{NAME}==1.0")

    assert printed(side, f"import {NAME}; print({NAME}.VERSION)") == "1.0"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.usefixtures("index")
def test_no_module_of_the_folder_it_starts_in_stands_in_for_pip(
    resolve: Callable[[str], Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('of the project')")
    (tmp_path / "tempfile.py").write_text("raise SystemExit('of the project')")
    monkeypatch.chdir(tmp_path)
    assert resolve(f"{NAME}==1.0").versions == ((DASHED, "1.0"),)


@pytest.mark.usefixtures("index")
def test_packages_for_another_environment_need_no_pip_in_it(
    resolve: Callable[[str], Side], said: list[str], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(other)], check=True)
    (site,) = other.glob("lib/python*/site-packages")
    for name, text in (("numpy/__init__.py", ""), ("numpy-1.0.dist-info/METADATA", "Name: numpy\nVersion: 1.0\n")):
        (site / name).parent.mkdir()
        (site / name).write_text(text)

    side = resolve(f"{NAME}==1.1,python:{other}")

    assert side.python == str(other / "bin" / "python")
    assert side.label == f"{DASHED}==1.1+python:other@{resolve(f'python:{other}').content[:7]}"
    assert side.versions == ((DASHED, "1.1"), ("numpy", "1.0"))
    assert printed(side, f"import {NAME}; print({NAME}.VERSION)", side.python) == "1.1"
    assert sorted(path.name for path in site.iterdir()) == ["numpy", "numpy-1.0.dist-info"]
    # What it asks for is looked for there, and not here.
    assert f"{NAME} 1.1 asks for numpy<1, which is 1.0 here" in said


def test_passwords_of_an_index_are_not_shown() -> None:
    output = "ERROR: Looking in indexes: https://ann:secret@index.lab/simple\nERROR: 403 Client Error"
    error = packages._failed(Package("a", "1"), sys.executable, output)
    assert "secret" not in str(error)
    assert "index.lab" in str(error)


@pytest.mark.usefixtures("index")
def test_where_pip_is_not_installed_uv_does_it(
    resolve: Callable[[str], Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    monkeypatch.setattr(packages, "_has_pip", lambda: False)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_CONSTRAINT", str(tmp_path / "constraint.txt"))
    (tmp_path / "constraint.txt").write_text(f"{NAME}==1.1\n")
    side = resolve(f"{NAME}==1.0")
    assert printed(side, f"import {NAME}; print({NAME}.VERSION)") == "1.0"
    with pytest.raises(SpecError, match=rf"{DASHED}==7.0"):
        resolve(f"{NAME}==7.0")


def test_what_pip_and_uv_install_is_the_same_content(
    index: Path, resolve: Callable[[str], Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    by_pip = resolve(f"{NAME}==1.0")
    monkeypatch.setattr(packages, "_has_pip", lambda: False)
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    by_uv = sides.resolve(
        sides.read(f"{NAME}==1.0"), rootdir=tmp_path, cache=tmp_path / "uv", progress=lambda line: None
    )
    assert (by_uv.versions, by_uv.content) == (by_pip.versions, by_pip.content)


def test_without_pip_and_uv_it_says_what_brings_them(
    resolve: Callable[[str], Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_has_pip", lambda: False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SpecError, match=r"neither pip nor uv is here .* -m ensurepip brings pip"):
        resolve(f"{NAME}==1.0")


def test_a_real_release_of_the_index_is_read_back(resolve: Callable[[str], Side]) -> None:
    try:
        side = resolve("iniconfig==2.0.0")
    except SpecError as error:
        pytest.skip(f"no index answers: {error}")
    assert side.versions == (("iniconfig", "2.0.0"),)
    found = printed(side, "import iniconfig; print(iniconfig.__file__)")
    assert Path(found).is_relative_to(side.packages[0])


def test_an_index_that_stays_silent_is_not_waited_for_without_end(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_LISTING_SECONDS", 3)
    monkeypatch.delenv("PIP_NO_INDEX")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/simple")

        with pytest.raises(SpecError, match=f"^{NAME}: the index did not say within 3 s which releases it has; see"):
            packages.releases(NAME)


def test_a_wheel_is_taken_as_it_is_and_known_by_its_content(
    resolve: Callable[[str], Side], said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No index is asked, whatever pip is told of one.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    path = wheels.write(tmp_path / "dist", NAME, "1.0", code="SLOW = 1\n")
    first = resolve(f"dist/{path.name}")
    assert first.versions == ((DASHED, "1.0"),)
    assert first.label.startswith(f"{DASHED}==1.0@")
    assert printed(first, f"import {NAME}; print({NAME}.SLOW)") == "1"
    assert said == [f"installing {first.label} into a folder of its own"]

    wheels.write(tmp_path / "dist", NAME, "1.0", code="SLOW = 2\n")
    second = resolve(str(path))
    assert (second.label == first.label, second.content == first.content) == (False, False)
    assert printed(second, f"import {NAME}; print({NAME}.SLOW)") == "2"
    assert printed(first, f"import {NAME}; print({NAME}.SLOW)") == "1"


def test_a_wheel_that_is_not_what_its_name_says_is_refused(resolve: Callable[[str], Side], tmp_path: Path) -> None:
    path = wheels.write(tmp_path / "dist", NAME, "1.0")
    other = path.with_name(path.name.replace("1.0", "1.1"))
    path.rename(other)
    with pytest.raises(SpecError, match=r"1\.1"):
        resolve(f"dist/{other.name}")
    with pytest.raises(SpecError, match=r"dist/a-1-py3-none-any.whl: .* cannot be read: No such file or directory"):
        resolve("dist/a-1-py3-none-any.whl")
    assert [each.name for each in (tmp_path / "sides").iterdir()] == [".gitignore"]


def test_two_builds_of_one_version_differ_though_the_version_is_that_of_here(
    resolve: Callable[[str], Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = resolve(f"dist/{wheels.write(tmp_path / 'dist', NAME, '1.0', code='SLOW = 1').name}")
    monkeypatch.syspath_prepend(here.packages[0])
    assert not Difference(here, sys.path).shows([])
    other = resolve(f"dist/{wheels.write(tmp_path / 'dist', NAME, '1.0', code='SLOW = 2').name}")
    assert other.versions == here.versions
    assert Difference(other, sys.path).shows([])
