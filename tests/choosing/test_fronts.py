"""Fronts of what is stored: who is on them, who is not and by whom, and what says nothing."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.choosing.deciding import no_test_on
from pytest_ngraph.choosing.deciding import test_of_front as written_test
from pytest_ngraph.choosing.front import Front, Place
from pytest_ngraph.choosing.objectives import OBJECTIVES, limit, objectives, read_tolerances
from pytest_ngraph.choosing.written import front_json, front_lines
from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.fronts.stored import Asked, fronts_of
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.store.sqlite import Store
from tests.conftest import ROOT
from tests.support.deployed_stores import Deployed, write_deployed
from tests.support.front_stores import Config, fronts, places, write

FRONT, OFF, UNDECIDED, OUT = Place.FRONT, Place.OFF, Place.UNDECIDED, Place.OUT
GIB = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def front(store: Path, configs: dict[str, Config], **asked: object) -> Front:
    (one,) = fronts(store, **asked) if write(store, configs) else []  # type: ignore[arg-type]
    return one


def said(one: Front) -> str:
    return " ".join(" ".join(front_lines(one)).split())


def test_the_front_is_what_nothing_is_shown_to_be_better_than(store: Path) -> None:
    one = front(store, {"fast": Config(10), "small": Config(20, GIB // 20), "bad": Config(30, GIB)})

    assert places(one) == {"fast batch1": FRONT, "small batch1": FRONT, "bad batch1": OFF}
    (bad,) = one.at(OFF)
    assert {one.candidates[rival.number].name for rival in bad.by} == {"fast batch1", "small batch1"}
    text = said(one)
    assert "- bad batch1: off the front" in text
    assert "dominated by fast batch1: latency 3.0" in text
    assert "at most 1 % of such fronts throw off a configuration that nothing dominates" in text


def test_noise_leaves_it_undecided_and_says_with_whom_and_about_how_many_launches_it_takes(store: Path) -> None:
    one = front(store, {"a": Config(10, scatter=0.03), "b": Config(11.5, scatter=0.03)}, over=["latency"])

    assert places(one) == {"a batch1": UNDECIDED, "b batch1": UNDECIDED} or places(one)["b batch1"] is UNDECIDED
    (b,) = [each for each in one.at(UNDECIDED) if each.candidate.name == "b batch1"]
    (rival,) = b.open
    assert rival.open == ["latency"]
    assert rival.launches is not None
    assert rival.launches > 6
    assert f"a batch1 may dominate it, open by latency (about {rival.launches} launches would show it)" in said(one)


def test_twins_are_as_good_as_one_another(store: Path) -> None:
    one = front(store, {"a": Config(10), "b": Config(10), "c": Config(10)})
    assert set(places(one).values()) == {FRONT}
    strict = fronts(store, tolerances={"": 0.0})[0]
    assert OFF not in places(strict).values()


def test_a_little_better_on_one_and_a_little_worse_on_the_other_is_no_reason(store: Path) -> None:
    one = front(store, {"a": Config(10, 100 << 20), "b": Config(9.7, 103 << 20)})
    assert places(one) == {"a batch1": FRONT, "b batch1": FRONT}


def test_exactly_equal_sizes_are_equal_and_the_faster_one_dominates(store: Path) -> None:
    one = front(store, {"a": Config(10), "b": Config(20)}, over=["latency", "size"], tolerances={"": 0.0})
    assert places(one) == {"a batch1": FRONT, "b batch1": OFF}
    assert "size equal" in said(one)


@pytest.mark.parametrize("launches", [1, 2])
def test_one_or_two_launches_decide_nothing(store: Path, launches: int) -> None:
    one = front(store, {"a": Config(10), "b": Config(100, launches=launches)}, over=["latency"])
    assert places(one) == {"a batch1": UNDECIDED, "b batch1": UNDECIDED}
    assert f"{launches} launch{'es' * (launches > 1)} of both, and 3 say something" in said(one)


@pytest.mark.parametrize("outcome", [Outcome.MISMATCH, Outcome.FAILED, Outcome.UNSUPPORTED, Outcome.CRASH])
def test_one_whose_outputs_are_wrong_or_that_failed_dominates_nothing(store: Path, outcome: Outcome) -> None:
    """Its earlier launches are far better than all: what it computes now is not what was asked for."""
    one = front(store, {"wrong": Config(1, GIB // 100, outcome=outcome), "right": Config(10)})
    assert places(one) == {"wrong batch1": OUT, "right batch1": FRONT}
    assert f"x wrong batch1: left out, {outcome}: outputs differ by 7" in said(one)


def test_what_was_not_measured_is_said_and_is_neither_best_nor_worst(store: Path) -> None:
    configs = {"a": Config(10), "b": Config(20, None), "c": Config(5, None)}
    one = front(store, configs)
    # a is shown to be slower than c, whose memory is unknown; b is slower than a, and may take less memory.
    assert places(one) == {"a batch1": UNDECIDED, "b batch1": UNDECIDED, "c batch1": FRONT}
    assert "memory not measured" in said(one)
    assert "memory not compared (" in said(one)
    (shared,) = fronts(store, None)
    assert [each.name for each in shared.over] == ["latency", "throughput", "size"]
    assert "memory: measured of 1 of 3 configurations, so left out" in shared.left_out


def test_an_objective_that_nothing_has_leaves_all_undecided(store: Path) -> None:
    one = front(store, {"a": Config(10, None), "b": Config(20, None)}, over=["memory"])
    assert set(places(one).values()) == {UNDECIDED}
    assert one.at(UNDECIDED)[0].open[0].launches is None


def test_one_cell_is_its_own_front_and_none_is_no_front(store: Path) -> None:
    one = front(store, {"a": Config(10)})
    assert places(one) == {"a batch1": FRONT}
    write(store, {}, seed=2)
    assert fronts(store) == []


def test_all_failed_is_an_empty_front(store: Path) -> None:
    one = front(store, {"a": Config(outcome=Outcome.CRASH), "b": Config(outcome=Outcome.CRASH)}, over=None)
    assert set(places(one).values()) == {OUT}
    assert "nothing to compare" in said(one)


def test_models_and_devices_are_never_mixed(store: Path) -> None:
    configs = {"a": Config(10), "b": Config(20)}
    others = {f"{name}2": replace(config, model="timm:vgg16", compiler=name) for name, config in configs.items()}
    away = {f"{name}3": replace(config, device="orin", compiler=name, ms=1) for name, config in configs.items()}
    write(store, {**configs, **others, **away})
    found = fronts(store)
    assert [str(one.task) for one in found] == [
        "orin: timm:resnet18", "xeon: timm:resnet18", "xeon: timm:vgg16",
    ]  # fmt: skip
    assert all(len(one.candidates) == 2 for one in found)


def test_launches_of_other_runs_and_protocols_are_no_part_of_it(store: Path) -> None:
    write(store, {"a": Config(1), "b": Config(2)}, protocol="quick")
    (one,) = fronts(store)
    assert one.by_points
    assert "by points: the protocol quick controls no error" in said(one)
    assert "a batch1: on the front by points" in said(one)
    write(store, {"a": Config(30), "c": Config(20)}, seed=2)
    (one,) = fronts(store, ["latency"])
    assert set(places(one)) == {"a batch1", "c batch1"}


def test_times_of_different_runs_are_not_compared(store: Path) -> None:
    configs = {"a": Config(10, group="one"), "b": Config(20, group="two")}
    write(store, {"a": configs["a"]})
    number = write(store, {"b": configs["b"]}, seed=2)
    with Store.open(store) as opened:
        cell = configs["a"].cell("a")
        opened.use_cells(number, {cell: opened.latest_evidence(cell) or ""})
    (one,) = fronts(store, ["latency"])
    assert set(places(one).values()) == {UNDECIDED}
    assert "measured in launches of different runs only" in said(one)


def test_launches_of_their_own_in_one_run_are_independent_means(store: Path) -> None:
    one = front(store, {"a": Config(10, group="one"), "b": Config(20, group="two")}, over=["latency"])
    assert places(one) == {"a batch1": FRONT, "b batch1": OFF}
    assert one.comparison.compared(0, 1, one.over[0]).how == "own launches"


def test_a_violated_control_proves_nothing(store: Path) -> None:
    twins = {"null": Config(10), "twin": Config(12, compiler="null", replica=1), "b": Config(30)}
    one = front(store, twins, over=["latency"])
    assert places(one) == {"null batch1": UNDECIDED, "b batch1": UNDECIDED}
    assert "the control is violated" in said(one)


def test_batches_compete_by_the_latency_of_a_call_and_the_throughput_of_samples(store: Path) -> None:
    configs = {"a1": Config(10, compiler="a"), "a8": Config(40, compiler="a", batch=8), "b8": Config(90, batch=8)}
    one = front(store, configs, over=["latency", "throughput"])
    assert places(one) == {"a batch1": FRONT, "a batch8": FRONT, "b8 batch8": OFF}
    assert "latency is that of a call, of the whole batch; throughput is that of samples" in said(one)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_store_of_an_older_version_has_its_fronts(version: int, tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    shutil.copy(ROOT / f"tests/golden/store_v{version}.sqlite", path)
    with Store.open(path, read_only=True) as opened:
        for run in opened.runs():
            for one in fronts_of(opened, run):
                assert list(front_lines(one))
                json.dumps(front_json(one), allow_nan=False)


def test_json_has_no_infinity_and_all_places(store: Path) -> None:
    configs = {"a": Config(10), "b": Config(20, None), "c": Config(5, launches=1), "d": Config(outcome=Outcome.OOM)}
    data = json.loads(json.dumps(front_json(front(store, configs)), allow_nan=False))
    assert [one["place"] for one in data["configurations"]].count("left out") == 1
    assert data["judged"] is True
    assert data["error_rate"] == 0.01
    assert data["over"][0] == {
        "name": "latency",
        "metric": "latency",
        "unit": "s",
        "better": "lower",
        "tolerance": 0.05,
    }


def test_what_passes_for_power_measured_is_an_objective(store: Path) -> None:
    write_deployed(store, Deployed(lengths=(128,), decode=(), rates=()))

    (one,) = fronts(store, None)

    assert "energy" in [each.name for each in one.over]
    assert places(one) == {"identity batch1": OFF, "onnxruntime batch1": OFF, "openvino batch1": FRONT}
    assert "energy not measured" not in said(one)


# Accuracy


def test_accuracy_is_compared_on_the_same_samples(store: Path) -> None:
    """40 of 1000 are 4 points: seen where they are the same samples but those, and not where both have their own."""
    pairs = {"exact": Config(20, wrong=200), "quick": Config(10, wrong=240)}
    one = front(store, pairs, over=["latency", "accuracy"])
    assert places(one) == {"exact batch1": FRONT, "quick batch1": FRONT}
    compared = one.comparison.compared(0, 1, one.over[1])
    assert compared.how == "same samples"
    assert compared.contrast.theta == pytest.approx(0.04)
    others = {name: replace(config, data=letter) for (name, config), letter in zip(pairs.items(), "bc", strict=True)}
    write(store, others, seed=2)
    (apart,) = fronts(store, ["latency", "accuracy"])
    assert apart.comparison.compared(0, 1, apart.over[1]).how == "own samples"
    assert places(apart)["exact batch1"] is UNDECIDED


def test_what_the_same_samples_leave_open_no_test_decides(store: Path) -> None:
    """Equal but for accuracy, which each was asked for: its evaluation is kept, and gives the same samples again."""
    one = front(store, {"a": Config(10, wrong=100, data="a"), "b": Config(10, wrong=120, data="b")}, over=["accuracy"])

    assert set(places(one).values()) == {UNDECIDED}
    assert no_test_on(one) == (
        "accuracy needs more samples in the model's evaluate(predict): asked again it shows the same ones"
    )
    with pytest.raises(SpecError, match="no test would decide it: accuracy needs more samples"):
        written_test(one)
    # What was not asked for yet is, and what launches say is decided by launches.
    unknown = front(store.with_name("b.sqlite"), {"a": Config(10, wrong=100), "b": Config(10)}, over=["accuracy"])
    assert no_test_on(unknown) == ""
    assert "assert_pareto(known[" in written_test(unknown)
    configs = {"a": Config(10, wrong=100), "b": Config(10, wrong=120, data="b", scatter=0.2)}
    noisy = front(store.with_name("c.sqlite"), configs, over=["latency", "accuracy"])
    assert UNDECIDED in places(noisy).values()
    assert no_test_on(noisy) == ""


def test_an_evaluation_without_the_score_is_not_asked_again(store: Path) -> None:
    configs = {name: Config(10, wrong=100, score="map") for name in "ab"}
    assert no_test_on(front(store, configs, over=["accuracy"])) == (
        "a batch1: accuracy not measured (its evaluation gave map)"
    )


def test_who_is_as_accurate_and_faster_dominates_and_who_is_less_accurate_does_not(store: Path) -> None:
    configs = {"dense": Config(20, wrong=100), "same": Config(10, wrong=100), "broken": Config(1, wrong=996)}
    one = front(store, configs, over=["latency", "accuracy"])
    assert places(one) == {"dense batch1": OFF, "same batch1": FRONT, "broken batch1": FRONT}


def test_accuracy_of_some_is_unknown_of_the_others(store: Path) -> None:
    one = front(store, {"known": Config(20, wrong=100), "unknown": Config(10)}, over=["latency", "accuracy"])
    assert places(one) == {"known batch1": UNDECIDED, "unknown batch1": FRONT}
    assert "accuracy not measured" in said(one)


# What is asked for


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("latency", "20ms", 0.02), ("latency", "1.5 s", 1.5), ("memory", "200MiB", 200 * 2**20), ("size", "10MB", 1e7),
     ("throughput", "250", 250), ("throughput", "250/s", 250)],
)  # fmt: skip
def test_limits_are_read_as_people_write_them(name: str, text: str, value: float) -> None:
    assert limit(name, text).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("latency", "20", r"--latency: '20' \(expected 20ms; units: ns, us, µs, ms, s, min, h\)"),
        ("latency", "0ms", r"--latency: '0ms' \(expected a number above 0\)"),
        ("latency", "nan", r"--latency: 'nan' \(expected 20ms"),
        ("latency", "1e400s", r"--latency: '1e400s' \(expected a number above 0\)"),
        ("memory", "20ms", r"--memory: '20ms' \(expected 200MiB"),
        ("beauty", "1", r"--beauty: unknown objective 'beauty' \(known: latency"),
    ],
)
def test_a_limit_that_is_none_says_what_is_allowed(name: str, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        limit(name, text)


@pytest.mark.parametrize("given", [["0.5x"], ["1"], ["-0.1"], ["nan"], ["speed=0.1"], ["latency="]])
def test_a_tolerance_that_is_none_is_refused(given: list[str]) -> None:
    with pytest.raises(SpecError, match=r"--tolerance: "):
        read_tolerances(given, "--tolerance")


def test_objectives_are_known_once_each() -> None:
    tolerances = read_tolerances(["0.02", "memory=10%"], "--tolerance")
    latency, memory = objectives(["latency", "memory"], "--over", tolerances)
    assert (latency.tolerance, memory.tolerance) == (0.02, 0.1)
    assert latency.zone == pytest.approx(-math.log(0.98))
    assert not latency.is_higher_better
    for wrong in ([], ["latency", "latency"], ["late"]):
        with pytest.raises(SpecError, match="--over"):
            objectives(wrong, "--over")
    assert {"latency", "throughput", "memory", "size"} <= set(OBJECTIVES)


def test_a_protocol_of_another_version_promises_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    write(path, {"a": Config(10), "b": Config(20)})
    with Store.open(path, read_only=True) as store:
        run = store.runs()[-1]
        (known,) = fronts_of(store, run, Asked(["latency"]))
        (unknown,) = fronts_of(store, replace(run, protocol="later"), Asked(["latency"]))
    assert (known.by_points, unknown.by_points) == (False, True)
    assert "the protocol later controls no error" in " ".join(" ".join(front_lines(unknown)).split())
