"""The example suites run, as they are shipped on null and shortly for real; documented commands can be run."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph import cli
from pytest_ngraph.compilers.torch.inductor import find_cxx
from tests.conftest import QUICK_GATES, Suite, skip_without
from tests.support import workers
from tests.support.pages import PAGES

ROOT = Path(__file__).resolve().parents[1]
SUITES = ROOT / "example_suites"
NULL = ("--ngraph-compiler=null[sample_us=20]", "--ngraph-baseline=null[sample_us=40]", *QUICK_GATES)
# Beside another process that has a CPU for itself, two threads wait for one another most of the time.
ONE_THREAD = ("--ngraph-threads=1",)
NO_TIME = re.compile(r"(failed|mismatch|crash|timeout|oom|unsupported):")
# Plugins for suites whose times nobody looks at: workers are forked, and visits and warming up are short.
SHORTLY = ("tests.support.workers", "tests.support.brief")


def run(name: str, folder: Path, *options: str, limit: float = 300, plugins: Sequence[str] = ()) -> tuple[int, str]:
    """Copy a suite into an empty folder and run it there, as a user who cloned it would, but for ``plugins``."""
    suite = folder / name
    shutil.copytree(SUITES / name, suite, ignore=shutil.ignore_patterns(".ngraph", "__pycache__", "*.onnx"))
    environment = {**os.environ, "COLUMNS": "80"}
    environment.pop("CI", None)
    if plugins:
        environment[workers.ADDRESS] = workers.FORK_SERVER.start()
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
        options = (*(word for name in ("ngraph", *plugins) for word in ("-p", name)), *options)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(suite), *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.measures
def test_quickstart_on_null(tmp_path: Path) -> None:
    code, output = run("quickstart", tmp_path, *NULL)
    assert code == 0, output
    assert "8 passed" in output
    assert "verdicts: 15 not judged" in output
    # 1 + 20 against 1 + 40 microseconds and more: the table shows the true speed-up.
    assert re.search(r"^ +8 .*\n +null\[sample_us=20\] +\d+ +1\.7\dx", output, re.MULTILINE)
    table = output[output.index("device local\n") :].splitlines()
    assert max(len(line) for line in table[: table.index("")]) <= 80
    assert "results: quickstart/.ngraph/results.sqlite\n" in output


@pytest.mark.real
def test_bring_your_own_on_null(tmp_path: Path) -> None:
    code, output = run("bring_your_own", tmp_path, *NULL, "-rs", plugins=SHORTLY)
    assert code == 0, output
    # The ONNX file is for two named compilers only, which null is not; null has no outputs to match.
    assert "1 passed, 2 skipped, 1 deselected" in output
    assert "no outputs to compare" in output


@pytest.mark.real
def test_paper_on_null(tmp_path: Path) -> None:
    """One network, batch and width of every question, but those of Tables IV and V, which measure nothing."""
    less = ("--ngraph-model=timm:resnet101,block:conv,block:mha", "--ngraph-batch=8,32", "--ngraph-width=64,128")
    others = f"--ignore={tmp_path / 'paper' / 'test_specifications.py'}"
    code, output = run("paper", tmp_path, *NULL, *less, "--ngraph-depth=1,6", others, plugins=SHORTLY)
    assert code == 0, output
    assert "verdicts: 1 not judged" in output  # of Table III; the other claims are of compilers that null is not
    assert "block:conv width64" in output
    assert "block:mha width128" in output


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one run of the quickstart says: each of its tests, and each compiler.

    All batches of one network, one of the other, and stacks of blocks; with inductor, which takes half a minute of CPU
    for a network, the stacks. ``make demo`` has everything.
    """
    skip_without("torch", "timm", "onnxruntime", "openvino")
    names, chosen = "torchscript,onnxruntime,openvino", "resnet18 or depth or (no_slower and vit and batch1)"
    if find_cxx() is not None:
        names, chosen = f"{names},inductor", f"({chosen}) and (depth or not inductor)"
    options = (*ONE_THREAD, "--ngraph-protocol=quick", f"--ngraph-compiler={names}", "-k", chosen)
    code, output = run("quickstart", tmp_path_factory.mktemp("quickstart"), *options, limit=900, plugins=SHORTLY)
    assert code in (0, 1), output
    # Nothing is judged; a cell without a time is a defect.
    assert not NO_TIME.search(output), output
    return output


@pytest.mark.real
def test_quickstart_for_real(quickstart: str) -> None:
    ended = re.search(r"(\d+) passed, (\d+) deselected", quickstart)
    assert ended is not None, quickstart
    # Of 32 items, or 24: without inductor on networks and without three of four items of one of these.
    assert int(ended[1]) == 18 + (find_cxx() is not None), quickstart
    assert "identity" in quickstart
    assert "ran onnxruntime: CPUExecutionProvider, f32" in quickstart
    assert "ran openvino: CPU, f32" in quickstart


