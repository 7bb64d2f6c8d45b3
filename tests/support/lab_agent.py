"""``ngraph agent`` with functions of tests beside those that agents run: ``-m tests.support.lab_agent agent NAME``."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ngraph.cli import main
from pytest_ngraph.devices.agent import children
from pytest_ngraph.devices.agent.tasks import TASKS


def where(text: str) -> str:
    """Return the agent's name."""
    from distributed import get_worker

    return json.dumps(str(get_worker().name))


def hold(text: str) -> str:
    """Hold the device until a file is there; note begin and end in another one."""
    asked = json.loads(text)
    note(asked, "begin")
    while not Path(asked["until"]).exists():
        time.sleep(0.02)
    note(asked, "end")
    return text


def note(asked: Mapping[str, Any], what: str) -> None:
    with Path(asked["file"]).open("a") as file:
        file.write(f"{asked['who']} {what}\n")


def start_child(text: str) -> str:
    """Start a child as measuring does, write its pid into a file, and wait for its end."""
    from distributed import get_worker

    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    with children.of(str(get_worker().get_current_task()), child.pid):
        Path(text).write_text(str(child.pid))
        return str(child.wait())


if __name__ == "__main__":
    TASKS.update({function.__name__: function for function in (where, hold, start_child)})
    raise SystemExit(main())
