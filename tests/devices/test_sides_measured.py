"""Cells of other sides on this machine: what their workers import, what they are known by, and what is refused."""

from __future__ import annotations

import shutil
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.compilers.catalogue import BUILT_IN, Catalogue
from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.launches.client import Job, WorkerClient
from pytest_ngraph.launches.launch import LaunchPlan, run_launch
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Device, Outcome, Workload
from pytest_ngraph.spec.sides import NOT_THERE, Side
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support import linear_net
from tests.support.measuring import SMALL, TIMED, Memory, nothing_left_behind

pytestmark = pytest.mark.real

ADAPTER = """
from pytest_ngraph.compilers.null import NullCompiler


class Mine(NullCompiler):
    name = "mine"
    requires = {requires}

    def compile(self, workload, device, options):
        made = super().compile(workload, device, options)
        made.placement = {{"provider": {provider}}}
        return made


COMPILER = Mine()
"""
NETS = linear_net.source("self.layer(x) * scale()", "from layers import scale")
LAYERS = "def scale():\n    return {scale}\n"


def nothing(doing: str, done: int, total: int) -> None: ...


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def adapter(provider: str = "'here'", requires: Sequence[str] = ()) -> str:
    return ADAPTER.format(provider=provider, requires=tuple(requires))


class Both:
    """A project here and on another side, and the bench that measures both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root, self.tree = folder / "project", folder / "kept" / "tree"
        self.sides: dict[str, Side] = {}
        self.places = dict(BUILT_IN)
        self._benches: list[LocalBench] = []

    def write(self, **files: str) -> None:
        """Write files of the project here, and the same on the side. The dots of their names are underscores."""
        for home in (self.root, self.tree):
            write(home, {name.replace("__", "/").replace("_py", ".py"): text for name, text in files.items()})

    def side(self, label: str = "main@1a2b3c4", **parts: object) -> Side:
        given = parts or {"root": str(self.root), "tree": str(self.tree)}
        side = Side(label, **given)  # type: ignore[arg-type]
        self.sides[label] = side
        return side

    @property
    def job(self) -> Job:
        path = (str(self.root), *filter(None, sys.path))
        store = self.folder / "store"
        device = Device("local", (), 1)
        return Job(path, device, 0, store / "artifacts", store / "logs", self.places, 60.0, sides=self.sides)

    def bench(self) -> LocalBench:
        catalogue = Catalogue()
        for name, place in self.places.items():
            catalogue.add(name, place)
        bench = LocalBench(self.job, catalogue, SMALL, 0)
        self._benches.append(bench)
        return bench

    def close(self) -> None:
        for bench in self._benches:
            bench.close()

    def cell(self, compiler: str = "mine", model: str = "block:conv", side: str = "", batch: int = 1) -> Cell:
        workload = Workload(parse_model(model, (self.root,)), batch)
        return Cell("local", CompilerSpec.parse(compiler), workload, side=side)


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    both = Both(tmp_path)
    both.write(mine_py=adapter())
    both.places["mine"] = "mine:COMPILER"
    monkeypatch.syspath_prepend(str(both.root))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    with nothing_left_behind():
        yield both
        both.close()
    for name in ("mine", "nets", "layers"):
        sys.modules.pop(name, None)


def pair(
    both: Both, compiler: str = "mine", model: str = "block:conv", label: str = "main@1a2b3c4"
) -> tuple[Cell, Cell]:
    return both.cell(compiler, model), both.cell(compiler, model, label)


def measured(both: Both, *cells: Cell, own_outputs: bool = False) -> Memory:
    """Build what cells read, and run one launch of them."""
    bench, sink = both.bench(), Memory()
    lacking = [cell for cell, key in bench.artifacts(cells).items() if key is None]
    for answer in bench.build(lacking, nothing) if lacking else []:
        assert answer["ok"], answer
    keys = {cell: key for cell, key in bench.artifacts(cells).items() if key}
    plan = LaunchPlan(cells, SMALL, 1, keys, own_outputs=own_outputs)
    run_launch(both.job, plan, sink, spare_memory=lambda: 1.0)
    return sink


def facts(record: CompileRecord) -> dict[str, str]:
    assert record.outcome in TIMED, record.reason
    return dict(record.placement)


# One launch


def test_both_sides_are_measured_in_one_launch_each_with_its_own_code(both: Both) -> None:
    (both.tree / "mine.py").write_text(adapter("'there'"))
    both.side()
    here, there = pair(both)
    second = both.cell(side="main@1a2b3c4", batch=2)
    sink, protocol = Memory(), replace(SMALL, blocks=4)
    spent = run_launch(both.job, LaunchPlan((here, there, second), protocol, 7), sink, spare_memory=lambda: 1.0)
    assert facts(sink.records[here])["provider"] == "here"
    assert facts(sink.records[there])["provider"] == "there"
    assert facts(sink.records[there])["side"] == "main@1a2b3c4"
    assert "side" not in facts(sink.records[here])
    assert sink.order[0] == sink.order[1][::-1]
    assert sink.order[2] == sink.order[3][::-1]
    assert {cell for order in sink.order.values() for cell in order} == {here, there, second}
    names = {name for _, name in spent.seconds}
    assert {"mine", "mine of main@1a2b3c4"} <= names


def test_a_side_that_is_not_of_the_run_is_refused_by_name(both: Both) -> None:
    both.side()
    with pytest.raises(ValueError, match=r"side 'other' is not one of this run \(known: main@1a2b3c4\)"):
        both.job.on("other")


@pytest.mark.usefixtures("forked_workers")
def test_a_model_in_a_file_is_that_of_its_side_and_keeps_its_name(both: Both) -> None:
    skip_without("torch")
    both.write(nets_py=NETS, layers_py=LAYERS.format(scale=2))
    (both.tree / "nets.py").write_text(NETS + "\n# slower\n")
    both.side()
    here, there = pair(both, "identity", "nets.py:net")
    assert there.workload == here.workload
    bench = both.bench()
    assert bench.keys([here, there]) == {here: None, there: None}
    assert bench.same_content([there]) == set()
    sink = measured(both, here, there)
    assert [sink.records[cell].outcome in TIMED for cell in (here, there)] == [True, True], sink.records
    keys = bench.keys([here, there])
    assert None not in keys.values()
    assert keys[here] != keys[there]
    assert bench.same_content([there]) == set()


# What is the same


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("model", ["nets.py:net", "nets:net"])
def test_the_same_files_are_the_same_content_under_a_key_of_its_own(both: Both, model: str) -> None:
    skip_without("torch")
    both.write(nets_py=NETS, layers_py=LAYERS.format(scale=2), other_py="X = 1\n")
    # What is touched is nothing that the model imports.
    write(both.tree, {"README.md": "before", "another.py": "Y = 2\n", "other.py": "X = 2\n"})
    write(both.root, {"README.md": "now"})
    both.side()
    here, there = pair(both, "identity", model)
    bench = both.bench()
    answers = [*bench.build([here], nothing), *bench.build([there], nothing)]
    assert [answer["ok"] for answer in answers] == [True, True], answers
    keys = bench.keys([here, there])
    assert None not in keys.values()
    assert keys[here] != keys[there]
    assert bench.same_content([there]) == {there}
    # Contents, and nothing else: what is built of the one serves the other.
    artifacts = bench.artifacts([here, there])
    assert artifacts[here] == artifacts[there]
    (both.root / "layers.py").write_text(LAYERS.format(scale=3))
    assert bench.same_content([there]) == set()


@pytest.mark.usefixtures("forked_workers")
def test_what_is_not_the_same_or_cannot_be_read_is_built_and_says_so(both: Both) -> None:
    skip_without("torch")
    both.write(nets_py=NETS, layers_py=LAYERS.format(scale=2))
    (both.tree / "layers.py").write_text(LAYERS.format(scale=3))
    both.side()
    here, there = pair(both, "identity", "nets.py:net")
    bench, doing = both.bench(), list[str]()
    answers = bench.build([here, there], lambda what, done, total: doing.append(what))
    assert [answer["ok"] for answer in answers] == [True, True]
    assert [words.split()[0] for words in doing] == ["reading", "building", "building"]
    assert bench.same_content([there]) == set()
    # A model that is broken here is no model that did not change.
    for home in (both.root, both.tree):
        (home / "nets.py").write_text("raise ValueError('broken on both sides')\n")
    answers = bench.build([here, there], nothing)
    assert [answer["ok"] for answer in answers] == [False, False]
    assert "broken on both sides" in answers[0]["reason"]


@pytest.mark.usefixtures("forked_workers")
def test_what_is_the_same_is_known_without_being_built_on_either_side(both: Both) -> None:
    skip_without("torch")
    both.write(nets_py=NETS, layers_py=LAYERS.format(scale=2), other_py="X = 1\n")
    write(both.tree, {"other.py": "X = 2\n"})
    both.side()
    here, there = pair(both, "identity", "nets.py:net")
    bench, doing = both.bench(), list[str]()
    answers = bench.build([here, there], lambda what, done, total: doing.append(what))
    assert [answer["ok"] for answer in answers] == [True, True]
    assert doing == [f"reading {here.workload.label}"]
    key = bench.keys([there])[there]
    assert key is not None
    assert bench.same_content([there]) == {there}
    assert not [*(both.folder / "store" / "artifacts").glob("sample-*")]
    # Of other batches nothing needs to be read: the model is built before it is told one.
    assert None not in bench.keys([both.cell("identity", "nets.py:net", batch=2)]).values()
    # Where this side is measured all the same, as by a test of its latency, it is built.
    assert bench.artifacts([here]) == {here: None}
    (answer,) = bench.build([here], lambda what, done, total: doing.append(what))
    assert answer["ok"], answer
    assert doing[1:] == [f"building {here.workload.label}"]
    # Where it is measured all the same it is built, under the same key.
    assert bench.artifacts([there]) == {there: None}
    (answer,) = bench.build([there], nothing)
    assert answer["ok"], answer
    assert bench.keys([there])[there] == key
    assert bench.artifacts([there])[there] == bench.artifacts([here])[here]
    assert bench.same_content([there]) == {there}


@pytest.mark.usefixtures("forked_workers")
def test_two_sides_are_the_same_as_each_other_whatever_is_here(both: Both) -> None:
    skip_without("torch")
    both.write(nets_py=NETS, layers_py=LAYERS.format(scale=2))
    (both.root / "layers.py").write_text(LAYERS.format(scale=3))
    other = both.folder / "kept" / "other"
    shutil.copytree(both.tree, other)
    write(other, {"README.md": "nothing that is measured"})
    both.side("main")
    both.side("branch", root=str(both.root), tree=str(other))
    _, there = pair(both, "identity", "nets.py:net", "branch")
    bench = both.bench()
    assert bench.same_content([there], "main") == set()
    for label in ("main", "branch"):
        (answer,) = bench.build([both.cell("identity", "nets.py:net", label)], nothing)
        assert answer["ok"], answer
    assert bench.same_content([there], "main") == {there}
    assert bench.same_content([there]) == set()
    # Data beside a source that could read it may decide.
    write(other, {"layers.json": "7"})
    assert bench.same_content([there], "main") == {there}
    write(both.tree, {"layers.py": "import json\nDATA = 'layers.json'\n" + LAYERS.format(scale=2)})
    shutil.copy(both.tree / "layers.py", other)
    assert bench.same_content([there], "main") == set()
    (other / "layers.json").unlink()
    write(other, {"layers.py": LAYERS.format(scale=5)})
    assert bench.same_content([there], "main") == set()


def test_sides_with_other_runtimes_are_never_the_same_as_each_other(runtimes: Both) -> None:
    known = ("a" * 64, "b" * 64, "a" * 64)
    for label, content in zip(("one", "other", "again"), known, strict=True):
        kept = package(runtimes.folder / label, "1.27.0")
        runtimes.side(label, packages=(str(kept),), versions=(("fake-runtime", "1.27.0"),), content=content)
    cell, bench = runtimes.cell(side="one"), runtimes.bench()
    assert bench.same_content([cell], "other") == set()
    assert bench.same_content([cell], "again") == {cell}
    assert bench.same_content([cell]) == set()


@pytest.mark.usefixtures("forked_workers")
def test_what_is_the_same_and_measured_all_the_same_is_built_beside_what_is_here(both: Both) -> None:
    skip_without("torch", "onnx", "onnxruntime")
    both.write(nets_py=NETS, layers_py=LAYERS.format(scale=2))
    both.side()
    here, there = pair(both, "identity", "nets.py:net")
    bench = both.bench()
    assert bench.build([here], nothing)[0]["ok"]
    exported = [replace(cell, compiler=CompilerSpec("onnxruntime")) for cell in (here, there)]
    # Neither is exported, and the keys of both are known.
    assert None not in bench.keys(exported).values()
    assert [answer["ok"] for answer in bench.build(exported, nothing)] == [True, True]
    assert None not in bench.artifacts(exported).values()


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(
    ("there", "source"),
    [
        ({"layers.py": LAYERS.format(scale=3)}, ""),
        ({"faster.py": "A = 1\n"}, "try:\n    import faster\nexcept ImportError:\n    pass\n"),
        ({"anything.py": "A = 1\n"}, "import importlib\n_ = importlib.import_module\n"),
        ({"layers/__init__.py": LAYERS.format(scale=2)}, ""),
        ({"sizes.txt": "7"}, "import pathlib\n_ = pathlib.Path('sizes.txt').exists()\n"),
    ],
)
def test_what_may_be_another_is_built_on_the_side_before_it_is_known(
    both: Both, there: dict[str, str], source: str
) -> None:
    skip_without("torch")
    both.write(nets_py=source + NETS, layers_py=LAYERS.format(scale=2))
    write(both.tree, there)
    both.side()
    ours, theirs = pair(both, "identity", "nets.py:net")
    bench, doing = both.bench(), list[str]()
    answers = bench.build([ours, theirs], lambda what, done, total: doing.append(what))
    assert [answer["ok"] for answer in answers] == [True, True], answers
    assert [words.split()[0] for words in doing] == ["reading", "building", "building"]
    assert bench.same_content([theirs]) == set()


def test_an_edit_in_a_session_is_seen(both: Both) -> None:
    both.write(mine_py="_ = open\nDATA = 'sizes.json'\n" + adapter())
    both.side()
    _, there = pair(both)
    bench = both.bench()
    assert bench.same_content([there]) == {there}
    write(both.root, {"sizes.json": "7"})
    assert bench.same_content([there]) == set()


def test_an_interrupted_question_about_a_side_is_asked_again(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.side()
    _, there = pair(both)
    bench = both.bench()
    keys = bench.keys([there])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(WorkerClient, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.keys([there])
    assert bench.keys([there]) == keys
    assert bench.same_content([there]) == {there}


def test_an_adapter_of_the_project_counts_by_what_it_imports_on_its_side(both: Both) -> None:
    both.write(mine_py="import tuned\n" + adapter(), tuned_py="A = 1\n")
    both.side()
    _, there = pair(both)
    bench = both.bench()
    assert bench.same_content([there]) == {there}
    (both.tree / "tuned.py").write_text("A = 2\n")
    assert both.bench().same_content([there]) == set()
    # That only one side has.
    (both.tree / "tuned.py").unlink()
    assert both.bench().same_content([there]) == set()


@pytest.mark.parametrize("where", ["tree", "root"])
@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("sizes.json", "open('sizes.json')"),
        ("conf/sizes.json", "import pathlib; list(pathlib.Path('conf').glob('*'))"),
        ("weights.safetensors", "f'{name}.safetensors'"),
        ("fast.cpython-{version}-x86_64-linux-gnu.so", "import fast"),
    ],
)
def test_data_and_compiled_modules_that_could_be_read_are_no_same_content(
    both: Both, where: str, file: str, source: str
) -> None:
    both.write(mine_py=f"def _never(name):\n    {source}\n" + adapter())
    both.side()
    _, there = pair(both)
    assert both.bench().same_content([there]) == {there}
    name = file.format(version=f"{sys.version_info[0]}{sys.version_info[1]}")
    write(both.tree if where == "tree" else both.root, {name: "other"})
    assert both.bench().same_content([there]) == set()


# What is not there


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(
    ("model", "there", "said"),
    [
        ("nets.py:net", {}, "no file 'nets.py'"),
        ("nets:net", {}, "no package or module 'nets'"),
        ("nets.py:net", {"nets.py": "old = None\n"}, "no 'net' in"),
        ("nets:net", {"nets.py": "old = None\n"}, "no 'net' in"),
    ],
)
def test_a_model_that_a_side_does_not_have_is_said_of_its_cell_alone(
    both: Both, model: str, there: dict[str, str], said: str
) -> None:
    skip_without("torch")
    write(both.root, {"nets.py": NETS, "layers.py": LAYERS.format(scale=2)})
    write(both.tree, there)
    both.side()
    cells = pair(both, "identity", model)
    refused = both.bench().refusals(cells)
    assert set(refused) == {cells[1]}
    assert refused[cells[1]].startswith(f"{NOT_THERE}: ")
    assert said in refused[cells[1]]


@pytest.mark.usefixtures("forked_workers")
def test_what_only_building_finds_missing_is_unavailable_too(both: Both) -> None:
    skip_without("torch")
    write(both.root, {"nets.py": NETS, "layers.py": LAYERS.format(scale=2)})
    write(both.tree, {"nets.py": "def __getattr__(name):\n    raise AttributeError(name)\n"})
    both.side()
    here, there = pair(both, "identity", "nets.py:net")
    bench = both.bench()
    assert bench.refusals([here, there]) == {}
    ours, theirs = bench.build([here, there], nothing)
    assert ours["ok"], ours
    assert theirs["outcome"] == Outcome.UNAVAILABLE.value
    assert theirs["reason"].startswith(f"{NOT_THERE}: ")


def test_an_adapter_that_a_side_does_not_have_is_not_there_and_a_broken_one_fails(both: Both) -> None:
    both.side()
    cells = pair(both)
    (both.tree / "mine.py").unlink()
    refused = both.bench().refusals(cells)
    assert set(refused) == {cells[1]}
    assert refused[cells[1]].startswith(f"{NOT_THERE}: compiler 'mine'")
    (both.tree / "mine.py").write_text("import surely_not_installed\n")
    bench = both.bench()
    assert bench.refusals(cells) == {}
    assert bench.keys(cells)[cells[1]] is None
    (answer,) = bench.build([cells[1]], nothing)
    assert answer["outcome"] == Outcome.FAILED.value
    assert "surely_not_installed" in answer["reason"]


# Compared with itself in silence


BY_PLACE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("tuned", {file!r})
sys.modules["tuned"] = tuned = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tuned)
"""


