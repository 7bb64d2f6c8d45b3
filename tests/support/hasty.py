"""ngraph as it is, but for processes that look at their certificates every second, and join again at once."""

from __future__ import annotations

from pytest_ngraph.cli import main
from pytest_ngraph.devices.signing import renewing

renewing.DAY_SECONDS, renewing.RETRY_SECONDS = 1.0, 0.2

if __name__ == "__main__":
    from pytest_ngraph.devices.doors import engine

    engine.configure()
    from pytest_ngraph.devices.agent import agent

    agent.REJOIN_SECONDS = 365 * 86400.0
    raise SystemExit(main())
