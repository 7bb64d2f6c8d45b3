"""The hooks this plugin offers to conftests and other plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_ngraph.compilers.catalogue import Catalogue
    from pytest_ngraph.optimizers.catalogue import Optimizers
    from pytest_ngraph.workloads.kinds import Models


@pytest.hookspec(historic=True)
def pytest_ngraph_compilers(catalogue: Catalogue) -> None:
    """Add compilers to the catalogue: ``catalogue.add("mine", "my_package.my_module:COMPILER")``.

    A suite that also runs without this plugin puts ``@pytest.hookimpl(optionalhook=True)`` above its hook.
    """


@pytest.hookspec(historic=True)
def pytest_ngraph_models(catalogue: Models) -> None:
    """Add kinds of models to the catalogue: ``catalogue.add("zoo", "my_package.my_module:KIND")``.

    ``zoo:NAME`` is then the reference of a model, wherever it is measured.
    """


@pytest.hookspec(historic=True)
def pytest_ngraph_optimizers(catalogue: Optimizers) -> None:
    """Add optimizers to the catalogue: ``catalogue.add("mine", "my_package.my_module:OPTIMIZER")``.

    ``optimize="mine=0.5"`` then does to a network what it does, before any compiler sees it.
    """
