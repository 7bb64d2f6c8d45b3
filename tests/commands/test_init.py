"""``ngraph init``: what it finds without importing anything, what it writes, and that what it wrote runs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from pytest_ngraph.cli import main
from pytest_ngraph.commands.first_suite.ini import ini_file, with_entries, with_ignored
from pytest_ngraph.commands.first_suite.modules import found_modules
from pytest_ngraph.commands.first_suite.onnx_files import found_onnx_files
from pytest_ngraph.commands.first_suite.suite import MODELS, SUITE, models, suite
from pytest_ngraph.commands.first_suite.workflow import SUMMARY, WORKFLOW
from pytest_ngraph.options.table import ROWS
from tests.conftest import QUICK_GATES, Suite, skip_without

HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import Module as M\n"
# It would be seen if it were imported.
BOMB = "raise SystemExit('imported')\n"
INIT = "    def __init__(self{arguments}):\n        super().__init__()\n        self.a = {layer}\n"
FORWARD = "    def forward(self, x): return self.a(x)\n"
ENTRIES = {"ngraph_compiler": "openvino", "ngraph_summary": SUMMARY}


def net(layer: str = "nn.Linear(10, 2)", base: str = "nn.Module", name: str = "Net", arguments: str = "") -> str:
    return f"class {name}({base}):\n{INIT.format(layer=layer, arguments=arguments)}{FORWARD}"


def project(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        (net(), "torch.randn(batch, 10)"),
        (net(base="torch.nn.Module"), "torch.randn(batch, 10)"),
        (net(base="M"), "torch.randn(batch, 10)"),
        (net("nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())"), "torch.randn(batch, 3, 64, 64)"),
        (net("nn.Sequential(nn.Conv2d(1, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Linear(8, 2))"),
         "torch.randn(batch, 1, 64, 64)"),
        (net("nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2))"), ""),
        (net("nn.Embedding(50, 8)"), "torch.randint(50, (batch, 16))"),
        (net("nn.Linear(width, 2)", arguments=", width=7"), "torch.randn(batch, 7)"),
        (net("nn.Linear(width, 2)", arguments=", *, width=7"), "torch.randn(batch, 7)"),
        (net("nn.Linear(width() * 2, 2)"), ""),
        (net("nn.LSTM(3, 4)"), ""),
        (net("nn.Linear(True, 2)"), ""),
        (net() .replace("self, x)", "self, x, mask)"), ""),
    ],
)  # fmt: skip
def test_what_a_module_is_fed_is_read_from_its_first_layer_or_not_said(
    tmp_path: Path, source: str, inputs: str
) -> None:
    (found,) = found_modules(project(tmp_path, net_py=HEAD + source + BOMB))

    assert (found.path, found.name, found.module, found.inputs) == ("net.py", "Net", "net", inputs)


@pytest.mark.parametrize(
    "source",
    [
        net(arguments=", width"),
        net(arguments=", *, width"),
        net(base="object"),
        net(base="nn.Linear"),
        net(base="Other"),
        net(name="_Net"),
        "class Net(nn.Module): pass\n",
        "class Net(nn.Module):\n    def forward(self, x):\n        'Do it.'\n        raise NotImplementedError\n",
        "def f():\n" + "".join(f"    {line}\n" for line in net().splitlines()),
        "class Net(Net): pass\n",
        "class A(B): pass\nclass B(A): pass\n",
        "class Net(nn.Module\n",
        "\0",
    ],
)
def test_what_cannot_be_built_or_called_without_arguments_is_not_found(tmp_path: Path, source: str) -> None:
    assert found_modules(project(tmp_path, net_py=HEAD + source)) == []


def test_heirs_are_found_and_parts_are_not_but_those_that_say_what_they_are_fed(tmp_path: Path) -> None:
    own = "    def example_inputs(self, batch): return torch.randn(batch, 1)\n"
    source = net(name="Part") + net("Part()", name="Whole") + "class Heir(Whole):\n" + own + net("Heir()", name="Last")

    found = found_modules(project(tmp_path, net_py=HEAD + source))

    assert [(each.name, each.offers_inputs) for each in found] == [("Whole", False), ("Heir", True), ("Last", False)]


def test_environments_tests_and_hidden_folders_are_left_out(tmp_path: Path) -> None:
    source = HEAD + net()
    root = project(tmp_path, tests__net_py=source, _hidden__net_py=source, env__net_py=source, src__pkg__net_py=source,
                   gates__net_py=source, test_net_py=source)  # fmt: skip
    (root / "env" / "pyvenv.cfg").touch()

    assert [(each.path, each.module) for each in found_modules(root)] == [("src/pkg/net.py", "pkg.net")]


def test_a_class_that_cannot_be_imported_by_a_name_is_noted(tmp_path: Path) -> None:
    found = found_modules(project(tmp_path, **{"class_py": HEAD + net(), "a-b_py": HEAD + net()}))

    assert [each.module for each in found] == ["", ""]
    assert models(found) == ""
    assert "block:conv" in suite(found, [])


def test_many_modules_do_not_make_a_suite_of_hours(tmp_path: Path) -> None:
    source = HEAD + "".join(net(name=f"Net{number}") for number in range(14))

    found = found_modules(project(tmp_path, net_py=source))

    assert suite(found, []).count("gate_models.py:net_Net") == models(found).count(".example_inputs =") == 10
    assert suite(found, []).count("# net.py:Net") == 4


ONNX = """
import sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

