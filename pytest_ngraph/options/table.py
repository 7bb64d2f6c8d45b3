"""The options as data: one row each, with nothing to import. The settings give them their meaning."""

from __future__ import annotations

from pytest_ngraph.axes import AXES


class Row:
    """One option: its field in Settings, its flag, what the help says, and its default as text.

    A flag has no metavar. A field without a default is None where nothing was given. A plain class: every pytest run
    pays for it.
    """

    def __init__(
        self, field: str, flag: str, help: str, metavar: str | None = None, default: str | None = None
    ) -> None:
        self.field, self.flag, self.help, self.metavar, self.default = field, flag, help, metavar, default

    @property
    def dest(self) -> str:
        """Return the option's name in pytest's namespace."""
        return f"ngraph_{self.field}"

    @property
    def ini(self) -> str:
        """Return the name of the option's ini twin."""
        return self.flag[2:].replace("-", "_")


ROWS: tuple[Row, ...] = (
    Row("devices", "--ngraph-device", "Devices to measure on (default: local)", "NAMES", "local"),
    Row(
        "compilers",
        "--ngraph-compiler",
        "Compilers to measure, such as onnxruntime,openvino[streams=2] (default: every installed one but the "
        "baseline and those that run only when named)",
        "NAMES",
    ),
    Row(
        "baseline",
        "--ngraph-baseline",
        "Compiler that relative metrics divide by (default: identity; onnxruntime[graph=disabled] for ONNX files)",
        "NAME",
    ),
    *(Row(axis.field, axis.option, axis.help, axis.metavar) for axis in AXES if axis.option),
    Row(
        "protocol",
        "--ngraph-protocol",
        "How to measure: gate, paper or quick (default: gate)",
        "NAME",
        "gate",
    ),
    Row(
        "tolerance",
        "--ngraph-tolerance",
        "Tolerance of gates, a fraction (default: 0.05)",
        "FRACTION",
        "0.05",
    ),
    Row(
        "error_rate",
        "--ngraph-error-rate",
        "How often a gate may err to each side, a fraction (default: 0.01)",
        "FRACTION",
        "0.01",
    ),
    Row(
        "noise_history",
        "--ngraph-noise-history",
        "Judge a gate by how its launches scattered in earlier runs of this machine, too: fewer launches, and passes "
        "keep to the error rate where they scatter no more than they did",
        None,
        "no",
    ),
    Row(
        "budget",
        "--ngraph-budget",
        "Launches (16) or time per group (10min) a gate may cost (default: 16 launches)",
        "BUDGET",
        "16",
    ),
    Row(
        "run_seconds",
        "--ngraph-run-budget",
        "Wall time the run may take (20min): kept for tests to come, the rest for undecided gates (default: none)",
        "DURATION",
    ),
    Row(
        "timeout_seconds",
        "--ngraph-timeout",
        "Seconds one cell may take to build, compile or answer a call (default: 600)",
        "SECONDS",
        "600",
    ),
    Row(
        "threads",
        "--ngraph-threads",
        "Threads of every compiler (default: the CPUs in the set)",
        "NUMBER",
    ),
    Row("seed", "--ngraph-seed", "Seed of weights, inputs and order (default: 0)", "NUMBER", "0"),
    Row(
        "state",
        "--ngraph-state",
        "State of the machine that gates are judged in: usual, the one most seen, or one that a verdict names, such as "
        "75us/360ns (default: usual)",
        "STATE",
        "usual",
    ),
    Row(
        "inconclusive",
        "--ngraph-inconclusive",
        "What an inconclusive gate does to its test: fail, warn or skip (default: fail where CI is set, else warn)",
        "CHOICE",
    ),
    Row(
        "quick_gates",
        "--ngraph-quick-gates",
        "What claims do without error control (quick, paper): show numbers, or fail where the whole interval is beyond "
        "the bound (default: show)",
        "CHOICE",
        "show",
    ),
    Row(
        "against",
        "--ngraph-against",
        "Measure every cell a second time with the code or the runtimes of another side: main, merge-base, "
        "onnxruntime==1.27.0, PATH.whl, python:PATH, several with commas; always measures what is identical, too",
        "SIDE",
    ),
    Row(
        "side",
        "--ngraph-side",
        "Measure the cells of this side, named as for --ngraph-against, instead of those of what is here",
        "SIDE",
    ),
    Row(
        "against_outputs",
        "--ngraph-against-outputs",
        "What the other side's outputs are held to: the same as here, or its own model's (default: same)",
        "CHOICE",
        "same",
    ),
    Row(
        "gate_changes",
        "--ngraph-gate-changes",
        "Hold every cell to being no slower than on the other side, without a line in the suite",
        None,
        "no",
    ),
    Row(
        "strict",
        "--ngraph-strict",
        "Fail where a compiler is missing or unsupported, instead of skipping",
        None,
        "no",
    ),
    Row(
        "store",
        "--ngraph-store",
        "Store of results (default: .ngraph/results.sqlite in the rootdir)",
        "FILE",
        ".ngraph/results.sqlite",
    ),
    Row("resume", "--ngraph-resume", "Go on with the last interrupted run", None, "no"),
    Row("fresh", "--ngraph-fresh", "Leave stored launches out and start the evidence again", None, "no"),
    Row("offline", "--ngraph-offline", "Judge what is stored and measure nothing", None, "no"),
    Row(
        "config",
        "--ngraph-config",
        "TOML file with the lab's hubs and devices (default: pyproject.toml, then ngraph.toml over it)",
        "FILE",
    ),
    Row(
        "wait_seconds",
        "--ngraph-wait",
        "How long to wait for a device that is offline, such as 10min (default: 0, its tests skip at once)",
        "DURATION",
        "0",
    ),
    Row(
        "compare",
        "--ngraph-compare",
        "Hold what is measured against a baseline that was saved with 'ngraph baseline save', by its name or file",
        "NAME|FILE",
    ),
    Row(
        "missing_baseline",
        "--ngraph-missing-baseline",
        "What a cell that the saved baseline does not have does: fail, warn, or record it there (default: warn)",
        "CHOICE",
        "warn",
    ),
    Row("report", "--ngraph-report", "Write the report as one page to FILE.html", "FILE"),
    Row(
        "export",
        "--ngraph-export",
        "Write the results as a tidy table to FILE.{csv,json,parquet,md,tex}, or as another tool reads them to "
        "FILE.{bencher.json,customSmallerIsBetter.json,customBiggerIsBetter.json,openmetrics.txt}",
        "FILE",
    ),
    Row(
        "summary",
        "--ngraph-summary",
        "Write the gates as Markdown for the comment of a pull request to FILE.md, fails first",
        "FILE",
    ),
    Row(
        "benchmark_json",
        "--ngraph-benchmark-json",
        "Write JSON that 'pytest-benchmark compare' reads",
        "FILE",
    ),
    Row(
        "bounds",
        "--ngraph-bounds",
        "TOML file with bounds by test and helper, for claims that give none",
        "FILE",
    ),
)
