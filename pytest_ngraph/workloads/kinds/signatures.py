"""Read a factory's keyword arguments from its source, without running any of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ngraph.axes import names
from pytest_ngraph.errors import NotThere, SpecError
from pytest_ngraph.machine import imports

_TRANSPARENT = frozenset({"staticmethod", "classmethod", "cache", "lru_cache", "no_grad", "inference_mode"})
_NO_INIT = frozenset({"Module", "Sequential", "object"})
ANYTHING = frozenset(names("model"))
_INPUTS = "example_inputs"


@dataclass(frozen=True, slots=True)
class Missing:
    """A name that a file certainly lacks, and the public names that it has."""

    name: str
    names: tuple[str, ...]


def find_source(module: str) -> Path | None:
    """Find the source file of a module without importing it or its parents, or None where that cannot be known.

    Raises SpecError where there is no top-level package or module of that name.
    """
    top = module.partition(".")[0]
    try:
        spec = imports.spec_of(top)
    except ValueError:  # a module without __spec__, such as __main__
        return None
    if spec is None:
        raise NotThere(f"model module {module!r}: no package or module {top!r} on the import path")
    return imports.find(module)


def read_signature(source: Path, name: str) -> frozenset[str] | Missing | None:
    """Return the names of the keyword arguments of a factory in a source file.

    ``name`` may be dotted (``Class.method``). None where it cannot be known without running the file. ``Missing``
    where the file certainly has no such name. Raises SpecError where the file cannot be parsed.
    """
    body: Sequence[ast.stmt] = _parsed(source).body
    for part in name.split(".")[:-1]:
        owner = _bindings(body).get(part)
        if not isinstance(owner, ast.ClassDef):
            break
        body = owner.body
    else:
        return _look_up(body, name.rpartition(".")[2])
    return _look_up(body, part) if part not in _bindings(body) else None


def takes_length(source: Path, name: str) -> bool | None:
    """Return whether the inputs of what a factory in a source file gives are made for a length, None if not known.

    That is known of a class with a method ``example_inputs``, which takes ``sequence`` or does not.
    """
    tree = _parsed(source)
    if any(isinstance(node, ast.Attribute) and _is_given_later(node) for node in ast.walk(tree)):
        return None
    scope = _bindings(tree.body)
    node = scope.get(name)
    for _ in range(10):  # classes and names may stand in a circle
        if isinstance(node, ast.Name):
            node = scope.get(node.id)
            continue
        if not isinstance(node, ast.ClassDef) or node.decorator_list or node.keywords:
            return None
        method = _bindings(node.body).get(_INPUTS)
        if method is not None:
            taken = _keywords(method, scope)
            return None if taken is None else taken is ANYTHING or "sequence" in taken
        if _INPUTS in _bindings(node.body) or len(node.bases) != 1 or not isinstance(node.bases[0], ast.Name):
            return None
        node = node.bases[0]
    return None


def _is_given_later(node: ast.Attribute) -> bool:
    return node.attr == _INPUTS and isinstance(node.ctx, ast.Store)


def _parsed(source: Path) -> ast.Module:
    try:
        return ast.parse(source.read_bytes())
    except SyntaxError as error:
        raise SpecError(f"model file {source}, line {error.lineno}: {error.msg}") from error


def _look_up(body: Sequence[ast.stmt], name: str) -> frozenset[str] | Missing | None:
    bindings = _bindings(body)
    if name in bindings:
        return _keywords(bindings[name], bindings)
    if "*" in bindings or "__getattr__" in bindings:
        return None
    return Missing(name, tuple(sorted(each for each in bindings if not each.startswith("_"))))


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Walk the statements that bind names in a scope, in order, into if, try, with, for and while."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body)


def _bindings(body: Sequence[ast.stmt]) -> dict[str, ast.AST | None]:
    """Map each name bound in a scope to what it is bound to last: a definition, an expression, or None (unknown)."""
    names: dict[str, ast.AST | None] = {}
    for statement in _statements(body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[statement.name] = statement
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            names.update({(alias.asname or alias.name).partition(".")[0]: None for alias in statement.names})
        else:
            targets: list[ast.AST] = list(getattr(statement, "targets", []))
            if isinstance(statement, (ast.AnnAssign, ast.For)):
                targets.append(statement.target)
            elif isinstance(statement, ast.With):
                targets += [item.optional_vars for item in statement.items if item.optional_vars]
            plain = isinstance(statement, (ast.Assign, ast.AnnAssign))
            for node in (node for target in targets for node in ast.walk(target)):
                if isinstance(node, ast.Name):
                    names[node.id] = getattr(statement, "value", None) if plain and node in targets else None
    return names


def _keywords(node: ast.AST | None, scope: dict[str, ast.AST | None], seen: int = 0) -> frozenset[str] | None:
    """Return the keyword arguments of what a name is bound to, or None where that is unknown."""
    if seen > 10:  # names that are bound in a circle
        return None
    if isinstance(node, ast.Name):
        return _keywords(scope.get(node.id), scope, seen + 1)
    if isinstance(node, ast.Lambda):
        return _argument_names(node.args)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        transparent = all(_last_name(decorator) in _TRANSPARENT for decorator in node.decorator_list)
        return _argument_names(node.args) if transparent else None
    if isinstance(node, ast.ClassDef):
        return _constructor(node, scope, seen)
    return None


def _constructor(node: ast.ClassDef, scope: dict[str, ast.AST | None], seen: int) -> frozenset[str] | None:
    if node.decorator_list or node.keywords:
        return None
    members = _bindings(node.body)
    if "__init__" in members:
        return _keywords(members["__init__"], scope, seen + 1)
    if len(node.bases) != 1:
        return None
    base = node.bases[0]
    if _last_name(base) in _NO_INIT and not isinstance(scope.get(_last_name(base)), ast.ClassDef):
        return frozenset()
    return _keywords(base, scope, seen + 1)


def _argument_names(arguments: ast.arguments) -> frozenset[str]:
    if arguments.kwarg is not None:
        return ANYTHING
    return frozenset(argument.arg for argument in (*arguments.args, *arguments.kwonlyargs))


def _last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name, without the call around it: ``cache`` of ``@functools.cache()``."""
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
