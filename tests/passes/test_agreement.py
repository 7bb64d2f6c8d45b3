"""How well outputs agree, without a process: what infinities do to it, and what has no row for each sample."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.passes.agreement import _bounded, _Compared
from pytest_ngraph.spec.cells import Cell, CompilerSpec, ModelRef, Workload
from pytest_ngraph.spec.evaluations import Agreed, to_json

DENSE = Cell("local", CompilerSpec("onnxruntime"), Workload(ModelRef("net.py:Net", "module", "/net.py:Net"), 4))
DIGEST = 64 * "a"


def agreed(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> Agreed:
    """Return what calls of one output each come to."""
    compared = _Compared([[each] for each in expected], DENSE)
    for call, each in enumerate(found):
        compared.add(call, [each])
    return compared.agreed(DENSE, 8, DIGEST)


@pytest.mark.parametrize("rows", [4, 3])
def test_infinities_leave_what_is_finite_to_agree_on(rows: int) -> None:
    """As the scores of what a mask leaves out are."""
    expected = [np.random.default_rng(seed).normal(size=(rows, 6)).astype("f4") for seed in (1, 2)]
    noise = [np.random.default_rng(seed).normal(size=(rows, 6)).astype("f4") for seed in (3, 4)]
    for each in (*expected, *noise):
        each[:, 2], each[:, 4] = -np.inf, np.inf

    right, wrong = agreed(expected, expected), agreed(expected, noise)

    assert right.centred == pytest.approx(1.0)
    assert wrong.centred is not None
    assert abs(wrong.centred) < 0.8
    assert right.centred_by_chance is not None
    assert right.centred_by_chance < 0.8


def test_what_is_too_large_to_be_compared_does_not_agree() -> None:
    expected = [np.random.default_rng(seed).normal(size=(4, 6)) for seed in (1, 2)]

    with pytest.raises(CompileFailed, match="numbers too large to be compared"):
        agreed([1e100 * each for each in expected], [1e250 * each for each in expected])
    assert _bounded(math.nan) is None


@pytest.mark.parametrize(("rows", "scored"), [(6, 0), (3, 0), (1, 2)])
def test_rows_that_are_no_samples_are_not_scored(rows: int, scored: int) -> None:
    """As those of what a model finds in a batch are, of four samples here. What it says of all of it is one each."""
    expected = [np.random.default_rng(seed).normal(size=(rows, 5)) for seed in (1, 2)]
    expected[0][0, 0] = expected[1][0, 1] = 9.0

    found = agreed(expected, expected)

    assert (found.samples, found.matches, found.scored, found.by_chance) == (2, scored, scored, 0)
    assert found.centred == pytest.approx(1.0)
    assert Agreed.from_json(to_json(found)) == found
