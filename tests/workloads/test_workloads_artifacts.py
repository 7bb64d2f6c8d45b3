"""The cache of artifacts: found where nothing changed, built anew where anything did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.errors import CompileFailed, SpecError
from pytest_ngraph.machine import imports
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts, keys, references
from pytest_ngraph.workloads.artifacts import Artifact
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.loaded import LoadedWorkload
from tests.support.references import must_give
from tests.support.workers import FORK_SERVER, run_code

pytestmark = pytest.mark.real

MODEL = """
import torch
from torch import nn
from part_of_{name} import WIDTH

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2)

    def forward(self, values):
        return self.layer(values)

    def example_inputs(self, batch):
        return torch.randn(batch, WIDTH)
"""
BUILD = """
import sys
from pathlib import Path
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads import artifacts
workload = Workload(parse_model(sys.argv[1]), 2)
print(artifacts.build(workload, 0, Path(sys.argv[2]), True).key)
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")


def user_model(folder: Path, name: str) -> Workload:
    folder.mkdir(exist_ok=True)
    (folder / f"part_of_{name}.py").write_text("WIDTH = 3\n")
    (folder / f"{name}.py").write_text(MODEL.format(name=name))
    return Workload(parse_model(f"{name}.py:Net", (folder,)), 2)


def build_elsewhere(root: Path, *texts: str) -> list[str]:
    """Build models in a process each, at once; return what they printed."""
    FORK_SERVER.start()
    with ThreadPoolExecutor(len(texts)) as each:
        done = list(each.map(lambda text: run_code("builder", BUILD, text, str(root), folder=ROOT), texts))
    assert [process.returncode for process in done] == [0] * len(texts), done
    return [process.stdout for process in done]


def test_an_artifact_is_found_without_building_again(tmp_path: Path) -> None:
    workload = Workload(parse_model("block:mha"), 2)
    assert artifacts.find(workload, 0, tmp_path, False) is None
    built = artifacts.build(workload, 0, tmp_path, False)
    assert artifacts.find(workload, 0, tmp_path, False) == built
    assert built.onnx is None
    assert built.meta["parameters"] == 66_048
    assert built.meta["model_bytes"] == 4 * 66_048
    assert built.meta["inputs"] == [{"name": "input", "dtype": "float32", "shape": [2, 10, 128]}]
    assert built.meta["outputs"] == [{"name": "output", "dtype": "float32", "shape": [2, 10, 128]}]


def test_a_look_learns_the_files_of_all_batches_and_makes_nothing(tmp_path: Path) -> None:
    workload = user_model(tmp_path / "suite", "looked")
    root, other = tmp_path / "artifacts", replace(workload, batch=7)
    artifacts.look(workload, 0, root)
    assert [file.name.partition(".")[2] for file in root.iterdir()] == ["deps.json"]
    files = keys.known_files(workload, 0, root)
    assert files is not None
    assert {Path(path).name for path in files} == {"looked.py", "part_of_looked.py"}
    assert keys.known_files(other, 0, root) == files
    assert artifacts.find(workload, 0, root, False) is None
    # Another seed, and what a model is built with, have a list of their own.
    assert keys.known_files(workload, 1, root) is None
    (tmp_path / "suite" / "part_of_looked.py").write_text("WIDTH = 4\n")
    assert keys.known_files(other, 0, root) is None


def test_the_list_that_a_batch_had_in_an_older_cache_is_still_read(tmp_path: Path) -> None:
    workload = user_model(tmp_path / "suite", "older")
    root = tmp_path / "artifacts"
    artifacts.look(workload, 0, root)
    (now,) = root.iterdir()
    now.rename(keys._dependency_file(workload, 0, root, None, of_batch=True))
    assert keys.known_files(workload, 0, root) is not None
    assert keys.known_files(replace(workload, batch=7), 0, root) is None


def test_the_onnx_file_is_added_beside_a_sample_that_stays(tmp_path: Path) -> None:
    workload = Workload(parse_model("block:mha"), 2)
    sample = artifacts.build(workload, 0, tmp_path, False)
    before = (sample.directory / "inputs.npz").stat()
    assert artifacts.find(workload, 0, tmp_path, True) is None
    both = artifacts.build(workload, 0, tmp_path, True)
    assert both.onnx is not None
    assert both.onnx.is_file()
    assert both.directory == sample.directory
    assert both.meta["export_seconds"] > 0
    assert (sample.directory / "inputs.npz").stat() == before


@pytest.mark.parametrize("change", [{"batch": 3}, {"depth": 2}, {"width": 64}])
def test_each_axis_has_a_key_of_its_own_and_defaults_have_none(change: dict[str, int]) -> None:
    model = parse_model("block:mha")
    plain = keys.sample_key(Workload(model), 0, {})
    assert keys.sample_key(Workload(model, depth=1, width=128), 0, {}) == plain
    assert keys.sample_key(Workload(model, **change), 0, {}) != plain  # type: ignore[arg-type]
    assert keys.sample_key(Workload(model), 1, {}) != plain


