"""Measuring inside a test: ``ngraph``, ``ngraph_target``, ``ngraph_models`` and ``ngraph_callable``."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Suite


def test_measuring_inside_a_test_gives_what_the_fixtures_give(suite: Suite) -> None:
    suite.write("""
from pytest_ngraph import BatchSweep, DepthSweep, Measurement, ModelSweep
def test_it(ngraph):
    one = ngraph.measure(model="block:conv", batch=4)
    assert isinstance(one, Measurement) and one.target == ngraph.target == "local:null[sample_us=20]"
    assert_speedup(one, at_least=1.3)
    several = ngraph.measure(model="block:conv", batch=[4])
    assert [each.workload.batch for each in several] == [4]
    sweep = ngraph.measure(model="block:conv", batches=[2, 4])
    assert isinstance(sweep, BatchSweep) and list(sweep) == [1, 2, 4]
    depths = ngraph.measure(model="block:conv", depths=[3])
    assert isinstance(depths, DepthSweep) and list(depths) == [1, 3]
    models = ngraph.measure(models=["block:conv", "block:mha"])
    assert isinstance(models, ModelSweep) and list(models) == ["block:conv", "block:mha"]
""")

    suite.run().assert_outcomes(passed=1)


def test_a_list_is_measured_as_one_group(suite: Suite) -> None:
    suite.write("""
from pytest_ngraph import assert_faster
def test_it(ngraph):
    small, large = ngraph.measure(model="block:conv", batch=[1, 8])
    assert_faster(large, small)
""")

    result = suite.run()

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*measuring local block:conv: 4 cells*", "*measured 1 launch *"])


def test_models_of_the_options_are_all_measured_where_a_call_names_none(suite: Suite) -> None:
    suite.write("""
from pytest_ngraph import BatchSweep, Measurement
from pytest_ngraph.errors import ClaimError
def test_several(ngraph):
    cells = ngraph.measure(batch=2)
    assert [one.workload.model.text for one in cells] == ["block:conv", "block:mha"]
    assert_speedup(cells[1], at_least=1.3)
    with pytest.raises(ClaimError, match="batches= beside several values of an axis; call it for each"):
        ngraph.measure(batches=[1, 2])
def test_one(ngraph):
    assert isinstance(ngraph.measure(model="block:mha", batch=2), Measurement)
    assert isinstance(ngraph.measure(model="block:mha", batches=[1, 2]), BatchSweep)
""")

    suite.run("--ngraph-model=block:conv,block:mha").assert_outcomes(passed=2)


def test_other_compilers_are_measured_beside_each_other_whatever_the_command_line_selects(suite: Suite) -> None:
    suite.write("""
from pytest_ngraph import assert_faster, assert_no_slower
def test_it(ngraph):
    fast, slow = ngraph.measure(model="block:conv", compiler=["null[sample_us=20]", "null[sample_us=400]"])
    assert (str(fast.cell.compiler), str(slow.cell.compiler)) == ("null[sample_us=20]", "null[sample_us=400]")
    assert fast.baseline.compiler == slow.baseline.compiler
    assert_faster(fast, slow)
    with pytest.raises(AssertionError, match="over local:null"):
        assert_no_slower(slow, fast)
    alone = ngraph.measure(model="block:conv", compiler="null[sample_us=400]", batches=[1, 4])
    assert str(alone.cell.compiler if hasattr(alone, "cell") else alone[1].cell.compiler) == "null[sample_us=400]"
    assert ngraph.target == "local:null[sample_us=20]"
""")

    result = suite.run("--ngraph-protocol=quick", "--ngraph-quick-gates=fail")

    result.assert_outcomes(passed=1)


def test_points_are_measured_as_one_group_and_nothing_that_they_combine_to(suite: Suite) -> None:
    suite.write("""
import pytest
from pytest_ngraph import assert_faster
from pytest_ngraph.errors import ClaimError
@pytest.mark.ngraph(compilers="null")
def test_it(ngraph):
    points = [{"compiler": "null[sample_us=5]", "batch": 8}, {"compiler": "null[sample_us=90]"}, {"batch": 2}]
    cells = ngraph.measure(points=points + points[:1], model="block:conv", width=8)
    assert [cell.cell.label for cell in cells] == [
        "local:null[sample_us=5] block:conv batch8 width8",
        "local:null[sample_us=90] block:conv batch1 width8",
        "local:null block:conv batch2 width8",
    ]
    assert_faster(cells[0], cells[1])
    refused = [
        ([], "points= is not a list of keywords"),
        ("batch", "points= is not a list of keywords"),
        ([{"batch": [1, 8]}], "point 1 of points= is 2 cells"),
        ([{"batches": [1, 8]}], "point 1 of points= is"),
        ([{}, {"model": "block:mha"}], "point 2 of points=: model= is for all of them"),
        ([{"budget": 4}], "point 1 of points=: budget= is for all of them"),
        ([{"size": 4}], "unknown keyword 'size'"),
    ]
    for points, said in refused:
        with pytest.raises(ClaimError) as error:
            ngraph.measure(points=points, model="block:conv")
        assert said in str(error.value), str(error.value)
