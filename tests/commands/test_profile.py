"""``ngraph doctor --profile``: where the seconds of a launch go, as a table that fits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.commands.profile import spent_lines
from pytest_ngraph.spec.phases import COMPILE, IMPORTS, INTERPRETER, LOAD, PHASES, START, VISITS, WAITING, Spent
from tests.conftest import skip_without


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def spent_by(*compilers: str) -> Spent:
    clock = Clock()
    spent = Spent(clock)
    with spent.phase(START):
        clock.now += 4
    for number, name in enumerate(compilers):
        spent.beside(IMPORTS, name, 3.5)
        spent.beside(LOAD, name, 0.5)
        with spent.phase(COMPILE, name):
            clock.now += 1 + number
        with spent.phase(VISITS, name):
            clock.now += 2
    return spent.end()


def test_the_table_has_seconds_and_share_of_each_phase_and_the_seconds_of_each_compiler() -> None:
    assert list(spent_lines(spent_by("identity", "openvino"))) == [
        "  phase      seconds   share  identity  openvino",
        "  start         4.00    36 %",
        "    imports                       3.50      3.50",
        "    load                          0.50      0.50",
        "  compile       3.00    27 %      1.00      2.00",
        "  visits        4.00    36 %      2.00      2.00",
        "  total        11.00",
        "  start and load: workers side by side, so their own seconds overlap",
    ]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("name", ["openvino", "tvm[trials=32,patience=8,seconds=60]", "x" * 70])
def test_no_line_is_wider_than_80_whatever_the_compilers_are_called(count: int, name: str) -> None:
    names = [f"{number}{name}" for number in range(count)]

    lines = list(spent_lines(spent_by(*names)))

    assert max(map(len, lines)) <= 80
    # Whatever was split over tables and lines, each compiler has its column in one of them.
    assert sum(line.split().count("2.00") for line in lines if line.startswith("  visits")) == count + (count == 1)


def test_a_launch_that_took_no_time_divides_by_nothing() -> None:
    assert list(spent_lines(Spent(lambda: 1.0).end()))[-2].split() == ["total", "0.00"]


def test_a_phase_without_time_has_no_row() -> None:
    assert not any(WAITING in line for line in spent_lines(spent_by("identity")))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resnet18"], "model 'resnet18'"),
        # A kind that nobody has added is looked for by a worker, too.
        pytest.param(["nothing:resnet18"], "nothing:resnet18", marks=pytest.mark.real),
        (["nowhere.py:Net"], "no file 'nowhere.py'"),
        (["block:other"], "unknown block 'other' (known: block:conv, block:mha)"),
        (["block:conv", "--profile-batches", "1,x"], "--profile-batches: '1,x' is not allowed (expected whole numbers"),
        (["block:conv", "--profile-image-size", "0"], "--profile-image-size: '0' is not allowed"),
        (["block:conv", "--profile-compilers", "tensort"], "unknown compiler 'tensort' (known: executorch"),
        (["block:conv", "--profile-compilers", "null[fixed=1]"], "null"),
    ],
)
def test_what_is_unknown_is_an_error_that_names_it(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--profile", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.startswith("ngraph doctor: ")
    assert "Traceback" not in captured.err


@pytest.mark.real
def test_an_unknown_network_is_an_error_with_close_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    skip_without("torch", "timm")
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--profile", "timm:resnet19", "--profile-compilers", "identity"]) == 2
    assert "has no model 'resnet19' (close: resnet" in capsys.readouterr().err


@pytest.mark.real
def test_a_launch_is_profiled_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    skip_without("torch")
    monkeypatch.chdir(tmp_path)
    words = ["--profile-compilers", "null[fixed_us=500]", "--profile-batches", "2", "--profile-image-size", "16"]

    assert main(["doctor", "--profile", "block:conv", *words]) == 0

    output = capsys.readouterr().out
    assert output.startswith("profile     one launch of block:conv, batch 2\n")
    rows = dict(re.findall(r"^ +([a-z][a-z -]*?) +([\d.]+)", output, re.MULTILINE))
    assert {"total", "visits", "warm-up", "start", "imports"} <= set(rows)
    whole = [float(rows[phase]) for phase in PHASES if phase in rows and phase not in (INTERPRETER, IMPORTS)]
    assert sum(whole) == pytest.approx(float(rows["total"]), abs=0.1)
    header = next(line for line in output.splitlines() if line.lstrip().startswith("phase"))
    assert "identity" in header
    assert max(map(len, output.splitlines())) <= 80
    # Nothing of it counts for any gate.
    assert not (tmp_path / ".ngraph" / "results.sqlite").exists()
