"""The command ``ngraph`` with a lab's limit for a silent link cut short: ``python -m tests.support.impatient hub ...``.

What is shown of links that are cut is the same; that users wait less than 35 s by the limits of the product is held in
tests/devices/test_devices_remote.py.
"""

from __future__ import annotations

from pytest_ngraph import cli
from pytest_ngraph.devices.doors import engine

# The engine takes no less than eleven.
LINK_SECONDS = 12

if __name__ == "__main__":
    engine.LINK_SECONDS = LINK_SECONDS
    raise SystemExit(cli.main())
