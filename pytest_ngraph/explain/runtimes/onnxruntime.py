"""ONNX Runtime's profile: a session of its own writes what each node took into a scratch folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pytest_ngraph.explain.profile import Profile, ProfiledNode, call_times, undisturbed

_NODE = "_kernel_time"
# Layouts that its own kernels compute in, as they end names.
_LAYOUTS = ("nchwc", "nhwc")
_TYPES = {"float": "f32", "float16": "f16", "bfloat16": "bf16", "double": "f64", "int8": "i8", "uint8": "u8",
          "int32": "i32", "int64": "i64"}  # fmt: skip
_WARM_UPS = 3


def profile(
    open_session: Callable[[Callable[[Any], None]], Any], executable_of: Callable[[Any], Any], calls: int
) -> Profile:
    """Return the profile of calls of a session that is opened for it.

    ``open_session`` is given what adjusts the settings of the session, ``executable_of`` binds the cell's inputs.
    """
    with TemporaryDirectory() as folder:

        def adjust(settings: Any) -> None:
            settings.enable_profiling = True
            settings.profile_file_prefix = str(Path(folder) / "profile")

        session = open_session(adjust)
        executable = executable_of(session)
        try:
            for _ in range(_WARM_UPS):
                executable.run()
            taken = call_times(executable.run, calls)
            file = Path(session.end_profiling())
        finally:
            executable.close()
        events = json.loads(file.read_text(encoding="utf-8"))
    nodes, seconds = nodes_of(events, taken)
    return Profile(
        nodes,
        seconds,
        calls,
        "ONNX Runtime's profiling (enable_profiling)",
        notes=(
            "profiled in a session of its own",
            "ONNX Runtime names a fused node after one of its parts; the others are derived from the ONNX file",
        ),
    )


def nodes_of(events: Sequence[Mapping[str, Any]], taken: Sequence[float]) -> tuple[list[ProfiledNode], float]:
    """Return the nodes of the last calls in a profile, as many as have taken these seconds, and a call's seconds.

    A node with a body is one node.
    """
    found = _outermost(
        event for event in events if event.get("cat") == "Node" and str(event.get("name", "")).endswith(_NODE)
    )
    runs = sorted(
        (event for event in events if event.get("cat") == "Session" and event.get("name") == "model_run"),
        key=lambda event: event["ts"],
    )[-len(taken) :]
    of_runs = [[event for event in found if run["ts"] <= event["ts"] <= run["ts"] + run["dur"]] for run in runs]
    seconds, whole = undisturbed(taken, [[event["dur"] * 1e-6 for event in of_run] for of_run in of_runs])
    usual = next((of_run for of_run in of_runs if len(of_run) == len(seconds)), [])
    return [_node(event, each) for event, each in zip(usual, seconds, strict=True)], whole


def _outermost(nodes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return nodes in their order without those that run within another one: the body of an If, a Loop or a Scan.

    The seconds of the other one have theirs. What begins after a node of its thread has ended is not within it, nor, as
    these are whole microseconds, what begins with it.
    """
    found: list[Mapping[str, Any]] = []
    ends: dict[object, float] = {}
    for event in sorted(nodes, key=lambda event: (event["ts"], event["dur"])):
        thread, begins = event.get("tid"), event["ts"]
        if begins >= ends.get(thread, begins):
            found.append(event)
            ends[thread] = begins + event["dur"]
    return found


def _node(event: Mapping[str, Any], seconds: float) -> ProfiledNode:
    name, facts = str(event["name"]).removesuffix(_NODE), event.get("args", {})
    operator = str(facts.get("op_name", ""))
    layout = next((each for each in _LAYOUTS if name.endswith(f"_{each}")), "")
    shapes = facts.get("input_type_shape") or facts.get("output_type_shape") or [{}]
    kind = next(iter(shapes[0]), "")
    return ProfiledNode(
        name,
        operator,
        seconds,
        str(facts.get("provider", "")),
        f"{operator} {layout}".strip(),
        _TYPES.get(kind, str(kind)),
        (name,),
    )
