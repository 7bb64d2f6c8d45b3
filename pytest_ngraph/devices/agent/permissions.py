"""What an agent lets runs compare with: whether packages are installed for them, and other interpreters that it starts.

It is for who means well: a certificate of the lab lets its owner run any code here all the same (docs/security.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_ngraph.devices.wire import wire
from pytest_ngraph.devices.wire.sides import read_runtimes, sent_sides
from pytest_ngraph.errors import DeviceUnusable

# The word that a child is started with where it may install.
INSTALLS = "installs"
# What a client puts the name of the agent into.
AGENT = "ngraph agent NAME"
WHY_NOT_INSTALL = f"its agent installs no packages; let it with {AGENT} --allow-packages, or compare on another device"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Whether packages may be installed, and the interpreters, or folders of environments, that may be started."""

    packages: bool = False
    pythons: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Return what a child that measures is started with."""
        return [INSTALLS] if self.packages else []


def give(permissions: Permissions) -> None:
    """Have the agent of this process go by these."""
    _GIVEN[:] = [permissions]


def given() -> Permissions:
    """Return what the agent of this process goes by: nothing is allowed where nothing was said."""
    return _GIVEN[0]


def check(request: wire.Request) -> None:
    """Raise DeviceUnusable for a request that names an interpreter which is not allowed, or sides that can be none.

    It is looked at here, in the agent's own process, where no code of a client runs.
    """
    with wire.strictly("the sides of the request", str(request.bench.get("sides", ""))):
        runtimes = [side.runtimes for side in sent_sides(request.bench.get("sides", []))]
        asked = [read_runtimes(text) for text in (*filter(None, runtimes), *request.asked.get("runtimes", ()))]
    allowed = given().pythons
    for each in asked:
        if each.python and os.path.normpath(each.python) not in allowed:
            known = ", ".join(allowed) or "none"
            if not os.path.isabs(each.python):  # noqa: PTH117 - as it is written
                raise DeviceUnusable(
                    f"python:{each.python} is of that device, and so an absolute path (allowed: {known})"
                )
            raise DeviceUnusable(
                f"python:{each.python} is no interpreter that its agent starts (allowed: {known}); let it with "
                f"{AGENT} --allow-python={each.python}, or compare on another device"
            )


def allowed_python(path: str) -> str:
    """Return the path of an interpreter or an environment as requests are held to it. Raise ValueError for another."""
    if not os.path.isabs(path) or not path.isprintable() or "," in path:  # noqa: PTH117 - as it is written
        raise ValueError("the absolute path of an interpreter, or of the folder of an environment, without commas")
    return os.path.normpath(path)


def options_of(permissions: Permissions) -> Sequence[str]:
    """Return the options of ``ngraph agent`` that give these."""
    packages = ["--allow-packages"] if permissions.packages else []
    return [*packages, *(f"--allow-python={path}" for path in permissions.pythons)]


_GIVEN = [Permissions()]
