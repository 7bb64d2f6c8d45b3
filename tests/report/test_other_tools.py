"""What other tools read: each format by the tool's schema or reader, with the interval where it has a place."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.settings import EXPORT_FORMATS, export_format
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.export.other_tools import OTHER_TOOLS
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.store.rows import Origin, VerdictRow
from tests.conftest import Suite, skip_without
from tests.report.test_exports import command
from tests.report.test_hostile_text import QUICK, TEXTS, report_of
from tests.support.exported import blocks, networks
from tests.support.pretended import TWICE, Pretended, claim
from tests.support.report_stores import VERDICTS

ORIGIN = Origin(3, "0123456789abcdef" * 2)
# As Bencher publishes it at bencher.dev/docs/reference/bencher-metric-format, but for names, which it says are to be no
# longer than 1024 and 64 letters, and for other keys, which it ignores.
BENCHER = {
    "$schema": "http://json-schema.org/draft-07/schema",
    "type": "object",
    "propertyNames": {"minLength": 1, "maxLength": 1024},
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 64},
        "additionalProperties": {
            "type": "object",
            "properties": {"value": {"type": "number"}, "lower_value": {"type": "number"},
                           "upper_value": {"type": "number"}},
            "required": ["value"],
            "additionalProperties": False,
        },
    },
}  # fmt: skip
# What github-action-benchmark documents of its custom tools, and no more.
CUSTOM = {
    "$schema": "http://json-schema.org/draft-07/schema",
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "unit": {"type": "string", "minLength": 1},
            "value": {"type": "number"},
            "range": {"type": "string", "minLength": 1},
            "extra": {"type": "string"},
        },
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
    },
}
# A line of OpenMetrics text: the grammar of the specification, for gauges without time stamps.
SAMPLE = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*\})? (NaN|[+-]?(?:Inf|[0-9.]+))\Z',
    re.ASCII,
)


def written(format: str, reports: list[CellReport], verdicts: tuple[VerdictRow, ...] = ()) -> str:
    return OTHER_TOOLS[format](reports, "with 99 % intervals over launches", ORIGIN, verdicts)[0]


def read(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Read OpenMetrics text by hand: the samples of each family by their labels. Each family stands in one piece."""
    families: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    *lines, last = text.splitlines()
    assert last == "# EOF"
    assert text.endswith("# EOF\n")
    current = ""
    for line in lines:
        if line.startswith("# TYPE "):
            current = line.split()[2]
            assert line == f"# TYPE {current} gauge"
            assert current not in families
            families[current] = {}
        elif line.startswith("# UNIT "):
            _, _, name, unit = line.split()
            assert name == current
            assert name.endswith(f"_{unit}")
        elif not line.startswith(f"# HELP {current} "):
            found = SAMPLE.match(line)
            assert found is not None, line
            assert found[1] == current
            labels = tuple(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2] or ""))
            assert labels not in families[current], line
            families[current][labels] = float(found[3])
    return families


def numbers(reports: list[CellReport], better: str = "") -> int:
    return sum(not better or METRICS[name].better == better for report in reports for name in report.estimates)


@pytest.mark.parametrize("reports", [networks(), blocks(), []])
def test_bencher_reads_every_estimate_with_its_interval(reports: list[CellReport]) -> None:
    content = json.loads(written(".bencher.json", reports))

    jsonschema.validate(content, BENCHER)
    assert sum(map(len, content.values())) == numbers(reports)
    for report in reports:
        for name, estimate in report.estimates.items():
            found = content[report.cell.label][name.replace("_", "-")]
            factor = 1e9 if name == "latency" else 1
            assert found["value"] == factor * estimate.value
            if "lower_value" in found:
                assert (found["lower_value"], found["upper_value"]) == (factor * estimate.low, factor * estimate.high)
                assert found["lower_value"] <= found["value"] <= found["upper_value"]


