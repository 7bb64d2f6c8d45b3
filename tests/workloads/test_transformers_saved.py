"""Folders of transformers: their weights as they are, their content as the key, and nothing in them run or fetched."""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.devices.wire import shipping
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import Models, kind_of
from pytest_ngraph.workloads.kinds.axes import axis_values
from pytest_ngraph.workloads.kinds.transformers import networks, options
from pytest_ngraph.workloads.kinds.transformers.sizes import FAMILIES
from tests.conftest import skip_without

TINY = {
    "bert": "bert-base-uncased[heads=2,hidden=32,layers=1,positions=24,vocab=60]",
    "distilbert": "distilbert-base-uncased[head=language,heads=2,hidden=32,layers=1,positions=24,vocab=60]",
    "roberta": "roberta-base[heads=2,hidden=32,layers=1,positions=24,vocab=60]",
    "gpt2": "gpt2[heads=2,hidden=32,layers=1,positions=24,vocab=60]",
    "llama": "llama-68m[heads=4,hidden=32,kv_heads=2,layers=1,positions=24,vocab=60]",
    "vit": "deit-tiny-patch16-224[heads=2,hidden=32,layers=1,labels=10]",
    "whisper": "whisper-tiny[heads=2,hidden=32,layers=1,positions=20]",
}


def save(folder: Path, name: str = "bert", seed: int = 0, reference: str = "", **more: Any) -> Any:
    """Write a folder as save_pretrained does, and return the network that was saved."""
    skip_without("torch", "transformers", "safetensors")
    import torch

    torch.manual_seed(seed)
    made = networks.make(options.wanted(reference or TINY[name]), {"image_size": 32})
    made.eval()
    made.network.save_pretrained(folder, **more)
    return made


def change(folder: Path, **fields: Any) -> None:
    config = folder / "config.json"
    data = {**json.loads(config.read_text()), **fields}
    config.write_text(json.dumps({name: value for name, value in data.items() if value is not None}))


def parse(folder: Path, more: str = "") -> Any:
    return Models().parse(f"transformers:./{folder.name}{more}", [folder.parent])


