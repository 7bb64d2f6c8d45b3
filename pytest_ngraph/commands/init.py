"""``ngraph init``: a first suite, the workflow that runs it, pytest's settings, and what git ignores."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.commands.base import Commands, add_command, path, say
from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine import files
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    from pytest_ngraph.commands.first_suite.modules import FoundModule
    from pytest_ngraph.commands.first_suite.onnx_files import FoundFile

# What the extra cpu brings, in the order of what is found fast most often.
_COMPILERS = {"onnxruntime": "onnxruntime", "openvino": "openvino"}


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "init", _run, "Write a first suite for a project's models, and the workflow that runs it"
    )
    parser.add_argument(
        "folder", type=path, nargs="?", default=Path(), metavar="FOLDER", help="Root of the project (default: here)"
    )


def _run(given: argparse.Namespace) -> None:
    from pytest_ngraph.commands.first_suite.modules import found_modules
    from pytest_ngraph.commands.first_suite.onnx_files import found_onnx_files
    from pytest_ngraph.commands.first_suite.suite import MODELS, SUITE, models, suite
    from pytest_ngraph.commands.first_suite.workflow import WHEELS, WORKFLOW, workflow

    root: Path = given.folder
    if not root.is_dir():
        raise SpecError(f"{root}: no such folder")
    modules, files = found_modules(root), found_onnx_files(root)
    for line in _found(modules, files):
        say(line)
    try:
        factories = models(modules)
        if _create(root, SUITE, suite(modules, files)) and factories:
            _create(root, MODELS, factories)
        _create(root, WORKFLOW, workflow(root))
        _configure(root)
        _ignore(root)
    except OSError as error:
        raise SpecError(f"{error.filename or root}: {error.strerror or error}; what is written already stays") from None
    if not any((root / WHEELS).glob("pytest_ngraph-*.whl")):
        wheel = f"{WHEELS}/pytest_ngraph-VERSION-py3-none-any.whl"
        say(f"missing: {wheel}, which the workflow installs (make dist builds it)")
    here = "" if root == Path() else f"cd {root} && "
    say(f"next: {here}pytest gates")


def _found(modules: list[FoundModule], files: list[FoundFile]) -> list[str]:
    from pytest_ngraph.commands.first_suite.suite import run

    measured = run(modules)
    lines = [f"found {units.count(len(modules), 'module')} and {units.count(len(files), 'ONNX file')}"]
    for module in modules:
        how = (
            "what it is fed is guessed by its first layer"
            if module in measured
            else "not measured: it needs example_inputs"
        )
        how = "" if module.offers_inputs else f" ({how})"
        lines.append(f"  {one_line(module.path)}:{module.name}{how}")
    for file in files:
        lines.append(f"  {one_line(file.path)}" + (f" (not measured: {file.why_not})" if file.why_not else ""))
    if not measured and all(file.why_not for file in files):
        lines.append("  nothing that can be measured as it is: the suite gates block:conv, until you name a model")
    return lines


def _create(root: Path, name: str, text: str) -> bool:
    """Write a file that is not there, and return whether it was not. One that is stays as it is."""
    target = root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        say(f"there already, left as it is: {name}")
        return False
    say(f"wrote {name}")
    return True


def _configure(root: Path) -> None:
    from pytest_ngraph.commands.first_suite.ini import ini_file, with_entries
    from pytest_ngraph.commands.first_suite.workflow import SUMMARY

    compilers = [name for name, module in _COMPILERS.items() if find_spec(module) is not None] or list(_COMPILERS)
    entries = {"ngraph_compiler": ",".join(compilers), "ngraph_summary": SUMMARY}
    target, section = ini_file(root)
    _add(target, lambda text: with_entries(text, section, entries, is_toml=target.suffix == ".toml"), entries)


def _add(target: Path, changed: Callable[[str], str | None], entries: Mapping[str, str]) -> None:
    """Add lines to a file, or say by hand what cannot be added."""
    try:
        before = target.read_bytes().decode() if target.exists() else ""
        after = changed(before)
    except UnicodeDecodeError:
        before, after = "", None
    if after is None:
        missing = "".join(f"\n  {name} = {value}" for name, value in entries.items())
        say(f"not changed: {target.name}, in which there is no plain place for lines; add them yourself:{missing}")
    elif after == before:
        say(f"there already, left as it is: {target.name}")
    else:
        # Where it is a link, what it leads to is what pytest and git read.
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666
        files.write(target.resolve(), after.encode(), mode=mode)
        say(f"added to {target.name}: {', '.join(entries)}" if before else f"wrote {target.name}")


def _ignore(root: Path) -> None:
    from pytest_ngraph.commands.first_suite.ini import IGNORED, with_ignored

    _add(root / ".gitignore", with_ignored, {IGNORED: ""})