@pytest.mark.real
def test_quickstart_with_inductor_for_real(quickstart: str) -> None:
    if find_cxx() is None:
        pytest.skip("no C++ compiler")
    assert quickstart.count("ran inductor: ") == 1, quickstart
    # Its retention and its slope.
    assert len(re.findall(r"test_depth_is_not_wasted\[local-inductor-", quickstart)) == 2, quickstart


@pytest.mark.real
def test_bring_your_own_for_real(tmp_path: Path) -> None:
    skip_without("torch", "onnxruntime", "openvino", "onnx")
    code, output = run("bring_your_own", tmp_path, *ONE_THREAD, "--ngraph-protocol=quick", limit=900, plugins=SHORTLY)
    assert code in (0, 1), output
    assert "ran onnxreference: onnx.reference, f32" in output
    assert "onnx:models/squeezenet.onnx" in output
    assert "onnxruntime[graph=disabled]" in output
    assert not NO_TIME.search(output), output


@pytest.mark.real
def test_smoke_of_paper_for_real(tmp_path: Path) -> None:
    """Every question once, on small models; the only claim is Table III's, which has minutes to spare."""
    skip_without("torch", "timm", "onnxruntime")
    options = (*ONE_THREAD, "-m", "smoke", "--ngraph-protocol=quick", "--ngraph-compiler=onnxruntime")
    code, output = run("paper", tmp_path, *options, limit=900, plugins=SHORTLY)
    assert code == 0, output
    assert "ran onnxruntime: CPUExecutionProvider, f32" in output
    # What was rebuilt has a time of compiling, and its verdict.
    assert re.search(r"size64 rebuilt\n.*identity .*\n +onnxruntime .*\d m?s +not judged$", output, re.MULTILINE), (
        output
    )


@pytest.mark.real
def test_specifications_of_paper_for_real(tmp_path: Path) -> None:
    """Tables IV and V: fifteen networks and eight blocks, to the unit."""
    skip_without("torch", "timm")
    code, output = run("paper", tmp_path, "-k", "test_specifications", limit=600, plugins=SHORTLY)
    assert code == 0, output
    assert "23 passed" in output


@pytest.mark.real
def test_models_of_dlas_for_real(tmp_path: Path) -> None:
    """The second paper's Tables 2 and 5: eight networks, one of whose parameters the paper misprints."""
    skip_without("torch", "torchvision")
    code, output = run("dlas", tmp_path, "-k", "test_counts", limit=600, plugins=SHORTLY)
    assert code == 0, output
    assert "8 passed" in output


@pytest.mark.real
def test_smoke_of_the_third_paper_for_real(tmp_path: Path) -> None:
    """Both configurations on small models, and what is made of them."""
    skip_without("torch", "torchvision", "transformers", "onnxruntime", "openvino")
    options = (*ONE_THREAD, "-m", "smoke", "--ngraph-protocol=quick")
    code, output = run("latency_vs_throughput", tmp_path, *options, limit=600, plugins=SHORTLY)
    assert code == 0, output
    assert "8 passed" in output
    assert not NO_TIME.search(output), output
    store = tmp_path / "latency_vs_throughput" / ".ngraph" / "results.sqlite"
    table = tmp_path / "table.md"
    assert cli.main(["export", str(table), "--table", "lvt-1", "--store", str(store)]) == 0
    rows = [line for line in table.read_text(encoding="utf-8").splitlines() if "-focused |" in line]
    assert {line.split(" | ")[0].strip("| ") for line in rows} == {"latency-focused", "throughput-focused"}
    # Of six metrics one cannot be read on a CPU. Nobody asked for the memory of the baseline.
    rows = [line for line in rows if "| identity" not in line]
    assert len(rows) == 8
    assert all(line.count("null: no GPU") == line.count("null") == 1 for line in rows), rows


# Documented commands

