"""Pooling: MaxPool, AveragePool, LpPool, the global pools, MaxUnpool and LRN.

Sources: the ONNX operators of these names and ORT's NhwcMaxPool. Maximum and sum are separable, so
a pool folds one axis after the other over strided slices, channels last as convolutions leave them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import mlx.core as mx

from ..bounds import inside
from ..dtypes import FLOATS, INDICES
from ..hosts import HostInts
from ..node import Node
from ..registry import MS, op
from ..safety import SHAPELESS
from ._padding import batched
from ._windows import (
    Ints,
    Windows,
    along,
    channels_first,
    channels_last,
    fold_windows,
    outer,
    pad_spatial,
    place_windows,
)

_BYTES = frozenset({"int8", "uint8"})


def _lowest(dtype: mx.Dtype) -> float:
    return -math.inf if mx.issubdtype(dtype, mx.floating) else mx.iinfo(dtype).min


def _widen(x: mx.array) -> mx.array:
    """Halves are summed in float32, as ORT does."""
    return x.astype(mx.float32) if x.dtype in (mx.float16, mx.bfloat16) else x


def _max_last(x: mx.array, windows: Windows) -> mx.array:
    x = pad_spatial(x, windows.low, windows.overhang, _lowest(x.dtype))
    return fold_windows(x, windows, mx.maximum)


def _max_with_indices(
    x: mx.array, windows: Windows, storage_order: int
) -> tuple[mx.array, mx.array]:
    """The maxima and where they are, counted in the whole input laid out channels first."""
    at = pad_spatial(_positions(x.shape, storage_order), windows.low, windows.overhang, -1)
    x = pad_spatial(x, windows.low, windows.overhang, _lowest(x.dtype))

    def first_maximum(
        best: tuple[mx.array, mx.array], other: tuple[mx.array, mx.array]
    ) -> tuple[mx.array, mx.array]:
        # A pad is never the place of a maximum, even when everything else is -inf.
        wins = (other[0] > best[0]) | ((best[1] < 0) & (other[1] >= 0))
        return mx.where(wins, other[0], best[0]), mx.where(wins, other[1], best[1])

    for axis in reversed(range(len(windows.sizes))):
        taps = windows.taps(axis)
        x, at = reduce(
            first_maximum, ((along(x, axis + 1, tap), along(at, axis + 1, tap)) for tap in taps)
        )
    return channels_first(x), channels_first(at)


def _positions(shape: Ints, storage_order: int) -> mx.array:
    """The flat channels-first index of every element of a channels-last shape."""
    batch, *spatial, channels = shape
    first = mx.arange(batch * channels * math.prod(spatial), dtype=mx.int64)
    if storage_order == 0:
        return channels_last(first.reshape(batch, channels, *spatial))
    mirrored = first.reshape(batch, channels, *reversed(spatial))
    return mirrored.transpose(0, *range(mirrored.ndim - 1, 1, -1), 1)


@op("MaxPool", since=(1,), types={"x": FLOATS}, padding=batched("x"))
def max_pool_1(
    x: mx.array,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    windows = place_windows(
        x.shape[2:], kernel_shape, strides=strides, pads=pads, auto_pad=auto_pad
    )
    return channels_first(_max_last(channels_last(x), windows))


@op("MaxPool", since=(8,), types={"x": FLOATS}, padding=batched("x"))
def max_pool_8(
    x: mx.array,
    *,
    node: Node,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
) -> mx.array | tuple[mx.array, mx.array]:
    windows = place_windows(
        x.shape[2:], kernel_shape, strides=strides, pads=pads, auto_pad=auto_pad
    )
    return _max_pool(x, windows, storage_order, node)


@op("MaxPool", since=(10, 11, 12, 22), types={"x": FLOATS | _BYTES}, padding=batched("x"))
def max_pool(
    x: mx.array,
    *,
    node: Node,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
) -> mx.array | tuple[mx.array, mx.array]:
    windows = place_windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    return _max_pool(x, windows, storage_order, node)


def _max_pool(
    x: mx.array, windows: Windows, storage_order: int, node: Node
) -> mx.array | tuple[mx.array, mx.array]:
    if len(node.outputs) > 1 and node.outputs[1] is not None:
        return _max_with_indices(channels_last(x), windows, storage_order)
    return channels_first(_max_last(channels_last(x), windows))


@op("NhwcMaxPool", domain=MS, since=(1,), types={"x": _BYTES}, padding=batched("x"))
def nhwc_max_pool(
    x: mx.array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    windows = place_windows(
        x.shape[1:-1],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    return _max_last(x, windows)


def _average(x: mx.array, windows: Windows, count_include_pad: int, high: Ints) -> mx.array:
    """Divide by the elements met, or by those and the pads in front and the `high` ones behind."""
    wide = _widen(channels_last(x))
    total = fold_windows(pad_spatial(wide, windows.low, windows.overhang), windows, mx.add)
    pads = (windows.low, high) if count_include_pad else ((0,) * len(windows.low),) * 2
    covered = [
        windows.covered(axis, low, high) for axis, (low, high) in enumerate(zip(*pads, strict=True))
    ]
    if all(min(c, default=0) == max(c, default=0) for c in covered):
        count = mx.array(math.prod(c[0] if c else 1 for c in covered), wide.dtype)
    else:
        count = outer([mx.array(c, wide.dtype) for c in covered])
    return channels_first(total / count).astype(x.dtype)


@op("AveragePool", since=(7,), types={"x": FLOATS}, padding=batched("x"))
def average_pool_7(
    x: mx.array,
    *,
    auto_pad: str = "NOTSET",
    count_include_pad: int = 0,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    windows = place_windows(
        x.shape[2:], kernel_shape, strides=strides, pads=pads, auto_pad=auto_pad
    )
    return _average(x, windows, count_include_pad, windows.overhang)


@op("AveragePool", since=(10, 11), types={"x": FLOATS}, padding=batched("x"))
def average_pool_10(
    x: mx.array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    windows = place_windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    # Before version 19 ORT divides by the whole kernel unless ceil_mode made the window hang over.
    high = windows.high if ceil_mode else windows.overhang
    return _average(x, windows, count_include_pad, high)


@op("AveragePool", since=(19, 22), types={"x": FLOATS}, padding=batched("x"))
def average_pool(
    x: mx.array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    windows = place_windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    return _average(x, windows, count_include_pad, windows.high)


def _power(x: mx.array, p: int) -> mx.array:
    """|x| to the power p."""
    if p == 2:
        return mx.square(x)
    return mx.abs(x) if p == 1 else mx.power(mx.abs(x), p)


def _root(x: mx.array, p: int) -> mx.array:
    if p == 2:
        return mx.sqrt(x)
    return x if p == 1 else mx.power(x, 1 / p)


def _lp(x: mx.array, windows: Windows, p: int) -> mx.array:
    wide = _power(_widen(channels_last(x)), p)
    total = fold_windows(pad_spatial(wide, windows.low, windows.overhang), windows, mx.add)
    return channels_first(_root(total, p)).astype(x.dtype)


@op("LpPool", since=(2, 11), types={"x": FLOATS}, padding=batched("x"))
def lp_pool_2(
    x: mx.array,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints,
    p: int = 2,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    windows = place_windows(
        x.shape[2:], kernel_shape, strides=strides, pads=pads, auto_pad=auto_pad
    )
    return _lp(x, windows, p)


@op("LpPool", since=(18, 22), types={"x": FLOATS}, padding=batched("x"))
def lp_pool(
    x: mx.array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    p: int = 2,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    windows = place_windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    return _lp(x, windows, p)


def _spatial(x: mx.array) -> list[int]:
    return list(range(2, x.ndim))


def _global(name: str, fn: Callable[[mx.array], mx.array]) -> None:
    @op(name, since=(1, 22), types={"x": FLOATS}, safety=SHAPELESS, padding=batched("x"))
    def translate(x: mx.array) -> mx.array:
        return fn(_widen(x)).astype(x.dtype)


_global("GlobalAveragePool", lambda x: mx.mean(x, axis=_spatial(x), keepdims=True))
_global("GlobalMaxPool", lambda x: mx.max(x, axis=_spatial(x), keepdims=True))


@op("GlobalLpPool", since=(2, 22), types={"x": FLOATS}, safety=SHAPELESS, padding=batched("x"))
def global_lp_pool(x: mx.array, *, p: int = 2) -> mx.array:
    total = mx.sum(_power(_widen(x), p), axis=_spatial(x), keepdims=True)
    return _root(total, p).astype(x.dtype)


@op("MaxUnpool", since=(9, 11, 22), types={"x": FLOATS, "i": INDICES})
def max_unpool(
    x: mx.array,
    i: mx.array,
    output_shape: HostInts | None = None,
    *,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    rank = x.ndim - 2
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)
    sizes = (
        (size - 1) * stride + k - low - high
        for size, stride, k, low, high in zip(
            x.shape[2:], strides, kernel_shape, pads[:rank], pads[rank:], strict=True
        )
    )
    shape = output_shape or (*x.shape[:2], *sizes)
    flat = mx.zeros(math.prod(shape), x.dtype)
    at = inside(i, flat.size).reshape(-1)
    return mx.put_along_axis(flat, at, x.reshape(-1), axis=0).reshape(shape)


@op("LRN", since=(1, 13), types={"x": FLOATS}, padding=batched("x"))
def lrn(
    x: mx.array,
    *,
    alpha: float = 9.999999747378752e-05,
    beta: float = 0.75,
    bias: float = 1.0,
    size: int,
) -> mx.array:
    wide = _widen(x)
    squares = pad_spatial(mx.square(wide), ((size - 1) // 2,), (size // 2,))
    channels = x.shape[1]
    total = reduce(mx.add, (along(squares, 1, slice(k, k + channels)) for k in range(size)))
    return (wide / mx.power(bias + alpha / size * total, beta)).astype(x.dtype)
