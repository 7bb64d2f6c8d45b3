"""How time grows with length, on null, whose true values are known: what is claimed, kept, shown and refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pytest_ngraph.claims.deploying.sequences import assert_sequence_scaling
from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.quantities.derived import derived_of
from pytest_ngraph.quantities.quantity import NarrowedAway
from pytest_ngraph.quantities.sweeps import Measurement, SequenceSweep
from tests.conftest import Suite
from tests.quantities.test_one_formula import against, cell, lengths, source_of

# A call of n tokens takes 0.2 n ms: twice the length, twice the time.
LINEAR = "null[fixed_us=0,sample_us=0,token_us=200]"
# And here the length hardly matters.
FLAT = "null[fixed_us=4000,sample_us=0,token_us=1]"
TEST = """
from pytest_ngraph import assert_sequence_scaling

@pytest.mark.ngraph(model="block:mha", width=16, sequences=[40, 10])
def test_scaling(ngraph_sequences):
    assert list(ngraph_sequences) == [10, 40]
    assert ngraph_sequences[40].workload.sequence == 40
    assert_sequence_scaling(ngraph_sequences, {bound})
"""


def test_a_sweep_is_claimed_exported_and_compared_with_its_baseline(suite: Suite) -> None:
    suite.write(TEST.format(bound="at_most=3"))
    result = suite.run("--ngraph-export=table.csv", "-rA", compiler=LINEAR)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines_random(["*test_scaling?local-null?fixed_us=0,sample_us=0,token_us=200?-block:mha-*"])
    with (suite.path / "table.csv").open(encoding="utf-8") as table:
        rows = [row for row in csv.DictReader(table) if row["metric"] == "sequence_scaling"]
    # With the longest, of the compiled cells and of those that they are compared with.
    assert {(row["compiler"][:12], row["sequence"], row["unit"]) for row in rows} == {
        ("null[fixed_u", "40", "exponent"),
        ("null[sample_", "40", "exponent"),
    }
    # Its own is exactly 1, that of the other 0: no clock of a busy machine brings them together.
    assert [float(row["value"]) > 0.2 for row in rows if "token" in row["compiler"]] == [True]

    flat = suite.run("--ngraph-store=flat.sqlite", compiler=FLAT)
    flat.assert_outcomes(passed=1)
    suite.write(TEST.format(bound="at_least=1.0"))
    failed = suite.run("--ngraph-store=flat.sqlite", compiler=FLAT)
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines_random(
        ["*assert_sequence_scaling: Sequence scaling over lengths 10 to 40 of local:null?fixed_us=4000*"]
    )


def test_a_claim_over_one_length_is_refused(suite: Suite) -> None:
    suite.write(TEST.format(bound="at_most=1.5").replace("[40, 10]", "40").replace("[10, 40]", "[40]"))
    result = suite.run(compiler=LINEAR)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(
        ["*sequence_scaling of local:null*: one length only (40); name at least two in*"]
    )

    # What the command line left of several says nothing of them, either.
    suite.write(TEST.format(bound="at_most=1.5").replace("[10, 40]", "[40]"))
    narrowed = suite.run("--ngraph-sequence=40", "-rs", compiler=LINEAR)
    narrowed.assert_outcomes(skipped=1)
    narrowed.stdout.fnmatch_lines_random(["*sequences 10 were narrowed away on the command line*"])


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("sequences=[8, 16], sequence=8", "*sequences= and sequence= together*"),
        ("sequences=[8, 16], batches=[1, 2]", "*batches= and sequences= together: one axis can be swept*"),
        ("sequences=[8, 0]", "*sequences=?8, 0?: 0 is not allowed (expected whole numbers >= 1)*"),
        ("sequences=[8, 16]", "*sequences= goes with the fixture ngraph_sequences, not with ngraph_cell*"),
    ],
)
def test_what_cannot_be_a_sweep_is_refused_at_collection(suite: Suite, marker: str, said: str) -> None:
    suite.write(f'@pytest.mark.ngraph(model="block:mha", {marker})\ndef test_it(ngraph_cell): pass')
    suite.collect("--ngraph-compiler=null").stdout.fnmatch_lines([said])


def test_lengths_are_items_with_ids_and_narrowed_by_the_option(suite: Suite) -> None:
    suite.write(
        '@pytest.mark.ngraph(model="block:mha", sequence=[32, 8], batch=[1, 2])\ndef test_it(ngraph_cell): pass'
    )

    assert suite.ids("--ngraph-compiler=null", "--ngraph-sequence=8") == [
        f"test_it[local-null-block:mha-seq8-batch{batch}]" for batch in (1, 2)
    ]


# From launches


def test_the_exponent_is_that_of_the_times_and_stored_launches_say_it_too() -> None:
    sweep = lengths()
    estimate = sweep.scaling
    assert estimate.value == pytest.approx(1.3, abs=1e-3)
    assert sweep.tolerance_scale() == pytest.approx(1 / 2.7726, rel=1e-4)  # ln 16

    cells = [each.cell for each in sweep.values()]
    source = next(iter(sweep.values())).source
    found = [*derived_of(source, cells, {one: against(one) for one in cells})]
    assert [one.quantity.metric.name for one in found] == ["sequence_scaling"]
    assert found[0].quantity.estimate() == estimate
    assert found[0].cells == tuple(cells)
    # Other batches, models and second processes are no part of it.
    apart = [cell(sequence=32), cell(sequence=128, batch=2), cell(sequence=128, width=8)]
    assert [*derived_of(source_of(apart)[0], apart, {})] == []


def test_what_is_no_sweep_over_lengths_is_refused(tmp_path: Path) -> None:
    sweep = lengths()
    with pytest.raises(ClaimError, match=r"given None \(expected a SequenceSweep: the fixture ngraph_sequences, with"):
        assert_sequence_scaling(None, at_most=1)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="known: sequence_scaling"):
        sweep.quantity("slope")
    with pytest.raises(ClaimError, match="sequence 64 is not in this sweep"):
        sweep[64]
    one = sweep[32]
    with pytest.raises(NarrowedAway, match="sequences 512 were narrowed away"):
        SequenceSweep(one.source, {32: one, 128: sweep[128]}, (32, 128, 512)).quantity("sequence_scaling")
    assert isinstance(one, Measurement)
