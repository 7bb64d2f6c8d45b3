"""A model's own ``evaluate(predict)`` on a compiled cell, held to what an evaluation can say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.evaluation.predict import Blind, Predict, inputs_of
from pytest_ngraph.spec.evaluations import MOST_LETTERS, MOST_SCORES, Evaluation, Score, is_score_name
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    from pytest_ngraph.compilers.base import Executable
    from pytest_ngraph.workloads.loaded import LoadedWorkload

SAMPLES = "samples"
_FORM = (
    "expected a dict: a name such as 'top1', and for each sample whether it was right, as a sequence of bools "
    "(predict(images).argmax(1) == labels), or the share of samples that were right, from 0 to 1"
)
# By chance random outputs make the same samples right where there are very few; hardly so often.
_TRIES = 5
# A share of so many samples is that of a whole number of them.
_WHOLE = 1e-6
_BLIND_SEED = 20


def evaluate(
    executable: Executable,
    workload: LoadedWorkload,
    alive: Callable[[int], None],
) -> Evaluation:
    """Return what the model's own evaluation says of a compiled cell.

    It is asked twice: the second time ``predict`` gives random numbers, and one with a score that says the same of
    every sample is refused. Raises SpecError for a model without an evaluation, and for one that says nothing that can
    be understood.
    """
    from pytest_ngraph.workloads.kinds.catalogue import kind_of
    from pytest_ngraph.workloads.modules.seeding import seeded

    text = workload.spec.model.text
    if workload.artifact is None:
        raise SpecError(f"{workload.spec.label}: its compiler reads nothing of the model, so nothing can be evaluated")
    if kind_of(workload.spec.model).is_onnx:
        raise SpecError(f"model {text!r}: {_without(text, 'an ONNX file')}")
    offered = _offered(workload, text)
    predict = Predict(text, executable, list(inputs_of(workload.artifact.meta["inputs"])), workload.spec.batch, alive)
    with seeded(workload.seed):
        given = _ask(text, offered, predict)
    if not predict.samples:
        raise SpecError(
            f"model {text!r}: its evaluate never called predict, so what it gave ({one_line(repr(given), 60)}) is no "
            "accuracy of this cell"
        )
    scores = scores_of(text, given, predict.samples)
    _refuse_blind(text, offered, predict, scores, workload.seed)
    return Evaluation(predict.samples, predict.calls, predict.digest, scores)


def _offered(workload: LoadedWorkload, text: str) -> Callable[[Predict], Any]:
    if workload.spec.decode is not None:
        raise SpecError(
            f"model {text!r}: no evaluation is asked about calls that generate tokens, decode={workload.spec.decode}; "
            "claim the accuracy of a cell without decode=, or what needs no data: assert_agreement"
        )
    found = workload.built().evaluate
    if found is None:
        raise SpecError(f"model {text!r}: {_without(text, 'it')}")
    if not callable(found):
        raise SpecError(f"model {text!r}: its evaluate is {type(found).__name__} (expected a function of predict)")
    return found


def _without(text: str, what: str) -> str:
    return (
        f"{what} brings no evaluate(predict), so nothing says its accuracy; offer it as a method of the module or an "
        "attribute of the factory, or claim what needs no data: assert_agreement"
    )


def _ask(text: str, offered: Callable[[Predict], Any], predict: Predict) -> Any:
    import torch

    from pytest_ngraph.workloads.kinds.contract import guarded

    with torch.inference_mode():
        return guarded(text, "evaluate(predict)", lambda: offered(predict))


def _refuse_blind(
    text: str, offered: Callable[[Predict], Any], predict: Predict, scores: Sequence[Score], seed: int
) -> None:
    """Raise SpecError for an evaluation of which a score is the same whatever the cell gives."""
    from pytest_ngraph.workloads.modules.seeding import seeded

    same = [score for score in scores if score.hits]
    for attempt in range(_TRIES):
        if not same:
            return
        blind = Blind(predict, _BLIND_SEED + attempt)
        try:
            with seeded(seed):
                again = scores_of(text, _ask(text, offered, blind), predict.samples)
        except Exception:  # noqa: BLE001 - what it raises on random numbers it did not raise on what the cell gave
            return
        same = [score for score in same if score in again]
    if same:
        names = ", ".join(repr(score.name) for score in same)
        raise SpecError(
            f"model {text!r}: its evaluate says the same of every sample when predict gives random numbers, in "
            f"{names}, so it does not look at what the cell gives; compare predict(inputs) with the labels, and "
            "leave out what is no share of right samples"
        )


def scores_of(text: str, given: Any, seen: int) -> tuple[Score, ...]:
    """Read what an evaluation gave of the ``seen`` samples that ``predict`` was given. Raise SpecError otherwise."""
    place = f"model {text!r}: its evaluate"
    if not isinstance(given, Mapping) or not given:
        raise SpecError(f"{place} gave {one_line(repr(given), 60)} ({_FORM})")
    named = {name: value for name, value in given.items() if name != SAMPLES}
    if not named or len(named) > MOST_SCORES:
        raise SpecError(f"{place} gave {len(named)} scores (expected 1 to {MOST_SCORES}; {_FORM})")
    counted = _counted(place, given[SAMPLES]) if SAMPLES in given else None
    scores = []
    for name, value in named.items():
        if not is_score_name(name):
            raise SpecError(
                f"{place} named a score {one_line(repr(name), 60)} (expected a name of up to {MOST_LETTERS} letters, "
                "digits and _.@-, such as 'top1')"
            )
        scores.append(_score(place, str(name), value, counted, seen))
    return tuple(scores)


def _score(place: str, name: str, value: Any, counted: int | None, seen: int) -> Score:
    flags = _flags(place, name, value)
    if flags is None:
        share = _share(place, name, value)
        samples = counted or seen
        _refuse_count(place, f"{SAMPLES!r}", samples, seen)
        hits = share * samples
        whole = round(hits)
        return Score(name, whole if abs(hits - whole) <= _WHOLE * samples else hits, samples)
    if counted is not None and counted != len(flags):
        raise SpecError(f"{place} gave {len(flags)} bools of {name!r} and {SAMPLES!r} of {counted} (expected as many)")
    _refuse_count(place, f"{name!r}", len(flags), seen)
    return Score.of_flags(name, flags)


def _refuse_count(place: str, what: str, samples: int, seen: int) -> None:
    """Raise SpecError for a number of samples that ``predict`` cannot have been shown."""
    if not samples or seen % samples:
        raise SpecError(
            f"{place} gave {what} of {samples} samples, and predict was given {seen} (expected as many, or a whole "
            "multiple: several views of each sample)"
        )


def _flags(place: str, name: str, value: Any) -> list[bool] | None:
    """Return of each sample whether it was right, or None for what is a number."""
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return None
    if isinstance(value, (np.ndarray, list, tuple)):
        try:
            array = np.asarray(value) if len(value) else np.zeros(0, bool)
        except ValueError:  # lists of different lengths
            array = np.zeros(0, object)
        if array.dtype != np.bool_ or array.ndim != 1:
            raise SpecError(
                f"{place} gave {name!r} as {array.ndim} dimensions of {array.dtype} (expected a bool for each sample, "
                "whether it was right: compare what predict gives with the labels)"
            )
        found: list[bool] = array.tolist()
        return found
    return None


def _share(place: str, name: str, value: Any) -> float:
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise SpecError(f"{place} gave {name!r} as {one_line(repr(value), 60)} ({_FORM})")
    share = float(value)
    if not (math.isfinite(share) and 0 <= share <= 1):
        meant = f"; {share / 100:g} is meant?" if 1 < share <= 100 else ""
        raise SpecError(f"{place} gave {name!r} as {share:g} (expected a share of samples from 0 to 1{meant})")
    return share


def _counted(place: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise SpecError(f"{place} gave {SAMPLES!r} as {one_line(repr(value), 60)} (expected a whole number from 1 on)")
    return int(value)
