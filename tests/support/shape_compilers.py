"""Adapters that say to build for open shapes; ``do`` says what they do instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import THREADS, Compiler, Executable, Option
from pytest_ngraph.compilers.torch.shared import TorchExecutable, describe, load_module, take_place
from pytest_ngraph.spec.cells import Device
from tests.support import cheating_compilers

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload


class Honest(cheating_compilers.Honest):
    """Calls a module of any shape."""

    def __init__(self, inner: TorchExecutable, sample: Mapping[str, np.ndarray]) -> None:
        super().__init__(inner)
        self._sample = sample

    @property
    def is_elsewhere(self) -> bool:
        """Return whether what is bound has another shape than what is measured."""
        return any(array.shape != self._sample[name].shape for name, array in self._inputs.items())


class Fixed(Honest):
    """Runs at the measured sizes only."""

    def run(self) -> None:
        if self.is_elsewhere:
            raise RuntimeError("got invalid dimensions for input\nin a second line")
        super().run()


class Padded(Honest):
    """Gives outputs of the measured shape whatever it is fed, as a graph does whose batch was fixed when traced."""

    def outputs(self) -> Sequence[np.ndarray]:
        import numpy as np

        given = super().outputs()
        batch = next(iter(self._sample.values())).shape[0]
        return [np.resize(each, (batch, *each.shape[1:])) for each in given] if self.is_elsewhere else given


class Remembered(Honest):
    """Answers each shape from the first call that had it."""

    def __init__(self, inner: TorchExecutable, sample: Mapping[str, np.ndarray]) -> None:
        super().__init__(inner, sample)
        self._known: dict[Any, Sequence[np.ndarray]] = {}

    @property
    def _key(self) -> Any:
        return tuple(array.shape for array in self._inputs.values())

    def run(self) -> None:
        if self._key not in self._known or not self.is_elsewhere:
            super().run()
            self._known[self._key] = super().outputs()

    def outputs(self) -> Sequence[np.ndarray]:
        return [each.copy() for each in self._known[self._key]]


class Recompiling(Honest):
    """Compiles again every few calls, and says so."""

    recompiles = 0
    _calls = 0

    def run(self) -> None:
        self._calls += 1
        if self._calls > 20 and self._calls % 10 == 0:
            self.recompiles += 1
        super().run()


class Unmasked(Honest):
    """Drops the mask: what is appended to a call is computed as if it were asked for."""

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        import numpy as np

        super().bind({name: np.ones_like(each) if "mask" in name else each for name, each in inputs.items()})


class Kept(Honest):
    """Keeps what it builds for later launches."""


class Exhausted(Honest):
    """Has no memory for long sequences."""

    def __init__(self, inner: TorchExecutable, sample: Mapping[str, np.ndarray]) -> None:
        super().__init__(inner, sample)
        if max(each.shape[-1] for each in sample.values()) > 16:
            raise MemoryError("no 3 GiB are left")


_KINDS = {
    "honest": Honest,
    "fixed": Fixed,
    "padded": Padded,
    "remembered": Remembered,
    "recompiling": Recompiling,
    "unmasked": Unmasked,
    "exhausted": Exhausted,
    "kept": Kept,
}


class ShapesCompiler(Compiler):
    """``open[do=...]``: see the classes above."""

    name = "open"
    requires = ("torch",)
    extra = "torch"
    named_only = True
    shapes = ("static", "dynamic")
    options = (Option("do", "honest", "What it does", choices=tuple(_KINDS)), THREADS)

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        """Load the module and do as the option says."""
        place = take_place(workload, device, options)
        module = load_module(workload, place)
        inner = TorchExecutable(module, workload, place, describe(module, workload, place))
        made = _KINDS[options["do"]](inner, workload.inputs)
        if isinstance(made, Kept):
            assert workload.kept is not None
            made.loaded = workload.kept.built(self.name, {}, lambda folder: {})[2]
        return made


COMPILER = ShapesCompiler()
