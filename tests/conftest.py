"""What the tests share: suites in a folder of their own, run by a pytest of their own."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

# Suites that run in this process drop what they import; NumPy can be loaded only once, with what SciPy loads of it, and
# the contracts must stay the classes that adapters and kinds inherit.
import numpy  # noqa: F401
import pytest
import scipy.special  # noqa: F401
from hypothesis import HealthCheck, settings

import pytest_ngraph.compilers.base
import pytest_ngraph.workloads.kinds  # noqa: F401
from tests.bytecode import pytest_collection  # noqa: F401
from tests.sharing import (  # noqa: F401
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_configure_node,
    pytest_xdist_make_scheduler,
)
from tests.slow import pytest_addoption, pytest_itemcollected, pytest_sessionstart  # noqa: F401
from tests.support import unsynced, workers  # noqa: F401
from tests.support.forked import FORKS, load_ours, run_pytest
from tests.unmarked import pytest_runtest_call, pytest_runtest_setup  # noqa: F401

if TYPE_CHECKING:
    from tests.support.lab import Lab

# Nor may those of keys be made again: the compiled part of cryptography keeps the ones that it has seen first.
with suppress(ImportError):
    importlib.import_module("cryptography.x509")

ROOT = Path(__file__).parents[1]
# The same examples in every run, and none of them is held to the clock: other tests run beside them.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")
# A shell that starts a job in the background has it ignore Ctrl-C, and its children inherit that; our tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Runs inside tests are not those of pytest-xdist: under it pytest-benchmark, for one, writes no file.
for _name in ("PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
    os.environ.pop(_name, None)
# Compilers from elsewhere: one that works, and one for each way not to.
ADAPTERS = """
import os
import signal
from time import perf_counter_ns

from pytest_ngraph import CompileFailed, Compiler, Executable, Option, Unsupported


class Busy(Executable):
    placement = {"provider": "busy"}

    def __init__(self, microseconds):
        self._wait_ns = 1000 * microseconds

    def bind(self, inputs):
        pass

    def run(self):
        end = perf_counter_ns() + self._wait_ns
        while perf_counter_ns() < end:
            pass

    def outputs(self):
        return None


class Mine(Compiler):
    name = "mine"
    reads = "nothing"
    options = (Option("us", "100", "Microseconds of a call", kind="int"),)

    def compile(self, workload, device, options):
        return Busy(options["us"])


class Broken(Mine):
    name = "broken"

    def compile(self, workload, device, options):
        raise CompileFailed("the graph has a cycle")


class Choosy(Mine):
    name = "choosy"

    def compile(self, workload, device, options):
        raise Unsupported("no convolutions here")


class Picky(Mine):
    name = "picky"

    def why_not(self, cell, device):
        return "it only runs on Sundays"


class Crashing(Mine):
    name = "crashing"

    def compile(self, workload, device, options):
        os.kill(os.getpid(), signal.SIGSEGV)


class Absent(Mine):
    name = "absent"
    requires = ("surely_not_installed",)
    install = "surely-not"


MINE, BROKEN, CHOOSY, PICKY, CRASHING, ABSENT = Mine(), Broken(), Choosy(), Picky(), Crashing(), Absent()
"""
# One short launch that fails what is wholly beyond its bound: for tests of what a claim does, not of how it is judged.
QUICK_GATES = ("--ngraph-protocol=quick", "--ngraph-quick-gates=fail")
# Plugins for runs on real runtimes in which no time is looked at.
BRIEFLY = "tests.support.brief tests.support.one_thread"
HOOK = """
def pytest_ngraph_compilers(catalogue):
    for name in ("mine", "broken", "choosy", "picky", "crashing", "absent"):
        catalogue.add(name, f"adapters:{name.upper()}")
"""
HEAD = """
import pytest
from pytest_ngraph import assert_bsr, assert_retention, assert_slope, assert_speedup
"""


# Plugins that change how launches are measured, as soon as they are imported.
CHANGING = tuple(
    f"tests.support.{name}" for name in ("brief", "held", "one_thread", "own_time", "undelayed", "undisturbed")
)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Fail a test that has changed how launches are measured for all tests after it in this process."""
    if left := [name for name in CHANGING if sys.modules.pop(name, None)]:
        pytest.fail(f"{item.name} imported {', '.join(left)}: what they change stays (expected a process of its own)")