""")

    suite.bare("--ngraph-protocol=quick", "--ngraph-baseline=null[sample_us=200]").assert_outcomes(passed=1)


def test_measuring_keeps_to_the_terms_of_the_marker_unless_told_otherwise(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(compilers="null[sample_us=20]", baseline="null[sample_us=99]")
def test_it(ngraph):
    assert str(ngraph.measure(model="block:conv").baseline.compiler) == "null[sample_us=99]"
    other = ngraph.measure(model="block:conv", baseline="null[sample_us=7]")
    assert str(other.baseline.compiler) == "null[sample_us=7]"
""")

    suite.bare("--ngraph-protocol=quick").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "given", ["null[fixed_us=900],null", "null,null[fixed_us=900]", "null[fixed_us=900],null[fixed_us=800],null"]
)
def test_each_item_measures_its_own_variant_of_a_compiler_only(suite: Suite, given: str) -> None:
    suite.write("""
def test_it(ngraph):
    one = ngraph.measure(model="block:conv", batch=1)
    assert one.target == ngraph.target
    several = ngraph.measure(model="block:conv", batch=[1, 8])
    assert [each.target for each in several] == [ngraph.target, ngraph.target]
    sweep = ngraph.measure(model="block:conv", batches=[1, 8])
    assert sweep.target == ngraph.target
""")

    suite.run(compiler=given).assert_outcomes(passed=given.count("null"))


def test_calls_of_one_test_are_kept_apart(suite: Suite) -> None:
    suite.write("""
from pytest_ngraph import assert_faster
def test_it(ngraph):
    assert_faster(ngraph.measure(model="block:conv", batch=8), ngraph.measure(model="block:conv", batch=1))
""")

    result = suite.run()

    result.assert_outcomes(failed=1)
    assert "were not measured together" in result.stdout.str()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("model='block:conv', bach=8", "unknown keyword 'bach' (allowed: model, "),
        ("model='block:conv', compilers='null'", "unknown keyword 'compilers'"),
        ("model='block:conv', batch=0", "batch=0: 0 is not allowed (expected whole numbers >= 1)"),
        ("model='block:conv', batch=[]", "batch=[] is empty"),
        ("batch=8", "no model: give model="),
        ("model='timm:resnet18', depth=2", "it takes: image_size"),
        ("model='block:conv', baseline='idenity'", "unknown compiler 'idenity'"),
        ("model='block:conv', compiler='idenity'", "compilers='idenity'"),
        ("model='block:conv', compiler=3", "compiler=3: 3 is not allowed (expected a compiler such as"),
        ("model='block:conv', compiler=[]", "compiler=[] is empty"),
        ("model='block:conv', batches=[1, 2], compiler=['null', 'identity']", "batches= beside several values"),
        ("model='block:conv', batches=[1, 2], depth=[1, 2]", "batches= beside several values of an axis"),
    ],
)
def test_a_wrong_call_fails_with_what_is_allowed(suite: Suite, call: str, said: str) -> None:
    suite.write(f"def test_it(ngraph): ngraph.measure({call})\n")

    result = suite.run()

    result.assert_outcomes(failed=1)
    assert "ngraph.measure: " in result.stdout.str()
    assert said in result.stdout.str()
    result.stdout.no_fnmatch_line("*pytest_ngraph/*.py:*")
    assert not suite.store.exists()


def test_a_call_that_the_options_narrow_to_nothing_skips(suite: Suite) -> None:
    suite.write("""
def test_gone(ngraph): ngraph.measure(model="block:conv", batch=8)
def test_left(ngraph): assert len(ngraph.measure(model="block:conv", batch=[2, 8])) == 1
def test_gone_points(ngraph): ngraph.measure(points=[{"batch": 8}, {"batch": 4}], model="block:conv")
def test_left_points(ngraph): assert len(ngraph.measure(points=[{"batch": 8}, {"batch": 2}], model="block:conv")) == 1
""")

    result = suite.run("--ngraph-batch=2")

    result.assert_outcomes(passed=2, skipped=2)
    assert "narrowed away on the command line" in result.stdout.str()


@pytest.mark.parametrize(
    ("compiler", "outcome", "said"),
    [
        ("broken", "failed", "local:broken block:conv batch1: the graph has a cycle"),
        ("choosy", "skipped", "unsupported: local:choosy block:conv batch1: no convolutions here"),
        ("absent", "skipped", "absent on local: not installed"),
    ],
)
def test_a_measurement_that_fails_inside_a_test_ends_it_like_a_fixture(
    suite: Suite, compiler: str, outcome: str, said: str
) -> None:
    suite.add_compilers()
    suite.write("def test_it(ngraph): ngraph.measure(model='block:conv').latency\n")

    result = suite.run(compiler=compiler)

    result.assert_outcomes(**{outcome: 1})
    assert said in result.stdout.str()


