"""The table of sizes: which architectures there are, and what the models of a name are made of.

Sizes are those of the configuration that the hub has under that name. Nothing of it is downloaded, so a model that is
not here needs its folder, or a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TEXT, IMAGES, SOUND = "text", "images", "sound"
# What a network ends with: nothing, a classifier, or a score for each word of the vocabulary.
BARE, CLASSIFIER, LANGUAGE = "none", "classifier", "language"


@dataclass(frozen=True, slots=True)
class Family:
    """An architecture of transformers: its configuration class, its networks by what they end with, what it is fed.

    ``names`` maps the sizes that may be asked for to what the configuration calls them. ``also`` are networks that a
    folder may have besides. ``reserved`` are the positions that its table of positions has more than it takes tokens.
    """

    config: str
    networks: Mapping[str, str]
    fed: str
    names: Mapping[str, str]
    also: tuple[str, ...] = ()
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model of a name: its family, what it ends with, its sizes, and what else its configuration says."""

    family: str
    head: str
    sizes: Mapping[str, int]
    more: Mapping[str, object] = field(default_factory=dict)


_BERT_SIZES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
    "positions": "max_position_embeddings",
    "labels": "num_labels",
}
FAMILIES: Mapping[str, Family] = {
    "bert": Family(
        "BertConfig",
        {BARE: "BertModel", CLASSIFIER: "BertForSequenceClassification", LANGUAGE: "BertForMaskedLM"},
        TEXT,
        _BERT_SIZES,
        ("BertForPreTraining", "BertForQuestionAnswering", "BertForTokenClassification"),
    ),
    "distilbert": Family(
        "DistilBertConfig",
        {
            BARE: "DistilBertModel",
            CLASSIFIER: "DistilBertForSequenceClassification",
            LANGUAGE: "DistilBertForMaskedLM",
        },
        TEXT,
        {
            **_BERT_SIZES,
            "layers": "n_layers",
            "hidden": "dim",
            "heads": "n_heads",
            "intermediate": "hidden_dim",
        },
        ("DistilBertForQuestionAnswering", "DistilBertForTokenClassification"),
    ),
    "roberta": Family(
        "RobertaConfig",
        {BARE: "RobertaModel", CLASSIFIER: "RobertaForSequenceClassification", LANGUAGE: "RobertaForMaskedLM"},
        TEXT,
        _BERT_SIZES,
        ("RobertaForQuestionAnswering", "RobertaForTokenClassification"),
        reserved=2,
    ),
    "gpt2": Family(
        "GPT2Config",
        {BARE: "GPT2Model", LANGUAGE: "GPT2LMHeadModel"},
        TEXT,
        {
            "layers": "n_layer",
            "hidden": "n_embd",
            "heads": "n_head",
            "intermediate": "n_inner",
            "vocab": "vocab_size",
            "positions": "n_positions",
        },
    ),
    "llama": Family(
        "LlamaConfig",
        {BARE: "LlamaModel", LANGUAGE: "LlamaForCausalLM"},
        TEXT,
        {
            "layers": "num_hidden_layers",
            "hidden": "hidden_size",
            "heads": "num_attention_heads",
            "kv_heads": "num_key_value_heads",
            "intermediate": "intermediate_size",
            "vocab": "vocab_size",
            "positions": "max_position_embeddings",
        },
    ),
    "vit": Family(
        "ViTConfig",
        {BARE: "ViTModel", CLASSIFIER: "ViTForImageClassification"},
        IMAGES,
        {
            "layers": "num_hidden_layers",
            "hidden": "hidden_size",
            "heads": "num_attention_heads",
            "intermediate": "intermediate_size",
            "patch": "patch_size",
            "labels": "num_labels",
        },
    ),
    "whisper": Family(
        "WhisperConfig",
        {BARE: "WhisperEncoder"},
        SOUND,
        {
            "layers": "encoder_layers",
            "hidden": "d_model",
            "heads": "encoder_attention_heads",
            "intermediate": "encoder_ffn_dim",
            "mels": "num_mel_bins",
            "positions": "max_source_positions",
        },
        ("WhisperModel", "WhisperForConditionalGeneration"),
    ),
}


def _bert(layers: int, hidden: int, heads: int, vocab: int = 30522, intermediate: int = 0) -> dict[str, int]:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "intermediate": intermediate or 4 * hidden}
    return {**sizes, "vocab": vocab, "positions": 512, "labels": 2}


