"""How convolutions are computed: as TVM legalises them, or by the algorithm that ``tvm[algorithm=NAME]`` names.

``direct`` slides over the image (TOPI's compute, which TVM takes by itself). ``gemm`` copies every window into a column
(im2col) and multiplies matrices. ``winograd`` is F(4x4, 3x3) or F(2x2, 3x3) of Lavin and Gray (CVPR 2016).
``spatial_pack`` convolves channels in blocks (NCHWc). Weights get their form when the network is compiled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.tvm.counting import Share, convolutions, shape_of, share_of
from pytest_ngraph.errors import Unsupported

if TYPE_CHECKING:
    import numpy as np

_OPERATOR = "relax.nn.conv2d"
# So many channels in f32 fill a register of AVX-512, two of AVX2 and four of Neon.
_MOST_LANES = 16
# Of Lavin and Gray, section 4: the transforms of tiles, weights and results, by the side of the result of a tile.
_WINOGRAD = {
    2: (
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        ((1, 1, 1, 0), (0, 1, -1, -1)),
    ),
    4: (
        ((4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
         (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1)),
        ((1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
         (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1)),
        ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of two dimensions: what its algorithms ask of it, all sizes static."""

    image: tuple[int, ...]
    weights: tuple[int, ...]
    result: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    constant: bool

    @classmethod
    def of(cls, call: Any) -> Convolution:
        """Return what a call of a Relax module asks for."""
        attrs = call.attrs
        image, weights = call.args
        return cls(
            shape_of(image),
            shape_of(weights),
            shape_of(call),
            tuple(map(int, attrs.strides)),
            tuple(map(int, attrs.padding)),
            tuple(map(int, attrs.dilation)),
            int(attrs.groups),
            constant=hasattr(weights, "value"),
        )

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is convolved by itself, into one."""
        return self.groups > 1 and self.groups == self.image[1] == self.weights[0]

    @property
    def lanes(self) -> tuple[int, int]:
        """How many channels of the image and of the result come in a block."""
        if self.is_depthwise:
            return (_divisor(self.groups, _MOST_LANES),) * 2
        out = _divisor(self.weights[0] // self.groups, _MOST_LANES)
        return _divisor(self.weights[1], out), out


def why_not(algorithm: str, layer: Convolution) -> str | None:
    """Return why a convolution cannot be computed by an algorithm, in a few words, or None."""
    if algorithm == "direct":
        return None
    if not layer.constant:
        return "with weights that the network computes"
    if algorithm == "spatial_pack" and layer.lanes[1] == 1:
        return "with output channels that come in no blocks"
    if algorithm == "winograd":
        size = layer.weights[2:]
        return next(
            (reason for reason, holds in (
                ("depthwise", layer.is_depthwise),
                ("grouped", layer.groups > 1),
                (f"of {size[0]}x{size[1]}", size != (3, 3)),
                (f"of stride {max(layer.strides)}", layer.strides != (1, 1)),
                (f"of dilation {max(layer.dilation)}", layer.dilation != (1, 1)),
            ) if holds), None
        )  # fmt: skip
    return None


class Choice:
    """The algorithm that a cell asks for: legalises what can take it, and counts afterwards what has."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm
        self._left: Counter[str] = Counter()
        self._all = Share()

    def legalizers(self, module: Any) -> dict[str, Callable[[Any, Any], Any]]:
        """Return what LegalizeOps is to do with the convolutions of a module. Raises Unsupported where it has none."""
        self._all = convolutions(module)
        if not self._all.layers:
            raise Unsupported(f"algorithm {self.algorithm}: the network has no convolution")
        return {_OPERATOR: self._legalize}

    def check(self, module: Any) -> dict[str, str]:
        """Return how much of the lowered module has the algorithm, and what has not. Raises Unsupported where none has.

        It is read from the loops of the kernels that the module calls, whatever they were meant to be.
        """
        found = share_of(module, self.algorithm)
        left = ", ".join(f"{count} {reason}" for reason, count in self._left.most_common())
        if not found.layers:
            whole = "its only convolution" if self._all.layers == 1 else f"any of {self._all.layers} convolutions"
            why = left or "not of two dimensions"
            raise Unsupported(f"algorithm {self.algorithm}: not to be had for {whole} of the network: {why}")
        said = {"algorithm": f"{self.algorithm} for {found.of(self._all)}"}
        return {**said, "algorithm_left": left} if left else said

    def _legalize(self, builder: Any, call: Any) -> Any:
        import tvm

        layer = Convolution.of(call)
        reason = why_not(self.algorithm, layer)
        if reason is not None:
            self._left[reason] += 1
        if reason is not None or self.algorithm == "direct":
            return tvm.ir.Op.get(_OPERATOR).get_attr("FLegalize")(builder, call)
        return _WRITERS[self.algorithm](builder, call.args[0], call.args[1].value.numpy(), layer)


