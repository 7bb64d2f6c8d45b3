"""Static builds beside one another, one for each bucket: a call is padded to the next of them, and goes there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Executable
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.compilers.toolkit.kept import Kept
    from pytest_ngraph.workloads.loaded import LoadedWorkload
    from pytest_ngraph.workloads.shapes.padding import Padding


class Bucketed(Executable):
    """The builds of a mix by the length of their bucket. ``bind`` pads and ``outputs`` gives what is real.

    Padding is done where inputs are bound, which is timed in calls of a mix.
    """

    def __init__(self, builds: Mapping[int, Executable], padding: Padding, shelves: Sequence[Kept] = ()) -> None:
        self._builds, self._padding, self._shelves = builds, padding, shelves
        self._current = builds[max(builds)]
        # Runtimes read arrays where they are: those that only padding made must not go before the call.
        self._bound: dict[int, Mapping[str, np.ndarray]] = {}
        self._length = max(builds)
        self.enqueues = self._current.enqueues
        sizes = [each.model_bytes for each in builds.values()]
        self.model_bytes = None if None in sizes else sum(each for each in sizes if each is not None)
        loaded = [each.loaded for each in builds.values()]
        self.loaded = None if None in loaded else all(loaded)
        # Another cell may have built one of them before: all together then took the time of neither.
        self.partly_loaded = any(loaded) and not all(loaded)

    @property
    def placement(self) -> Mapping[str, str | int]:  # type: ignore[override]
        """Return what the largest build says, which builds there are, and how much of what is computed is padding."""
        per_asked = self._padding.mix.computed_per_asked
        return {
            **self._builds[max(self._builds)].placement,
            "shapes": str(self._padding.mix),
            "buckets": ", ".join(map(str, sorted(self._builds))),
            "computed_per_asked": f"{per_asked:.3g} tokens, {100 * (1 - 1 / per_asked):.1f} % are padding to buckets",
        }

    @property
    def recompiles(self) -> int | None:  # type: ignore[override]
        """Return how often the builds were compiled again since they were built, None where one does not say."""
        counts = [each.recompiles for each in self._builds.values()]
        return None if None in counts else sum(each for each in counts if each is not None)

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Pad the inputs to the next bucket and bind them to its build."""
        self._length = self._padding.length_of(inputs)
        bucket = self._padding.mix.bucket(self._length)
        self._current = self._builds[bucket]
        self._bound[bucket] = inputs if bucket == self._length else self._padding.pad(inputs, bucket)
        self._current.bind(self._bound[bucket])

    def run(self) -> None:
        """Call the build that the inputs were bound to."""
        self._current.run()

    def synchronize(self) -> None:
        """Wait for that build."""
        self._current.synchronize()

    def outputs(self) -> Sequence[np.ndarray[Any, Any]] | None:
        """Return the last call's outputs without what belongs to padding."""
        given = self._current.outputs()
        return None if given is None else self._padding.real(given, self._length)

    def close(self) -> None:
        """Release all builds, and what was kept for them only."""
        for build in self._builds.values():
            build.close()
        self._bound.clear()
        for shelf in self._shelves:
            shelf.close()


def compile_buckets(
    adapter: Compiler, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]
) -> Executable:
    """Compile what a workload is built to: for each of its buckets, where it has some, and else as it is."""
    parts = workload.builds
    if not parts:
        return adapter.compile(workload, device, options)
    made: dict[int, Executable] = {}
    shelves = [part.kept for part in parts.values() if part.kept is not None]
    try:
        for number, (length, part) in enumerate(sorted(parts.items()), start=1):
            what = f"the build for {length} tokens ({number} of {len(parts)}, which are held at once)"
            try:
                made[length] = adapter.compile(part, device, options)
            except MemoryError as error:
                raise MemoryError(f"{what}: {error}") from error
            except NgraphError as error:
                raise type(error)(f"{what}: {error}") from error
    except BaseException:
        for each in made.values():
            each.close()
        for shelf in shelves:
            shelf.close()
        raise
    return Bucketed(made, workload.padding, shelves)