def pytest_unconfigure() -> None:
    """End what runs of suites and their workers are forked from."""
    FORKS.close()
    workers.FORK_SERVER.close()


def skip_without(*modules: str) -> None:
    """Skip where a runtime is not installed, without importing it into this process."""
    for module in modules:
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A hub, the agent one and the user alice, as users start them, for all tests of a file."""
    skip_without("distributed", "cryptography")
    from tests.support.lab import Lab

    with Lab(tmp_path_factory.mktemp("lab")) as made:
        made.start_hub()
        made.start_agent("one")
        made.entry()
        yield made


@pytest.fixture(scope="module")
def forking_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The same with an agent that forks what measures, where how that begins and ends is not what tests ask."""
    skip_without("distributed", "cryptography")
    from tests.support import forking_agent
    from tests.support.lab import Lab

    folder = tmp_path_factory.mktemp("lab")
    with Lab(folder, agents=forking_agent.prepared(folder)) as made:
        made.start_hub()
        made.start_agent("one")
        made.entry()
        yield made


@pytest.fixture
def forked_workers() -> Iterator[None]:
    """Fork the workers that a test starts in its own process, where how they begin is not what it asks."""
    skip_without("torch")
    with workers.forking(measures=True):
        yield


class Suite:
    """A suite of tests in an empty folder; every run is strict about warnings and markers."""

    def __init__(self, pytester: pytest.Pytester, *, is_brief: bool = False) -> None:
        self.pytester, self.path = pytester, pytester.path
        brief = ("tests.support.brief", "tests.support.own_time") if is_brief else ()
        self._plugins = ("tests.support.undisturbed", "tests.support.workers", *brief)

    def write(self, source: str, name: str = "test_suite.py") -> Path:
        """Write a test file; pytest and the assertion helpers are imported in it."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + source)
        return path

    def add_compilers(self, folder: str = ".") -> None:
        """Write adapters and a conftest that offers them."""
        place = self.path / folder
        place.mkdir(exist_ok=True)
        (place / "adapters.py").write_text(ADAPTERS)
        (place / "conftest.py").write_text(HOOK)

    def run(self, *arguments: str, compiler: str = "null[sample_us=20]", plugins: str = "") -> pytest.RunResult:
        """Run the suite in a process of its own, with null against a null that is three times slower or more."""
        names = [f"--ngraph-compiler={compiler}", "--ngraph-baseline=null[sample_us=200]", *QUICK_GATES]
        return self.bare(*names, *arguments, plugins=plugins)

    def bare(self, *arguments: str, plugins: str = "") -> pytest.RunResult:
        """Run the suite in a process of its own, with no option of ours but those given."""
        loaded = [word for name in ("ngraph", *plugins.split()) for word in ("-p", name)]
        with pytest.MonkeyPatch.context() as patch:
            # Not by -p, at each of which pytest reads what every distribution declares.
            patch.setenv("PYTEST_PLUGINS", ",".join(self._plugins))
            return run_pytest(self.pytester, *loaded, "-Werror", "--strict-markers", "-rA", *arguments)

    def collect(self, *arguments: str) -> pytest.RunResult:
        """Collect the suite in this process, quietly: the output is ids, or the error."""
        common = ("-p", "ngraph", "-Werror", "--strict-markers", "--collect-only", "-q")
        return self.pytester.runpytest_inprocess(*common, *arguments)

    def ids(self, *arguments: str) -> list[str]:
        """Return what is collected, as the name and the brackets of each item."""
        result = self.collect(*arguments)
        assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), result.stdout.str()
        return [line.partition("::")[2] for line in result.outlines if "::" in line]

    @property
    def store(self) -> Path:
        """Where results are kept."""
        return self.path / ".ngraph" / "results.sqlite"


@pytest.fixture(scope="session")
def ours() -> None:
    """What runs import of ours, loaded before ``pytester`` takes note of what is: what is not is dropped by each test.

    A run in this process would import it anew, and rewrite its asserts again.
    """
    load_ours()


@pytest.fixture
def suite(
    request: pytest.FixtureRequest, ours: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Suite:
    """An empty suite, brief without real runtimes and clocks. CI is not set and other plugins are not loaded."""
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    marked = request.node.get_closest_marker
    if not marked("cold"):
        monkeypatch.setenv(workers.ADDRESS, workers.FORK_SERVER.start(measures=not marked("measures")))
    return Suite(pytester, is_brief=not any(map(marked, ("measures", "real", "lab"))))
