"""Say how to install what making a workload needs, before it is imported."""

from __future__ import annotations

from importlib.util import find_spec

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec import ModelRef


def require(model: str, extra: str, *modules: str) -> None:
    """Raise SpecError that names the model and the pip extra where one of the modules is not installed."""
    absent = [module for module in modules if find_spec(module) is None]
    if absent:
        names = " and ".join(absent)
        raise SpecError(f'model {model!r}: it needs {names}, not installed (pip install "pytest-ngraph[{extra}]")')


def missing_for(model: ModelRef) -> str | None:
    """Return how to install what a model itself needs, or None; nothing is imported to find out."""
    needed = {
        "timm": ("timm", ("torch", "timm")),
        "block": ("torch", ("torch",)),
        "onnx": ("onnxruntime", ("onnx", "onnxruntime")),
    }
    extra, modules = needed.get(model.scheme, ("torch", ("torch",)))
    if all(find_spec(module) is not None for module in modules):
        return None
    return f'not installed (pip install "pytest-ngraph[{extra}]")'
