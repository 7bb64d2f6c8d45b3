"""What a worker reads back of packages in a folder that none of them owns, as IREE's compiler and runtime are."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ngraph.machine.facts import distributions_by_module
from pytest_ngraph.spec.sides import Side
from pytest_ngraph.worker import provenance


def install(folder: Path, distribution: str, module: str, version: str) -> str:
    """Write a distribution with one module in the shared folder ``ngraph_shared``. Return the folder it lies in."""
    inside = f"ngraph_shared/{module}/__init__.py"
    (folder / inside).parent.mkdir(parents=True)
    (folder / inside).write_text(f"VERSION = {version!r}\n")
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{inside},sha256=x,1\n{info.name}/METADATA,sha256=x,1\n")
    return str(folder)


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Load the runtime of a side and the compiler of here, as a worker of that side does."""
    here = install(tmp_path / "here", "shared-compiler", "compiler", "1.0")
    install(tmp_path / "here", "shared-runtime", "runtime", "1.0")
    there = install(tmp_path / "there", "shared-runtime", "runtime", "2.0")
    monkeypatch.setattr(sys, "path", [there, here, *sys.path])
    for each in (distributions_by_module, provenance._installed_in, provenance._has):
        each.cache_clear()
    for name in ("compiler", "runtime"):
        importlib.import_module(f"ngraph_shared.{name}")
    yield here, there
    for name in [name for name in sys.modules if name.partition(".")[0] == "ngraph_shared"]:
        del sys.modules[name]
    for each in (distributions_by_module, provenance._installed_in, provenance._has):
        each.cache_clear()


def test_each_part_of_a_shared_folder_is_read_back_by_the_package_that_brought_it(loaded: tuple[str, str]) -> None:
    here, there = loaded
    side = Side("runtime", packages=(there,), versions=(("shared-runtime", "2.0"),))
    found = provenance.provenance(side, ("ngraph_shared",), ())["packages"]
    assert [each[:2] for each in found if each[2].startswith((here, there))] == [
        ["shared-compiler", "1.0"],
        ["shared-runtime", "2.0"],
    ]


def test_a_part_that_came_from_here_is_not_taken_for_the_sides(loaded: tuple[str, str]) -> None:
    here, there = loaded
    side = Side("compiler", packages=(there,), versions=(("shared-compiler", "2.0"),))
    found = provenance.provenance(side, ("ngraph_shared",), ())["packages"]
    assert ["shared-compiler", "1.0", f"{here}/ngraph_shared/compiler/__init__.py"] in found
