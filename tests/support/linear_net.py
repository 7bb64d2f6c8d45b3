"""The source of a module with a small network: one linear layer of four features, and what is done with its outputs."""

from __future__ import annotations

_SOURCE = """
import torch
{imports}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return {forward}

    def example_inputs(self, batch):
        return torch.randn(batch, 4)


def net():
    return Net()
"""


def source(forward: str = "self.layer(x)", imports: str = "") -> str:
    """Return the source, whose factory is ``net``. ``forward`` is an expression of ``self`` and ``x``."""
    return _SOURCE.format(forward=forward, imports=f"{imports}\n" if imports else "")
