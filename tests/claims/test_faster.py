"""Which of two is faster, from launches to verdict and message: shown to be, or no slower within a tolerance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.claims.assertions import InconclusiveWarning, assert_faster, assert_speedup
from pytest_ngraph.claims.changes import assert_no_slower
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.front.ci import properties
from pytest_ngraph.quantities.comparisons import as_baseline, refuse_incomparable
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import NarrowedAway
from tests.claims.test_claims import OPEN, Laboratory, speedups


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def pair(lab: Laboratory, **how: object) -> tuple[Measurement, Measurement]:
    """Return the cell of a run and its baseline, which is slower by what the script says."""
    cell = lab.run(**how)  # type: ignore[arg-type]
    return cell, as_baseline(cell)


def test_what_is_faster_passes_once_fresh_launches_confirm_it(lab: Laboratory) -> None:
    lab.script = speedups(1.10, 1.11, 1.10, 1.11, 1.10, 1.09, 1.10)
    estimate = assert_faster(*pair(lab))
    assert (estimate.launches, lab.launched) == (7, 7)
    assert lab.kept[-1].verdict == "pass"
    assert lab.kept[-1].extra["reason"] == "the first 3 launches said pass, 4 fresh ones confirmed it"
    assert lab.kept[-1].claim.endswith("above 1 (no tolerance)")


def test_a_pass_that_is_not_confirmed_is_inconclusive(lab: Laboratory) -> None:
    lab.script = speedups(1.10, 1.11, 1.10, *[1.0, 1.01, 1.0, 0.99] * 3)
    with pytest.raises(AssertionError, match="the first 3 launches said pass, 12 fresh ones did not confirm it"):
        assert_faster(*pair(lab))


def test_far_slower_than_claimed_to_be_faster_is_confirmed_too(lab: Laboratory) -> None:
    """A strict bound has no tolerance, so nothing is clearly beyond it."""
    lab.script = speedups(0.50, 0.51, 0.50, 0.50, 0.51, 0.50, 0.50)
    with pytest.raises(AssertionError, match="the first 3 launches said fail, 4 fresh ones confirmed it"):
        assert_faster(*pair(lab))


def test_two_per_cent_slower_fails_as_faster_and_passes_as_no_slower(lab: Laboratory) -> None:
    lab.script = speedups(0.980, 0.981, 0.980, 0.981, 0.979, 0.980, 0.981)
    assert assert_no_slower(*pair(lab)).value == pytest.approx(0.98, abs=0.002)
    with pytest.raises(AssertionError, match=r"claimed to be shown above 1\.00x, without tolerance") as failed:
        assert_faster(*pair(lab))
    assert "fail: 0.98x" in str(failed.value)


def test_equal_code_is_faster_in_neither_direction(lab: Laboratory) -> None:
    lab.script = speedups(*OPEN)
    cell, other = pair(lab, inconclusive="warn")
    for one, two in ((cell, other), (other, cell)):
        with pytest.warns(InconclusiveWarning, match="what only has to keep up is claimed with assert_no_slower"):
            assert_faster(one, two)
    assert [row.verdict for row in lab.kept] == ["inconclusive"] * 2


def test_code_that_is_equal_to_the_nanosecond_is_not_faster(lab: Laboratory) -> None:
    lab.script = speedups(*[1.0] * 7)
    with pytest.raises(AssertionError, match=r"fail: 1\.00x"):
        assert_faster(*pair(lab))


def test_a_cell_is_not_compared_with_itself(lab: Laboratory) -> None:
    """Its ratio is 1 whatever it is. A second process of it, a replica, is another cell."""
    cell = lab.run()
    same = Measurement(cell.source, cell.cell, cell.baseline)
    for claim in (assert_faster, assert_no_slower):
        with pytest.raises(ClaimError, match=rf"{claim.__name__}: local:null\[sample_us=5\] .* is the cell itself"):
            claim(cell, same)
    assert lab.launched == 0
    replica = Measurement(cell.source, replace(cell.cell, replica=1), cell.baseline)
    refuse_incomparable("assert_no_slower", cell, replica)


def test_the_other_side_of_a_cell_where_nothing_differs_may_be_compared_with_it(lab: Laboratory) -> None:
    cell = lab.run()
    unchanged = Unchanged(cell.source, cell.cell, cell.baseline)
    refuse_incomparable("assert_no_slower", unchanged, cell)
    refuse_incomparable("assert_no_slower", cell, unchanged)


class Unchanged(Measurement):
    """A cell whose other side is what it is here."""

    is_unchanged = True


def test_by_asks_for_more(lab: Laboratory) -> None:
    lab.script = speedups(*[1.08, 1.081, 1.079] * 3)
    assert assert_faster(*pair(lab)).value == pytest.approx(1.08, abs=0.002)
    assert assert_faster(*pair(lab), by=0.05).low > 1.05
    with pytest.raises(AssertionError, match=r"claimed to be shown above 1\.10x"):
        assert_faster(*pair(lab), by=0.10)


def test_stored_launches_say_the_same_of_what_is_faster(lab: Laboratory) -> None:
    lab.script = speedups(1.10, 1.11, 1.10, 1.11, 1.10, 1.09, 1.10)
    live = assert_faster(*pair(lab))
    assert live == assert_faster(*pair(lab)) == assert_faster(*pair(lab, offline=True))
    assert lab.launched == 7


def test_a_tolerance_is_said_in_the_message_and_in_the_claim(lab: Laboratory) -> None:
    """At least 1.0 passes what is 4 % slower: who reads it must not take it for more."""
    lab.script = speedups(*[0.97, 0.971, 0.97] * 3)
    assert_speedup(lab.run(), at_least=1.0)
    row = lab.kept[-1]
    assert row.claim.endswith("at_least 1 (tolerance 0.05: passes above 0.95)")
    assert "claimed at least 1.00x (tolerance 5 %: what is shown above 0.95x passes)" in row.extra["message"]
    assert dict(properties([row]))["ngraph.1.claim"].endswith("(tolerance 0.05: passes above 0.95)")
    with pytest.raises(AssertionError, match=r"at least 1\.20x \(tolerance 5 %: what is shown above 1\.14x passes\)"):
        assert_speedup(lab.run(), at_least=1.2)


def test_what_nothing_is_compared_with_says_how_to(lab: Laboratory) -> None:
    with pytest.raises(NarrowedAway, match=r"is compared with nothing; --ngraph-against=main \(a revision, "):
        assert_no_slower(lab.run())
    with pytest.raises(ClaimError, match=r"by=-0\.1 \(expected 0 or more"):
        assert_faster(*pair(lab), by=-0.1)
    assert lab.launched == 0
