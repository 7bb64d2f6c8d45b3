"""Claims about energy and the use of a GPU: what passes, what stays open, and what a verdict shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_ngraph import assert_energy, assert_gpu_utilisation, assert_memory, assert_model_size
from pytest_ngraph.devices import local
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import NotStored
from pytest_ngraph.report.lvt.published import LATENCY, METRICS
from pytest_ngraph.report.lvt.setups import Setup, why_null
from pytest_ngraph.report.results.cells import cell_reports
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome
from pytest_ngraph.spec.resources.power import Power, Window, of_one_probe
from pytest_ngraph.store.sqlite import Store
from tests.claims.test_claims import Laboratory, Made

RAPL = "rapl: the CPU packages, not their memory, of the whole machine and not of one process"


def drawn(
    millijoules: float, *, idle: float = 10.0, busy: float = 50.0, gpu: float | None = None, **named: object
) -> Power:
    """Return windows of two seconds in which a sample takes so much energy."""
    samples = round(2 * busy / (millijoules * 1e-3))
    return Power(
        **{
            "covers": RAPL,
            "idle": tuple(Window(block, 2.0, 2 * idle) for block in range(4)),
            "busy": tuple(Window(block, 2.0, 2 * busy, samples, gpu) for block in range(4)),
            "others_cpus": 0.01,
            **named,
        }  # type: ignore[arg-type]
    )


class Bench:
    """Passes for power that come out as the script says, the last again and again."""

    def __init__(self, lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lab, self.passes = lab, 0
        self.script: list[Power | CompileRecord] = []
        # What the other cell of a pass takes, times this.
        self.other = 1.0
        monkeypatch.setattr(local, "power_pass", self._pass)

    def _pass(self, job: object, cells: Sequence[Cell], *rest: object) -> list[CompileRecord]:
        made = self.script[min(self.passes, len(self.script) - 1)]
        self.passes += 1
        if isinstance(made, CompileRecord):
            return [made for _ in cells]
        first = CompileRecord(Outcome.OK, power=made)
        return [first, *(CompileRecord(Outcome.OK, power=self._times(made)) for _ in cells[1:])]

    def _times(self, power: Power) -> Power:
        busy = tuple(Window(one.block, one.seconds, (one.joules or 0) * self.other, one.samples) for one in power.busy)
        return Power(power.covers, power.idle, busy)

    def run(self, **named: object) -> Measurement:
        self.lab.script = [Made()]
        return self.lab.run(**named)  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(Laboratory(tmp_path, monkeypatch), monkeypatch)


def scattered(*millijoules: float) -> list[Power | CompileRecord]:
    return [drawn(each) for each in millijoules]


def test_a_claim_that_holds_shows_both_powers_and_of_what_they_are(bench: Bench) -> None:
    bench.script = scattered(5.0, 5.05, 4.97)
    estimate = assert_energy(bench.run(), at_most=0.006)
    assert estimate.launches == 3 == bench.passes
    assert estimate.low < 0.005 < estimate.high < 0.006
    (row,) = bench.lab.kept
    assert (row.verdict, row.metric) == ("pass", "joules_per_sample")
    powers = "50.0 W while calls ran (24.0 s in all), 10.0 W idle beside"
    assert row.extra["notes"][:2] == [powers, f"measured by {RAPL}"]


def test_a_claim_that_does_not_hold_fails_after_fresh_passes_confirmed_it(bench: Bench) -> None:
    bench.script = scattered(5.0, 5.05, 4.97, 5.02, 5.01, 4.99, 5.03)
    with pytest.raises(AssertionError) as caught:
        assert_energy(bench.run(), at_most=0.0045)
    assert re.match(r"energy 5\.0\d mJ > 4\.50 mJ: assert_energy: Energy of a sample of local:", str(caught.value))
    assert "note: 50.0 W while calls ran" in str(caught.value)


def test_what_is_above_idle_is_claimed_by_itself(bench: Bench) -> None:
    bench.script = scattered(5.0, 5.05, 4.97)
    cell = bench.run()
    assert assert_energy(cell, of="above_idle", at_most=0.0045).value == pytest.approx(0.004, rel=0.02)
    assert cell.samples_per_joule.value == pytest.approx(200, rel=0.02)
    assert cell.idle_watts.value == pytest.approx(10)
    assert cell.busy_watts.value == pytest.approx(50)


@pytest.mark.parametrize("of", ["total", "above_idle"])
@pytest.mark.parametrize("side", [{"at_most": 1e9}, {"at_least": 1e-9}])
def test_an_idle_machine_that_draws_more_is_never_a_pass(bench: Bench, of: str, side: dict[str, float]) -> None:
    bench.script = [drawn(5.0), drawn(5.0, idle=51.0), drawn(5.0)]
    with pytest.raises(AssertionError) as caught:
        assert_energy(bench.run(), of=of, **side)  # type: ignore[arg-type]
    assert bench.lab.kept[-1].verdict == "inconclusive"
    said = "the idle machine drew 51 W and 50 W while calls ran: what is above idle is -1.00 W, give or take 1.01 W"
    assert said in str(caught.value)


def test_where_nothing_can_be_read_a_claim_is_open_and_says_why(bench: Bench) -> None:
    bench.script = [Power(why_no_energy="no probe of energy: rapl: /sys/class/powercap is not there")]
    cell = bench.run()
    with pytest.raises(AssertionError) as caught:
        assert_energy(cell, at_most=1.0)
    assert "inconclusive: no probe of energy: rapl: /sys/class/powercap is not there" in str(caught.value)
    assert "what to do: ngraph doctor says which probes there are" in str(caught.value)
    assert bench.lab.kept[-1].verdict == "inconclusive"
    with pytest.raises(NotStored, match="no probe of energy: rapl"):
        _ = cell.joules_per_sample
    # Asked once in a run.
    assert bench.passes == 1


def test_passes_that_do_not_count_make_a_claim_invalid(bench: Bench) -> None:
    bench.script = [drawn(5.0, invalid="other processes kept 1.0 of 2 CPUs busy")]
    with pytest.raises(AssertionError, match="3 launches do not count, and no further one was tried: other processes"):
        assert_energy(bench.run(), at_most=1.0)
    assert bench.lab.kept[-1].verdict == "invalid"
    assert bench.passes == 3


def test_a_pass_beside_one_that_does_not_count_is_enough(bench: Bench) -> None:
    bench.script = [drawn(5.0), drawn(9.0, invalid="x"), drawn(5.0), drawn(5.01)]
    assert assert_energy(bench.run(), at_most=0.006).value == pytest.approx(0.005, rel=0.01)
    assert bench.passes == 4


def test_joules_of_another_probe_are_not_mixed_with_these(bench: Bench) -> None:
    bench.script = scattered(5.0, 5.05, 4.97)
    assert_energy(bench.run(), at_most=0.006)
    bench.script, bench.passes = [drawn(20.0, covers="ina3221: the whole module")] * 3, 0
    # Its passes are stored and enough; a pass by another probe begins anew.
    assert bench.run().joules_per_sample.launches == 3
    assert bench.passes == 0


def test_only_passes_of_the_last_probe_count() -> None:
    module = drawn(20.0, covers="ina3221: the whole module")
    assert of_one_probe([drawn(5.0), module, drawn(5.0)]) == [True, False, True]
    assert of_one_probe([drawn(5.0), module]) == [False, True]
    assert of_one_probe([]) == []


def test_a_ratio_is_of_the_same_blocks(bench: Bench) -> None:
    bench.script, bench.other = scattered(5.0, 7.0, 9.0), 2.0
    cell = bench.run()
    estimate = assert_energy(cell, over=Measurement(cell.source, cell.baseline, cell.baseline), at_most=0.6)
    # However much the machine draws from pass to pass.
    assert estimate.value == pytest.approx(0.5)
    assert estimate.high == pytest.approx(0.5)
    assert bench.lab.kept[-1].metric == "energy_ratio"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"of": "net"}, "of='net' (expected 'total' or 'above_idle')"),
        ({}, "give either at_least= or at_most=, joules as a number, such as 0.05"),
        ({"at_most": "5mJ"}, "joules as a number, such as 0.05; 0.005 is meant?"),
        ({"at_most": -1.0}, "-1"),
    ],
)
def test_what_is_no_claim_is_refused(bench: Bench, given: dict[str, object], said: str) -> None:
    bench.script = scattered(5.0)
    with pytest.raises(ClaimError) as caught:
        assert_energy(bench.run(), **given)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_a_cell_is_not_compared_with_itself(bench: Bench) -> None:
    cell = bench.run()
    with pytest.raises(ClaimError, match="is the cell itself"):
        assert_energy(cell, over=cell, at_most=1.0)


def test_the_use_of_a_gpu_is_claimed_in_points(bench: Bench) -> None:
    bench.script = [drawn(5.0, gpu=share) for share in (0.91, 0.92, 0.9)]
    assert assert_gpu_utilisation(bench.run(), at_least=80).value == pytest.approx(91.0, abs=0.1)


def test_a_device_without_a_gpu_says_so(bench: Bench) -> None:
    bench.script = [drawn(5.0, why_no_load="the device computes on CPUs: its load is cpu_percent")]
    with pytest.raises(AssertionError, match="inconclusive: the device computes on CPUs: its load is cpu_percent"):
        assert_gpu_utilisation(bench.run(), at_least=80)


def test_cells_under_load_have_no_energy_for_nothing_arrives_in_a_pass(bench: Bench) -> None:
    bench.script = scattered(5.0)
    plain = bench.run()
    loaded = replace(plain.cell, workload=replace(plain.workload, scenario="server[rate=20]"))
    cell = Measurement(plain.source, loaded, plain.baseline)
    said = "nothing arrives in a pass for power, so what is drawn at this rate is not known"
    with pytest.raises(ClaimError, match=said):
        assert_energy(cell, at_most=1.0)
    with pytest.raises(ClaimError, match=said):
        assert_gpu_utilisation(cell, at_most=1.0)
    with pytest.raises(ClaimError, match=said):
        _ = cell.busy_watts
    assert bench.passes == 0


def test_a_sensor_that_says_one_number_has_nothing_above_idle_by_rounding(bench: Bench) -> None:
    bench.script = [drawn(5.0, idle=50.0, busy=50.0 * (1 + 1e-12))]
    with pytest.raises(AssertionError, match="the idle machine drew 50 W and 50 W while calls ran"):
        assert_energy(bench.run(), of="above_idle", at_most=0.006)


@pytest.mark.parametrize("side", [{"at_most": 1e9}, {"at_least": 1e-12}])
def test_what_the_counter_may_be_off_by_is_not_above_idle(bench: Bench, side: dict[str, float]) -> None:
    # An update of a hundred at each: 0.2 W of 10, and 0.1 W is nothing.
    bench.script = [drawn(5.0, busy=10.1, idle=10.0)] * 3
    with pytest.raises(AssertionError, match=r"is no more than the 0.2 W that these windows may be off by") as caught:
        assert_energy(bench.run(), of="above_idle", **side)  # type: ignore[arg-type]
    assert re.search(r"what is above idle is 100(\.0)? mW, give or take 201 mW", str(caught.value))
    assert bench.lab.kept[-1].verdict == "inconclusive"
    # What the machine drew meanwhile is known all the same.
    assert assert_energy(bench.run(), at_most=0.006).value == pytest.approx(0.005, rel=0.01)


def test_one_pass_in_which_it_drowned_is_enough_to_leave_it_open(bench: Bench) -> None:
    bench.script = [drawn(5.0), drawn(5.0, busy=10.1), drawn(5.0)]
    with pytest.raises(AssertionError, match="may be off by"):
        assert_energy(bench.run(), of="above_idle", at_most=1e9)


def test_a_mean_above_idle_is_of_all_passes_or_of_none(bench: Bench) -> None:
    bench.script = [drawn(5.0), drawn(5.0, busy=10.1), drawn(5.0)]
    cell = bench.run()
    with pytest.raises(AssertionError) as caught:
        assert_energy(cell, of="above_idle", at_most=1e9)
    # 4 mJ in two passes and next to nothing in one, which is among them.
    assert str(caught.value).startswith("energy above idle 2.68 mJ, inconclusive:")
    said = "in 1 of 3 passes the idle machine drew 10 W and 10.1 W while calls ran, which is no more than the 0.2 W"
    assert cell.why_null("joules_above_idle").startswith(said)
    with pytest.raises(NotStored, match="in 1 of 3 passes"):
        _ = cell.joules_above_idle
    with Store.open(bench.lab.store, read_only=True) as store:
        report = next(one for one in cell_reports(store, store.runs()[-1].id) if one.cell == cell.cell)
    assert "joules_above_idle" not in report.estimates
    assert report.unread["joules_above_idle"].startswith(said)
    assert report.estimates["joules_per_sample"].launches == 3


def test_passes_that_came_later_change_no_verdict(bench: Bench) -> None:
    bench.script = [*[drawn(5.0)] * 3, *[drawn(5.0, idle=51.0)] * 4]
    cell = bench.run()
    assert assert_energy(cell, at_most=0.006).launches == 3
    notes = bench.lab.kept[-1].extra["notes"]
    # Another claim's fail is to be confirmed, by passes in which the idle machine drew more.
    with pytest.raises(AssertionError, match="the idle machine drew 51 W and 50 W while calls ran"):
        assert_energy(cell, at_most=0.0045)
    assert bench.lab.kept[-1].verdict == "inconclusive"
    assert bench.passes == 7

    again = bench.run()

    assert assert_energy(again, at_most=0.006).launches == 3
    assert (bench.lab.kept[-1].verdict, bench.lab.kept[-1].extra["notes"]) == ("pass", notes)
    assert assert_energy(again, of="above_idle", at_most=0.006).launches == 3
    with pytest.raises(AssertionError, match="the idle machine drew 51 W"):
        assert_energy(again, at_most=0.0045)
    assert bench.passes == 7


def test_a_fail_that_no_fresh_pass_can_confirm_ends_open(bench: Bench) -> None:
    bench.script = [*[drawn(5.0)] * 3, drawn(5.0, idle=51.0)]
    with pytest.raises(AssertionError, match="inconclusive"):
        assert_energy(bench.run(), of="above_idle", at_most=0.0037)
    assert bench.passes == 6


def test_what_is_said_of_a_pass_that_contradicts_is_of_that_pass_alone(bench: Bench) -> None:
    """Of two passes that do: the one with less above idle. What it is and how far it may be off is its own, too."""
    bench.script = [drawn(5.0, idle=51.0), drawn(5.0, idle=60.0), drawn(5.0)]
    with pytest.raises(AssertionError) as caught:
        assert_energy(bench.run(), at_most=1e9)
    said = "the idle machine drew 60 W and 50 W while calls ran: what is above idle is -10.0 W, give or take 1.10 W"
    assert said in str(caught.value)
    assert "51 W" not in str(caught.value)


def test_a_pass_that_can_be_told_from_nothing_lends_its_numbers_to_none_that_cannot(bench: Bench) -> None:
    # Less above idle, and known better: by itself it would say that something is.
    fine = drawn(5.0, idle=10.0, busy=10.15, update_seconds=0.001)
    coarse = drawn(5.0, idle=49.8, busy=50.0)
    assert (fine.indistinct, bool(coarse.indistinct)) == ("", True)
    assert fine.above_idle_watts < coarse.above_idle_watts
    bench.script = [coarse, fine, fine]
    with pytest.raises(AssertionError) as caught:
        assert_energy(bench.run(), of="above_idle", at_most=1e9)
    assert "the idle machine drew 49.8 W and 50 W while calls ran" in str(caught.value)
    assert "what is above idle is 200 mW, give or take 998 mW" in str(caught.value)


def test_an_open_ratio_is_of_as_many_launches_as_there_are_passes(bench: Bench) -> None:
    bench.script, bench.other = scattered(5.0, 5.0, 5.0), 0.1
    cell = bench.run()
    with pytest.raises(AssertionError, match="the idle machine drew 10 W and 5 W while calls ran"):
        assert_energy(cell, over=Measurement(cell.source, cell.baseline, cell.baseline), at_most=100)
    assert bench.passes == 3
    assert bench.lab.kept[-1].launches == 3


def unread_of(bench: Bench) -> dict[str, str]:
    """Return what a report of the last run says of what the one cell lacks."""
    with Store.open(bench.lab.store, read_only=True) as store:
        run = store.runs()[-1]
        (report,) = (one for one in cell_reports(store, run.id) if one.cell.compiler == bench.lab.compiler)
    return dict(report.unread)


def test_where_a_probe_came_later_it_is_not_said_that_there_is_none(bench: Bench) -> None:
    bench.script = [Power(why_no_energy="no probe of energy: rapl: not there", why_no_load="no GPU says it")]
    assert bench.run().why_null("joules_per_sample").startswith("no probe of energy")
    others = "other processes kept 1.0 of 2 CPUs busy"
    bench.script, bench.passes = [drawn(5.0, invalid=others)], 0
    with pytest.raises(AssertionError):
        assert_energy(bench.run(), at_most=1.0)
    said = unread_of(bench)
    assert said["joules_per_sample"] == said["gpu_utilisation_percent"] == f"the latest pass does not count: {others}"


def test_passes_by_another_probe_say_nothing_of_what_is_above_idle(bench: Bench) -> None:
    bench.script = [drawn(5.0, idle=51.0), drawn(5.0), drawn(5.0, busy=10.1, covers="ina3221: the whole module")]
    cell = bench.run()
    assert cell.why_null("joules_above_idle").startswith("the idle machine drew 10 W and 10.1 W")
    assert unread_of(bench)["joules_above_idle"] == cell.why_null("joules_above_idle")


def test_a_pass_that_does_not_count_hides_nothing_of_those_that_do(bench: Bench) -> None:
    bench.script = [drawn(5.0), drawn(5.0, busy=10.1), drawn(5.0), drawn(5.0, invalid="x")]
    cell = bench.run()
    assert cell.why_null("joules_above_idle").startswith("in 1 of 3 passes")
    said = unread_of(bench)
    assert said["joules_above_idle"].startswith("in 1 of 3 passes")
    assert "joules_per_sample" not in said


def test_where_more_was_drawn_idle_what_is_above_it_is_below_nothing(bench: Bench) -> None:
    bench.script = [drawn(5.0, idle=51.0)]
    with pytest.raises(AssertionError, match=r"^energy above idle -100(\.0)? µJ, inconclusive:"):
        assert_energy(bench.run(), of="above_idle", at_most=1e9)


def test_idle_windows_that_scatter_hide_as_much() -> None:
    steady, scattered = drawn(5.0, busy=12.0), drawn(5.0, busy=12.0)
    idle = tuple(Window(block, 2.0, 2 * watts) for block, watts in enumerate((8.0, 12.0, 8.0, 12.0)))
    scattered = replace(scattered, idle=idle)
    assert steady.indistinct == ""
    assert scattered.idle_watts == steady.idle_watts
    assert "drew 10 W and 12 W while calls ran, which is no more than the 2.5 W" in scattered.indistinct
    # A faster counter is off by less.
    near = drawn(5.0, busy=10.1)
    assert near.indistinct
    assert replace(near, update_seconds=0.001).indistinct == ""
    assert replace(near, update_seconds=0.1).indistinct
    # So is a register that knows no difference of 0.1 W.
    assert replace(near, update_seconds=0.001, step_watts=0.12).indistinct


def test_what_is_not_known_to_be_above_idle_is_null_and_says_so(bench: Bench) -> None:
    bench.script = [drawn(5.0, idle=50.5)]
    cell = bench.run()
    assert cell.why_null("joules_per_sample") == ""
    assert cell.why_null("joules_above_idle") == "the idle machine drew 50.5 W and 50 W while calls ran"
    bench.script = [drawn(5.0, idle=49.9)]
    said = bench.run(batches=(2,)).why_null("joules_above_idle")
    assert said.endswith("which is no more than the 1 W that these windows may be off by")


def test_clocks_are_said_beside_where_they_are_known(bench: Bench) -> None:
    power = drawn(5.0)
    busy = tuple(replace(one, megahertz=2400.0 + 100 * one.block) for one in power.busy)
    idle = tuple(replace(one, megahertz=1200.0) for one in power.idle)
    bench.script = [replace(power, busy=busy, idle=idle)]
    assert_energy(bench.run(), at_most=0.006)
    said = "the CPUs ran at 2.55 GHz (2.40 to 2.70) while calls ran, 1.20 GHz idle"
    assert said in bench.lab.kept[-1].extra["notes"]


def test_what_is_not_said_is_null_with_the_reason_and_the_rest_is_there(bench: Bench) -> None:
    bench.script = [drawn(5.0, why_no_load="nvml: NVML: the utilisation: Not Supported")]
    cell = bench.run()
    assert cell.why_null("joules_per_sample") == ""
    assert cell.why_null("gpu_utilisation_percent") == "nvml: NVML: the utilisation: Not Supported"
    assert cell.joules_per_sample.value == pytest.approx(0.005, rel=0.01)
    with Store.open(bench.lab.store, read_only=True) as store:
        report = next(one for one in cell_reports(store, store.runs()[-1].id) if one.cell == cell.cell)
    assert report.unread == {"gpu_utilisation_percent": "nvml: NVML: the utilisation: Not Supported"}
    setup = Setup(LATENCY, "m", "how", report)
    metric = next(one for one in METRICS if one.name == "gpu_utilisation_percent")
    assert why_null(metric, setup, on_gpu=True) == "nvml: NVML: the utilisation: Not Supported"
    assert why_null(metric, setup, on_gpu=False) == "no GPU"


def test_a_machine_that_says_nothing_is_null_in_reports_too(bench: Bench) -> None:
    bench.script = [Power(why_no_energy="no probe of energy: rapl: not there", why_no_load="no GPU says it")]
    cell = bench.run()
    assert cell.why_null("idle_watts").startswith("no probe of energy: rapl: not there")
    with Store.open(bench.lab.store, read_only=True) as store:
        report = next(one for one in cell_reports(store, store.runs()[-1].id) if one.cell == cell.cell)
    assert report.unread["joules_above_idle"] == "no probe of energy: rapl: not there"
    assert report.unread["gpu_utilisation_percent"] == "no GPU says it"


def test_the_third_papers_suite_goes_on_where_nvml_does_not_say_the_use_of_a_gpu(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pytestconfig: pytest.Config,
) -> None:
    pytestconfig.addinivalue_line("markers", "smoke: of the suite")
    path = Path(__file__).parents[2] / "example_suites/latency_vs_throughput/test_latency_vs_throughput.py"
    spec = spec_from_file_location("latency_vs_throughput", path)
    assert spec is not None
    assert spec.loader is not None
    suite = module_from_spec(spec)
    spec.loader.exec_module(suite)
    memory = CompileRecord(Outcome.OK, peak_memory_bytes=300 << 20, peaks=(("run_peak_memory_bytes", 100 << 20),))
    monkeypatch.setattr(local, "memory_pass", lambda *_: (memory, memory.peak_memory_bytes))
    bench.script = [drawn(5.0, why_no_load="nvml: NVML: the utilisation: Not Supported")]
    cell = bench.run()
    bench.lab.script = [Made()] * 3
    on_gpu = SimpleNamespace(
        ensure=cell.ensure, target="cuda:onnxruntime[cuda]", why_null=cell.why_null, quantity=cell.quantity
    )
    suite.six_metrics(on_gpu)
    said = "gpu_utilisation_percent of cuda:onnxruntime[cuda]: null, nvml: NVML: the utilisation: Not Supported"
    assert capsys.readouterr().out.strip() == said
    # A number that is none is still a failure.
    on_gpu.why_null = lambda metric: ""
    on_gpu.quantity = lambda metric: SimpleNamespace(estimate=lambda: SimpleNamespace(value=101.0))
    with pytest.raises(AssertionError):
        suite.six_metrics(on_gpu)


def test_the_size_of_what_is_deployed_is_claimed(bench: Bench) -> None:
    cell = bench.run()
    bench.lab.script = [Made(model_bytes=98 << 20)] * 7
    assert assert_model_size(cell, at_most=98 << 20).value == 98 << 20
    with pytest.raises(AssertionError, match=r"98.0 MiB > 90.0 MiB: assert_model_size"):
        assert_model_size(cell, at_most=90 << 20)


def test_where_nothing_is_deployed_a_claim_about_its_size_is_open(bench: Bench) -> None:
    cell = bench.run()
    bench.lab.script = [Made()] * 3
    with pytest.raises(AssertionError, match=r"nothing is deployed: .* neither writes a file nor reads a model"):
        assert_model_size(cell, at_most=100 << 20)
    assert bench.lab.kept[-1].verdict == "inconclusive"


def test_passes_that_do_not_count_are_null_with_why(bench: Bench) -> None:
    bench.script = [drawn(5.0, invalid="a probe failed midway: it stood still")]
    said = "3 passes do not count: a probe failed midway: it stood still"
    assert bench.run().why_null("joules_per_sample") == said


def test_what_was_measured_is_in_reports(bench: Bench) -> None:
    bench.script = scattered(5.0, 5.05, 4.97)
    cell = bench.run()
    assert_energy(cell, at_most=0.006)
    with Store.open(bench.lab.store, read_only=True) as store:
        report = next(one for one in cell_reports(store, store.runs()[-1].id) if one.cell == cell.cell)
    assert report.estimates["joules_per_sample"].value == pytest.approx(0.005, rel=0.01)
    assert report.estimates["idle_watts"].value == pytest.approx(10.0)
    assert "gpu_utilisation_percent" not in report.estimates


def test_peaks_are_claimed_by_where_and_when(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = (("compile_peak_memory_bytes", 300 << 20), ("run_peak_memory_bytes", 100 << 20))
    unread = (("run_peak_gpu_memory_bytes", "NVML: Not Supported"),)
    record = CompileRecord(Outcome.OK, peak_memory_bytes=300 << 20, peaks=peaks, unread=unread)
    monkeypatch.setattr(local, "memory_pass", lambda *_: (record, record.peak_memory_bytes))
    cell = bench.run()
    assert assert_memory(cell, at_most=200 << 20, phase="running").value == 100 << 20
    assert assert_memory(cell, at_least=200 << 20, phase="compiling").value == 300 << 20
    with pytest.raises(AssertionError, match="it cannot be read: NVML: Not Supported"):
        assert_memory(cell, at_most=1, of="gpu", phase="running")
    with pytest.raises(ClaimError, match="of='disk', phase='' "):
        assert_memory(cell, at_most=1, of="disk")


def test_a_peak_of_compiling_that_one_pass_has_is_open_and_says_what_gives_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, why = [], "what was compiled before was loaded (rebuild=True in the marker compiles each time)"

    def memory_pass(*_: object) -> tuple[CompileRecord, int]:
        passes.append(1)
        name, running = "compile_peak_memory_bytes", ("run_peak_memory_bytes", 100 << 20)
        record = CompileRecord(Outcome.OK, peak_memory_bytes=300 << 20, peaks=(running,), unread=((name, why),))
        if len(passes) == 1:
            record = replace(record, peaks=((name, 300 << 20), running), unread=())
        return record, 300 << 20

    monkeypatch.setattr(local, "memory_pass", memory_pass)
    with pytest.raises(AssertionError) as caught:
        assert_memory(bench.run(), at_most=1 << 30, phase="compiling")
    assert len(passes) <= 4
    assert f"of 4 passes gave this number: {why}" in str(caught.value)
    assert "what to do: rebuild=True in the marker: every pass then compiles again" in str(caught.value)
    assert "too much else ran" not in str(caught.value)
    assert bench.lab.kept[-1].verdict == "inconclusive"
