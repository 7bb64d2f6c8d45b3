"""Sides: a revision, packages or an interpreter that a user asks for, read, fetched and kept."""

from __future__ import annotations

from pytest_ngraph.sides.asked import Asked, read
from pytest_ngraph.sides.of_run import SidesOfRun, check_sides
from pytest_ngraph.sides.resolving import resolve
from pytest_ngraph.sides.trees import unusable

__all__ = ["Asked", "SidesOfRun", "check_sides", "read", "resolve", "unusable"]
