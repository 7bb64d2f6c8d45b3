"""Stored launches stay valid: cells and keys of each kind of model are those of before kinds were classes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices import evidence
from pytest_ngraph.devices.evidence import Evidence
from pytest_ngraph.launches.client import Job
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.machine.files import file_digest
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, Device, ModelRef, Workload, digest
from pytest_ngraph.workloads import keys

VERSION = "1.2.3"
# By kind: the workload, the digest of its cell's text, and the keys of its sample, its ONNX file and its evidence.
# Made by the code of before there was a class for each kind. A change here loses every stored launch of that kind.
GOLDEN = {
    "timm": {
        "cell": "3c6f8452ba227d7cd6fd92a103a7b47b011d6c92be18e542553aba51a9af0a1a",
        "sample": "bccb94793083aa4c58da2d7da8f344dbc2035ce70e236fdf49acc874445f9b5c",
        "onnx": "78cb528e016091fa114a55d69573ae02b56ede8f25f1dd9d8560d9c485c14c54",
        "evidence": "873d18d8c382f7ddca1e31a093c17eaf9c214bdf68e397925deab8f552eec7ae",
        "evidence of its file": "75296a04f40636799bfbe45ed4a9fe70d5ecb2051e47dacc5be9c5e1df093c60",
    },
    "block": {
        "cell": "2c9233bd5a662855ca1d494c4faddfa01673d0ae99d6168f616243d2438d0187",
        "sample": "54c31bd6e3714ece6944970553996bbbc6e7df4baad5eaf6afd31bbe7f20b956",
        "onnx": "65b44914ea7f70a4f0a6723fce01c26eccd0b4e4e000d180e133cbf8e8a69c83",
        "evidence": "7624a4cc3348ab87fb7a17093f7ed21b0497e003f5a6bcdf04e93fc089252ec8",
        "evidence of its file": "98e61461bad9d54cf565a08281d61f1b47cfe6dd537b29d32b115e4a7c24c712",
    },
    "onnx": {
        "cell": "490b2955142807e99be1990acfe62c7a761886bb9aedddd2736091bed8f32a2f",
        "sample": "33f8a4beb3d112e91bc232bda919d1383ea16fc091a1d7908a683b2266aeff00",
        "onnx": "911c79676961b1cfe3cd34b7550c1148c5213c609f36fb98ea1856ddb7760b3b",
        "evidence": "8ed98161616864df94836dbbbef619b5dc79f7a887d3fbf93abf2098391041a3",
        "evidence of its file": "e1fb8dc52a6883f943cbfd7a066e28e6e0e174d76cd030a145806a747e33ae55",
    },
    "file": {
        "cell": "435d7277b95ead201c6b6ee91d017990409e1571b7cace95b2a1f5e114678541",
        "sample": "6e2b1150076c53652dd4ec2d673aa0ccf78efec7943de5af946d804219555924",
        "onnx": "dbb63fb70c10969c534f4281978927e15c4b63ddf48f496a6be47ea7c9b34a92",
        "evidence": "855e8097290d12dea374c8c651f7813849d2045a0261ba0d22e08944f4cef4d9",
        "evidence of its file": "92c86cbcdaf65de18b307d6ff2cf2929b51e5f5d5576e0955472629fc6c93c7b",
    },
    "import": {
        "cell": "fd9895696b9ce4096333e0ef35e804606eec890d79698f482c84fa5e46a43f4a",
        "sample": "f7c613bae1d1372f84390a7045bba9d3d2afc2b93651bb35d8008fa67807883c",
        "onnx": "3f11923991c897407fdcd2fd9b2c46ab00dd285e3829c65aa8bf8522bf8846ba",
        "evidence": "02e11b903606b5757ae0d0e455faa60a5b0f78cd824cde401dc86417dbf19e7b",
        "evidence of its file": "b1766831f2bb09a3f9391b438667bf4dd4ce34d23119a673aca487c84d08258e",
    },
}


def workload(kind: str, folder: Path) -> Workload:
    """Return one workload of a kind, with its files in the folder where it has any."""
    nets = folder / "nets_of_before.py"
    nets.write_text("def make(width): ...\n")
    (folder / "net.onnx").write_bytes(b"not read here")
    return {
        "timm": Workload(ModelRef("timm:resnet18", "timm", "resnet18"), 8, image_size=64, scenario="throughput"),
        "block": Workload(ModelRef("block:conv", "block", "conv"), 2, depth=3, precision="bf16"),
        "onnx": Workload(ModelRef("onnx:net.onnx", "onnx", str(folder / "net.onnx")), 4, precision="int8"),
        "file": Workload(ModelRef("nets_of_before.py:make", "file", f"{nets}:make"), 1, width=16),
        "import": Workload(ModelRef("nets_of_before:make", "import", "nets_of_before:make"), 1, width=16),
    }[kind]


def found(kind: str, folder: Path) -> dict[str, str]:
    """Return what cells and evidence of a kind are known by."""
    mine = workload(kind, folder)
    job = Job(
        (str(folder), *sys.path), Device("local", (0,), 1), 7, folder / "artifacts", folder / "logs", {}, 60.0, {}
    )
    (folder / "artifacts").mkdir(exist_ok=True)
    place = mine.model.locator.rpartition(":")[0] if kind == "file" else mine.model.locator
    files = {
        "onnx": lambda: {place: file_digest(Path(place))},
        "file": lambda: {place: file_digest(Path(place)), "timm": VERSION},
        "import": lambda: {str(folder / "nets_of_before.py"): file_digest(folder / "nets_of_before.py")},
    }.get(kind, dict)()
    keys.remember_files(mine, 7, job.artifacts, files)
    sample = keys.sample_key(mine, 7, files)
    cell = Cell("local", CompilerSpec("identity"), mine)
    text = json.dumps(cell.to_json(), sort_keys=True).replace(str(folder), "FOLDER")
    judged = Evidence(Catalogue(), job, PROTOCOLS["gate"], 7)
    by_module, by_file = (Cell("local", CompilerSpec(name), mine) for name in ("identity", "openvino"))
    return {
        "cell": digest(text),
        "sample": sample,
        "onnx": keys.onnx_key(mine, sample),
        "evidence": str(judged.key(by_module)),
        "evidence of its file": str(judged.key(by_file)),
    }


@pytest.mark.parametrize("kind", GOLDEN)
def test_cells_and_keys_are_those_of_before(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    # What is installed, and the machine, are no part of this.
    monkeypatch.setattr(keys, "version_of", lambda name: VERSION)
    monkeypatch.setattr(environment, "version_of", lambda name: VERSION)
    monkeypatch.setattr(evidence, "version_of_module", lambda name: VERSION)
    monkeypatch.setattr(evidence, "SINCE", VERSION)
    monkeypatch.setattr(keys, "version_of_module", lambda name: VERSION)
    monkeypatch.setattr(evidence, "fingerprint", lambda accelerator: {"machine": accelerator})

    assert found(kind, tmp_path) == GOLDEN[kind]
