"""What does width cost when batches grow? The paper's section V-E, Figure 10.

It is a heat map of the scaling efficiency ASE over width and batch, for six conv and six attention blocks: the wider
the block, the sooner the device is full, and the faster efficiency falls from one batch to the next. The paper calls
this batch-width friction, and leaves it at the picture.

    pytest example_suites/paper/test_width_friction.py                        all of it, hours on a CPU
    pytest example_suites/paper/test_width_friction.py --ngraph-width=64,96   the conv widths of Table VII
    pytest example_suites/paper/test_width_friction.py -k attention           minutes: small blocks

Measured and reported: there is no table of it.
"""

from __future__ import annotations

import pytest

from pytest_ngraph import BatchSweep


@pytest.mark.ngraph(model="block:conv", width=[64, 96, 128, 256], depth=6, batches=[1, 2, 4, 8, 16])
def test_conv_blocks(ngraph_batches: BatchSweep) -> None:
    """Figure 10 (a): images of 244 x 244, the widths of Table V."""
    ngraph_batches.ensure()


@pytest.mark.ngraph(model="block:mha", width=[128, 256, 384, 512], depth=6, batches=[1, 2, 4, 8, 16])
def test_attention_blocks(ngraph_batches: BatchSweep) -> None:
    """Figure 10 (b): sequences of ten tokens, the widths of Table V."""
    test_conv_blocks(ngraph_batches)


@pytest.mark.smoke
@pytest.mark.ngraph(model="block:mha", width=[32, 64], depth=2, batches=[1, 2])
def test_smoke(ngraph_batches: BatchSweep) -> None:
    """Two widths of a short stack."""
    test_attention_blocks(ngraph_batches)
