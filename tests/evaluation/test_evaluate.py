"""An evaluation of a cell: what predict does, and what an evaluation may not say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.errors import SpecError
from pytest_ngraph.evaluation import evaluate as module
from pytest_ngraph.evaluation.evaluate import evaluate, scores_of
from pytest_ngraph.evaluation.predict import Input, Predict
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.spec.evaluations import Agreed, Evaluation, Score, to_json
from pytest_ngraph.workloads import keys
from pytest_ngraph.workloads.building import build
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without

np = pytest.importorskip("numpy")
MODEL = ModelRef("net.py:Net", "file", "/net.py:Net")


class Doubles(Executable):
    """Gives each sample twice itself, and writes where it reads, as some runtimes do."""

    def __init__(self, rows: int | None = None) -> None:
        self.fed: list[Any] = []
        self._rows = rows

    def bind(self, inputs: Mapping[str, Any]) -> None:
        self._x = inputs["x"]

    def run(self) -> None:
        self.fed.append(self._x.copy())
        self._y = 2 * self._x
        self._x += 1000

    def outputs(self) -> Sequence[Any]:
        return [self._y if self._rows is None else self._y[: self._rows]]


def predict_of(executable: Executable, batch: int = 4) -> Predict:
    return Predict("net.py:Net", executable, [Input("x", "float32", (batch, 3))], batch)


def samples(count: int) -> Any:
    return np.arange(3 * count, dtype=np.float32).reshape(count, 3)


@pytest.mark.parametrize("count", [1, 4, 6, 8])
def test_a_partial_batch_is_filled_up_and_cut(count: int) -> None:
    cell, x = Doubles(), samples(count)
    predict = predict_of(cell)

    y = predict(x)

    assert np.array_equal(y, 2 * samples(count))
    assert np.array_equal(x, samples(count)), "what is given stays as it is"
    assert all(len(fed) == 4 for fed in cell.fed)
    assert (predict.samples, predict.calls) == (count, -(-count // 4))
    y += 1  # the caller's own
    assert np.array_equal(predict(x), 2 * samples(count))


def test_the_digest_is_of_the_samples_and_not_of_the_calls() -> None:
    whole, parts, other = (predict_of(Doubles(), batch) for batch in (4, 2, 4))
    whole(samples(6))
    for part in (samples(6)[:1], samples(6)[1:6]):
        parts(part)
    other(samples(6)[::-1].copy())
    assert whole.digest == parts.digest != other.digest


def test_tensors_come_back_as_tensors_of_any_form_of_call() -> None:
    skip_without("torch")
    import torch

    x = torch.from_numpy(samples(3))
    predict = predict_of(Doubles())
    for given in (predict(x), predict((x,)), predict({"x": x}), predict(x=x)):
        assert isinstance(given, torch.Tensor)
        assert torch.equal(given, 2 * x)
    assert isinstance(predict(samples(3)), np.ndarray)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda predict: predict(samples(3).astype(np.float64)), "'x' of float64 (expected float32, as example_inputs"),
        (lambda predict: predict(samples(3)[:, :2]), r"'x' of shape (3, 2) (expected shape (samples, 3))"),
        (lambda predict: predict(samples(0)), "samples: 0 of x (expected as many of each, one at least)"),
        (lambda predict: predict([[1.0, 2.0, 3.0]]), "'x' as list (expected a tensor or a NumPy array)"),
        (lambda predict: predict(samples(3), samples(3)), "2 inputs (expected the 1 that the model takes: x)"),
        (lambda predict: predict(y=samples(3)), "inputs y (expected x)"),
        (lambda predict: predict(samples(3), y=samples(3)), "some inputs by position and some by name"),
        (lambda predict: predict(np.float32(1)), "'x' as float32"),
    ],
)
def test_what_predict_does_not_take_is_an_error(given: Callable[[Predict], Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        given(predict_of(Doubles()))
    assert said in str(caught.value)
    assert "net.py:Net" in str(caught.value)


def test_outputs_without_a_row_for_each_sample_are_an_error() -> None:
    with pytest.raises(SpecError, match=r"output 0 has shape \(3, 3\) at batch 4: it has no row for each sample"):
        predict_of(Doubles(rows=3))(samples(4))


# What an evaluation gives


def flags(text: str) -> list[bool]:
    return [each == "1" for each in text]


@pytest.mark.parametrize(
    ("given", "seen", "expected"),
    [
        ({"top1": flags("110")}, 3, [Score("top1", 2, 3, "c0")]),
        ({"top1": tuple(flags("110"))}, 6, [Score("top1", 2, 3, "c0")]),
        ({"top1": np.array([True, False])}, 2, [Score("top1", 1, 2, "80")]),
        ({"top1": 0.75}, 8, [Score("top1", 6, 8)]),
        ({"top1": np.float64(0.75), "top5": 1}, 8, [Score("top1", 6, 8), Score("top5", 8, 8)]),
        ({"iou": 0.123}, 8, [Score("iou", 0.984, 8)]),
        ({"top1": 0.5, "samples": 4}, 8, [Score("top1", 2, 4)]),
        ({"top1": flags("11111111" + "00000001" + "1")}, 17, [Score("top1", 10, 17, "ff0180")]),
    ],
)
def test_what_is_right_is_counted(given: Any, seen: int, expected: list[Score]) -> None:
    assert list(scores_of("net.py:Net", given, seen)) == expected
    assert all(Score.from_json(to_json(Evaluation(seen, 1, "0", (one,)))["scores"][0]) == one for one in expected)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "gave None (expected a dict"),
        (0.9, "gave 0.9 (expected a dict"),
        ({}, "gave {} (expected a dict"),
        ({"samples": 3}, "gave 0 scores"),
        ({f"top{n}": 0.5 for n in range(17)}, "gave 17 scores (expected 1 to 16"),
        ({"top1": math.nan}, "gave 'top1' as nan (expected a share of samples from 0 to 1)"),
        ({"top1": math.inf}, "gave 'top1' as inf (expected a share"),
        ({"top1": -0.1}, "gave 'top1' as -0.1 (expected a share"),
        ({"top1": 7}, "gave 'top1' as 7 (expected a share of samples from 0 to 1; 0.07 is meant?)"),
        ({"top1": 97.2}, "0.972 is meant?"),
        ({"top1": True}, "gave 'top1' as True (expected a dict"),
        ({"top1": "0.9"}, "gave 'top1' as '0.9' (expected a dict"),
        ({"top1": [1, 0, 1]}, "as 1 dimensions of int64 (expected a bool for each sample"),
        ({"top1": [[True], [False, True]]}, "(expected a bool for each sample"),
        ({"top1": np.ones((3, 1), bool)}, "as 2 dimensions of bool"),
        ({"top1": flags("10")}, "gave 'top1' of 2 samples, and predict was given 3"),
        ({"top1": flags("1011")}, "gave 'top1' of 4 samples, and predict was given 3"),
        ({"top1": []}, "gave 'top1' of 0 samples"),
        ({"top1": 0.5, "samples": 2}, "gave 'samples' of 2 samples, and predict was given 3"),
        ({"top1": flags("101"), "samples": 1}, "gave 3 bools of 'top1' and 'samples' of 1"),
        ({"top1": 0.5, "samples": 2.5}, "gave 'samples' as 2.5 (expected a whole number"),
        ({"top 1": 0.5}, "named a score 'top 1'"),
        ({1: 0.5}, "named a score 1"),
        ({"a:b": 0.5}, "named a score 'a:b'"),
    ],
)
def test_what_says_nothing_is_an_error(given: Any, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        scores_of("net.py:Net", given, 3)
    assert said in str(caught.value)


# A whole evaluation


def asked(monkeypatch: pytest.MonkeyPatch, offered: Callable[[Any], Any]) -> Evaluation:
    skip_without("torch")
    monkeypatch.setattr(module, "_offered", lambda workload, text: offered)
    meta = {"inputs": [{"name": "x", "dtype": "float32", "shape": [4, 3]}]}
    workload: Any = SimpleNamespace(spec=Workload(MODEL, batch=4), artifact=SimpleNamespace(meta=meta), seed=3)
    return evaluate(Doubles(), workload, lambda samples: None)


def test_calls_that_generate_tokens_are_not_said_to_lack_an_evaluation() -> None:
    meta = {"inputs": [{"name": "x", "dtype": "int64", "shape": [4, 3]}]}
    workload: Any = SimpleNamespace(spec=Workload(MODEL, 4, decode=2), artifact=SimpleNamespace(meta=meta), seed=3)
    with pytest.raises(SpecError, match=r"calls that generate tokens, decode=2; claim the accuracy of a cell without"):
        evaluate(Doubles(), workload, lambda samples: None)


def by_largest(x: Any) -> Callable[[Any], Any]:
    return lambda predict: {"top1": predict(x).argmax(1) == x.argmax(1)}


def test_an_evaluation_says_which_samples_were_right(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
    found = asked(monkeypatch, by_largest(x))
    assert (found.samples, found.calls, found.names) == (11, 3, ["top1"])
    score = found.score("top1")
    assert score is not None
    assert (score.hits, score.share, score.flags()) == (11, 1.0, [True] * 11)
    assert Evaluation.from_json(to_json(found)) == found


def test_an_evaluation_that_never_calls_predict_is_no_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match=r"never called predict, so what it gave \({'top1': 0.99}\) is no accuracy"):
        asked(monkeypatch, lambda predict: {"top1": 0.99})


@pytest.mark.parametrize("given", [{"top1": 0.75}, {"top1": [True] * 4}, {"top1": [True, False, True, True], "b": 0}])
def test_an_evaluation_that_does_not_look_at_outputs_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: Mapping[str, Any]
) -> None:
    def offered(predict: Any) -> Any:
        predict(samples(4))
        return given

    with pytest.raises(SpecError, match="says the same of every sample when predict gives random numbers"):
        asked(monkeypatch, offered)


def test_a_score_that_does_not_look_is_not_hidden_behind_one_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several scores it was enough that one changed: a claim of the other passed on whatever the cell gave."""
    x = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)

    def offered(predict: Any) -> Any:
        return {"top1": predict(x).argmax(1) == x.argmax(1), "top5": [True] * 16}

    with pytest.raises(SpecError, match="when predict gives random numbers, in 'top5', so it does not look"):
        asked(monkeypatch, offered)


