"""Which algorithm the convolutions of a lowered module are computed by, told by their loops and by what these read.

Names and intentions count for nothing: what fits no pattern has none of the algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Share:
    """How many convolutions of a network, and how many of their multiplications and additions (MACs)."""

    layers: int = 0
    macs: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.layers + other.layers, self.macs + other.macs)

    def of(self, whole: Share) -> str:
        """Return the share in words, rounded down: all of it is only said of all of it."""
        percent = 100 * self.macs // whole.macs if whole.macs else 0
        said = f"{percent} %" if percent or not self.macs else "under 1 %"
        return f"{self.layers} of {whole.layers} convolution{'' if whole.layers == 1 else 's'}, {said} of MACs"


def convolutions(module: Any) -> Share:
    """Return all convolutions of a module that is not legalised: of one to three dimensions, transposed ones, too."""
    from tvm.ir import Op

    found = Share()
    for call in _calls(module):
        name = call.op.name if isinstance(call.op, Op) else ""
        if not name.startswith("relax.nn.conv"):
            continue
        data, weights = (shape_of(each) for each in call.args[:2])
        # Each number of a transposed convolution's input meets every weight of its channel, as each number of another
        # one's output does.
        image = data if name.endswith("_transpose") else shape_of(call)
        found += Share(1, math.prod(image) * math.prod(weights[1:]))
    return found


def share_of(module: Any, algorithm: str) -> Share:
    """Return the convolutions of a module of fused kernels that are computed by an algorithm."""
    from tvm.ir import GlobalVar
    from tvm.tirx import PrimFunc

    macs = {
        variable.name_hint: list(_RECOGNISERS[algorithm](_Kernel(function)))
        for variable, function in module.functions_items()
        if isinstance(function, PrimFunc)
    }
    found = Share()
    for call in _calls(module):
        kernel = call.args[0] if len(call.args) else None
        if isinstance(kernel, GlobalVar):
            for each in macs.get(kernel.name_hint, ()):
                found += Share(1, each)
    return found


def shape_of(expression: Any) -> tuple[int, ...]:
    """Return the shape of a tensor of a module, which is static."""
    return tuple(int(size) for size in expression.ty.shape)


def _calls(module: Any) -> Iterator[Any]:
    from tvm.ir import Call
    from tvm.relax import Function
    from tvm.relax.analysis import post_order_visit

    for _, function in module.functions_items():
        if isinstance(function, Function):
            found: list[Any] = []
            post_order_visit(function.body, lambda each, found=found: found.append(each))
            yield from (each for each in found if isinstance(each, Call))


@dataclass(frozen=True, slots=True)
class _Loops:
    """A block of a kernel: its axes and their extents, in order, those that it sums over apart."""

    spatial: Mapping[Any, int]
    summed: Mapping[Any, int]
    writes: Any
    value: Any
    loads: Sequence[Any]

    @property
    def steps(self) -> int:
        return math.prod((*self.spatial.values(), *self.summed.values()))

    def pattern(self, load: Any) -> str:
        """Return how a load is indexed: S for a spatial axis, R for one that is summed over, else x."""
        return "".join(
            "S" if any(index.same_as(axis) for axis in self.spatial) else
            "R" if any(index.same_as(axis) for axis in self.summed) else
            "x" for index in load.indices
        )  # fmt: skip


class _Kernel:
    """The blocks of a kernel, and which of its buffers come from outside."""

    def __init__(self, function: Any) -> None:
        import tvm_ffi
        from tvm.s_tir import SBlock

        self._given = list(function.params)
        found: list[Any] = []
        tvm_ffi.structural_walk(function.body, (SBlock, found.append), order="post")
        self.blocks = [block for block in map(_loops, found) if block is not None]

    def products(self) -> Iterator[tuple[_Loops, Any, Any]]:
        """Yield each block that sums up products, with what it loads for them: something and a weight from outside."""
        for block in self.blocks:
            if block.summed and len(factors := _factors(block)) == 2:
                for data, weights in (factors, factors[::-1]):
                    if self.is_given(weights.source):
                        yield block, data, weights
                        break

    def is_given(self, buffer: Any) -> bool:
        """Return whether a buffer is an argument of the kernel."""
        return any(buffer.same_as(each) for each in self._given)

    def writer(self, buffer: Any) -> _Loops | None:
        """Return the block of this kernel that writes a buffer."""
        return next((each for each in self.blocks if each.writes.same_as(buffer)), None)

    def reader(self, buffer: Any) -> _Loops | None:
        """Return the block that reads a buffer which another one of this kernel has finished."""
        for each in self.blocks:
            if not each.writes.same_as(buffer) and any(load.source.same_as(buffer) for load in each.loads):
                return each
        return None


def _loops(block: Any) -> _Loops | None:
    import tvm_ffi
    from tvm.ir import TensorLoad
    from tvm.tirx import BufferStore, IterVar

    if not isinstance(block.body, BufferStore):
        return None
    loads: list[Any] = []
    tvm_ffi.structural_walk(block.body.value, (TensorLoad, loads.append), order="post")
    axes: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
    for each in block.iter_vars:
        axes[each.iter_type == IterVar.CommReduce][each.var] = int(each.dom.extent)
    return _Loops(*axes, block.body.buffer, block.body.value, loads)


def _factors(block: _Loops) -> list[Any]:
    """Return the two loads of ``sum = sum + load * load``, whatever types they are converted to, else nothing."""
    from tvm.ir import TensorLoad
    from tvm.tirx import Add, Cast, Mul

    if not isinstance(block.value, Add):
        return []
    total, product = block.value.a, block.value.b
    if not (isinstance(total, TensorLoad) and total.source.same_as(block.writes) and isinstance(product, Mul)):
        return []
    factors = [each.value if isinstance(each, Cast) else each for each in (product.a, product.b)]
    return factors if all(isinstance(each, TensorLoad) for each in factors) else []


def _direct(kernel: _Kernel) -> Iterator[int]:
    """A sum over channels, rows and columns of the window, which slides over the image."""
    for block, data, weights in kernel.products():
        sizes = len(block.spatial), len(block.summed), len(data.indices)
        if sizes == (4, 3, 4) and block.pattern(weights) == "SRRR":
            yield block.steps


def _gemm(kernel: _Kernel) -> Iterator[int]:
    """A product of a matrix of weights, for each group, and one of columns that another block has gathered."""
    for block, columns, weights in kernel.products():
        plain = (block.pattern(weights), block.pattern(columns)) == ("SSR", "SSRS")
        gather = kernel.writer(columns.source)
        if plain and len(block.spatial) == 4 and gather is not None and not gather.summed:
            yield block.steps


def _winograd(kernel: _Kernel) -> Iterator[int]:
    """Products of transformed weights and tiles, one for each place of a tile, between transforms by other blocks."""
    for block, tiles, weights in kernel.products():
        if (block.pattern(weights), block.pattern(tiles)) != ("SSSR", "SSRS") or len(block.spatial) != 4:
            continue
        side, again, _, _ = block.spatial.values()
        before, after = kernel.writer(tiles.source), kernel.reader(block.writes)
        if side != again or before is None or list(before.summed.values()) != [side]:
            continue
        # Two more blocks turn the products into the image: rows, columns, then the places of all tiles.
        if after is None or list(after.summed.values()) != [side]:
            continue
        columns = kernel.reader(after.writes)
        image = kernel.reader(columns.writes) if columns is not None else None
        if columns is None or list(columns.summed.values()) != [side] or image is None or image.summed:
            continue
        (channels,) = block.summed.values()
        yield image.steps * channels * 9


def _spatial_pack(kernel: _Kernel) -> Iterator[int]:
    """A sum over windows of an image whose channels come in blocks, for a block of channels at a time."""
    for block, data, weights in kernel.products():
        if len(block.spatial) != 5 or len(data.indices) != 5 or kernel.is_given(data.source):
            continue
        lanes = list(block.spatial)[-1]
        if block.spatial[lanes] > 1 and weights.indices[len(weights.indices) - 1].same_as(lanes):
            yield block.steps


_RECOGNISERS = {"direct": _direct, "gemm": _gemm, "winograd": _winograd, "spatial_pack": _spatial_pack}
