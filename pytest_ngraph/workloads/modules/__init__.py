"""PyTorch models by reference: timm, blocks and the user's own factories."""

from __future__ import annotations
