"""What is run: model references become artifacts (inputs, reference, ONNX file) and live models."""

from __future__ import annotations

from pytest_ngraph.workloads.facts import Facts, facts

__all__ = ["Facts", "facts"]
