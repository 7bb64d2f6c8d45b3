"""The registry: what its files may say, how they lie over one another, and that a mistake is shown where it stands."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.devices.registry import (
    _DEVICE_KEYS,
    _HUB_KEYS,
    DeviceEntry,
    HubEntry,
    Registry,
    cache_folder,
    config_folder,
    read_registry,
)
from pytest_ngraph.errors import SpecError
from tests.conftest import ROOT

HUB = '[hub.lab]\naddress = "tls://hub.lab:8786"\nca = "~/.config/ngraph/tls/ca.pem"\n'
ORIN = """
[devices.orin]
hub = "lab"
resource = "orin-07"
python = "/opt/ngraph/bin/python"
ssh = "nvidia@orin-07.lab"
accelerator = "cuda"
timeout = "20min"
min_free = {disk = "2GiB", memory = "1.5GB"}
expect = {machine = "aarch64", nvpmodel = "MAXN_SUPER"}
env = {OMP_NUM_THREADS = "6"}
cpus = "0-3,5"
threads = 4
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read(project: Path, config: Path | None = None) -> Registry:
    return read_registry(config, project)


def in_pyproject(text: str) -> str:
    return text.replace("[hub.", "[tool.ngraph.hub.").replace("[devices.", "[tool.ngraph.devices.")


def test_a_registry_is_optional(project: Path) -> None:
    write(project / "pyproject.toml", '[project]\nname = "mine"\n')

    assert read(project) == Registry({}, {})


@pytest.mark.parametrize("file", ["pyproject.toml", "ngraph.toml"])
def test_every_key_is_read(project: Path, file: str) -> None:
    write(project / file, in_pyproject(HUB + ORIN) if file == "pyproject.toml" else HUB + ORIN)

    registry = read(project)

    tls = project.parent / ".config/ngraph/tls"
    assert registry.hubs == {
        "lab": HubEntry("lab", "tls://hub.lab:8786", tls / "ca.pem", tls / "client.pem", tls / "client-key.pem")
    }
    assert registry.devices == {
        "orin": DeviceEntry(
            name="orin",
            hub="lab",
            resource="orin-07",
            python="/opt/ngraph/bin/python",
            ssh="nvidia@orin-07.lab",
            accelerator="cuda:0",
            timeout_seconds=1200.0,
            min_free={"disk": 2 << 30, "memory": 1_500_000_000},
            expect={"machine": "aarch64", "nvpmodel": "MAXN_SUPER"},
            env={"OMP_NUM_THREADS": "6"},
            cpus=(0, 1, 2, 3, 5),
            threads=4,
        )
    }
    assert registry.names() == ("orin",)
    assert registry.hub_of("orin") is registry.hubs["lab"]


def test_the_least_of_a_device_is_its_hub(project: Path) -> None:
    write(project / "ngraph.toml", HUB + '[devices.xeon]\nhub = "lab"\n')

    assert read(project).devices["xeon"] == DeviceEntry("xeon", "lab", resource="xeon")


def test_a_pool_has_no_agent_of_its_own(project: Path) -> None:
    write(project / "ngraph.toml", HUB + '[devices.orin]\nhub = "lab"\npool = "orin"\n')

    assert read(project).devices["orin"] == DeviceEntry("orin", "lab", pool="orin")


def test_later_files_lie_over_earlier_ones_key_by_key(project: Path) -> None:
    write(project / "pyproject.toml", in_pyproject(HUB + ORIN))
    write(project / "ngraph.toml", '[devices.orin]\ntimeout = "5min"\nenv = {A = "1"}\n')
    home = project.parent
    user = '[hub.lab]\nca = "certs/ca.pem"\n[devices.orin]\nenv = {A = "2"}\ncpus = "7"\n[devices.mine]\nhub = "lab"\n'
    write(home / ".config/ngraph/ngraph.toml", user)
    registry = read(project)

    assert set(registry.devices) == {"orin", "mine"}
    orin = registry.devices["orin"]
    assert (orin.timeout_seconds, orin.cpus, orin.threads) == (300.0, (7,), 4)
    assert orin.env == {"OMP_NUM_THREADS": "6", "A": "2"}
    # A relative path starts where it stands.
    assert registry.hubs["lab"].ca == home / ".config/ngraph/certs/ca.pem"
    assert registry.hubs["lab"].certificate == home / ".config/ngraph/certs/client.pem"
    assert registry.hubs["lab"].address == "tls://hub.lab:8786"