dims = [int(each) if each.isdigit() else each for each in sys.argv[2:]]
weight = numpy_helper.from_array(np.ones((10, 4), "f"), "w")
given = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [*dims[:-1], 4])
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [given], [made], [weight])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), sys.argv[1])
"""


def onnx_file(path: Path, *dims: object) -> None:
    """Write a model in a process of its own: what is loaded here, pytester would drop (see CONTRIBUTING)."""
    path.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", ONNX, str(path), *map(str, dims)], check=True)


def init(folder: Path) -> None:
    """Run the command in a folder, in a process of its own."""
    subprocess.run([sys.executable, "-m", "pytest_ngraph.cli", "init"], cwd=folder, check=True)


def test_onnx_files_are_found_with_their_batch_and_what_they_lack(tmp_path: Path) -> None:
    skip_without("onnx")
    for name, dims in (("open", ("N", 10)), ("fixed", (4, 10)), ("sequence", ("N", "S", 10))):
        onnx_file(tmp_path / "exported" / f"{name}.onnx", *dims)
    (tmp_path / "lfs.onnx").write_text("version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "a[1].onnx").touch()

    found = {each.path: each for each in found_onnx_files(tmp_path)}

    assert set(found) == {"exported/open.onnx", "exported/fixed.onnx", "exported/sequence.onnx", "lfs.onnx"}
    assert (found["exported/open.onnx"].batch, found["exported/fixed.onnx"].batch) == (0, 4)
    assert found["exported/sequence.onnx"].why_not.endswith("onnx:exported/sequence.onnx[S=128]")
    assert found["lfs.onnx"].why_not.startswith("it cannot be read: ")
    text = suite([], list(found.values()))
    assert 'model="onnx:exported/fixed.onnx", batch=[4]' in text
    assert 'model="onnx:exported/open.onnx", batch=[1, 8]' in text
    ast.parse(text)


# What is there already


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ("pytest.ini", "pytest")),
        ({"pyproject.toml": "[project]\n"}, ("pyproject.toml", "tool.pytest.ini_options")),
        ({"pyproject.toml": "[tool.pytest]\n"}, ("pyproject.toml", "tool.pytest")),
        ({"pyproject.toml": "", "tox.ini": "[pytest]\n"}, ("tox.ini", "pytest")),
        ({"pyproject.toml": "", "setup.cfg": "[metadata]\n"}, ("pyproject.toml", "tool.pytest.ini_options")),
        ({"setup.cfg": "[tool:pytest]\n"}, ("setup.cfg", "tool:pytest")),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "pytest.ini": ""}, ("pytest.ini", "pytest")),
    ],
)
def test_entries_go_where_pytest_reads_them(tmp_path: Path, files: dict[str, str], expected: tuple[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    path, section = ini_file(tmp_path)

    assert (path.name, section) == expected


@pytest.mark.parametrize(
    ("before", "section", "after"),
    [
        ("", "pytest", "[pytest]\nE"),
        ("[pytest]", "pytest", "[pytest]\nE"),
        ("[pytest]\naddopts = -q\n[other]\na = 1\n", "pytest", "[pytest]\nEaddopts = -q\n[other]\na = 1\n"),
        ("[pytest]\r\naddopts = -q\r\n", "pytest", "[pytest]\r\nEaddopts = -q\r\n"),
        ("[a]\nb = 1", "tool.pytest.ini_options", "[a]\nb = 1\n\n[tool.pytest.ini_options]\nE"),
        ("[a]\n", "tool.pytest.ini_options", "[a]\n\n[tool.pytest.ini_options]\nE"),
        (
            "[tool.pytest.ini_options] # ours\ntestpaths = [\n 'a',\n]\n",
            "tool.pytest.ini_options",
            "[tool.pytest.ini_options] # ours\nEtestpaths = [\n 'a',\n]\n",
        ),
    ],
)
def test_entries_are_added_and_nothing_else_is_changed(before: str, section: str, after: str) -> None:
    is_toml = section.startswith("tool.")
    end = "\r\n" if "\r" in before else "\n"
    quote = '"' if is_toml else ""
    lines = "".join(f"{name} = {quote}{value}{quote}{end}" for name, value in ENTRIES.items())

    text = with_entries(before, section, ENTRIES, is_toml=is_toml)

    assert text == after.replace("E", lines, 1)
    assert with_entries(text, section, ENTRIES, is_toml=is_toml) == text


@pytest.mark.parametrize(
    "text",
    [
        "tool.pytest.ini_options = {addopts = '-q'}\n",
        "[tool]\npytest.ini_options.addopts = '-q'\n",
        "a = '''\n[tool.pytest.ini_options]\n'''\n",
        "not toml",
    ],
)
def test_a_file_that_is_written_another_way_is_left_as_it_is(text: str) -> None:
    assert with_entries(text, "tool.pytest.ini_options", ENTRIES, is_toml=True) is None


def test_an_entry_that_is_there_stays_as_it_is() -> None:
    text = with_entries("[pytest]\nngraph_compiler = tvm\n", "pytest", ENTRIES, is_toml=False)

    assert text == f"[pytest]\nngraph_summary = {SUMMARY}\nngraph_compiler = tvm\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ".ngraph/\n"), ("a", "a\n.ngraph/\n"), ("a\r\n", "a\r\n.ngraph/\r\n"), ("/.ngraph\n", "/.ngraph\n"),
     ("**/.ngraph/\n", "**/.ngraph/\n"), ("#.ngraph/\n", "#.ngraph/\n.ngraph/\n")],
)  # fmt: skip
def test_git_ignores_the_folder_of_the_store(before: str, after: str) -> None:
    assert with_ignored(before) == after


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_it_overwrites_nothing_and_says_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(tmp_path, net_py=HEAD + net() + BOMB, gates__test_gates_py="mine\n")
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\nngraph_summary = 'mine.md'\n")

    assert main(["init", str(root)]) == 0

    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        "found 1 module and 0 ONNX files",
        "  net.py:Net (what it is fed is guessed by its first layer)",
    ]
    assert "there already, left as it is: gates/test_gates.py" in said
    assert f"wrote {WORKFLOW}" in said
    assert any(line.startswith("missing: wheels/pytest_ngraph-VERSION") for line in said)
    assert said[-1] == f"next: cd {root} && pytest gates"
    first = content(root)
    assert set(first) == {"net.py", "pyproject.toml", SUITE, WORKFLOW, ".gitignore"}
    assert first[SUITE] == b"mine\n"
    assert b"ngraph_summary = 'mine.md'" in first["pyproject.toml"]

    assert main(["init", str(root)]) == 0

    assert content(root) == first
    assert not any(line.startswith(("wrote", "added")) for line in capsys.readouterr().out.splitlines())


def test_what_cannot_be_added_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"\xff")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "pytest_ngraph-1-py3-none-any.whl").touch()

    assert main(["init", str(tmp_path)]) == 0

    output = capsys.readouterr().out
    assert "not changed: pyproject.toml, in which there is no plain place for lines; add them yourself:" in output
    assert f"\n  ngraph_summary = {SUMMARY}\n" in output
    assert "  nothing that can be measured as it is: the suite gates block:conv, until you name a model" in output
    assert "missing: " not in output


@pytest.mark.parametrize("kind", ["nowhere", "file"])
def test_a_folder_that_is_none_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    (tmp_path / "file").touch()

    assert main(["init", str(tmp_path / kind)]) == 2

    assert capsys.readouterr().err == f"ngraph init: {tmp_path / kind}: no such folder\n"


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gates").touch()

    assert main(["init", str(tmp_path)]) == 2

    assert "what is written already stays" in capsys.readouterr().err


# The workflow


def job(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((root / WORKFLOW).read_text())["jobs"]["gates"]
    return found


def step(root: Path, name: str) -> dict[str, Any]:
    return next(each for each in job(root)["steps"] if each.get("name") == name)


def test_the_workflow_installs_what_the_project_asks_for(tmp_path: Path) -> None:
    project(tmp_path, **{"requirements.txt": "torch\n", "pyproject.toml": "[project]\nname = 'a'\n"})

    assert main(["init", str(tmp_path)]) == 0

    assert step(tmp_path, "Install")["run"].splitlines() == [
        'pip install "$(ls wheels/pytest_ngraph-*.whl)[cpu]"', "pip install -r requirements.txt", "pip install -e .",
    ]  # fmt: skip


GH = """#!{python}
import json, os, sys
arguments = sys.argv[1:]
with open(os.environ["CALLS"], "a") as log:
    log.write(json.dumps(arguments) + "\\n")
