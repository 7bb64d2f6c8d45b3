"""Prompts and tokens in real workers: what runs them right, what their times are of, and who is found out."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.compilers.torch.inductor import find_cxx
from pytest_ngraph.launches.client import Job
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Outcome, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import Suite, skip_without
from tests.support.measuring import ROOT, SMALL, TIMED, job, launch
from tests.support.pages import blocks

STEPS = 4
SUITE = """
import pytest
from pytest_ngraph import assert_first_token, assert_per_token, assert_tokens_per_second

@pytest.mark.ngraph(model="block:mha")
def test_no_tokens(ngraph_cell):
    with pytest.raises(Exception, match="its calls generate no tokens; give decode=N in the marker"):
        assert_first_token(ngraph_cell, at_most=1.0)

@pytest.mark.ngraph(model="m.py:factory", decode=4)
def test_tokens(ngraph_cell):
    first = assert_first_token(ngraph_cell, at_most=1.0)
    assert_per_token(ngraph_cell, at_most=1.0)
    assert_tokens_per_second(ngraph_cell, at_least=0.1)
    assert first.metric == "time_to_first_token"
    assert ngraph_cell.time_to_first_token.value < ngraph_cell.latency.value
"""
WITHOUT = replace(SMALL, reference=False)
CHEATS = {
    # What is wrong is seen in the logits, token by token.
    "skip": (Outcome.MISMATCH, "output 1 is off by"),
    "forget": (Outcome.MISMATCH, "output 1 is off by"),
    # What is right and was not done in time is seen on tokens that nobody has seen or would guess.
    "cache": (Outcome.FAILED, "its steps: its calls are faster on inputs it has seen"),
    "guess": (Outcome.FAILED, "its steps: its calls are faster on inputs it has seen"),
    # What the call before has left is seen in the logits of calls that follow on tokens that nobody has seen.
    "keep": (Outcome.MISMATCH, "on inputs that it had not seen before: output "),
    "pile": (Outcome.MISMATCH, "on inputs that it had not seen before: output "),
    "recompile": (Outcome.UNSTABLE, "it was compiled again"),
    "other": (Outcome.FAILED, "cheat_tokens: its compile() gave NoDecoder for decode=4"),
}


def decoding(compiler: str, model: str = "Decoder", steps: int = STEPS, batch: int = 2) -> Cell:
    reference = parse_model(f"tests/support/decoders.py:{model}", (ROOT,))
    return Cell("local", CompilerSpec.parse(compiler), Workload(reference, batch=batch, decode=steps))


def a_job(folder: Path) -> Job:
    plain = job(folder)
    named = {"cheat_tokens": "COMPILER", "cheat_state": "STATE", "traced": "TRACED"}
    cheats = {name: f"tests.support.cheating_decoders:{place}" for name, place in named.items()}
    return replace(plain, places={**plain.places, **cheats})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_without("torch")
    return tmp_path_factory.mktemp("decoding")


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.real
@pytest.mark.parametrize("compiler", ["identity", "onnxruntime", "openvino"])
def test_a_decoder_gives_the_logits_of_the_reference_token_by_token(folder: Path, compiler: str) -> None:
    skip_without(*{"identity": ("torch",), "onnxruntime": ("onnx", "onnxruntime")}.get(compiler, ("onnx", compiler)))
    cells = decoding(compiler), decoding(compiler, "Named", steps=1, batch=1)
    found = launch(a_job(folder), *cells, protocol=WITHOUT)
    for cell in cells:
        record, steps = found.records[cell], cell.workload.decode or 0
        assert record.outcome in TIMED, record.reason
        assert record.outputs_told_apart
        assert (record.max_error or 0) < 1e-5
        for (at, _), visit in found.visits.items():
            assert at != cell or visit.tokens == 1 + steps
            assert sum(visit.request_ns) <= sum(visit.wall_ns)


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.real
def test_openvino_keeps_the_cache_in_variables_that_begin_anew_with_each_call(folder: Path) -> None:
    skip_without("onnx", "openvino")
    stateful, named = decoding("openvino[stateful=on]"), decoding("openvino[stateful=on]", "Named", steps=1, batch=1)
    cheat = decoding("cheat_state")
    found = launch(a_job(folder), stateful, named, cheat, protocol=WITHOUT)
    for cell in (stateful, named):
        record = found.records[cell]
        assert record.outcome in TIMED, record.reason
        assert (record.max_error or 0) < 1e-5
        assert dict(record.placement)["cache"] == "4 variables of the model, f32 (f32)"
    assert found.records[cheat].outcome is Outcome.MISMATCH
    assert "on inputs that it had not seen before: output " in found.records[cheat].reason


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.real
def test_a_step_is_one_graph_for_all_tokens_or_is_refused(folder: Path) -> None:
    once, counting = decoding("traced"), decoding("traced", "Counting")
    found = launch(a_job(folder), once, counting, protocol=WITHOUT)
    record = found.records[once]
    assert record.outcome in TIMED, record.reason
    assert dict(record.placement)["recompiles"] == "0"
    assert found.records[counting].outcome is Outcome.UNSUPPORTED
    assert found.records[counting].reason.startswith("torch.compile compiled its step again for each token, 3 times")


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.real
def test_inductor_compiles_a_prompt_and_a_step(folder: Path) -> None:
    if find_cxx() is None:
        pytest.skip("no C++ compiler")
    cell = decoding("inductor", "Summing")
    record = launch(replace(a_job(folder), timeout_seconds=300), cell, protocol=WITHOUT).records[cell]
    assert record.outcome in TIMED, record.reason
    assert record.outputs_told_apart
    assert (record.max_error or 0) < 1e-5
    placement = dict(record.placement)
    assert placement["recompiles"] == "0"
    assert "recompiles_while_timed" not in placement


@pytest.mark.real
def test_the_first_token_and_the_others_are_timed_apart(folder: Path) -> None:
    # 20 ms to the first token, and half a millisecond for each of four more.
    slow, quick = decoding("null[fixed_us=20000,sample_us=0,step_us=500]"), decoding("null[step_us=30000]", steps=1)
    found = launch(a_job(folder), slow, quick, protocol=WITHOUT)
    for cell, first_ns, step_ns in ((slow, 20_000_000, 500_000), (quick, 70_000, 30_000_000)):
        tokens = 1 + (cell.workload.decode or 0)
        visits = [visit.request_ns for (at, _), visit in found.visits.items() if at == cell]
        firsts = [each for taken in visits for each in taken[::tokens]]
        others = [each for taken in visits for place, each in enumerate(taken) if place % tokens]
        # However busy the machine is, in its best moment the shorter part has nothing of the longer one.
        assert first_ns <= min(firsts)
        assert step_ns <= min(others)
        assert min(min(firsts), min(others)) < max(first_ns, step_ns)


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.real
def test_who_gives_wrong_logits_or_has_them_from_elsewhere_is_found(folder: Path) -> None:
    cells = {do: decoding(f"cheat_tokens[do={do}]", "Busy") for do in ("nothing", *CHEATS)}
    found = launch(a_job(folder), *cells.values(), protocol=WITHOUT)
    assert found.records[cells["nothing"]].outcome in TIMED, found.records[cells["nothing"]].reason
    said = {do: found.records[cells[do]] for do in CHEATS}
    assert {do: record.outcome for do, record in said.items()} == {do: outcome for do, (outcome, _) in CHEATS.items()}
    for do, (_, reason) in CHEATS.items():
        assert reason in said[do].reason


@pytest.mark.real
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("Forgetful", "its step() gives the same logits whatever the cache holds"),
        ("Growing", "(expected the same shapes: prefill() makes room for slots= tokens, and step() writes at its pos"),
        ("Plain", "it cannot decode: Plain has no prefill and no step; a module that decodes offers both of these"),
    ],
)
def test_a_module_that_breaks_the_contract_is_refused_before_any_compiler_sees_it(
    model: str, said: str, tmp_path: Path
) -> None:
    skip_without("torch")
    from pytest_ngraph.errors import SpecError
    from pytest_ngraph.workloads import artifacts

    with pytest.raises(SpecError) as refused:
        artifacts.build(decoding("identity", model).workload, 0, tmp_path / "artifacts", False)
    assert said in str(refused.value)


@pytest.mark.real
def test_the_suite_and_the_model_of_the_page_run(suite: Suite) -> None:
    skip_without("torch", "onnx", "onnxscript", "onnxruntime")
    tests, net, *_ = (block.code for block in blocks(ROOT / "docs" / "decoding.md") if block.info == "python")
    (suite.path / "decoder.py").write_text(net, encoding="utf-8")
    suite.pytester.makepyfile(test_decoder=tests)
    done = suite.bare("--ngraph-compiler=onnxruntime", "--ngraph-protocol=quick", "--ngraph-sequence=16")
    assert done.parseoutcomes() == {"passed": 1}, done.stdout.str()


@pytest.mark.real
def test_a_suite_claims_tokens_and_exports_them(suite: Suite) -> None:
    suite.write(SUITE)
    (suite.pytester.path / "m.py").write_text("def factory():\n    raise AssertionError\n", encoding="utf-8")
    null = "null[fixed_us=20000,sample_us=0,step_us=300]"
    outcome = suite.run("--ngraph-protocol=quick", "--ngraph-export=rows.csv", "--ngraph-baseline=null", compiler=null)
    outcome.assert_outcomes(passed=2)
    with (suite.pytester.path / "rows.csv").open(encoding="utf-8") as file:
        rows = {(row["decode"], row["metric"]): float(row["value"]) for row in csv.DictReader(file)}
    # A busy machine makes them longer.
    assert rows["4", "time_to_first_token"] >= 20e-3
    assert 0.3e-3 <= rows["4", "time_per_token"] < rows["4", "time_to_first_token"]
    assert rows["4", "tokens_per_second"] == pytest.approx(5 / rows["4", "latency"], rel=0.01)
    assert not {metric for decode, metric in rows if not decode} & {"time_to_first_token", "tokens_per_second"}
