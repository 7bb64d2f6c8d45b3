"""Which compilers the suite examines, and where."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.conformance.laboratory import Laboratory
from pytest_ngraph.spec import CompilerSpec, split_commas


class _Listener:
    """Hears the catalogue through the hook that conftests and plugins add to it by."""

    catalogue = Catalogue()

    def pytest_ngraph_compilers(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue


def catalogue_of(config: pytest.Config) -> Catalogue:
    """Return the catalogue of this run; the built-in compilers where the plugin is switched off."""
    listener = _Listener()
    # The hook is historic: whoever comes late is called at once.
    config.pluginmanager.register(listener)
    config.pluginmanager.unregister(listener)
    return listener.catalogue


def compilers_of(config: pytest.Config) -> list[CompilerSpec]:
    """Return the compilers that --ngraph-compiler names, else all that are installed."""
    given: Sequence[str] | None = config.getoption("--ngraph-compiler", default=None)
    if not given:
        catalogue = catalogue_of(config)
        return [CompilerSpec(name) for name in catalogue if catalogue.get(name).missing() is None]
    # The plugin refuses unknown names and options itself, once everything is collected.
    return [CompilerSpec.parse(text) for text in split_commas(",".join(given))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make an item of each test for each compiler."""
    if "compiler" in metafunc.fixturenames:
        metafunc.parametrize("compiler", compilers_of(metafunc.config), ids=str, scope="session")


@pytest.fixture(scope="session")
def laboratory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """Return the laboratory of this run."""
    return Laboratory(catalogue_of(request.config), tmp_path_factory.mktemp("conformance"))