def test_code_that_loads_a_file_of_the_working_tree_fails_the_cell_and_names_it(both: Both) -> None:
    both.write(tuned_py="A = 1\n", mine_py=BY_PLACE.format(file=str(both.root / "tuned.py")) + adapter())
    both.side()
    here, there = pair(both)
    found = measured(both, here, there)
    assert found.records[here].outcome in TIMED
    assert found.records[there].outcome is Outcome.FAILED
    assert f"tuned of the project was loaded from {both.root / 'tuned.py'}, not from main@1a2b3c4" in (
        found.records[there].reason
    )
    assert found.blocks_of(there) == []


def test_code_that_puts_the_working_tree_on_the_path_gets_the_side(both: Both) -> None:
    source = f"import sys\nsys.path.insert(0, {str(both.root / 'code')!r})\nfrom tuned import A\n"
    both.write(mine_py=source + adapter("A"))
    write(both.root / "code", {"tuned.py": "A = 'here'\n", "new.py": ""})
    write(both.tree / "code", {"tuned.py": "A = 'there'\n"})
    both.side()
    here, there = pair(both)
    found = measured(both, here, there)
    assert [facts(found.records[cell])["provider"] for cell in (here, there)] == ["here", "there"]
    # What the tree does not have is not there, rather than that of here.
    (both.tree / "mine.py").write_text(source + "import new\n" + adapter("A"))
    (answer,) = both.bench().build([there], nothing)
    assert answer["outcome"] == Outcome.FAILED.value
    assert "No module named 'new'" in answer["reason"]


