"""Claims of accuracy: how often they err, what they say, and the page of the docs."""

from __future__ import annotations

import random
from dataclasses import replace
from math import isclose
from pathlib import Path

import pytest

from pytest_ngraph.accuracy.claims import assert_accuracy, assert_accuracy_drop, assert_agreement
from pytest_ngraph.accuracy.judging import of_drop, of_share
from pytest_ngraph.devices import local
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.quantities.accuracy import dense_of
from pytest_ngraph.quantities.quantity import NotStored
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, ModelRef, Outcome, Workload
from pytest_ngraph.spec.evaluations import Agreed, Evaluation, Score
from pytest_ngraph.stats.verdict import Bound, Verdict
from tests.claims.test_claims import Laboratory
from tests.conftest import BRIEFLY, ROOT, Suite, skip_without
from tests.support.pages import blocks

LEVEL = 0.005


def at_least(value: float) -> Bound:
    return Bound(value, at_least=True, tolerance=0.0, scale="linear")


def at_most(value: float) -> Bound:
    return Bound(value, at_least=False, tolerance=0.0, scale="linear")


@pytest.mark.parametrize(
    ("hits", "samples", "bound", "verdict"),
    [
        (350, 360, 0.9, Verdict.PASS),
        (350, 360, 0.972, Verdict.INCONCLUSIVE),
        (350, 360, 0.995, Verdict.FAIL),
        (360, 360, 1.0, Verdict.INCONCLUSIVE),
        (359, 360, 1.0, Verdict.FAIL),
        (0, 360, 0.0, Verdict.PASS),
        (0, 360, 0.1, Verdict.FAIL),
        (4, 4, 0.9, Verdict.INCONCLUSIVE),
    ],
)
def test_a_share_is_judged_by_its_interval(hits: int, samples: int, bound: float, verdict: Verdict) -> None:
    # One sample that is wrong shows that not all are right.
    found = of_share(hits, samples, LEVEL, at_least(bound))
    assert found.verdict is verdict
    assert found.low <= found.value <= found.high
    assert bool(found.advice) == (verdict is Verdict.INCONCLUSIVE)


