"""The command ``ngraph``: doctor and export, as a user calls them."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ngraph.cli import COMMANDS, main
from pytest_ngraph.commands.doctor import doctor_lines, measure_noise, profile_lines
from pytest_ngraph.compilers.null import NullCompiler
from pytest_ngraph.compilers.torch.identity import IdentityCompiler
from pytest_ngraph.devices import lock
from pytest_ngraph.errors import DeviceBusy, SpecError
from pytest_ngraph.launches import equal_code as noise
from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.equal_code import EqualLaunches, NoiseProfile, noise_profile
from pytest_ngraph.machine import gpu
from pytest_ngraph.probes import catalogue
from pytest_ngraph.report.noise.profile import read_profile
from pytest_ngraph.spec.cells import CompilerSpec, LaunchRecord
from pytest_ngraph.store.sqlite import Store
from tests.conftest import ROOT
from tests.golden.store_content import fill
from tests.report.test_noise import PAIR, launch, profile
from tests.support.fake_sys import rail, server


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        fill(store)
    return path


@pytest.mark.real
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


def test_doctor_lists_the_gpus_or_says_why_there_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Card:
        def facts(self) -> dict[str, str]:
            return {"name": "Orin", "driver": "540.4"}

        def energy_joules(self) -> float:
            return 1.0

        def utilisation(self) -> float:
            return 0.0

    def find(accelerator: str) -> Card:
        if accelerator in cards:
            return Card()
        raise SpecError(f"there is no GPU {accelerator}")

    monkeypatch.setattr(gpu, "find", find)
    cards: list[str] = []
    assert main(["doctor", "--noise-seconds", "0"]) == 0
    assert "cuda: no, there is no GPU cuda:0" in capsys.readouterr().out
    cards += ["cuda:0", "cuda:1"]
    assert main(["doctor", "--noise-seconds", "0"]) == 0
    output = capsys.readouterr().out
    assert "cuda:0: Orin, driver 540.4" in output
    assert "cuda:1: Orin, driver 540.4" in output
    assert "no GPU" not in output
    assert "  energy  nvml        yes  the board of the GPU cuda:0" in output
    assert "  load    nvml        yes  the GPU cuda:0, all of its processes" in output


@pytest.mark.parametrize("columns", [80, 120])
def test_doctors_lines_are_no_longer_than_the_terminal(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(catalogue, "SYS", tmp_path)
    rail(tmp_path, "hwmon3", 1, "VDD_GPU_SOC", 5000, 1000)
    server(tmp_path)
    lacking = 'not installed (pip install "pytest-ngraph[something-with-a-long-name]")'
    monkeypatch.setattr(NullCompiler, "missing", lambda self: f"its library is of another version, and {lacking}")
    everything = list(doctor_lines())
    assert all(len(line) <= columns or " " not in line.strip() for line in everything)
    # A command stays whole: it is there to be copied.
    assert 'pip install "pytest-ngraph[something-with-a-long-name]"' in "\n".join(everything)
    lines = everything[everything.index("probes") + 1 : everything.index("compilers")]
    # But for a path, which stays whole on a line of its own.
    assert all(len(line) <= columns or " " not in line.strip() for line in lines)
    assert max(len(line) for line in lines if str(tmp_path) not in line) > columns - 20
    # All of it is there, and what follows stands below what it belongs to.
    text = " ".join(line.strip() for line in lines)
    assert "none of which is known to feed the whole module (known: VDD_IN, POM_5V_IN, 5V_IN)" in text
    assert "yes  the CPU packages and their memory, of the whole machine and not of one process; windows of 2 s" in text
    assert all(line.startswith(("  energy  ", "  load    ", " " * 22)) for line in lines)


@pytest.mark.real
def test_doctor_measures_how_noisy_the_machine_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--noise-seconds", "0.5"]) == 0
    output = capsys.readouterr().out
    assert "between visits" in output
    assert any(f"noise       {grade}" in output for grade in ("quiet", "noisy", "unusable"))
    assert "ngraph doctor --noise" in output


def launches_say(monkeypatch: pytest.MonkeyPatch, folder: Path, *records: LaunchRecord) -> list[CompilerSpec]:
    """Let launches of equal code be these, and return the compilers that were asked for; no runtime is installed.

    They hold a device lock of their own in ``folder``, which is the current one from here on.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setattr(lock, "_SHARED", folder)
    asked = []

    def equal_launches(
        job: Job, compiler: CompilerSpec, *, report: Callable[[str], None], **_: object
    ) -> EqualLaunches:
        with pytest.raises(DeviceBusy), lock.device_lock(job.device.name, waiting=lambda _: None, limit_seconds=0):
            pass
        asked.append(compiler)
        report("launch 1: 5.0 s")
        return EqualLaunches(PAIR, records)

    monkeypatch.setattr(IdentityCompiler, "missing", lambda self: "not installed")
    monkeypatch.setattr(noise, "equal_launches", equal_launches)
    return asked


