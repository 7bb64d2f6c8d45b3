"""Measure neural-network graph compilers on real devices and hold the results in ordinary tests.

The public API: assertion helpers for tests, what the fixtures give, and what adapters of other compilers build on.
Names are imported when first asked for, so that a pytest run without ngraph tests does not notice the package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ngraph.accuracy.claims import assert_accuracy, assert_accuracy_drop, assert_agreement
    from pytest_ngraph.capacity.claims import assert_capacity
    from pytest_ngraph.capacity.search import Capacity, find_capacity
    from pytest_ngraph.claims.assertions import (
        InconclusiveWarning,
        assert_ase,
        assert_bsr,
        assert_compile_time,
        assert_cpu_usage,
        assert_faster,
        assert_friction,
        assert_latency,
        assert_memory,
        assert_order,
        assert_outputs_match,
        assert_retention,
        assert_rtr,
        assert_slope,
        assert_speedup,
        assert_throughput,
    )
    from pytest_ngraph.claims.changes import assert_no_larger, assert_no_slower
    from pytest_ngraph.claims.deploying.decoding import assert_first_token, assert_per_token, assert_tokens_per_second
    from pytest_ngraph.claims.deploying.sequences import assert_sequence_scaling
    from pytest_ngraph.claims.fronts.pareto import assert_pareto
    from pytest_ngraph.claims.resources.energy import assert_energy, assert_gpu_utilisation
    from pytest_ngraph.claims.resources.sizes import assert_model_size
    from pytest_ngraph.compilers.base import Compiler, Decoder, Executable, Option
    from pytest_ngraph.errors import CompileFailed, NgraphError, Unsupported
    from pytest_ngraph.explain.profile import Profile, ProfiledNode
    from pytest_ngraph.quantities.quantity import CellFailed, Estimate, NarrowedAway, NotStored
    from pytest_ngraph.quantities.sweeps import BatchSweep, DepthSweep, Measurement, ModelSweep, SequenceSweep
    from pytest_ngraph.spec import Outcome
    from pytest_ngraph.workloads.kinds import Built, Kind

_PLACES = {
    "accuracy.claims": ("assert_accuracy", "assert_accuracy_drop", "assert_agreement"),
    "capacity.claims": ("assert_capacity",),
    "capacity.search": ("Capacity", "find_capacity"),
    "claims.assertions": (
        "InconclusiveWarning", "assert_ase", "assert_bsr", "assert_compile_time", "assert_cpu_usage", "assert_faster",
        "assert_friction", "assert_latency", "assert_memory", "assert_order",
        "assert_outputs_match", "assert_retention", "assert_rtr", "assert_slope", "assert_speedup", "assert_throughput",
    ),
    "claims.resources.energy": ("assert_energy", "assert_gpu_utilisation"),
    "claims.resources.sizes": ("assert_model_size",),
    "claims.changes": ("assert_no_larger", "assert_no_slower"),
    "claims.deploying.decoding": ("assert_first_token", "assert_per_token", "assert_tokens_per_second"),
    "claims.deploying.sequences": ("assert_sequence_scaling",),
    "claims.fronts.pareto": ("assert_pareto",),
    "compilers.base": ("Compiler", "Decoder", "Executable", "Option"),
    "explain.profile": ("Profile", "ProfiledNode"),
    "measure": ("measure",),
    "errors": ("CompileFailed", "NgraphError", "Unsupported"),
    "quantities.quantity": ("CellFailed", "Estimate", "NarrowedAway", "NotStored"),
    "spec": ("Outcome",),
    "quantities.sweeps": ("BatchSweep", "DepthSweep", "Measurement", "ModelSweep", "SequenceSweep"),
    "workloads.kinds": ("Built", "Kind"),
}  # fmt: skip
_HOME = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "BatchSweep",
    "Built",
    "Capacity",
    "CellFailed",
    "CompileFailed",
    "Compiler",
    "Decoder",
    "DepthSweep",
    "Estimate",
    "Executable",
    "InconclusiveWarning",
    "Kind",
    "Measurement",
    "ModelSweep",
    "NarrowedAway",
    "NgraphError",
    "NotStored",
    "Option",
    "Outcome",
    "Profile",
    "ProfiledNode",
    "SequenceSweep",
    "Unsupported",
    "assert_accuracy",
    "assert_accuracy_drop",
    "assert_agreement",
    "assert_ase",
    "assert_bsr",
    "assert_capacity",
    "assert_compile_time",
    "assert_cpu_usage",
    "assert_energy",
    "assert_faster",
    "assert_first_token",
    "assert_friction",
    "assert_gpu_utilisation",
    "assert_latency",
    "assert_memory",
    "assert_model_size",
    "assert_no_larger",
    "assert_no_slower",
    "assert_order",
    "assert_outputs_match",
    "assert_pareto",
    "assert_per_token",
    "assert_retention",
    "assert_rtr",
    "assert_sequence_scaling",
    "assert_slope",
    "assert_speedup",
    "assert_throughput",
    "assert_tokens_per_second",
    "find_capacity",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # A test file asks, and the first folder that is searched by now is its own.
    with importlib.import_module(f"{__name__}.interpreter").standard_library_first():
        module = importlib.import_module(f"{__name__}.{_HOME[name]}")
        value = module if name == _HOME[name] else getattr(module, name)
    globals()[name] = value
    return value
