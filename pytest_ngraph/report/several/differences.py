"""What differs between runs besides what was measured: protocol, machine, versions, threads, commit, models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ngraph import units
from pytest_ngraph.report.answer.headline import facts_line
from pytest_ngraph.report.html.content import Content
from pytest_ngraph.report.results.natural import natural

NOT_KNOWN = "not known"
# Also where a run says nothing of it.
_OF_THE_LINE = ("threads", "noise", "launches that count")


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of runs: what it is, and its value in each of them, in their order."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Return whether the runs do not agree, or one of them does not say."""
        return len(set(self.values)) > 1 or NOT_KNOWN in self.values


def facts_of(contents: Sequence[Content]) -> list[Fact]:
    """Return all facts that any of the runs knows, those that differ first."""
    is_one_each = all(len({report.cell.device for report in content.reports}) <= 1 for content in contents)
    known = [_facts(content, is_one_each) for content in contents]
    names = list(dict.fromkeys(name for each in known for name in each))
    facts = [Fact(name, tuple(each.get(name, NOT_KNOWN) for each in known)) for name in names]
    return sorted(facts, key=lambda fact: not fact.differs)


def _facts(content: Content, is_one_each: bool) -> dict[str, str]:
    """Return the facts of a run. Where each run has one device they have no name before them, whatever it is called."""
    run, reports = content.run, content.reports
    devices = list(dict.fromkeys(report.cell.device for report in reports))
    line = dict(facts_line(run, reports, content.noise))
    found = {"protocol": line["protocol"], "seed": str(run.seed), "status": run.status}
    found["devices"] = ", ".join(devices) or "none"
    found["compilers"] = ", ".join(content.compilers) or "none"
    models = sorted({report.cell.workload.model.text for report in reports}, key=natural)
    found["models"] = ", ".join(models) or "none"
    for device in devices:
        before = f"{device}: " if not is_one_each else ""
        for name, fact in run.on(device).environment.items():
            if name in ("device", "others"):
                continue
            if isinstance(fact, Mapping):
                # Such as the versions of what is installed.
                found |= {f"{before}{name}: {key}": _written(key, value) for key, value in fact.items()}
            elif fact is not None:
                found[f"{before}{name.removesuffix('_bytes').replace('_', ' ')}"] = _written(name, fact)
    return found | {name: line[name] for name in _OF_THE_LINE}


def _written(name: str, fact: object) -> str:
    if name.endswith("_bytes") and isinstance(fact, int):
        return units.size(fact)
    if isinstance(fact, (list, tuple)):
        return ", ".join(map(str, fact))
    return json.dumps(fact, sort_keys=True) if isinstance(fact, Mapping) else str(fact)
