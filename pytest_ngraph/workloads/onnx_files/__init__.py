"""ONNX files by reference: a static copy, inputs from its signature, its reference outputs, its PyTorch module."""

from __future__ import annotations
