"""The untimed passes, with real workers: what is evaluated, what fails, and what is not measured twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_ngraph.spec.cells import CompileRecord, Outcome
from pytest_ngraph.spec.evaluations import EVALUATION
from pytest_ngraph.store.sqlite import Store
from tests.conftest import BRIEFLY, Suite, skip_without

pytestmark = pytest.mark.real

# A model that is right on nine samples of ten, whatever its seed. Its evaluations leave a line each time one is asked.
NET = '''
import os
from pathlib import Path
import torch
from torch import nn

X = torch.rand(70, 4, generator=torch.Generator().manual_seed(1))
LABELS = X.argmax(1)
LABELS[::10] = (LABELS[::10] + 1) % 4
HERE = Path(__file__).parent


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 4, bias=False)
        with torch.no_grad():
            self.line.weight.copy_(torch.eye(4))
        with (HERE / "built.txt").open("a") as file:
            file.write(f"{type(self).__name__}\\n")

    def forward(self, x):
        return self.line(x)

    def example_inputs(self, batch):
        return torch.rand(batch, 4)

    def evaluate(self, predict):
        with (HERE / "asked.txt").open("a") as file:
            file.write(f"{type(self).__name__}\\n")
        return self.say(predict)

    def say(self, predict):
        return {"top1": predict(X).argmax(1) == LABELS}


class Share(Net):
    def say(self, predict):
        return {"top1": float((predict(X).argmax(1) == LABELS).float().mean())}


class Raises(Net):
    def say(self, predict):
        raise RuntimeError("no digits here")


class Nan(Net):
    def say(self, predict):
        predict(X)
        return {"top1": float("nan")}


class Nothing(Net):
    def say(self, predict):
        predict(X)


class Mutates(Net):
    """Changes what it feeds in place: each process begins with what was read."""
    def say(self, predict):
        right = predict(X).argmax(1) == LABELS
        X.mul_(-1)
        return {"top1": right}


class ByProcess(Net):
    def say(self, predict):
        return {f"top{os.getpid()}": predict(X).argmax(1) == LABELS}


class OtherSamples(Net):
    def say(self, predict):
        x = torch.rand(40, 4, generator=torch.Generator().manual_seed(os.getpid()))
        return {"top1": predict(x).argmax(1) == x.argmax(1)}


class Dies(Net):
    """Ends its process the first time."""
    def say(self, predict):
        if not (HERE / "died").exists():
            (HERE / "died").touch()
            os._exit(3)
        return super().say(predict)


class Without(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

    def example_inputs(self, batch):
        return torch.rand(batch, 4)


class Faint(Net):
    """Its scores stand on a hundred: what decides is the fourth digit behind the point."""
    def forward(self, x):
        return 100 + 1e-3 * self.line(x)
'''
# Adds to the outputs of eager PyTorch what no bound of f32 minds, and what decides in ``Faint``.
NOISY = """
from pytest_ngraph import Compiler, Executable


class Run(Executable):
    placement = {"provider": "noisy", "precision": "f32", "threads": 1}

    def __init__(self, workload):
        self.workload, self.module = workload, workload.module()

    def bind(self, inputs):
        self.arguments = self.workload.arguments(inputs)

    def run(self):
        import torch
        with torch.inference_mode():
            self.given = self.module(*self.arguments[0], **self.arguments[1])

    def outputs(self):
        given = self.given.numpy().copy()
        given[:, 0] += 5e-3
        return [given]


class Noisy(Compiler):
    name, requires = "noisy", ("torch",)

    def compile(self, workload, device, options):
        return Run(workload)


COMPILER = Noisy()
"""
HOOK = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("noisy", "noisy:COMPILER")
"""
BODY = """
import pytest
from pytest_ngraph import *

@pytest.mark.ngraph(model="net.py:{model}", batch={batch})
def test_{name}(ngraph_cell):
    {claim}
"""
QUICK = ("--ngraph-protocol=quick", "--ngraph-inconclusive=fail")


@pytest.fixture
def made(suite: Suite) -> Suite:
    skip_without("torch", "onnx", "onnxscript", "onnxruntime")
    suite.pytester.makepyfile(net=NET, noisy=NOISY, conftest=HOOK)
    return suite


