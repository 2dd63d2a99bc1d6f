"""DeformConv: a convolution that reads its input at computed offsets.

Source: ONNX DeformConv. Each kernel position is sampled once, then all are multiplied at once.
"""

from __future__ import annotations

import math

import mlx.core as mx

from ..dtypes import FLOATS
from ..registry import op
from ._sampling import interpolate, linear_parts, read_zero_padded
from ._windows import Ints, Windows, channels_first, place_windows


def _weight_last(w: mx.array) -> mx.array:
    """[out, in / group, *kernel] as [out, *kernel, in / group]."""
    return mx.contiguous(mx.moveaxis(w, 1, -1))


def _places(offset: mx.array, windows: Windows) -> list[mx.array]:
    """Coordinates a spatial axis, [batch, groups, positions, *counts]; offset has one axis more."""
    rank = len(windows.sizes)
    made = []
    for axis in range(rank):
        taps, outs = windows.kernel[axis], windows.counts[axis]
        start = mx.arange(outs) * windows.strides[axis] - windows.low[axis]
        start = start.reshape((1,) * (rank + axis) + (outs,) + (1,) * (rank - axis - 1))
        tap = mx.arange(taps) * windows.dilations[axis]
        tap = tap.reshape((1,) * axis + (taps,) + (1,) * (2 * rank - axis - 1))
        regular = mx.broadcast_to(start + tap, (*windows.kernel, *windows.counts))
        made.append(offset[:, :, :, axis] + regular.reshape(-1, *windows.counts))
    return made


@op("DeformConv", since=(19, 22), types={"x": FLOATS}, prepare={"w": _weight_last})
def deform_conv(
    x: mx.array,
    w: mx.array,
    offset: mx.array,
    b: mx.array | None = None,
    mask: mx.array | None = None,
    *,
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    offset_group: int = 1,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    batch, channels, *sizes = x.shape
    kernel = kernel_shape or w.shape[1:-1]
    windows = place_windows(tuple(sizes), kernel, strides=strides, dilations=dilations, pads=pads)
    taps, rank = math.prod(kernel), len(sizes)
    wide = mx.float64 if x.dtype == mx.float64 else mx.float32
    shape = (batch, offset_group, taps)
    places = _places(offset.reshape(*shape, rank, *windows.counts).astype(wide), windows)
    # Offset groups are channel groups: each is an image of its own.
    rows = mx.moveaxis(x.reshape(batch, offset_group, -1, *sizes), 2, -1)
    rows = rows.reshape(-1, channels // offset_group).astype(wide)
    first = mx.arange(batch * offset_group) * math.prod(sizes)
    first = first.reshape(batch, offset_group, *(1,) * (rank + 1))
    fetch = read_zero_padded(rows, windows.sizes, first)
    limits = zip(places, sizes, strict=True)
    parts = [linear_parts(mx.clip(p, -2, size + 1)) for p, size in limits]
    columns = interpolate(fetch, parts)
    if mask is not None:
        columns = columns * mask.reshape(*shape, *windows.counts, 1).astype(wide)
    y = _multiply(columns, w.astype(wide), group)
    y = y if b is None else y + b.astype(wide)
    return channels_first(y).astype(x.dtype)


def _multiply(columns: mx.array, w: mx.array, group: int) -> mx.array:
    """[batch, offset groups, taps, *counts, part] by [out, *kernel, in / group]."""
    batch, groups, taps, *counts, part = columns.shape
    # To [group, batch * places, in / group * taps]: channels are (offset group, part).
    columns = columns.reshape(batch, groups, taps, -1, part).transpose(0, 3, 1, 4, 2)
    columns = columns.reshape(-1, group, groups * part // group * taps)
    w = mx.swapaxes(w.reshape(group, -1, taps, w.shape[-1]), 2, 3)
    w = w.reshape(group, w.shape[1], -1)
    y = mx.moveaxis(columns, 1, 0) @ mx.swapaxes(w, 1, 2)
    return mx.moveaxis(y, 0, 1).reshape(batch, *counts, -1)
