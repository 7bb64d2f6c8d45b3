"""The clocks of CPUs and what heat does to them, by files that look as the kernel's do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ngraph.machine.speed import Speed, hot_seconds
from tests.machine.test_environment import AFTER, facts, said
from tests.support.fake_sys import put

CPUS = "sys/devices/system/cpu"


def test_the_clock_is_the_mean_of_the_devices_cpus(tmp_path: Path) -> None:
    for cpu, kilohertz in enumerate((1_000_000, 3_000_000, 5_000_000)):
        put(tmp_path / CPUS / f"cpu{cpu}/cpufreq/scaling_cur_freq", kilohertz)
    put(tmp_path / CPUS / "cpufreq/boost", 1)
    assert Speed((0, 1), tmp_path).megahertz() == 2000
    assert Speed((), tmp_path).megahertz() == 3000
    # One that says nothing, or what is no clock, is none of them.
    put(tmp_path / CPUS / "cpu0/cpufreq/scaling_cur_freq", "<unknown>")
    assert Speed((0, 1, 7), tmp_path).megahertz() == 3000
    assert Speed((0, 7), tmp_path).megahertz() is None
    assert Speed((), tmp_path / "nothing").megahertz() is None


def test_of_many_cpus_a_few_are_asked(tmp_path: Path) -> None:
    assert len(Speed(range(128), tmp_path)._files) == 8
    assert len(Speed(range(9), tmp_path)._files) == 5


def test_heat_is_counted_for_each_of_the_devices_cpus(tmp_path: Path) -> None:
    assert hot_seconds((), tmp_path) is None
    for cpu, (core, package) in enumerate(((1500, 700), (200, 4000))):
        folder = tmp_path / CPUS / f"cpu{cpu}/thermal_throttle"
        put(folder / "core_throttle_total_time_ms", core)
        put(folder / "package_throttle_total_time_ms", package)
        put(folder / "core_throttle_max_time_ms", 99_000)
    assert hot_seconds((), tmp_path) == [1.5, 0.7, 0.2, 4.0]
    # What heats up on another socket is no concern of a device that does not compute there.
    assert hot_seconds((0,), tmp_path) == [1.5, 0.7]
    assert hot_seconds((7,), tmp_path) is None


@pytest.mark.parametrize(
    ("before", "after", "is_disturbed"),
    [
        ([3.0], [3.4], False),
        ([3.0], [3.6], True),
        (None, [9.0], False),
        ([3.0], None, False),
        (["x"], [9.0], False),
        # A CPU that was hot for hours before hides no other one.
        ([7200.0, 3.0], [7200.0, 3.6], True),
        # One that went.
        ([1.0, 3.0], [3.0], False),
        # As devices of before say it.
        (3.0, 3.6, True),
    ],
)
def test_heat_that_slows_a_cpu_for_a_twentieth_of_the_time_disturbs(
    before: object, after: object, is_disturbed: bool
) -> None:
    # The last 10 s of a launch are those that were timed.
    found = said(facts(AFTER, hot_seconds=after), blocks=facts(1010.0, hot_seconds=before))
    assert found == ("heat slowed a CPU's clocks down for 6 % of the time" if is_disturbed else "")


def test_heat_that_ends_midway_counts_for_no_more_than_all_of_the_time() -> None:
    """The kernel adds a time when it ends, also where it began before the launch."""
    found = said(facts(AFTER, hot_seconds=[400.0]), blocks=facts(1010.0, hot_seconds=[0.0]))
    assert found == "heat slowed a CPU's clocks down for 100 % of the time"
