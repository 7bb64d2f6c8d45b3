"""A folder that ``save_pretrained`` wrote: its configuration, read as data, and its weights, from safetensors only.

Whatever is in such a folder is somebody else's. Its configuration is JSON of which only what the configuration class of
a family here declares is taken, its weights are numbers, and nothing in it is run or fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.errors import SpecError
from pytest_ngraph.texts.shown import one_line
from pytest_ngraph.workloads.kinds.contract import guarded
from pytest_ngraph.workloads.kinds.transformers import networks
from pytest_ngraph.workloads.kinds.transformers.options import MOST, MOST_OTHER, Wanted
from pytest_ngraph.workloads.kinds.transformers.sizes import BARE, FAMILIES, IMAGES, SOUND, TEXT, Family

if TYPE_CHECKING:
    import torch

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_MOST_BYTES, _MOST_SHARDS = 4 << 20, 1000
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".pkl")
# What else of a configuration decides what is computed, beside the fields that its class declares.
_MORE_FIELDS = {"num_labels", "id2label", "label2id", "rope_theta", "rope_scaling", "partial_rotary_factor"}
_NOT_TAKEN = {"use_cache"}
# Sizes that a configuration may leave to others.
_OPTIONAL = {"intermediate", "kv_heads", "labels"}
# A part of the body that only some heads have.
_POOLER = "pooler"


@dataclass(frozen=True)
class Saved:
    """The configuration of a folder: its family, the class of its network, its sizes by our names, and all it says."""

    family: str
    network: str
    sizes: Mapping[str, int]
    data: Mapping[str, Any]

    @property
    def image_size(self) -> int:
        """Return the side of the images that its positions are for."""
        return self.sizes["image"]

    def wanted(self, given: Mapping[str, str]) -> Wanted:
        """Return what is asked for of it."""
        heads = {network: head for head, network in FAMILIES[self.family].networks.items()}
        head, mask, attention = heads.get(self.network, BARE), given.get("mask", "full"), given.get("attention", "sdpa")
        return Wanted(self.family, head, self.sizes, mask, attention)


def read(text: str, config: Path) -> Saved:
    """Return what a folder says by its ``config.json``. Raise SpecError for what is not built here, and why."""
    try:
        status = config.stat()
    except OSError as error:
        raise SpecError(f"model {text!r}: cannot read {config}: {error.strerror}") from None
    return _read(text, config, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _read(text: str, config: Path, _: int, size: int) -> Saved:
    refuse_escape(text, config)
    if size > _MOST_BYTES:
        raise SpecError(f"model {text!r}: {config} has {size} bytes (allowed: {_MOST_BYTES}); that is no configuration")
    try:
        data = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError(f"model {text!r}: {config} cannot be read as JSON: {one_line(str(error))}") from None
    if not isinstance(data, dict):
        raise SpecError(f"model {text!r}: {config} holds {type(data).__name__}, not the fields of a configuration")
    if data.get("auto_map") or data.get("custom_pipelines"):
        raise SpecError(
            f"model {text!r}: {config} asks for code of its own (auto_map), which is never run; write a factory that "
            "imports it, where you trust it, and name that: net.py:factory"
        )
    if data.get("quantization_config"):
        raise SpecError(
            f"model {text!r}: {config} is of quantised weights (quantization_config); save the network in floats and "
            "ask for precision=int8"
        )
    if (positions := data.get("position_embedding_type") or "absolute") != "absolute":
        raise SpecError(
            f"model {text!r}: {config} has the position_embedding_type {one_line(repr(positions))} (built here: "
            "'absolute'); its weights would be left out without a word"
        )
    family = data.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise SpecError(
            f"model {text!r}: {config} has the model_type {one_line(repr(family))} (built here: "
            f"{', '.join(FAMILIES)}); write a factory for it: net.py:factory"
        )
    network = _network_of(text, config, family, data.get("architectures"))
    _refuse_huge(text, config, data)
    return Saved(family, network, _sizes(text, config, FAMILIES[family], data), data)


def files(text: str, config: Path) -> list[Path]:
    """Return the configuration and the files of the weights. Raise SpecError where they are not safetensors."""
    folder = config.parent
    weights = [folder / WEIGHTS]
    if not weights[0].is_file() and (folder / INDEX).is_file():
        weights = [folder / INDEX, *_shards(text, folder / INDEX)]
    if not weights[0].is_file():
        pickled = sorted(each.name for each in folder.iterdir() if each.suffix in _PICKLED)
        found = f" ({', '.join(pickled[:3])}: loading such a file may run code in it, so it is never opened)"
        raise SpecError(
            f"model {text!r}: no {WEIGHTS} in {folder}{found if pickled else ''}; write one with "
            f"save_pretrained({folder.name!r}), which makes safetensors, where you trust its weights"
        )
    for each in weights:
        refuse_escape(text, each)
    return [config, *weights]


def refuse_escape(text: str, path: Path) -> None:
    """Raise SpecError for a link that leads out of the folder, but into the blobs of the hub's own cache."""
    folder, real = path.parent.resolve(), path.resolve()
    blobs = folder.parent.parent / "blobs"
    is_cache = folder.parent.name == "snapshots" and real.parent == blobs
    if real.parent != folder and not is_cache:
        raise SpecError(f"model {text!r}: {path} is a link out of its folder, to {real}; copy the file there")


