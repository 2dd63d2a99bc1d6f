"""Resize and Upsample, one axis at a time, from tables made on the host.

Sources: ONNX Resize and Upsample. Every output element of an axis is a weighted sum of a few input
elements (`Taps`); axes that do not change are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import mlx.core as mx

from ..hosts import HostFloats, HostInts
from ..node import Node
from ..padding import Axes, Mixes
from ..registry import op
from ._padding import rank_of, sole
from ._resampling import (
    COORDINATES,
    Axis,
    Rounding,
    Taps,
    cubic_filter,
    filtered_taps,
    linear_filter,
    nearest_taps,
    single,
)
from ._shapes import normalize_axes
from ._windows import channels_first, channels_last

_GATHERED_TAPS: Final = 4  # more taps than cubic has go through a matrix product


def _apply(x: mx.array, at: int, axis: Axis, taps: Taps) -> mx.array:
    """Resize one axis of an array that is already of the type to compute in."""
    if taps.weights is None:
        indices = [row[0] for row in taps.indices]
        factor = axis.out // axis.size
        if factor and indices == [i // factor for i in range(factor * axis.size)]:
            return mx.repeat(x, factor, axis=at)
        return mx.take(x, mx.array(indices, mx.int32), axis=at)
    count = len(taps.indices[0])
    if count > _GATHERED_TAPS:
        matrix = [_dense(row, parts, axis.size) for row, parts in _rows(taps)]
        return mx.moveaxis(mx.moveaxis(x, at, -1) @ mx.array(matrix, x.dtype).T, -1, at)
    column = (-1,) + (1,) * (x.ndim - at - 1)
    terms = (
        mx.take(x, mx.array([row[k] for row in taps.indices], mx.int32), axis=at)
        * mx.array([row[k] for row in taps.weights], x.dtype).reshape(column)
        for k in range(count)
    )
    return reduce(mx.add, terms)


def _rows(taps: Taps) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
    return zip(taps.indices, taps.weights or (), strict=True)


def _dense(indices: Sequence[int], weights: Sequence[float], size: int) -> list[float]:
    row = [0.0] * size
    for index, weight in zip(indices, weights, strict=True):
        row[index] += weight
    return row


def _round_to(x: mx.array, dtype: mx.Dtype) -> mx.array:
    """Round half up and saturate, as ORT stores integers between two antialiased axes."""
    limits = mx.iinfo(dtype)
    return mx.clip(mx.floor(x + 0.5), limits.min, limits.max).astype(dtype)


@dataclass(frozen=True)
class Method:
    """The attributes of Resize that say how; the defaults are those before version 11."""

    mode: str
    coordinates: str = "asymmetric"
    nearest_mode: str = "floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    antialias: int = 0
    simple_nearest: bool = False

    def taps(self, axis: Axis, coordinates: list[float]) -> Taps:
        if self.mode == "nearest":
            return nearest_taps(axis, coordinates, self.nearest_mode, self.simple_nearest)
        stretch = max(1.0, 1 / axis.scale) if self.antialias else 1.0
        if self.mode == "linear":
            exclude = self.exclude_outside and self.antialias
            return filtered_taps(axis, coordinates, linear_filter, 1, stretch, exclude)

        def weigh(distance: float) -> float:
            return cubic_filter(distance, self.cubic_coeff_a)

        return filtered_taps(axis, coordinates, weigh, 2, stretch, self.exclude_outside)

    def locate(self, axis: Axis, rounding: Rounding) -> list[float]:
        return [COORDINATES[self.coordinates](x, axis, rounding) for x in range(axis.out)]


def _resize(x: mx.array, axes: Sequence[Axis], method: Method) -> mx.array:
    if 0 in x.shape or 0 in (axis.out for axis in axes):
        return mx.zeros([axis.out for axis in axes], x.dtype)
    dtype = x.dtype
    wide = dtype if method.mode == "nearest" or dtype == mx.float64 else mx.float32
    round_each = method.antialias and mx.issubdtype(dtype, mx.integer)
    # Elements of one place in the image lie together after a convolution: keep it so.
    last = x.ndim > 2 and axes[0].is_identity and axes[1].is_identity
    order = [0, *range(2, x.ndim), 1] if last else list(range(x.ndim))
    x = channels_last(x) if last else x
    outside = None
    for at in reversed(range(len(order))):
        axis = axes[order[at]]
        if axis.is_identity:
            continue
        coordinates = method.locate(axis, float if dtype == mx.float64 else single)
        x = _apply(x.astype(wide), at, axis, method.taps(axis, coordinates))
        x = _round_to(x, dtype) if round_each else x
        if method.coordinates == "tf_crop_and_resize":
            away = mx.array([not 0 <= c <= axis.size - 1 for c in coordinates])
            away = away.reshape((-1,) + (1,) * (len(axes) - at - 1))
            outside = away if outside is None else outside | away
    x = x.astype(dtype)
    if outside is not None:
        x = mx.where(outside, mx.array(method.extrapolation_value, dtype), x)
    return channels_first(x) if last else x


def _scaled(x: mx.array, scales: Sequence[float]) -> list[Axis]:
    if len(scales) != x.ndim:
        raise ValueError(f"{len(scales)} scales do not fit the shape {x.shape}")
    return [
        Axis(size, math.floor(single(size * scale)), scale)
        for size, scale in zip(x.shape, scales, strict=True)
    ]


def _sized(
    x: mx.array, sizes: Sequence[int], axes: Sequence[int], keep_aspect_ratio_policy: str
) -> list[Axis]:
    made = [Axis(size, size, 1.0) for size in x.shape]
    ratios = [single(out / (x.shape[axis] or 1)) for out, axis in zip(sizes, axes, strict=True)]
    if keep_aspect_ratio_policy != "stretch":
        scale = min(ratios) if keep_aspect_ratio_policy == "not_larger" else max(ratios)
        ratios = [scale] * len(ratios)
        sizes = [math.floor(single(scale * x.shape[axis]) + 0.5) for axis in axes]
    for out, axis, scale in zip(sizes, axes, ratios, strict=True):
        made[axis] = Axis(x.shape[axis], out, scale)
    return made


def _cropped(made: list[Axis], axes: Sequence[int], roi: Sequence[float]) -> list[Axis]:
    count = len(axes)
    if len(roi) != 2 * count:
        raise ValueError(f"{len(roi)} roi values do not fit {count} axes")
    made = list(made)
    for axis, start, end in zip(axes, roi[:count], roi[count:], strict=True):
        old = made[axis]
        made[axis] = Axis(old.size, old.out, old.scale, (start, end))
    return made


def _resize_by(
    method: Method,
    x: mx.array,
    roi: Sequence[float] | None,
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
    axes: Sequence[int] | None = None,
    keep_aspect_ratio_policy: str = "stretch",
) -> mx.array:
    """Resize by the scales or to the sizes, whichever is given and not empty."""
    axes = [axis % x.ndim for axis in axes or range(x.ndim)]
    if scales:
        spread = dict(zip(axes, scales, strict=True))
        made = _scaled(x, [spread.get(axis, 1.0) for axis in range(x.ndim)])
    elif sizes:
        made = _sized(x, sizes, axes, keep_aspect_ratio_policy)
    else:
        raise ValueError("neither scales nor sizes is given")
    if method.coordinates == "tf_crop_and_resize":
        made = _cropped(made, axes, roi or ())
    return _resize(x, made, method)


def _claim(node: Node) -> Iterator[str]:
    if node.attr("mode", "nearest") not in ("nearest", "linear", "cubic"):
        yield "the mode is not nearest, linear or cubic"


def _resized(node: Node, axes: Axes) -> int:
    axis, rank = sole(node, axes, "x"), rank_of(node.input("x"))
    scales = node.const("scales")
    chosen = normalize_axes(node.attr("axes") or range(rank), rank)
    if axis not in chosen:
        return axis
    if node.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise Mixes("it crops")
    if not scales or len(scales) != len(chosen) or scales[chosen.index(axis)] != 1:
        raise Mixes("it resizes this axis, or nothing shows that it does not")
    return axis


@op("Upsample", since=(7,), claim=_claim)
def upsample_7(x: mx.array, *, mode: str = "nearest", scales: tuple[float, ...]) -> mx.array:
    return _resize(x, _scaled(x, scales), Method(mode, simple_nearest=True))


@op("Upsample", since=(9,), claim=_claim)
@op("Resize", since=(10,), claim=_claim, padding=_resized)
def resize_10(x: mx.array, scales: HostFloats, *, mode: str = "nearest") -> mx.array:
    return _resize(x, _scaled(x, scales), Method(mode, simple_nearest=True))


@op("Resize", since=(11,), claim=_claim, padding=_resized)
def resize_11(
    x: mx.array,
    roi: HostFloats,
    scales: HostFloats,
    sizes: HostInts | None = None,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> mx.array:
    method = Method(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        exclude_outside,
        extrapolation_value,
    )
    return _resize_by(method, x, roi, scales, sizes)


@op("Resize", since=(13,), claim=_claim, padding=_resized)
def resize_13(
    x: mx.array,
    roi: HostFloats | None = None,
    scales: HostFloats | None = None,
    sizes: HostInts | None = None,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> mx.array:
    method = Method(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        exclude_outside,
        extrapolation_value,
    )
    return _resize_by(method, x, roi, scales, sizes)


@op("Resize", since=(18, 19), claim=_claim, padding=_resized)
def resize(
    x: mx.array,
    roi: HostFloats | None = None,
    scales: HostFloats | None = None,
    sizes: HostInts | None = None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> mx.array:
    method = Method(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        exclude_outside,
        extrapolation_value,
        antialias,
    )
    return _resize_by(method, x, roi, scales, sizes, axes, keep_aspect_ratio_policy)
