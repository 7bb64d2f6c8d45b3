"""The first screen of the report: the answer in a sentence, the scoreboard, what could not run, and what pays."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.answer.break_even import break_even_calls
from pytest_ngraph.report.answer.headline import facts_line, headline
from pytest_ngraph.report.answer.not_run import not_run
from pytest_ngraph.report.answer.scoreboard import EVERY_MODEL, Score, scoreboard
from pytest_ngraph.report.html.content import Content, content_of, verdict_rows
from pytest_ngraph.report.html.markup import first_screen
from pytest_ngraph.report.html.page import page
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Outcome
from pytest_ngraph.store.rows import LeftOut, RunRow, VerdictRow
from tests.conftest import skip_without
from tests.support.report_stores import NASTY, baseline_of, of, verdict

FACTS = {
    "cpu": "A processor", "cpus": 8, "python": "3.11.9", "git_commit": "0123abcd",
    "versions": {"torch": "2.13.0", "openvino": "2026.4.1", "pytest": "9"},
}  # fmt: skip


def run_of(protocol: str = "gate") -> RunRow:
    return RunRow(1, "u", "2026-01-01T00:00:00", None, "finished", (), 0, protocol, FACTS, fresh=False, resumed=False)


def faster(cell: Cell, speedup: float, spread: float = 0.01, **more: float) -> CellReport:
    """Return a cell that is so many times as fast as its baseline, with a spread to each side."""
    estimates = {"speedup": Estimate("speedup", speedup, speedup / (1 + spread), speedup * (1 + spread), 4)}
    estimates |= {name: Estimate(name, value, value, value, 4) for name, value in more.items()}
    record = CompileRecord(Outcome.OK, placement=(("provider", "CPU"), ("threads", "8")))
    return CellReport(cell, baseline_of(cell), estimates, None, record)


def failed(cell: Cell, outcome: Outcome, reason: str) -> CellReport:
    return CellReport(cell, baseline_of(cell), {}, CompileRecord(outcome, reason), None)


MODELS = ("timm:resnet18", "timm:resnet50", "timm:swin_tiny", "timm:deit_small")


def scores_of(*reports: CellReport, protocol: str = "gate") -> dict[tuple[str, str], Score]:
    return {(score.compiler, score.family): score for score in scoreboard(reports, protocol)}


# The scoreboard


def test_a_mean_is_geometric_and_each_model_counts_once() -> None:
    # Twice and half as fast are as fast together; one model with many batches does not outvote another.
    reports = [faster(of("timm:resnet18", batch=batch), 2.0) for batch in (1, 2, 4)]
    found = scores_of(*reports, faster(of("timm:resnet50", batch=1), 0.5))

    assert found["openvino", EVERY_MODEL].value == pytest.approx(1.0)
    assert (found["openvino", EVERY_MODEL].models, found["openvino", EVERY_MODEL].cells) == (2, 4)
    assert found["openvino", EVERY_MODEL].claim == ""


def test_from_three_models_on_the_interval_is_over_models_below_over_launches() -> None:
    four = scores_of(*(faster(of(model), speedup) for model, speedup in zip(MODELS, (1.9, 2.0, 2.1, 2.2), strict=True)))
    two = scores_of(*(faster(of(model), 2.0) for model in MODELS[:2]))

    score = four["openvino", EVERY_MODEL]
    # ln of the four: mean 0.7155, deviation 0.0631; the t of 99 % with three degrees of freedom is 5.8409.
    assert score.low is not None
    assert math.log(score.value / score.low) == pytest.approx(5.8409 * 0.0631 / 2, rel=2e-3)
    assert (score.is_over_models, score.claim) == (True, "faster")
    assert "interval over models" in score.basis
    # One that spreads by more than it is faster is no claim, whatever its launches say.
    wide = scores_of(*(faster(of(model), speedup) for model, speedup in zip(MODELS, (0.9, 1.1, 3, 1.4), strict=True)))
    assert wide["openvino", EVERY_MODEL].claim == ""
    assert two["openvino", EVERY_MODEL].low == pytest.approx(2 / 1.01)
    assert "interval over launches" in two["openvino", EVERY_MODEL].basis


def test_few_models_without_error_control_or_of_one_launch_are_no_claim() -> None:
    once = replace(faster(of("timm:resnet18"), 3.0), estimates={"speedup": Estimate("speedup", 3.0, 0.0, math.inf, 1)})

    assert scores_of(once)["openvino", EVERY_MODEL].claim == ""
    assert scores_of(faster(of("timm:resnet18"), 3.0), protocol="quick")["openvino", EVERY_MODEL].low is None
    assert scores_of(faster(of("timm:resnet18"), 3.0))["openvino", EVERY_MODEL].claim == "faster"


def test_families_stand_apart_and_what_a_compiler_lacks_is_said() -> None:
    reports = [faster(of(model), 2.0) for model in MODELS]
    reports += [faster(of(model, "onnxruntime"), 1.5) for model in MODELS[:2]]
    found = scores_of(*reports)

    assert found["openvino", "ResNets"].cells == 2
    assert found["onnxruntime", EVERY_MODEL].missing == 2
    assert "2 cells missing" in found["onnxruntime", EVERY_MODEL].basis
    assert ("onnxruntime", "Swins") not in found


@pytest.mark.parametrize(
    ("axes", "done"),
    [
        ({"optimize": "channel_prune=0.5"}, "channel_prune=0.5"),
        ({"precision": "int8"}, "int8"),
        ({"precision": "int8[by=nncf]", "optimize": "weight_prune=0.9"}, "weight_prune=0.9+int8[by=nncf]"),
    ],
)
def test_pruned_and_quantised_networks_have_no_part_in_the_mean_of_dense_ones(axes: dict[str, Any], done: str) -> None:
    """A mean of a model and of what is left of it, or of its times in f32 and in int8, is of no network there is."""
    dense = [faster(of(model), 2.0) for model in MODELS]
    pruned = [replace(one.cell.workload, **axes) for one in dense]
    cells = [replace(one.cell, workload=workload) for one, workload in zip(dense, pruned, strict=True)]
    found = scores_of(*dense, *(faster(cell, 8.0) for cell in cells))

    assert found["openvino", EVERY_MODEL].value == pytest.approx(2)
    assert found["openvino", f"all models, {done}"].value == pytest.approx(8)
    assert found["openvino", f"ResNets, {done}"].cells == 2
    # A compiler that lacks what is pruned lacks nothing of the dense models.
    assert [score.missing for score in found.values()] == [0] * len(found)
    said = headline(run_of(), [], [], [*found.values()], [])
    assert "2.00x" in str(said)
    assert "8.00x" not in str(said)
    # Alone they are what the run is about, and the sentence says what was done to them.
    alone = headline(run_of(), [], [], scoreboard([faster(cell, 8.0) for cell in cells], "gate"), [])
    assert f"the throughput of identity, in geometric mean over 4 models ({done})" in str(alone)


def test_controls_and_other_sides_have_no_part_in_a_mean() -> None:
    cell = of("timm:resnet18")
    mine = faster(cell, 2.0)
    strange = [replace(cell, replica=1), replace(cell, side="main"), replace(cell, rebuild=True)]

    assert scores_of(mine, *(faster(each, 9.0) for each in strange))["openvino", EVERY_MODEL].value == pytest.approx(2)


# The sentence


def said(*reports: CellReport, verdicts: tuple[VerdictRow, ...] = (), protocol: str = "gate") -> str:
    """Return the sentence that the page of such a run opens with."""
    skip_without("altair", "vl_convert")
    text = page(content_of(run_of(protocol), reports, verdicts))
    found = re.search(r'<p class="answer">(.*?)</p>', text, re.DOTALL)
    assert found is not None
    return found[1].replace("&#x27;", "'")


def test_the_sentence_says_what_holds_what_is_faster_and_what_fails() -> None:
    reports = [faster(of(model), 2.0 + number / 100) for number, model in enumerate(MODELS)]
    verdicts = (
        verdict(of(MODELS[0]), "pass", 1.2, (2, 1.9, 2.1)),
        verdict(of(MODELS[1]), "fail", 3.0, (2.01, 1.9, 2.1)),
        verdict(of(MODELS[2]), "fail", 2.2, (2.02, 2.0, 2.1)),
        verdict(of(MODELS[3]), "inconclusive", 2.0, (2.03, 1.9, 2.1)),
    )
    broken = failed(of("timm:vit", "tvm"), Outcome.FAILED, "no such operator")

    assert said(*reports, broken, verdicts=verdicts) == (
        "1 of 4 claims holds, 2 fail, 1 is undecided; openvino has 2.01x [1.98x, 2.05x] the throughput of identity, in "
        "geometric mean over 4 models; furthest from its bound is speed-up of xeon:openvino timm:resnet50 batch8 over "
        "identity: 2.01x [1.90x, 2.10x] against 3.00x, 33 % below, and 1 more fails; 1 cell could not run as asked "
        "(tvm)."
    )


def test_there_is_no_claim_of_a_faster_compiler_where_the_interval_holds_1() -> None:
    reports = [faster(of(model), speedup) for model, speedup in zip(MODELS, (0.9, 1.1, 3, 1.4), strict=True)]

    assert said(*reports).startswith("No claim was made; no claim of a faster compiler: openvino has 1.43x [")
    assert "an interval that holds 1" in said(*reports)


def test_the_fastest_is_one_that_ran_everything() -> None:
    # The means of the two are of different models.
    reports = [faster(of(model), 2.0) for model in MODELS]
    reports += [faster(of(MODELS[0], "onnxruntime"), 9.0)]

    assert "; highest is openvino with 2.00x" in said(*reports)


def test_a_higher_mean_of_which_nothing_is_claimed_hides_no_compiler_that_is_faster() -> None:
    unclear = [faster(of(model), speedup) for model, speedup in zip(MODELS, (0.9, 1.1, 3, 1.4), strict=True)]
    clear = [faster(of(model, "onnxruntime"), 1.2) for model in MODELS]

    assert "; onnxruntime has 1.20x [" in said(*unclear, *clear)
    assert "no claim" not in said(*unclear, *clear)
    # One that is slower is not the answer where another may be faster.
    slower = [faster(of(model, "onnxruntime"), 0.9) for model in MODELS]
    assert "no claim of a faster compiler: openvino has 1.43x [" in said(*unclear, *slower)


def test_one_that_lacks_a_cell_is_faster_all_the_same() -> None:
    slower = [faster(of(model), 0.9) for model in MODELS]
    quick = [faster(of(model, "onnxruntime"), 2.0) for model in MODELS[:3]]

    sentence = said(*slower, *quick)

    assert "highest is onnxruntime with 2.00x [" in sentence
    assert "over 3 models, 1 cell missing" in sentence
    assert "no compiler is faster" not in sentence


def test_what_is_slower_is_said_to_be() -> None:
    assert "; openvino has 0.50x [0.50x, 0.51x] the throughput" in said(faster(of(MODELS[0]), 0.5))
    two = [faster(of(MODELS[0]), 0.5), faster(of(MODELS[0], "onnxruntime"), 0.9)]
    assert "no compiler is faster than identity: onnxruntime is next with 0.90x" in said(*two)


def test_a_run_with_nothing_or_only_failures_has_its_sentence() -> None:
    assert said() == "No claim was made."
    only = [failed(of(model, name), Outcome.CRASH, "signal 11") for model in MODELS for name in ("openvino", "tvm")]
    assert said(*only) == "No claim was made; 8 cells could not run as asked (openvino, tvm)."


def test_what_quick_shows_is_no_verdict() -> None:
    row = verdict(of(MODELS[0]), "not judged", 1.2, (2, 1.9, 2.1))
    assert said(faster(of(MODELS[0]), 2.0), verdicts=(row,), protocol="quick").startswith(
        "1 claim shown, none judged: the protocol quick has no error rates; no claim of a faster compiler: openvino "
        "has 2.00x the throughput of identity, in geometric mean over 1 model, without an interval"
    )


def test_the_line_below_says_what_the_answer_rests_on() -> None:
    report = faster(of(MODELS[0]), 2.0, throughput=100.0)
    line = dict(facts_line(run_of(), [report], ["noise: noisy in this run: equal code scattered by 2.1 %"]))

    assert line == {
        "machine": "A processor, 8 CPUs", "versions": "openvino 2026.4.1, Python 3.11.9", "threads": "8",
        "protocol": "gate", "commit": "0123abcd", "noise": "noisy", "launches that count": "4 a cell",
    }  # fmt: skip
    gpu = {"name": "NVIDIA H200", "driver": "580.1"}
    on_gpu = dict(facts_line(replace(run_of(), environment={**FACTS, "gpu": gpu}), [report], []))
    assert on_gpu["machine"] == "A processor, 8 CPUs, NVIDIA H200"
    # NVML did not say, or a store is somebody's own.
    for other in ({"name": None}, {}, None, "a text"):
        unnamed = dict(facts_line(replace(run_of(), environment={**FACTS, "gpu": other}), [report], []))
        assert unnamed["machine"] == "A processor, 8 CPUs"
    empty = dict(facts_line(replace(run_of("quick"), environment={}), [], []))
    assert (empty["machine"], empty["protocol"]) == ("unknown", "quick (no error control)")
    assert (empty["noise"], empty["launches that count"]) == ("not measured", "none")


def test_names_of_any_length_are_cut_in_the_sentence() -> None:
    names = [Cell("xeon", CompilerSpec("x" * 5000), of(model).workload) for model in MODELS]
    text = headline(run_of(), [], [], scoreboard([faster(cell, 2.0) for cell in names], "gate"), [])
    assert len(str(text)) < 400


# What could not run


def test_a_cell_that_was_only_evaluated_ran_as_it_was_asked_to() -> None:
    accuracy = Estimate("accuracy:top1", 0.97, 0.94, 0.99, 1)
    evaluated = CellReport(of(MODELS[0]), None, {accuracy.metric: accuracy}, None, None)
    nothing = CellReport(of(MODELS[1]), None, {}, None, None)
    assert [(one.model, one.outcome) for one in not_run([evaluated, nothing])] == [(MODELS[1], "not measured")]


def test_what_could_not_run_is_together_by_reason_and_says_of_how_many_cells() -> None:
    reports = [
        faster(of(MODELS[0], "tvm", 1), 2.0),
        failed(of(MODELS[0], "tvm", 8), Outcome.OOM, "no memory"),
        failed(of(MODELS[0], "tvm", 16), Outcome.OOM, "no memory"),
        failed(of(MODELS[1]), Outcome.MISMATCH, "outputs differ"),
    ]
    fell = faster(of(MODELS[2], "onnxruntime"), 1.1)
    assert fell.record is not None
    fell = replace(fell, record=replace(fell.record, placement=(("provider", "CUDA"), ("nodes", "CUDA:9,CPU:3"))))
    found = [(one.compiler, one.model, one.outcome, one.reason, one.which) for one in not_run([*reports, fell])]

    assert found == [
        ("onnxruntime", MODELS[2], "fell back", "nodes CUDA:9,CPU:3", "its only cell"),
        ("openvino", MODELS[1], "mismatch", "outputs differ", "its only cell"),
        ("tvm", MODELS[0], "oom", "no memory", "2 of 3 cells: batch 8, 16"),
    ]


def test_what_is_not_installed_is_skipped_unless_it_was_measured_after_all() -> None:
    reports = [faster(of(MODELS[0], "tvm", 1), 2.0)]
    left_out = [LeftOut("xeon", name, MODELS[0], NASTY, count) for name, count in (("tvm", 2), ("other[a=1]", 1))]
    found = not_run(reports, left_out)

    assert [(one.compiler, one.outcome, one.which) for one in found] == [("other[a=1]", "skipped", "its only cell")]
    run = replace(run_of(), left_out=tuple(left_out))
    text = str(first_screen.missing(content_of(run, reports, [])))
    assert NASTY not in text
    assert 'data-outcome="skipped"' in text
    said = first_screen.answer(content_of(run, reports, []), [], [])
    assert "1 cell could not run as asked (other[a=1])" in said


def test_what_is_not_installed_for_some_cells_is_skipped_beside_those_that_were_measured() -> None:
    """Such as those of another precision, of a step that prunes, or with another baseline."""
    measured, lacking, further = of(MODELS[0], "tvm", 1), of(MODELS[0], "tvm", 2), of(MODELS[0], "tvm", 4)
    rows = [
        LeftOut("xeon", "tvm", MODELS[0], "nncf is not installed", 2, (lacking.label, measured.label)),
        LeftOut("xeon", "tvm", MODELS[0], "torch_pruning is not installed", 1, (further.label,)),
        LeftOut("xeon", "tvm", MODELS[0], "was not installed", 1, (measured.label,)),
    ]
    found = not_run([faster(measured, 2.0)], rows)
    assert [(one.outcome, one.reason, one.cells) for one in found] == [
        ("skipped", "nncf is not installed", 1),
        ("skipped", "torch_pruning is not installed", 1),
    ]


def test_what_another_side_could_not_run_is_no_fault_of_this_one() -> None:
    here = of(MODELS[0], "openvino", 8)
    there = replace(here, side="main@1234567")
    reports = [faster(here, 2.0), failed(there, Outcome.CRASH, "it crashed there")]
    assert not_run(reports) == []
    # Where that side is what the run is about it is.
    assert [one.outcome for one in not_run(reports[1:])] == ["crash"]
    shown = str(first_screen.results(content_of(run_of(), reports, [])))
    assert shown.count("of main@1234567") == 1


# What pays


@pytest.mark.parametrize(
    ("speedup", "spread", "more", "calls"),
    [
        # A call of 10 ms at twice the speed saves 10 ms of the baseline's 20.
        (2.0, 0.01, {"latency": 0.01, "compile_seconds": 5.0}, 500),
        (2.0, 0.01, {"latency": 0.01, "compile_seconds": 5.0, "tuning_seconds": 95.0}, 10_000),
        (0.5, 0.01, {"latency": 0.01, "compile_seconds": 5.0}, math.inf),
        (1.01, 0.05, {"latency": 0.01, "compile_seconds": 5.0}, None),
        (2.0, 0.01, {"latency": 0.01}, None),
        (2.0, math.inf, {"latency": 0.01, "compile_seconds": 5.0}, None),
    ],
)
def test_compiling_pays_after_what_it_took_over_what_a_call_saves(
    speedup: float, spread: float, more: dict[str, float], calls: float | None
) -> None:
    found = break_even_calls(faster(of(MODELS[0]), speedup, spread, **more))
    assert found == (calls if calls is None else pytest.approx(calls))


# One interval for one number


def judged(content: Content) -> Estimate:
    return content.reports[0].estimates["speedup"]


def test_a_number_that_a_gate_judged_has_the_interval_of_the_gate_everywhere() -> None:
    report = faster(of(MODELS[0]), 2.0)
    row = verdict(of(MODELS[0]), "inconclusive", 2.0, (2.0, 1.8, 2.3))

    content = content_of(run_of(), [report], [row])
    assert (judged(content).low, judged(content).high) == (1.8, 2.3)
    assert verdict_rows(content)[0]["text"] == str(judged(content))
    # One of other launches, of another comparison, or that was not judged, is another number.
    others = (
        replace(row, launches=3),
        replace(row, estimate=2.1),
        replace(row, verdict="not judged"),
        replace(row, metric="throughput"),
        replace(row, low=None),
        replace(row, extra={}),
    )
    for other in others:
        assert judged(content_of(run_of(), [report], [other])) == report.estimates["speedup"]


def test_cells_stand_in_their_natural_order_whatever_order_they_were_stored_in() -> None:
    names = ["timm:model10", "timm:model2"]
    cells = [of(name, compiler, batch) for name in names for compiler in ("tvm", "openvino") for batch in (16, 2, 1)]
    found = content_of(run_of(), [faster(cell, 2.0) for cell in cells], []).reports

    assert [(one.cell.workload.model.text, one.cell.workload.batch, one.cell.compiler.name) for one in found] == [
        (name, batch, compiler) for name in reversed(names) for batch in (1, 2, 16) for compiler in ("openvino", "tvm")
    ]


# Without a script


def test_the_tables_can_be_read_without_a_script(tmp_path: Path) -> None:
    skip_without("altair", "vl_convert")
    nasty = '<b onclick="x">&\u202e'
    report = faster(of(f"models.py:{nasty}"), 2.0, throughput=123.0)
    row = verdict(of(f"models.py:{nasty}"), "fail", 3.0, (2.0, 1.9, 2.1))
    text = page(content_of(run_of(), [report, failed(of(nasty, "tvm"), Outcome.FAILED, nasty)], [row]))
    own = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)

    assert nasty not in own
    assert "<b onclick" not in own
    assert "\u202e" not in own
    assert own.count("<table") == 6
    for words in ("33 % below", "2.00x [1.90x, 2.10x]", "123 /s", "times the throughput of identity", "A processor"):
        assert words in own