def load(text: str, config: Path, saved: Saved, given: Mapping[str, str]) -> torch.nn.Module:
    """Return the network with the weights of its folder, in f32. Raise SpecError where they are not all there."""
    family = FAMILIES[saved.family]
    paths = [path for path in files(text, config) if path.suffix == ".safetensors"]
    made = guarded(text, f"reading {config}", lambda: _configuration(saved, given))
    network = networks.network_class(saved.family, saved.network)
    _refuse_more_than_there_is(text, config, paths, network, made)
    weights: dict[str, torch.Tensor] = {}
    for path in paths:
        weights |= guarded(text, f"reading {path}", partial(_tensors, path))
    if family.fed == SOUND:
        weights = _of_encoder(weights)
    loaded, said = guarded(text, f"loading {paths[0].parent}", lambda: _loaded(network, made, weights))
    if missing := sorted(said["missing_keys"]):
        shown = ", ".join(missing[:3])
        raise SpecError(
            f"model {text!r}: its files lack {len(missing)} weights of {saved.network} ({shown}), which would be drawn "
            f"at random; save the network that you mean, or put the class that was saved into architectures of {config}"
        )
    if left := _left_out(network, loaded, [name for name in said["unexpected_keys"] if _may_be_weight(name, weights)]):
        shown = ", ".join(left[:3]) + (", ..." if len(left) > 3 else "")
        raise SpecError(
            f"model {text!r}: {units.count(len(left), 'tensor')} of its files would not be used ({shown}), so it "
            f"would be measured smaller than it was saved; does {config} say what was saved, such as "
            f"{family.names['layers']}?"
        )
    return networks.with_tensors(loaded, family.fed)


def _may_be_weight(name: str, weights: Mapping[str, torch.Tensor]) -> bool:
    """Return whether a tensor of the files may be of weights.

    Whole numbers and single ones are not: positions and masks are, which older versions of transformers saved, too.
    """
    tensor = weights.get(name)
    return tensor is None or bool(tensor.is_floating_point() and tensor.ndim)


def _left_out(network: Any, loaded: torch.nn.Module, unused: Iterable[str]) -> list[str]:
    """Return the names of those tensors of the files, of ``unused`` ones, that belong to the body of the network.

    What is left is another head, or the pooler that comes with one, and is not what the configuration is of.
    """
    prefix = f"{network.base_model_prefix}."
    body = getattr(loaded, network.base_model_prefix, loaded)
    parts = {name.partition(".")[0] for name, _ in body.named_children()} - {_POOLER}
    return sorted(name for name in unused if name.removeprefix(prefix).partition(".")[0] in parts)