def test_a_baseline_that_is_not_installed_skips_inside_a_test(suite: Suite) -> None:
    suite.add_compilers()
    suite.write("def test_it(ngraph): ngraph.measure(model='block:conv').latency\n")

    result = suite.run("--ngraph-baseline=absent", compiler="mine")

    result.assert_outcomes(skipped=1)
    assert "unavailable: local:mine block:conv batch1: absent, the baseline, on local: not inst" in result.stdout.str()


def test_the_target_names_device_and_compiler(suite: Suite) -> None:
    suite.write("""
def test_it(ngraph_target):
    assert ngraph_target.device == "local"
    assert str(ngraph_target.compiler) == "null[sample_us=20]"
""")

    suite.run().assert_outcomes(passed=1)
    assert not suite.store.exists()


def test_models_are_a_mapping_measured_together(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(models=["block:conv", "timm:resnet18"], batch=8)
def test_it(ngraph_models):
    assert list(ngraph_models) == ["block:conv", "timm:resnet18"]
    assert {cell.workload.batch for cell in ngraph_models.values()} == {8}
    assert ngraph_models["timm:resnet18"].speedup.value > 1.3
""")

    result = suite.run()

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*measuring local block:conv, timm:resnet18: 4 cells*"])


def test_narrowed_models_leave_the_others(suite: Suite) -> None:
    suite.write("""
@pytest.mark.ngraph(models=["block:conv", "block:mha"])
def test_it(ngraph_models): assert list(ngraph_models) == ["block:mha"]
""")

    suite.run("--ngraph-model=block:mha").assert_outcomes(passed=1)


CALLABLE = """
@pytest.mark.ngraph(model="block:conv", batch=8)
def test_it(ngraph_callable{more}): {body}
"""


def test_the_compiled_model_is_called_in_this_process(suite: Suite) -> None:
    suite.write(
        "from time import perf_counter\n"
        + CALLABLE.format(
            more="",
            body="""
    began = perf_counter()
    for _ in range(20): ngraph_callable()
    assert perf_counter() - began > 20 * 200e-6
""",
        )
    )

    result = suite.run()

    result.assert_outcomes(passed=1)
    assert "measuring" not in result.stdout.str()


def test_a_call_that_generates_tokens_is_its_prompt_and_all_steps(suite: Suite) -> None:
    (suite.path / "net.py").write_text("def net(): ...")
    suite.write("""
from time import perf_counter
@pytest.mark.ngraph(model="net.py:net", decode=40)
def test_it(ngraph_callable):
    began = perf_counter()
    for _ in range(20): ngraph_callable()
    assert perf_counter() - began > 20 * (70 + 40 * 20) * 1e-6
""")

    suite.run().assert_outcomes(passed=1)


def test_pytest_benchmark_times_the_callable_and_says_that_there_is_no_verdict(suite: Suite) -> None:
    suite.write(CALLABLE.format(more=", benchmark", body="benchmark(ngraph_callable)"))

    result = suite.run("--benchmark-json=bench.json", "--benchmark-max-time=0.2", plugins="benchmark")

    result.assert_outcomes(passed=1)
    (entry,) = json.loads((suite.path / "bench.json").read_text())["benchmarks"]
    # 50 us and 20 us for each of 8 samples.
    assert 0.9 * 210e-6 < entry["stats"]["median"] < 3 * 210e-6
    assert entry["extra_info"]["ngraph"] == "local:null[sample_us=20] block:conv batch8: no verdict"


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ("neighbour='block:mha@null'", "ngraph_callable makes calls with nothing beside them"),
        ("scenario='server[rate=20]'", "ngraph_callable makes calls when it is called"),
    ],
)
def test_a_callable_says_that_nothing_runs_beside_it_and_nothing_arrives(suite: Suite, axis: str, said: str) -> None:
    suite.write(CALLABLE.format(more="", body="ngraph_callable()").replace("batch=8", f"batch=8, {axis}"))

    result = suite.run("-rs")

    result.assert_outcomes(skipped=1)
    assert said in result.stdout.str()


@pytest.mark.parametrize("body", ["pass", "ngraph_callable()"])
@pytest.mark.parametrize(
    ("compiler", "outcome", "said"),
    [
        ("broken", "failed", "the graph has a cycle"),
        ("choosy", "skipped", "no convolutions here"),
        ("picky", "skipped", "it only runs on Sundays"),
        ("absent", "skipped", "not installed (pip install"),
    ],
)
def test_a_callable_that_cannot_be_compiled_ends_its_test_in_the_call_phase(
    suite: Suite, compiler: str, outcome: str, said: str, body: str
) -> None:
    suite.add_compilers()
    suite.write(CALLABLE.format(more="", body=body))

    result = suite.run(compiler=compiler)

    result.assert_outcomes(**{outcome: 1})
    assert said in result.stdout.str()
    result.stdout.no_fnmatch_line("*pytest_ngraph/*.py:*")
