"""The catalogue page of the docs: what the adapters say of themselves, as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from pytest_ngraph.compilers.base import Compiler, Option
from pytest_ngraph.plan.items import IDENTITY

_READS = {"module": "PyTorch module", "onnx": "ONNX file", "nothing": "nothing"}
_HEAD = """\
# Compilers

<!-- Made by `ngraph catalogue > docs/compilers.md` from the adapters; to change it, change them. -->

A compiler is named with its options in brackets, and each choice of options is a cell of its own:
`--ngraph-compiler='openvino,openvino[threads=1]'`. A *flag* takes no value, as in `onnxruntime[cuda]`.
Without `--ngraph-compiler` every installed one runs but the baseline and those marked *when named*. A cell that its
compiler cannot run, by its device, precision or scenario, is skipped with the reason and never run as something else.

*Verified* means that the conformance suite has passed there:
`pytest --pyargs pytest_ngraph.conformance --ngraph-compiler=NAME`. What was found on which GPU is in [gpu.md](gpu.md).
"""


def compilers_page(adapters: Iterable[Compiler]) -> str:
    """Return the page: a table of all adapters, then a section for each in the order given. Nothing is imported."""
    known = list(adapters)
    return "\n".join([_HEAD, *_summary(known), *(line for adapter in known for line in _section(adapter)), ""])


def _summary(adapters: Iterable[Compiler]) -> Iterator[str]:
    yield from _rows(("compiler", "devices", "precisions", "scenarios", "shapes", "reads", "runs", "install"))
    for adapter in adapters:
        name = adapter.name
        yield _row(
            f"[`{name}`](#{name})",
            ", ".join(adapter.accelerators),
            ", ".join(adapter.precisions),
            ", ".join(adapter.scenarios),
            ", ".join(adapter.shapes),
            _READS[adapter.reads],
            _runs(adapter),
            _install(adapter),
        )


def _section(adapter: Compiler) -> Iterator[str]:
    yield from ("", f"## {adapter.name}", "", _what(adapter), "")
    yield from (f"- **{kind}**: {_verified(adapter, kind)}" for kind in adapter.accelerators)
    if not adapter.options:
        yield from ("", "No options.")
        return
    yield ""
    yield from _rows(("option", "default", "allowed", "what"))
    for option in adapter.options:
        yield _row(f"`{option.name}`", _default(option), _allowed(option), option.help)


def _what(adapter: Compiler) -> str:
    """Return the first line of the adapter's module, which says what the compiler is and how it is driven."""
    return (sys.modules[type(adapter).__module__].__doc__ or "").strip().partition("\n")[0]


def _runs(adapter: Compiler) -> str:
    if adapter.name == IDENTITY.name:
        return "as the baseline"
    return "when named" if adapter.named_only else "by default"


def _install(adapter: Compiler) -> str:
    if not adapter.requires:
        return "-"
    requirement = adapter.install or f"pytest-ngraph[{adapter.extra}]"
    return f"`{requirement}`"


def _verified(adapter: Compiler, kind: str) -> str:
    where = adapter.verified.get(kind, "unverified")
    return where if where.startswith("unverified") else f"verified on {where}"


def _default(option: Option) -> str:
    return f"`{option.default}`" if option.default else "-"


def _allowed(option: Option) -> str:
    if option.kind == "choice":
        return ", ".join(f"`{choice}`" for choice in option.choices)
    return "a flag" if option.kind == "flag" else option.allowed


def _rows(columns: Sequence[str]) -> Iterator[str]:
    yield _row(*columns)
    yield "|" + "---|" * len(columns)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
