"""What is made of several cells of a sweep - BSR, slope and others - in saved baselines, comparisons and histories."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.report.baselines.comparing import DIFFERENCE, RATIO, Against, Compared
from pytest_ngraph.report.baselines.file import read, write
from pytest_ngraph.report.baselines.saved import Saved, key_of
from pytest_ngraph.report.baselines.saving import baseline_of_run
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, ModelRef, Workload, digest
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.sqlite import Store
from tests.report.test_noise import profile
from tests.support.sessions import FACTS, Day, add_sweep, cell, keys_of

WITH_CHANGES = pytest.mark.skipif(find_spec("ruptures") is None, reason="ruptures is not installed")
UNKNOWN = profile()


def test_a_cell_is_found_in_another_checkout_with_its_neighbour() -> None:
    def lies_in(folder: str, name: str = "other.py:make") -> Cell:
        model, beside = (ModelRef(each, "file", f"{folder}/{each}") for each in ("net.py:make", name))
        workload = Workload(model, 1, neighbour=f"{name}@identity", beside=beside)
        return Cell("local", CompilerSpec("identity"), workload)

    assert key_of(lies_in("/ours"), Path("/ours")) == key_of(lies_in("/theirs"), Path("/theirs"))
    assert key_of(lies_in("/ours"), Path("/ours")) != key_of(lies_in("/ours", "third.py:make"), Path("/ours"))


def batches(*ms: float, at: tuple[int, ...] = (1, 8)) -> dict[Cell, float]:
    """Return what calls of the compiled cells take at these batches. Those of the baseline take 8 ms a sample."""
    base = {cell("identity", batch): 8.0 * batch for batch in at}
    return base | {cell("onnxruntime", batch): each for batch, each in zip(at, ms, strict=True)}


def depths(*speedups: float, at: tuple[int, ...] = (1, 2, 4)) -> dict[Cell, float]:
    base = {cell("identity", 1, depth=depth): 8.0 * depth for depth in at}
    fast = {cell("onnxruntime", 1, depth=depth): 8.0 * depth / each for depth, each in zip(at, speedups, strict=True)}
    return base | fast


def widths(*efficiencies: float) -> dict[Cell, float]:
    """Return times of two widths at batches 1 and 8 with these scaling efficiencies at batch 8, of one compiler."""
    found = {}
    for width, efficiency in zip((64, 128), efficiencies, strict=True):
        found[cell("onnxruntime", 1, width=width)] = 4.0
        found[cell("onnxruntime", 8, width=width)] = 4.0 / efficiency
    return found


def saved(path: Path, times: Mapping[Cell, float], *days: Day) -> Saved:
    for number, day in enumerate(days or (Day(),), 1):
        add_sweep(path, day, number, times)
    with Store.open(path, read_only=True) as store:
        return baseline_of_run(store, store.runs()[-1], "main", path.parent)


def compared(
    tmp_path: Path,
    then: Mapping[Cell, float],
    now: Mapping[Cell, float],
    *,
    sessions: int = 8,
    scatter: float = 0.004,
    edit: Callable[[Saved], Saved] = lambda saved: saved,
    tolerance: float = 0.05,
    code: str = "now",
) -> dict[str, Compared]:
    """Save times of one day, and hold others against them on a machine that knows some sessions of equal code."""
    baseline = edit(saved(tmp_path / "then.sqlite", then))
    path = tmp_path / "now.sqlite"
    for number in range(100, 100 + sessions):
        shift = {one: ms * math.exp(scatter * (-1) ** (number + place)) for place, (one, ms) in enumerate(then.items())}
        add_sweep(path, Day(), number, shift)
    add_sweep(path, Day(code=code), 2, now)
    bases = {one.workload: one for one in now if one.compiler.name == "identity"}
    against = {one: bases[one.workload] for one in now if one.compiler.name != "identity" and bases}
    with Store.open(path, read_only=True) as store:
        held = Against(baseline, store, Machine.of(FACTS), PROTOCOLS["gate"], 0, tmp_path, UNKNOWN)
        kept = held.now(keys_of(Day(code=code), now), against)
        keys = {sweep.key: tolerance for some in kept for _, sweep, _ in some.sweeps}
        return {one.metric: one for one in held.compare(kept, {}, keys) if one.cell.compiler.name != "identity"}


def test_what_is_made_of_several_cells_is_saved_with_its_mean_on_its_scale(tmp_path: Path) -> None:
    found = saved(tmp_path / "a.sqlite", batches(4.0, 40.0), Day(), Day(launches=4))
    sweeps = {one.metric: one for one in found.sweeps or () if "onnxruntime" in one.label}
    assert set(sweeps) == {"ase", "bsr"}
    bsr = sweeps["bsr"]
    assert bsr.label == "Batch scaling resilience at batch 8 of local:onnxruntime block:conv over identity"
    assert bsr.saved.value == pytest.approx(0.8, rel=0.01)
    assert bsr.saved.mean.theta == pytest.approx(math.log(bsr.saved.value))
    assert bsr.saved.low < bsr.saved.value < bsr.saved.high
    assert bsr.saved.mean.sessions == (3, 4)
    assert 0 < bsr.saved.mean.variance < 1e-3
    assert (len(bsr.cells), bsr.scale, bsr.threads) == (4, 1.0, "8")

    slope = {one.metric: one for one in saved(tmp_path / "b.sqlite", depths(1.0, 1.2, 1.6)).sweeps or ()}
    assert slope["slope"].saved.value == pytest.approx(0.2, abs=0.01)
    assert slope["slope"].saved.mean.theta == slope["slope"].saved.value
    # The tolerance is a fraction of the mean speed-up over the range of depths.
    assert slope["slope"].scale == pytest.approx(3.8 / 3 / 3, rel=0.01)
    assert slope["retention"].saved.value == pytest.approx(1.6, rel=0.01)

    (friction,) = [
        one for one in saved(tmp_path / "c.sqlite", widths(0.9, 0.6)).sweeps or () if one.metric == "friction"
    ]
    assert friction.saved.value == pytest.approx(0.3, abs=0.01)
    assert friction.scale == pytest.approx(0.75, rel=0.01)


def test_a_file_keeps_sweeps_and_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = saved(tmp_path / "a.sqlite", {**batches(4.0, 40.0), **depths(1.0, 1.2, 1.6)})
    write(before, tmp_path / "main.json")
    after = read(tmp_path / "main.json")
    assert sorted(after.sweeps or (), key=lambda one: one.key) == sorted(before.sweeps or (), key=lambda one: one.key)
    assert main(["baseline", "show", str(tmp_path / "main.json")]) == 0
    out = capsys.readouterr().out
    assert "  Slope over depths 1 to 4 of local:onnxruntime block:conv batch1 over identity\n    0.2" in out
    assert "  Batch scaling resilience at batch 8 of local:onnxruntime block:conv over identity\n    0.8" in out


def test_a_sweep_that_became_worse_fails_and_one_that_did_not_passes(tmp_path: Path) -> None:
    said = compared(tmp_path, batches(4.0, 40.0), batches(4.0, 52.0))
    assert {name: one.verdict for name, one in said.items()} == {"ase": Verdict.FAIL, "bsr": Verdict.FAIL}
    assert said["bsr"].change.metric == RATIO
    assert said["bsr"].change.value == pytest.approx(40 / 52, rel=0.01)
    (tmp_path / "b").mkdir()
    said = compared(tmp_path / "b", batches(4.0, 40.0), batches(4.4, 44.0))
    assert {one.verdict for one in said.values()} == {Verdict.PASS}


@pytest.mark.parametrize("speedups", [(1.0, 1.2, 1.6), (1.6, 1.4, 1.0), (1.3, 1.3, 1.3)])
def test_slopes_below_and_at_zero_are_compared_by_their_difference(
    speedups: tuple[float, float, float], tmp_path: Path
) -> None:
    """A ratio of slopes says nothing where one of them is 0 or less."""
    worse = (speedups[0] + 0.3, speedups[1], speedups[2] - 0.3)
    said = compared(tmp_path, depths(*speedups), depths(*worse))
    assert said["slope"].verdict is Verdict.FAIL
    assert said["slope"].change.metric == DIFFERENCE
    assert said["slope"].change.value == pytest.approx(-0.2 + 0.3 / 7, abs=0.06)
    assert said["slope"].change.high < 0
    assert said["retention"].verdict is Verdict.FAIL
    (tmp_path / "b").mkdir()
    same = compared(tmp_path / "b", depths(*speedups), depths(*speedups))
    assert same["slope"].verdict is Verdict.PASS
    (tmp_path / "c").mkdir()
    better = compared(tmp_path / "c", depths(*worse), depths(*speedups))
    assert better["slope"].verdict is Verdict.PASS
    assert "better by more than the tolerance" in better["slope"].reason


def test_more_friction_is_worse(tmp_path: Path) -> None:
    said = compared(tmp_path, widths(0.9, 0.6), widths(0.9, 0.4))
    assert said["friction"].verdict is Verdict.FAIL
    assert said["friction"].change.value == pytest.approx(-0.2, abs=0.02)


def test_where_sessions_are_not_known_to_differ_it_only_warns(tmp_path: Path) -> None:
    said = compared(tmp_path, batches(4.0, 40.0), batches(4.0, 52.0), sessions=0)
    assert {one.verdict for one in said.values()} == {Verdict.NOT_JUDGED}
    assert all(one.warns and "ngraph doctor --noise --sessions" in one.reason for one in said.values())


def test_of_a_noisy_slope_the_scatter_is_said_in_its_unit(tmp_path: Path) -> None:
    said = compared(tmp_path, depths(1.0, 1.2, 1.6), depths(1.0, 1.15, 1.5), scatter=0.1)
    assert said["slope"].verdict is Verdict.INCONCLUSIVE
    assert (
        "per layer here (9 sessions in the store)" in said["slope"].reason
        or "per layer here (8" in said["slope"].reason
    )


def test_the_same_code_is_unchanged(tmp_path: Path) -> None:
    said = compared(tmp_path, batches(4.0, 40.0), batches(4.0, 52.0), code="code")
    assert {one.reason for one in said.values()} == {"unchanged: the same code, versions and machine as saved"}


def test_other_batches_and_other_depths_are_another_sweep(tmp_path: Path) -> None:
    """BSR at batch 8 is never held against BSR at batch 16, nor a slope against that of other depths."""
    assert compared(tmp_path, batches(4.0, 40.0), batches(4.0, 90.0, at=(1, 16))) == {}
    (tmp_path / "b").mkdir()
    said = compared(tmp_path / "b", depths(1.0, 1.2, 1.6), depths(1.0, 1.4, 1.6, at=(1, 3, 4)))
    # Retention is of the first and the last, which are the same.
    assert set(said) == {"retention"}
    (tmp_path / "c").mkdir()
    assert compared(tmp_path / "c", depths(1.0, 1.2, 1.6), {}) == {}


def test_launches_of_another_machine_are_not_merged_into_a_baseline(tmp_path: Path) -> None:
    """A store may hold runs of two machines, or of one whose governor was changed, with the same evidence."""
    fast = {one: ms / 2 for one, ms in batches(4.0, 40.0).items()}
    path = tmp_path / "a.sqlite"
    for facts in ({"node": "bench-2"}, {"governor": "powersave"}):
        add_sweep(path, Day(facts=facts), 50 + len(facts["node"]) if "node" in facts else 51, fast)
    found = saved(path, batches(4.0, 40.0), Day())
    (mine,) = [one for one in found.cells if one.label == cell().label]
    assert mine.metrics["latency"].mean.sessions == (3,)
    assert mine.metrics["latency"].value == pytest.approx(0.004, rel=0.01)
    assert {one.saved.mean.sessions for one in found.sweeps or ()} == {(3,)}
    # A run that only judged what another machine had measured has nothing of its own to save.
    with Store.open(path) as store:
        run = store.start_run(
            "other", command=[], seed=0, protocol=PROTOCOLS["gate"], environment={**FACTS, "node": "bench-3"},
            fresh=False, resumed=False,
        )  # fmt: skip
        store.use_cells(run, keys_of(Day(), fast))
        row = next(one for one in store.runs() if one.id == run)
        with pytest.raises(SpecError, match=r"that count \(those of bench-1, bench-2 do not: it is another machine\)"):
            baseline_of_run(store, row, "main", tmp_path)


# Files


def sealed(path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    fields = json.loads(path.read_text())
    edit(fields)
    fields.pop("digest", None)
    path.write_text(json.dumps({**fields, "digest": digest(fields)}))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(saved(tmp_path / "a.sqlite", batches(4.0, 40.0)), tmp_path / "main.json")
    return tmp_path / "main.json"


def older(fields: dict[str, Any]) -> None:
    del fields["sweeps"]
    fields["schema"] = 1


def test_a_file_from_before_there_were_sweeps_still_opens(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read(sealed(file, older))
    assert found.sweeps is None
    assert len(found.cells) == 4
    assert main(["baseline", "show", str(file)]) == 0
    assert "saved before sweeps were" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda f: f.pop("sweeps"), "sweeps is missing (expected a list)"),
        (lambda f: f.update(schema=1), "sweeps is not known"),
        (lambda f: f["sweeps"][0].update(key="0" * 32), "does not fit its metric and cells"),
        (lambda f: f["sweeps"][0].update(metric="speed"), "metric 'speed' is not known"),
        (lambda f: f["sweeps"][0].update(metric="slope"), "does not fit its metric and cells"),
        (lambda f: f["sweeps"][0].update(cells=[]), "sweeps[0].cells is [] (expected a list of texts)"),
        (lambda f: f["sweeps"][0]["cells"].reverse(), "does not fit its metric and cells"),
        (lambda f: f["sweeps"][0].update(scale=0.5), "(expected 1 for a ratio)"),
        (lambda f: f["sweeps"][0].update(scale=-1), "sweeps[0].scale is -1"),
        (lambda f: f["sweeps"][0].update(device="x"), 'sweeps[0].device is "x" (expected one of machines)'),
        (lambda f: f["sweeps"][0].update(variance=-1), "sweeps[0].variance is -1"),
        (lambda f: f["sweeps"][0].update(value=9.0), "is not within its interval"),
        (lambda f: f["sweeps"][0].update(state="fast"), '"fast" (expected such as 75us/360ns)'),
        (lambda f: f["sweeps"].append(f["sweeps"][0]), "is there twice"),
        (lambda f: f["sweeps"][0].update(more=1), "sweeps[0].more is not known"),
    ],
)
def test_what_is_wrong_with_a_sweep_in_a_file_is_named(
    edit: Callable[[dict[str, Any]], object], complaint: str, file: Path
) -> None:
    with pytest.raises(SpecError) as raised:
        read(sealed(file, edit))
    assert complaint in str(raised.value)


def test_an_edited_sweep_is_refused(file: Path) -> None:
    fields = json.loads(file.read_text())
    fields["sweeps"][0]["mean"] += 0.1
    file.write_text(json.dumps(fields))
    with pytest.raises(SpecError, match="digest does not fit the file"):
        read(file)


def test_what_others_write_into_a_file_does_nothing_to_a_terminal(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(file, lambda fields: fields["sweeps"][0].update(label="\x1b[2Jcleared\x07"))
    sealed(file, lambda fields: fields["origin"].update(commit="\x1b]0;title\x07abc"))
    assert main(["baseline", "show", str(file)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "cleared\\x07" in out
    assert "commit abc" in out


# Histories


def history(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> list[str]:
    assert main(["history", "--store", str(path), *arguments]) == 0
    return capsys.readouterr().out.splitlines()


@WITH_CHANGES
def test_a_history_of_a_sweep_shows_where_it_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.sqlite"
    for number in range(12):
        times = {**batches(4.0, 40.0 if number < 6 else 48.0), **depths(1.0, 1.2, 1.6 if number < 6 else 1.0)}
        add_sweep(path, Day(code=f"c{number}"), number, times)
    lines = history(capsys, path, "--metric=bsr")
    assert lines[0] == "Batch scaling resilience at batch 8 of local:onnxruntime block:conv over identity"
    assert lines[2].split()[-2:] == ["bsr", "change"]
    changed = [line for line in lines if line.endswith("%") and line.split()[0].isdigit()]
    assert [line.split()[0] for line in changed] == ["7"]
    assert -19 < float(changed[0].split()[-2]) < -15
    # A slope that crosses 0 changes by a difference.
    lines = history(capsys, path, "--metric=slope")
    rows = [line.split() for line in lines if line.strip() and line.split()[0].isdigit()]
    assert rows[6][-1].startswith("-0.2")
    assert main(["history", "--store", str(path), "--metric=retention", "--csv", str(tmp_path / "h.csv")]) == 0
    with (tmp_path / "h.csv").open() as table:
        first, *_ = csv.DictReader(table)
    assert first["quantity"] == "Retention over depths 1 to 4 of local:onnxruntime block:conv batch1 over identity"
    assert float(first["low"]) < float(first["value"]) < float(first["high"])


def test_sessions_of_other_batches_are_no_history_of_one_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.sqlite"
    add_sweep(path, Day(code="a"), 1, batches(4.0, 40.0))
    add_sweep(path, Day(code="b"), 2, batches(4.0, 90.0, at=(1, 16)))
    lines = history(capsys, path, "--metric=bsr")
    heads = [line for line in lines if line.startswith("Batch scaling resilience")]
    assert [head.split()[5] for head in heads] == ["16", "8"]
    assert sum(line.strip().startswith(("1 ", "2 ")) for line in lines) == 2


def test_sessions_of_one_second_and_of_a_clock_that_went_back_stay_in_the_order_of_their_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.sqlite"
    for number, began in enumerate(("10:00:00", "10:00:00", "09:00:00", "11:00:00"), 1):
        monkeypatch.setattr("pytest_ngraph.store.sqlite._now", lambda began=began: f"2026-05-04T{began}.000+00:00")
        add_sweep(path, Day(code=f"c{number}", commit="<b>\x1b[2J"), number, batches(4.0 + number, 40.0))
    lines = [line.split() for line in history(capsys, path, "--metric=ase")]
    rows = [words for words in lines if words and words[0].isdigit()]
    mine = rows[-4:]
    assert [words[0] for words in mine] == ["1", "2", "3", "4"]
    assert [words[2] for words in mine] == ["10:00", "10:00", "09:00", "11:00"]
    assert {words[3] for words in mine} == {"<b>"}
