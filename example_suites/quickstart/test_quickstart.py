"""Two networks and a stack of blocks: what the compilers gain, how they batch, and whether depth pays.

Small images keep it short; drop ``image_size=`` for the real thing.
"""

from __future__ import annotations

import pytest

from pytest_ngraph import (
    BatchSweep,
    DepthSweep,
    Measurement,
    assert_ase,
    assert_bsr,
    assert_latency,
    assert_retention,
    assert_rtr,
    assert_slope,
    assert_speedup,
)

MODELS = ["timm:resnet18", "timm:vit_tiny_patch16_224"]


@pytest.mark.ngraph(model=MODELS, image_size=64, batch=[1, 8])
def test_no_slower_than_eager(ngraph_cell: Measurement) -> None:
    """No compiler is slower than PyTorch eager by more than the tolerance, and none takes long by the clock.

    The first is a ratio: where the model itself becomes slower it stays. The second sees that, on the machine that its
    bound was written for; this one is wide enough for most.
    """
    assert_speedup(ngraph_cell, at_least=1.0)
    assert_latency(ngraph_cell, at_most=0.5)  # seconds a call


@pytest.mark.ngraph(model=MODELS, image_size=64, batches=[1, 4, 8])
def test_batching_pays(ngraph_batches: BatchSweep) -> None:
    """A larger batch never costs throughput, and some of perfect scaling is kept at batch 4."""
    assert_rtr(ngraph_batches, batch=8, at_least=1.0)
    assert_ase(ngraph_batches, batch=4, at_least=0.15)


@pytest.mark.ngraph(model="timm:resnet18", image_size=64, batches=[1, 4, 8])
def test_batching_scales_like_eager(ngraph_batches: BatchSweep) -> None:
    """Compiled, the network keeps at least a fifth of the batch scaling that eager has.

    Eager starts from a slow batch 1, so it has more to gain: a BSR below 1 is usual where the speed-up is large.
    """
    assert_bsr(ngraph_batches, batch=8, at_least=0.2)


@pytest.mark.ngraph(model="block:conv", width=64, image_size=32, batch=4, depths=[1, 2, 4])
def test_depth_is_not_wasted(ngraph_depths: DepthSweep) -> None:
    """Stacking conv blocks keeps the compiler's advantage."""
    assert_retention(ngraph_depths, at_least=0.6)
    assert_slope(ngraph_depths, at_least=-0.5)
