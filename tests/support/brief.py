"""A plugin for suites that hold nothing to the clock: visits and warming up take a fraction of what protocols say.

There are as many launches, blocks, visits and calls as ever: what they are made into is what such suites show.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_ngraph.spec.cells import PROTOCOLS

for _name, _visit_seconds in (("gate", 0.02), ("quick", 0.015)):
    _short = replace(PROTOCOLS[_name], visit_seconds=_visit_seconds, warmup_seconds=0.04, long_warmup_seconds=0.1)
    PROTOCOLS[_name] = _short  # type: ignore[index]
