"""New shapes from the same elements, and repetition.

Sources: ONNX Reshape, Flatten, Expand, Tile, DepthToSpace, SpaceToDepth; mlx.core.
"""

from __future__ import annotations

import math

import mlx.core as mx

from ..dtypes import EVERY
from ..hosts import HostInts
from ..node import Node
from ..padding import Axes, Mixes
from ..registry import op
from ._padding import batched, expanded, reshaped, sole
from ._shapes import broadcast_shape, resolve_reshape


@op("Reshape", since=(5, 13), padding=reshaped)
def reshape_5(data: mx.array, shape: HostInts) -> mx.array:
    return mx.reshape(data, resolve_reshape(data.shape, shape, allowzero=False))


@op("Reshape", since=(14, 19, 21, 23, 24, 25), types={"data": EVERY}, padding=reshaped)
def reshape(data: mx.array, shape: HostInts, *, allowzero: int = 0) -> mx.array:
    return mx.reshape(data, resolve_reshape(data.shape, shape, allowzero=bool(allowzero)))


def _flattened(node: Node, axes: Axes) -> int:
    axis = sole(node, axes, "input")
    if axis != 0 or node.attr("axis", 1) != 1:
        raise Mixes("it joins positions")
    return 0


@op("Flatten", since=(1, 9, 11, 13, 21, 23, 24, 25), types={"input": EVERY}, padding=_flattened)
def flatten(input: mx.array, *, axis: int = 1) -> mx.array:
    if not -input.ndim <= axis <= input.ndim:
        raise ValueError(f"axis {axis} is out of range, got shape {input.shape}")
    axis = axis + input.ndim if axis < 0 else axis  # may be the rank, unlike other axes
    rows, columns = math.prod(input.shape[:axis]), math.prod(input.shape[axis:])
    return mx.reshape(input, (rows, columns))


@op("Expand", since=(8, 13), padding=expanded)
def expand(input: mx.array, shape: HostInts) -> mx.array:
    return mx.broadcast_to(input, broadcast_shape(input.shape, shape))


@op("Tile", since=(6, 13))
def tile(input: mx.array, repeats: HostInts) -> mx.array:
    if len(repeats) != input.ndim or min(repeats, default=0) < 0:
        raise ValueError(f"repeats {repeats} do not fit shape {input.shape}")
    return mx.tile(input, repeats)


def _blocks(size: int, block: int, name: str) -> int:
    if size % block:
        raise ValueError(f"{name} {size} is not a multiple of {block}")
    return size // block


def _depth_to_space(x: mx.array, block: int, mode: str) -> mx.array:
    batch, channels, height, width = x.shape
    depth = _blocks(channels, block * block, "the depth")
    if mode == "CRD":
        x = x.reshape(batch, depth, block, block, height, width).transpose(0, 1, 4, 2, 5, 3)
    else:
        x = x.reshape(batch, block, block, depth, height, width).transpose(0, 3, 4, 1, 5, 2)
    return x.reshape(batch, depth, height * block, width * block)


@op("DepthToSpace", since=(1,), padding=batched("input"))
def depth_to_space_1(input: mx.array, *, blocksize: int) -> mx.array:
    return _depth_to_space(input, blocksize, "DCR")


@op("DepthToSpace", since=(11, 13, 28), padding=batched("input"))
def depth_to_space(input: mx.array, *, blocksize: int, mode: str = "DCR") -> mx.array:
    return _depth_to_space(input, blocksize, mode)


def _space_to_depth(x: mx.array, block: int, mode: str) -> mx.array:
    batch, channels, height, width = x.shape
    rows, columns = _blocks(height, block, "the height"), _blocks(width, block, "the width")
    x = x.reshape(batch, channels, rows, block, columns, block)
    x = x.transpose((0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4))
    return x.reshape(batch, channels * block * block, rows, columns)


@op("SpaceToDepth", since=(1, 13), padding=batched("input"))
def space_to_depth_1(input: mx.array, *, blocksize: int) -> mx.array:
    return _space_to_depth(input, blocksize, "DCR")


@op("SpaceToDepth", since=(28,), padding=batched("input"))
def space_to_depth(input: mx.array, *, blocksize: int, mode: str = "DCR") -> mx.array:
    return _space_to_depth(input, blocksize, mode)
