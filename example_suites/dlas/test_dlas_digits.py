"""What do accuracy and time say of pruning and quantising together? The paper's Figure 3, without downloads.

A small network is trained on scikit-learn's digits, pruned at the paper's steps and trained again after each. The
ratio before the accuracy falls is the elbow, that the paper goes on with: it is chosen on 400 images, and the
accuracies of the table are of 400 others, read by the *compiled* network.

    pytest example_suites/dlas/test_dlas_digits.py -k elbow -s              both curves, no compiler
    pytest example_suites/dlas/test_dlas_digits.py --ngraph-protocol=quick  the elbows by accuracy and time
    pytest example_suites/dlas/test_dlas_digits.py -m full                  all steps, for Figure 3

Then `ngraph export accuracy.md --table dlas-accuracy` and `ngraph report --figures figures --figure dlas-3`.
"""

from __future__ import annotations

import sys

import pytest
from digits_pruning import CHANNEL_STEPS, CHANNELS_OUT, WEIGHT_STEPS, WEIGHTS, Iterative, elbow

from pytest_ngraph import Measurement, assert_accuracy, assert_accuracy_drop

MODEL = "digits.py:Digits"
# What test_elbow finds, and the last ratio of each, where little is left to be right.
ELBOWS = {"iterative_weight_prune": 0.95, "iterative_channel_prune": 0.6}
AT_ELBOWS = ["dense", *(f"{name}={ratio:g}" for name, ratio in ELBOWS.items())]
ALL_STEPS = [
    "dense",
    *(f"iterative_weight_prune={ratio:g}" for ratio in WEIGHT_STEPS),
    *(f"iterative_channel_prune={ratio:g}" for ratio in CHANNEL_STEPS[1::2]),
]
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
def test_pruning_keeps_the_accuracy(ngraph_cell: Measurement) -> None:
    """At the elbows no more than five points are lost, in whatever the network is compiled by."""
    ngraph_cell.ensure()
    assert_accuracy_drop(ngraph_cell, at_most=0.05)


@pytest.mark.ngraph(model=MODEL, batch=1, precision=["f16", "int8"])
def test_quantising_keeps_the_accuracy(ngraph_cell: Measurement) -> None:
    """Observation VI: float16 costs nothing, and calibrated int8 little."""
    ngraph_cell.ensure()
    assert_accuracy_drop(ngraph_cell, at_most=0.02)


@pytest.mark.ngraph(model=MODEL, batch=1, optimize="iterative_weight_prune=0.95", precision="int8")
def test_pruned_and_quantised(ngraph_cell: Measurement) -> None:
    """Both together."""
    ngraph_cell.ensure()
    assert_accuracy(ngraph_cell, at_least=0.9)


@pytest.mark.full
@pytest.mark.ngraph(model=MODEL, batch=1, optimize=ALL_STEPS)
def test_every_step(ngraph_cell: Measurement) -> None:
    """Figure 3: measured and reported."""
    ngraph_cell.ensure()
    assert_accuracy(ngraph_cell, at_least=0.05)


@pytest.mark.smoke
@pytest.mark.ngraph(model=MODEL, batch=1, optimize="iterative_weight_prune=0.5")
def test_smoke(ngraph_cell: Measurement) -> None:
    """The first step."""
    test_pruning_keeps_the_accuracy(ngraph_cell)
