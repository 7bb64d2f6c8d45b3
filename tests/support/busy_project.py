"""A project whose calls take as long as a module of it says, by a compiler of its own: tests compare its commits."""

from __future__ import annotations

from pathlib import Path

from tests.support.git_repository import git

# Its calls take as long as a module of the project says.
ADAPTERS = """
from time import perf_counter_ns

from pytest_ngraph import CompileFailed, Compiler, Executable
from speed import MICROSECONDS


class Busy(Executable):
    placement = {"provider": "busy"}

    def bind(self, inputs):
        pass

    def run(self):
        end = perf_counter_ns() + 1000 * MICROSECONDS
        while perf_counter_ns() < end:
            pass

    def outputs(self):
        return None


class Mine(Compiler):
    name = "mine"
    reads = "nothing"

    def compile(self, workload, device, options):
        if not MICROSECONDS:
            raise CompileFailed("there is no speed")
        return Busy()


MINE = Mine()
"""
CONFTEST = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("mine", "adapters:MINE")
"""
PLAIN = """
@pytest.mark.ngraph(model="block:conv", batch=[1, 2], compilers="mine")
def test_speed(ngraph_cell):
    pass
"""


def write(folder: Path, microseconds: int = 200) -> None:
    """Write the project, without a suite, into a repository on the branch main. Nothing is committed."""
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text(".ngraph/\n__pycache__/\n")
    (folder / "adapters.py").write_text(ADAPTERS)
    (folder / "conftest.py").write_text(CONFTEST)
    slower(folder, microseconds)


def slower(folder: Path, microseconds: int = 2000) -> None:
    """Have its calls take so long. With 0 nothing can be compiled."""
    (folder / "speed.py").write_text(f"MICROSECONDS = {microseconds}\n")
