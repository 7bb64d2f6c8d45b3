"""Kinds of nodes: which do the model's own arithmetic, and which a compiler adds to move numbers about."""

from __future__ import annotations

import re
from collections.abc import Mapping

# How runtimes call what ONNX calls otherwise, in lower case and without the marks of layouts and fusions.
_SAME: Mapping[str, str] = {
    "convolution": "conv", "conv2d": "conv", "conv1d": "conv", "conv3d": "conv", "qlinearconv": "conv",
    "fusedconv": "conv", "nhwcfusedconv": "conv", "convinteger": "conv", "groupconvolution": "conv",
    "mkldnn_convolution": "conv", "cudnn_convolution": "conv", "thnn_conv2d": "conv", "deconvolution": "convtranspose",
    "linear": "matmul", "gemm": "matmul", "fusedgemm": "matmul", "addmm": "matmul", "mm": "matmul", "bmm": "matmul",
    "fusedmatmul": "matmul", "fullyconnected": "matmul", "qlinearmatmul": "matmul", "qgemm": "matmul",
    "matmulinteger": "matmul", "matmulintegertofloat": "matmul", "dynamicquantizematmul": "matmul",
    "batch_norm": "batchnormalization", "batchnorm": "batchnormalization", "native_batch_norm": "batchnormalization",
    "layer_norm": "layernormalization", "mvn": "layernormalization", "qlinearadd": "add", "eltwise": "add",
    "sum": "add", "max_pool2d": "maxpool", "max_pool2d_with_indices": "maxpool", "nhwcmaxpool": "maxpool",
    "pooling": "maxpool",
    "adaptive_avg_pool2d": "averagepool", "avg_pool2d": "averagepool", "globalaveragepool": "averagepool",
    "qlinearglobalaveragepool": "averagepool", "qlinearaveragepool": "averagepool", "avgpool": "averagepool",
    "mean": "reducemean", "reduce": "reducemean", "qlinearreducemean": "reducemean", "clamp": "clip",
    "hardtanh": "clip", "relu6": "clip", "sigmoid": "sigmoid", "qlinearsigmoid": "sigmoid", "softmax": "softmax",
    "qlinearsoftmax": "softmax", "qlinearmul": "mul", "multiply": "mul", "qlinearconcat": "concat", "cat": "concat",
}  # fmt: skip
_QUANTISE = ("quantizelinear", "quantize_per_tensor", "fakequantize", "quantize")
_DEQUANTISE = ("dequantizelinear", "dequantize")
# What moves numbers into another layout, type or place, by words in the name of its kind.
_REORDERS = ("reorder", "reformat", "layout_transform", "to_mkldnn")
_CASTS = ("cast", "convert", "_to_copy", "to_dtype")
_COPIES = ("memcpy", "copy", "clone", "contiguous")
# What runtimes do without running anything.
_RESHAPES = ("reshape", "flatten", "squeeze", "unsqueeze", "identity", "dropout", "constant", "shape", "view")
# In the order in which a sentence names them.
ADDED = ("Q/DQ", "reorders", "casts", "copies")
_NUMBERED = re.compile(r"[_\d]*\Z")


def plain(operator: str) -> str:
    """Return the kind of an operator as kinds are compared, whatever a runtime calls it."""
    word = operator.rpartition("::")[2].rpartition(".")[2].lower()
    word = word.removesuffix("_kernel").rstrip("_")
    return _SAME.get(word, word)


def same_operator(one: str, other: str) -> bool:
    """Tell whether two kinds are the same, as two runtimes call them."""
    return plain(one) == plain(other)


def is_quantising(operator: str) -> str:
    """Return ``Q`` for what brings numbers into integers, ``DQ`` for what brings them back, or nothing."""
    word = plain(operator)
    return "DQ" if word in _DEQUANTISE else "Q" if word in _QUANTISE else ""


def only_reshapes(operator: str) -> bool:
    """Tell whether a kind computes nothing, so that no other node is said to compute it."""
    return plain(operator) in _RESHAPES


def added_kind(operator: str, name: str = "", *, is_of_the_model: bool = False) -> str:
    """Return what of ``ADDED`` a node is, or nothing for one that does arithmetic.

    A transposition or a shuffle, as of channels, is a reorder where the model has none there.
    """
    word, plain_name = plain(operator), name.lower()
    if is_quantising(operator) or (word == "subgraph" and plain_name.endswith(("quantizelinear", "quantize"))):
        return "Q/DQ"
    may_be_of_a_model = word in ("transpose", "permute") or "shuffle" in word
    if any(part in word for part in _REORDERS) or (may_be_of_a_model and not is_of_the_model):
        return "reorders"
    if any(part in word for part in _CASTS):
        return "" if is_of_the_model else "casts"
    return "copies" if any(part in word for part in _COPIES) and not is_of_the_model else ""


_NAMES = {"conv": "Conv", "matmul": "MatMul", "batchnormalization": "BatchNorm", "layernormalization": "LayerNorm",
          "maxpool": "MaxPool", "averagepool": "AveragePool", "reducemean": "ReduceMean", "relu": "Relu", "add": "Add",
          "convtranspose": "ConvTranspose"}  # fmt: skip


def shown_kind(operator: str) -> str:
    """Return the kind of an operator as it is shown, one word for all runtimes."""
    word = plain(operator)
    return _NAMES.get(word) or _NUMBERED.sub("", operator.rpartition("::")[2]) or operator or "unknown"
