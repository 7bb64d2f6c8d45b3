"""Accuracy of a compiled cell, and agreement with the dense f32 model, as untimed passes gave them, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_ngraph.errors import ClaimError, known
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.quantity import LEVEL, Estimate, NotStored, Quantity, Source
from pytest_ngraph.spec.cells import DENSE, Cell, CompileRecord, LaunchRecord
from pytest_ngraph.spec.evaluations import Agreed, Evaluation, Score
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.shares import exact_interval

ACCURACY, AGREEMENT = "accuracy", "agreement"
TOP1, CENTRED = "top1", "centred_cosine"
# Seeded inputs that agreement is measured on, where nothing else is asked for.
SAMPLES = 256


def dense_of(cell: Cell, baseline: Cell) -> Cell:
    """Return the cell that a compressed one is held to: the model as it was built, in f32, under the baseline."""
    workload = replace(cell.workload, optimize=DENSE, optimizers=(), precision="f32", scenario="latency")
    return replace(cell, compiler=baseline.compiler, workload=workload, replica=0, rebuild=False)


def score_of(cell: Cell, evaluation: Evaluation, of: str) -> Score:
    """Return a score of an evaluation. Raise ClaimError with the names that there are."""
    found = evaluation.score(of)
    if found is None:
        raise ClaimError(f"{cell.label}: its evaluation gave no {of!r} ({known(of, evaluation.names)})")
    return found


def accuracies(record: CompileRecord | None) -> dict[str, Estimate]:
    """Return the accuracy of a cell by what it is of, as its metric is named: ``accuracy:top1``."""
    if record is None or record.evaluation is None:
        return {}
    found = {}
    for score in record.evaluation.scores:
        name = f"{ACCURACY}:{score.name}"
        found[name] = Estimate(name, score.share, *exact_interval(score.hits, score.samples, LEVEL), 1)
    return found


def agreements(record: CompileRecord | None) -> dict[str, Estimate]:
    """Return how well a cell agrees with the dense model: ``agreement:top1`` and ``agreement:centred_cosine``."""
    found: dict[str, Estimate] = {}
    agreed = record.agreed if record is not None else None
    if agreed is not None and agreed.scored:
        name, share = f"{AGREEMENT}:{TOP1}", agreed.matches / agreed.scored
        found[name] = Estimate(name, share, *exact_interval(agreed.matches, agreed.scored, LEVEL), 1)
    if agreed is not None and agreed.centred is not None:
        name = f"{AGREEMENT}:{CENTRED}"
        # Of these inputs it is what it is.
        found[name] = Estimate(name, agreed.centred, agreed.centred, agreed.centred, 1)
    return found


@dataclass(frozen=True)
class OfAPass(Quantity):
    """A number that an untimed pass gives, once for a cell. Its interval is over samples, not over launches."""

    estimates: Callable[[], Mapping[str, Estimate]] = dict

    def estimate(self) -> Estimate:
        """Return value and interval. Raise NotStored where nothing gives them."""
        found = self.estimates()
        if self.metric.name not in found:
            there = ", ".join(found) or "none"
            raise NotStored(f"{self.label}: not among what was measured ({there})")
        return found[self.metric.name]

    def rows(self) -> list[tuple[LaunchRecord, LaunchValue]]:
        """Return the pass as one launch with its value. Raises as ``estimate``."""
        return [(LaunchRecord(0, 0, self.source.protocol.name), LaunchValue(self.estimate().value, 0.0, 1))]

    def present(self, values: Sequence[LaunchValue], level: float = LEVEL) -> Estimate:
        """Return the estimate that the pass gave: its interval has nothing to do with launches."""
        return self.estimate()


def of_a_pass(
    source: Source, metric: str, label: str, cell: Cell, estimates: Callable[[], Mapping[str, Estimate]]
) -> OfAPass:
    """Return such a number as a quantity."""
    return OfAPass(source, METRICS[metric], label, (cell,), cell, _no_launch, estimates=estimates)


def agreed_of(record: CompileRecord, cell: Cell) -> Agreed:
    """Return the agreement in the record of a pass. Raise NotStored where it has none."""
    if record.agreed is None:
        raise NotStored(f"{cell.label}: its agreement with dense f32 was not measured")
    return record.agreed


def _no_launch(record: LaunchRecord) -> LaunchValue | None:
    return None
