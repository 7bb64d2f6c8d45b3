"""``python -c CODE WORDS...`` as a module that a fork begins with (``workers.run_code``)."""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> None:
    """Run the code."""
    code, *words = arguments
    sys.argv = ["-c", *words]
    exec(code, {"__name__": "__main__"})