def write(suite: Suite, name: str, model: str, claim: str, batch: int = 16) -> None:
    path = suite.path / f"test_{name}.py"
    path.write_text(BODY.format(name=name, model=model, claim=claim, batch=batch))


def failures(suite: Suite, *arguments: str, compiler: str = "onnxruntime") -> Mapping[str, str]:
    """Run the suite, and return what failed with its message in one line, by the name of the test."""
    done = suite.bare(f"--ngraph-compiler={compiler}", *QUICK, *arguments, plugins=BRIEFLY)
    found: dict[str, str] = {}
    name = ""
    for line in done.outlines:
        if line.startswith("___"):
            name = line.strip("_ ").partition("[")[0].removeprefix("test_")
            found[name] = ""
        elif line.startswith("==="):
            name = ""
        elif name:
            found[name] += f" {line.removeprefix('E ').strip()}"
    outcomes = done.parseoutcomes()
    assert outcomes.get("failed", 0) == sum(1 for each in found if each), done.stdout.str()
    return found


def passes(suite: Suite) -> list[CompileRecord]:
    with Store.open(suite.path / ".ngraph" / "results.sqlite", read_only=True) as store:
        cells = dict(store.cells(store.runs()[-1].id))
        return [one for launch in store.launches(cells, kind=EVALUATION) for one in launch.prepared.values()]


def asked(suite: Suite) -> list[str]:
    path = suite.path / "asked.txt"
    return path.read_text().split() if path.exists() else []


def test_evaluations_that_say_nothing_fail_with_the_reason(made: Suite) -> None:
    accuracy = "assert_accuracy(ngraph_cell, at_least=0.5)"
    for model in ("Raises", "Nan", "Nothing", "Without", "ByProcess"):
        write(made, model.lower(), model, accuracy)
    write(made, "bound", "Net", "assert_accuracy(ngraph_cell, at_least=90)")
    write(made, "name", "Net", "assert_accuracy(ngraph_cell, at_least=0.5, of='top5')")
    write(made, "names", "ByProcess", "assert_accuracy_drop(ngraph_cell, at_most=0.5, of=[*ngraph_cell.accuracy][0])")
    write(made, "samples", "OtherSamples", "assert_accuracy_drop(ngraph_cell, at_most=0.5)")
    write(made, "low", "Net", "assert_accuracy(ngraph_cell, at_least=0.99)")

    found = failures(made)

    assert "evaluate(predict) raised RuntimeError: no digits here" in found["raises"]
    assert "gave 'top1' as nan (expected a share of samples from 0 to 1)" in found["nan"]
    assert "its evaluate gave None (expected a dict" in found["nothing"]
    assert "it brings no evaluate(predict), so nothing says its accuracy" in found["without"]
    assert "its evaluation gave no 'top1' (known: top" in found["byprocess"]
    assert "at_least=90 (expected a share from 0 to 1; 0.9 is meant?)" in found["bound"]
    assert "its evaluation gave no 'top5' (known: top1; did you mean 'top1'?)" in found["name"]
    assert "its evaluation gave no 'top" in found["names"]
    assert "was evaluated on other samples than local:identity" in found["samples"]
    assert "accuracy top1 0.9 < 0.99: assert_accuracy: Accuracy (top1) of local:onnxruntime" in found["low"]
    assert "63 of 70 samples" in found["low"]
    assert len(found) == 10


def test_what_is_right_is_measured_once_and_kept(made: Suite) -> None:
    """Of a batch that the samples do not fill, of two tests of a cell, and in a second run."""
    write(made, "one", "Net", "assert assert_accuracy(ngraph_cell, at_least=0.7).value == 0.9")
    write(made, "two", "Net", "assert ngraph_cell.accuracy['top1'].value == 0.9")
    write(made, "drop", "Net", "assert assert_accuracy_drop(ngraph_cell, at_most=0.2).value == 0.0")
    write(made, "share", "Share", "assert_accuracy_drop(ngraph_cell, at_most=0.5)")
    write(made, "mutates", "Mutates", "assert assert_accuracy(ngraph_cell, at_least=0.7).value == 0.9")

    assert failures(made, "-k", "not two") == {}
    # Each cell once, with its control: the second test of the same cell, and the dense one, add nothing.
    before = asked(made)
    assert before.count("Mutates") == 2
    assert (before.count("Net"), before.count("Share")) == (4, 4)
    assert [one.evaluation is not None for one in passes(made)].count(True) == 5

    assert failures(made, "-k", "not two") == {}
    assert asked(made) == before
    words = ("--ngraph-compiler=onnxruntime", *QUICK, "--ngraph-offline", "-k", "one or drop")
    done = made.bare(*words, plugins=BRIEFLY)
    assert done.parseoutcomes()["passed"] == 2, done.stdout.str()
    assert asked(made) == before

    assert failures(made, "-k", "one", "--ngraph-fresh") == {}
    assert len(asked(made)) == len(before) + 2


