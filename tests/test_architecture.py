"""The house: imports only point down, rooms of a floor do not lean on each other, and nothing heavy loads at start."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pytest_ngraph
from pytest_ngraph.compilers import catalogue as compilers
from pytest_ngraph.compilers.base import Compiler
from pytest_ngraph.machine.facts import VERSIONED
from pytest_ngraph.optimizers import catalogue as optimizers
from pytest_ngraph.optimizers.contract import Optimizer
from pytest_ngraph.places import load_place
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.workloads.kinds import catalogue as kinds
from pytest_ngraph.workloads.kinds.contract import Kind
from tests.conftest import ROOT, Suite
from tests.support.pages import project

HOUSE = Path(pytest_ngraph.__file__).parent
FLOORS = (
    ("axes", "interpreter", "texts", "units"),
    ("errors", "places"),
    ("machine", "metrics", "probes", "spec"),
    ("options", "stats", "explain", "load"),
    ("store", "workloads", "optimizers", "compilers", "sides", "upkeep"),
    ("checks", "evaluation", "worker", "launches", "passes"),
    ("devices",),
    ("plan", "session"),
    ("quantities", "choosing", "claims", "accuracy", "capacity"),
    ("report", "bisecting", "reducing"),
    ("front", "script", "commands"),
    ("plugin", "hookspec", "cli", "measure"),
    ("conformance",),
)  # fmt: skip
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# What compilers, optimizers and kinds of models say that they need, and what nothing but ours does.
HEAVY = {
    "numpy", "scipy", "pandas", "dask", "distributed", "cryptography", "altair",
    *(module for place in compilers.BUILT_IN.values() for module in load_place("", "", place, Compiler).requires),
    *(module for place in optimizers.BUILT_IN.values() for module in load_place("", "", place, Optimizer).requires),
    *(module for place in kinds.BUILT_IN.values() for module in load_place("", "", place, Kind).requires),
}  # fmt: skip
# Hub and agent are processes of their own, and classes of dask.distributed; so is what speaks to them.
OWN_PROCESSES = tuple(
    f"pytest_ngraph.devices.{name}"
    for name in (
        "lab.hub", "agent.agent", "doors.allowed", "doors.frames", "doors.doors", "doors.client", "signing.signer",
    )
)  # fmt: skip
# More than anybody takes in at a glance is a room to divide; those that have one module for each of a kind may grow.
MOST, MAY_GROW = 10, ("commands", "conformance", "workloads.modules")
MODULES = sorted(path for path in HOUSE.rglob("*.py") if path.parent != HOUSE or path.name != "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def inner_room_of(path: Path) -> str:
    """Return the package below ours that a module lies in; a module at the root is a room by itself."""
    parts = path.relative_to(HOUSE).with_suffix("").parts
    return ".".join(parts if path.name == "__init__.py" or len(parts) == 1 else parts[:-1]).removesuffix(".__init__")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(HOUSE.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of every module of this package that is imported anywhere below a node."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "pytest_ngraph" else [module]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.partition(".")[0] == "pytest_ngraph")


def without_type_checking(tree: ast.Module) -> ast.Module:
    """Return a module without what only type checkers see."""
    body = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    return ast.Module(body, [])


@cache
def read(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def rooms_below(path: Path, tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the place of each import and the room that it leads to."""
    for line, name in imports(tree):
        parts = name.split(".")
        assert len(parts) > 1, f"{path}:{line}: imports the public face of the package"
        yield f"{path.relative_to(HOUSE)}:{line}", parts[1]


def test_every_module_stands_on_a_floor() -> None:
    rooms = {room_of(path) for path in MODULES}

    assert rooms - set(FLOOR) == set()
    assert set(FLOOR) - rooms == set()


def what_it_is_for(room: str) -> str:
    """Return the first sentence of a room's docstring."""
    path = HOUSE / room / "__init__.py" if (HOUSE / room).is_dir() else HOUSE / f"{room}.py"
    return " ".join((ast.get_docstring(read(path)) or "").partition("\n\n")[0].split())