def _gemm(builder: Any, image: Any, weights: np.ndarray, layer: Convolution) -> Any:
    from tvm import relax, te, topi

    groups, (batch, out, height, width) = layer.groups, layer.result
    channels, rows, columns = layer.weights[1:]
    depth = channels * rows * columns

    def conv2d_gemm(image: Any, weights: Any) -> Any:
        padded = _padded(image, layer.padding)
        gathered = te.compute(
            (batch, groups, depth, height * width),
            lambda n, g, k, p: padded[
                n,
                g * channels + k // (rows * columns),
                p // width * layer.strides[0] + k // columns % rows * layer.dilation[0],
                p % width * layer.strides[1] + k % columns * layer.dilation[1],
            ],
            name="im2col",
        )
        k = te.reduce_axis((0, depth), name="k")
        product = te.compute(
            (batch, groups, out // groups, height * width),
            lambda n, g, o, p: te.sum(weights[g, o, k] * gathered[n, g, k, p], axis=k),
            name="gemm",
        )
        return topi.reshape(product, layer.result)

    matrix = relax.const(weights.reshape(groups, out // groups, depth))
    return builder.call_te(conv2d_gemm, image, matrix, primfunc_name_hint="conv2d_gemm")


def _winograd(builder: Any, image: Any, weights: np.ndarray, layer: Convolution) -> Any:
    import numpy as np
    from tvm import relax, te

    batch, out, height, width = layer.result
    channels = layer.image[1]
    side = tile_of(height, width)
    tiles, transform, inverse = (np.array(each) for each in _WINOGRAD[side])
    whole, down, across = side + 2, math.ceil(height / side), math.ceil(width / side)
    count = batch * down * across
    top, left, bottom, right = layer.padding
    # The last tiles reach over the edge, where the image is as good as zero.
    padding = (top, left, bottom + down * side - height, right + across * side - width)

    def summed(name: str, shape: Sequence[int], length: int, product: Callable[..., Any]) -> Any:
        k = te.reduce_axis((0, length), name="k")
        return te.compute(shape, lambda a, b, c, p: te.sum(product(a, b, c, p, k), axis=k), name=name)

    def conv2d_winograd(image: Any, weights: Any, tiles: Any, inverse: Any) -> Any:
        padded = _padded(image, padding)

        def pixel(c: Any, p: Any, y: Any, x: Any) -> Any:
            return padded[p // (down * across), c, p // across % down * side + y, p % across * side + x]

        grid = (whole, whole, channels, count)
        rows = summed("tile_rows", grid, whole, lambda a, b, c, p, k: tiles[a, k] * pixel(c, p, k, b))
        both = summed("tile_columns", grid, whole, lambda a, b, c, p, k: tiles[b, k] * rows[a, k, c, p])
        grid = (whole, whole, out, count)
        product = summed("products", grid, channels, lambda a, b, c, p, k: weights[a, b, c, k] * both[a, b, k, p])
        grid = (side, whole, out, count)
        rows = summed("inverse_rows", grid, whole, lambda a, b, c, p, k: inverse[a, k] * product[k, b, c, p])
        grid = (side, side, out, count)
        done = summed("inverse_columns", grid, whole, lambda a, b, c, p, k: inverse[b, k] * rows[a, k, c, p])
        return te.compute(
            layer.result,
            lambda n, c, y, x: done[y % side, x % side, c, (n * down + y // side) * across + x // side],
            name="conv2d_winograd",
        )

    # In double precision, for this is done once.
    transformed = np.einsum("ai,bj,ocij->aboc", transform, transform, weights.astype("float64"), optimize=True)
    inputs = (relax.const(each.astype(weights.dtype)) for each in (transformed, tiles, inverse))
    return builder.call_te(conv2d_winograd, image, *inputs, primfunc_name_hint="conv2d_winograd")


def _spatial_pack(builder: Any, image: Any, weights: np.ndarray, layer: Convolution) -> Any:
    from tvm import relax, te

    groups, (batch, out, height, width) = layer.groups, layer.result
    inner, lanes = layer.lanes
    channels, rows, columns = layer.weights[1:]

    def conv2d_spatial_pack(image: Any, weights: Any) -> Any:
        padded = _padded(image, layer.padding)
        blocks = (batch, layer.image[1] // inner, *(int(size) for size in padded.shape[2:]), inner)
        packed = te.compute(blocks, lambda n, c, y, x, i: padded[n, c * inner + i, y, x], name="pack")
        ky, kx = te.reduce_axis((0, rows), name="ky"), te.reduce_axis((0, columns), name="kx")

        def pixel(n: Any, c: Any, y: Any, x: Any, i: Any) -> Any:
            down, across = layer.strides
            return packed[n, c, y * down + ky * layer.dilation[0], x * across + kx * layer.dilation[1], i]

        shape = (batch, out // lanes, height, width, lanes)
        if layer.is_depthwise:
            result = te.compute(
                shape,
                lambda n, c, y, x, i: te.sum(pixel(n, c, y, x, i) * weights[c, ky, kx, i], axis=(ky, kx)),
                name="conv2d_nchwc",
            )
        else:
            k = te.reduce_axis((0, channels), name="k")
            apart = out // lanes // groups
            result = te.compute(
                shape,
                lambda n, c, y, x, o: te.sum(
                    pixel(n, c // apart * (channels // inner) + k // inner, y, x, k % inner)
                    * weights[c, k // inner, ky, kx, k % inner, o],
                    axis=(k, ky, kx),
                ),
                name="conv2d_nchwc",
            )
        return te.compute(layer.result, lambda n, c, y, x: result[n, c // lanes, y, x, c % lanes], name="unpack")

    if layer.is_depthwise:
        packed = weights.reshape(out // lanes, lanes, rows, columns).transpose(0, 2, 3, 1)
    else:
        blocks = weights.reshape(out // lanes, lanes, channels // inner, inner, rows, columns)
        packed = blocks.transpose(0, 2, 4, 5, 3, 1)
    constant = relax.const(packed.copy())
    return builder.call_te(conv2d_spatial_pack, image, constant, primfunc_name_hint="conv2d_spatial_pack")


def tile_of(height: int, width: int) -> int:
    """Return the side of the tiles of a result that takes the fewest multiplications; of two that take as few, 2."""
    return min(_WINOGRAD, key=lambda side: (side + 2) ** 2 * math.ceil(height / side) * math.ceil(width / side))


def _padded(image: Any, padding: Sequence[int]) -> Any:
    from tvm import topi

    top, left, bottom, right = padding
    return topi.nn.pad(image, (0, 0, top, left), (0, 0, bottom, right), name="pad") if any(padding) else image


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor of a number that is no larger than so much."""
    return next(each for each in range(min(number, most), 0, -1) if number % each == 0)


_WRITERS = {"gemm": _gemm, "winograd": _winograd, "spatial_pack": _spatial_pack}
ALGORITHMS = ("direct", *_WRITERS)