EDITABLE = """
import importlib.util, sys


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in MAPPING:
            return importlib.util.spec_from_file_location(name, MAPPING[name])


MAPPING = {mapping}
sys.meta_path.{put}
"""


def editable(python: Path, mapping: Mapping[str, Path], put: str) -> None:
    """Install modules into an environment as setuptools does it for what is not in a folder of its own."""
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    text = EDITABLE.format(mapping={name: str(file) for name, file in mapping.items()}, put=put)
    write(site, {"__editable___project_finder.py": text, "__editable__.pth": "import __editable___project_finder\n"})


def test_an_editable_install_of_the_project_is_followed_to_the_side(both: Both, python: Path) -> None:
    write(both.root / "code", {"tuned/__init__.py": "from tuned.deep import A\n", "tuned/deep.py": "A = 'here'\n"})
    write(both.tree / "code", {"tuned/__init__.py": "from tuned.deep import A\n", "tuned/deep.py": "A = 'there'\n"})
    editable(python, {"tuned": both.root / "code" / "tuned" / "__init__.py"}, "append(Finder)")
    both.write(mine_py="from tuned import A\n" + adapter("A"))
    both.side(root=str(both.root), tree=str(both.tree), python=str(python), content="a" * 64)
    found = measured(both, both.cell(side="main@1a2b3c4"))
    assert [facts(record)["provider"] for record in found.records.values()] == ["there"]


