"""Seeded inputs of a model, the same ones in every process: what agreement is measured on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import NgraphError, Unsupported

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

    Arrays = dict[str, np.ndarray[Any, Any]]

# Far from the seeds of what is timed, of what int8 is calibrated on and of what outputs are checked on.
_FIRST_SEED = 2_000_000


class Seeded:
    """Draws batches of inputs of a workload: sample by sample where they can be put together, else whole batches.

    So cells of another batch are shown the same samples.
    """

    def __init__(self, workload: LoadedWorkload) -> None:
        """Build what draws them."""
        from pytest_ngraph.workloads.artifacts import open_source

        if workload.artifact is None:
            raise Unsupported(f"{workload.spec.label}: its compiler reads nothing of the model, so it has no inputs")
        self._source = open_source(workload.spec, workload.seed, workload.found)
        self._onnx = workload.artifact.onnx or workload.artifact.directory
        self._first, self._batch = workload.seed + _FIRST_SEED, workload.spec.batch
        self._shapes = {str(each["name"]): tuple(each["shape"]) for each in workload.artifact.meta["inputs"]}
        self._stacks = self._can_stack()

    def batch(self, number: int) -> Arrays:
        """Return the inputs of a call by name, in the model's order."""
        import numpy as np

        if not self._stacks:
            return dict(self._source.inputs(self._onnx, self._first + number, self._batch))
        first = self._first + number * self._batch
        each = [self._source.inputs(self._onnx, first + row, 1) for row in range(self._batch)]
        return {name: np.concatenate([one[name] for one in each]) for name in self._shapes}

    def _can_stack(self) -> bool:
        try:
            one = self._source.inputs(self._onnx, self._first, 1)
        except NgraphError:
            return False  # a user's model may know one batch only
        return {name: (self._batch, *array.shape[1:]) for name, array in one.items() if array.shape[:1] == (1,)} == (
            self._shapes
        )


def digest_of(inputs: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return the sha256 of named arrays."""
    import numpy as np

    content = hashlib.sha256()
    for name, array in inputs.items():
        content.update(f"{name} {array.dtype} {array.shape}\n".encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()
