"""Which environment variables runtimes decide by: measurements, and what is kept of builds, are keyed by them."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Those that only say where something lies, or what an image was built with; a GPU is in the evidence by what it is.
_ONLY_NAMING = re.compile(r"_(HOME|PATH|DIR|DIRECTORY|ROOT|FILE|VERSION|VISIBLE_DEVICES)\Z")
# scikit-learn sets them when it is imported, so that evidence would depend on what a process has imported. They allow a
# second copy of OpenMP and a fork; no call takes longer by them.
_SET_BY_IMPORTS = frozenset({"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"})


def decides(variable: str, beginnings: tuple[str, ...]) -> bool:
    """Tell whether a variable whose name begins so is one that a runtime decides by."""
    if variable in _SET_BY_IMPORTS:
        return False
    return variable.startswith(beginnings) and not _ONLY_NAMING.search(variable)


def deciding(variables: Mapping[str, str], beginnings: tuple[str, ...]) -> dict[str, str]:
    """Return those of some variables whose names begin so and by which a runtime decides."""
    return {name: value for name, value in variables.items() if decides(name, beginnings)}