def test_an_editable_install_that_cannot_be_followed_fails(both: Both, python: Path) -> None:
    write(both.root / "code", {"tuned.py": "A = 'here'\n"})
    write(both.tree / "code", {"tuned.py": "A = 'there'\n"})
    # Before all others, so that nothing of ours is asked.
    editable(python, {"tuned": both.root / "code" / "tuned.py"}, "insert(0, Finder)")
    both.write(mine_py="from tuned import A\n" + adapter("A"))
    both.side(root=str(both.root), tree=str(both.tree), python=str(python), content="a" * 64)
    there = both.cell(side="main@1a2b3c4")
    sink = Memory()
    run_launch(both.job, LaunchPlan((there,), SMALL, 1), sink, spare_memory=lambda: 1.0)
    assert sink.records[there].outcome is Outcome.FAILED
    assert f"tuned of the project was loaded from {both.root / 'code' / 'tuned.py'}" in sink.records[there].reason
    # Nor is it known by the files of here.
    bench = both.bench()
    assert bench.same_content([there]) == set()
    assert bench.keys([there]) == {there: None}
    (answer,) = bench.build([there], nothing)
    assert answer["outcome"] == Outcome.FAILED.value
    assert "in the working tree and not in that of its side" in answer["reason"]


def test_links_to_the_working_tree_and_to_the_side_are_followed(both: Both) -> None:
    link = both.folder / "by-link"
    link.symlink_to(both.root)
    (both.tree / "mine.py").write_text(adapter("'there'"))
    both.side(root=str(link), tree=str(both.tree))
    here, there = pair(both)
    assert facts(measured(both, here, there).records[there])["provider"] == "there"


