"""What an agent keeps to itself: the environment it was started in, and the files of its folder."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ngraph.devices.agent import privacy, starting
from pytest_ngraph.devices.registry import DeviceEntry
from pytest_ngraph.errors import SpecError
from tests.conftest import ROOT, skip_without
from tests.support.lab import Lab

SECRETS = {"AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI", "GITHUB_TOKEN": "ghp_x", "OMP_NUM_THREADS": "1"}


def environment_of(pid: int) -> dict[str, str]:
    given = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(part.split("=", 1) for part in given if part)


def test_an_agents_environment_is_an_allow_list_from_its_start_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("distributed", "cryptography")
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with Lab(tmp_path) as lab:
        lab.start_hub()
        agent = lab.start_agent("one")
        found = environment_of(agent.popen.pid)

    assert not set(found) & set(SECRETS)
    assert set(found) == set(privacy.allowed(found))
    assert "PATH" in found


def test_the_same_holds_however_it_is_started(tmp_path: Path) -> None:
    # systemd and ssh start the same command, whose first act it is.
    entry = DeviceEntry("orin", "lab", resource="orin", ssh="nvidia@orin.lab")
    assert starting.ssh_command(entry)[-1].endswith("pytest_ngraph.cli agent orin")
    assert "pytest_ngraph.cli agent orin\n" in starting.unit(["agent", "orin"])
    assert "UMask=0077" in starting.unit(["agent", "orin"])
    code = (
        "import os, sys; from pytest_ngraph.devices.agent import privacy; privacy.leave_environment(); "
        "print(sys.argv[1:], sorted(os.environ))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "a b", "$c"],
        env={**os.environ, **SECRETS, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.startswith("['a b', '$c'] [")
    assert not [name for name in SECRETS if name in done.stdout]


def test_what_lies_in_an_agents_folder_is_mended_and_what_comes_is_private(tmp_path: Path) -> None:
    folder, outside = tmp_path / "agent", tmp_path / "outside"
    (folder / "projects" / "a").mkdir(parents=True)
    source, script = folder / "projects" / "a" / "model.py", folder / "projects" / "a" / "run.sh"
    for path, mode in ((source, 0o644), (script, 0o755), (folder / "projects", 0o755)):
        if path.suffix:
            path.write_text("pass")
        path.chmod(mode)
    outside.write_text("not ours")
    outside.chmod(0o644)
    (folder / "link").symlink_to(outside)
    code = (
        "import sys; from pathlib import Path; from pytest_ngraph.devices.agent import privacy; "
        "privacy.keep_private(Path(sys.argv[1])); Path(sys.argv[1], 'new').write_text('x'); "
        "Path(sys.argv[1], 'below').mkdir()"
    )

    subprocess.run([sys.executable, "-c", code, folder], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})

    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert stat.S_IMODE(script.stat().st_mode) == 0o700
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = os.umask(0o022)
    try:
        with pytest.raises(SpecError, match=r"file.*cannot be made, or kept from others: Not a directory"):
            privacy.keep_private(tmp_path / "file" / "agent")
    finally:
        os.umask(before)