def test_an_evaluation_that_ends_its_process_is_asked_again_in_the_next_run(made: Suite) -> None:
    write(made, "dies", "Dies", "assert_accuracy(ngraph_cell, at_least=0.7)")

    found = failures(made)

    assert "during 'evaluate'" in found["dies"]
    assert asked(made) == ["Dies"], "once in a run"
    assert failures(made) == {}
    assert [one.outcome for one in passes(made)] == [Outcome.CRASH, Outcome.OK]


def test_a_compiler_whose_outputs_pass_and_whose_answers_are_wrong_is_caught(made: Suite) -> None:
    write(made, "outputs", "Faint", "assert_outputs_match(ngraph_cell)")
    write(made, "accuracy", "Faint", "assert_accuracy(ngraph_cell, at_least=0.7)")
    write(made, "drop", "Faint", "assert_accuracy_drop(ngraph_cell, at_most=0.1)")
    write(made, "agreement", "Faint", "assert_agreement(ngraph_cell, at_least=0.9)")
    write(made, "centred", "Faint", "assert_agreement(ngraph_cell, at_least=0.9, of='centred_cosine')")

    found = failures(made, "--ngraph-inconclusive=warn", compiler="noisy")

    # Nothing is wrong with its outputs by the bounds of f32; that others would have passed, too, is said.
    assert "max error 5e-05, inconclusive" in found["outputs"]
    assert "accuracy top1 0." in found["accuracy"]
    assert "McNemar p=" in found["drop"]
    assert "samples lost and 1 won against it" in found["drop"]
    assert "agreement top1 0." in found["agreement"]
    assert "agreement centred cosine 0." in found["centred"]


def test_agreement_is_of_the_same_inputs_for_all_batches(made: Suite) -> None:
    write(made, "small", "Net", "assert assert_agreement(ngraph_cell, at_least=0.8, samples=48).value == 1", batch=3)
    write(made, "large", "Net", "assert assert_agreement(ngraph_cell, at_least=0.8, samples=48).value == 1", batch=16)
    # Nothing that the model answers depends on chance here: outputs for other inputs would not have passed.
    write(made, "none", "Without", "assert_agreement(ngraph_cell, at_least=0.8, of='cosine')")

    found = failures(made)

    assert found.keys() == {"none"}
    assert "of='cosine' (expected 'top1' or 'centred_cosine')" in found["none"]
    with Store.open(made.path / ".ngraph" / "results.sqlite", read_only=True) as store:
        cells = dict(store.cells(store.runs()[-1].id))
        records = [one for launch in store.launches(cells, kind="agreement") for one in launch.prepared.values()]
    agreed = [one.agreed for one in records if one.agreed is not None]
    assert [(one.samples, one.scored, one.matches) for one in agreed] == [(48, 48, 48)] * 2
    assert all(one.by_chance < 36 for one in agreed)


def test_exports_have_what_was_measured(made: Suite, tmp_path: Path) -> None:
    write(made, "one", "Net", "assert_accuracy(ngraph_cell, at_least=0.7); ngraph_cell.agreement")
    assert failures(made) == {}

    from pytest_ngraph.report.results.cells import cell_reports, tidy_rows

    with Store.open(made.path / ".ngraph" / "results.sqlite", read_only=True) as store:
        reports = cell_reports(store, store.runs()[-1].id)
    rows = {(row["compiler"], row["metric"]): row for row in tidy_rows(reports)}
    row = rows["onnxruntime", "accuracy:top1"]
    assert (row["value"], row["unit"]) == (0.9, "")
    assert 0.75 < row["low"] < 0.9 < row["high"] < 0.98
    assert rows["onnxruntime", "agreement:top1"]["value"] == 1.0
    assert rows["onnxruntime", "agreement:centred_cosine"]["value"] == pytest.approx(1.0)
