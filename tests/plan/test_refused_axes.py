"""Bad values of the axes of sequences, decoding, shapes and load: one error at collection that says what is allowed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT, Suite
from tests.front.test_plugin_collection import CELL, assert_refused

NUMBERS, TOO_LARGE = "whole numbers >= 1", "is too large (allowed: up to 2147483647)"
SHAPES = 'expected "static", "dynamic", or a mix'
SCENARIOS = "allowed: latency, throughput, or server[rate=N] with N calls a second from 1 to 100000"
RATES = "expected calls a second from 1 to 100000, with three decimals at most"
# What is given for an axis of whole numbers, and what is said of it, wherever it stands.
NO_NUMBERS = (
    ("0", "0 is not allowed"),
    ("-1", "-1 is not allowed"),
    ("'many'", "'many' is not allowed"),
    ("3.5", "3.5 is not allowed"),
    ("32.0", "32.0 is not allowed"),
    ("True", "True is not allowed"),
    ("None", "None is not allowed"),
    ("[]", "[] is empty"),
    ("[32, 'x']", "'x' is not allowed"),
    ("[[32]]", "[32] is not allowed"),
    ("{'a': 1}", "a mapping is not allowed"),
    ("{32, 64}", "has no order; write sorted(...)"),
)
REFUSED = [
    *((f"model='block:mha', sequence={given}", [f"sequence={given}", said, NUMBERS]) for given, said in NO_NUMBERS[:8]),
    *((f"model='block:mha', decode={given}", [f"decode={given}", said, NUMBERS]) for given, said in NO_NUMBERS),
    ("model='block:mha', sequence=10**30", ["sequence=1", TOO_LARGE]),
    ("model='block:mha', decode=10**30", ["decode=1", TOO_LARGE]),
    ("model='block:mha', sequence=10**6000", ["sequence=a number of 19932 bits", TOO_LARGE]),
    ("model='block:conv', sequence=32", ["sequence=32", "'block:conv'", "it takes: "]),
    ("model='block:mha', sequences=[32, 64]", ["sequences= goes with the fixture ngraph_sequences, not with"]),
    ("model='block:conv', decode=8", ["decode=8", "'block:conv' generates no tokens", "prefill() and step()"]),
    ("model='block:conv', shapes=0", ["shapes=0", SHAPES]),
    ("model='block:conv', shapes=3.5", ["shapes=3.5", SHAPES]),
    ("model='block:conv', shapes=None", ["shapes=None", SHAPES]),
    ("model='block:conv', shapes=[]", ["shapes=[] is empty", "static, dynamic"]),
    ("model='block:conv', shapes=''", ["shapes=''", SHAPES]),
    ("model='block:conv', shapes='both'", ["shapes='both'", SHAPES]),
    ("model='block:conv', shapes={}", ["shapes={}", SHAPES]),
    ("model='block:conv', shapes={'batch': {}}", ["shapes={'batch': {}}", SHAPES]),
    ("model='block:conv', shapes={'batch': 8}", ["shapes={'batch': 8}", SHAPES]),
    ("model='block:conv', shapes={'depth': {1: 1}}", ["shapes={'depth': {1: 1}}", "'depth'", "allowed: "]),
    (
        "model='block:conv', shapes={'batch': {0: 1}}",
        ["shapes={'batch': {0: 1}}", "a batch of 0 is not allowed", "whole numbers from 1"],
    ),
    ("model='block:conv', shapes={'batch': {10**9: 1}}", ["shapes={'batch': {1000000000: 1}}", "1000000000"]),
    ("model='block:conv', shapes={'batch': {1: -1}}", ["shapes={'batch': {1: -1}}", "numbers above 0"]),
    ("model='block:conv', shapes={'batch': {1: 'x'}}", ["shapes={'batch': {1: 'x'}}", "numbers above 0"]),
    ("model='block:conv', shapes={'batch': 'none.csv'}", ["no file 'none.csv' in "]),
    ("model='block:conv', scenario='offline'", ["scenario='offline'", SCENARIOS]),
    ("model='block:conv', scenario='server'", ["scenario='server'", SCENARIOS, "such as server[rate=20]"]),
    ("model='block:conv', scenario='server[]'", ["scenario='server[]'", SCENARIOS]),
    ("model='block:conv', scenario='server[rate=20'", ["scenario='server[rate=20'", SCENARIOS]),
    ("model='block:conv', scenario='server[qps=20]'", ["scenario='server[qps=20]'", SCENARIOS]),
    ("model='block:conv', scenario='server[rate=]'", ["rate='' is not allowed", RATES]),
    ("model='block:conv', scenario='server[rate=0]'", ["rate='0' is not allowed", RATES]),
    ("model='block:conv', scenario='server[rate=-1]'", ["rate='-1' is not allowed", RATES]),
    ("model='block:conv', scenario='server[rate=many]'", ["rate='many' is not allowed", RATES]),
    ("model='block:conv', scenario='server[rate=1e30]'", ["rate='1e30' is not allowed", RATES]),
    ("model='block:conv', scenario='server[rate=0.5]'", ["rate='0.5' is not allowed", RATES]),
    ("model='block:conv', scenario='server[rate=3.50001]'", ["rate='3.50001' is not allowed", RATES]),
    ("model='block:conv', scenario='server[rate=999999]'", ["rate='999999' is not allowed", RATES]),
    ("model='block:conv', scenario=20", ["scenario=20", "20 is not allowed", "server[rate=N]"]),
    ("model='block:conv', scenario=3.5", ["scenario=3.5", "server[rate=N]"]),
    ("model='block:conv', scenario=None", ["scenario=None", "server[rate=N]"]),
    ("model='block:conv', scenario=[]", ["scenario=[] is empty", "server[rate=N]"]),
    ("model='block:conv', scenario={'rate': 20}", ["scenario={'rate': 20}", "a mapping is not allowed"]),
    ("model='block:conv', rate=20", ["unknown keyword 'rate'", "scenario"]),
    ("model='block:conv', sequnce=20", ["unknown keyword 'sequnce'", "sequence"]),
    ("model='block:conv', decodes=20", ["unknown keyword 'decodes'", "decode"]),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what a collection says of each marker, every one in a file of its own."""
    folder = tmp_path_factory.mktemp("refused")
    for number, (marker, _) in enumerate(REFUSED):
        (folder / f"test_{number:02}.py").write_text("import pytest\n" + CELL.format(marker=marker))
    words = ["-p", "ngraph", "-p", "no:cacheprovider", "--collect-only", "-q", "--ngraph-compiler=null"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", *words, "--rootdir", str(folder), str(folder)]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, run.stdout + run.stderr
    assert run.stderr == ""
    assert f"no tests collected, {len(REFUSED)} errors" in run.stdout
    parts = run.stdout.partition("short test summary info")[0].split(" ERROR collecting test_")[1:]
    return {REFUSED[int(part[:2])][0]: part for part in parts}


@pytest.mark.suites
@pytest.mark.parametrize(("marker", "fragments"), REFUSED, ids=[marker for marker, _ in REFUSED])
def test_a_bad_value_is_one_error_at_collection(said: dict[str, str], marker: str, fragments: list[str]) -> None:
    text = said[marker]

    assert text.count("::test_it: @pytest.mark.ngraph: ") == 1, text
    assert len([line for line in text.splitlines()[1:] if line.strip("=_ ")]) == 1, text
    for fragment in fragments:
        assert fragment in text
    for trace in ("Traceback", "INTERNALERROR", "SpecError", "pytest_ngraph/", "During handling"):
        assert trace not in text


OPTIONS = [
    (f"{form}{value}", name, value)
    for form, name in (
        ("--ngraph-sequence=", "--ngraph-sequence"),
        ("--ngraph-decode=", "--ngraph-decode"),
        ("-ongraph_sequence=", "ini option ngraph_sequence"),
    )
    for value in ("0", "-1", "many", "3.5", "1" * 6000, "8,0")
]


@pytest.mark.parametrize(
    ("option", "name", "value"), OPTIONS, ids=[f"{name}={value[:9]}" for _, name, value in OPTIONS]
)
def test_a_bad_length_on_the_command_line_is_one_usage_error(suite: Suite, option: str, name: str, value: str) -> None:
    suite.write(CELL.format(marker="model='block:mha'"))

    result = suite.collect(option)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert_refused(result, f"{name}: '{value[:20]}", "is not allowed", NUMBERS, "such as 1,8,16")
