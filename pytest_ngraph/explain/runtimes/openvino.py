"""OpenVINO's profile: another compiled model that counts (PERF_COUNT), joined with the runtime's own graph."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from pytest_ngraph.explain.profile import Profile, ProfiledNode, call_times

_SHORT = {"f32": "f32", "f16": "f16", "bf16": "bf16", "i8": "i8", "u8": "u8", "I8": "int8", "FP32": "f32"}


def profile(executable: Any, inputs: Mapping[str, Any], calls: int) -> Profile:
    """Return the profile of calls of a model that was compiled with PERF_COUNT."""
    executable.bind(inputs)
    taken = call_times(executable.run, calls)
    infos, graph = executable.profiled()
    # Means over all calls so far, which others have disturbed.
    quiet = min(taken) / statistics.fmean(taken)
    facts = {node.get_friendly_name(): node.get_rt_info() for node in graph}
    return Profile(
        [_node(each, facts.get(each.node_name), quiet) for each in infos if _ran(each)],
        min(taken),
        calls,
        "OpenVINO's get_profiling_info",
        notes=(
            "profiled in another compiled model, with PERF_COUNT on",
            "OpenVINO gives means over all calls: shares are of those, times are brought to an undisturbed call",
        ),
    )


def _ran(info: Any) -> bool:
    return str(info.status).rpartition(".")[2] == "EXECUTED"


def _node(info: Any, facts: Mapping[str, Any] | None, quiet: float) -> ProfiledNode:
    """Return a node with what the runtime's graph says of it: which layers it was made of, and its precision."""

    def read(name: str) -> str:
        return str(facts[name].astype(str)) if facts is not None and name in facts else ""

    made_of = tuple(name for name in read("originalLayersNames").split(",") if name)
    precision = read("runtimePrecision")
    return ProfiledNode(
        str(info.node_name),
        str(info.node_type),
        info.real_time.total_seconds() * quiet,
        "CPU",
        str(info.exec_type),
        _SHORT.get(precision, precision),
        made_of,
    )
