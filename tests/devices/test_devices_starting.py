"""How agents are started: the unit that systemd gets, the words that ssh gets, and what a user is told to do next."""

from __future__ import annotations

import shlex
import stat
import subprocess
from pathlib import Path

import pytest

from pytest_ngraph import interpreter
from pytest_ngraph.cli import main
from pytest_ngraph.devices.agent import starting
from pytest_ngraph.devices.registry import DeviceEntry
from pytest_ngraph.devices.trust import tls
from pytest_ngraph.devices.trust.authority import Authority
from pytest_ngraph.errors import SpecError
from tests.conftest import skip_without

REGISTRY = """
[hub.lab]
address = "tls://hub.lab"
ca = "ca.pem"
[devices.orin]
hub = "lab"
resource = "orin-07"
python = "/opt/my python/bin/python"
ssh = "nvidia@orin-07.lab"
[devices.any]
hub = "lab"
pool = "orin"
[devices.bare]
hub = "lab"
"""


def test_a_unit_keeps_an_agent_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/opt/50% mine/bin/python")

    text = starting.unit(["agent", "orin", "--pool=fast", "--folder=/srv/agents/orin"])

    begin = "import sys; sys.path[:] = filter(None, sys.path); from pytest_ngraph.interpreter import begin; begin()"
    words = "pytest_ngraph.cli agent orin --pool=fast --folder=/srv/agents/orin"
    assert f'\nExecStart="/opt/50%% mine/bin/python" -c "{begin}" {words}\n' in text
    assert "\nRestart=always\n" in text
    assert "THREADS" not in text


def test_install_writes_the_unit_and_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without("distributed", "cryptography")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["agent", "orin", "--install"]) == 2
    assert "on the CA's machine run 'ngraph enroll orin'" in capsys.readouterr().err
    authority = Authority.made(tmp_path / "hub")
    folder = tls.agent_folder(tmp_path / "ngraph", "orin")
    folder.mkdir(parents=True)
    certificate, key = authority.issue(tls.AGENT, "orin")
    files = {
        "certificate.pem": certificate,
        "key.pem": key,
        "ca.pem": authority.ca.read_bytes(),
        "address": b"tls://h:1",
    }
    for name, data in files.items():
        tls.write_private(folder / name, data)

    assert main(["agent", "orin", "--install"]) == 0

    unit, printed = tmp_path / "systemd/user/ngraph-agent-orin.service", capsys.readouterr().out
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    assert all(f"  {line}".rstrip() in printed.splitlines() for line in unit.read_text().splitlines())
    assert "systemctl --user enable --now ngraph-agent-orin" in printed
    assert "loginctl enable-linger" in printed


def test_a_hub_is_kept_running_with_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without("distributed", "cryptography")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["hub", "--host", "0.0.0.0", "--install"]) == 2
    assert "run 'ngraph enroll --hub --address tls://HOST:PORT'" in capsys.readouterr().err
    authority, folder = Authority.made(tmp_path / "authority"), tls.HubFolder(tmp_path / "ngraph" / "hub")
    folder.folder.mkdir(parents=True)
    certificate, key = authority.issue(tls.HUB, "hub")
    for path, data in (
        (folder.certificate, certificate), (folder.key, key), (folder.ca, authority.ca.read_bytes())
    ):  # fmt: skip
        tls.write_private(path, data)

    assert main(["hub", "--host", "0.0.0.0", "--install"]) == 0

    text = (tmp_path / "systemd/user/ngraph-hub.service").read_text()
    assert f" hub --host=0.0.0.0 --port=8786 --folder={tmp_path}/ngraph/hub\n" in text
    assert "systemctl --user enable --now ngraph-hub" in capsys.readouterr().out


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Take the place of ssh; its status is the number of the last word of what it is asked for, else 0."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ngraph.toml").write_text(REGISTRY)
    found: list[list[str]] = []

    def run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
        found.append(command)
        return subprocess.CompletedProcess(command, 255 if len(found) > 1 else 0)

    monkeypatch.setattr(subprocess, "run", run)
    return found


def test_ssh_gets_words_and_asks_no_questions(asked: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "orin", "--ssh"]) == 0

    command = asked[0]
    assert command[:-2] == ["ssh", "-tt", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--"]
    assert command[-2] == "nvidia@orin-07.lab"
    words = interpreter.command("pytest_ngraph.cli", "agent", "orin-07", python="/opt/my python/bin/python")
    assert shlex.split(command[-1]) == words
    assert main(["agent", "orin", "--ssh", "--pool=fast", "--port=9000"]) == 2
    assert shlex.split(asked[1][-1]) == [*words, "--pool=fast", "--port=9000"]
    assert main(["agent", "orin", "--ssh", "--folder=here"]) == 2
    assert "--folder is of this machine" in capsys.readouterr().err
    assert main(["agent", "orin", "--ssh"]) == 2
    assert "ssh cannot reach nvidia@orin-07.lab without a question; try it by hand" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("any", "device 'any' is a pool: name one of its agents"),
        ("bare", "device 'bare' has no ssh; add ssh ="),
        ("other", "no device 'other' in the registry (known: any, bare, orin)"),
    ],
)
def test_what_ssh_lacks_is_said(
    asked: list[list[str]], name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agent", name, "--ssh"]) == 2
    assert message in capsys.readouterr().err
    assert asked == []


def test_a_pool_has_no_machine_to_go_to() -> None:
    with pytest.raises(SpecError, match="is a pool"):
        starting.ssh_command(DeviceEntry("any", "lab", pool="orin"))