def test_contributing_shows_the_house_as_it_is() -> None:
    rows = [
        f"| {len(FLOORS) - 1 - number} | `{room}{'/' if (HOUSE / room).is_dir() else '.py'}` | {what_it_is_for(room)} |"
        for number, rooms in enumerate(reversed(FLOORS))
        for room in rooms
    ]
    table = "\n".join(["| floor | room | what |", "|---|---|---|", *rows])

    assert table in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), f"it should have:\n{table}"


def test_imports_only_point_down() -> None:
    wrong = [
        f"{place}: {room_of(path)} (floor {FLOOR[room_of(path)]}) imports {room} (floor {FLOOR.get(room)})"
        for path in MODULES
        for place, room in rooms_below(path, read(path))
        if FLOOR.get(room, len(FLOORS)) > FLOOR[room_of(path)]
    ]

    assert wrong == []


def test_rooms_of_one_floor_do_not_lean_on_each_other_in_a_circle() -> None:
    leans: dict[str, set[str]] = {room: set() for room in FLOOR}
    for path in MODULES:
        leans[room_of(path)] |= {room for _, room in rooms_below(path, without_type_checking(read(path)))}
    left = {room: {other for other in others if other != room} for room, others in leans.items()}
    while free := [room for room, others in left.items() if not others & set(left)]:
        for room in free:
            del left[room]

    assert left == {}


def test_no_room_is_crowded() -> None:
    rooms = Counter(inner_room_of(path) for path in MODULES if path.name != "__init__.py")

    assert {room: count for room, count in rooms.items() if count > MOST and room not in MAY_GROW} == {}
    assert len([path for path in MODULES if path.parent == HOUSE]) <= MOST