@pytest.mark.real
def test_doctor_measures_a_noise_profile_that_later_runs_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = launches_say(monkeypatch, tmp_path, launch(0.99), launch(1.0), launch(1.01))

    measure_noise(Path(".ngraph/results.sqlite"), 0.1, 3)

    assert [str(compiler) for compiler in asked] == ["null[fixed_us=1000]"]
    output = capsys.readouterr().out
    assert "launches    3 of null[fixed_us=1000] against itself" in output
    assert "  launch 1: 5.0 s\n" in output
    mine, note = read_profile(tmp_path / ".ngraph" / "noise-local.json", "local")
    assert mine is not None, note
    assert mine.scatter == pytest.approx(0.01, rel=1e-3)
    assert "noise       quiet: a gate of 5 % is decided within 8 launches" in output
    for look, effect in ((3, "14 %"), (4, "7 %"), (6, "3.1 %"), (8, "2.2 %"), (12, "1.4 %"), (16, "1.2 %")):
        assert re.search(rf"^ +{look} launches +{effect}  after about {2 * look}[.]0", output, re.MULTILINE)
    assert "  kept      .ngraph/noise-local.json\n" in output
    assert (tmp_path / ".ngraph" / ".gitignore").read_text() == "*\n"


@pytest.mark.real
def test_doctor_keeps_no_profile_of_launches_that_would_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launches_say(monkeypatch, tmp_path, launch(1.0), launch(1.0, invalid="other processes kept 1.9 of 2 CPUs busy"))

    measure_noise(Path(".ngraph/results.sqlite"), 0.1, 3)

    output = capsys.readouterr().out
    assert "noise       unusable: fewer than two launches would have counted; nothing is kept" in output
    assert not (tmp_path / ".ngraph" / "noise-local.json").exists()


def test_doctor_says_before_measuring_that_nothing_can_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")

    assert main(["doctor", "--noise", "--store", str(tmp_path / "file" / "results.sqlite")]) == 2

    captured = capsys.readouterr()
    assert captured.err.startswith(f"ngraph doctor: store {tmp_path / 'file' / 'results.sqlite'}: ")
    assert "launch" not in captured.out


def test_doctor_needs_three_launches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--noise", "--noise-launches", "2"])
    assert "'2' is not allowed (expected a whole number of at least 3)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("scatter", "counted", "expected"),
    [
        (0.01, 5, "quiet: a gate of 5 % is decided within 8 launches"),
        (0.03, 5, "noisy: a gate of 5 % needs up to 12 launches (within the default budget)"),
        (0.045, 5, "noisy: a gate of 5 % needs up to 24 launches (--ngraph-budget=24)"),
        (0.1, 5, "unusable: a gate of 5 % is not decided in 32 launches"),
        (0.01, 3, "noisy: 2 of 5 launches would not have counted"),
        (0.01, 2, "unusable: 3 of 5 launches would not have counted"),
    ],
)
def test_a_grade_says_what_it_means_for_a_gate(scatter: float, counted: int, expected: str) -> None:
    mine = profile(scatter, counted=counted)

    lines = list(profile_lines(mine, ["one state", "another state"]))

    assert lines[0] == f"noise       {expected}"
    assert [line.strip() for line in lines if "state" in line][1:] == ["one state", "another state"]
    assert any("what to do" in line for line in lines) == (mine.grade != "quiet")


