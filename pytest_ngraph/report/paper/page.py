"""The comparison with NGraphBench as lines for the terminal and as a Markdown page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from pytest_ngraph import units
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.report.export import layout
from pytest_ngraph.report.export.layout import Table, with_interval
from pytest_ngraph.report.paper.against import BUDGET, TOLERANCE, Comparison, Gate
from pytest_ngraph.report.paper.findings import Check, findings
from pytest_ngraph.report.paper.published import DEVICES, PROTOCOL, VERSIONS
from pytest_ngraph.stats.verdict import Verdict

_SAYS = (*Verdict, "-")
_RATIOS = (
    "Ratios are compared within a class of devices, not times: a paper's samples/s stand beside these to show the size "
    "of both machines. A number here is of one network, one in the paper of three."
)


_OURS = {
    "gate": "Here a number is a mean over launches of fresh processes in which the compilers take turns, with a 99 % "
    "interval.",
    "quick": "Here a number is of one launch, plus and minus one standard error within it: no error is controlled.",
    "paper": "Here a number is a mean of 100 repetitions, too, plus and minus one standard deviation.",
}


def comparison_lines(comparison: Comparison) -> list[str]:
    """Return the comparison for a terminal: what is compared, side by side, and the findings with their verdicts."""
    lines = [_head(comparison), _OURS.get(comparison.run.protocol, ""), ""]
    lines += layout.text(_devices(comparison))
    lines += [f"  left out: {line}" for line in _left_out(comparison)]
    tables = list(_side_by_side(comparison))
    if comparison.gates:
        tables.append(findings_table(comparison, gated={gate.finding for gate in comparison.gates}))
    for table in tables:
        lines += ["", *layout.text(table)]
    lines += ["", *_verdicts(comparison)]
    return lines


def comparison_page(comparison: Comparison) -> str:
    """Return the comparison as a Markdown page, with every gate and what is not gated, and why."""
    parts = [
        "# Beside the paper",
        _head(comparison),
        " ".join([PROTOCOL, _OURS.get(comparison.run.protocol, "")]).rstrip(),
        _gates_are(),
        *_section("What is compared", _devices(comparison)),
        layout.markdown(_versions(comparison)).rstrip("\n"),
        *([f"Left out: {'; '.join(_left_out(comparison))}."] if comparison.left_out else []),
        _RATIOS,
    ]
    for table in (*_side_by_side(comparison), findings_table(comparison), _gates(comparison)):
        parts += _section(table.caption, table)
    parts += _section("Not gated: what the paper's own tables do not support", prose_table())
    return "\n\n".join(parts) + "\n"


def _section(title: str, table: Table) -> list[str]:
    return [f"## {title}", layout.markdown(table).rstrip("\n")]


def _head(comparison: Comparison) -> str:
    run = comparison.run
    return f"Run {run.id} of {run.started_at[:10]}, protocol {run.protocol}, beside NGraphBench (Furutanpey et al.)"


def _gates_are() -> str:
    return (
        f"Gates have a tolerance of {100 * TOLERANCE:g} % and are judged from the launches that are stored, by the "
        f"looks and levels of a test with a budget of {BUDGET} launches: at most 1 % of those that hold fail, and at "
        "most 1 % of those that miss the bound by the tolerance pass. That is for each gate, not for all together."
    )


def _devices(comparison: Comparison) -> Table:
    rows = [
        (device, machine, "nothing" if theirs is None else f"{theirs}: {DEVICES[theirs]}")
        for device, (theirs, machine) in comparison.devices.items()
    ]
    met = {theirs for theirs, _ in comparison.devices.values()}
    rows += [("nothing", "", f"{name}: {machine}") for name, machine in DEVICES.items() if name not in met]
    return Table("Devices", ("here", "machine", "beside the paper's"), tuple(rows), left=3)


def _versions(comparison: Comparison) -> Table:
    """Return the versions of both, those of the run's first device here."""
    here = comparison.run.environment.get("versions", {})
    rows = tuple((name, version, str(here.get(name, ""))) for name, version in VERSIONS.items())
    return Table("Versions", ("library", "paper", "here"), rows)


def _left_out(comparison: Comparison) -> Iterator[str]:
    for reason, cells in comparison.left_out.items():
        yield f"{units.count(cells, 'cell')}: {reason}"


