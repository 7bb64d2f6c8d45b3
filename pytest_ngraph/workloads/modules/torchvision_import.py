"""Import torchvision where its own import would fail beside this torch. Timm and onnx2torch import it."""

from __future__ import annotations

import sys
from typing import Any

# A library takes its operators with it when it is collected.
_KEPT: list[Any] = []


def import_torchvision() -> None:
    """Import torchvision, if it is installed.

    A CUDA build of torchvision beside a CPU torch cannot load its operators and stops at the first that is missing.
    The schemas of those that it looks for are enough, as no model here calls them.
    """
    import torch

    try:
        import torchvision
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)
        import torchvision  # noqa: F401