def test_the_number_of_samples_that_is_advised_decides() -> None:
    found = of_share(350, 360, LEVEL, at_least(0.96))
    assert found.verdict is Verdict.INCONCLUSIVE
    count = int(found.advice.split("about ")[1].split()[0])
    assert of_share(350 / 360 * count, count, LEVEL, at_least(0.96)).verdict is Verdict.PASS
    assert of_share(350 / 360 * count / 2, count // 2, LEVEL, at_least(0.96)).verdict is Verdict.INCONCLUSIVE
    assert "another bound" in of_share(350, 360, LEVEL, at_least(350 / 360)).advice


def score(flags: list[bool]) -> Score:
    return Score.of_flags("top1", flags)


def test_a_drop_from_a_model_that_is_never_right_says_nothing() -> None:
    """With labels that are off by one nothing is right and nothing lost: that was a pass."""
    never = score([False] * 1000)
    for mine, dense, most in ((never, never, 0.01), (Score("top1", 0, 1000), Score("top1", 0, 1000), 0.05)):
        found = of_drop(mine, dense, LEVEL, at_most(most), "dense")
        assert found.verdict is Verdict.INCONCLUSIVE
        assert "a cell that is never right would have passed, too" in found.reason
    rarely = score([True] * 100 + [False] * 900)
    assert of_drop(rarely, rarely, LEVEL, at_most(0.05), "dense").verdict is Verdict.PASS
    assert of_drop(rarely, rarely, LEVEL, at_most(0.1), "dense").verdict is Verdict.INCONCLUSIVE


def test_a_drop_is_judged_by_pairs() -> None:
    dense = [True] * 950 + [False] * 50
    same = of_drop(score(dense), score(dense), LEVEL, at_most(0.01), "dense")
    assert same.verdict is Verdict.PASS
    assert same.value == 0.0
    # As often right, and on other samples: the drop is less well known.
    other = dense[::-1]
    apart = of_drop(score(other), score(dense), LEVEL, at_most(0.01), "dense")
    assert apart.value == 0.0
    assert apart.verdict is Verdict.INCONCLUSIVE
    assert "50 samples lost and 50 won against it, McNemar p=1" in apart.notes[1]
    worse = of_drop(score([False] * 40 + dense[40:]), score(dense), LEVEL, at_most(0.01), "dense")
    assert isclose(worse.value, 0.04)
    assert worse.verdict is Verdict.FAIL
    better = of_drop(score([True] * 1000), score(dense), LEVEL, at_most(0.0), "dense")
    assert better.verdict is Verdict.PASS
    assert isclose(better.value, -0.05)


def test_shares_are_compared_without_pairs_and_it_says_so() -> None:
    dense = score([True] * 950 + [False] * 50)
    paired, alone = (of_drop(mine, dense, LEVEL, at_most(0.01), "dense") for mine in (dense, Score("top1", 950, 1000)))
    assert alone.low < paired.low < paired.high < alone.high
    assert alone.notes[1].startswith("not paired: evaluate gives shares")
    assert "give for each sample whether it was right" in alone.advice


def test_claims_at_their_bound_err_as_seldom_as_they_say() -> None:
    """In the simulator: models whose accuracy, or drop, lies at the bound of the population."""
    draw = random.Random(5)
    shares, drops = [], []
    for _ in range(400):
        right = sum(draw.random() < 0.9 for _ in range(120))
        shares.append(of_share(right, 120, 0.05, at_least(0.9)).verdict)
        dense = [draw.random() < 0.9 for _ in range(120)]
        mine = [flag and draw.random() >= 0.05 / 0.9 for flag in dense]
        drops.append(of_drop(score(mine), score(dense), 0.05, at_most(0.05), "dense").verdict)
    for verdicts in (shares, drops):
        for wrong in (Verdict.PASS, Verdict.FAIL):
            # 5 % of 400 are 20; as many as 33 are met in one of 200 series.
            assert verdicts.count(wrong) <= 33
        assert verdicts.count(Verdict.INCONCLUSIVE) < 400


def test_another_budget_is_no_other_plan_of_what_takes_no_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Score.of_flags("top1", [sample >= 40 for sample in range(1000)])
    agreed = Agreed("local:null block:conv batch1", 256, 256, 64 * "a", 0.99, centred=0.9, matches=250, scored=256)
    evaluated = CompileRecord(Outcome.OK, evaluation=Evaluation(1000, 10, 64 * "a", (found,)))
    monkeypatch.setattr(local, "evaluation_pass", lambda *_: evaluated)
    monkeypatch.setattr(local, "agreement_pass", lambda *_: CompileRecord(Outcome.OK, agreed=agreed))
    lab = Laboratory(tmp_path, monkeypatch)

    def plans(**how: object) -> list[str]:
        cell = lab.run(**how)  # type: ignore[arg-type]
        assert_accuracy(cell, at_least=0.9)
        assert_accuracy_drop(cell, at_most=0.05)
        assert_agreement(cell, at_least=0.9)
        assert_agreement(cell, at_least=0.8, of="centred_cosine")
        return [str(row.extra["plan"]) for row in lab.kept]

    assert plans(budget="8") == plans(budget="16") == [""] * 4
    # What has no chance in it is the same at any error rate.
    note = "another plan than its first: an error rate of 0.001 now, 0.01 when it was first judged, pass"
    assert plans(error_rate=0.001) == [note, note, note, ""]


def test_without_scores_there_is_no_top_1_and_an_agreement_that_cannot_be_one_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Agreed("local:null block:conv batch1", 256, 2, 64 * "a", 0.99, centred=0.9)
    # As it was kept where outputs have no row for each sample.
    passes = [replace(right, matches=8, scored=8), right]
    monkeypatch.setattr(local, "agreement_pass", lambda *_: CompileRecord(Outcome.OK, agreed=passes.pop(0)))
    lab = Laboratory(tmp_path, monkeypatch)

    with pytest.raises(NotStored, match="not in the store"):
        assert_agreement(lab.run(), at_least=0.8, of="centred_cosine")
    cell = lab.run()
    assert assert_agreement(cell, at_least=0.8, of="centred_cosine").value == 0.9
    with pytest.raises(ClaimError, match="no row for each sample"):
        assert_agreement(cell, at_least=0.8)
    assert not passes


def test_what_a_cell_is_held_to_is_the_dense_f32_model_under_the_baseline() -> None:
    model = ModelRef("net.py:Net", "file", "/net.py:Net")
    workload = Workload.of(
        model,
        {"batch": 8, "precision": "int8", "scenario": "throughput", "optimize": "mine=0.5"},
        (("mine", "my_optimizers:MINE"),),
    )
    cell = Cell("local", CompilerSpec.parse("openvino"), workload, rebuild=True)
    baseline = Cell("local", CompilerSpec.parse("identity"), workload)

    dense = dense_of(cell, baseline)

    assert dense == Cell("local", CompilerSpec.parse("identity"), Workload(model, batch=8))
    assert dense_of(dense, dense) == dense


@pytest.mark.real
def test_the_suite_of_the_page_runs(suite: Suite) -> None:
    skip_without("torch", "onnx", "onnxscript", "onnxruntime", "sklearn")
    net, tests = (block.code for block in blocks(ROOT / "docs" / "accuracy.md") if block.info == "python")
    (suite.path / "digits.py").write_text(net)
    suite.pytester.makepyfile(test_digits=tests)

    done = suite.bare("--ngraph-protocol=quick", "--ngraph-inconclusive=fail", plugins=BRIEFLY)

    assert done.parseoutcomes() == {"passed": 2}, done.stdout.str()
    said = " ".join(done.stdout.str().split())
    assert "accuracy drop top1" in said
    assert "paired over 597 samples" in said
    assert "accuracy agreement verdict" in said
