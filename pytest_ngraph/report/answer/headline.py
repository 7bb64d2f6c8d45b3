"""The answer in a sentence, and the line of what it rests on: machine, versions, threads, protocol, noise, launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ngraph import units
from pytest_ngraph.machine.gpu import name_in
from pytest_ngraph.report.answer.not_run import NotRun
from pytest_ngraph.report.answer.scoreboard import Score, has_error_control
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.spec.cells import DENSE
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.rows import RunRow, VerdictRow
from pytest_ngraph.texts.shown import one_line

# More are counted instead of named.
_MOST_NAMES = 3
_NAME_WIDTH = 80
# By which distribution the runtime of a compiler comes; the others are named as their compilers.
_DISTRIBUTIONS = {
    "identity": ("torch",), "torchscript": ("torch",), "inductor": ("torch",), "tvm": ("apache-tvm",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Headline:
    """The sentence in its parts: what holds, what is faster, what fails. Any may be empty."""

    holds: str
    speeds: tuple[str, ...]
    fails: str

    def __str__(self) -> str:
        parts = [part for part in (self.holds, *self.speeds, self.fails) if part]
        return "; ".join(parts) + "."


def headline(
    run: RunRow,
    verdicts: Sequence[VerdictRow],
    worst: Sequence[str],
    scores: Sequence[Score],
    missing: Sequence[NotRun],
) -> Headline:
    """Return the answer of a run. ``worst`` are the claims that fail in words, the worst first."""
    return Headline(_holds(run, verdicts), _speeds(scores), _fails(worst, missing))


def _holds(run: RunRow, verdicts: Sequence[VerdictRow]) -> str:
    counts = Counter(row.verdict for row in verdicts)
    judged = sum(counts[name] for name in (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.INVALID))
    shown = counts[Verdict.NOT_JUDGED]
    if not judged:
        if not shown:
            return "No claim was made"
        why = "" if has_error_control(run.protocol) else f": the protocol {run.protocol} has no error rates"
        return f"{units.count(shown, 'claim')} shown, none judged{why}"
    undecided = counts[Verdict.INCONCLUSIVE] + counts[Verdict.INVALID]
    parts = [
        f"{counts[Verdict.PASS]:,} of {units.count(judged, 'claim')} {'holds' if counts[Verdict.PASS] == 1 else 'hold'}"
    ]
    if counts[Verdict.FAIL]:
        parts.append(f"{counts[Verdict.FAIL]:,} {'fails' if counts[Verdict.FAIL] == 1 else 'fail'}")
    if undecided:
        parts.append(f"{undecided:,} {'is' if undecided == 1 else 'are'} undecided")
    if shown:
        parts.append(f"{shown:,} more {'is' if shown == 1 else 'are'} not judged")
    return ", ".join(parts)


def _speeds(scores: Sequence[Score]) -> tuple[str, ...]:
    """Say of each device which compiler is how much faster, of those that were measured in full if one of them is."""
    overall = _of_one_kind([score for score in scores if score.is_of_all])
    devices = list(dict.fromkeys(score.device for score in overall))
    lines = []
    for device in devices[:_MOST_NAMES]:
        mine = [score for score in overall if score.device == device]
        lines.append((f"on {_name(device)} " if len(devices) > 1 else "") + _speed(mine))
    if len(devices) > _MOST_NAMES:
        lines.append(f"{units.count(len(devices) - _MOST_NAMES, 'more device')} in the scoreboard")
    return tuple(lines)


def _of_one_kind(overall: Sequence[Score]) -> list[Score]:
    """Return, of each device, the means of the networks to which least was done: which of the others is meant?"""
    first: dict[str, str] = {}
    for score in overall:
        first.setdefault(score.device, score.done)
    return [score for score in overall if score.done == first[score.device]]


def _speed(scores: Sequence[Score]) -> str:
    """Say which compiler of a device is faster. A higher mean that nothing is claimed of hides none that is faster."""
    if faster := [score for score in scores if score.claim == "faster"]:
        best = _highest(faster)
        if len(scores) == 1 or any(score.value > best.value and not score.missing for score in scores):
            return f"{_name(best.compiler)} has {_numbers(best)}"
        return f"highest is {_name(best.compiler)} with {_numbers(best)}"
    if all(score.claim == "slower" for score in scores):
        best = _highest(scores)
        name, over = _name(best.compiler), _name(best.baseline)
        if len(scores) == 1:
            return f"{name} has {_numbers(best)}"
        return f"no compiler is faster than {over}: {name} is next with {_numbers(best)}"
    best = _highest([score for score in scores if not score.claim])
    why = "without an interval" if best.low is None else "an interval that holds 1"
    return f"no claim of a faster compiler: {_name(best.compiler)} has {_numbers(best)}, {why}"


def _highest(scores: Sequence[Score]) -> Score:
    """Return the highest of some scores, of those that lack no cell if there are any."""
    return max([score for score in scores if not score.missing] or scores, key=lambda score: score.value)


def _numbers(score: Score) -> str:
    text = f"{score} the throughput of {_name(score.baseline)}, in geometric mean over "
    text += units.count(score.models, "model") + (f" ({_name(score.done)})" if score.done != DENSE else "")
    return text + (f", {units.count(score.missing, 'cell')} missing" if score.missing else "")


def _fails(worst: Sequence[str], missing: Sequence[NotRun]) -> str:
    parts = []
    if worst:
        more = len(worst) - 1
        parts.append(
            f"furthest from its bound is {worst[0]}"
            + (f", and {more:,} more {'fails' if more == 1 else 'fail'}" if more else "")
        )
    cells: dict[str, int] = {}
    for one in missing:
        name = one.compiler
        cells[name] = cells.get(name, 0) + one.cells
    if cells:
        names = sorted(cells, key=natural)
        listed = ", ".join(_name(name) for name in names[:_MOST_NAMES])
        rest = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        parts.append(f"{units.count(sum(cells.values()), 'cell')} could not run as asked ({listed}{rest})")
    return "; ".join(parts)


def _name(text: str) -> str:
    return one_line(text, _NAME_WIDTH)


def facts_line(run: RunRow, reports: Sequence[CellReport], noise: Sequence[str]) -> list[tuple[str, str]]:
    """Return what the answer rests on, as names and values, those of several devices side by side."""
    devices = list(dict.fromkeys(report.cell.device for report in reports)) or ["local"]
    facts = [run.on(device).environment for device in devices]
    compilers = {report.cell.compiler.name for report in reports}
    counts = [
        estimate.launches
        for report in reports
        if (estimate := report.estimates.get("throughput") or report.estimates.get("latency")) is not None
    ]
    line = {
        "machine": _joined(_machine(each) for each in facts),
        "versions": _joined(_versions(each, compilers) for each in facts),
        "threads": _joined(_threads(reports)),
        "protocol": run.protocol + ("" if has_error_control(run.protocol) else " (no error control)"),
        "commit": _joined(str(each.get("git_commit") or "unknown") for each in facts),
        "noise": _grade(noise),
        "launches that count": _launches(counts),
    }
    return [(name, value or "unknown") for name, value in line.items()]


def _joined(texts: object) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts)))  # type: ignore[call-overload]


def _machine(facts: Mapping[str, object]) -> str:
    cpus = facts.get("cpus")
    name = str(facts.get("cpu") or facts.get("machine") or "unknown")
    gpu = name_in(facts)
    count = f", {units.count(cpus, 'CPU')}" if isinstance(cpus, int) else ""
    return f"{name}{count}" + (f", {gpu}" if gpu else "")


def _versions(facts: Mapping[str, object], compilers: set[str]) -> str:
    versions = facts.get("versions")
    known = versions if isinstance(versions, Mapping) else {}
    wanted = dict.fromkeys(name for one in sorted(compilers) for name in _DISTRIBUTIONS.get(one, (one,)))
    found = [f"{name} {known[name]}" for name in wanted if name in known]
    python = facts.get("python")
    return ", ".join([*found, *([f"Python {python}"] if python else [])])


def _threads(reports: Sequence[CellReport]) -> list[str]:
    """Return how many threads compilers had, as they report it: once where all had as many."""
    by_count: dict[str, set[str]] = {}
    for report in reports:
        threads = dict(report.record.placement).get("threads") if report.record is not None else None
        if threads is not None:
            by_count.setdefault(str(threads), set()).add(str(report.cell.compiler))
    if len(by_count) == 1:
        return list(by_count)
    return [f"{count} ({', '.join(sorted(names, key=natural))})" for count, names in by_count.items()]


def _grade(noise: Sequence[str]) -> str:
    """Return the grade of each device from what is said of the machine, such as ``noisy``."""
    grades = []
    device = ""
    for line in noise:
        text = line.strip()
        if text.startswith("device "):
            device = text.removeprefix("device ") + " "
        elif text.startswith("noise: "):
            said = text.removeprefix("noise: ")
            grades.append(device + said.partition(" in this run")[0])
    return "; ".join(dict.fromkeys(grades)) or "not measured"


def _launches(counts: Sequence[int]) -> str:
    if not counts:
        return "none"
    fewest, most = min(counts), max(counts)
    return f"{fewest} a cell" if fewest == most else f"{fewest} to {most} a cell"
