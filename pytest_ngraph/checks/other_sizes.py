"""Whether what was built for open shapes is for others than those that are measured: it is called at some of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.errors import Unsupported
from pytest_ngraph.machine import clock
from pytest_ngraph.texts.shown import one_line
from pytest_ngraph.workloads.shapes.elsewhere import where

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload


def call_elsewhere(executable: Executable, workload: LoadedWorkload) -> tuple[Sequence[np.ndarray[Any, Any]], float]:
    """Return what a build gives at other sizes, and the seconds of the first call there with what it is bound to.

    The inputs that are timed are bound and called again. Raises Unsupported where it does not run there: what was built
    is for the measured sizes only.
    """
    try:
        began = clock.seconds()
        executable.bind(workload.inputs_elsewhere)
        executable.run()
        executable.synchronize()
        seconds = clock.seconds() - began
        given = executable.outputs()
        # Copies: the next call may write to them.
        outputs = None if given is None else [each.copy() for each in given]
    except (MemoryError, Unsupported):
        raise
    except Exception as error:
        said = one_line(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
        raise Unsupported(f"{_what(workload)} does not run there: {said}") from error
    executable.bind(workload.copied_inputs)
    executable.run()
    executable.synchronize()
    if outputs is None:
        raise Unsupported(f"{_what(workload)}: its outputs() gave None there, so nothing shows that it runs there")
    return outputs, seconds


def facts(executable: Executable, workload: LoadedWorkload) -> dict[str, str | int]:
    """Return what is known of a build for several shapes: where it was tried, and how often it has compiled again."""
    again = {} if executable.recompiles is None else {"recompiles": executable.recompiles}
    tried = {"tried_at": place} if (place := where(workload.spec)) else {}
    return {"shapes": workload.spec.shapes, **tried, **again}


def _what(workload: LoadedWorkload) -> str:
    return f"what was built with shapes={workload.spec.shapes} for {where(workload.spec)}, too,"