@pytest.mark.parametrize(("format", "better"), [("Smaller", "lower"), ("Bigger", "higher")])
@pytest.mark.parametrize("reports", [networks(), blocks(), []])
def test_the_action_gets_what_is_better_in_its_direction(reports: list[CellReport], format: str, better: str) -> None:
    content = json.loads(written(f".custom{format}IsBetter.json", reports))

    jsonschema.validate(content, CUSTOM)
    assert len(content) == numbers(reports, better) == len({entry["name"] for entry in content})
    assert all(str(ORIGIN) in entry["extra"] for entry in content)


@pytest.mark.parametrize("reports", [networks(), blocks(), []])
def test_openmetrics_has_a_gauge_a_metric_and_one_of_the_gates(reports: list[CellReport]) -> None:
    families = read(written(".openmetrics.txt", reports, VERDICTS))

    gates = families.pop("ngraph_gate_passed")
    assert sorted(map(str, gates.values())) == ["0.0", "1.0", "1.0", "nan", "nan", "nan"]
    assert sum(map(len, families.values())) == numbers(reports)
    assert set(families) <= {
        "ngraph_latency_seconds", "ngraph_throughput_samples_per_second", "ngraph_speedup_ratio", "ngraph_rtr_ratio",
        "ngraph_ase_ratio", "ngraph_bsr_ratio", "ngraph_retention_ratio", "ngraph_slope_per_layer",
        "ngraph_compile_seconds", "ngraph_cpu_percent", "ngraph_cpu_reduction_percent", "ngraph_tuning_seconds",
        "ngraph_tuning_trials", "ngraph_peak_memory_bytes", "ngraph_model_bytes", "ngraph_first_call_seconds",
        "ngraph_warmup_seconds", "ngraph_load_seconds", "ngraph_export_seconds",
    }  # fmt: skip


@pytest.mark.parametrize("reports", [networks(), blocks(), []])
def test_the_reader_of_prometheus_takes_openmetrics(reports: list[CellReport]) -> None:
    skip_without("prometheus_client")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    text = written(".openmetrics.txt", reports, VERDICTS)

    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {name: len(family.samples) for name, family in families.items()} == {
        name: len(samples) for name, samples in read(text).items()
    }
    assert all(family.type == "gauge" for family in families.values())


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [(694.3, 12, "690"), (1.2345, 0.02, "1.23"), (1.2345, 0.2, "1.2"), (0.00123456, 0.000002, "0.001235"),
     (694.3, 0, "694"), (-0.0123, 0.004, "-0.012"), (3.0, math.inf, "3.00"), (0.0, 0, "0"), (7.0, 80, "10")],
)  # fmt: skip
def test_noise_within_the_interval_mostly_changes_no_text(value: float, half: float, text: str) -> None:
    report = networks()[0]
    estimate = Estimate("throughput", value, value - half, value + half, 4)

    line = written(".openmetrics.txt", [replace(report, estimates={"throughput": estimate})]).splitlines()[3]

    assert line.rpartition(" ")[2] == text


@QUICK
@given(TEXTS)
def test_names_are_names_in_every_format(text: str) -> None:
    named = report_of(text)
    estimates = {"latency": Estimate("latency", 0.1, 0.09, 0.11, 3)}
    reports = [replace(named, estimates=estimates), replace(report_of(f"{text} "), estimates=estimates)]
    gates = (replace(VERDICTS[0], nodeid=text), replace(VERDICTS[0], nodeid=f"{text} "))

    bencher = json.loads(written(".bencher.json", reports))
    jsonschema.validate(bencher, BENCHER)
    assert len(bencher) == 2, "two cells go by one name"
    custom = json.loads(written(".customSmallerIsBetter.json", reports))
    jsonschema.validate(custom, CUSTOM)
    assert len({entry["name"] for entry in custom}) == 2
    families = read(written(".openmetrics.txt", reports, gates))
    assert {name: len(samples) for name, samples in families.items()} == {
        "ngraph_latency_seconds": 2,
        "ngraph_gate_passed": 2,
    }


