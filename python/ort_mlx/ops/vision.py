"""Sampling of images: GridSample, AffineGrid, Col2Im and ORT's UnfoldTensor.

Sources: the ONNX operators of these names, ORT's com.microsoft GridSample and UnfoldTensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Final

import mlx.core as mx

from ..dtypes import FLOATS, NUMERIC
from ..hosts import HostInts
from ..registry import MS, op
from ._sampling import (
    first_rows,
    image_rows,
    interpolate,
    linear_parts,
    read_rows,
    read_zero_padded,
)
from ._windows import Ints, along, channels_first, place_windows

_CUBIC_A: Final = -0.75


def _reflect(where: mx.array, size: int, align_corners: int) -> mx.array:
    """Mirror a coordinate at the first and last pixel, at their centres or at their outer edges."""
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return mx.zeros_like(where)
    away = mx.abs(where - low)
    flips = mx.floor(away / span)
    rest = away - flips * span
    return mx.where(mx.remainder(flips, 2) == 0, low + rest, high - rest)


def _cubic_parts(where: mx.array) -> list[tuple[mx.array, mx.array]]:
    low = mx.floor(where)
    t = where - low
    low = low.astype(mx.int32)
    a = _CUBIC_A

    def near(d: mx.array) -> mx.array:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: mx.array) -> mx.array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [(low - 1, far(t + 1)), (low, near(t)), (low + 1, near(1 - t)), (low + 2, far(2 - t))]


def _grid_sample(
    x: mx.array, grid: mx.array, align_corners: int, mode: str, padding_mode: str
) -> mx.array:
    sizes = x.shape[2:]
    if grid.shape[-1] != len(sizes) or grid.shape[0] != x.shape[0]:
        raise ValueError(f"the grid does not fit the input, shapes {grid.shape} and {x.shape}")
    grid = grid.astype(mx.float64 if grid.dtype == mx.float64 else mx.float32)
    # The grid holds x, y, z; the image's axes are z, y, x.
    where = [
        _to_pixels(grid[..., len(sizes) - 1 - axis], size, align_corners)
        for axis, size in enumerate(sizes)
    ]
    if padding_mode != "reflection":
        # Far away is as good as just outside, and fits an int32.
        where = [mx.clip(w, -4, size + 3) for w, size in zip(where, sizes, strict=True)]
    rows, first = image_rows(x), first_rows(x.shape[0], sizes, grid.ndim - 1)
    fetch = _fetch_padded(rows, sizes, first, align_corners, padding_mode)
    if mode == "nearest":
        return channels_first(fetch([mx.round(w).astype(mx.int32) for w in where]))
    parts = _cubic_parts if mode.endswith("cubic") else linear_parts
    y = interpolate(lambda places: fetch(places).astype(grid.dtype), [parts(w) for w in where])
    return channels_first(y).astype(x.dtype)


def _to_pixels(where: mx.array, size: int, align_corners: int) -> mx.array:
    """From [-1, 1] to pixels."""
    if align_corners:
        return (where + 1) / 2 * (size - 1)
    return ((where + 1) * size - 1) / 2


def _fetch_padded(
    rows: mx.array, sizes: Ints, first: mx.array, align_corners: int, padding_mode: str
) -> Callable[..., mx.array]:
    if padding_mode == "zeros":
        return read_zero_padded(rows, sizes, first)
    if padding_mode == "border":
        return partial(read_rows, rows, sizes, first)

    def fetch(places: list[mx.array]) -> mx.array:
        mirrored = [
            mx.round(_reflect(p.astype(mx.float32), size, align_corners)).astype(mx.int32)
            for p, size in zip(places, sizes, strict=True)
        ]
        return read_rows(rows, sizes, first, mirrored)

    return fetch


@op("GridSample", domain=MS, since=(1,), types={"x": FLOATS})
@op("GridSample", since=(16,), types={"x": NUMERIC, "grid": FLOATS})
def grid_sample_16(
    x: mx.array,
    grid: mx.array,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> mx.array:
    return _grid_sample(x, grid, align_corners, mode, padding_mode)


@op("GridSample", since=(20, 22), types={"x": NUMERIC, "grid": FLOATS})
def grid_sample(
    x: mx.array,
    grid: mx.array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> mx.array:
    return _grid_sample(x, grid, align_corners, mode, padding_mode)


@op("AffineGrid", since=(20,), types={"theta": FLOATS})
def affine_grid(theta: mx.array, size: HostInts, *, align_corners: int = 0) -> mx.array:
    sizes = size[2:]
    rank = len(sizes)
    dtype = theta.dtype if theta.dtype == mx.float64 else mx.float32
    axes = [_grid_axis(n, align_corners, dtype) for n in sizes]
    mesh = mx.meshgrid(*axes, indexing="ij")
    # Coordinates are x, y, z and a 1, for axes z, y, x.
    places = mx.stack([*reversed(mesh), mx.ones(sizes, dtype)], axis=-1).reshape(-1, rank + 1)
    grid = places @ mx.swapaxes(theta.astype(dtype), 1, 2)
    return grid.reshape(-1, *sizes, rank).astype(theta.dtype)


def _grid_axis(count: int, align_corners: int, dtype: mx.Dtype) -> mx.array:
    if align_corners:
        values = [2 * i / (count - 1) - 1 if count > 1 else -1.0 for i in range(count)]
    else:
        values = [(2 * i + 1) / count - 1 for i in range(count)]
    return mx.array(values, dtype)


@op("Col2Im", since=(18,), types={"input": NUMERIC})
def col2im(
    input: mx.array,
    image_shape: HostInts,
    block_shape: HostInts,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    windows = place_windows(
        image_shape, block_shape, dilations=dilations, pads=pads, strides=strides
    )
    batch, blocks, count = input.shape
    channels = blocks // math.prod(block_shape)
    if channels * math.prod(block_shape) != blocks or count != math.prod(windows.counts):
        raise ValueError(
            f"columns {input.shape} do not fit image {image_shape} and block {block_shape}"
        )
    columns = input.reshape(batch, channels, -1, *windows.counts)
    padded = (s + lo + hi for s, lo, hi in zip(image_shape, windows.low, windows.high, strict=True))
    image = mx.zeros((batch, channels, *padded), input.dtype)
    taps = product(*(windows.taps(axis) for axis in range(len(image_shape))))
    for k, tap in enumerate(taps):
        image = image.at[(slice(None), slice(None), *tap)].add(columns[:, :, k])
    for axis, (size, low) in enumerate(zip(image_shape, windows.low, strict=True), 2):
        image = along(image, axis, slice(low, low + size))
    return image


@op("UnfoldTensor", domain=MS, since=(1,))
def unfold_tensor(input: mx.array, *, dim: int = -1, size: int, step: int = 1) -> mx.array:
    dim %= input.ndim
    count = (input.shape[dim] - size) // step + 1
    if count < 1:
        raise ValueError(f"size {size} is larger than axis {dim} of {input.shape}")
    length = (count - 1) * step + 1
    return mx.stack([along(input, dim, slice(k, k + length, step)) for k in range(size)], axis=-1)
