"""What do accuracy and time say of pruning together? The paper's Figure 3, without downloads.

A small network is trained on scikit-learn's digits, pruned at the paper's steps and trained again after each. The ratio
before the accuracy falls is the elbow, that the paper goes on with.

    pytest example_suites/dlas/test_dlas_digits.py -k elbow -s              both curves, no compiler
    pytest example_suites/dlas/test_dlas_digits.py --ngraph-protocol=quick  time at the elbows
"""

from __future__ import annotations

import sys

import pytest
from digits_pruning import CHANNELS_OUT, WEIGHTS, Iterative, elbow

from pytest_ngraph import Measurement

MODEL = "digits.py:Digits"
# What test_elbow finds, and the last ratio of each, where little is left to be right.
ELBOWS = {"iterative_weight_prune": 0.95, "iterative_channel_prune": 0.6}
AT_ELBOWS = ["dense", *(f"{name}={ratio:g}" for name, ratio in ELBOWS.items())]
# Another processor adds up in another order, and trains another network: a step of either curve.
STEPS_APART = {"iterative_weight_prune": 0.05, "iterative_channel_prune": 0.1}


@pytest.mark.parametrize("method", [WEIGHTS, CHANNELS_OUT], ids=lambda method: method.name)
def test_elbow(method: Iterative) -> None:
    """The highest ratio before more than two points are lost is what the tests below take."""
    from digits import Digits

    net = Digits()
    dense = net.validate()
    curve = [(ratio, pruned.validate()) for ratio, pruned in method.curve(net, net.example_inputs(1))]
    found = elbow(curve, dense)
    lines = [f"{method.name}: dense {dense:.1%}, elbow at {found:g}"]
    for ratio, accuracy in curve:
        lines.append(f"  {ratio:5.0%}  {accuracy:6.1%}  {'#' * round(40 * accuracy)}{'  <- elbow' * (ratio == found)}")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    assert abs(found - ELBOWS[method.name]) <= STEPS_APART[method.name] + 1e-9
    # After it the network forgets nearly all that it knew, as in the paper.
    assert curve[-1][1] < dense - 0.15


@pytest.mark.ngraph(model=MODEL, batch=1, optimize=AT_ELBOWS)
def test_time_at_the_elbows(ngraph_cell: Measurement) -> None:
    """Measured and reported."""
    ngraph_cell.ensure()


@pytest.mark.smoke
@pytest.mark.ngraph(model=MODEL, batch=1, optimize="iterative_weight_prune=0.5")
def test_smoke(ngraph_cell: Measurement) -> None:
    """The first step."""
    test_time_at_the_elbows(ngraph_cell)
