"""Kinds of models from elsewhere: read, built, kept and refused as those of this package; and torchvision's."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.errors import DeviceUnusable, SpecError
from pytest_ngraph.plan.items import baseline_for
from pytest_ngraph.report.paper.against import why_apart
from pytest_ngraph.spec.cells import Cell, CompilerSpec, ModelRef, Workload
from pytest_ngraph.workloads import artifacts, keys
from pytest_ngraph.workloads.kinds import Models, kind_of
from pytest_ngraph.workloads.kinds.axes import axes_taken, axis_values
from tests.conftest import Suite, skip_without
from tests.support import workers
from tests.support.lab import Lab
from tests.support.pages import ROOT, blocks, prose

# One that is honest, and one for each way not to be.
KINDS = '''
import os
import time
from pathlib import Path

from pytest_ngraph import Built, Kind
from pytest_ngraph.workloads.kinds import AS_FILES, find_file


def stack(layers, width):
    from torch import nn

    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))


def vectors(width):
    import torch

    return lambda batch: torch.randn(batch, width)


class Zoo(Kind):
    """Stacks of linear layers by the names of animals."""

    def names(self):
        return ("ape", "bear", "bee")

    def axes(self, model):
        return {"width": 16, "depth": None}

    def build(self, model, axes, seed):
        return Built(stack(axes.get("depth", 2), axes["width"]), vectors(axes["width"]))


class Deaf(Zoo):
    """Takes a width, and builds what it always builds."""

    def build(self, model, axes, seed):
        return Built(stack(2, 16), vectors(16))


class Lying(Zoo):
    """Says that it takes what there is not."""

    def axes(self, model):
        return {"height": 3}


class Small(Zoo):
    def axes(self, model):
        return {"width": 0}


class Lame(Zoo):
    def axes(self, model):
        raise RuntimeError("no axes today")


class Strict(Zoo):
    """Says that it takes an axis, and chokes on it."""

    def build(self, model, axes, seed):
        return self.made(**axes)

    def made(self, depth=2):
        return Built(stack(depth, 16), vectors(16))


class Bare(Zoo):
    """Gives a module, and does not say what it is fed."""

    def build(self, model, axes, seed):
        return stack(2, 16)


class Mute(Zoo):
    def build(self, model, axes, seed):
        return Built(stack(2, 16), None)


class Empty(Zoo):
    def build(self, model, axes, seed):
        return Built(stack(2, 16), lambda batch: None)


class Other(Zoo):
    """Gives something else than a module."""

    def build(self, model, axes, seed):
        return Built("a module", vectors(16))


class Random(Zoo):
    """Has other weights in each process."""

    def build(self, model, axes, seed):
        import torch

        torch.manual_seed(int.from_bytes(os.urandom(4), "big"))
        return super().build(model, axes, seed)


class Odd(Zoo):
    def parse(self, text, name, search):
        return 7


class Raising(Zoo):
    def parse(self, text, name, search):
        return {}["no such key"]


class OnDisk(Kind):
    """The width of a model stands in a file of its own."""

    travels = AS_FILES
    default_baseline = "onnxruntime[graph=basic]"

    def parse(self, text, name, search):
        return str(find_file(text, name, search))

    def files(self, model):
        return [Path(model.locator)]

    def build(self, model, axes, seed):
        width = int(Path(model.locator).read_text())
        return Built(stack(1, width), vectors(width))


class Absent(Zoo):
    requires = ("torch", "surely_not_installed")
    install = "surely-not"


zoo, deaf, lying, small, lame, strict, bare, mute = Zoo(), Deaf(), Lying(), Small(), Lame(), Strict(), Bare(), Mute()
empty, other, random, odd, raising, ondisk, absent = (
    Empty(), Other(), Random(), Odd(), Raising(), OnDisk(), Absent()
)
not_a_kind = "not a kind"
'''
NAMES = (
    *("zoo", "deaf", "lying", "small", "lame", "strict", "bare", "mute", "empty", "other", "random", "odd", "raising"),
    *("ondisk", "absent", "not_a_kind", "missing"),
)
HOOK = """
def pytest_ngraph_models(catalogue):
    catalogue.add("zoo", "my_kinds:zoo")
    catalogue.add("random", "my_kinds:random")
    catalogue.add("absent", "my_kinds:absent")
