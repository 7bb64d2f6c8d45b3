"""Runs that need environments of their own: beside other plugins, with the oldest and the newest pytest."""

from __future__ import annotations

import nox

NEIGHBOURS = (
    "pytest-benchmark", "pytest-xdist", "pytest-randomly", "pytest-rerunfailures", "pytest-timeout", "pytest-cov",
    "pytest-asyncio", "pytest-html", "pytest-sugar", "pytest-split", "pytest-codspeed",
)  # fmt: skip
# Loaded by their tests alone: the run of these tests itself is one without the neighbours.
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
# The oldest one that pytest-rerunfailures of the tests takes.
@nox.parametrize("pytest", ["==8.2.*", ""], ids=["oldest", "newest"])
def neighbours(session: nox.Session, pytest: str) -> None:
    """Run the tests of the neighbours with all of them installed: nox -s "neighbours-3.13(newest)"."""
    session.install("-e", ".[test]", f"pytest{pytest}", *NEIGHBOURS)
    session.run("python", "-m", "pip", "list")
    session.run(
        *(
            "python",
            "-m",
            "pytest",
            "-p",
            "ngraph",
            "-p",
            "xdist.plugin",
            "-p",
            "pytest_rerunfailures",
            "-o",
            "addopts=",
        ),
        *("-q", "-rs", "tests/front/test_neighbours.py", *session.posargs),
        env=ALONE,
    )
