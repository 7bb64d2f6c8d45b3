"""The noise of a machine: launches of equal code, which effects a gate can see by them, and the file that keeps it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.errors import CompileFailed, StoreError
from pytest_ngraph.launches.equal_code import EqualLaunches, NoiseProfile, equal_launches
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.report.noise.profile import (
    BUDGETS,
    MachineProfile,
    effects_by_budget,
    grade_of,
    profile_of,
    profile_path,
    read_profile,
    scatter_of,
    states_of,
    visible_effects,
    write_profile,
)
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, LaunchRecord, Outcome, Reading, Visit
from pytest_ngraph.stats import spending
from tests.support.measuring import SMALL, TIMED, cell, job

ONE, TWIN = cell("null"), cell("null", replica=1)
PAIR = ((ONE, TWIN),)
VISITS = NoiseProfile(0.01, 0.005, 0.001, None, 40)


def launch(
    ratio: float, *, invalid: str = "", home: Reading | None = None, outcome: Outcome = Outcome.OK
) -> LaunchRecord:
    """Return a launch whose blocks all say that the twin takes ``1 / ratio`` of the time."""
    prepared = {ONE: CompileRecord(Outcome.OK), TWIN: CompileRecord(outcome)}
    visits = {(ONE, block): Visit(1, (round(1e9 * ratio),) * 9) for block in range(4)}
    visits |= {(TWIN, block): Visit(1, (1_000_000_000,) * 9) for block in range(4)}
    return LaunchRecord(0, 0, "gate", prepared, visits, invalid, 2.0, home)


def profile(scatter: float = 0.01, **changed: object) -> MachineProfile:
    fields = {
        "device": "local",
        "measured_at": "2026-11-20T10:00:00+00:00",
        "machine": environment.fingerprint(),
        "versions": {"torch": "2.13"},
        "subject": "null on block:conv, batches 1 and 8",
        "scatter": scatter,
        "looks": visible_effects(scatter, (3, 4, 6, 8)),
        "budgets": effects_by_budget(scatter),
        "launch_seconds": 5.0,
        "launches": 5,
        "counted": 5,
        "visits": asdict(VISITS),
    }
    return MachineProfile(**{**fields, **changed})  # type: ignore[arg-type]


# Launches of equal code


@pytest.mark.real
def test_equal_code_is_measured_in_two_processes_as_a_gate_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "disturbance", lambda *_: "")
    told: list[str] = []

    equal = equal_launches(
        job(tmp_path), CompilerSpec.parse("null"), reads="nothing", launches=2, protocol=SMALL, report=told.append
    )

    assert equal.what == "null on block:conv, batches 1 and 8"
    assert [(one.workload, one.replica, twin.replica) for one, twin in equal.twins] == [
        (twin.workload, 0, 1) for _, twin in equal.twins
    ]
    assert 2 <= len(equal.records) <= 5
    for record in equal.records:
        assert all(record.prepared[each].outcome in TIMED for pair in equal.twins for each in pair)
        assert record.seconds > 0
    assert len({record.seed for record in equal.records}) == len(equal.records)
    assert [text.partition(":")[0] for text in told] == [f"launch {n + 1}" for n in range(len(equal.records))]


@pytest.mark.real
def test_launches_that_a_gate_would_not_count_are_replaced_up_to_a_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "disturbance", lambda *_: "the host took 40 % of the CPUs' time (steal)")
    told: list[str] = []

    equal = equal_launches(
        job(tmp_path), CompilerSpec.parse("null"), reads="nothing", launches=1, protocol=SMALL, report=told.append
    )

    assert len(equal.records) == 4
    assert all("a gate would not count it: the host took 40 %" in text for text in told)
    assert profile_of("local", equal, VISITS) is None


@pytest.mark.real
def test_a_compiler_that_cannot_measure_the_block_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(CompileFailed, match="local:absent block:conv batch1"):
        equal_launches(
            job(tmp_path), CompilerSpec.parse("absent"), reads="nothing", launches=1, protocol=SMALL, report=print
        )


# Their scatter


def test_the_scatter_is_the_standard_deviation_of_the_logarithms_over_launches() -> None:
    records = [launch(math.exp(value)) for value in (-0.02, 0.0, 0.02)]

    assert scatter_of(PAIR, records) == pytest.approx(0.02, rel=1e-6)


def test_the_scatter_is_of_launches_that_count_and_of_one_state_of_the_machine() -> None:
    near, far = Reading(150_000, (260,)), Reading(150_000, (460,))
    good = [launch(math.exp(value), home=near) for value in (-0.01, 0.0, 0.01)]
    elsewhere = launch(1.5, home=far)
    bad = [launch(2.0, home=near, invalid="throttled"), launch(2.0, home=near, outcome=Outcome.UNSTABLE)]

    assert scatter_of(PAIR, [*good, elsewhere, *bad]) == pytest.approx(0.01, rel=1e-6)
    assert states_of([*good, elsewhere, launch(1.0)]) == [near, far]


def test_without_two_launches_that_count_there_is_no_scatter() -> None:
    assert scatter_of(PAIR, [launch(1.0), launch(1.0, invalid="steal")]) is None
    assert scatter_of([], [launch(1.0), launch(1.0)]) is None


def test_several_twins_are_taken_together_by_their_mean_square() -> None:
    quiet: list[tuple[Cell, Cell]] = [(ONE, ONE)]
    records = [launch(math.exp(value)) for value in (-0.02, 0.0, 0.02)]

    assert scatter_of([*PAIR, *quiet], records) == pytest.approx(0.02 / math.sqrt(2), rel=1e-6)


def test_a_twin_of_few_launches_counts_for_as_little_as_it_knows() -> None:
    third = cell("null", replica=2)
    # The third process stands in the place of the twin in two launches, which are its only ones.
    known = {TWIN: third, ONE: ONE}
    of_third = [
        replace(
            one,
            prepared={known[cell]: record for cell, record in one.prepared.items()},
            visits={(known[cell], block): visit for (cell, block), visit in one.visits.items()},
        )
        for one in (launch(math.exp(value)) for value in (0.1, -0.1))
    ]
    records = [*of_third, *(launch(math.exp(value)) for value in [-0.02, 0.0, 0.02] * 5)]

    found = scatter_of([*PAIR, (ONE, third)], records) or math.nan

    of_many, of_two = math.fsum(value**2 for value in [0.02] * 10), 2 * 0.1**2
    assert found == pytest.approx(math.sqrt((of_many + of_two) / (14 + 1)), rel=1e-6)
    # As one of two alike they would come to 10 %.
    assert found < 0.05


# What a gate can see


def test_more_launches_and_less_scatter_show_smaller_effects() -> None:
    looks = visible_effects(0.02, (3, 4, 6, 8))
    budgets = effects_by_budget(0.02)

    assert list(looks) == [3, 4, 6, 8]
    assert all(more < fewer for fewer, more in pairwise(looks.values()))
    assert all(more < fewer for fewer, more in pairwise(budgets[each] for each in BUDGETS))
    # The last look of the default budget is the same in both.
    assert looks[8] == pytest.approx(budgets[8])
    assert visible_effects(0.01, (8,))[8] < visible_effects(0.02, (8,))[8]
    assert set(visible_effects(0.0, (3, 8)).values()) == {0.0}


def test_a_visible_effect_is_seen_in_nine_of_ten_runs() -> None:
    scatter, looks, runs = 0.02, (3, 4, 6, 8), 20_000
    effect = math.log1p(visible_effects(scatter, looks)[8])
    level = spending(ALPHA, looks, 8)[-1]
    values = np.random.default_rng(3).normal(effect, scatter, (runs, 8))

    half = stdtrit(7, 1 - level) * values.std(axis=1, ddof=1) / math.sqrt(8)

    assert np.mean(values.mean(axis=1) > half) == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize(
    ("scatter", "grade"), [(0.005, "quiet"), (0.024, "quiet"), (0.025, "noisy"), (0.06, "noisy"), (0.07, "unusable")]
)
def test_the_grade_is_what_a_gate_of_5_per_cent_needs(scatter: float, grade: str) -> None:
    assert grade_of(effects_by_budget(scatter)) == profile(scatter).grade == grade


def test_a_machine_on_which_most_launches_do_not_count_is_unusable() -> None:
    assert profile(0.001, launches=5, counted=4).grade == "quiet"
    assert profile(0.001, launches=5, counted=3).grade == "noisy"
    assert profile(0.1, launches=5, counted=3).grade == "unusable"
    assert profile(0.001, launches=5, counted=2).grade == "unusable"


def test_what_is_visible_is_that_of_the_largest_budget_within_the_launches() -> None:
    mine = profile(0.02)

    assert mine.visible_in(8) == mine.visible_in(11) == mine.budgets[8]
    assert mine.visible_in(1000) == mine.budgets[32]
    assert mine.visible_in(2) == math.inf


def test_a_profile_says_how_long_the_launches_took_that_count() -> None:
    slow = replace(launch(1.0, invalid="steal"), seconds=99.0)
    records = (*(launch(math.exp(value)) for value in (-0.01, 0.0, 0.01)), slow)

    mine = profile_of("local", EqualLaunches(PAIR, records), VISITS)

    assert mine is not None
    assert (mine.launches, mine.counted, mine.launch_seconds) == (4, 3, 2.0)
    assert mine.scatter == pytest.approx(0.01, rel=1e-6)
    assert mine.machine == environment.fingerprint()


# The file


def test_a_profile_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = profile_path(tmp_path / ".ngraph" / "results.sqlite", "local")
    # So noisy that there is no limit to what three launches may miss.
    for mine in (profile(), profile(budgets={**effects_by_budget(0.1), 3: math.inf})):
        write_profile(mine, path)

        assert read_profile(path, "local") == (mine, "")
    assert path == tmp_path / ".ngraph" / "noise-local.json"
    assert [each.name for each in path.parent.iterdir()] == ["noise-local.json"]


def test_without_a_file_there_is_no_profile_and_nothing_to_say(tmp_path: Path) -> None:
    assert read_profile(tmp_path / "noise-local.json", "local") == (None, "")


def test_the_profile_of_another_machine_or_device_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "noise-local.json"
    write_profile(profile(machine={**environment.fingerprint(), "node": "elsewhere"}), path)
    assert read_profile(path, "local") == (None, "noise-local.json is of another machine")
    write_profile(profile(device="orin"), path)
    assert read_profile(path, "local") == (None, "noise-local.json is of another machine")
    # Another Python does not make another machine.
    write_profile(profile(machine={**environment.fingerprint(), "python": "3.99"}), path)
    assert read_profile(path, "local")[0] is not None


@pytest.mark.parametrize(
    ("damage", "note"),
    [
        (lambda text: text[: len(text) // 2], "cannot be read: it is damaged"),
        (lambda text: "", "cannot be read: it is damaged"),
        (lambda text: "[1]", "is damaged"),
        (lambda text: "{}", "is damaged"),
        (lambda text: text.replace('"scatter": 0.01', '"scatter": "small"'), "is damaged"),
        (lambda text: text.replace('"scatter": 0.01', '"scatter": -1'), "is damaged"),
        (lambda text: text.replace("2026-11-20", "yesterday"), "is damaged"),
        (lambda text: text.replace('"32":', '"33":'), "is damaged"),
        (lambda text: text.replace('"node"', '"knot"'), "is damaged"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "is of another version of pytest-ngraph"),
    ],
)  # fmt: skip
def test_a_damaged_profile_is_left_alone_with_a_note(tmp_path: Path, damage: object, note: str) -> None:
    path = tmp_path / "noise-local.json"
    write_profile(profile(), path)
    path.write_text(damage(path.read_text()))  # type: ignore[operator]

    assert read_profile(path, "local") == (None, f"noise-local.json {note}")


def test_a_profile_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "noise-local.json"
    write_profile(profile(0.01), path)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        write_profile(profile(0.02), path)
    monkeypatch.undo()

    assert read_profile(path, "local")[0] == profile(0.01)
    assert json.loads(path.read_text())["format"] == 1
