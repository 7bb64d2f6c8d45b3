"""The text of a first suite: a test for what was found, and what has to be added for what cannot be run yet."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pytest_ngraph.commands.first_suite.modules import FoundModule
from pytest_ngraph.commands.first_suite.onnx_files import FoundFile

SUITE = "gates/test_gates.py"
# Not models.py, which may well be one of the project's own.
MODELS = "gates/gate_models.py"
_MOST = 10
_HEAD = '''\
"""Gates: what has to hold of this project's models. ngraph init wrote the first version; it is yours."""

import pytest

from pytest_ngraph import assert_speedup
'''
_TEST = """

@pytest.mark.ngraph(model={models}, batch={batches}{terms})
def {name}(ngraph_cell):
    # {against}, measured in turn with it.
    assert_speedup(ngraph_cell, at_least=1.0)
"""
_ABSOLUTE = """
    # A ratio does not see that the model itself became slower, for then both sides did. A bound by the clock does, on
    # the machine that it is written for: import assert_latency, and take the number from a first run.
    # assert_latency(ngraph_cell, at_most=0.005)  # seconds
"""
_EAGER, _UNOPTIMISED = "Against the same model in eager PyTorch", "Against ONNX Runtime without its graph optimisations"
_MODELS_HEAD = '''\
"""Models of the gates: what each is fed was read from its first layer by ngraph init. Correct it where it is wrong."""

import torch

'''


def suite(modules: Sequence[FoundModule], files: Sequence[FoundFile]) -> str:
    """Return a test file. Where nothing can be run it gates a block of our own, so that there is something to see."""
    text = _HEAD
    references = [reference(each) for each in run(modules)]
    usable = [each for each in files if not each.why_not]
    if references or not usable:
        text += _test("test_no_slower_than_eager", references or ["block:conv"], [1, 8], _EAGER) + _ABSOLUTE.lstrip(
            "\n"
        )
    for batch in dict.fromkeys(each.batch for each in usable):
        models = [f"onnx:{each.path}" for each in usable if each.batch == batch]
        name = "test_optimised_is_no_slower" + (f"_at_batch_{batch}" if batch else "")
        text += _test(name, models, [batch] if batch else [1, 8], _UNOPTIMISED, ', compilers="onnxruntime"')
    notes = [*_needs(modules), *(f"# {each.path}: {each.why_not}" for each in files if each.why_not)]
    if notes:
        text += "\n\n# Found, and not measured yet:\n" + "\n".join(notes) + "\n"
    return text


def models(modules: Sequence[FoundModule]) -> str:
    """Return a file of factories for the modules that do not say themselves what they are fed, or nothing."""
    guessed = [each for each in run(modules) if not each.offers_inputs]
    if not guessed:
        return ""
    imports = "".join(f"import {name}\n" for name in sorted({each.module for each in guessed}))
    return _MODELS_HEAD + imports + "".join(_factory(each, _dotless(each)) for each in guessed)


def reference(module: FoundModule) -> str:
    """Return the reference of a module in the suite: itself where it says what it is fed, else its factory."""
    if module.offers_inputs:
        return f"{module.path}:{module.name}"
    return f"{MODELS}:{_dotless(module)}"


def run(modules: Sequence[FoundModule]) -> list[FoundModule]:
    """Return the modules that can be measured without a word of their author, the first ten of them."""
    return [each for each in modules if each.offers_inputs or (each.inputs and each.module)][:_MOST]


def _dotless(module: FoundModule) -> str:
    """Return the name of a module's factory: two modules of one name differ in where they are."""
    return f"{module.module}_{module.name}".replace(".", "_")


def _factory(module: FoundModule, name: str) -> str:
    return f"""

def {name}():
    return {module.module}.{module.name}()


def _inputs_of_{name}(batch):
    return {module.inputs}


{name}.example_inputs = _inputs_of_{name}
"""


def _test(name: str, models: Sequence[str], batches: Sequence[int], against: str, terms: str = "") -> str:
    given = [json.dumps(each, ensure_ascii=False) for each in models]
    written = given[0] if len(given) == 1 else "[\n" + "".join(f"    {each},\n" for each in given) + "]"
    return _TEST.format(name=name, models=written, batches=list(batches), against=against, terms=terms)


def _needs(modules: Sequence[FoundModule]) -> list[str]:
    measured = run(modules)
    return [
        f"# {each.path}:{each.name}"
        if each.offers_inputs or each.inputs
        else f"# {each.path}:{each.name} needs a method that says what it is fed, such as\n"
        "#     def example_inputs(self, batch): return torch.randn(batch, 3, 224, 224)"
        for each in modules
        if each not in measured
    ]