def test_what_is_installed_in_an_environment_in_the_project_stays_there(both: Both) -> None:
    # As with a .venv in the checkout: no tree has one.
    site = write(both.root / ".venv" / "lib" / "site-packages", {"lent.py": "A = 1\n"})
    both.write(mine_py="import lent\n" + adapter("lent.__file__"))
    both.side()
    here, there = pair(both)
    job = replace(both.job, sys_path=(*both.job.sys_path, str(site)))
    sink = Memory()
    run_launch(job, LaunchPlan((here, there), SMALL, 1), sink, spare_memory=lambda: 1.0)
    assert facts(sink.records[there])["provider"] == str(site / "lent.py")


def test_relative_paths_are_those_of_the_side(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.write(mine_py=adapter("open('said.txt').read()"))
    write(both.root, {"said.txt": "here"})
    write(both.tree, {"said.txt": "there"})
    monkeypatch.chdir(both.root)
    both.side()
    here, there = pair(both)
    found = measured(both, here, there)
    assert [facts(found.records[cell])["provider"] for cell in (here, there)] == ["here", "there"]


KEEPING = """
from pathlib import Path
from pytest_ngraph.compilers.null import NullCompiler


class Keeping(NullCompiler):
    name = "mine"

    def compile(self, workload, device, options):
        made = super().compile(workload, device, options)
        folder, meta, loaded = workload.kept.built("mine", {{}}, lambda folder: {{"by": "{by}"}})
        made.placement = {{"provider": meta["by"]}}
        made.loaded = loaded
        return made


COMPILER = Keeping()
"""


def test_what_an_adapter_of_the_project_built_here_is_not_loaded_on_a_side(both: Both) -> None:
    both.write(mine_py=KEEPING.format(by="here"))
    (both.tree / "mine.py").write_text(KEEPING.format(by="there"))
    both.side()
    here, there = pair(both)
    assert facts(measured(both, here).records[here])["provider"] == "here"
    for loaded in (False, True):
        found = measured(both, there).records[there]
        assert facts(found)["provider"] == "there"
        assert found.loaded is loaded


def test_what_workers_start_finds_the_side_too(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    started = "__import__('subprocess').run([__import__('sys').executable, '-c', 'import lent; print(lent.A)'], "
    started += "capture_output=True, text=True).stdout.strip()"
    both.write(mine_py=adapter(started))
    write(both.root / "src", {"lent.py": "A = 'here'\n"})
    write(both.tree / "src", {"lent.py": "A = 'there'\n"})
    monkeypatch.setenv("PYTHONPATH", str(both.root / "src"))
    both.side()
    here, there = pair(both)
    found = measured(both, here, there)
    assert [facts(found.records[cell])["provider"] for cell in (here, there)] == ["here", "there"]


# Packages


def package(folder: Path, version: str, *, module: bool = True) -> Path:
    """Write a distribution by hand, as ``pip install --target`` lays it out."""
    info = f"fake_runtime-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: Fake.Runtime\nVersion: {version}\n"
    write(folder, {f"{info}/METADATA": metadata, f"{info}/top_level.txt": "fake_runtime\n"})
    if module:
        write(folder, {"fake_runtime/__init__.py": f"__version__ = {version!r}\n"})
        write(folder, {f"{info}/RECORD": f"fake_runtime/__init__.py,sha256={version},30\n"})
    return folder


@pytest.fixture
def runtimes(both: Both, monkeypatch: pytest.MonkeyPatch) -> Both:
    """Have a runtime in one version here, which an adapter requires."""
    monkeypatch.syspath_prepend(str(package(both.folder / "site-packages", "1.31.1")))
    both.write(
        mine_py="import importlib\n" + adapter("importlib.import_module('fake_runtime').__version__", ["fake_runtime"])
    )
    return both


def test_a_side_of_a_package_runs_that_version_and_is_known_by_it(runtimes: Both) -> None:
    kept = package(runtimes.folder / "kept" / "packages", "1.27.0")
    label = "fake-runtime==1.27.0"
    runtimes.side(label, packages=(str(kept),), versions=(("fake-runtime", "1.27.0"),), content="c" * 64)
    here, there = pair(runtimes, label=label)
    found = measured(runtimes, here, there)
    assert facts(found.records[here])["provider"] == "1.31.1"
    assert facts(found.records[there])["provider"] == "1.27.0"
    loaded = facts(found.records[there])["loaded fake-runtime"]
    assert loaded == f"1.27.0 from {kept / 'fake_runtime' / '__init__.py'}"
    bench = runtimes.bench()
    keys = bench.keys([here, there])
    assert None not in keys.values()
    assert len(set(keys.values())) == 2
    assert bench.same_content([there]) == set()
    # What is built there lies apart: keys of artifacts name versions.
    assert runtimes.job.on(label).artifacts == runtimes.folder / "store" / "of-sides" / ("c" * 32) / "artifacts"


def test_a_package_in_the_version_that_is_here_is_the_same_content(runtimes: Both) -> None:
    kept, label = package(runtimes.folder / "kept" / "packages", "1.31.1"), "fake-runtime==1.31.1"
    runtimes.side(label, packages=(str(kept),), versions=(("fake-runtime", "1.31.1"),), content="d" * 64)
    _, there = pair(runtimes, label=label)
    assert runtimes.bench().same_content([there]) == {there}


def test_another_version_than_was_asked_for_is_a_failure_with_both_and_where_it_came_from(runtimes: Both) -> None:
    # The folder says that it has it and does not, so that what is installed here would be measured against itself.
    kept = package(runtimes.folder / "kept" / "packages", "1.27.0", module=False)
    label = "fake-runtime==1.27.0"
    runtimes.side(label, packages=(str(kept),), versions=(("fake-runtime", "1.27.0"),), content="e" * 64)
    here, there = pair(runtimes, label=label)
    found = measured(runtimes, here, there)
    assert found.records[here].outcome in TIMED
    wrong = found.records[there]
    assert wrong.outcome is Outcome.FAILED
    assert "fake-runtime 1.27.0 is what fake-runtime==1.27.0 names, and 1.31.1 was loaded, from" in wrong.reason
    assert str(runtimes.folder / "site-packages") in wrong.reason
    assert dict(wrong.placement)["loaded fake-runtime"].startswith("1.31.1 from ")
    assert found.blocks_of(there) == []


def test_a_package_that_is_hidden_by_another_copy_of_its_version_fails(runtimes: Both) -> None:
    kept = package(runtimes.folder / "kept" / "packages", "1.31.1")
    other = package(runtimes.folder / "other", "1.31.1")
    runtimes.write(mine_py=f"import sys\nsys.path.insert(0, {str(other)!r})\n" + adapter("1", ["fake_runtime"]))
    label = "fake-runtime==1.31.1"
    runtimes.side(label, packages=(str(kept),), versions=(("fake-runtime", "1.31.1"),), content="f" * 64)
    _, there = pair(runtimes, label=label)
    record = measured(runtimes, there).records[there]
    assert record.outcome is Outcome.FAILED
    assert f"was loaded from {other / 'fake_runtime' / '__init__.py'}, not from {kept}" in record.reason


# Interpreters


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Make an environment that has a runtime in another version, and neither this package nor anything else."""
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    package(site, "1.27.0")
    return home / "bin" / "python"


def test_another_interpreter_has_its_own_packages_and_this_package_from_here(runtimes: Both, python: Path) -> None:
    runtimes.write(
        mine_py="import importlib, sys\n"
        + adapter(
            "importlib.import_module('fake_runtime').__version__ + ' ' + sys.prefix"
            " + ' ' + str(importlib.util.find_spec('torch'))",
            ["fake_runtime"],
        )
    )
    label = "python:environment"
    runtimes.side(label, python=str(python), versions=(("fake-runtime", "1.27.0"),), content="a" * 64)
    here, there = pair(runtimes, label=label)
    found = measured(runtimes, here, there)
    assert facts(found.records[here])["provider"].startswith(f"1.31.1 {sys.prefix}")
    assert facts(found.records[there])["provider"] == f"1.27.0 {python.parents[1]} None"
    assert facts(found.records[there])["python"].endswith(str(python))
    bench = runtimes.bench()
    keys = bench.keys([here, there])
    assert None not in keys.values()
    assert len(set(keys.values())) == 2
    assert bench.same_content([there]) == set()


def test_a_runtime_that_another_interpreter_lacks_is_not_there(runtimes: Both, python: Path) -> None:
    for site in python.parents[1].glob("lib/python*/site-packages"):
        shutil.rmtree(site / "fake_runtime")
    label = "python:environment"
    runtimes.side(label, python=str(python), content="a" * 64)
    cells = pair(runtimes, label=label)
    assert set(runtimes.bench().refusals(cells)) == {cells[1]}
    assert runtimes.bench().refusals(cells)[cells[1]].startswith(f"{NOT_THERE}: mine: not installed")


def test_a_worker_of_another_protocol_is_refused(runtimes: Both, python: Path) -> None:
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    # What runs when the interpreter starts, before anything of ours.
    (site / "other.pth").write_text("import pytest_ngraph.worker.worker as w; w.PROTO = 1\n")
    label = "python:environment"
    runtimes.side(label, python=str(python), versions=(("fake-runtime", "1.27.0"),), content="a" * 64)
    _, there = pair(runtimes, label=label)
    sink = Memory()
    run_launch(runtimes.job, LaunchPlan((there,), SMALL, 1), sink, spare_memory=lambda: 1.0)
    assert sink.records[there].outcome is Outcome.CRASH
    assert "the worker speaks protocol 1, this run 2" in sink.records[there].reason


def test_an_interpreter_that_cannot_be_started_fails_its_cells_only(runtimes: Both, tmp_path: Path) -> None:
    label = "python:gone"
    runtimes.side(label, python=str(tmp_path / "gone"), content="b" * 64)
    here, there = pair(runtimes, label=label)
    bench = runtimes.bench()
    assert bench.refusals([here, there]) == {}
    keys = bench.keys([here, there])
    assert keys[here] is not None
    assert keys[there] is None
    (answer,) = bench.build([there], nothing)
    assert answer["outcome"] == Outcome.CRASH.value
    assert "no worker could be started" in answer["reason"]


def test_the_library_of_this_python_is_not_that_of_another(
    runtimes: Both, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = "python:environment"
    runtimes.side(label, python=str(python), versions=(("fake-runtime", "1.27.0"),), content="a" * 64)
    _, there = pair(runtimes, label=label)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    assert facts(measured(runtimes, there).records[there])["provider"] == "1.27.0"


# Outputs


@pytest.mark.usefixtures("forked_workers")
def test_a_changed_model_cannot_pass_as_a_faster_one(both: Both) -> None:
    skip_without("torch")
    both.write(nets_py=NETS, layers_py=LAYERS.format(scale=2))
    (both.tree / "layers.py").write_text(LAYERS.format(scale=3))
    both.side()
    here, there = pair(both, "identity", "nets.py:net")
    found = measured(both, here, there)
    assert found.records[here].outcome in TIMED
    wrong = found.records[there]
    assert wrong.outcome is Outcome.MISMATCH
    assert wrong.reason.startswith("the model gives other outputs here than on main@1a2b3c4: output 0 is off by")
    assert "--ngraph-against-outputs=own" in wrong.reason
    assert found.blocks_of(there) == []
    own = measured(both, here, there, own_outputs=True)
    assert [own.records[cell].outcome in TIMED for cell in (here, there)] == [True, True]


@pytest.mark.usefixtures("forked_workers")
def test_a_model_that_is_fed_something_else_is_no_other_side_of_it(both: Both) -> None:
    skip_without("torch")
    both.write(nets_py=NETS, layers_py=LAYERS.format(scale=2))
    (both.tree / "nets.py").write_text(NETS.replace("torch.randn(batch, 4)", "torch.rand(batch, 4)"))
    both.side()
    here, there = pair(both, "identity", "nets.py:net")
    wrong = measured(both, here, there).records[there]
    assert wrong.outcome is Outcome.MISMATCH
    assert "the model is fed other inputs here than on main@1a2b3c4: 'input' has other numbers in it" in wrong.reason


@pytest.mark.usefixtures("forked_workers")
def test_the_pass_for_memory_is_of_the_side(both: Both) -> None:
    skip_without("torch")
    both.write(nets_py=NETS, layers_py=LAYERS.format(scale=2))
    (both.tree / "layers.py").write_text(LAYERS.format(scale="(2)"))
    both.side()
    _, there = pair(both, "identity", "nets.py:net")
    bench = both.bench()
    (answer,) = bench.build([there], nothing)
    assert answer["ok"], answer
    _, record, _ = bench.memory(there, SMALL, 1)
    assert record.outcome is Outcome.OK, record.reason
    assert record.peak_memory_bytes