"""
TEST = """
@pytest.mark.ngraph(model="zoo:ape", width=[16, 32], batch=2)
def test_close(ngraph_cell):
    from pytest_ngraph import assert_outputs_match
    assert_outputs_match(ngraph_cell, at_most=1e-4)
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Models]:
    """The kinds above, in a module of their own."""
    (tmp_path / "my_kinds.py").write_text(KINDS)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = Models()
    for name in NAMES:
        found.add(name, f"my_kinds:{name}")
    yield found
    sys.modules.pop("my_kinds", None)


def build(models: Models, text: str, root: Path, **axes: int) -> artifacts.Artifact:
    pytest.importorskip("torch")
    return artifacts.build(Workload(models.parse(text, (root,)), 2, **axes), 0, root / "artifacts", False)  # type: ignore[arg-type]


# Reading references


def test_a_reference_says_where_its_kind_stands_and_crosses_as_text(models: Models) -> None:
    model = models.parse("zoo:ape")

    assert model == ModelRef("zoo:ape", "zoo", "ape", "my_kinds:zoo")
    assert Workload.from_json(json.loads(json.dumps(Workload(model).to_json()))) == Workload(model)
    assert "kind" not in models.parse("block:conv").to_json()
    assert axes_taken(model) == {"width", "depth"}
    assert axis_values(Workload(model, depth=3)) == {"width": 16, "depth": 3}
    assert kind_of(model).missing() is None
    assert "surely-not" in str(kind_of(models.parse("absent:ape")).missing())


def test_importing_a_kind_and_reading_a_reference_imports_nothing_heavy(models: Models, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pytest_ngraph.workloads.kinds import Models\n"
        "from pytest_ngraph.workloads.kinds.axes import axes_taken\n"
        "models = Models()\nmodels.add('zoo', 'my_kinds:zoo')\n"
        "for text in ('zoo:ape', 'timm:x', 'torchvision:x', 'block:mha'): axes_taken(models.parse(text))\n"
        "heavy = {'torch', 'torchvision', 'timm', 'numpy', 'onnx'} & set(sys.modules)\nassert not heavy, heavy"
    )
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": path})


@pytest.mark.parametrize("name", ["timm", "torchvision", "block", "onnx", "file", "import"])
def test_a_name_of_this_package_is_taken(name: str) -> None:
    with pytest.raises(SpecError, match=rf"kind of model '{name}': already taken by pytest_ngraph\.workloads\.kinds"):
        Models().add(name, "my_kinds:zoo")


def test_two_kinds_do_not_share_a_name_and_one_may_come_twice(models: Models) -> None:
    models.add("zoo", "my_kinds:zoo")
    with pytest.raises(SpecError, match="already taken by my_kinds:zoo"):
        models.add("zoo", "my_kinds:deaf")


@pytest.mark.parametrize(
    ("name", "place", "said"),
    [
        ("my kind", "a:b", "expected a name of letters, digits"),
        ("pkg.kind", "a:b", "expected a name of letters, digits"),
        ("a.py", "a:b", "expected a name of letters, digits"),
        (3, "a:b", "expected a name of letters, digits"),
        ("mine", "my_kinds", "class 'my_kinds' is not of the form 'package.module:ATTRIBUTE'"),
        ("mine", "my_kinds:zoo; import os", "is not of the form"),
        ("mine", None, "class None is not of the form"),
    ],
)
def test_what_cannot_be_a_name_or_a_place_is_refused(name: str, place: str, said: str) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        Models().add(name, place)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("odd:ape", "model 'odd:ape': parse() of its kind 'odd' gave 7 (expected a text)"),
        ("raising:ape", "model 'raising:ape': parse() of its kind 'raising' raised KeyError: 'no such key'"),
        ("not_a_kind:ape", "'my_kinds:not_a_kind' is not a pytest_ngraph.workloads.kinds.contract.Kind"),
        ("missing:ape", "its class 'my_kinds:missing' cannot be imported"),
        ("ondisk:none.txt", "model 'ondisk:none.txt': no file 'none.txt' in"),
        ("zoo:", "expected a reference such as timm:NAME, torchvision:NAME, block:conv"),
    ],
)
def test_a_kind_that_cannot_read_a_reference_is_told_by_name(models: Models, text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        models.parse(text)
    assert said in str(caught.value)


def test_a_kind_that_nobody_added_is_named_with_those_that_are_there() -> None:
    with pytest.raises(
        SpecError, match=r"nor is it a kind of model \(built in: timm, torchvision, block, onnx, transformers;"
    ):
        axes_taken(Models().parse("zoo:ape"))
    with pytest.raises(SpecError, match=r"did you mean timm:NAME\?"):
        axes_taken(Models().parse("tim:resnet18"))


def test_a_stored_cell_of_a_kind_that_is_gone_is_shown_and_not_measured() -> None:
    model = ModelRef("gone:x", "gone", "x", "no_such_module:KIND")
    cell = Cell("local", CompilerSpec("identity"), Workload(model, 4, width=8))

    assert Cell.from_json(cell.to_json()) == cell
    assert cell.label == "local:identity gone:x batch4 width8"
    assert why_apart(cell, None) == "models that are not among its fifteen"
    with pytest.raises(SpecError, match="kind of model 'gone': its class 'no_such_module:KIND' cannot be imported"):
        kind_of(model)
    with pytest.raises(SpecError, match="no kind of model is called 'gone'"):
        kind_of(replace(model, kind=""))


# Axes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lying:ape", "axes() of its kind 'lying' gave {'height': 3} (expected a mapping of depth, width, image_size"),
        ("small:ape", "axes() of its kind 'small' gave {'width': 0}"),
        ("lame:ape", "axes() of its kind 'lame' raised RuntimeError: no axes today"),
    ],
)
def test_axes_that_cannot_be_are_told(models: Models, text: str, said: str) -> None:
    model = models.parse(text)
    for ask in (lambda: axes_taken(model), lambda: axis_values(Workload(model))):
        with pytest.raises(SpecError) as caught:
            ask()
        assert said in str(caught.value)