def test_a_cell_that_is_never_right_is_no_evaluation_that_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(predict: Any) -> Any:
        return {"top1": predict(samples(4)).argmax(1) == 7}

    (score,) = asked(monkeypatch, offered).scores
    assert score.hits == 0


def test_a_cell_of_one_class_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(predict: Any) -> Any:
        return {"top1": predict(samples(8)).argmax(1) == np.array([2, 0] * 4)}

    (score,) = asked(monkeypatch, offered).scores
    assert score.share == 0.5


def test_an_evaluation_that_only_minds_numbers_it_may_get_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers in place of outputs lie where these did."""
    x = np.random.default_rng(0).uniform(size=(8, 3)).astype(np.float32)

    def offered(predict: Any) -> Any:
        given = predict(x)
        assert given.min() >= 0
        assert given.max() <= 2
        return {"top1": given.argmax(1) == x.argmax(1)}

    assert asked(monkeypatch, offered).score("top1") is not None


def test_what_an_evaluation_raises_names_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(predict: Any) -> Any:
        raise FileNotFoundError("no digits")

    with pytest.raises(SpecError, match=r"net.py:Net': evaluate\(predict\) raised FileNotFoundError: no digits"):
        asked(monkeypatch, offered)


def test_its_random_numbers_are_those_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(predict: Any) -> Any:
        x = np.random.normal(size=(8, 3)).astype(np.float32)
        return by_largest(x)(predict)

    assert asked(monkeypatch, offered).inputs == asked(monkeypatch, offered).inputs


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 0},
        {"inputs": "no digest"},
        {"scores": []},
        {"scores": [{"name": "top1", "hits": 9, "samples": 4, "right": ""}]},
        {"scores": [{"name": "top1", "hits": math.nan, "samples": 4, "right": ""}]},
        {"scores": [{"name": "top1", "hits": 1, "samples": 4, "right": "c0"}]},
        {"scores": [{"name": "top1", "hits": 2, "samples": 4, "right": "c0c0"}]},
        {"scores": [{"name": "a b", "hits": 2, "samples": 4, "right": "c0"}]},
        {"scores": 2 * [{"name": "top1", "hits": 2, "samples": 4, "right": "c0"}]},
    ],
)
def test_what_a_stranger_says_of_an_evaluation_is_checked(change: Mapping[str, Any]) -> None:
    right = to_json(Evaluation(4, 1, "ab", (Score("top1", 2, 4, "c0"),)))
    assert Evaluation.from_json(right).names == ["top1"]
    with pytest.raises(ValueError, match=r"is no|contradicts|are no"):
        Evaluation.from_json({**right, **change})


@pytest.mark.parametrize("change", [{"matches": 9}, {"cosine": 2.0}, {"samples": -1}, {"inputs": ""}, {"centred": "x"}])
def test_what_a_stranger_says_of_an_agreement_is_checked(change: Mapping[str, Any]) -> None:
    right = to_json(Agreed("local:identity net", 4, 4, "ab", 1.0, 0.9, 0.1, 3, 4, 1))
    assert Agreed.from_json(right).matches == 3
    with pytest.raises(ValueError, match=r"is no|are no"):
        Agreed.from_json({**right, **change})


def test_an_evaluation_that_is_changed_changes_the_key_that_its_accuracy_is_kept_by(tmp_path: Path) -> None:
    """Its code, and what it imports while it is asked: an accuracy of before must not go by the new one's name."""
    skip_without("torch")
    (tmp_path / "asked_later.py").write_text("LABEL = 0\n")
    (tmp_path / "asked_net.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(4, 2)\n\n"
        "    def example_inputs(self, batch):\n        return torch.randn(batch, 4)\n\n"
        "    def evaluate(self, predict):\n        from asked_later import LABEL\n\n"
        "        return {'top1': predict(torch.ones(8, 4)).argmax(1) == LABEL}\n"
    )
    workload = Workload(parse_model("asked_net.py:Net", (tmp_path,)), 2)
    files = build(workload, 0).files
    assert {Path(name).name for name in files} >= {"asked_net.py", "asked_later.py"}
    for name in ("asked_later.py", "asked_net.py"):
        before = keys.sample_key(workload, 0, build(workload, 0).files)
        keys.remember_files(workload, 0, tmp_path, build(workload, 0).files)
        assert keys.known_files(workload, 0, tmp_path) is not None
        with (tmp_path / name).open("a") as file:
            file.write("# LABEL = 1\n")
        assert keys.known_files(workload, 0, tmp_path) is None
        assert keys.sample_key(workload, 0, build(workload, 0).files) != before
