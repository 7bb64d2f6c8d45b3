"""Trained weights in files, so that every worker of a run reads what the first has trained."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

HERE = Path(__file__).parent
# What a training is made of: these files, these packages.
_SOURCES = ("digits.py", "digits_pruning.py", "digits_kept.py")
_PACKAGES = ("torch", "torch-pruning", "scikit-learn")

# The channels of a network's convolutions, and its weights by name.
Weights = tuple[list[int], dict[str, "torch.Tensor"]]


def kept(what: Mapping[str, Any], make: Callable[[], Weights]) -> Weights:
    """Return what ``make`` gives, from a file of an earlier call where there is one.

    ``what`` says what it is. Other code or other packages make another file. A file that cannot be read is made again,
    one that cannot be written is not there next time.
    """
    import torch

    path = HERE / ".ngraph" / "trained" / f"{_key(what)}.pt"
    with contextlib.suppress(Exception):
        widths, state = torch.load(path, weights_only=True)
        return widths, state
    made = make()
    whole = io.BytesIO()
    torch.save(made, whole)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_bytes(whole.getvalue())
        beside.replace(path)
    return made


def digest_of(weights: Weights) -> str:
    """Return a short name of weights by their content."""
    widths, state = weights
    content = hashlib.sha256(repr(widths).encode())
    for name, value in state.items():
        content.update(name.encode() + value.cpu().numpy().tobytes())
    return content.hexdigest()[:16]


def _key(what: Mapping[str, Any]) -> str:
    texts = [f"{name}={value}" for name, value in sorted(what.items())]
    for package in _PACKAGES:
        with contextlib.suppress(Exception):
            texts.append(f"{package} {version(package)}")
    texts += [hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in _SOURCES]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]