def test_an_axis_that_the_kind_does_not_take_is_refused_before_anything_is_built(models: Models) -> None:
    with pytest.raises(SpecError, match=r"does not take image_size \(it takes: depth, width\)"):
        axis_values(Workload(models.parse("zoo:ape"), image_size=64))


# Building


@pytest.mark.real
def test_a_model_is_built_and_kept_by_the_files_of_its_kind(models: Models, tmp_path: Path) -> None:
    model = models.parse("zoo:ape")
    plain, wide = build(models, "zoo:ape", tmp_path), build(models, "zoo:ape", tmp_path, width=32)
    assert plain.meta["parameters"] == 2 * (16 * 16 + 16)
    assert wide.meta["parameters"] == 2 * (32 * 32 + 32)
    assert len({plain.key, wide.key, build(models, "zoo:bear", tmp_path).key}) == 3
    assert [Path(name).name for name in plain.meta["project_files"] if os.sep in name] == ["my_kinds.py"]
    workload = Workload(model, 2)
    assert artifacts.find(workload, 0, tmp_path / "artifacts", False) is not None
    # Another line in its module: what was measured before was another model.
    (tmp_path / "my_kinds.py").write_text(KINDS + "\n# changed\n")
    assert keys.known_files(workload, 0, tmp_path / "artifacts") is None


