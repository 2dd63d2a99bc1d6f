"""Padding and centred cropping. A negative pad removes elements.

Sources: ONNX Pad, CenterCropPad; mlx.core.pad.
"""

from __future__ import annotations

from typing import Final

import mlx.core as mx

from ..dtypes import EVERY, FLOATS, INDICES
from ..hosts import HostInts
from ..node import Node
from ..padding import Axes, Mixes
from ..registry import op
from ._padding import known, rank_of, sole
from ._shapes import Pads, normalize_axes, pad_pairs

# float8e8m0 has no zero to pad with.
_TYPES: Final = EVERY - {"float8e8m0"}


def _border(x: mx.array, axis: int, start: int, stop: int, mode: str) -> mx.array:
    """The slices at positions `start` to `stop` outside one axis, made of those inside."""
    size = x.shape[axis]
    place = mx.arange(start, stop, dtype=mx.int32)
    if mode == "edge":
        place = mx.clip(place, 0, size - 1)
    elif mode == "wrap":
        place = place % size
    elif size > 1:
        place = place % (2 * size - 2)
        place = mx.minimum(place, 2 * size - 2 - place)
    else:
        place = mx.zeros_like(place)
    return mx.take(x, place, axis=axis)


def pad_array(x: mx.array, pairs: Pads, mode: str, value: mx.array | None = None) -> mx.array:
    """ONNX Pad with one (begin, end) pair for every axis."""
    if any(min(pair) < 0 for pair in pairs):
        kept = [
            slice(max(-begin, 0), size - max(-end, 0))
            for (begin, end), size in zip(pairs, x.shape, strict=True)
        ]
        x = x[tuple(kept)]
        pairs = [(max(begin, 0), max(end, 0)) for begin, end in pairs]
    if not any(map(any, pairs)):
        return x
    if mode == "constant":
        fill = mx.array(0, dtype=x.dtype) if value is None else value.reshape(())
        return mx.pad(x, pairs, constant_values=fill)
    for axis, (begin, end) in enumerate(pairs):
        if begin or end:
            if x.shape[axis] == 0:
                raise ValueError(f"an empty axis cannot be padded by {mode}, got shape {x.shape}")
            size = x.shape[axis]
            before = _border(x, axis, -begin, 0, mode)
            x = mx.concatenate([before, x, _border(x, axis, size, size + end, mode)], axis=axis)
    return x


@op("Pad", since=(2,), types={"data": FLOATS})
def pad_2(
    data: mx.array, *, pads: tuple[int, ...], mode: str = "constant", value: float = 0.0
) -> mx.array:
    fill = mx.array(value, dtype=data.dtype)
    return pad_array(data, pad_pairs(pads, data.ndim), mode, fill)


def _padded(node: Node, axes: Axes) -> int:
    axis, rank = sole(node, axes, "data"), rank_of(node.input("data"))
    pads = known(node, "pads")
    has_axes = "axes" in node.param_names and not node.missing("axes")
    chosen = normalize_axes(known(node, "axes") if has_axes else range(rank), rank)
    if axis in chosen and (pads[(at := chosen.index(axis))] or pads[at + len(chosen)]):
        raise Mixes("it pads this axis")
    return axis


@op("Pad", since=(11, 13), padding=_padded)
def pad_11(
    data: mx.array,
    pads: HostInts,
    constant_value: mx.array | None = None,
    *,
    mode: str = "constant",
) -> mx.array:
    return pad_array(data, pad_pairs(pads, data.ndim), mode, constant_value)


@op(
    "Pad",
    since=(18, 19, 21, 23, 24, 25),
    types={"data": _TYPES, "constant_value": _TYPES},
    padding=_padded,
)
def pad(
    data: mx.array,
    pads: HostInts,
    constant_value: mx.array | None = None,
    axes: HostInts | None = None,
    *,
    mode: str = "constant",
) -> mx.array:
    return pad_array(data, pad_pairs(pads, data.ndim, axes), mode, constant_value)


@op("CenterCropPad", since=(18,), types={"shape": INDICES})
def center_crop_pad(
    input_data: mx.array, shape: HostInts, *, axes: tuple[int, ...] | None = None
) -> mx.array:
    rank = input_data.ndim
    chosen = range(rank) if axes is None else normalize_axes(axes, rank)
    pairs = [(0, 0)] * rank
    for axis, size in zip(chosen, shape, strict=True):
        extra = size - input_data.shape[axis]
        # Odd crops keep one more on the left, odd pads add one more on the right.
        begin = extra // 2 if extra > 0 else -(-extra // 2)
        pairs[axis] = (begin, extra - begin)
    return pad_array(input_data, pairs, "constant")
