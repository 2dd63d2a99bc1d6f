"""Which input elements make up each output element of a resized axis, and how much of each.

Pure Python, following the coordinate and rounding rules of ONNX Resize. ORT computes coordinates in
float32, so they are rounded alike: a tie between two neighbours has to fall on the same side.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


def single(value: float) -> float:
    """Rounded to float32, in which ORT computes coordinates."""
    return array("f", (value,))[0]


Rounding = Callable[[float], float]  # `single`, or `float` for a float64 image


@dataclass(frozen=True)
class Axis:
    """How one axis is resized."""

    size: int
    out: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def is_identity(self) -> bool:
        return self.size == self.out and self.scale == 1 and self.roi == (0.0, 1.0)


@dataclass(frozen=True)
class Taps:
    """For every output element, the input elements and their weights; no weights means a copy."""

    indices: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[float, ...], ...] | None = None


def _half_pixel(x: int, axis: Axis, f: Rounding) -> float:
    return f(f((x + 0.5) / axis.scale) - 0.5)


def _half_pixel_symmetric(x: int, axis: Axis, f: Rounding) -> float:
    adjustment = f(axis.out / f(axis.scale * axis.size))
    offset = f(axis.size / 2 * f(1 - adjustment))
    return f(f(offset + f((x + 0.5) / axis.scale)) - 0.5)


def _pytorch_half_pixel(x: int, axis: Axis, f: Rounding) -> float:
    return _half_pixel(x, axis, f) if axis.out > 1 else 0.0


def _tf_half_pixel_for_nn(x: int, axis: Axis, f: Rounding) -> float:
    return f((x + 0.5) / axis.scale)


def _asymmetric(x: int, axis: Axis, f: Rounding) -> float:
    return f(x / axis.scale)


def _align_corners(x: int, axis: Axis, f: Rounding) -> float:
    return 0.0 if axis.out == 1 else f(x * (axis.size - 1) / (axis.out - 1))


def _tf_crop_and_resize(x: int, axis: Axis, f: Rounding) -> float:
    start, end = axis.roi
    if axis.out > 1:
        span = f(f(x * f(end - start)) * (axis.size - 1))
        return f(f(start * (axis.size - 1)) + f(span / (axis.out - 1)))
    return f(0.5 * f(start + end) * (axis.size - 1))


COORDINATES: Final[dict[str, Callable[[int, Axis, Rounding], float]]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
    "asymmetric": _asymmetric,
    "align_corners": _align_corners,
    "tf_crop_and_resize": _tf_crop_and_resize,
}

_TIE: Final = 1e-6  # ORT counts a coordinate this near to a half as one

_NEAREST: Final[dict[str, Callable[[float], int]]] = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5 - _TIE),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5 + _TIE),
    "floor": math.floor,
    "ceil": math.ceil,
}


def linear_filter(distance: float) -> float:
    return max(0.0, 1 - abs(distance))


def cubic_filter(distance: float, a: float) -> float:
    x = abs(distance)
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0


def _clamp(index: int, axis: Axis) -> int:
    return min(max(index, 0), axis.size - 1)


def nearest_taps(axis: Axis, coordinates: list[float], nearest_mode: str, simple: bool) -> Taps:
    rounded = _NEAREST[nearest_mode]
    if simple:  # before version 11: up is floor, down is ceil
        rounded = math.ceil if axis.scale < 1 else math.floor
    return Taps(tuple((_clamp(rounded(x), axis),) for x in coordinates))


def filtered_taps(
    axis: Axis,
    coordinates: list[float],
    weigh: Callable[[float], float],
    radius: float,
    stretch: float,
    exclude_outside: int,
) -> Taps:
    """Weigh the elements within `radius` of each coordinate; those outside count for the border."""
    indices, weights = [], []
    reach = math.ceil(radius * stretch)
    for x in coordinates:
        near = range(math.floor(x) - reach + 1, math.floor(x) + reach + 1)
        parts = [weigh((k - x) / stretch) for k in near]
        if exclude_outside:
            parts = [p if 0 <= k < axis.size else 0.0 for k, p in zip(near, parts, strict=True)]
        total = sum(parts) or 1.0
        indices.append(tuple(_clamp(k, axis) for k in near))
        weights.append(tuple(p / total for p in parts))
    return Taps(tuple(indices), tuple(weights))