def _roberta(layers: int, hidden: int, heads: int) -> Architecture:
    sizes = {**_bert(layers, hidden, heads, 50265), "positions": 514}
    return Architecture("roberta", CLASSIFIER, sizes, {"type_vocab_size": 1, "layer_norm_eps": 1e-5})


def _vit(layers: int, hidden: int, heads: int) -> Architecture:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "intermediate": 4 * hidden}
    return Architecture("vit", CLASSIFIER, {**sizes, "patch": 16, "labels": 1000})


def _gpt2(layers: int, hidden: int, heads: int) -> Architecture:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "intermediate": 4 * hidden}
    return Architecture("gpt2", LANGUAGE, {**sizes, "vocab": 50257, "positions": 1024})


def _llama(
    layers: int, hidden: int, heads: tuple[int, int], intermediate: int, vocab: int, positions: int, **more: object
) -> Architecture:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads[0], "kv_heads": heads[1]}
    sizes |= {"intermediate": intermediate, "vocab": vocab, "positions": positions}
    return Architecture("llama", LANGUAGE, sizes, more)


def _whisper(layers: int, hidden: int, heads: int) -> Architecture:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "intermediate": 4 * hidden}
    return Architecture("whisper", BARE, {**sizes, "mels": 80, "positions": 1500})


_SMOLLM = {
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
}
ARCHITECTURES: Mapping[str, Architecture] = {
    "bert-base-uncased": Architecture("bert", CLASSIFIER, _bert(12, 768, 12)),
    "bert-base-cased": Architecture("bert", CLASSIFIER, _bert(12, 768, 12, 28996)),
    "bert-large-uncased": Architecture("bert", CLASSIFIER, _bert(24, 1024, 16)),
    "bert-tiny": Architecture("bert", CLASSIFIER, _bert(2, 128, 2)),
    "all-MiniLM-L6-v2": Architecture("bert", BARE, _bert(6, 384, 12)),
    "all-MiniLM-L12-v2": Architecture("bert", BARE, _bert(12, 384, 12)),
    "distilbert-base-uncased": Architecture("distilbert", CLASSIFIER, _bert(6, 768, 12)),
    "roberta-base": _roberta(12, 768, 12),
    "roberta-large": _roberta(24, 1024, 16),
    "distilroberta-base": _roberta(6, 768, 12),
    "vit-base-patch16-224": _vit(12, 768, 12),
    "vit-large-patch16-224": _vit(24, 1024, 16),
    "deit-tiny-patch16-224": _vit(12, 192, 3),
    "deit-small-patch16-224": _vit(12, 384, 6),
    "gpt2": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "distilgpt2": _gpt2(6, 768, 12),
    "llama-68m": _llama(2, 768, (12, 12), 3072, 32000, 2048, rms_norm_eps=1e-6),
    "SmolLM2-135M": _llama(30, 576, (9, 3), 1536, 49152, 8192, **_SMOLLM),
    "SmolLM2-360M": _llama(32, 960, (15, 5), 2560, 49152, 8192, **_SMOLLM),
    "TinyLlama-1.1B": _llama(22, 2048, (32, 4), 5632, 32000, 2048, rms_norm_eps=1e-5),
    "whisper-tiny": _whisper(4, 384, 6),
    "whisper-base": _whisper(6, 512, 8),
    "whisper-small": _whisper(12, 768, 12),
}


def rough_macs(family: str, head: str, sizes: Mapping[str, int], values: Mapping[str, int]) -> float:
    """Return about how many multiply-accumulates a sample of these values of axes is: its matrix products."""
    fed, hidden = FAMILIES[family].fed, sizes["hidden"]
    tokens = float(values.get("sequence", 1)) if fed == TEXT else float(sizes.get("positions", 1))
    if fed == IMAGES:
        tokens = (values.get("image_size", sizes["patch"]) / sizes["patch"]) ** 2
    # A gated layer in between has a third matrix.
    inner = (3 if family == "llama" else 2) * hidden * sizes["intermediate"]
    layers = sizes["layers"] * tokens * (4 * hidden**2 + inner + 2 * tokens * hidden)
    return layers + (tokens * hidden * sizes["vocab"] if head == LANGUAGE else 0.0)
