"""A plugin: what stores commit is not waited for until the disk has it, which takes milliseconds each time.

A killed process loses nothing by it, since the kernel has what was written. A machine without power would.
"""

from __future__ import annotations

from pytest_ngraph.store import connection

connection._SYNCHRONOUS = "OFF"