def test_every_metric_has_a_place_in_every_format() -> None:
    """Those of tokens, of load and of energy, too, and scores by the names that evaluations give them."""
    skip_without("prometheus_client")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    scores = ["accuracy:top1", "accuracy:mAP@0.5", "accuracy:mAP-0.5", "accuracy:map_0.5", "agreement:centred_cosine"]
    names = [*METRICS, *scores]
    estimates = {name: Estimate(name, 2.0, 1.9, 2.1, 3) for name in names}
    reports = [replace(report_of("model"), estimates=estimates)]

    bencher = json.loads(written(".bencher.json", reports))
    jsonschema.validate(bencher, BENCHER)
    (measures,) = bencher.values()
    assert len(measures) == len(names)
    assert {"tokens-per-second", "accuracy-top1", "accuracy-map-0-5", "accuracy-map-0-5-3"} <= set(measures)
    entries = [json.loads(written(f".custom{each}IsBetter.json", reports)) for each in ("Smaller", "Bigger")]
    assert sum(map(len, entries)) == len(names)
    text = written(".openmetrics.txt", reports)
    families = read(text)
    assert sum(map(len, families.values())) == len(names)
    assert len([*text_string_to_metric_families(text)]) == len(families) == len(METRICS)
    assert {dict(labels).get("score") for labels in families["ngraph_accuracy_ratio"]} == {
        None, "top1", "mAP@0.5", "mAP-0.5", "map_0.5",
    }  # fmt: skip
    assert not any(":" in name for name in families)


def test_what_is_no_number_is_left_out() -> None:
    report = replace(networks()[0], estimates={"latency": Estimate("latency", math.nan, math.nan, math.nan, 0)})

    for format in OTHER_TOOLS:
        assert OTHER_TOOLS[format]([report], "", None, ()) in (("{}\n", 0), ("[]\n", 0), ("# EOF\n", 0))


# Names of files


@pytest.mark.parametrize(
    ("name", "format"),
    [("r.json", ".json"), ("r.bencher.json", ".bencher.json"), (".bencher.json", ".json"), ("r.bencher", ""),
     ("r.openmetrics.txt", ".openmetrics.txt"), ("metrics.txt", ""), ("a.b.csv", ".csv"), (".csv", ""), ("r.JSON", ""),
     ("r.customSmallerIsBetter.json", ".customSmallerIsBetter.json")],
)  # fmt: skip
def test_a_format_is_the_longest_end_of_a_name(name: str, format: str) -> None:
    assert export_format(Path("out.csv") / name) == format
    assert format in (*EXPORT_FORMATS, "")


def test_a_run_writes_them_with_its_gates_and_the_command_checks_what_names_its_run(suite: Suite) -> None:
    suite = Pretended(suite.pytester)
    suite.write(claim(1.5))
    options = [f"--ngraph-export=r{format}" for format in OTHER_TOOLS]

    suite.bare(*TWICE, *options).assert_outcomes(passed=1)

    gates = read((suite.path / "r.openmetrics.txt").read_text())["ngraph_gate_passed"]
    assert list(gates.values()) == [1.0]
    bencher: dict[str, Any] = json.loads((suite.path / "r.bencher.json").read_text())
    assert {"latency", "throughput", "speedup"} <= set(bencher["local:null[fixed_us=1000] block:conv batch1"])
    for format in (".customSmallerIsBetter.json", ".customBiggerIsBetter.json"):
        done = command(suite.path / f"r{format}", "--verify", "--store", suite.store)
        assert done.stdout.endswith("is what run 1 gives\n"), done.stderr
    for format in (".bencher.json", ".openmetrics.txt"):
        done = command(suite.path / f"r{format}", "--verify", "--store", suite.store)
        assert done.returncode == 2
        assert f"{format} has no place for what it was made from; compare it with a new export" in done.stderr
