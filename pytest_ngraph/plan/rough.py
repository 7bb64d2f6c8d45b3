"""Roughly how long calls take that nobody has timed here: by what networks of well-known names compute."""

from __future__ import annotations

from pytest_ngraph.errors import NgraphError
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads.kinds import kind_of
from pytest_ngraph.workloads.kinds.axes import axis_values

# What a CPU computes of networks in f32, a second: compilers and machines do from half of it to twice as much.
_MACS_PER_SECOND = 25e9
# However little a network computes.
SHORT_SECONDS = 1e-3


def rough_seconds(workload: Workload, cpus: int) -> float | None:
    """Return about how long a call takes on so many CPUs, None where the model's name says nothing of it."""
    model = workload.model
    kind = kind_of(model)
    if model.kind:
        return None
    try:
        values = axis_values(workload)
        macs = kind.rough_macs(model, values)
    except NgraphError:
        # Whoever builds it says what is wrong with it.
        return None
    if macs is None:
        return None
    tokens = 1.0 if workload.decode is None else 1 + workload.decode / max(1, values.get("sequence", 1))
    return max(SHORT_SECONDS, macs * tokens * workload.samples_per_call / (_MACS_PER_SECOND * max(1, cpus)))
