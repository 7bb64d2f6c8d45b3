"""Module classes of a project that can be built without arguments, read from its sources: nothing of it is imported."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path

# Where nobody's own models are. A folder with a pyvenv.cfg is an environment, whatever its name.
_SKIPPED = frozenset({"build", "dist", "node_modules", "site-packages", "test", "tests", "gates", "venv"})
_MOST_FILES = 5000
_BASES = frozenset({"torch.nn.Module", "torch.nn.modules.Module", "torch.nn.modules.module.Module"})
# Inputs are small: what matters is that a first run ends soon.
_LENGTH, _SIDE = 16, 64
_CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})
# With one of these a network takes images of any size.
_POOLS = ("AdaptiveAvgPool", "AdaptiveMaxPool", ".mean(", "adaptive_avg_pool", "adaptive_max_pool")


@dataclass(frozen=True, slots=True)
class FoundModule:
    """A Module class: its file from the root on, its name, and what it is fed where its first layer says so.

    ``inputs`` is an expression of ``torch`` and ``batch``, empty where nothing says what it is fed. ``offers_inputs``
    where the class has ``example_inputs``. ``module`` is the name that it is imported by, empty where it has none.
    """

    path: str
    name: str
    module: str
    offers_inputs: bool
    inputs: str = ""


def found_modules(root: Path) -> list[FoundModule]:
    """Return the Module classes below a folder that can be built without arguments and called, by file and line."""
    parts: set[str] = set()
    found = [each for path in python_files(root) for each in _of_file(path, root, parts)]
    # What another Module is made of is measured with that.
    return [each for each in found if each.offers_inputs or each.name not in parts]


def python_files(root: Path) -> Iterator[Path]:
    """Yield the Python files of a project that may hold its models, in a fixed order."""
    count = 0
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if name.isprintable()
            and not name.startswith((".", "_"))
            and name not in _SKIPPED
            and not (here / name / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            if (
                name.endswith(".py")
                and name.isprintable()
                and not name.startswith("test_")
                and name not in ("conftest.py", "setup.py")
            ):
                count += 1
                if count > _MOST_FILES:
                    return
                yield here / name


def _of_file(path: Path, root: Path, parts: set[str]) -> Iterator[FoundModule]:
    """Yield the modules of a file, and add to ``parts`` what its classes make objects of."""
    try:
        source = path.read_bytes()
        tree = ast.parse(source) if b"torch" in source else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, RecursionError):
        # Whatever it is, it is not for us to say so.
        return
    imported = _imports(tree)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in classes.values():
        line = _line_of(node, classes, imported)
        if line is None:
            continue
        called = {_dotted(each.func, imported) for each in ast.walk(node) if isinstance(each, ast.Call)}
        parts |= {name.rpartition(".")[2] for name in called} - {node.name}
        if node.name.startswith("_"):
            continue
        init, forward = _method(line, "__init__"), _method(line, "forward")
        if forward is None or _is_abstract(line) or (init is not None and _required(init)):
            continue
        offers = _method(line, "example_inputs") is not None
        inputs = "" if offers or len(_required(forward)) != 1 else _inputs(init, line, imported)
        yield FoundModule(path.relative_to(root).as_posix(), node.name, _module_name(path, root), offers, inputs)


def _imports(tree: ast.Module) -> dict[str, str]:
    """Map each imported name to what it stands for, such as ``nn`` to ``torch.nn``."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


def _dotted(node: ast.expr, imported: Mapping[str, str]) -> str:
    """Return what an expression such as ``nn.Linear`` names, or nothing."""
    if isinstance(node, ast.Name):
        return imported.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, imported)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def _line_of(
    node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], imported: Mapping[str, str]
) -> Sequence[ast.ClassDef] | None:
    """Return a class and its ancestors up to ``nn.Module``, or None where they do not lead there within the file."""
    line: list[ast.ClassDef] = []
    while node not in line:
        line.append(node)
        if len(node.bases) != 1 or node.keywords or node.decorator_list:
            return None
        base = _dotted(node.bases[0], imported)
        if base in _BASES:
            return line
        if base not in classes:
            return None
        node = classes[base]
    return None


def _method(line: Sequence[ast.ClassDef], name: str) -> ast.FunctionDef | None:
    for node in line:
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return statement
    return None


def _is_abstract(line: Sequence[ast.ClassDef]) -> bool:
    """Return whether what is called only raises, or a decorator says that it is abstract."""
    for name in ("__init__", "forward"):
        method = _method(line, name)
        if method is None:
            continue
        if any("abstract" in ast.unparse(decorator) for decorator in method.decorator_list):
            return True
        body = [
            each for each in method.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        ]
        if len(body) == 1 and isinstance(body[0], ast.Raise):
            return True
    return False


def _required(method: ast.FunctionDef) -> list[str]:
    """Return the arguments that a method has to be given, but the first, which is the object itself."""
    given = method.args
    positional = [*given.posonlyargs, *given.args]
    without = positional[: len(positional) - len(given.defaults)][1:]
    return [each.arg for each in without] + [
        each.arg for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None
    ]


def _inputs(init: ast.FunctionDef | None, line: Sequence[ast.ClassDef], imported: Mapping[str, str]) -> str:
    """Return what the first layer that is made takes, or nothing where that does not say it."""
    if init is None:
        return ""
    sizes = _defaults(init)
    source = "\n".join(ast.unparse(node) for node in line)
    calls = (node for node in ast.walk(init) if isinstance(node, ast.Call))
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        layer = _dotted(call.func, imported).removeprefix("torch.nn.")
        if layer in _CONTAINERS or not layer[:1].isupper():
            continue
        first = call.args[0] if call.args else None
        size = sizes.get(first.id) if isinstance(first, ast.Name) else getattr(first, "value", None)
        if type(size) is not int or size < 1:
            return ""
        if layer == "Linear":
            return f"torch.randn(batch, {size})"
        if layer == "Embedding":
            return f"torch.randint({size}, (batch, {_LENGTH}))"
        if layer == "Conv2d" and ("Linear" not in source or any(pool in source for pool in _POOLS)):
            return f"torch.randn(batch, {size}, {_SIDE}, {_SIDE})"
        return ""
    return ""


def _defaults(init: ast.FunctionDef) -> dict[str, object]:
    """Return the defaults of arguments that are plain values."""
    given = init.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [*zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default]
    return {each.arg: default.value for each, default in pairs if isinstance(default, ast.Constant)}


def _module_name(path: Path, root: Path) -> str:
    """Return the name that a file is imported by, from the root or its folder src, or nothing where it has none."""
    start = root / "src" if path.is_relative_to(root / "src") else root
    parts = path.relative_to(start).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) if parts and all(part.isidentifier() and not iskeyword(part) for part in parts) else ""
