"""docs/gpu.md: what was found on which GPU, of the files that ``benchmarks.gpu`` has written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_HEAD = """\
# GPUs

<!-- Made by `python -m benchmarks.gpu --page > docs/gpu.md` from benchmarks/results/gpu-*.json. -->

What `make gpu` has found on machines with an NVIDIA GPU. It takes nine minutes at most, needs neither an installation
nor a network, and writes `benchmarks/results/gpu-NAME.json`: run it, make this page again, and commit both. Where the
conformance of a compiler has passed whole, say so in `verified` of its adapter, from which
[compilers.md](compilers.md) is made.
"""


def page(results: Path) -> str:
    """Return the page of the docs."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(results.glob("gpu-*.json"))]
    sections = [as_markdown(each) for each in found] or ["No machine with a GPU has run it yet.\n"]
    return "\n".join([_HEAD, *sections])


def as_markdown(found: Mapping[str, Any]) -> str:
    """Return the section of a machine: what it is, and a table of the steps."""
    return "\n".join([*_machine(found), "", *_table(found["steps"]), *_latencies(found["steps"]), ""])


def _machine(found: Mapping[str, Any]) -> Iterator[str]:
    gpu = found["gpu"]
    yield f"## {found['name']}"
    yield ""
    yield f"{gpu['name']}, driver {gpu['driver']}, CUDA {gpu['cuda']}, cuDNN {gpu['cudnn']}; {found['when']}."
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
    yield f"Python {found['python']}, {versions}."
    if found["absent"]:
        yield f"Not there: {'; '.join(f'{name}: {_cell(why)}' for name, why in found['absent'].items())}."
    yield f"Verdict: {found.get('verdict', 'not finished')}."


def _table(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| step | result | seconds | what |"
    yield "|---|---|---|---|"
    for step in steps:
        yield f"| {step['name']} | {step['status']} | {step['seconds']:g} | {_cell(_what(step))} |"


def _what(step: Mapping[str, Any]) -> str:
    said = [step["why"]] if step["why"] else []
    if "passed" in step:
        of = f" of {step['collected']}" if step["collected"] is not None else ""
        said.append(f"{step['passed']} passed, {len(step['failed'])} failed, {step['skipped']} skipped{of}")
        said += step["failed"][:5]
    for each in step.get("speedups", ()):
        if each["value"] is not None:
            said.append(f"{each['compiler']} {each['model']} batch {each['batch']}: {each['value']:.2f}x")
    for each in step.get("cells", ()):
        held = "not known" if each["bytes"] is None else f"{each['bytes'] / 2**20:.0f} MiB"
        said.append(f"{each['cell']}: {held}")
    return "; ".join(said)


def _latencies(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for step in steps:
        if not step.get("networks"):
            continue
        yield ""
        yield "| network | latency | to CUDA events | to torch.utils.benchmark | equal code |"
        yield "|---|---|---|---|---|"
        equal = {each["model"]: each for each in step["equal_code"]}
        for each in step["networks"]:
            ours = "-" if each["ours_seconds"] is None else f"{1e6 * each['ours_seconds']:.1f} us"
            ratios = ("-" if each[key] is None else f"{each[key]:.3f}" for key in ("to_events", "to_timer"))
            a_a = equal.get(each["model"])
            control = f"{a_a['value']:.3f} [{a_a['low']:.3f}, {a_a['high']:.3f}]" if a_a else "-"
            yield f"| {each['model'].partition(':')[2]} | {ours} | {' | '.join(ratios)} | {control} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", r"\|").split())
