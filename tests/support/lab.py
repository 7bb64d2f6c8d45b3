"""A lab on this machine: hub and agents as processes of their own, as users start them, and clients in this one.

``with Lab(folder) as lab: lab.start_hub(); lab.start_agent("one"); with lab.client("alice") as client: ...``. Every
wait is bounded. The functions at the end are what the tests let agents do.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_ngraph.devices.doors import engine
from pytest_ngraph.devices.doors.status import AgentState
from pytest_ngraph.devices.registry import HubEntry
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.devices.trust.authority import Authority
from tests.conftest import ROOT

PATIENCE_SECONDS = 180.0


def eventually(what: str, is_so: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until something is true and return it; fail with what was waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := is_so():
            return found
        time.sleep(0.05)
    raise AssertionError(f"within {seconds:g} s: {what}")


class Process:
    """A command of ngraph that runs, and what it printed."""

    def __init__(self, arguments: list[str], log: Path, environ: Mapping[str, str], python: str, module: str) -> None:
        self._log = log
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                [python, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._log.read_text(errors="replace")

    def wait_for(self, text: str) -> str:
        """Wait until it has printed some text, and return all that it printed."""

        def printed() -> bool:
            assert text in self.output or self.popen.poll() is None, self.output
            return text in self.output

        try:
            eventually(f"{text!r}", printed)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None
        return self.output

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal, and return its status."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
            try:
                self.popen.wait(60)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        return self.popen.wait(60)


class Lab:
    """A hub, its agents, and everybody's certificates, in a folder."""

    def __init__(self, folder: Path, agents: str = "pytest_ngraph.cli", others: str = "pytest_ngraph.cli") -> None:
        self._agents_module, self._module = agents, others
        # Of three users, on three machines, in real labs.
        self.folder, self.hub_folder, self.ca_folder = folder, folder / "hub", folder / "authority"
        self.address = ""
        self.hub: Process | None = None
        self.signer: Process | None = None
        self.agents: dict[str, Process] = {}
        self._starts = 0

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.agents.values(), self.hub, self.signer]:
            if process is not None:
                process.end(signal.SIGKILL)

    def start_hub(self, *options: str) -> Process:
        """Start the hub; a second one takes the first one's port."""
        port = self.address.rpartition(":")[2] or "0"
        if not self.hub_folder.exists():
            self.enroll(tls.HUB, "hub")
        self.hub = self._start("hub", f"--port={port}", f"--folder={self.hub_folder}", *options)
        self.hub.wait_for("next, on the CA's machine: ngraph enroll")
        self.address = (self.hub_folder / "address").read_text().strip()
        return self.hub

    def start_signer(self, *options: str) -> Process:
        """Start the signer; bundles from now on lead to it, and a second one takes the first one's port."""
        file = tls.signer_file(self.authority.ca)
        port = file.read_text().strip().rpartition(":")[2] if file.exists() else "0"
        self.signer = self._start("signer", f"--port={port}", f"--folder={self.ca_folder}", *options)
        self.signer.wait_for("only this machine can reach it")
        return self.signer

    def start_agent(self, name: str, *options: str, joins: bool = True, python: str = sys.executable) -> Process:
        """Start an agent, which is enrolled at its first start; wait until it has joined.

        One that is waited for ends a former one of its name: a test that is tried again starts its agents again.
        """
        if joins and name in self.agents:
            self.agents[name].end(signal.SIGKILL)
        folder = tls.agent_folder(self.folder, name)
        if not folder.exists():
            self.enroll(tls.AGENT, name)
        self.agents[name] = self._start("agent", name, f"--folder={folder}", *options, python=python)
        if joins:
            self.agents[name].wait_for("has joined the hub")
        return self.agents[name]

    def enroll(self, role: str, name: str) -> None:
        """Unpack a bundle in the lab's folder: below agents/NAME, or in tls-NAME."""
        packed = self.authority.bundle(role, name, self.address)
        self.unpack(packed)
        if role == tls.CLIENT:
            (self.folder / "tls").rename(self.folder / f"tls-{name}")

    @property
    def authority(self) -> Authority:
        """The lab's CA."""
        return Authority.made(self.ca_folder)

    def unpack(self, packed: bytes) -> None:
        """Unpack a bundle as a user does."""
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(self.folder, filter="data")
            else:
                tar.extractall(self.folder)

    def entry(self, user: str = "alice") -> HubEntry:
        """Return the hub as a user's registry has it."""
        folder = self.folder / f"tls-{user}"
        if not folder.exists():
            self.enroll(tls.CLIENT, user)
        return HubEntry("lab", self.address, folder / "ca.pem", folder / "client.pem", folder / "client-key.pem")

    def agent_entry(self, name: str) -> HubEntry:
        """Return the hub as an agent's bundle has it."""
        folder = tls.agent_folder(self.folder, name)
        return HubEntry("lab", self.address, folder / "ca.pem", folder / "certificate.pem", folder / "key.pem")

    def client(self, user: str = "alice") -> Any:
        """Connect as a user."""
        return engine.connect(self.entry(user))

    def registry(self, *devices: str) -> Path:
        """Write a registry of the hub and devices, and return its file."""
        hub = self.entry()
        lines = [f'[hub.lab]\naddress = "{hub.address}"\nca = "{hub.ca}"']
        lines += [f'[devices.{name}]\nhub = "lab"' for name in devices]
        file = self.folder / "ngraph.toml"
        file.write_text("\n".join(lines) + "\n")
        return file

    def state(self, client: Any, name: str, is_so: Callable[[AgentState], bool]) -> AgentState:
        """Wait until an agent is as said, and return its state."""

        def found() -> AgentState | None:
            state = engine.agents(client).get(name)
            return state if state is not None and is_so(state) else None

        state = eventually(f"the state of {name}", found)
        assert isinstance(state, AgentState)
        return state

    def _start(self, *arguments: str, python: str = sys.executable) -> Process:
        self._starts += 1
        home = self.folder / "home"
        folders = {"XDG_CONFIG_HOME": str(home / "config"), "XDG_CACHE_HOME": str(home / "cache")}
        module = self._agents_module if arguments[0] == "agent" else self._module
        log = self.folder / f"{self._starts}-{arguments[0]}.log"
        return Process(list(arguments), log, folders, python, module)
