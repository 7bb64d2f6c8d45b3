"""A workload as a worker sees it: its inputs, its ONNX file and its live module, but not what it must give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.precisions import QUANTISED
from pytest_ngraph.workloads.artifacts import SYMMETRIC_NAME, Artifact, refuse_other_weights, why_no_module
from pytest_ngraph.workloads.kinds.axes import axis_values, built_by
from pytest_ngraph.workloads.kinds.catalogue import kind_of
from pytest_ngraph.workloads.modules import arrays, calls, casting
from pytest_ngraph.workloads.modules.casting import cast

if TYPE_CHECKING:
    import numpy as np
    import torch

    from pytest_ngraph.compilers.toolkit.kept import Kept
    from pytest_ngraph.workloads.modules.pristine import Pristine


class LoadedWorkload:
    """What adapters compile from. Nothing is read or imported before it is asked for.

    The reference is not here: a process that is compared with it must not have it. ``artifact`` is None only for
    compilers that read nothing of the model, ``kept`` (what compilers keep between launches) only where nothing is
    kept.
    """

    def __init__(
        self,
        spec: Workload,
        seed: int,
        artifact: Artifact | None,
        kept: Kept | None = None,
        beside: Iterable[LoadedWorkload] = (),
    ) -> None:
        """Keep the workload, the seed that its weights and inputs come from, its artifact and its shelf.

        ``beside`` are those of the same process, of which a module is copied where it would be the same.
        """
        self.spec = spec
        self.seed = seed
        self.artifact = artifact
        self.kept = kept
        self._beside = beside
        self._module: torch.nn.Module | None = None
        self._pristine: Pristine | None = None

    @cached_property
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the inputs by name, in the model's order, empty without an artifact."""
        if self.artifact is None:
            return {}
        names = [each["name"] for each in self.artifact.meta["inputs"]]
        return arrays.load(self.artifact.directory / "inputs.npz", names)

    @property
    def onnx_path(self) -> Path:
        """Return the static ONNX file. Raise CompileFailed with the reason where there is none.

        Large weights may lie in files beside it: open it by its path, or read it with ``onnx.load``, not its bytes.
        A model that its compiler used to take and that can no longer be exported must fail, not skip.
        """
        if self.artifact is not None and self.artifact.onnx is not None:
            return self.artifact.onnx
        meta = self.artifact.meta if self.artifact else {}
        raise CompileFailed(f"{self.spec.label}: {meta.get('onnx_unsupported', 'no ONNX file was made of it')}")

    @property
    def graph_precision(self) -> str:
        """Return the precision that the ONNX file is written in: where none is asked for, a user's need not be f32."""
        written = self.artifact.meta.get("graph_precision") if self.artifact is not None else None
        return str(written) if written and self.spec.precision == "f32" else self.spec.base_precision

    @property
    def symmetric_onnx_path(self) -> Path:
        """Return the same for compilers that take no zero point but zero: another file in int8 only."""
        path = self.onnx_path
        return path.with_name(SYMMETRIC_NAME) if self.spec.base_precision == QUANTISED else path

    def module(self) -> torch.nn.Module:
        """Return the model as a PyTorch module in eval mode, with the weights that the reference was made with.

        It is built once, in the precision of the workload. An ONNX file is converted. Raises Unsupported with the
        reason where that cannot be done or gives other outputs, SpecError where the user's factory fails or gives
        other weights than before.
        """
        if self._module is None:
            self._module = self._copied() or self._build()
        return self._module

    def arguments(
        self, inputs: Mapping[str, np.ndarray[Any, Any]]
    ) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        """Return the positional and keyword arguments that ``module()`` takes, sharing memory with the inputs."""
        import torch

        kind = self.artifact.meta["call"] if self.artifact else calls.POSITIONAL
        return calls.arguments(kind, {name: torch.from_numpy(array) for name, array in inputs.items()})

    @staticmethod
    def flatten(outputs: Any) -> list[torch.Tensor]:
        """Return the tensors in a module's outputs as a flat list, in the order of the ONNX file's outputs."""
        return calls.flatten(outputs)

    def _copied(self) -> torch.nn.Module | None:
        """Return a copy of the module of another batch, None where there is none that is unchanged."""
        for other in self._beside:
            if other._pristine is not None and self._is_of_the_same_module(other):
                return other._pristine.copy()
        return None

    def _is_of_the_same_module(self, other: LoadedWorkload) -> bool:
        """Tell whether the same would be built, which a factory that draws other weights each time does not do."""
        from pytest_ngraph.workloads.modules.fingerprint import is_same

        if self.artifact is None or other.artifact is None or self.seed != other.seed:
            return False
        one, two = self.spec, other.spec
        mine, theirs = (
            (each.model, built_by(axis_values(each)), each.optimize, each.optimizers, each.precision)
            for each in (one, two)
        )
        return mine == theirs and is_same(self.artifact.meta["weights"], other.artifact.meta["weights"])

    def _build(self) -> torch.nn.Module:
        precision = self.spec.base_precision
        if precision == QUANTISED:
            raise Unsupported(f"{self.spec.label}: {precision} is in the ONNX file, there is no PyTorch module in it")
        if kind_of(self.spec.model).is_onnx:
            from pytest_ngraph.workloads.onnx_files.to_torch import convert

            path = self.onnx_path
            if self.artifact is not None and (reason := why_no_module(self.artifact)):
                raise Unsupported(f"{self.spec.label}: {reason}")
            return convert(path)
        from pytest_ngraph.workloads.building import build
        from pytest_ngraph.workloads.modules.dynamo import import_dynamo_for
        from pytest_ngraph.workloads.modules.fingerprint import fingerprint
        from pytest_ngraph.workloads.modules.pristine import Pristine

        module = build(self.spec, self.seed).module
        sums: list[list[float]] | None = fingerprint(module)
        if self.artifact is not None:
            refuse_other_weights(self.spec, self.artifact.meta["weights"], sums or [], self.artifact.directory)
        import_dynamo_for(module)
        if precision in casting.CAST:
            module, sums = cast(module, precision), None
        self._pristine = Pristine(module, sums)
        return module
