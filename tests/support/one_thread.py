"""A plugin for suites on real runtimes: where nobody says how many threads, it is one.

Beside other tests two threads wait for one another most of the time, and keep a CPU busy with that.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_ngraph.devices import local
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.spec.cells import Device

_named = local.device_named


def _with_one_thread(name: str, settings: Settings) -> Device:
    return _named(name, replace(settings, threads=settings.threads or 1))


local.device_named = _with_one_thread