def built(folder: Path, more: str = "", **axes: int) -> Any:
    from pytest_ngraph.workloads.building import build

    return build(Workload(parse(folder, more), 2, **axes), 0)  # type: ignore[arg-type]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where anything asks for a connection."""

    def refuse(*given: Any, **named: Any) -> Any:
        raise AssertionError(f"a connection to {given} {named}")

    for owner, name in ((socket, "create_connection"), (socket, "getaddrinfo"), (socket.socket, "connect")):
        monkeypatch.setattr(owner, name, refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", TINY)
def test_a_folder_gives_what_the_network_gave_that_was_saved(name: str, tmp_path: Path) -> None:
    saved = save(tmp_path / "net", name)
    import torch

    made = built(tmp_path / "net")
    fed = made.example_inputs(2)
    with torch.no_grad():
        expected, given = saved(**fed), made.module(**fed)
    assert len(expected) == len(given)
    assert all(torch.equal(one, other) for one, other in zip(expected, given, strict=True))
    assert {Path(each).name for each in made.files} == {"config.json", "model.safetensors"}


@pytest.mark.usefixtures("no_network")
def test_shards_and_weights_of_another_type_are_read_as_f32(tmp_path: Path) -> None:
    saved = save(tmp_path / "net")
    import torch

    saved.network.to(torch.bfloat16).save_pretrained(tmp_path / "small", max_shard_size="8KB")
    made = built(tmp_path / "small")
    assert len(made.files) > 3
    assert {each.dtype for each in made.module.parameters()} == {torch.float32}
    rounded = saved.network.float().state_dict()
    assert all(torch.equal(rounded[name], each) for name, each in made.module.network.state_dict().items())


def test_the_encoder_is_taken_of_all_of_whisper(tmp_path: Path) -> None:
    skip_without("torch", "transformers", "safetensors")
    import torch

    config = networks.config_class("whisper")(
        d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, vocab_size=50300, max_source_positions=20, num_mel_bins=10,
    )  # fmt: skip
    whole = networks.network_class("whisper", "WhisperForConditionalGeneration")(config).eval()
    whole.save_pretrained(tmp_path / "net")
    made = built(tmp_path / "net")
    fed = made.example_inputs(2)
    with torch.no_grad():
        expected = whole.model.encoder(**fed).last_hidden_state
        assert torch.equal(made.module(**fed)[0], expected)


def test_the_key_follows_content_and_not_place(tmp_path: Path) -> None:
    keys = []
    for place, seed in (("a", 0), ("b/c", 0), ("other", 1)):
        save(tmp_path / place, seed=seed)
        workload = Workload(parse(tmp_path / place), 2)
        keys.append(artifacts.build(workload, 0, tmp_path / "artifacts", False).key)
    assert keys[0] == keys[1] != keys[2]
    change(tmp_path / "a", hidden_act="relu")
    workload = Workload(parse(tmp_path / "a"), 2)
    assert artifacts.find(workload, 0, tmp_path / "artifacts", False) is None
    assert artifacts.build(workload, 0, tmp_path / "artifacts", False).key not in keys


def test_a_reference_is_read_with_its_options_and_moves_with_its_files(tmp_path: Path) -> None:
    save(tmp_path / "net")
    model = parse(tmp_path / "net", "[mask=lengths,attention=sdpa]")
    kind = kind_of(model)
    assert (model.scheme, model.text) == ("transformers-folder", "transformers:./net[mask=lengths]")
    assert model.locator == f"{tmp_path}/net/config.json[mask=lengths]"
    assert kind.key_name(model) == "[mask=lengths]"
    assert axis_values(Workload(model)) == {"sequence": 24}
    bundle = shipping.bundle(model)
    assert [*bundle.contents] == ["config.json", "model.safetensors"]
    moved = shipping.located(bundle.reference, None, {bundle.name: tmp_path / "net"})
    assert moved.locator == model.locator
    with pytest.raises(SpecError, match=r"sequence is 25 \(allowed: at most 24, as it has 24 positions\)\Z"):
        axis_values(Workload(model, sequence=25))
    with pytest.raises(SpecError, match="it has no option 'layers'"):
        parse(tmp_path / "net", "[layers=2]")
    with pytest.raises(SpecError, match=r"no folder 'bert-base-uncased' in .*transformers:bert-base-uncased is in the"):
        Models().parse("transformers:google-bert/bert-base-uncased", [tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match=r"empty has no config\.json \(expected one that save_pretrained wrote"):
        parse(tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "decodes"),
    [("gpt2", True), ("llama", True), ("bert", False)],
)
def test_a_language_model_of_a_folder_decodes_as_that_of_a_name(name: str, decodes: bool, tmp_path: Path) -> None:
    save(tmp_path / "net", name)
    model = parse(tmp_path / "net")
    assert kind_of(model).decodes(model) is decodes
    if name == "gpt2":
        of_lengths = parse(tmp_path / "net", "[mask=lengths]")
        with pytest.raises(
            SpecError, match=r"^model 'transformers:./net\[mask=lengths\]': texts of lengths of their own"
        ):
            kind_of(of_lengths).decodes(of_lengths)
    if decodes:
        assert len(built(tmp_path / "net", sequence=7, decode=3).example_inputs(2)["next_tokens"][0]) == 3


def test_images_have_the_size_that_weights_are_for(tmp_path: Path) -> None:
    save(tmp_path / "net", "vit")
    model = parse(tmp_path / "net")
    assert axis_values(Workload(model)) == {"image_size": 32}
    with pytest.raises(SpecError, match=r"image_size is 64 \(allowed: 32, which its weights are for\)"):
        axis_values(Workload(model, image_size=64))


# What is somebody else's


class Bomb:
    """Leaves a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_never_opened(name: str, tmp_path: Path) -> None:
    save(tmp_path / "net")
    (tmp_path / "net/model.safetensors").unlink()
    (tmp_path / "net" / name).write_bytes(pickle.dumps(Bomb(tmp_path / "gone off")))
    with pytest.raises(SpecError, match=rf"no model\.safetensors in .* \({name}: loading such a file may run code"):
        parse(tmp_path / "net")
    (tmp_path / "net" / name).rename(tmp_path / "net/model.safetensors")
    with pytest.raises(SpecError, match=r"reading .*model\.safetensors raised SafetensorError"):
        built(tmp_path / "net")
    assert not (tmp_path / "gone off").exists()


def test_code_of_a_folder_is_never_run(tmp_path: Path) -> None:
    save(tmp_path / "net")
    code = f"import os\nos.mkdir({str(tmp_path / 'gone off')!r})\nclass Mine: pass\n"
    (tmp_path / "net/modeling_mine.py").write_text(code)
    built(tmp_path / "net")
    change(tmp_path / "net", auto_map={"AutoModel": "modeling_mine.Mine"})
    with pytest.raises(SpecError, match=r"asks for code of its own \(auto_map\), which is never run"):
        parse(tmp_path / "net")
    assert not (tmp_path / "gone off").exists()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_type": "mine"}, "the model_type 'mine' (built here: bert, distilbert"),
        ({"model_type": ["bert"]}, "the model_type ['bert']"),
        ({"model_type": "../../evil"}, "the model_type '../../evil'"),
        ({"architectures": ["BertForNextSentencePrediction"]}, "the architectures ['BertForNextSentencePrediction']"),
        ({"architectures": "os.system"}, "the architectures 'os.system' (built here: BertModel"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "is of quantised weights"),
        ({"position_embedding_type": "relative_key"}, "'relative_key' (built here: 'absolute')"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers=1e+06 (allowed: at most 1000)"),
        ({"vocab_size": 10**12}, "vocab_size=1e+12 (allowed: at most 4194304)"),
        ({"num_labels": 10**9}, "num_labels=1e+09 (allowed: at most 1048576)"),
        ({"hidden_size": -5}, "hidden_size=-5 (expected a whole number >= 1)"),
        ({"hidden_size": "768"}, "hidden_size='768' (expected a whole number >= 1)"),
        ({"max_position_embeddings": None}, "max_position_embeddings=None (expected a whole number >= 1)"),
    ],
)
def test_a_configuration_that_is_not_built_here_is_refused_when_it_is_read(
    fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    save(tmp_path / "net")
    change(tmp_path / "net", **fields)
    with pytest.raises(SpecError) as caught:
        parse(tmp_path / "net")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"vocab_size": 4_000_000}, "and its files have"),
        ({"intermediate_size": 1_000_000}, "they do not belong together"),
        ({"num_hidden_layers": 2}, "its files lack 16 weights of BertForSequenceClassification"),
        ({"architectures": ["BertForMaskedLM"]}, "weights of BertForMaskedLM (cls.predictions"),
        ({"hidden_act": "no_such_thing"}, "raised KeyError"),
        ({"num_attention_heads": 3}, "raised ValueError"),
        ({"intermediate_size": 120}, "loading "),
    ],
)
def test_a_configuration_that_its_weights_do_not_fit_is_refused_before_it_takes_memory(
    fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    save(tmp_path / "net")
    change(tmp_path / "net", **fields)
    with pytest.raises(SpecError) as caught:
        built(tmp_path / "net")
    assert said in str(caught.value)


@pytest.mark.parametrize("name", TINY)
def test_weights_of_more_layers_than_the_configuration_says_are_refused(name: str, tmp_path: Path) -> None:
    layers = FAMILIES[name].names["layers"]
    save(tmp_path / "net", name, reference=TINY[name].replace("layers=1", "layers=2"))
    assert built(tmp_path / "net").module is not None
    change(tmp_path / "net", **{layers: 1})
    with pytest.raises(SpecError) as caught:
        built(tmp_path / "net")
    said = str(caught.value)
    assert re.search(r"\d+ tensors of its files would not be used \([\w.]*\b1\.[\w.]+, .*, \.\.\.\)", said), said
    assert said.endswith(f"config.json say what was saved, such as {layers}?")


def test_weights_that_its_layers_have_no_place_for_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "net", "llama")
    from safetensors.torch import load_file, save_file

    path = tmp_path / "net/model.safetensors"
    weights = load_file(path)
    bias = "model.layers.0.self_attn.q_proj.bias"
    save_file({**weights, bias: weights["model.norm.weight"].clone()}, path, metadata={"format": "pt"})
    with pytest.raises(SpecError, match=rf"1 tensor of its files would not be used \({re.escape(bias)}\)"):
        built(tmp_path / "net")


def test_what_older_versions_saved_beside_the_weights_is_left_out(tmp_path: Path) -> None:
    """As files of GPT-2 from older versions have the number that stands for what is masked."""
    save(tmp_path / "net", "gpt2")
    import torch
    from safetensors.torch import load_file, save_file

    path = tmp_path / "net/model.safetensors"
    masked = {"transformer.h.0.attn.masked_bias": torch.tensor(-1e4), "transformer.h.0.attn.steps": torch.arange(4)}
    save_file({**load_file(path), **masked}, path, metadata={"format": "pt"})
    assert built(tmp_path / "net").module is not None


def test_another_head_and_its_pooler_are_left_out(tmp_path: Path) -> None:
    skip_without("torch", "transformers", "safetensors")
    import torch

    config = networks.configuration(options.wanted(TINY["bert"]), {})
    whole = networks.network_class("bert", "BertForPreTraining")(config).eval()
    whole.save_pretrained(tmp_path / "net")
    for network, body in (("BertForMaskedLM", "bert"), ("BertModel", "")):
        change(tmp_path / "net", architectures=[network])
        made = built(tmp_path / "net").module.network
        table = (getattr(made, body) if body else made).embeddings.word_embeddings.weight
        assert torch.equal(table, whole.bert.embeddings.word_embeddings.weight)


@pytest.mark.usefixtures("no_network")
def test_a_configuration_does_not_choose_kernels_or_names(tmp_path: Path) -> None:
    save(tmp_path / "net")
    odd = {"_attn_implementation": "kernels-community/flash-attn", "attn_implementation": "somebody/kernel"}
    change(tmp_path / "net", **odd, _name_or_path="somebody/net", fusion_config={"a": 1}, torchscript=True)
    made = built(tmp_path / "net", "[attention=eager]")
    assert made.module.network.config._attn_implementation == "eager"
    assert type(made.module(**made.example_inputs(1))) is tuple


@pytest.mark.parametrize(
    "content", ["", "[]", "nul", '{"model_type": "bert"', "[" * 100_000, '{"model_type": "bert", "x": NaN}']
)
def test_what_is_no_configuration_is_refused(content: str, tmp_path: Path) -> None:
    save(tmp_path / "net")
    (tmp_path / "net/config.json").write_text(content)
    with pytest.raises(SpecError, match=r"config\.json (cannot be read as JSON|holds list|has )"):
        parse(tmp_path / "net")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_link_out_of_the_folder_is_refused_but_for_the_cache_of_the_hub(name: str, tmp_path: Path) -> None:
    save(tmp_path / "net")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "net" / name).rename(tmp_path / "elsewhere" / name)
    (tmp_path / "net" / name).symlink_to(tmp_path / "elsewhere" / name)
    with pytest.raises(SpecError, match="is a link out of its folder"):
        parse(tmp_path / "net")

    snapshot, blobs = tmp_path / "models--me--net/snapshots/0123", tmp_path / "models--me--net/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for each in ("config.json", "model.safetensors"):
        (tmp_path / "net" / each).resolve().rename(blobs / each.upper())
        (snapshot / each).symlink_to(f"../../blobs/{each.upper()}")
    assert built(snapshot).module is not None


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({"weight_map": {"a": "../net2/model.safetensors"}}, "names '../net2/model.safetensors' (allowed: a file"),
        ({"weight_map": {"a": "/etc/passwd"}}, "names '/etc/passwd' (allowed: a file NAME.safetensors"),
        ({"weight_map": {"a": "shard.bin"}}, "names 'shard.bin'"),
        ({"weight_map": {"a": "gone.safetensors"}}, "names 'gone.safetensors', which is not beside it"),
        ({"weight_map": {}}, "names 0 files (allowed: 1 to 1000)"),
        ({"weight_map": ["a"]}, "is no index of weights"),
    ],
)
def test_an_index_names_files_beside_it(index: dict[str, Any], said: str, tmp_path: Path) -> None:
    save(tmp_path / "net")
    (tmp_path / "net/model.safetensors").unlink()
    (tmp_path / "net/model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(SpecError) as caught:
        parse(tmp_path / "net")
    assert said in str(caught.value)