def test_a_changed_file_of_the_model_or_of_what_it_imports_is_a_miss(tmp_path: Path) -> None:
    workload = user_model(tmp_path / "suite", "watched")
    root = tmp_path / "artifacts"
    built = artifacts.build(workload, 0, root, False)
    assert {Path(path).name for path in built.meta["project_files"]} == {"watched.py", "part_of_watched.py"}
    for name in ("watched.py", "part_of_watched.py"):
        file = tmp_path / "suite" / name
        source = file.read_text()
        assert artifacts.find(workload, 0, root, False) == built
        file.write_text(source + "# changed\n")
        assert artifacts.find(workload, 0, root, False) is None
        file.write_text(source)
    (tmp_path / "suite" / "part_of_watched.py").unlink()
    assert artifacts.find(workload, 0, root, False) is None


def test_the_same_content_elsewhere_has_the_same_key(tmp_path: Path) -> None:
    one = user_model(tmp_path / "one", "moved")
    two = user_model(tmp_path / "two", "moved")
    root = tmp_path / "artifacts"
    first, second = build_elsewhere(root, one.model.locator, two.model.locator)
    assert first == second


def test_a_dependency_shared_with_an_earlier_model_counts_for_the_later_one_too(tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    first = user_model(folder, "shared")
    (folder / "second.py").write_text((folder / "shared.py").read_text())
    (folder / "third.py").write_text("import importlib\nNet = importlib.import_module('second').Net\n")
    files = []
    for name in ("shared", "second", "third"):
        workload = Workload(parse_model(f"{name}.py:Net", (folder,)), first.batch)
        artifact = artifacts.build(workload, 0, tmp_path / "artifacts", False)
        files.append({Path(path).name for path in artifact.meta["project_files"]})
    assert files[0] == {"shared.py", "part_of_shared.py"}
    assert files[1] == {"second.py", "part_of_shared.py"}
    assert files[2] == {"third.py", "second.py", "part_of_shared.py"}


# A model whose files come in by every way that there is, and what may have been imported before it is built.
SPREAD = {
    "spread": """
import importlib

import lent
import stated
from chosen import choose

named = importlib.import_module("named")


def train():
    import training


def make(kind="small"):
    return choose(kind)
""",
    "stated": "WIDTH = 3",
    "training": "import training_data",
    "training_data": "",
    "named": "",
    "unrelated": "import named, training",
    "chosen/__init__": """
import importlib


def choose(kind):
    return importlib.import_module(f"chosen.sizes.{kind}").Net()
""",
    "chosen/sizes/__init__": "",
    "chosen/sizes/small": MODEL.replace("from part_of_{name} import WIDTH", "WIDTH = 3"),
    "chosen/sizes/large": "",
    "chosen/unused": "",
    "site-packages/lent": "import lent_more",
    "site-packages/lent_more": "",
}
KEY_OF = """
import importlib, json, sys
from pathlib import Path
model, root, before = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
for name in before:
    importlib.import_module(name)
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
built = artifacts.build(Workload(parse_model(model), 2), 0, root, False)
print(json.dumps([built.key, sorted(Path(name).name for name in built.meta["project_files"] if "/" in name)]))
"""


@pytest.mark.parametrize("as_file", [True, False])
def test_the_key_is_the_same_whatever_was_imported_before(tmp_path: Path, as_file: bool) -> None:
    folder = tmp_path / "suite"
    for name, source in SPREAD.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(source)
    model = f"{folder / 'spread.py'}:make" if as_file else "spread:make"
    paths = os.pathsep.join(map(str, (ROOT, folder, folder / "site-packages")))
    found = []
    for number, before in enumerate([(), ("unrelated",), ("spread",), ("lent_more", "chosen.unused", "training")]):
        words = (model, str(tmp_path / f"artifacts{number}"), *before)
        if before:
            done = run_code("builder", KEY_OF, *words, folder=tmp_path, variables={"PYTHONPATH": paths})
        else:
            # With nothing of PyTorch, either.
            command = [sys.executable, "-c", KEY_OF, *words]
            environ = {**os.environ, "PYTHONPATH": paths}
            done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found == found[:1] * 4
    files = set(found[0][1])
    # What an installed package consists of is no file of the project's, wherever it is installed.
    assert {"lent.py", "lent_more.py", "unused.py", "unrelated.py"}.isdisjoint(files)
    assert {"spread.py", "stated.py", "named.py", "training.py", "training_data.py", "small.py", "large.py"} <= files


def test_the_classes_that_a_model_is_made_of_count_however_they_came_in(tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    user_model(folder, "plain")
    (folder / "found").mkdir()
    (folder / "found" / "hidden_layer.py").write_text((folder / "plain.py").read_text())
    (folder / "outer.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "def make():\n"
        "    sys.path.append(str(Path(__file__).parent / 'found'))\n"
        "    space = {}\n"
        "    exec('import hidden_layer', space)\n"
        "    return space['hidden_layer'].Net()\n"
    )
    workload = Workload(parse_model("outer.py:make", (folder,)), 2)
    built = artifacts.build(workload, 0, tmp_path / "artifacts", False)
    files = {Path(path).name for path in built.meta["project_files"]}
    assert files == {"outer.py", "hidden_layer.py", "part_of_plain.py"}


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("import_module('a.b')", {"a", "a.b"}),
        ("importlib.import_module(name='a.b')", {"a", "a.b"}),
        ("__import__('a')", {"a"}),
        ("import_module('.near', __package__)", {"own.near"}),
        ("import_module('..up', __package__)", {"up"}),
        ("import_module('a.' + name)", {"a", "a.*"}),
        ("import_module('a.%s' % name)", {"a", "a.*"}),
        ("import_module(f'a.b.{name}')", {"a", "a.b", "a.b.*"}),
        ("import_module(f'.{name}', __package__)", {"own.*"}),
        ("import_module('.b', 'a')", {"a", "a.b"}),
        ("import_module('..b', 'a.c')", {"a", "a.b"}),
        ("import_module(f'.{name}', package='a.b')", {"a", "a.b", "a.b.*"}),
        ("import_module('a.{}'.format(name))", {"a", "a.*"}),
        (
            "from importlib import import_module as load\nload('a.b')",
            {"a", "a.b", "importlib", "importlib.import_module"},
        ),
        ("import_module(name)", {"own.near", "own.other"}),
        ("import_module('a' + name)", {"own.near", "own.other"}),
        ("spec_from_file_location('a.b', place)", {"own.near", "own.other"}),
        ("SourceFileLoader('a.b', place).load_module()", {"own.near", "own.other"}),
        ("import_module()", {"own.near", "own.other"}),
        ("print('a.b')", set()),
    ],
)
def test_imports_that_are_calls_are_followed_as_far_as_they_can_be_read(
    tmp_path: Path, source: str, named: set[str]
) -> None:
    for name in ("near", "other", "not-one", "__init__"):
        (tmp_path / f"{name}.py").write_text(source)
    found = set(imports.imported_names("own.near", tmp_path / "near.py")) | {"own.near"}
    assert found - {"own"} == named | {"own.near"}


