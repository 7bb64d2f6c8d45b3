"""The catalogue page of the docs: it is what the adapters say, all of it, and made without any runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.commands.catalogue import catalogue_page
from pytest_ngraph.commands.compilers_page import compilers_page
from pytest_ngraph.compilers.base import Compiler, Option
from pytest_ngraph.compilers.catalogue import BUILT_IN, Catalogue
from pytest_ngraph.compilers.openvino import OpenVinoCompiler

ROOT = Path(__file__).resolve().parents[2]


class Fake(Compiler):
    name = "fake"
    requires = ("fake_runtime",)
    install = "fake-runtime"
    reads = "nothing"
    named_only = True
    accelerators = ("cpu", "npu")
    precisions = ("f32", "f16")
    scenarios = ("latency", "throughput")
    verified: Mapping[str, str] = {"cpu": "a desk", "npu": "unverified on hardware"}
    options = (
        Option("mode", "fast", "How hard it tries: a|b", choices=("fast", "slow")),
        Option("trials", "8", "Candidates", kind="int"),
        Option("tuned", "", "Search first", kind="flag"),
        Option("note", "", "Anything", kind="text"),
    )


class Plain(Compiler):
    name = "plain"


def test_the_committed_page_is_what_the_adapters_say() -> None:
    committed = (ROOT / "docs" / "compilers.md").read_text(encoding="utf-8")
    assert committed == catalogue_page(), "an adapter changed: ngraph catalogue > docs/compilers.md"


def test_a_page_has_a_table_of_all_and_a_section_for_each() -> None:
    head, fake, plain = compilers_page([Fake(), Plain()]).split("\n## ")
    assert head.splitlines()[-4:] == [
        "| compiler | devices | precisions | scenarios | shapes | reads | runs | install |",
        "|---|---|---|---|---|---|---|---|",
        "| [`fake`](#fake) | cpu, npu | f32, f16 | latency, throughput | static | nothing | when named | "
        "`fake-runtime` |",
        "| [`plain`](#plain) | cpu | f32 | latency | static | PyTorch module | by default | - |",
    ]
    what = "The catalogue page of the docs: it is what the adapters say, all of it, and made without any runtime."
    assert fake.splitlines() == [
        "fake",
        "",
        what,
        "",
        "- **cpu**: verified on a desk",
        "- **npu**: unverified on hardware",
        "",
        "| option | default | allowed | what |",
        "|---|---|---|---|",
        r"| `mode` | `fast` | `fast`, `slow` | How hard it tries: a\|b |",
        "| `trials` | `8` | a whole number >= 1 | Candidates |",
        "| `tuned` | - | a flag | Search first |",
        "| `note` | - | text | Anything |",
    ]
    assert plain.splitlines() == ["plain", "", what, "", "- **cpu**: unverified", "", "No options."]


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("accelerators", ("cpu", "npu")),
        ("precisions", ("f32", "f8")),
        ("scenarios", ("offline",)),
        ("reads", "nothing"),
        ("named_only", True),
        ("extra", "elsewhere"),
        ("verified", {"cpu": "the moon"}),
        ("options", (*OpenVinoCompiler.options, Option("more", "1", "More", kind="int"))),
    ],
)
def test_no_change_of_an_adapter_goes_unseen(attribute: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = catalogue_page()
    monkeypatch.setattr(OpenVinoCompiler, attribute, value)
    assert catalogue_page() != before


def test_every_adapter_says_where_it_was_verified_and_what_it_is() -> None:
    catalogue = Catalogue()
    for adapter in map(catalogue.get, catalogue):
        assert set(adapter.verified) == set(adapter.accelerators), adapter.name
        assert all(option.help for option in adapter.options), adapter.name
        (section,) = (part for part in catalogue_page().split("\n## ") if part.startswith(f"{adapter.name}\n"))
        what = section.splitlines()[2]
        assert what.endswith("."), f"{adapter.name}: the first line of its module is cut: {what!r}"


def test_the_readme_names_every_compiler() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in BUILT_IN if f"| `{name}` |" not in readme] == []


def test_the_command_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalogue"]) == 0
    assert capsys.readouterr().out == catalogue_page()


def test_the_page_is_made_without_any_runtime() -> None:
    heavy = ("torch", "numpy", "onnx", "onnxruntime", "openvino", "tvm", "tensorrt")
    script = "import sys; from pytest_ngraph.cli import main; main(['catalogue']); "
    script += f"sys.exit(sorted({{*{heavy}}} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