@pytest.mark.real
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("zoo:beer", "model 'zoo:beer': zoo has no model 'beer' (close: bee, bear)"),
        ("zoo:whale", "model 'zoo:whale': zoo has no model 'whale'"),
        ("strict:ape", "build() of its kind 'strict' raised TypeError: "),
        ("bare:ape", "build() of its kind 'bare' gave Sequential (expected Built(module, example_inputs))"),
        ("mute:ape", "build() of its kind 'mute' gave no inputs: example_inputs is NoneType"),
        ("empty:ape", "example_inputs(2) gave NoneType (allowed: a tensor, a tuple of tensors, a dict of tensors)"),
        ("other:ape", "build() of its kind 'other' gave a module that is str (expected a torch.nn.Module)"),
    ],
)
def test_what_a_kind_does_wrong_is_told_with_its_name(models: Models, tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        build(models, text, tmp_path)
    assert said in str(caught.value)


@pytest.mark.real
def test_a_file_of_a_model_counts_by_its_content_and_goes_along(models: Models, tmp_path: Path) -> None:
    from pytest_ngraph.devices.wire import shipping

    (tmp_path / "net.txt").write_text("4")
    model = models.parse("ondisk:net.txt", (tmp_path,))
    assert str(baseline_for(model)) == "onnxruntime[graph=basic]"
    first = build(models, "ondisk:net.txt", tmp_path)
    assert first.meta["parameters"] == 20
    bundle = shipping.bundle(model)
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for path, content in bundle.files:
        (blobs / content).write_bytes(path.read_bytes())
    there = shipping.lay_out(blobs, bundle.name, bundle.contents, tmp_path / "there")
    placed = shipping.located(bundle.reference, None, {bundle.name: there})
    assert placed == replace(model, locator=f"{there}/net.txt")
    assert artifacts.build(Workload(placed, 2), 0, tmp_path / "artifacts-there", False).key == first.key
    with pytest.raises(DeviceUnusable, match="nothing that was shipped"):
        shipping.located(bundle.reference, None, {})
    (tmp_path / "net.txt").write_text("5")
    assert keys.known_files(Workload(model, 2), 0, tmp_path / "artifacts") is None
    assert build(models, "ondisk:net.txt", tmp_path).key != first.key


@pytest.mark.real
def test_the_kind_of_the_documentation_is_built_and_its_suite_runs(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    module, hook, test = (block.code for block in blocks(ROOT / "docs" / "kinds.md") if block.info == "python")
    suite.pytester.makepyfile(my_zoo=module, conftest=hook, test_zoo=test)
    null = ("--ngraph-compiler=null[fixed_us=1000]", "--ngraph-baseline=null[fixed_us=2000]")
    suite.bare(*null, "--ngraph-protocol=quick").assert_outcomes(passed=4)
    monkeypatch.syspath_prepend(str(suite.path))
    found = Models()
    found.add("zoo", "my_zoo:KIND")

    workload = Workload(found.parse("zoo:bee"), 8, width=16)
    built = artifacts.build(workload, 0, suite.path / "artifacts", False)
    sys.modules.pop("my_zoo")

    assert built.meta["parameters"] == 12 * (16 * 16 + 16)


# In a suite


def test_a_kind_that_takes_a_name_of_this_package_is_a_usage_error(suite: Suite) -> None:
    suite.write(TEST)
    (suite.path / "conftest.py").write_text(
        "def pytest_ngraph_models(catalogue):\n    catalogue.add('timm', 'mine:KIND')\n"
    )
    result = suite.collect()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*pytest_ngraph_models: kind of model 'timm': already taken by *"])


def test_models_of_a_kind_are_items_with_its_axes(suite: Suite) -> None:
    suite.write(TEST)
    (suite.path / "conftest.py").write_text(HOOK)
    (suite.path / "my_kinds.py").write_text(KINDS)
    null = ("--ngraph-compiler=null", "--ngraph-baseline=null[sample_us=200]")
    assert suite.ids(*null) == [
        "test_close[local-null-zoo:ape-width16-batch2]",
        "test_close[local-null-zoo:ape-width32-batch2]",
    ]
    assert suite.ids(*null, "--ngraph-model=zoo:bear") == []
    suite.write(TEST.replace("width=", "image_size="))
    suite.collect(*null).stdout.fnmatch_lines(["*model 'zoo:ape': it does not take image_size*"])


@pytest.mark.real
def test_a_suite_with_a_kind_of_its_own_is_measured_here(suite: Suite) -> None:
    skip_without("torch")
    suite.write(
        TEST
        + """
@pytest.mark.ngraph(model=["random:ape", "zoo:whale", "absent:ape"])
def test_faulty(ngraph_cell):
    ngraph_cell.latency.value
"""
    )
    (suite.path / "conftest.py").write_text(HOOK)
    (suite.path / "my_kinds.py").write_text(KINDS)
    result = suite.bare("--ngraph-compiler=torchscript", "--ngraph-protocol=quick")
    result.assert_outcomes(passed=2, failed=2, skipped=1)
    result.stdout.fnmatch_lines_random(
        [
            "*random:ape*weights are not those that the reference outputs were made with*",
            "*zoo has no model 'whale'*",
            "*surely-not*",
        ]
    )
    # What is in the store is known without building anything again.
    again = suite.bare("--ngraph-compiler=torchscript", "--ngraph-protocol=quick", "-k", "close")
    again.assert_outcomes(passed=2)
    again.stdout.fnmatch_lines(["measured 0 launches*"])


@pytest.mark.real
def test_a_suite_with_a_kind_of_its_own_is_measured_on_a_device_elsewhere(forking_lab: Lab, suite: Suite) -> None:
    skip_without("torch")
    suite.write(TEST + TEST.replace("zoo:ape", "absent:ape").replace("test_close", "test_absent"))
    (suite.path / "conftest.py").write_text(HOOK)
    (suite.path / "my_kinds.py").write_text(KINDS)
    elsewhere = (f"--ngraph-config={forking_lab.registry('one')}", "--ngraph-device=one")
    result = suite.bare("--ngraph-compiler=torchscript", "--ngraph-protocol=quick", *elsewhere)
    result.assert_outcomes(passed=2, skipped=2)
    result.stdout.fnmatch_lines_random(["*device one*", "*surely-not*"])


CONFORMS = """
from tests.support import workers

def pytest_collection_modifyitems():
    workers.fork_kinds()

def pytest_ngraph_models(catalogue):
    for name in ("zoo", "deaf", "random", "mute"):
        catalogue.add(name, f"my_kinds:{name}")
"""


@pytest.mark.real
def test_the_conformance_suite_tells_an_honest_kind_from_those_that_lie(tmp_path: Path) -> None:
    skip_without("torch")
    (tmp_path / "my_kinds.py").write_text(KINDS)
    (tmp_path / "my_plugin.py").write_text(CONFORMS)
    # The command of the page, in a folder that nothing else puts on the path.
    (written,) = re.findall(r"`python (-m pytest --pyargs [^`]+)`", prose(ROOT / "docs" / "kinds.md"))
    models = "--ngraph-model=zoo:ape,deaf:ape,random:ape,mute:ape"
    command = [models if word.startswith("--ngraph-model=") else word for word in shlex.split(written)]
    assert models in command
    # Each of them starts a process or two that build; these are enough to see every kind of lie.
    select = "zoo or (deaf and width) or (random and processes) or (mute and batch) or cheap"
    done = subprocess.run(
        [sys.executable, *command, "-q", "-p", "no:cacheprovider", "-k", select],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            workers.ADDRESS: workers.FORK_SERVER.start(),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(re.findall(r"^FAILED \S*::(\w+\[\S+\])", done.stdout, re.MULTILINE)) == {
        "test_each_axis_makes_another_model[deaf:ape-width]",
        "test_two_processes_build_the_same[random:ape]",
        "test_inputs_follow_the_batch[mute:ape]",
    }, done.stdout


# torchvision


def torchvision(name: str) -> ModelRef:
    return Models().parse(f"torchvision:{name}")


@pytest.fixture
def _torchvision() -> None:
    pytest.importorskip("torch")
    skip_without("torchvision")


@pytest.mark.real
@pytest.mark.usefixtures("_torchvision")
def test_a_network_of_torchvision_is_fed_images_of_the_size_that_is_asked_for(tmp_path: Path) -> None:
    from pytest_ngraph.workloads import facts

    model = torchvision("resnet18")
    built = artifacts.build(Workload(model, 2, image_size=64), 0, tmp_path / "artifacts", False)
    assert [each["shape"] for each in built.meta["inputs"]] == [[2, 3, 64, 64]]
    assert [each["shape"] for each in built.meta["outputs"]] == [[2, 1000]]
    # The numbers of torchvision's own documentation.
    assert built.meta["parameters"] == 11_689_512
    assert axis_values(Workload(model)) == {"image_size": 224}
    assert round(facts(model).macs / 1e9, 2) == 1.81


@pytest.mark.real
@pytest.mark.usefixtures("_torchvision")
def test_the_same_weights_come_from_the_seed_and_none_are_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from pytest_ngraph.workloads.building import build
    from pytest_ngraph.workloads.modules.fingerprint import fingerprint

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", refuse)
    for name, size in (("resnet18", 64), ("vit_b_32", 64), ("lraspp_mobilenet_v3_large", 64)):
        workload = Workload(torchvision(name), 1, image_size=size)
        one, other, third = (fingerprint(build(workload, seed).module) for seed in (0, 0, 1))
        assert one == other
        assert one != third


@pytest.mark.real
@pytest.mark.usefixtures("_torchvision")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("resnet19", "torchvision has no model 'resnet19' (close: "),
        ("fasterrcnn_resnet50_fpn", "it does not take a batch of images and nothing else (detection"),
    ],
)
def test_a_name_that_torchvision_lacks_or_that_takes_no_images_is_told(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        artifacts.build(Workload(torchvision(name), 1), 0, tmp_path / "artifacts", False)
    assert said in str(caught.value)


@pytest.mark.real
@pytest.mark.usefixtures("_torchvision")
def test_a_network_of_torchvision_is_measured(suite: Suite) -> None:
    skip_without("onnxruntime", "onnx", "onnxscript")
    suite.write(
        """
@pytest.mark.ngraph(model="torchvision:squeezenet1_1", image_size=64)
def test_close(ngraph_cell):
    from pytest_ngraph import assert_outputs_match
    assert_outputs_match(ngraph_cell, at_most=1e-3)
"""
    )
    suite.bare("--ngraph-compiler=onnxruntime", "--ngraph-protocol=quick").assert_outcomes(passed=1)