def _network_of(text: str, config: Path, family: str, named: object) -> str:
    row = FAMILIES[family]
    if row.fed == SOUND:
        return row.networks[BARE]
    known = [*row.networks.values(), *row.also]
    if named is None or named == []:
        return row.networks[BARE]
    if isinstance(named, list) and len(named) == 1 and named[0] in known:
        return str(named[0])
    raise SpecError(
        f"model {text!r}: {config} has the architectures {one_line(repr(named))} (built here: {', '.join(known)})"
    )


def _refuse_huge(text: str, config: Path, data: Mapping[str, Any]) -> None:
    """Raise SpecError for a number that would take the memory of a machine before anything is compared with a file."""
    for name, value in data.items():
        most = MOST["layers"] if "layer" in name and "_id" not in name else MOST["vocab"]
        if name == "num_labels":
            most = MOST_OTHER
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > most:
            raise SpecError(f"model {text!r}: {config} has {name}={value:.3g} (allowed: at most {most})")


def _sizes(text: str, config: Path, family: Family, data: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    names = {**family.names, **({"image": "image_size", "channels": "num_channels"} if family.fed == IMAGES else {})}
    for ours, theirs in names.items():
        value = data.get(theirs)
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            found[ours] = value
        elif ours not in _OPTIONAL or value is not None:
            raise SpecError(
                f"model {text!r}: {config} has {theirs}={one_line(repr(value))} (expected a whole number >= 1)"
            )
    found.setdefault("intermediate", 4 * found["hidden"])
    if family.fed == TEXT and found["positions"] <= family.reserved:
        raise SpecError(f"model {text!r}: {config} has positions for no token")
    return found


def _shards(text: str, index: Path) -> list[Path]:
    refuse_escape(text, index)
    try:
        if index.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SpecError(f"model {text!r}: {index} is no index of weights: {one_line(str(error))}") from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise SpecError(
                f"model {text!r}: {index} names {one_line(repr(name))} (allowed: a file NAME.safetensors beside it)"
            )
        if not (index.parent / name).is_file():
            raise SpecError(f"model {text!r}: {index} names {name!r}, which is not beside it")
    if not names or len(names) > _MOST_SHARDS:
        raise SpecError(f"model {text!r}: {index} names {len(names)} files (allowed: 1 to {_MOST_SHARDS})")
    return [index.parent / name for name in names]


def _configuration(saved: Saved, given: Mapping[str, str]) -> Any:
    kind = networks.config_class(saved.family)
    taken = ({*kind.__annotations__} | _MORE_FIELDS) - _NOT_TAKEN
    fields = {name: value for name, value in saved.data.items() if name in taken}
    return kind(**fields, attn_implementation=given.get("attention", "sdpa"), use_cache=False)


def _refuse_more_than_there_is(text: str, config: Path, paths: list[Path], network: Any, made: Any) -> None:
    """Raise SpecError for a larger network than the files have weights for, before it takes memory."""
    import torch

    def on_meta() -> int:
        with torch.device("meta"):
            return sum(each.numel() for each in network(made).parameters())

    asked = guarded(text, f"building what {config} says", on_meta)
    there = sum(guarded(text, f"reading {path}", partial(_count, path)) for path in paths)
    # A tied matrix is stored once.
    if asked > 2 * there:
        raise SpecError(
            f"model {text!r}: {config} is of a network with {asked} parameters, and its files have {there}; they do "
            "not belong together"
        )


def _count(path: Path) -> int:
    import math

    from safetensors import safe_open

    with safe_open(path, framework="pt") as opened:
        return sum(math.prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    import torch
    from safetensors.torch import load_file

    loaded = load_file(path)
    return {name: each.to(torch.float32) if each.is_floating_point() else each for name, each in loaded.items()}


def _of_encoder(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of Whisper's encoder by their names in it."""
    stem = next((stem for stem in ("model.encoder.", "encoder.") if any(each.startswith(stem) for each in weights)), "")
    return {name[len(stem) :]: each for name, each in weights.items() if name.startswith(stem)}


def _loaded(network: Any, made: Any, weights: Mapping[str, torch.Tensor]) -> Any:
    """Load weights from memory: no file, no name and so no network is asked for anything."""
    import torch

    return network.from_pretrained(
        None, config=made, state_dict=dict(weights), dtype=torch.float32, output_loading_info=True
    )
