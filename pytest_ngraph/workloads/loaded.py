"""A workload as a worker sees it: its inputs, its ONNX file and its live module, but not what it must give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.precisions import QUANTISED
from pytest_ngraph.workloads.artifacts import SYMMETRIC_NAME, Artifact, refuse_other_weights, why_no_module
from pytest_ngraph.workloads.decoding.files import step_file
from pytest_ngraph.workloads.kinds.axes import axis_values, built_by
from pytest_ngraph.workloads.kinds.catalogue import kind_of
from pytest_ngraph.workloads.modules import arrays, calls, casting
from pytest_ngraph.workloads.modules.casting import cast
from pytest_ngraph.workloads.shapes.elsewhere import builds, is_open, open_axes, open_sizes
from pytest_ngraph.workloads.shapes.padding import Padding, padding_of

if TYPE_CHECKING:
    import numpy as np
    import torch

    from pytest_ngraph.compilers.toolkit.kept import Kept
    from pytest_ngraph.workloads.kinds.contract import Built
    from pytest_ngraph.workloads.modules.pristine import Pristine
    from pytest_ngraph.workloads.optimizing import Found


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
        # What is compiled in its place, where each of its buckets is a build, and whether this is one of these.
        self.builds: dict[int, LoadedWorkload] = {}
        self.is_bucket = False
        self._module: torch.nn.Module | None = None
        self._pristine: Pristine | None = None

    def load_builds(self, shelf: Callable[[Workload, Artifact], Kept]) -> None:
        """Take what is compiled for each bucket of a mix that is padded: none of other shapes."""
        parts = builds(self.spec) if self.artifact is not None else {}
        for length, part in parts.items():
            made = self.artifact.builds[length]  # type: ignore[union-attr]
            beside = [*self._beside, *self.builds.values()]
            self.builds[length] = LoadedWorkload(part, self.seed, made, shelf(part, made), beside)
            self.builds[length].is_bucket = True

    @property
    def padding(self) -> Padding:
        """Return how calls are padded to buckets. Raise Unsupported where it is not known what of outputs is real."""
        assert self.artifact is not None
        return padding_of(self.artifact, self.spec)

    @cached_property
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the inputs by name, in the model's order, empty without an artifact."""
        if self.artifact is None:
            return {}
        names = [each["name"] for each in self.artifact.meta["inputs"]]
        return arrays.load(self.artifact.directory / "inputs.npz", names)

    @property
    def copied_inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return copies of the inputs, to be called on: a model may write into what it is given."""
        return {name: array.copy() for name, array in self.inputs.items()}

    def written_to(self, given: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
        """Return which inputs have other numbers in the copies of them that a call was given."""
        if not given:
            # Without inputs there may be no NumPy, either.
            return []
        import numpy as np

        return [
            name
            for name, array in self.inputs.items()
            if not np.array_equal(given[name], array, equal_nan=array.dtype.kind in "fc")
        ]

    @cached_property
    def inputs_elsewhere(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return inputs of other sizes, at which a build for open shapes is tried. Empty where shapes are static."""
        other = self.artifact.beside if self.artifact is not None else None
        if other is None:
            return {}
        return arrays.load(other.directory / "inputs.npz", [each["name"] for each in other.meta["inputs"]])

    @cached_property
    def inputs_of_lengths(self) -> dict[int, dict[str, np.ndarray[Any, Any]]]:
        """Return inputs of each further length of a mix, none where all of its calls have one."""
        others = self.artifact.lengths if self.artifact is not None else {}
        return {
            length: arrays.load(other.directory / "inputs.npz", [each["name"] for each in other.meta["inputs"]])
            for length, other in others.items()
        }

    @property
    def inputs_built_with(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return what a compiler that looks at a call is given: the inputs, or with open shapes those of a third size.

        Neither what is measured nor what the build is tried at is then known to it. They are copies, as compiling may
        call the model, and that write into them.
        """
        axes, sizes = self.open_axes, open_sizes(self.spec).values() if self.inputs_elsewhere else ()
        traced = {each.tried: each.traced for each in sizes}

        def cut(name: str, axis: int, length: int) -> slice:
            return slice(traced.get(length, length) if axis in axes[name] else None)

        return {
            name: array[tuple(cut(name, axis, length) for axis, length in enumerate(array.shape))].copy()
            for name, array in self.inputs_elsewhere.items()
        } or self.copied_inputs

    @property
    def open_axes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the axes of each input that one build has to leave open, none where shapes are static."""
        here, there = (
            {name: array.shape for name, array in each.items()} for each in (self.inputs, self.inputs_elsewhere)
        )
        return open_axes(here, there, self.spec.label) if there else {}

    @property
    def open_ranges(self) -> Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        """Return the least, the measured and the largest shape of each input that one build is to serve.

        Open axes go from 1 to the larger of what is measured and what the build is tried at. Empty where shapes are
        static.
        """
        found = {}
        for name, axes in self.open_axes.items():
            here, there = self.inputs[name].shape, self.inputs_elsewhere[name].shape
            least = tuple(1 if axis in axes else length for axis, length in enumerate(here))
            found[name] = least, here, tuple(map(max, here, there))
        return found

    @property
    def onnx_path(self) -> Path:
        """Return the ONNX file, static unless shapes are open. Raise CompileFailed with the reason where there is none.

        Large weights may lie in files beside it: open it by its path, or read it with ``onnx.load``, not its bytes.
        A model that its compiler used to take and that can no longer be exported must fail, not skip. One that cannot
        be with open shapes is Unsupported.
        """
        if self.artifact is not None and self.artifact.onnx is not None:
            return self.artifact.onnx
        meta = self.artifact.meta if self.artifact else {}
        said = f"{self.spec.label}: {meta.get('onnx_unsupported', 'no ONNX file was made of it')}"
        raise Unsupported(said) if is_open(self.spec) else CompileFailed(said)

    @property
    def step_onnx_path(self) -> Path:
        """Return the same for one token, where the workload decodes: the other one is of the prompt."""
        return step_file(self.onnx_path)

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

    def built(self) -> Built:
        """Build the model once more, in f32."""
        from pytest_ngraph.workloads.building import build

        return build(self.spec, self.seed, found=self.found)

    @property
    def found(self) -> Found:
        """Return what was searched for and found when its artifact was made, so that nobody searches again."""
        from pytest_ngraph.workloads.optimizing import found_before

        if (made := self.artifact) is None:
            return {}
        return found_before(self.spec, self.seed, made.directory.parent, made.meta.get("project_files"))

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
            (each.model, built_by(axis_values(each)), each.decode, each.optimize, each.optimizers, each.precision)
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
        from pytest_ngraph.workloads.modules.dynamo import import_dynamo_for
        from pytest_ngraph.workloads.modules.fingerprint import fingerprint
        from pytest_ngraph.workloads.modules.pristine import Pristine

        module = self.built().module
        sums: list[list[float]] | None = fingerprint(module)
        if self.artifact is not None:
            refuse_other_weights(self.spec, self.artifact.meta["weights"], sums or [], self.artifact.directory)
        import_dynamo_for(module)
        if precision in casting.CAST:
            module, sums = cast(module, precision), None
        self._pristine = Pristine(module, sums)
        return module
