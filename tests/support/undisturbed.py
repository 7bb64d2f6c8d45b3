"""A plugin for suites whose verdict is known: what else runs on this machine must not make their launches invalid.

Nor may they wait for a host to move its virtual CPUs back, or for the suites of another process of pytest-xdist.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.devices import lock
from pytest_ngraph.launches.reference import Reference
from pytest_ngraph.machine import facts as environment
from tests.support import unsynced  # noqa: F401

if TYPE_CHECKING:
    import pytest

environment.disturbance = lambda *state: ""
environment.busy_seconds = lambda cpus: None
environment.used_seconds = lambda cpus: (None, ())
Reference.__init__ = lambda self, cpus: None  # type: ignore[method-assign]
Reference.read = Reference.glance = Reference.close = lambda self: None  # type: ignore[method-assign]
if "NGRAPH_TESTS_LOCKS" in os.environ:
    _locks = Path(os.environ["NGRAPH_TESTS_LOCKS"])
    lock.lock_path = lambda device: _locks / f"{device}.lock"


def pytest_configure(config: pytest.Config) -> None:
    """Have the processes of pytest-xdist forked where this run was."""
    # Scripts import this, too, where pytest must not be needed.
    from tests.support.forked import ADDRESS, fork_workers

    if ADDRESS in os.environ and config.pluginmanager.hasplugin("xdist"):
        fork_workers()
