"""Kinds of models: a class each, from the reference that a suite writes to the model that is run."""

from __future__ import annotations

from pytest_ngraph.workloads.kinds.catalogue import Models, kind_of, parse_model
from pytest_ngraph.workloads.kinds.contract import AS_FILES, BY_NAME, IN_PROJECT, Built, Kind, find_file

__all__ = ["AS_FILES", "BY_NAME", "IN_PROJECT", "Built", "Kind", "Models", "find_file", "kind_of", "parse_model"]