def test_a_file_that_is_named_takes_the_place_of_the_projects_own(project: Path) -> None:
    write(project / "ngraph.toml", HUB + ORIN)
    named = write(project / "other.toml", HUB + '[devices.xeon]\nhub = "lab"\n')
    write(project.parent / ".config/ngraph/ngraph.toml", "[devices.xeon]\nthreads = 2\n")

    registry = read(project, named)

    assert registry.devices == {"xeon": DeviceEntry("xeon", "lab", resource="xeon", threads=2)}
    with pytest.raises(SpecError, match=r"--ngraph-config: no file .*nowhere\.toml"):
        read(project, project / "nowhere.toml")


def test_the_users_folder_follows_xdg(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))
    assert config_folder() == project / ".config/ngraph"
    assert cache_folder() == project / ".cache/ngraph"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "xdg"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
    assert config_folder() == project / "xdg/ngraph"
    assert cache_folder() == project / "cache/ngraph"
    # By its specification, a relative one counts as none.
    monkeypatch.setenv("XDG_CONFIG_HOME", "xdg")
    assert config_folder() == project / ".config/ngraph"


@pytest.mark.parametrize("address", ["tls://hub.lab", "tls://10.0.0.7:9000", "tls://[fe80::1]:8786"])
def test_an_address_has_a_port(project: Path, address: str) -> None:
    write(project / "ngraph.toml", HUB.replace("tls://hub.lab:8786", address))

    expected = address if address.count(":") > 1 else f"{address}:8786"
    assert read(project).hubs["lab"].address == expected


