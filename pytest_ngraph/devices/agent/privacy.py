"""What an agent keeps private: the environment that it was started in, and the files in its folder.

What measures on a device is other people's code, as the agent's user: it can read that user's processes and files. So
an agent's environment holds no more than a child's may, and the files of its folder are for its user only.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_ngraph.devices.agent.measuring_process import passed_on
from pytest_ngraph.errors import SpecError

# What this interpreter needs to find itself again, and where an agent's folder is.
_OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "NGRAPH_AGENT_FOLDER")


def allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that an agent keeps."""
    return {name: value for name, value in environment.items() if passed_on(name) or name in _OURS}


def leave_environment() -> None:
    """Start again without what an agent does not need, where there is anything of that kind.

    Only a new start takes it out of ``/proc/PID/environ``, where every process of this user can read it. The command
    that this process was started with is run again. It returns where nothing is to be left.
    """
    kept = allowed(os.environ)
    if kept != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], kept)  # noqa: S606 - no shell is wanted


def keep_private(folder: Path) -> None:
    """Make what this process writes from now on, and what is in its folder, readable by its user only.

    Raises SpecError for a folder that cannot be made, or belongs to somebody else.
    """
    os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _mend(folder)
        for place, below, files in os.walk(folder):
            for name in (*below, *files):
                _mend(Path(place, name))
    except OSError as error:
        raise SpecError(
            f"{error.filename or folder}: cannot be made, or kept from others: {error.strerror} (XDG_CACHE_HOME can "
            "name another place)"
        ) from None


def _mend(path: Path) -> None:
    mode = path.lstat().st_mode
    if not stat.S_ISLNK(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        path.chmod(stat.S_IMODE(mode) & stat.S_IRWXU)