def test_doctor_imports_no_runtime() -> None:
    code = (
        "import sys; from pytest_ngraph.cli import COMMANDS, main; main(['doctor', '--noise-seconds', '0']); "
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


@pytest.mark.real
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


def test_export_writes_all_rows_and_markdown_with_a_table_of_cells_before_them(filled: Path) -> None:
    for suffix in ("json", "md", "csv"):
        assert main(["export", str(filled.parent / f"r.{suffix}"), "--store", str(filled)]) == 0
    rows = json.loads((filled.parent / "r.json").read_text())
    cells, _, numbers = (filled.parent / "r.md").read_text().partition("<details>")
    assert numbers.startswith(f"<summary>Every number ({len(rows)})</summary>")
    assert numbers.count("\n| ") == len(rows) + 2
    assert cells.count("\n| ") == len({(row["compiler"], row["batch"], row["model"]) for row in rows}) + 2
    assert len((filled.parent / "r.csv").read_text().splitlines()) == len(rows) + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["results.csv", "--store", "nowhere.sqlite"], "no file nowhere.sqlite"),
        (["results.csv", "--run", "99"], "no run 99"),
        (["results.xlsx"], "known: .csv, .json, .parquet, .md, .tex"),
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


def test_a_tilde_is_the_home_folder_and_that_of_nobody_is_refused(
    filled: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(filled.parent))
    assert main(["export", "~/tilde.csv", f"--store=~/{filled.name}"]) == 0
    assert (filled.parent / "tilde.csv").is_file()
    with pytest.raises(SystemExit):
        main(["export", "results.csv", "--store=~nobody-of-this-name/results.sqlite"])
    assert "argument --store: '~nobody-of-this-name/results.sqlite': " in capsys.readouterr().err


def test_devices_names_the_option_that_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--config", str(tmp_path / "missing.toml")]) == 2
    assert "--config: no file" in (said := capsys.readouterr().err)
    assert "--ngraph-config" not in said


def test_without_a_command_the_help_is_printed_and_a_script_still_notices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2

    said = capsys.readouterr()
    assert said.out.startswith("usage: ngraph ")
    assert all(f"    {name} " in said.out for name in ("doctor", "report", "export"))
    assert said.err == ""


def test_the_version_is_the_one_that_is_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pytest-ngraph {importlib.metadata.version('pytest-ngraph')}\n"

    monkeypatch.setattr("pytest_ngraph.cli.version_of", lambda distribution: None)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "pytest-ngraph of a checkout that is not installed\n"


def test_an_unknown_command_is_refused_with_those_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["exprot"])

    assert ended.value.code == 2
    assert "invalid choice: 'exprot'" in capsys.readouterr().err


NAMES = [module.__name__.rpartition(".")[2] for module in COMMANDS]


@pytest.mark.real
@pytest.mark.parametrize(
    "words", [*([name, "--help"] for name in NAMES if name != "catalogue"), ["devices"], ["--help"]]
)
def test_no_command_minds_that_nobody_reads_on(words: list[str], tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody_reads:
        done = subprocess.run(
            [sys.executable, "-m", "pytest_ngraph.cli", *words],
            stdout=nobody_reads,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path)},
            timeout=300,
        )
    assert done.stderr == b""
    # argparse minds nothing by itself.
    assert done.returncode == (0 if "--help" in words else 128 + signal.SIGPIPE)


@pytest.mark.parametrize("command", ["check", "repair", "compact", "size", "prune --older-than=1d"])
def test_a_folder_is_no_store(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", *command.split(), "--store", str(tmp_path)]) == 2
    assert f"--store: {tmp_path} is a folder; name a file in it, such as {tmp_path}/results.sqlite" in (
        " ".join(capsys.readouterr().err.split())
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "/lab/results.sqlite"), "/lab/results.sqlite: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("a text alone"), "a text alone"),
    ],
)
def test_what_the_system_refuses_is_an_error_and_no_answer(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> Path:
        raise error

    monkeypatch.setattr("pytest_ngraph.commands.store.store_path", refuse)

    assert main(["store", "check"]) == 2
    assert capsys.readouterr().err == f"ngraph store: {said}\n"


def test_options_of_pytest_that_are_not_closed_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k 'slow")
    assert main(["runs"]) == 2
    assert 'ngraph runs: PYTEST_ADDOPTS: "-k \'slow": No closing quotation (name the store with --store)' in (
        capsys.readouterr().err
    )