DEVICE = '[devices.orin]\nhub = "lab"\n'
REFUSED = [
    (HUB + DEVICE + "tiemout = 1\n", 6, "unknown key 'tiemout'; did you mean 'timeout'?"),
    (HUB + DEVICE + "timeout = 20\n", 6, "timeout: 20 is not allowed (expected a time, such as"),
    (HUB + DEVICE + 'timeout = "soon"\n', 6, "timeout: 'soon' is not allowed"),
    (HUB + DEVICE + 'timeout = "0s"\n', 6, "timeout: '0s' is not allowed"),
    (HUB + DEVICE + 'cpus = "5-0"\n', 6, "cpus: '5-0' is not allowed (expected CPU numbers and ranges"),
    (HUB + DEVICE + 'cpus = ""\n', 6, "cpus: '' is not allowed"),
    (HUB + DEVICE + "cpus = [0, 1]\n", 6, "cpus: [0, 1] is not allowed"),
    (HUB + DEVICE + "threads = true\n", 6, "threads: True is not allowed (expected a whole number >= 1)"),
    (HUB + DEVICE + "threads = 0\n", 6, "threads: 0 is not allowed"),
    (HUB + DEVICE + 'accelerator = "gpu"\n', 6, "'gpu' is not allowed (expected cpu, cuda or cuda:N)"),
    (HUB + DEVICE + 'python = "python3"\n', 6, "the absolute path of an interpreter"),
    (HUB + DEVICE + 'ssh = "-oProxyCommand=true"\n', 6, "HOST or USER@HOST as ssh takes it"),
    (HUB + DEVICE + 'ssh = "host;reboot"\n', 6, "HOST or USER@HOST as ssh takes it"),
    (HUB + DEVICE + 'resource = "Orin 7"\n', 6, "a name of the form [a-z0-9][a-z0-9_.-]*"),
    (HUB + DEVICE + 'resource = "a"\npool = "b"\n', 7, "either a resource, one agent, or a pool"),
    (HUB + DEVICE + 'min_free = "2GiB"\n', 6, "min_free: '2GiB' is not allowed (expected a table)"),
    (HUB + DEVICE + 'min_free = {disc = "2GiB"}\n', 6, "unknown key 'disc'; did you mean 'disk'?"),
    (HUB + DEVICE + "min_free = {disk = 2}\n", 6, "min_free.disk: 2 is not allowed (expected a size with its unit"),
    (HUB + DEVICE + 'min_free = {disk = "2 giga"}\n', 6, "min_free.disk: '2 giga' is not allowed"),
    (HUB + DEVICE + "expect = {cores = 6}\n", 6, "expect.cores: 6 is not allowed (expected a line of text)"),
    (HUB + DEVICE + 'env = {"A B" = "1"}\n', 6, "the name 'A B' is not allowed"),
    (HUB + DEVICE + "env = {A = 1}\n", 6, "env.A: 1 is not allowed (expected a string"),
    (HUB + '[devices.orin]\nhub = "lba"\n', 5, "no hub 'lba'; did you mean 'lab'? (known: lab)"),
    (HUB + '[devices.local]\nhub = "lab"\n', 4, "'local' is a device of every machine"),
    (HUB + '[devices.cuda]\nhub = "lab"\n', 4, "'cuda' is a device of every machine"),
    (HUB + '[devices."Orin 7"]\nhub = "lab"\n', 4, "the name 'Orin 7' is not allowed"),
    (HUB + "[devices]\norin = 3\n", 5, "devices.orin: 3 is not allowed (expected a table)"),
    (HUB + "[device.orin]\n", 4, "unknown key 'device'; did you mean 'devices'? (known: hub, devices)"),
    (HUB.replace("tls://", "tcp://"), 2, "nothing goes over the network without TLS"),
    (HUB.replace(":8786", ":99999"), 2, "'tls://hub.lab:99999' is not allowed"),
    (HUB.replace("hub.lab:8786", "hub lab"), 2, "expected tls://HOST:PORT"),
    (HUB + "ca_file = 1\n", 4, "unknown key 'ca_file'"),
    (HUB.replace('"~/.config/ngraph/tls/ca.pem"', "1"), 3, "ca: 1 is not allowed (expected a line of text)"),
]


@pytest.mark.parametrize(("text", "line", "message"), REFUSED)
@pytest.mark.parametrize("file", ["pyproject.toml", "ngraph.toml"])
def test_a_mistake_is_shown_with_its_file_its_line_and_what_is_allowed(
    project: Path, file: str, text: str, line: int, message: str
) -> None:
    if file == "pyproject.toml":
        text = (
            in_pyproject(text).replace("[devices]", "[tool.ngraph.devices]").replace("[device.", "[tool.ngraph.device.")
        )
    path = write(project / file, text)

    with pytest.raises(SpecError) as refused:
        read(project)

    assert str(refused.value).startswith(f"{path}:{line}: ")
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["HF_TOKEN", "MY_SECRET", "DB_PASSWORD", "aws_private_key", "OPENAI_API_KEY"])
def test_secrets_do_not_belong_in_a_registry(project: Path, name: str) -> None:
    write(project / "ngraph.toml", f'{HUB}{DEVICE}env = {{{name} = "sesame"}}\n')

    with pytest.raises(SpecError, match=f"{name} looks like a secret") as refused:
        read(project)

    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize("value", ["http://alice:sesame@proxy:3128", "hf_sesame12345", "ghp_sesame12345"])