def test_rooms_within_rooms_do_not_lean_on_each_other_in_a_circle() -> None:
    leans: dict[str, set[str]] = {}
    known = {name_of(path): path for path in MODULES}
    for path in MODULES:
        found = leans.setdefault(inner_room_of(path), set())
        for node in ast.walk(without_type_checking(read(path))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_ngraph."):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                found |= {inner_room_of(known[name if name in known else str(node.module)]) for name in names}
    left = {room: others - {room} for room, others in leans.items()}
    while free := [room for room, others in left.items() if not others & set(left)]:
        for room in free:
            del left[room]

    assert left == {}


def modules_of(statement: ast.stmt, known: Collection[str]) -> set[str]:
    """Return the modules of this package that an import statement names, with the packages that they lie in."""
    if isinstance(statement, ast.Import):
        names = {alias.name for alias in statement.names}
    elif isinstance(statement, ast.ImportFrom):
        inside = {f"{statement.module}.{alias.name}" for alias in statement.names}
        names = {str(statement.module)} | (inside & set(known))
    else:
        return set()
    parts = [name.split(".") for name in names if name.partition(".")[0] == "pytest_ngraph"]
    return {".".join(each[:count]) for each in parts for count in range(2, len(each) + 1)}


def loaded_with_each(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Return what importing each module loads of this package."""
    direct = {
        name: {found for statement in without_type_checking(tree).body for found in modules_of(statement, trees)}
        for name, tree in trees.items()
    }
    closed: dict[str, set[str]] = {}
    for name in trees:
        wanted, seen = [name], set[str]()
        while wanted:
            now = wanted.pop()
            if now not in seen:
                seen.add(now)
                wanted += direct.get(now, set())
        closed[name] = seen
    return closed


def imported_late(trees: Mapping[str, ast.Module]) -> list[str]:
    """Return the imports inside functions of what is loaded with their module in any case."""
    loaded = loaded_with_each(trees)
    return sorted(
        f"{name}:{statement.lineno}"
        for name, tree in trees.items()
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for statement in ast.walk(function)
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        and (found := modules_of(statement, trees))
        and found <= loaded[name]
    )


def test_nothing_is_imported_late_that_is_loaded_anyway() -> None:
    """A late import says that something is heavy, or above."""
    late, loads = "def of():\n    from pytest_ngraph.a.heavy import thing\n", "from pytest_ngraph.a import heavy\n"
    trees = {"pytest_ngraph.a.heavy": ast.parse(""), "pytest_ngraph.b": ast.parse(loads)}
    assert imported_late({**trees, "pytest_ngraph.c": ast.parse(late)}) == []
    through = ast.parse(f"from pytest_ngraph import b\n{late}")
    assert imported_late({**trees, "pytest_ngraph.c": through}) == ["pytest_ngraph.c:3"]

    assert imported_late({name_of(path): read(path) for path in MODULES}) == []


def test_only_the_catalogue_asks_of_which_kind_a_model_is() -> None:
    """Everything else asks the kind what it wants to know."""
    asking = [
        f"{path.relative_to(HOUSE)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(read(path))
        if isinstance(node, ast.Compare)
        and any(isinstance(part, ast.Attribute) and part.attr == "scheme" for part in (node.left, *node.comparators))
    ]
    assert asking == []


def calling(name: str) -> set[str]:
    """Return the modules that call a function or method of this name."""
    return {
        str(path.relative_to(HOUSE))
        for path in MODULES
        for node in ast.walk(read(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
    }


def test_whatever_is_waited_for_in_turn_is_in_one_place() -> None:
    """Others wait for a lock without polling, give it back, or hold a byte of a file as long as their process lives."""
    polling = {
        str(path.relative_to(HOUSE))
        for path in MODULES
        for node in ast.walk(read(path))
        if isinstance(node, ast.Call) and "flock" in ast.unparse(node.func) and "LOCK_NB" in ast.unparse(node)
    }
    assert polling == {"machine/turns.py"}


def test_processes_are_started_in_few_places() -> None:
    """Those of ours that speak by lines and die with their parent are of one class. The others: a kernel between
    two visits, one that compiles for TVM and may crash, and programs that are run once.
    """
    assert calling("Popen") == {
        "launches/process.py", "launches/reference.py", "compilers/tvm/candidates.py", "devices/lab/simulation.py",
        "bisecting/judging.py", "report/html/libraries.py", "sides/git.py",
    }  # fmt: skip


def test_what_the_paper_published_is_loaded_by_those_who_ask_for_it() -> None:
    loaded = loaded_with_each({name_of(path): read(path) for path in MODULES})
    rooms = {name.split(".", 2)[1] for name, modules in loaded.items() if "pytest_ngraph.report.paper" in modules}
    assert rooms == {"report"}
    assert not any(
        name.startswith("pytest_ngraph.report.html") and "pytest_ngraph.report.paper" in modules
        for name, modules in loaded.items()
    )


def test_the_public_face_imports_nothing_before_it_is_asked() -> None:
    tree = without_type_checking(read(HOUSE / "__init__.py"))

    assert [name for _, name in imports(tree)] == []


def test_every_public_name_is_there_when_it_is_asked_for() -> None:
    for name in pytest_ngraph.__all__:
        assert getattr(pytest_ngraph, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'assert_nothing'"):
        pytest_ngraph.assert_nothing  # noqa: B018


def test_the_plugin_is_hooks_only() -> None:
    path = HOUSE / "plugin.py"
    functions = [node.name for node in read(path).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]

    assert [name for name in functions if not name.startswith("pytest_")] == []
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 350


def spelled_verdicts(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that compare, look up or list verdicts by their words; ``inconclusive`` is an option, too."""
    words = {str(verdict) for verdict in Verdict}
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            parts += [one for part in parts if isinstance(part, (ast.Tuple, ast.Set, ast.List)) for one in part.elts]
            about = "verdict" in ast.unparse(node) or ".says" in ast.unparse(node)
        elif isinstance(node, ast.Subscript):
            parts, about = [node.slice], "inconclusive" not in ast.unparse(node.slice)
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            parts, about = list(node.elts), False
        elif isinstance(node, ast.Dict):
            parts, about = list(node.keys), False
        found = [one.value for one in parts if isinstance(one, ast.Constant) and one.value in words]
        if len(found) > 1 or (found and about and isinstance(node, (ast.Compare, ast.Subscript))):
            yield node.lineno  # type: ignore[attr-defined]


def test_verdicts_are_members_and_not_their_words() -> None:
    assert list(spelled_verdicts(ast.parse("row.verdict == 'fail'\n_RANK = ('pass', 'invalid')\nsays['pass']")))

    found = [
        f"{path.relative_to(HOUSE)}:{line}"
        for path in MODULES
        if path.name != "verdict.py"
        for line in spelled_verdicts(read(path))
    ]
    assert found == []


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after running some code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def heavy(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] in HEAVY}


def at_start() -> list[str]:
    """Return the names of all modules that importing the plugin and its hooks needs, function bodies apart."""
    wanted, seen = ["pytest_ngraph.plugin", "pytest_ngraph.hookspec"], set[str]()
    paths = {name_of(path): path for path in MODULES}
    while wanted:
        name = wanted.pop()
        if name in seen or name not in paths:
            continue
        seen.add(name)
        top = without_type_checking(read(paths[name]))
        top.body = [node for node in top.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        wanted += [module for _, module in imports(top)]
    return sorted(seen)


def packages_of(modules: list[str]) -> set[str]:
    """Return the packages that importing some modules imports, too."""
    return {name.rsplit(".", depth)[0] for name in modules for depth in range(1, name.count("."))}


def test_what_is_heavy_is_known_from_those_who_need_it() -> None:
    assert {
        "torch", "torchvision", "timm", "numpy", "scipy", "pandas", "onnx", "onnxruntime", "openvino", "tensorrt",
        "tvm", "dask", "distributed", "cryptography", "altair",
    } <= HEAVY  # fmt: skip


def test_nothing_heavy_is_loaded_with_the_plugin() -> None:
    modules = at_start()
    assert "pytest_ngraph.compilers.catalogue" in modules

    assert heavy(loaded_by(f"import {', '.join(modules)}")) == set()


def test_nothing_heavy_is_loaded_with_any_module_that_runs_inside_pytest() -> None:
    # What a run with our items imports beside the plugin, before anything is measured.
    rooms = {"plan", "session", "quantities", "claims", "report", "front", "script", "devices", "sides"}
    names = [name_of(path) for path in MODULES if room_of(path) in rooms and name_of(path) not in OWN_PROCESSES]

    assert heavy(loaded_by(f"import {', '.join(names)}")) == set()


def test_the_versions_of_a_run_are_of_all_that_it_is_made_with() -> None:
    """They are read on the floor of the machine, below compilers, optimizers and kinds of models."""
    extras = project()["optional-dependencies"]
    others = {"remote", "report", "parquet", "history", "cpu", "test", "dev", "docs"}
    wanted = {Requirement(text).name for name, texts in extras.items() if name not in others for text in texts}
    for place in optimizers.BUILT_IN.values():
        wanted |= {*load_place("", "", place, Optimizer).made_by}
    for place in kinds.BUILT_IN.values():
        wanted |= {*load_place("", "", place, Kind).made_by}
    assert {"transformers", "torch-pruning", "openvino"} <= wanted
    assert wanted - set(VERSIONED) == set()


def test_adapters_are_light_to_import() -> None:
    names = [name_of(path) for path in MODULES if room_of(path) == "compilers"]

    assert heavy(loaded_by(f"import {', '.join(names)}")) == set()


RECORD = """
import json, sys
def pytest_sessionfinish(session):
    (session.config.rootpath / "modules.json").write_text(json.dumps(list(sys.modules)))
"""


def test_a_run_without_our_marker_does_not_notice_the_plugin(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(RECORD)
    (suite.path / "test_plain.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_plain(n, tmp_path): pass\n"
    )

    suite.pytester.runpytest_subprocess("-p", "ngraph", "-Werror", "--strict-markers").assert_outcomes(passed=2)

    modules = set(json.loads((suite.path / "modules.json").read_text()))
    assert heavy(modules) == set()
    ours = {name for name in modules if name.partition(".")[0] == "pytest_ngraph"}
    assert ours <= {"pytest_ngraph", *at_start(), *packages_of(at_start())}


def test_tests_mirror_the_rooms() -> None:
    rooms = {path.name for path in HOUSE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    folders = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert folders <= rooms, f"folders of tests that are no room of the package: {sorted(folders - rooms)}"
    assert rooms - folders <= {"conformance"}, "the conformance suite is tested with the compilers"
