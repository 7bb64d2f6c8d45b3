"""A transformer of two layers on token ids, with an open batch and an open sequence, exported to ONNX."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

WORDS, POSITIONS, WIDTH = 50, 24, 16


def export(path: Path) -> None:
    """Export it as users do: ``input_ids`` and ``attention_mask`` of [batch, S], embeddings of words and positions."""
    import torch
    from torch import Tensor, nn

    class Bert(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
            self.layers = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, 2)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            places = torch.arange(input_ids.shape[1])
            hidden = self.words(input_ids) + self.positions(places)
            hidden_from = (1.0 - attention_mask.to(torch.float32)).unsqueeze(1) * -10.0
            for layer in self.layers:
                queries, keys, values = layer(hidden).chunk(3, dim=-1)
                weights = torch.softmax(queries @ keys.transpose(1, 2) / WIDTH**0.5 + hidden_from, dim=-1)
                hidden = self.norm(hidden + weights @ values)
            logits: Tensor = self.head(hidden.mean(dim=1))
            return logits

    torch.manual_seed(0)
    ids, mask = torch.randint(0, WORDS, (2, 8)), torch.ones(2, 8, dtype=torch.int64)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("S", max=POSITIONS)
    shapes = {0: batch, 1: length}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter says which of two equal names of a dimension it takes
        torch.onnx.export(
            Bert().eval(), (ids, mask), path, dynamo=True, verbose=False, external_data=False,
            input_names=["input_ids", "attention_mask"], output_names=["logits"],
            dynamic_shapes={"input_ids": shapes, "attention_mask": shapes},
        )  # fmt: skip


if __name__ == "__main__":
    export(Path(sys.argv[1]))
