"""A speed-up over another cell: which cells it may be over, and that it holds and fails to either side."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ngraph.claims.assertions import assert_speedup
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.quantities.comparisons import as_baseline
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.claims.test_claims import BLOCK, Laboratory, speedups

OTHER = parse_model("block:mha")
TWICE = (2.0, 2.01, 2.0, 1.99, 2.0, 2.01, 2.0)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def test_it_holds_and_fails_as_the_ratio_of_the_two_says(lab: Laboratory) -> None:
    lab.script = speedups(*TWICE)
    fast = lab.run()
    slow = as_baseline(fast)
    estimate = assert_speedup(fast, over=slow, at_least=1.8)
    assert assert_speedup(fast, over=slow, at_most=2.2) == estimate
    assert estimate.value == pytest.approx(2.0, rel=0.01)
    assert estimate.metric == "throughput_ratio"
    with pytest.raises(AssertionError, match=r"claimed at least 2\.50x"):
        assert_speedup(fast, over=slow, at_least=2.5)
    with pytest.raises(AssertionError, match=r"claimed at most 1\.50x"):
        assert_speedup(fast, over=slow, at_most=1.5)


def test_turned_round_it_is_the_inverse_and_not_the_baseline_s(lab: Laboratory) -> None:
    """What would pass on garbage: a speed-up over the baseline, whatever is named behind ``over``."""
    lab.script = speedups(*TWICE)
    fast = lab.run()
    slow = as_baseline(fast)
    assert assert_speedup(slow, over=fast, at_most=0.55).value == pytest.approx(0.5, rel=0.01)
    with pytest.raises(AssertionError, match=r"of local:null block:conv batch1 over local:null\[sample_us=5\]"):
        assert_speedup(slow, over=fast, at_least=1.0)


def test_batches_count_by_their_samples(lab: Laboratory) -> None:
    """Calls of batch 1 and 8 take equally long here, so that eight times as many samples are done."""
    lab.script = speedups(*TWICE)
    one, eight = lab.run_all([Workload(BLOCK, 1), Workload(BLOCK, 8)])
    assert assert_speedup(eight, over=one, at_least=7.5).value == pytest.approx(8.0, rel=0.01)


def test_what_it_cannot_be_over_is_refused_before_anything_is_measured(lab: Laboratory) -> None:
    cell = lab.run()
    with pytest.raises(ClaimError, match=r"assert_speedup: over=local:null\[sample_us=5\] block:conv batch1 is"):
        assert_speedup(cell, over=cell, at_least=0.9)
    same = Measurement(cell.source, cell.cell, cell.baseline)
    with pytest.raises(ClaimError, match="is the cell itself"):
        assert_speedup(cell, over=same, at_least=0.9)
    with pytest.raises(ClaimError, match=r"assert_speedup: over: given 2\.0 \(expected a Measurement"):
        assert_speedup(cell, over=2.0, at_least=0.9)  # type: ignore[arg-type]
    with pytest.raises(ClaimError, match=r"assert_speedup: .* were not measured together"):
        assert_speedup(cell, over=lab.run_all([Workload(OTHER, 1)])[0], at_least=0.9)
    assert lab.launched == 0