_KINDS = "pytest|ngraph|make|python -m"
_SPAN = re.compile(rf"`((?:{_KINDS}) [^`\n]+)`")
_FENCE = re.compile(r"^```(?:(?!text)\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(r"^```text\n.*?^```", re.MULTILINE | re.DOTALL)
# Two spaces end a command: what follows says what it is for.
_LINE = re.compile(rf"^ *(?:\$ |- run: )?((?:{_KINDS})(?: \S+)+)", re.MULTILINE)
_INDENTED = re.compile(rf"^    ((?:{_KINDS})(?: \S+)+)", re.MULTILINE)
# What stands behind the command: where its output goes, and what reads it.
_BEHIND = re.compile(r" +[>|] .*$")
# The docs' adapter of a user's own, in a plugin of its own.
_PLUGIN = "def pytest_ngraph_compilers(catalogue):\n    catalogue.add('onnxreference', 'my_compiler:COMPILER')\n"
# What stands for something of the reader's.
_READERS = {
    "NAME": "orin",
    "COMMAND": "doctor",
    "N": "3",
    "S": "3",
    "DIR": "figures",
    "gates": "suite",
    "tests/test_x.py": "test_doubt.py",
}
# What argparse says of a command that is only spoken of, without what it takes.
_MENTIONED = re.compile(r"error: (the following arguments are required|argument \S+: expected one argument)")


def documented() -> list[Any]:
    """Return the commands of READMEs and docs, and of the docstrings that suites begin with, each once."""
    found: dict[str, Path] = {}
    for path in PAGES:
        text = _OUTPUT.sub("", path.read_text())
        fenced = [command for block in _FENCE.findall(text) for command in _LINE.findall(block)]
        for command in (*_SPAN.findall(_FENCE.sub("", text)), *fenced):
            found.setdefault(_BEHIND.sub("", command), path)
    for path in sorted(SUITES.rglob("test_*.py")):
        for command in _INDENTED.findall(path.read_text().split('"""')[1]):
            found.setdefault(command, path)
    return [pytest.param(command, id=f"{path.parent.name}/{path.name}: {command}") for command, path in found.items()]


def test_no_two_test_files_share_a_name() -> None:
    """Under pytest's default import mode, files of one name in two folders cannot be collected by one run."""
    names = Counter(path.name for folder in (SUITES, ROOT / "tests") for path in folder.rglob("test_*.py"))
    names["test_speed.py"] += 1  # what the suites that tests write are called, and collected as beside them
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("command", documented())
def test_documented_command(
    command: str, suite: Suite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As far as can be told without running it: its options are known, and pytest finds tests that it selects."""
    first, *words = [_READERS.get(word, word.replace("=NAME", "=identity")) for word in shlex.split(command)]
    if first == "pytest" and words and all(word.startswith("tests/") for word in words):
        # Our own tests, which are found without collecting them beside those that run.
        assert all(list((ROOT / word).rglob("test_*.py")) for word in words)
    elif first == "pytest":
        collect(words, suite)
    elif words[:2] == ["-m", "pytest"]:
        # Which finds a plugin in the folder that it is run in; the script does not look there.
        suite.pytester.syspathinsert()
        collect(words[2:], suite)
    elif first == "ngraph":
        assert parsed(words, monkeypatch) == 0 or _MENTIONED.search(capsys.readouterr().err)
    elif first == "make":
        target = next(word for word in words if "=" not in word)
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    else:
        assert find_spec(words[1]) is not None


def collect(words: list[str], suite: Suite) -> None:
    """Collect in a copy of the suites, beside a project with the README's first example and a plugin."""
    if "example_suites" in " ".join(words):
        shutil.copytree(SUITES, suite.path / "example_suites", ignore=shutil.ignore_patterns(".ngraph", "__pycache__"))
    readme = (ROOT / "README.md").read_text()
    suite.pytester.makepyprojecttoml(
        '[tool.pytest.ini_options]\ntestpaths = ["mine"]\nmarkers = ["real: one of our own"]'
    )
    suite.write(next(code for code in _FENCE.findall(readme) if "import pytest" in code), "mine/test_speed.py")
    # Names that the docs give to the reader's own.
    shutil.copytree(suite.path / "mine", suite.path / "suite")
    for name in ("test_doubt.py", "test_reduced.py"):
        shutil.copy(suite.path / "mine" / "test_speed.py", suite.path / name)
    adapter = (SUITES / "bring_your_own" / "my_compiler.py").read_text()
    suite.pytester.makepyfile(my_plugin=_PLUGIN, my_compiler=adapter)
    # Of a suite its conftest offers the adapter, as the docs say.
    if "-p" not in words:
        suite.pytester.makeconftest(_PLUGIN)
    # Nor has anybody saved a baseline here.
    if any(word.startswith("--ngraph-compare") for word in words):
        words = [*words, "--ngraph-missing-baseline=record"]
    # No GPU and no device of a lab is here, which the run would end with saying.
    result = suite.collect(*(word for word in words if not word.startswith("--ngraph-device=")))
    assert result.ret == pytest.ExitCode.OK, "\n".join([*result.outlines[-20:], *result.errlines])


def parsed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """Return how the command ``ngraph`` ends where it stops once its arguments are understood."""
    parse = argparse.ArgumentParser.parse_args

    def only_parse(self: argparse.ArgumentParser, arguments: Any = None, namespace: Any = None) -> Any:
        parse(self, arguments, namespace)
        raise SystemExit(0)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only_parse)
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    return ended.value.code