def test_a_value_that_looks_like_a_secret_is_not_repeated_either(project: Path, value: str) -> None:
    write(project / "ngraph.toml", f'{HUB}{DEVICE}env = {{WHERE = "{value}"}}\n')

    with pytest.raises(SpecError, match="WHERE looks like a secret") as refused:
        read(project)

    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[hub.lab]\naddress = "tls://h:1"\n', "hub 'lab' has no ca; add ca ="),
        ('[hub.lab]\nca = "ca.pem"\n', "hub 'lab' has no address; add address ="),
        (HUB + "[devices.orin]\n", "device 'orin' has no hub; add hub ="),
        ("[hub.lab\n", "is not TOML: "),
    ],
)
def test_what_lacks_something_says_what(project: Path, text: str, message: str) -> None:
    write(project / "ngraph.toml", text)

    with pytest.raises(SpecError) as refused:
        read(project)

    assert message in str(refused.value)


def test_a_mistake_in_the_users_file_is_shown_there(project: Path) -> None:
    write(project / "ngraph.toml", HUB + ORIN)
    mine = write(project.parent / ".config/ngraph/ngraph.toml", '# orin.cpus = "1"\n[devices.orin]\ncpus = "x"\n')

    with pytest.raises(SpecError) as refused:
        read(project)

    assert str(refused.value).startswith(f"{mine}:3: devices.orin.cpus: 'x' is not allowed")


def test_tables_may_be_written_in_any_way_that_toml_knows(project: Path) -> None:
    text = '[hub]\nlab = {address = "tls://hub.lab", ca = "ca.pem"}\n[devices]\norin.hub = "lab"\norin.cpus = "0"\n'
    write(project / "ngraph.toml", text)

    assert replace(read(project).devices["orin"], cpus=None) == DeviceEntry("orin", "lab", resource="orin")
    write(project / "ngraph.toml", text.replace('"0"', '"0-"'))
    with pytest.raises(SpecError, match=r"ngraph\.toml:5: devices\.orin\.cpus"):
        read(project)


def test_the_page_of_the_docs_shows_a_registry_that_holds_and_every_key(project: Path) -> None:
    page = (ROOT / "docs/devices.md").read_text()
    blocks = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    write(project / "pyproject.toml", "\n".join(blocks))

    assert read(project).names() == ("orin", "xeon")
    described = set(
        re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in page.splitlines() if line[:2] == "| "))
    )
    assert {*_HUB_KEYS, *_DEVICE_KEYS} <= described


@pytest.mark.parametrize("text", ["a = " + "[" * 3000 + "]" * 3000, "a = " + "{b=" * 3000 + "1" + "}" * 3000])
def test_a_registry_that_is_nested_without_end_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ngraph.toml"
    file.write_text(text)

    with pytest.raises(SpecError, match=r"ngraph\.toml: tables or lists in it are nested too deeply to be read"):
        read_registry(file, tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MKL_NUM_THREADS", "write threads = N, or NAME\\[threads=N\\] for one compiler"),
        ("TVM_NUM_THREADS", "all compilers get the same number of threads"),
        ("MALLOC_ARENA_MAX", "the allocator is set by the protocol"),
        ("PYTHONHASHSEED", "it is set, or left out, for every process that measures"),
        ("TORCHINDUCTOR_CACHE_DIR", "it is set, or left out"),
        ("PYTEST_ADDOPTS", "it is set, or left out"),
    ],
)
def test_a_variable_that_would_be_overwritten_is_refused_by_name(project: Path, name: str, said: str) -> None:
    write(project / "ngraph.toml", f'{HUB}{DEVICE}env = {{{name} = "3"}}\n')
    with pytest.raises(SpecError, match=f"{name} is not given to what measures there; .*{said}"):
        read(project)


def test_no_variable_of_a_registry_is_changed_on_its_way_to_a_worker() -> None:
    from pytest_ngraph.launches.client import why_not_given, worker_environment
    from pytest_ngraph.spec.cells import Device

    ours = worker_environment(Device(threads=2), "steady", 0, Path("caches"), {})
    changed = {name for name in ours if name not in os.environ and name not in ("OMP_NUM_THREADS", "NGRAPH_PADDING")}
    assert changed >= {"MKL_NUM_THREADS", "TVM_BIND_THREADS", "MALLOC_MMAP_MAX_", "TRITON_CACHE_DIR"}
    assert [name for name in changed if why_not_given(name) is None] == []
