"""Sides: a revision, packages or an interpreter that a user asks for, read, fetched and kept."""

from __future__ import annotations

from pytest_ngraph.sides.asked import Asked, read
from pytest_ngraph.sides.resolving import resolve
from pytest_ngraph.sides.trees import unusable

__all__ = ["Asked", "read", "resolve", "unusable"]
