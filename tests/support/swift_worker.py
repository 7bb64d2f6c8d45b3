"""A worker that has built what it is asked for at once: it says which process it is, and ends where it is asked to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pytest_ngraph.worker import worker


class Swift(worker.Worker):
    """Imports nothing to build."""

    def _build(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["workload"]["batch"] == 13:
            os._exit(3)
        return {"pid": os.getpid()}


def main(arguments: list[str]) -> None:
    """Answer as a worker does."""
    worker.main(arguments, Swift)
