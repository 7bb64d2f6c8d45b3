"""The command ``ngraph``: doctor and export, as a user calls them."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.measure.noise import NoiseProfile, noise_profile
from pytest_ngraph.store.sqlite import Store
from tests.golden.store_content import fill


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        fill(store)
    return path


def test_doctor_names_every_compiler_and_how_to_get_the_missing_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--noise-seconds", "0"]) == 0
    output = capsys.readouterr().out
    for name in ("identity", "torchscript", "inductor", "onnxruntime", "openvino", "null"):
        assert f"  {name}" in output
    assert "null        yes  (runs when named)" in output
    for line in output.splitlines():
        if "not installed" in line:
            assert 'pip install "pytest-ngraph[' in line
    assert "noise" not in output


def test_doctor_measures_how_noisy_the_machine_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--noise-seconds", "0.5"]) == 0
    output = capsys.readouterr().out
    assert "between visits" in output
    assert any(f"noise       {grade}" in output for grade in ("quiet", "noisy", "unusable"))


def test_doctor_imports_no_runtime() -> None:
    code = (
        "import sys; from pytest_ngraph.cli import main; main(['doctor', '--noise-seconds', '0']); "
        "print('HEAVY', sorted({'torch', 'onnxruntime', 'openvino', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout


@pytest.mark.parametrize(
    ("scatter", "delay", "others", "grade"),
    [(0.005, 0.0, 0.0, "quiet"), (0.05, None, None, "noisy"), (0.005, 0.1, 0.0, "noisy"), (0.3, 0.0, 0.0, "unusable")],
)
def test_the_grade_follows_the_worst_of_scatter_waiting_and_load(
    scatter: float, delay: float | None, others: float | None, grade: str
) -> None:
    assert NoiseProfile(scatter, 0.0, delay, others, 10).grade == grade


def test_a_noise_profile_has_visits_and_a_positive_scatter() -> None:
    profile = noise_profile(0.3)
    assert profile.visits >= 5
    assert profile.visit_scatter > 0
    assert profile.call_scatter > 0


def test_export_writes_a_row_for_each_cell_and_metric(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = filled.parent / "results.csv"
    assert main(["export", str(target), "--store", str(filled)]) == 0
    assert f"{target}: " in capsys.readouterr().out
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    metrics = {row["metric"]: row for row in rows if row["compiler"] == "onnxruntime[threads=1]"}
    assert {"latency", "throughput", "model_bytes", "load_seconds"} <= set(metrics)
    assert metrics["model_bytes"]["unit"] == "bytes"
    assert float(metrics["throughput"]["value"]) == pytest.approx(8 / float(metrics["latency"]["value"]))
    assert {"image_size [px]", "outcome", "placement", "baseline"} <= set(rows[0])
    assert any(row["outcome"] == "mismatch" and row["metric"] == "" for row in rows)


def test_export_writes_json_and_markdown_with_the_same_rows(filled: Path) -> None:
    for suffix in ("json", "md", "csv"):
        assert main(["export", str(filled.parent / f"r.{suffix}"), "--store", str(filled)]) == 0
    rows = json.loads((filled.parent / "r.json").read_text())
    assert len((filled.parent / "r.md").read_text().splitlines()) == len(rows) + 2
    assert len((filled.parent / "r.csv").read_text().splitlines()) == len(rows) + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["results.csv", "--store", "nowhere.sqlite"], "no file nowhere.sqlite"),
        (["results.csv", "--run", "99"], "no run 99"),
        (["results.xlsx"], "known: csv, json, md"),
    ],
)
def test_export_says_what_is_wrong(
    filled: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(filled.parent)
    given = arguments if "--store" in arguments else [*arguments, "--store", str(filled)]
    assert main(["export", *given]) == 2
    assert message in capsys.readouterr().err
