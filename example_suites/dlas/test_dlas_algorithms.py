"""How are convolutions computed best? The paper's algorithms, untuned and tuned, of its Figures 4 to 7.

Direct convolution, im2col with a matrix product, and spatial packing: ``tvm[algorithm=...]``. Its tuning is Ansor's, up
to 20,000 programs a network; MetaSchedule's here, 64 a kernel, which takes minutes a network.

    pytest example_suites/dlas/test_dlas_algorithms.py --ngraph-compiler=tvm                  untuned, MobileNetV1
    pytest example_suites/dlas/test_dlas_algorithms.py -m full --ngraph-compiler=tvm          all of it, hours
"""

from __future__ import annotations

import pytest
from test_dlas_speed import LARGE, PRUNED_LARGE, PRUNED_SMALL, SMALL

from pytest_ngraph import Measurement

NAMES = ("direct", "gemm", "spatial_pack")
UNTUNED = [f"tvm[algorithm={name}]" for name in NAMES]
TUNED = [f"tvm[algorithm={name},trials=64]" for name in NAMES]


@pytest.mark.ngraph(model="cifar.py:MobileNetV1", batch=1, optimize=PRUNED_SMALL, compilers=UNTUNED)
def test_untuned(ngraph_cell: Measurement) -> None:
    """The smallest network, as TVM begins."""
    ngraph_cell.ensure()


@pytest.mark.full
@pytest.mark.ngraph(model=SMALL, batch=1, optimize=PRUNED_SMALL, compilers=UNTUNED + TUNED)
def test_small(ngraph_cell: Measurement) -> None:
    """Figure 4, of small networks."""
    ngraph_cell.ensure()


@pytest.mark.full
@pytest.mark.ngraph(model=LARGE, batch=1, optimize=PRUNED_LARGE, compilers=UNTUNED + TUNED)
def test_large(ngraph_cell: Measurement) -> None:
    """Figure 4, of large networks."""
    ngraph_cell.ensure()
