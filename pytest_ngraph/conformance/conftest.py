"""Which compilers the suite examines, in which precisions and where, and which models of kinds outside the package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.conformance.laboratory import Laboratory
from pytest_ngraph.errors import SpecError
from pytest_ngraph.front.run import STATE
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload, split_commas
from pytest_ngraph.workloads.kinds import parse_model


class _Listener:
    """Gets the catalogue through the hook by which conftests and plugins add to it."""

    catalogue = Catalogue()

    def pytest_ngraph_compilers(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue


def catalogue_of(config: pytest.Config) -> Catalogue:
    """Return the catalogue of this run. The built-in compilers where the plugin is switched off."""
    listener = _Listener()
    # The hook is historic: a plugin that is registered later is called at once.
    config.pluginmanager.register(listener)
    config.pluginmanager.unregister(listener)
    return listener.catalogue


def compilers_of(config: pytest.Config) -> list[CompilerSpec]:
    """Return the compilers that --ngraph-compiler names, else all that are installed.

    Without options none of them tunes: that takes being named.
    """
    given: Sequence[str] | None = config.getoption("--ngraph-compiler", default=None)
    if not given:
        catalogue = catalogue_of(config)
        return [CompilerSpec(name) for name in catalogue if catalogue.get(name).missing() is None]
    # The plugin refuses unknown names and options itself, once everything is collected.
    return [CompilerSpec.parse(text) for text in split_commas(",".join(given))]


def precisions_of(config: pytest.Config) -> list[tuple[CompilerSpec, str]]:
    """Return each compiler with each precision beside f32 that it declares and does not refuse on the device."""
    catalogue, device = catalogue_of(config), device_of(config)
    pairs = []
    for compiler in compilers_of(config):
        try:
            adapter = catalogue.get(compiler.name)
            adapter.resolve(compiler)
        except SpecError:  # the plugin refuses it too, and says why
            continue
        for precision in adapter.precisions:
            cell = Cell(device.name, compiler, Workload(parse_model("block:conv"), precision=precision))
            if precision != "f32" and adapter.why_not(cell, device) is None:
                pairs.append((compiler, precision))
    return pairs


def references_of(config: pytest.Config) -> list[str]:
    """Return the models that --ngraph-model names."""
    given: Sequence[str] | None = config.getoption("--ngraph-model", default=None)
    return split_commas(",".join(given or ()))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests of kinds of models where none is named."""
    return True if collection_path.name == "test_kinds.py" and not references_of(config) else None


def device_of(config: pytest.Config) -> Device:
    """Return the device that --ngraph-device names. This machine's CPUs without it."""
    given: Sequence[str] | None = config.getoption("--ngraph-device", default=None)
    name = split_commas(",".join(given))[0] if given else "local"
    kind, _, number = name.partition(":")
    return Device(name, accelerator=f"cuda:{number or 0}" if kind == "cuda" else "cpu")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make an item of each test for each compiler, and for each of its further precisions where it asks for one."""
    if "model" in metafunc.fixturenames:
        models = metafunc.config.stash[STATE].models
        try:
            found = [models.parse(text, (metafunc.config.rootpath,)) for text in references_of(metafunc.config)]
        except SpecError as error:
            raise pytest.UsageError(f"--ngraph-model: {error}") from None
        metafunc.parametrize("model", found, ids=str)
    elif "precision" in metafunc.fixturenames:
        pairs = precisions_of(metafunc.config)
        ids = [f"{compiler}-{precision}" for compiler, precision in pairs]
        metafunc.parametrize(("compiler", "precision"), pairs, ids=ids, scope="session")
    elif "compiler" in metafunc.fixturenames:
        metafunc.parametrize("compiler", compilers_of(metafunc.config), ids=str, scope="session")


@pytest.fixture(scope="session")
def laboratory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """Return the laboratory of this run."""
    config = request.config
    asked = (getattr(item, "callspec", None) for item in request.session.items)
    cases = dict.fromkeys(each.params["case"] for each in asked if each is not None and "case" in each.params)
    return Laboratory(catalogue_of(config), tmp_path_factory.mktemp("conformance"), device_of(config), tuple(cases))
