"""What a model must give, for tests that compare with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.loaded import LoadedWorkload

if TYPE_CHECKING:
    import numpy as np


def must_give(workload: LoadedWorkload) -> list[np.ndarray[Any, Any]]:
    """Return the reference outputs of a workload for the inputs that are timed."""
    assert workload.artifact is not None
    return artifacts.reference(workload.artifact).timed
