"""Measuring without pytest: ``with measure.session() as s: cells = s.measure(model=..., batch=[1, 8])``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_ngraph.script.session import Results, Session

__all__ = ["Results", "Session", "session"]


def __getattr__(name: str) -> object:
    """Import what a session is made of when it is first asked for."""
    if name not in ("Results", "Session"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pytest_ngraph.script import session

    return getattr(session, name)


def session(
    *,
    rootdir: str | Path | None = None,
    add_compilers: Mapping[str, str] | None = None,
    add_models: Mapping[str, str] | None = None,
    add_optimizers: Mapping[str, str] | None = None,
    rebuild: bool = False,
    quiet: bool = False,
    **options: Any,
) -> Session:
    """Open a session that measures what it is asked for: ``with measure.session(device="local", seed=1) as s: ...``.

    ``options`` are those of pytest, ``--ngraph-run-budget`` as ``run_budget=``, with texts, numbers, paths or lists of
    them. What is not given is what the project says (its ini file, ``addopts``), so that a pytest run there counts the
    same launches. The project is that of the calling file's folder, else of the current one, or of ``rootdir``. A gate
    that is not decided is a warning (``inconclusive="fail"`` raises), also where ``CI`` is set.

    ``add_compilers``, ``add_models`` and ``add_optimizers`` are what a conftest's hooks would add: names with
    ``module:ATTRIBUTE``. With ``rebuild`` every launch compiles again. ``quiet`` shows no progress. Raises SpecError
    for what cannot be used.
    """
    from pytest_ngraph.compilers.catalogue import Catalogue
    from pytest_ngraph.errors import SpecError
    from pytest_ngraph.interpreter import is_worker
    from pytest_ngraph.optimizers.catalogue import Optimizers
    from pytest_ngraph.script.given import added, read_options
    from pytest_ngraph.script.session import Session
    from pytest_ngraph.workloads.kinds import Models

    caller = sys._getframe(1).f_globals.get("__file__")
    if is_worker():
        raise SpecError(
            f"{caller or 'this file'} opens a session where it is imported for a model in it; put what measures below "
            'if __name__ == "__main__":'
        )
    file = Path(caller).absolute() if caller and Path(caller).is_file() else None
    folder = file.parent if file is not None else Path.cwd()
    given = read_options(options, folder, None if rootdir is None else Path(rootdir).absolute())
    catalogue, models, optimizers = Catalogue(), Models(), Optimizers()
    added("add_compilers", add_compilers, catalogue)
    added("add_models", add_models, models)
    added("add_optimizers", add_optimizers, optimizers)
    name = "interactive"
    if file is not None:
        name = str(file.relative_to(given.rootdir) if file.is_relative_to(given.rootdir) else file)
    return Session(given, catalogue, models, optimizers, name, [folder], rebuild=rebuild, quiet=quiet)
