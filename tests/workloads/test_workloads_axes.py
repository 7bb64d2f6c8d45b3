"""Which axes a model takes is known at collection, without importing it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.kinds.axes import AXES, axes_taken, axis_values, refuse_unless_taken

SOURCE = """
raise RuntimeError("reading the signature must not run this file")
import functools
from elsewhere import reexported, other as renamed
from torch import nn
from torch.nn import Module

def plain(depth, width=4): ...
def keyword_only(*, image_size): ...
def positional_only(depth, /): ...
def takes_all(**anything): ...
def takes_none(): ...
@functools.cache
def cached(depth): ...
@mystery
def decorated(): ...
class Net(nn.Module):
    def __init__(self, depth=1): ...
    @classmethod
    def deep(cls, width): ...
class Child(Net): ...
class Bare(Module):
    def forward(self, x): ...
class Strange(reexported): ...
alias = plain
partial = functools.partial(plain, depth=2)
short = lambda depth: None
if True:
    def conditional(width): ...
with open("x") as handle: ...
_hidden = 1
"""
ALL = set(AXES)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(SOURCE)
    (tmp_path / "star.py").write_text("from somewhere import *\n")
    (tmp_path / "torn.py").write_text("def f(:\n")
    return tmp_path


def accepted(model: ModelRef) -> set[str]:
    taken = set()
    for axis in AXES:
        with contextlib.suppress(SpecError):
            refuse_unless_taken(model, axis, axes_taken(model))
            taken.add(axis)
    return taken


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("timm:resnet18", {"image_size"}),
        ("block:conv", {"depth", "width", "image_size"}),
        ("block:mha", {"depth", "width"}),
        ("onnx:star.py", set()),
        ("models.py:plain", {"depth", "width"}),
        ("models.py:keyword_only", {"image_size"}),
        ("models.py:positional_only", set()),
        ("models.py:takes_all", ALL),
        ("models.py:takes_none", set()),
        ("models.py:cached", {"depth"}),
        ("models.py:decorated", ALL),
        ("models.py:Net", {"depth"}),
        ("models.py:Net.deep", {"width"}),
        ("models.py:Child", {"depth"}),
        ("models.py:Bare", set()),
        ("models.py:Strange", ALL),
        ("models.py:alias", {"depth", "width"}),
        ("models.py:partial", ALL),
        ("models.py:short", {"depth"}),
        ("models.py:conditional", {"width"}),
        ("models.py:reexported", ALL),
        ("models.py:renamed", ALL),
        ("models.py:renamed.inner", ALL),
        ("models.py:handle", ALL),
        ("star.py:anything", ALL),
    ],
)
def test_a_model_takes_the_axes_of_its_signature(place: Path, text: str, axes: set[str]) -> None:
    assert accepted(parse_model(text, (place,))) == axes


def test_the_message_says_what_the_model_takes() -> None:
    with pytest.raises(
        SpecError, match=r"model 'block:mha': it does not take image_size \(it takes: depth, width, sequence\)"
    ):
        refuse_unless_taken(model := parse_model("block:mha"), "image_size", axes_taken(model))


@pytest.mark.parametrize("name", ["missing", "Net.missing", "missing.inner"])
def test_a_name_that_is_not_there_is_refused_with_those_that_are(place: Path, name: str) -> None:
    with pytest.raises(SpecError, match=r"no 'missing' in .*models\.py"):
        axes_taken(parse_model(f"models.py:{name}", (place,)))


def test_a_missing_name_lists_public_names(place: Path) -> None:
    with pytest.raises(SpecError) as caught:
        axes_taken(parse_model("models.py:nope", (place,)))
    assert "names that are there: Bare, Child, Module, Net, Strange, alias, cached, conditional" in str(caught.value)
    assert "_hidden" not in str(caught.value)


def test_a_file_that_cannot_be_parsed_is_refused_with_its_line(place: Path) -> None:
    with pytest.raises(SpecError, match=r"torn\.py, line 1"):
        axes_taken(parse_model("torn.py:f", (place,)))


def test_a_module_is_found_without_importing_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "axes_outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("raise RuntimeError\ndef here(width): ...\n")
    (inner / "leaf.py").write_text("def make(depth): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert accepted(parse_model("axes_outer.inner.leaf:make")) == {"depth"}
    assert accepted(parse_model("axes_outer.inner:here")) == {"width"}
    assert accepted(parse_model("axes_outer.inner.built_elsewhere:make")) == ALL
    assert "axes_outer" not in sys.modules


def test_a_package_that_is_not_installed_is_refused() -> None:
    with pytest.raises(SpecError, match="no package or module 'no_such_package'"):
        axes_taken(parse_model("no_such_package.models:make"))


def test_built_in_models_have_defaults_and_factories_get_only_what_is_set(place: Path) -> None:
    assert axis_values(Workload(parse_model("block:conv"), depth=3)) == {"depth": 3, "width": 64, "image_size": 244}
    assert axis_values(Workload(parse_model("block:mha"))) == {"depth": 1, "width": 128, "sequence": 10}
    assert axis_values(Workload(parse_model("timm:x"))) == {"image_size": 224}
    assert axis_values(Workload(parse_model("models.py:plain", (place,)), width=2)) == {"width": 2}
    with pytest.raises(SpecError, match="depth is 0"):
        axis_values(Workload(parse_model("block:mha"), depth=0))


def test_the_room_imports_nothing_heavy() -> None:
    root = Path(__file__).parents[2]
    folder = root / "pytest_ngraph" / "workloads"
    names = [".".join(path.relative_to(root).with_suffix("").parts) for path in sorted(folder.rglob("*.py"))]
    script = (
        f"import sys, importlib\nfor name in {names!r}: importlib.import_module(name.removesuffix('.__init__'))\n"
        "heavy = {'torch', 'numpy', 'scipy', 'onnx', 'onnxruntime', 'timm', 'google'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=root)
