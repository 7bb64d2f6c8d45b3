"""TensorRT's profile: layers as its IProfiler reports them, with what its inspector says of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_ngraph.explain.profile import Profile, ProfiledNode, call_times, undisturbed

_WARM_UPS = 3
# Of a layer's metadata, where its engine has them: the ONNX nodes that it was made of.
_ONNX_LAYER = re.compile(r"\[ONNX Layer: ([^\]]+)\]")


def profile(engine: Any, context: Any, call: Callable[[], None], calls: int) -> Profile:
    """Return the profile of calls of an engine's context. ``call`` enqueues one and waits for it."""
    import tensorrt

    reported: list[tuple[str, float]] = []

    class Layers(tensorrt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            tensorrt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            reported.append((str(layer_name), float(ms) * 1e-3))

    for _ in range(_WARM_UPS):
        call()
    # The context refers to it and does not keep it.
    profiler = Layers()
    context.profiler = profiler
    of_calls: list[Sequence[tuple[str, float]]] = []
    whole: list[float] = []
    for _ in range(calls):
        reported.clear()
        whole += call_times(call, 1)
        of_calls.append(list(reported))
    seconds, call_seconds = undisturbed(whole, [[taken for _, taken in layers] for layers in of_calls])
    usual = next((layers for layers in of_calls if len(layers) == len(seconds)), [])
    known = _inspected(engine)
    return Profile(
        [_node(name, taken, known.get(name, {})) for (name, _), taken in zip(usual, seconds, strict=True)],
        call_seconds,
        calls,
        "TensorRT's IProfiler",
        notes=("unverified on hardware",),
    )


def _inspected(engine: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return what the inspector says of the layers, by name. An engine that is built as usual knows names alone."""
    import tensorrt

    try:
        text = engine.create_engine_inspector().get_engine_information(tensorrt.LayerInformationFormat.JSON)
        layers = json.loads(text).get("Layers", [])
    except (AttributeError, ValueError, TypeError):
        return {}
    return {str(each["Name"]): each for each in layers if isinstance(each, dict) and "Name" in each}


def _node(name: str, seconds: float, facts: Mapping[str, Any]) -> ProfiledNode:
    """Return a layer. Its name is that of the ONNX nodes in it, joined by plus signs."""
    made_of = _ONNX_LAYER.findall(str(facts.get("Metadata", "")))
    contains = made_of or [part.strip() for part in name.split(" + ") if part.strip()]
    operator = str(facts.get("LayerType", "")) or ("Reformat" if name.startswith("Reformat") else "")
    inputs = facts.get("Inputs") or [{}]
    kind = str(inputs[0].get("Format/Datatype", "")) if isinstance(inputs[0], dict) else ""
    return ProfiledNode(name, operator, seconds, "tensorrt", str(facts.get("TacticName", "")), kind, tuple(contains))
