"""No password of a command line ends in the store, in a report, or where other users of the machine can read it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ngraph.devices.lock import device_lock, lock_path
from pytest_ngraph.options.masking import MASK, looks_secret, masked_command, masked_variables
from pytest_ngraph.report.html.content import content_of
from pytest_ngraph.report.html.page import page
from pytest_ngraph.store.rows import RunRow
from tests.conftest import Suite

SECRET = "s3cr3t-v4lue"
KEY = "hf_abcdefgh12345678"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["--ngraph-model=timm:resnet18", "--ngraph-batch", "1,2", "--ngraph-fresh", "tests"],
        ["-x", "-vv", "-rA", "-k", "not slow", "-m", "not slow", "-n4", "-n", "auto", "-p", "no:xdist", "-pngraph"],
        ["tests/test_x.py::test_a[local-null]", "tests/test_x.py", "tests", "."],
        ["-o", "ngraph_seed=3", "--override-ini=ngraph_seed=3", "-ongraph_seed=3", "--", "tests"],
        [
            "--junitxml=a.xml",
            "--maxfail",
            "3",
            "--tb",
            "short",
            "--cov",
            "--cov=pytest_ngraph",
            "--lf",
            "--durations=9",
        ],
        ["--pyargs", "pytest_ngraph.conformance", "--ngraph-compiler=mine"],
        ["--token", "--verbose"],
    ],
)
def test_what_makes_a_run_again_is_kept(folder: Path, words: list[str]) -> None:
    assert masked_command(["pytest", *words], folder) == ("pytest", *words)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ([f"--token={SECRET}"], [f"--token={MASK}"]),
        (["--token", SECRET, "tests"], ["--token", MASK, "tests"]),
        (["-o", f"api={SECRET}"], ["-o", f"api={MASK}"]),
        ([f"-oapi={SECRET}"], [f"-oapi={MASK}"]),
        ([f"--override-ini=api={SECRET}"], [f"--override-ini=api={MASK}"]),
        (["--override-ini", f"api={SECRET}"], ["--override-ini", f"api={MASK}"]),
        ([f"-Z{SECRET}"], [f"-Z{MASK}"]),
        ([f"-vZ{SECRET}"], [f"-vZ{MASK}"]),
        (["-Z", SECRET], ["-Z", MASK]),
        ([SECRET], [MASK]),
        (["--cov", f"--token={SECRET}"], ["--cov", f"--token={MASK}"]),
        (["--tb", "--token", SECRET], ["--tb", "--token", MASK]),
        (["--", SECRET], ["--", MASK]),
        ([f"--ngraph-token={SECRET}"], [f"--ngraph-token={MASK}"]),
        (["--ngraph-tok", SECRET], ["--ngraph-tok", MASK]),
        ([f"--junitxml=https://me:{SECRET}@host/a.xml"], [f"--junitxml=https://{MASK}@host/a.xml"]),
        ([f"--ngraph-model={KEY}"], [f"--ngraph-model={MASK}"]),
        (["--pyargs", SECRET], ["--pyargs", MASK]),
        (["x" * 5000, "a\0b"], [MASK, MASK]),
    ],
)
def test_what_may_be_a_secret_is_masked(folder: Path, words: list[str], kept: list[str]) -> None:
    once = masked_command(["pytest", *words], folder)
    assert once == ("pytest", *kept)
    assert masked_command(once, folder) == once


@settings(max_examples=300, derandomize=True, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["--token", f"--token={SECRET}", SECRET, "-o", f"x={SECRET}", "-Z", f"-Z{SECRET}", "-v", "tests", "-x",
             "--ngraph-fresh", "--pyargs", "--", f"--api.key={SECRET}", "--lf", f"--override-ini=a={SECRET}"]
        )
    )
)  # fmt: skip
def test_no_order_of_words_lets_a_secret_through(words: list[str]) -> None:
    once = masked_command(["pytest", *words], Path())
    assert SECRET not in " ".join(once)
    assert masked_command(once, Path()) == once


def test_the_command_of_an_older_store_is_masked_where_it_is_shown() -> None:
    words = ["pytest", "--ngraph-fresh", "suite", "-x", f"--token={SECRET}", "--key", SECRET, "tests/test_x.py::test_a"]
    when = "2026-01-01T00:00:00"
    run = RunRow(1, "u", when, None, "finished", tuple(words), 0, "gate", {}, fresh=False, resumed=False)
    shown = page(content_of(run, [], []))
    assert SECRET not in shown
    assert f"pytest --ngraph-fresh suite -x --token={MASK} --key {MASK} tests/test_x.py::test_a" in shown


def test_variables_that_look_like_secrets_are_named_without_their_values() -> None:
    assert masked_variables({"HOME": "/root", "HF_TOKEN": "x", "PROXY": "http://me:pw@host", "A": KEY}) == {
        "A": MASK,
        "HF_TOKEN": MASK,
        "HOME": "/root",
        "PROXY": MASK,
    }
    assert not looks_secret("OMP_NUM_THREADS", "2")


def test_other_users_of_the_machine_do_not_read_secrets_in_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pytest", "--token", SECRET, f"--key={SECRET}", "-x"])
    with device_lock("test-masking", waiting=print):
        said = json.loads(lock_path("test-masking").read_text(encoding="utf-8"))
    lock_path("test-masking").unlink()
    assert said["command"] == f"pytest --token {MASK} --key={MASK} -x"


def test_no_file_of_a_run_has_the_secrets_of_its_command(suite: Suite) -> None:
    suite.add_compilers()
    conftest = suite.path / "conftest.py"
    conftest.write_text(
        conftest.read_text()
        + "def pytest_addoption(parser):\n"
        + "    for name in ('--token', '--key'): parser.addoption(name)\n"
        + "    parser.addini('api', 'help')\n"
    )
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_measures(ngraph_cell, request):
    assert request.config.getoption("--token") == request.config.getini("api")
    ngraph_cell.latency
""")
    exports = ["--ngraph-report=r.html", "--ngraph-benchmark-json=b.json", "--ngraph-export=e.csv", "--junitxml=j.xml"]
    words = [f"--token={SECRET}", "--key", SECRET, "-o", f"api={SECRET}"]

    result = suite.run("test_suite.py", *words, *exports)

    result.assert_outcomes(passed=1)
    files = [path for path in suite.path.rglob("*") if path.is_file() and path.suffix not in (".pyc",)]
    assert {path.suffix for path in files} >= {".sqlite", ".html", ".json", ".csv", ".xml"}
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert f"--token={MASK} --key {MASK} -o api={MASK}" in (suite.path / "r.html").read_text(encoding="utf-8")
