"""The six metrics of the third paper and energy: each in the table, on cells, in reports, exports, docs and claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pytest_ngraph
from pytest_ngraph.compilers.catalogue import BUILT_IN, load
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.bounds import HELPERS
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import _HELPERS
from pytest_ngraph.report.lvt.published import METRICS as OF_THE_PAPER
from pytest_ngraph.report.results.cells import CELL_METRICS
from pytest_ngraph.spec.resources.peaks import METRIC_OF
from pytest_ngraph.spec.resources.power import OF_ENERGY, OF_LOAD, Power

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
PAGE = (ROOT / "pytest_ngraph/report/html/page.js").read_text(encoding="utf-8")
# Each with the helper that claims it.
CLAIMED = {
    "latency": "assert_latency",
    "throughput": "assert_throughput",
    "cpu_percent": "assert_cpu_usage",
    "gpu_utilisation_percent": "assert_gpu_utilisation",
    **dict.fromkeys(METRIC_OF.values(), "assert_memory"),
    "model_bytes": "assert_model_size",
    "joules_per_sample": "assert_energy",
    "joules_above_idle": "assert_energy",
}


@pytest.mark.parametrize("metric", CLAIMED)
def test_each_is_everywhere(metric: str) -> None:
    assert METRICS[metric].unit or metric in ("latency", "throughput")
    assert metric in CELL_METRICS
    helper = CLAIMED[metric]
    assert callable(getattr(pytest_ngraph, helper))
    assert _HELPERS[metric] == helper
    # A bound in a file, too.
    assert helper in HELPERS
    assert f"| `{metric}` |" in REFERENCE
    assert f"| `{helper}" in (ROOT / "docs/reference/fixtures.md").read_text(encoding="utf-8")
    assert hasattr(Measurement, metric) or metric in METRIC_OF.values()


def test_those_of_the_paper_are_columns_of_the_page_and_rows_of_its_table() -> None:
    columns = re.search(r"const RESULTS = \[([^\]]*)\]", PAGE)
    assert columns is not None
    for name in (*(metric.name for metric in OF_THE_PAPER), "joules_per_sample"):
        assert f'"{name}"' in columns[1]
        assert name in CLAIMED
    assert len(OF_THE_PAPER) == 6


def test_what_a_pass_lacks_it_lacks_by_the_names_of_the_table() -> None:
    said = Power(why_no_energy="no counter", why_no_load="no GPU").unread
    assert said == {OF_LOAD: "no GPU", **dict.fromkeys(OF_ENERGY, "no counter")}
    assert set(said) <= set(METRICS)
    assert Power().unread == {}


def test_of_each_compiler_it_is_said_what_is_deployed() -> None:
    table = REFERENCE.partition("### What `model_bytes` is of")[2]
    rows = {
        name: row[2]
        for row in re.finditer(r"^\| (`[^|]*) \| (.*) \|$", table, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row[1])
    }
    assert set(BUILT_IN) <= set(rows)
    for name, place in BUILT_IN.items():
        reads = load(name, place).reads
        # Those that write something say what; the others have what they read.
        if "`model." not in rows[name] and "`engine." not in rows[name]:
            words = {"onnx": "the ONNX file that it reads", "module": "parameters and buffers", "nothing": "null"}
            assert rows[name].startswith(words[reads])
