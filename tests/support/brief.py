"""A plugin for suites that hold nothing to the clock: visits and warming up take a fraction of what protocols say.

There are as many launches, blocks and visits as ever, with fewer calls: what they are made into is what such suites
show.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_ngraph.spec.cells import PROTOCOLS

for _name in ("gate", "quick"):
    _short = replace(
        PROTOCOLS[_name],
        visit_seconds=0.008,
        discard_seconds=0.001,
        warmup_seconds=0.02,
        long_warmup_seconds=0.05,
        # Beside other tests calls may never settle; what is level is warm after a tenth of it (``timing._is_warm``).
        warmup_limit_seconds=5.0,
    )
    PROTOCOLS[_name] = _short  # type: ignore[index]
