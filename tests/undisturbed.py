"""A plugin for suites whose verdict is known: what else runs on this machine must not make their launches invalid."""

from __future__ import annotations

from pytest_ngraph import environment

environment.disturbance = lambda *state: ""