if "--paginate" in arguments and os.environ["MARK"] in os.environ["THERE"]:
    print("17\\n18")
"""


@pytest.mark.parametrize("is_there", [True, False])
def test_the_comment_is_made_once_and_updated_in_its_place(tmp_path: Path, is_there: bool) -> None:
    assert main(["init", str(tmp_path)]) == 0
    mark = "<!-- ngraph: device=local suite=gates -->"
    (tmp_path / ".ngraph").mkdir()
    (tmp_path / SUMMARY).write_text(f"1 gate passed.\n\n{mark}\n")
    (tmp_path / "bin").mkdir()
    gh = tmp_path / "bin" / "gh"
    gh.write_text(GH.format(python=sys.executable))
    gh.chmod(0o755)
    given = {"PATH": f"{gh.parent}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls"),
             "THERE": f"text {mark}" if is_there else "other", "COMMENTS": "repos/a/b/issues/3/comments",
             "COMMENT": "repos/a/b/issues/comments"}  # fmt: skip
    run = step(tmp_path, "Comment")
    assert set(run["env"]) == {"GH_TOKEN", "COMMENTS", "COMMENT"}

    subprocess.run(["bash", "-eo", "pipefail", "-c", run["run"]], cwd=tmp_path, env=given, check=True)

    last = (tmp_path / "calls").read_text().splitlines()[-1]
    method, place = ("PATCH", "repos/a/b/issues/comments/17") if is_there else ("POST", "repos/a/b/issues/3/comments")
    assert all(f'"{word}"' in last for word in (method, place, f"body=@{SUMMARY}"))


def test_without_a_summary_nothing_is_posted(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0

    command = ["bash", "-eo", "pipefail", "-c", step(tmp_path, "Comment")["run"]]
    subprocess.run(command, cwd=tmp_path, env={"PATH": os.environ["PATH"]}, check=True)


def test_what_it_wrote_collects_and_asks_for_what_was_found(suite: Suite) -> None:
    project(suite.path, net_py=HEAD + net())
    init(suite.path)

    result = suite.bare("gates", "--collect-only", "--ngraph-compiler=onnxruntime")

    result.stdout.fnmatch_lines(["ngraph: models gates/gate_models.py:net_Net"])
    assert result.ret == 0


@pytest.mark.real
def test_what_it_wrote_is_measured_by_the_command_of_the_workflow(suite: Suite) -> None:
    skip_without("torch", "onnx", "onnxruntime")
    own = "    def example_inputs(self, batch): return torch.randn(batch, 3, 8, 8)\n"
    project(suite.path, net_py=HEAD + net(), pkg__conv_py=HEAD + net("nn.Conv2d(3, 4, 3)") + own)
    onnx_file(suite.path / "exported.onnx", 2, 10)
    (suite.path / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    init(suite.path)
    command = step(suite.path, "Measure")["run"].split()
    assert command[:3] == ["pytest", "gates", "$AGAINST"]
    # On a push to main nothing is compared.
    del command[2]

    result = suite.bare(*command[1:], "--ngraph-protocol=quick", "--ngraph-compiler=onnxruntime")

    result.assert_outcomes(passed=5)
    written = (suite.path / SUMMARY).read_text()
    # One launch of calls of microseconds may lie beyond a bound.
    first = r"ngraph: no gate was judged, (?:(\d) beyond the bound but not judged, )?(\d) shown and not judged\.\n"
    counts = re.match(first, written)
    assert counts is not None
    assert sum(int(count or 0) for count in counts.groups()) == 5
    assert written.endswith("<!-- ngraph: device=local suite=gates -->\n")
    assert (suite.path / MODELS).exists()
    assert (suite.path / ".ngraph" / "gates.xml").exists()


def test_in_a_pull_request_the_workflow_compares_with_the_merge_base_by_options_that_there_are(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0

    against = step(tmp_path, "Measure")["env"]["AGAINST"]

    options = re.findall(r"--[^ '=]+", against)
    assert options == ["--ngraph-against", "--ngraph-gate-changes"]
    assert set(options) <= {row.flag for row in ROWS}
    # GitHub sets it in the jobs of pull requests alone; on the default branch there is nothing to compare with.
    assert against.startswith("${{ github.base_ref && ")
    checkout = job(tmp_path)["steps"][0]
    assert checkout["with"]["fetch-depth"] == 0, "a shallow clone has no merge base"


@pytest.mark.real
def test_in_a_pull_request_the_workflow_finds_a_model_that_became_slower(suite: Suite) -> None:
    skip_without("torch", "onnx", "onnxruntime")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    project(suite.path, net_py=HEAD + net("nn.Linear(10, 2048)"))
    init(suite.path)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "base"), ("checkout", "-qb", "slower")):
        subprocess.run([*git, *words], cwd=suite.path, check=True)
    # The same outputs, within what floats allow, for the work of three large layers more.
    more = net("nn.Linear(10, 2048)\n        self.b = nn.Linear(2048, 2048)")
    forward = "return self.a(x) + 1e-12 * self.b(self.b(self.b(self.a(x))))"
    project(suite.path, net_py=HEAD + more.replace("return self.a(x)", forward))
    subprocess.run([*git, "commit", "-qam", "slower"], cwd=suite.path, check=True)
    options = re.findall(r"--[^ ']+", step(suite.path, "Measure")["env"]["AGAINST"])

    result = suite.bare("gates", *options, *QUICK_GATES, "--ngraph-compiler=onnxruntime", "-k", "batch1")

    assert result.ret == 1
    failed = (suite.path / SUMMARY).read_text().partition("### Failed")[2].partition("###")[0]
    assert "assert_no_slower: " in failed