def test_two_processes_build_the_same_artifact_at_once(tmp_path: Path) -> None:
    outputs = build_elsewhere(tmp_path, "block:mha", "block:mha")
    artifact = artifacts.find(Workload(parse_model("block:mha"), 2), 0, tmp_path, True)
    assert artifact is not None
    assert outputs == [f"{artifact.key}\n"] * 2
    check(artifact, Workload(parse_model("block:mha"), 2))


@pytest.mark.parametrize("name", ["inputs.npz", "timed.npz", "set.npz", "meta.json", ".onnx", ".bin"])
def test_a_damaged_artifact_is_built_again(tmp_path: Path, name: str) -> None:
    workload = Workload(parse_model("block:mha"), 2)
    built = artifacts.build(workload, 0, tmp_path, True)
    assert built.onnx is not None
    folder = references.folder_of(tmp_path, built.key) if name in ("timed.npz", "set.npz") else built.directory
    file = next(built.onnx.parent.glob(f"*{name}")) if name in (".onnx", ".bin") else folder / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    assert artifacts.find(workload, 0, tmp_path, True) is None
    check(artifacts.build(workload, 0, tmp_path, True), workload)


def test_a_damaged_list_of_files_is_no_list(tmp_path: Path) -> None:
    workload = user_model(tmp_path / "suite", "listed")
    root = tmp_path / "artifacts"
    built = artifacts.build(workload, 0, root, False)
    [listing] = root.glob("*.deps.json")
    listing.write_text(listing.read_text()[:30])
    assert artifacts.find(workload, 0, root, False) is None
    assert artifacts.build(workload, 0, root, False) == built


def test_a_model_that_cannot_be_exported_says_why_and_is_not_tried_again(tmp_path: Path) -> None:
    workload = Workload(parse_model("workload_models/shapes.py:BranchesOnData", (ROOT / "tests" / "support",)), 2)
    artifact = artifacts.build(workload, 0, tmp_path, True)
    assert artifact.onnx is None
    assert artifacts.find(workload, 0, tmp_path, True) == artifact
    loaded = LoadedWorkload(workload, 0, artifact)
    with pytest.raises(CompileFailed, match=r"BranchesOnData batch2: it cannot be exported to ONNX: .*data"):
        _ = loaded.onnx_path
    assert loaded.module() is loaded.module()


def test_other_weights_than_those_of_the_reference_are_refused(tmp_path: Path) -> None:
    workload = Workload(parse_model("workload_models/shapes.py:unseeded", (ROOT / "tests" / "support",)), 2)
    artifact = artifacts.build(workload, 0, tmp_path, False)
    with pytest.raises(SpecError, match="its weights are not those that the reference outputs were made with"):
        LoadedWorkload(workload, 0, artifact).module()


def check(artifact: Artifact, workload: Workload) -> None:
    """Check that an artifact can be read whole."""
    import onnx

    assert artifact.onnx is not None
    onnx.checker.check_model(str(artifact.onnx))
    loaded = LoadedWorkload(workload, 0, artifact)
    assert list(loaded.inputs) == ["input"]
    assert must_give(loaded)[0].shape == (2, 10, 128)
