"""The header: what it says of the machine's noise, and whom it warns before anything is measured."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.front import header
from pytest_ngraph.front.header import warning_lines
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.options.settings import Budget, Settings, resolve
from pytest_ngraph.plan.items import ItemPlan
from pytest_ngraph.report.noise.profile import profile_path, write_profile
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, Device, Workload
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model
from tests.golden.store_content import start_run
from tests.report.test_noise import profile

LOCAL = Device("local", (0, 1), 2)
EIGHT, FOUR = Budget(8), Budget(4)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve({}, {}, rootdir=tmp_path, invocation_dir=tmp_path, environ={})


def plan(name: str, tolerance: float, budget: Budget = EIGHT) -> ItemPlan:
    return ItemPlan(f"tests/test_speed.py::{name}", (), (), budget, tolerance)


def keep_profile(settings: Settings, scatter: float = 0.0157, **changed: object) -> None:
    write_profile(profile(scatter, **changed), profile_path(settings.store, "local"))


def noise_line(settings: Settings) -> str:
    return header.noise_line(settings, LOCAL)


def claim(
    name: str = "test_a", verdict: str = "inconclusive", effect: float | None = 0.071, metric: str = "speedup"
) -> VerdictRow:
    return VerdictRow(
        f"tests/test_speed.py::{name}", "assert_speedup: x", metric, 1.2, True, 0.05, 1.2, 1.1, 1.3, 8, verdict, effect
    )


def keep_claims(settings: Settings, *runs: list[VerdictRow]) -> None:
    with Store.open(settings.store) as store:
        for number, rows in enumerate(runs):
            run = start_run(store, f"run-{number}")
            for row in rows:
                store.add_verdict(run, row)


# The grade


def test_a_device_is_named_with_its_gpu() -> None:
    device = replace(LOCAL, name="cuda", accelerator="cuda:0")
    assert header.device_line(device, "A processor", "NVIDIA H200") == (
        "ngraph: device cuda: A processor, 2 CPUs, NVIDIA H200, 2 threads a compiler"
    )
    assert header.device_line(LOCAL, "A processor") == "ngraph: device local: A processor, 2 CPUs, 2 threads a compiler"


def test_the_header_grades_the_machine_by_its_stored_profile(settings: Settings) -> None:
    keep_profile(settings)

    assert noise_line(settings) == "ngraph: noise: quiet on 2026-11-20, 1.9 % visible in 16 launches"


def test_without_a_profile_the_header_says_how_to_get_one(settings: Settings) -> None:
    assert noise_line(settings) == "ngraph: noise: not measured (ngraph doctor --noise)"


def test_the_profile_of_another_machine_is_named_and_not_used(settings: Settings) -> None:
    keep_profile(settings, machine={**environment.fingerprint(), "cpu": "another"})

    expected = "ngraph: noise: not measured (ngraph doctor --noise); noise-local.json is of another machine"
    assert noise_line(settings) == expected
    assert warning_lines(settings, LOCAL, [plan("test_a", 0.001)]) == []


# What is measured


def test_models_stand_in_the_order_of_the_tests_and_not_in_another_one_in_each_run(settings: Settings) -> None:
    names = [f"timm:resnet{layers}" for layers in (50, 18, 152, 34, 101, 26)]
    cells = [Cell("local", CompilerSpec("null"), Workload(parse_model(name), 1)) for name in names]
    points = [ItemPlan(f"test_{name}", (cell,), (), EIGHT, 0.05) for name, cell in zip(names, cells, strict=True)]

    lines = header.header_lines(settings, [*points, points[0]])

    assert "ngraph: models " + ", ".join(names) in lines
    assert lines[0].startswith("ngraph: 7 items, 6 cells;")


# What the machine cannot show


def test_a_tolerance_below_what_is_visible_is_warned_of_beforehand(settings: Settings) -> None:
    keep_profile(settings)

    lines = warning_lines(settings, LOCAL, [plan("test_coarse", 0.05), plan("TestIt::test_fine[local-batch8]", 0.01)])

    assert lines == [
        "ngraph: warning: TestIt::test_fine[local-batch8]: tolerance 1 % is below the 3.2 % this machine can show in "
        "8 launches: expect inconclusive; a wider tolerance=, a larger budget or a quieter machine"
    ]


def test_what_is_visible_depends_on_the_budget(settings: Settings) -> None:
    keep_profile(settings)
    within = [plan("test_a", 0.05), plan("test_b", 0.02, Budget(32)), plan("test_c", 0.05, Budget(None, 600.0))]

    assert warning_lines(settings, LOCAL, within) == []
    (line,) = warning_lines(settings, LOCAL, [*within, plan("test_d", 0.05, FOUR)])
    assert "test_d: tolerance 5 % is below the 7.9 % this machine can show in 4 launches" in line


def test_tests_of_equal_terms_share_a_warning(settings: Settings) -> None:
    keep_profile(settings)

    (line,) = warning_lines(settings, LOCAL, [plan(f"test_{number}", 0.01) for number in range(12)])

    assert line.startswith("ngraph: warning: 12 tests: tolerance 1 % is below the 3.2 %")


def test_many_different_terms_are_one_line(settings: Settings) -> None:
    keep_profile(settings)

    (line,) = warning_lines(settings, LOCAL, [plan(f"test_{number}", number / 1000) for number in range(1, 11)])

    expected = "10 tests: tolerances (0.1 % to 1 %) are below what this machine can show in their budgets (1.9 % in 16 "
    assert expected in line


def test_protocols_without_verdicts_are_not_warned_of(settings: Settings) -> None:
    keep_profile(settings)

    assert warning_lines(replace(settings, protocol=PROTOCOLS["quick"]), LOCAL, [plan("test_a", 0.001)]) == []


# What the store knows


def known_to_the_store(monkeypatch: pytest.MonkeyPatch, *rows: VerdictRow) -> list[Path]:
    """Let these be the claims that their latest run left open, and return the stores that are asked for them."""
    asked = []

    def undecided_claims(store: Store) -> list[VerdictRow]:
        asked.append(store.path)
        return list(rows)

    monkeypatch.setattr(Store, "undecided_claims", undecided_claims, raising=False)
    return asked


def test_a_claim_that_could_not_see_its_tolerance_is_warned_of(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_claims(settings)
    known_to_the_store(monkeypatch, claim("test_a"), claim("test_a"), claim("test_slope", effect=0.2, metric="slope"))

    lines = warning_lines(settings, LOCAL, [plan("test_a", 0.05), plan("test_slope", 0.05)])

    end = "expect the same; a wider tolerance=, a larger budget or a quieter machine"
    assert lines == [
        "ngraph: warning: test_a: inconclusive in its latest run: it could see 7.1 % in 8 launches, its tolerance is "
        f"5 %: {end}",
        "ngraph: warning: test_slope: inconclusive in its latest run: it could see 0.20 in 8 launches, its tolerance "
        f"is 0.050: {end}",
    ]


def test_what_a_test_itself_has_shown_is_said_instead_of_the_profile(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_claims(settings)
    keep_profile(settings)
    known_to_the_store(monkeypatch, claim("test_a"))

    (line,) = warning_lines(settings, LOCAL, [plan("test_a", 0.01)])

    assert line.startswith("ngraph: warning: test_a: inconclusive in its latest run")


def test_ten_thousand_tests_ask_the_store_once_and_are_one_line(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_claims(settings)
    asked = known_to_the_store(monkeypatch, *(claim(f"test_{number}") for number in range(5000, 15_000)))

    lines = warning_lines(settings, LOCAL, [plan(f"test_{number}", 0.05) for number in range(10_000)])

    assert asked == [settings.store]
    (line,) = lines
    assert line.startswith("ngraph: warning: 5000 tests: inconclusive in their latest run, which could not see")


def test_the_store_is_not_made_for_a_warning(settings: Settings) -> None:
    assert warning_lines(settings, LOCAL, [plan("test_a", 0.05)]) == []
    assert not settings.store.parent.exists()


def test_a_store_that_cannot_be_read_is_no_reason_to_stop_here(settings: Settings) -> None:
    settings.store.parent.mkdir()
    settings.store.write_text("not a store")

    assert warning_lines(settings, LOCAL, [plan("test_a", 0.05)]) == []


@pytest.mark.skipif(not hasattr(Store, "undecided_claims"), reason="the store does not tell undecided claims")
def test_what_counts_is_the_latest_judgement_in_the_latest_run_of_a_test(settings: Settings) -> None:
    decided_then_open = [claim("test_a", "pass"), claim("test_a")]
    open_then_decided = [claim("test_b"), claim("test_b", "fail")]
    keep_claims(
        settings,
        [claim("test_c"), claim("test_d"), claim("test_e")],
        [*decided_then_open, *open_then_decided, claim("test_c", "pass"), claim("test_d", effect=0.01)],
        [claim("test_f", effect=None), claim("test_g", "invalid")],
    )

    lines = warning_lines(settings, LOCAL, [plan(f"test_{letter}", 0.05) for letter in "abcdefgh"])

    assert [re.search(r"test_\w", line) and re.search(r"test_\w", line)[0] for line in lines] == ["test_e", "test_a"]  # type: ignore[index]
