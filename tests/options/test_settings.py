"""Options: what each accepts and refuses, and where its value comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.settings import Budget, Settings, resolve
from pytest_ngraph.options.table import ROWS
from pytest_ngraph.spec.cells import PROTOCOLS, CompilerSpec, Reading

FIELD = {row.flag: row.field for row in ROWS}
NULL, OPENVINO = CompilerSpec("null"), CompilerSpec("openvino")


def settings(
    options: dict[str, Any] | None = None, ini: dict[str, object] | None = None, environ: dict[str, str] | None = None
) -> Settings:
    """Resolve options given by flag, in a root folder /root and from a working folder /cwd."""
    given = {FIELD[flag]: value for flag, value in (options or {}).items()}
    return resolve(given, ini or {}, rootdir=Path("/root"), invocation_dir=Path("/cwd"), environ=environ or {})


ACCEPTED = [
    ("--ngraph-device", ["local"], ("local",)),
    ("--ngraph-compiler", ["null"], (NULL,)),
    ("--ngraph-compiler", ["null, openvino ,null"], (NULL, OPENVINO)),
    ("--ngraph-compiler", ["null", "openvino"], (NULL, OPENVINO)),
    (
        "--ngraph-compiler",
        ["tvm[trials=32,patience=8],openvino"],
        (CompilerSpec("tvm", (("patience", "8"), ("trials", "32"))), OPENVINO),
    ),
    ("--ngraph-compiler", ["tvm[tuned]"], (CompilerSpec("tvm", (("tuned", ""),)),)),
    ("--ngraph-baseline", ["null"], NULL),
    ("--ngraph-baseline", ["openvino", "null"], NULL),
    ("--ngraph-baseline", ["onnxruntime[graph=disabled]"], CompilerSpec("onnxruntime", (("graph", "disabled"),))),
    ("--ngraph-model", ["timm:resnet18,nets/m.py:make"], ("timm:resnet18", "nets/m.py:make")),
    ("--ngraph-batch", ["1,8,16"], (1, 8, 16)),
    ("--ngraph-batch", ["8", "1,8"], (8, 1)),
    ("--ngraph-sequence", ["32,512"], (32, 512)),
    ("--ngraph-decode", ["1,16"], (1, 16)),
    ("--ngraph-depth", [" 3 "], (3,)),
    ("--ngraph-width", ["64"], (64,)),
    ("--ngraph-image-size", ["224,64"], (224, 64)),
    ("--ngraph-protocol", ["quick"], PROTOCOLS["quick"]),
    ("--ngraph-protocol", ["quick", "paper"], PROTOCOLS["paper"]),
    ("--ngraph-tolerance", ["0.02"], 0.02),
    ("--ngraph-tolerance", ["5e-3"], 0.005),
    ("--ngraph-budget", ["3"], Budget(3)),
    ("--ngraph-budget", ["90s"], Budget(None, 90.0)),
    ("--ngraph-budget", ["1.5 min"], Budget(None, 90.0)),
    ("--ngraph-budget", ["1h"], Budget(None, 3600.0)),
    ("--ngraph-timeout", ["600"], 600.0),
    ("--ngraph-run-budget", ["20min"], 1200.0),
    ("--ngraph-run-budget", ["none"], None),
    ("--ngraph-timeout", ["0.5"], 0.5),
    ("--ngraph-timeout", ["2min"], 120.0),
    ("--ngraph-threads", ["1"], 1),
    ("--ngraph-seed", ["0"], 0),
    ("--ngraph-inconclusive", ["skip"], "skip"),
    ("--ngraph-quick-gates", ["fail"], "fail"),
    ("--ngraph-state", ["usual"], None),
    ("--ngraph-state", ["75us/360+720ns"], Reading(75_000, (360, 720))),
    ("--ngraph-state", ["75us"], Reading(75_000)),
    ("--ngraph-strict", True, True),
    ("--ngraph-strict", False, False),
    ("--ngraph-store", ["here/r.sqlite"], Path("/cwd/here/r.sqlite")),
    ("--ngraph-store", ["/abs/r.sqlite"], Path("/abs/r.sqlite")),
    ("--ngraph-store", ["~/r.sqlite"], Path.home() / "r.sqlite"),
    ("--ngraph-config", ["~/lab.toml"], Path.home() / "lab.toml"),
    ("--ngraph-report", ["~/r.html"], Path.home() / "r.html"),
    ("--ngraph-export", ["~/t.csv"], (Path.home() / "t.csv",)),
    ("--ngraph-benchmark-json", ["~/b.json"], Path.home() / "b.json"),
    ("--ngraph-resume", True, True),
    ("--ngraph-fresh", True, True),
    ("--ngraph-offline", True, True),
    ("--ngraph-config", ["lab.toml"], Path("/cwd/lab.toml")),
    ("--ngraph-wait", ["0"], 0.0),
    ("--ngraph-wait", ["10min"], 600.0),
    ("--ngraph-wait", ["45"], 45.0),
    ("--ngraph-export", ["t.csv"], (Path("/cwd/t.csv"),)),
    ("--ngraph-export", ["t.md"], (Path("/cwd/t.md"),)),
    ("--ngraph-benchmark-json", ["b.json"], Path("/cwd/b.json")),
]


@pytest.mark.parametrize(("flag", "given", "value"), ACCEPTED)
def test_an_option_is_accepted(flag: str, given: Any, value: object) -> None:
    assert getattr(settings({flag: given}), FIELD[flag]) == value


REFUSED = [
    ("--ngraph-device", "", "one or more names"),
    ("--ngraph-compiler", "", "one or more names"),
    ("--ngraph-compiler", ",", "one or more names"),
    ("--ngraph-compiler", "null[", "NAME[option=value,...]"),
    ("--ngraph-compiler", "null]", "NAME[option=value,...]"),
    ("--ngraph-compiler", "[b=2]", "NAME[option=value,...]"),
    ("--ngraph-compiler", "null[a=]", "NAME[option=value,...]"),
    ("--ngraph-compiler", "null[a=1,a=2]", "option 'a' is given twice"),
    ("--ngraph-compiler", "two words", "NAME[option=value,...]"),
    ("--ngraph-baseline", "null,openvino", "NAME[option=value,...]"),
    ("--ngraph-baseline", "", "NAME[option=value,...]"),
    ("--ngraph-model", "resnet18", "timm:resnet18"),
    ("--ngraph-model", "timm:", "timm:resnet18"),
    ("--ngraph-batch", "0", "whole numbers >= 1"),
    ("--ngraph-batch", "-1", "whole numbers >= 1"),
    ("--ngraph-batch", "eight", "whole numbers >= 1"),
    ("--ngraph-batch", "1.5", "whole numbers >= 1"),
    ("--ngraph-batch", "1;2", "whole numbers >= 1"),
    ("--ngraph-batch", "", "whole numbers >= 1"),
    ("--ngraph-depth", "True", "whole numbers >= 1"),
    ("--ngraph-width", "64px", "whole numbers >= 1"),
    ("--ngraph-decode", "0", "whole numbers >= 1"),
    ("--ngraph-image-size", "224x224", "whole numbers >= 1"),
    ("--ngraph-protocol", "fast", "gate, quick, paper"),
    ("--ngraph-tolerance", "0", "a fraction between 0 and 1"),
    ("--ngraph-tolerance", "5%", "a fraction between 0 and 1"),
    ("--ngraph-tolerance", "1", "a fraction between 0 and 1"),
    ("--ngraph-tolerance", "nan", "a fraction between 0 and 1"),
    ("--ngraph-budget", "2", "launches >= 3"),
    ("--ngraph-budget", "-8", "launches >= 3"),
    ("--ngraph-budget", "8.5", "launches >= 3"),
    ("--ngraph-budget", "0min", "10min"),
    ("--ngraph-budget", "10 days", "10min"),
    ("--ngraph-timeout", "0", "seconds greater than 0"),
    ("--ngraph-timeout", "-3", "seconds greater than 0"),
    ("--ngraph-timeout", "soon", "seconds greater than 0"),
    ("--ngraph-threads", "0", "a whole number >= 1"),
    ("--ngraph-threads", "two", "a whole number >= 1"),
    ("--ngraph-seed", "-1", "a whole number >= 0"),
    ("--ngraph-seed", str(2**64), "a whole number >= 0 and <= 18446744073709551615"),
    ("--ngraph-inconclusive", "ignore", "fail, warn, skip"),
    ("--ngraph-quick-gates", "pass", "show, fail"),
    ("--ngraph-state", "quiet", "usual, or a state as verdicts name it, such as 75us/360ns"),
    ("--ngraph-state", "0us/360ns", "usual, or a state"),
    ("--ngraph-state", "75us/0.5ns", "usual, or a state"),
    ("--ngraph-store", "", "a file name"),
    ("--ngraph-config", "", "a file name"),
    ("--ngraph-store", "~nobody-at-all/r.sqlite", "a file name"),
    ("--ngraph-wait", "-1", "10min"),
    ("--ngraph-wait", "0h", "10min"),
    ("--ngraph-wait", "long", "10min"),
    ("--ngraph-export", "table.xlsx", ".csv, .json, .parquet, .md, .tex"),
    ("--ngraph-export", "", ".csv, .json, .parquet, .md, .tex"),
    ("--ngraph-benchmark-json", "b.txt", ".json"),
]


@pytest.mark.parametrize(("flag", "given", "allowed"), REFUSED)
def test_an_option_is_refused_with_its_flag_its_value_and_what_is_allowed(flag: str, given: str, allowed: str) -> None:
    with pytest.raises(SpecError) as refused:
        settings({flag: [given]})

    message = str(refused.value)
    assert message.startswith(f"{flag}: ")
    assert given in message
    assert allowed in message


@pytest.mark.parametrize(("flag", "given", "allowed"), [row for row in REFUSED if row[1]])
def test_an_ini_twin_is_refused_under_its_own_name(flag: str, given: str, allowed: str) -> None:
    ini = flag[2:].replace("-", "_")
    with pytest.raises(SpecError) as refused:
        settings(ini={ini: given})

    assert str(refused.value).startswith(f"ini option {ini}: ")
    assert allowed in str(refused.value)


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("ON", True), ("1", True), ("false", False), ("no", False)])
def test_a_flag_has_an_ini_twin(text: str, value: bool) -> None:
    assert settings(ini={"ngraph_strict": text}).strict is value


@pytest.mark.parametrize("text", ["maybe", "2", "y es"])
def test_a_flag_in_the_ini_file_is_true_or_false(text: str) -> None:
    with pytest.raises(SpecError, match=r"ini option ngraph_strict: .* is not allowed \(expected true or false\)"):
        settings(ini={"ngraph_strict": text})


def test_numbers_and_booleans_of_a_toml_file_are_what_they_say() -> None:
    numbers: dict[str, object] = {"ngraph_tolerance": 0.1, "ngraph_batch": 8, "ngraph_seed": 0, "ngraph_wait": 0}
    given = settings(ini={**numbers, "ngraph_strict": True, "ngraph_noise_history": False})

    assert (given.tolerance, given.batches, given.seed, given.wait_seconds) == (0.1, (8,), 0, 0.0)
    assert (given.strict, given.noise_history) == (True, False)
    for value in (True, False):
        with pytest.raises(SpecError, match=f"ini option ngraph_batch: {value} is not allowed"):
            settings(ini={"ngraph_batch": value})


def test_a_list_in_the_ini_file_is_refused() -> None:
    with pytest.raises(SpecError, match=r"ini option ngraph_compiler: .* a string, with commas"):
        settings(ini={"ngraph_compiler": ["null", "openvino"]})


def test_the_command_line_beats_the_ini_file_which_beats_the_default() -> None:
    ini: dict[str, object] = {"ngraph_budget": "4", "ngraph_compiler": "openvino", "ngraph_strict": "yes"}

    assert settings().budget == Budget(16)
    assert settings(ini=ini).budget == Budget(4)
    assert settings({"--ngraph-budget": ["6"]}, ini).budget == Budget(6)
    assert settings({"--ngraph-compiler": ["null"]}, ini).compilers == (NULL,)
    assert settings({"--ngraph-strict": False}, ini).strict
    assert settings({"--ngraph-strict": True}, {"ngraph_strict": "no"}).strict


def test_a_limit_of_the_ini_file_is_lifted_on_the_command_line() -> None:
    ini: dict[str, object] = {"ngraph_run_budget": "20min"}
    assert settings({}, ini).run_seconds == 1200.0
    assert settings({"--ngraph-run-budget": ["none"]}, ini).run_seconds is None
    with pytest.raises(SpecError, match="seconds greater than 0, such as 600 or 10min, or none"):
        settings({"--ngraph-run-budget": ["never"]})


def test_an_empty_ini_twin_is_as_good_as_none() -> None:
    assert settings(ini={row.ini: "" for row in ROWS}) == settings()


def test_the_defaults_are_those_of_the_documentation() -> None:
    default = settings()

    assert default.devices == ("local",)
    assert default.compilers is None
    assert default.baseline is None
    assert default.protocol.name == "gate"
    assert (default.tolerance, default.budget, default.timeout_seconds, default.seed) == (0.05, Budget(16), 600.0, 0)
    assert default.store == Path("/root/.ngraph/results.sqlite")
    assert (default.strict, default.resume, default.fresh, default.offline) == (False, False, False, False)
    assert (default.config, default.wait_seconds) == (None, 0.0)
    assert set(default.narrowing.values()) == {None}


def test_paths_of_the_command_line_start_where_it_was_typed_and_those_of_the_ini_file_at_the_root() -> None:
    ini: dict[str, object] = {"ngraph_store": "kept/r.sqlite", "ngraph_export": "t.csv"}

    assert settings(ini=ini).store == Path("/root/kept/r.sqlite")
    assert settings(ini=ini).export == (Path("/root/t.csv"),)
    assert settings({"--ngraph-store": ["r.sqlite"]}, ini).store == Path("/cwd/r.sqlite")


@pytest.mark.parametrize("file", ["kept/main.json", "./main", "main.json"])
def test_a_saved_baseline_is_a_file_of_the_root_in_the_ini_file_or_a_name(file: str) -> None:
    assert settings(ini={"ngraph_compare": file}).compare == str(Path("/root") / file)
    # That of the command line, and what is no file, are made a path of where they are used.
    assert settings({"--ngraph-compare": [file]}).compare == file
    assert settings(ini={"ngraph_compare": "main"}).compare == "main"


def test_every_export_that_is_asked_for_is_written_once() -> None:
    given = ["t.csv", "a, b.json", "t.csv"]
    assert settings({"--ngraph-export": given}).export == (Path("/cwd/t.csv"), Path("/cwd/a, b.json"))
    assert settings(ini={"ngraph_export": "\nt.csv\n t.tex\n"}).export == (Path("/root/t.csv"), Path("/root/t.tex"))
    assert settings().export == ()
    with pytest.raises(SpecError, match="--ngraph-export"):
        settings({"--ngraph-export": ["t.csv", "t.txt"]})


def test_an_inconclusive_gate_fails_where_ci_is_set() -> None:
    assert settings().inconclusive == "warn"
    assert settings(environ={"CI": "true"}).inconclusive == "fail"
    assert settings(environ={"CI": ""}).inconclusive == "warn"
    assert settings({"--ngraph-inconclusive": ["skip"]}, environ={"CI": "true"}).inconclusive == "skip"


@pytest.mark.parametrize("other", ["--ngraph-resume", "--ngraph-offline"])
def test_fresh_contradicts_what_goes_on_with_stored_evidence(other: str) -> None:
    with pytest.raises(SpecError, match=f"{other} and --ngraph-fresh|--ngraph-fresh and {other}"):
        settings({"--ngraph-fresh": True, other: True})


@pytest.mark.parametrize(
    ("given", "ini", "both"),
    [
        ({"--ngraph-export": ["out.json"], "--ngraph-benchmark-json": ["out.json"]}, {},
         ["--ngraph-export", "--ngraph-benchmark-json", "/cwd/out.json"]),
        ({"--ngraph-export": ["t.csv", "/root/pr.md"]}, {"ngraph_summary": "pr.md"},
         ["--ngraph-export", "ini option ngraph_summary", "/root/pr.md"]),
        ({"--ngraph-export": ["here/../b.json"], "--ngraph-benchmark-json": ["./b.json"]}, {}, ["b.json"]),
    ],
)  # fmt: skip
def test_no_two_options_write_one_file(given: dict[str, Any], ini: dict[str, object], both: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        settings(given, ini)
    assert all(part in str(caught.value) for part in both)
    assert str(caught.value).endswith("give each a file of its own")


def test_each_output_may_have_a_file_of_its_own() -> None:
    ini: dict[str, object] = {"ngraph_summary": "pr.md", "ngraph_export": "pr.md.csv"}
    assert settings({"--ngraph-export": ["pr.md"]}, ini).export == (Path("/cwd/pr.md"),)


def test_every_row_has_a_field_and_a_twin_of_its_own() -> None:
    # And what axes without a field of their own leave, of which there are none.
    assert [*(row.field for row in ROWS), "further"] == list(Settings.__dataclass_fields__)
    assert settings().further == {}
    assert len({row.ini for row in ROWS}) == len(ROWS)
    assert all(row.flag.startswith("--ngraph-") and row.ini.startswith("ngraph_") for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.flag)
def test_help_is_a_capitalised_phrase_without_a_full_stop(row: Any) -> None:
    assert row.help[0].isupper() or row.help.startswith("JSON")
    assert not row.help.endswith(".")