def _side_by_side(comparison: Comparison) -> Iterator[Table]:
    """Yield the tables that have rows."""
    each: tuple[tuple[str, tuple[str, ...], list[tuple[str, ...]]], ...] = (
        ("Throughput and speed-up beside Table VI",
         ("networks", "compiler", "paper: samples/s", "speed-up", "here: samples/s", "speed-up"),
         comparison.throughputs),
        ("Compile times beside Table III", ("network", "compiler", "paper", "here"), comparison.compile_times),
        ("Depth scaling beside Tables VII and VIII",
         ("blocks", "compiler", "paper: slope", "here", "paper: retention", "here"), comparison.depths),
    )  # fmt: skip
    for caption, columns, rows in each:
        if rows:
            yield Table(caption, columns, tuple(rows), left=2, grouped=True)


def findings_table(comparison: Comparison | None = None, *, gated: Collection[str] | None = None) -> Table:
    """Return the paper's findings: how many checks its own tables support, and what became of the gates on this run.

    ``gated`` are the keys of those to show, all of them where it is None.
    """
    rows: list[tuple[str, ...]] = []
    for finding in findings():
        if gated is not None and finding.key not in gated:
            continue
        counts = tuple(str(finding.count(answer)) for answer in ("yes", "tie", "no"))
        here: tuple[str, ...] = ()
        if comparison is not None:
            says = Counter(gate.says for gate in comparison.gates if gate.finding == finding.key)
            passed, failed = says[Verdict.PASS], says[Verdict.FAIL]
            opened = says.total() - passed - failed
            here = tuple(str(number) if says else "" for number in (passed, failed, opened))
        rows.append((finding.sentence, finding.place, *counts, *here))
    columns, groups = ["finding", "where", "yes", "tie", "no"], [("", 2), ("its tables", 3)]
    if comparison is not None:
        columns += [str(Verdict.PASS), str(Verdict.FAIL), "open"]
        groups.append(("here", 3))
    return Table("Findings of the paper", tuple(columns), tuple(rows), tuple(groups), left=2, grouped=True)


def _gates(comparison: Comparison) -> Table:
    rows = tuple(
        (_sentence(gate), gate.what, _number(gate.check, gate.check.value), bound(gate.check), _here(gate),
         gate.says + (f": {gate.reason}" if gate.reason else ""))
        for gate in comparison.gates
    )  # fmt: skip
    return Table("Gates", ("finding", "gate", "paper", "claim", "here", "verdict"), rows, left=2)


def prose_table() -> Table:
    """Return every check that the paper's tables answer with a tie or a no, with what they give."""
    rows = tuple(
        (finding.sentence, check.what, _number(check, check.value), bound(check), check.says)
        for finding in findings()
        for check in finding.checks
        if check.says != "yes"
    )
    return Table("Not supported", ("finding", "of its tables", "gives", "claim", "supported"), rows, left=2)


def bound(check: Check) -> str:
    """Write what a check asks of its number."""
    return f"at {'least' if check.at_least else 'most'} {_number(check, check.bound)}"


def _number(check: Check, value: float) -> str:
    if check.metric == "throughput":
        return units.factor(value)
    if check.metric == "compile_seconds" and len(check.terms) > 1:
        return units.factor(value)
    return METRICS[check.metric].format(value)


def _sentence(gate: Gate) -> str:
    return next(finding.sentence for finding in findings() if finding.key == gate.finding)


def _here(gate: Gate) -> str:
    return with_interval(gate.estimate, METRICS[gate.estimate.metric].format) if gate.estimate else ""


def _verdicts(comparison: Comparison) -> Iterator[str]:
    """Yield the gates that did not pass, and the count of all."""
    for gate in comparison.gates:
        if gate.says not in (Verdict.PASS, "-"):
            reason = f" ({gate.reason})" if gate.reason else ""
            yield f"{gate.says.upper()} {_sentence(gate)}:"
            theirs = _number(gate.check, gate.check.value)
            yield f"    {gate.what}: {_here(gate)}, claimed {bound(gate.check)}, the paper's {theirs}{reason}"
    says = Counter(gate.says for gate in comparison.gates)
    words = ", ".join(
        f"{says[name]} {'without a usable launch' if name == '-' else name}" for name in _SAYS if says[name]
    )
    yield f"gates that the paper's own tables support: {words or 'none of its cells was measured'}"
