"""Transformers by name: what a reference asks for, what is built of it, what it is fed, and what is refused."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest

from pytest_ngraph.errors import SpecError, Unsupported
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import keys
from pytest_ngraph.workloads.kinds import Models, parse_model
from pytest_ngraph.workloads.kinds.axes import axes_taken, axis_values
from pytest_ngraph.workloads.kinds.transformers import networks, options
from pytest_ngraph.workloads.kinds.transformers.sizes import ARCHITECTURES, FAMILIES
from tests.conftest import skip_without

TINY = {
    "bert-base-uncased": "heads=2,hidden=32,layers=2,positions=24,vocab=60",
    "all-MiniLM-L6-v2": "heads=2,hidden=32,layers=2,positions=24,vocab=60",
    "distilbert-base-uncased": "heads=2,hidden=32,layers=2,positions=24,vocab=60",
    "roberta-base": "heads=2,hidden=32,layers=2,positions=24,vocab=60",
    "gpt2": "heads=2,hidden=32,layers=2,positions=24,vocab=60",
    "llama-68m": "heads=4,hidden=32,kv_heads=2,layers=2,positions=24,vocab=60",
    "deit-tiny-patch16-224": "heads=2,hidden=32,layers=2,labels=10",
    "whisper-tiny": "heads=2,hidden=32,layers=2,positions=20",
}


def tiny(name: str, more: str = "") -> str:
    return f"transformers:{name}[{TINY[name]}{more}]"


def workload(text: str, batch: int = 2, **axes: Any) -> Workload:
    if "deit" in text:
        axes.setdefault("image_size", 32)
    return Workload(parse_model(text), batch, **axes)


def built(text: str, batch: int = 2, seed: int = 0, **axes: Any) -> Any:
    skip_without("torch", "transformers")
    from pytest_ngraph.workloads.building import build

    return build(workload(text, batch, **axes), seed)


# References


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("transformers:bert-base-uncased", "transformers:bert-base-uncased"),
        ("transformers:bert-base-uncased[ vocab=100 , layers=2]", "transformers:bert-base-uncased[layers=2,vocab=100]"),
        ("transformers:bert-base-uncased[layers=12]", "transformers:bert-base-uncased"),
        ("transformers:bert-base-uncased[mask=full,attention=sdpa,head=classifier]", "transformers:bert-base-uncased"),
        ("transformers:bert-base-uncased[hidden=24,intermediate=96]", "transformers:bert-base-uncased[hidden=24]"),
        ("transformers:bert-base-uncased[mask=lengths]", "transformers:bert-base-uncased[mask=lengths]"),
        ("transformers:SmolLM2-135M[heads=3,hidden=48]", "transformers:SmolLM2-135M[heads=3,hidden=48]"),
    ],
)
def test_a_reference_is_written_one_way_without_what_changes_nothing(text: str, written: str) -> None:
    model = parse_model(text)

    assert (model.text, model.locator) == (written, written.partition(":")[2])
    assert Models().spelled(text) == written
    assert Models().bare(text) == text.partition("[")[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bert-base-uncase", "no model 'bert-base-uncase' in the table of sizes (close: bert-base-uncased"),
        ("BERT-Base-Uncased", "(close: bert-base-uncased"),
        ("zzz", "in the table of sizes (there are: bert-base-uncased, "),
        ("bert-base-uncased[layer=2]", "it has no option 'layer' (it takes: layers, hidden, heads"),
        ("bert-base-uncased[layer=2]", "did you mean layers?"),
        ("bert-base-uncased[layers]", "'layers' in its brackets (expected option=value)"),
        ("bert-base-uncased[layers=2,layers=3]", "'layers' is given twice"),
        ("bert-base-uncased[layers=0]", "layers=0 is not allowed (allowed: a whole number from 1 to 1000)"),
        ("bert-base-uncased[layers=9999999999999]", "(allowed: a whole number from 1 to 1000)"),
        ("bert-base-uncased[vocab=1]", "vocab=1 is not allowed (allowed: a whole number from 4"),
        ("bert-base-uncased[hidden=100]", "hidden=100 is no multiple of heads=12 (heads that fit: 1, 2, 4, 5"),
        ("bert-base-uncased[mask=half]", "mask=half is not allowed (allowed: full, lengths)"),
        ("bert-base-uncased[head=language,labels=x]", "labels=x is not allowed"),
        ("gpt2[head=classifier]", "head=classifier is not allowed (allowed: language, none)"),
        ("deit-tiny-patch16-224[mask=full]", "it has no option 'mask'"),
        ("llama-68m[kv_heads=5]", "heads=12 is no multiple of kv_heads=5"),
        ("llama-68m[hidden=36,heads=12]", "hidden=36 over heads=12 is 3, which has to be even"),
        ("bert-base-uncased[layers=2", "expected NAME or NAME[option=value,...]"),
    ],
)
def test_what_a_reference_cannot_ask_for_is_refused_with_what_it_can(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_model(f"transformers:{text}")
    assert said in str(caught.value)
    # As it was written, not as the table has it.
    assert str(caught.value).startswith(f"model 'transformers:{text}': ")


def test_lengths_and_sizes_that_do_not_fit_are_refused_when_tests_are_collected() -> None:
    bert, roberta = parse_model("transformers:bert-base-uncased"), parse_model("transformers:roberta-base")
    assert axis_values(Workload(bert)) == {"sequence": 128}
    assert axis_values(Workload(roberta, sequence=512)) == {"sequence": 512}
    assert axis_values(Workload(parse_model("transformers:gpt2[positions=64]"))) == {"sequence": 64}
    assert axes_taken(parse_model("transformers:vit-base-patch16-224")) == {"image_size"}
    assert axes_taken(parse_model("transformers:whisper-tiny")) == frozenset()
    with pytest.raises(SpecError, match=r"sequence is 513 \(allowed: at most 512, .*\[positions=515\] gives it more"):
        axis_values(Workload(roberta, sequence=513))
    with pytest.raises(SpecError, match="does not take image_size"):
        axis_values(Workload(bert, image_size=64))
    with pytest.raises(SpecError, match=r"image_size is 15 \(allowed: 16 or more, the side of a patch\)"):
        axis_values(Workload(parse_model("transformers:vit-base-patch16-224"), image_size=15))


def test_every_row_of_the_table_can_be_asked_for() -> None:
    for name, row in ARCHITECTURES.items():
        assert options.normal(name) == name
        assert row.head in FAMILIES[row.family].networks
        assert set(row.sizes) == set(FAMILIES[row.family].names)
        assert axis_values(Workload(parse_model(f"transformers:{name}"))) is not None


def test_size_mask_and_seed_are_in_the_key_and_no_name_of_a_default_is() -> None:
    def key(text: str, seed: int = 0, **axes: int) -> str:
        return keys.sample_key(Workload(parse_model(f"transformers:{text}"), **axes), seed, {})  # type: ignore[arg-type]

    plain = key("bert-base-uncased")
    others = [key("bert-base-uncased[layers=2]"), key("bert-base-uncased[mask=lengths]"), key("bert-base-cased")]
    others += [key("bert-base-uncased[attention=eager]"), key("bert-base-uncased", 1)]
    others += [key("bert-base-uncased", sequence=64)]
    assert len({plain, *others}) == 1 + len(others)
    assert key("bert-base-uncased[layers=12]") == key("bert-base-uncased", sequence=128) == plain


def test_more_weights_than_there_is_memory_are_refused_before_anything_is_built() -> None:
    skip_without("torch", "transformers")
    text = "transformers:bert-base-uncased[hidden=65536,heads=64,layers=1000]"
    with pytest.raises(Unsupported, match=r"its weights take \d+ GiB in f32 at least, and this machine has \d+ GiB"):
        built(text)


# What is built


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # 417.65 MiB of f32: the third paper's figure for BERT.
        ("bert-base-uncased", 109_483_778),
        ("bert-base-uncased[head=none]", 109_482_240),
        ("bert-base-uncased[head=language]", 109_514_298),
        ("bert-large-uncased", 335_143_938),
        ("bert-tiny", 4_386_178),
        ("all-MiniLM-L6-v2", 22_713_216),
        ("distilbert-base-uncased", 66_955_010),
        ("roberta-base", 124_647_170),
        ("vit-base-patch16-224", 86_567_656),
        ("deit-tiny-patch16-224", 5_717_416),
        ("gpt2", 124_439_808),
        ("distilgpt2", 81_912_576),
        ("SmolLM2-135M", 134_515_008),
        ("TinyLlama-1.1B", 1_100_048_384),
        ("whisper-tiny", 8_208_384),
    ],
)
def test_a_name_has_the_parameters_that_are_published_for_it(name: str, parameters: int) -> None:
    skip_without("torch", "transformers")
    import torch

    wanted = options.wanted(name)
    with torch.device("meta"):
        module = networks.make(wanted, {"image_size": 224})
    found = sum(each.numel() for each in module.parameters())

    assert found == parameters
    assert 0.7 * found < networks.least_parameters(wanted) <= found


@pytest.mark.parametrize("name", TINY)
def test_each_architecture_gives_tensors_that_depend_on_each_input(name: str) -> None:
    made = built(tiny(name))
    import torch

    axes = axis_values(workload(tiny(name)))
    first = made.example_inputs(2)
    with torch.no_grad():
        outputs = made.module(**first)
        others = made.module(**made.example_inputs(2))
    assert type(outputs) is tuple
    assert all(type(each) is torch.Tensor and each.shape[0] == 2 for each in outputs)
    for one, other in zip(outputs, others, strict=True):
        apart = (one - other).norm() / one.norm()
        assert apart > 0.01, f"other inputs change outputs by {apart:.2g}"
    if "sequence" in axes:
        assert [*first] == ["input_ids", "attention_mask"]
        assert all(each.dtype == torch.int64 and each.shape == (2, axes["sequence"]) for each in first.values())
        assert made.example_inputs(3, sequence=7)["input_ids"].shape == (3, 7)


@pytest.mark.parametrize("name", [name for name in TINY if "deit" not in name and "whisper" not in name])
def test_a_mask_of_lengths_pads_on_the_right_and_counts(name: str) -> None:
    made = built(tiny(name, ",mask=lengths"))
    import torch

    torch.manual_seed(0)
    fed = made.example_inputs(64)
    ids, mask = fed["input_ids"], fed["attention_mask"]
    lengths = mask.sum(dim=1)
    pad = networks.pad_of(made.module.network.config)
    assert int(lengths.min()) >= 1
    assert len(set(lengths.tolist())) > 8
    assert bool((mask[:, :-1] >= mask[:, 1:]).all())
    assert bool(((ids == pad) == (mask == 0)).all())
    with torch.no_grad():
        masked = made.module(**fed)[0]
        unmasked = made.module(ids, torch.ones_like(mask))[0]
    assert bool(masked.isfinite().all())
    if "gpt2" in name or "llama" in name:
        # Nothing of a causal network looks at what comes after it: there only padded rows may differ.
        masked, unmasked = masked[mask == 0], unmasked[mask == 0]
    assert float((masked - unmasked).norm() / masked.norm()) > 1e-3


def test_another_seed_gives_other_weights_and_the_same_seed_the_same() -> None:
    one, again, other = (built(tiny("bert-base-uncased"), seed=seed) for seed in (0, 0, 1))
    import torch

    weights = [each.module.network.bert.encoder.layer[1].output.dense.weight for each in (one, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_attention_is_what_was_asked_for_and_gives_the_same() -> None:
    made = [built(tiny("bert-base-uncased", more)) for more in ("", ",attention=eager")]
    import torch

    assert [each.module.network.config._attn_implementation for each in made] == ["sdpa", "eager"]
    fed = made[0].example_inputs(2)
    with torch.no_grad():
        first, second = (each.module(**fed)[0] for each in made)
    assert torch.allclose(first, second, atol=1e-5)


def test_nothing_asks_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("torch", "transformers")

    def refuse(*given: Any, **named: Any) -> Any:
        raise AssertionError(f"a connection to {given} {named}")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in TINY:
        made = built(tiny(name))
        made.module(**made.example_inputs(1))


def test_reading_a_reference_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom pytest_ngraph.workloads.kinds import parse_model\n"
        "from pytest_ngraph.workloads.kinds.axes import axes_taken\n"
        "axes_taken(parse_model('transformers:bert-base-uncased[layers=2]'))\n"
        "heavy = {'torch', 'transformers', 'safetensors', 'numpy'} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
