"""Write an exported model with each large weight in a file named by its content, so that models share them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

# Smaller ones stay in the graph: a file of its own would take a block of the disk, and as long to open as to read.
LEAST_BYTES = 64 << 10


def save(model: ir.Model, path: Path) -> None:
    """Write a model to ``path`` and its initializers of ``LEAST_BYTES`` and more beside it, as ``SHA256.bin`` each.

    The model refers to these files afterwards. ONNX reads what lies in the folder of the graph and has one name there:
    neither links nor folders outside of it.
    """
    import onnx_ir as ir

    path.parent.mkdir(parents=True, exist_ok=True)
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes < LEAST_BYTES:
            continue
        content = tensor.tobytes()
        file = path.with_name(f"{hashlib.sha256(content).hexdigest()}.bin")
        if not file.exists():
            file.write_bytes(content)
        shape = ir.Shape(tensor.shape.numpy())
        value.const_value = ir.ExternalTensor(
            file.name, 0, len(content), tensor.dtype, shape=shape, name=name, base_dir=file.parent
        )
    ir.save(model, path)
