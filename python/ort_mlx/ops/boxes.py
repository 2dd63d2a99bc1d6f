"""Boxes in images: RoiAlign, MaxRoiPool, NonMaxSuppression and ORT's CropAndResize.

Sources: the ONNX operators of these names and ORT's com.microsoft CropAndResize. Boxes are mostly
computed, so what depends on their values is decided on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import product
from typing import Any

import mlx.core as mx

from ..bounds import inside
from ..dtypes import FLOATS, INDICES, SINGLES
from ..hosts import HostArray, HostFloat, HostInt, HostInts, HostValue, host_array, to_host
from ..node import Node
from ..registry import MS, op
from ..safety import EAGER, Safety
from ._sampling import image_rows, interpolate, linear_parts, read_rows, weighted_corners
from ._windows import Ints


def _widen(x: mx.array) -> mx.array:
    return x if x.dtype == mx.float64 else x.astype(mx.float32)


class _Bins:
    """Where the bins of each box along one axis are sampled; arrays are [boxes, bins]."""

    def __init__(self, start: mx.array, extent: mx.array, bins: int, sampling_ratio: int) -> None:
        self.start = start[:, None]
        self.step = extent[:, None] / bins
        self.bin = mx.arange(bins).astype(start.dtype)
        if sampling_ratio > 0:
            self.samples = sampling_ratio
            self.count = mx.full(self.step.shape, sampling_ratio, start.dtype)
        else:  # as many samples as the largest box has pixels a bin: read from the boxes
            self.count = mx.ceil(self.step)
            self.samples = int(to_host(mx.max(self.count))) if self.count.size else 0

    def at(self, sample: int) -> mx.array:
        inside = (sample + 0.5) / mx.maximum(self.count, 1)
        return self.start + (self.bin + inside) * self.step

    def is_used(self, sample: int) -> mx.array:
        return sample < self.count


def _images(batch_indices: mx.array, x: mx.array) -> mx.array:
    """The image of each box."""
    return inside(batch_indices, x.shape[0]).astype(mx.int32)


def _roi_align(
    x: mx.array,
    rois: mx.array,
    batch_indices: mx.array,
    half_pixel: bool,
    mode: str,
    bins: tuple[int, int],
    sampling_ratio: int,
    spatial_scale: float,
) -> mx.array:
    sizes = x.shape[2:]
    scaled = _widen(rois) * spatial_scale - (0.5 if half_pixel else 0)
    left, top, right, bottom = (scaled[:, k] for k in range(4))
    extents = [bottom - top, right - left]
    if not half_pixel:  # boxes have at least one pixel
        extents = [mx.maximum(e, 1) for e in extents]
    rows, columns = (
        _Bins(start, extent, n, sampling_ratio)
        for start, extent, n in zip((top, left), extents, bins, strict=True)
    )
    pixels = image_rows(_widen(x))
    first = (_images(batch_indices, x) * math.prod(sizes))[:, None, None]
    fetch = partial(read_rows, pixels, sizes, first)
    samples = (
        _sample(fetch, sizes, rows, columns, y, x_, mode)
        for y, x_ in product(range(rows.samples), range(columns.samples))
    )
    empty = mx.zeros((rois.shape[0], *bins, x.shape[1]), pixels.dtype)
    if mode == "max":
        lowest = mx.full(empty.shape, -math.inf, empty.dtype)
        best = reduce(
            mx.maximum, (mx.where(used, value, -math.inf) for value, used in samples), lowest
        )
        total = mx.where(mx.isinf(best), empty, best)
    else:
        total = reduce(mx.add, (mx.where(used, value, 0) for value, used in samples), empty)
        count = mx.maximum(rows.count * columns.count, 1)
        total = total / count[:, :, None, None]
    return mx.moveaxis(total, -1, 1).astype(x.dtype)


def _sample(
    fetch: Callable[[Sequence[mx.array]], mx.array],
    sizes: Ints,
    rows: _Bins,
    columns: _Bins,
    row: int,
    column: int,
    mode: str,
) -> tuple[mx.array, mx.array]:
    """One sample of every bin, [boxes, height, width, channels], and whether it is used."""
    places = rows.at(row)[:, :, None], columns.at(column)[:, None, :]
    outside = reduce(
        mx.logical_or, ((p < -1) | (p > size) for p, size in zip(places, sizes, strict=True))
    )
    parts = [linear_parts(mx.clip(p, 0, size - 1)) for p, size in zip(places, sizes, strict=True)]
    # ORT and the ONNX reference take the maximum of the weighted corners, not of their sum.
    corners = weighted_corners(fetch, parts)
    value = reduce(mx.maximum if mode == "max" else mx.add, corners)
    value = mx.where(outside[..., None], 0, value)
    used = rows.is_used(row) & columns.is_used(column)
    return value, used[:, :, None, None]


def _by_boxes(node: Node) -> Iterator[tuple[Safety, str]]:
    if node.attr("sampling_ratio", 0) <= 0:
        yield EAGER, "sampling_ratio is 0: the boxes say how many samples there are"


@op(
    "RoiAlign",
    since=(10,),
    types={"x": FLOATS, "rois": FLOATS, "batch_indices": INDICES},
    less_safe=_by_boxes,
)
def roi_align_10(
    x: mx.array,
    rois: mx.array,
    batch_indices: mx.array,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> mx.array:
    bins = (output_height, output_width)
    return _roi_align(x, rois, batch_indices, False, mode, bins, sampling_ratio, spatial_scale)


@op(
    "RoiAlign",
    since=(16, 22),
    types={"x": FLOATS, "rois": FLOATS, "batch_indices": INDICES},
    less_safe=_by_boxes,
)
def roi_align(
    x: mx.array,
    rois: mx.array,
    batch_indices: mx.array,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> mx.array:
    half, bins = coordinate_transformation_mode == "half_pixel", (output_height, output_width)
    return _roi_align(x, rois, batch_indices, half, mode, bins, sampling_ratio, spatial_scale)


def _of_boxes(node: Node) -> Iterator[tuple[Safety, str]]:
    if node.const("rois") is None:
        yield EAGER, "the boxes are not a constant"


@op("MaxRoiPool", since=(1, 22), types={"x": FLOATS, "rois": FLOATS}, less_safe=_of_boxes)
def max_roi_pool(
    x: mx.array, rois: HostArray, *, pooled_shape: Ints, spatial_scale: float = 1.0
) -> mx.array:
    pooled = []
    for batch, *box in rois.tolist():
        left, top, right, bottom = (_round(side * spatial_scale) for side in box)
        if not 0 <= batch < x.shape[0]:
            raise ValueError(f"a box of image {batch} of {x.shape[0]}")
        image = x[int(batch)]
        for axis, start, end, bins in ((1, top, bottom, 0), (2, left, right, 1)):
            image = _max_bins(image, axis, start, end, pooled_shape[bins])
        pooled.append(image)
    return mx.stack(pooled) if pooled else mx.zeros((0, x.shape[1], *pooled_shape), x.dtype)


def _round(value: float) -> int:
    """Half away from zero, as C does."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _max_bins(image: mx.array, axis: int, start: int, end: int, bins: int) -> mx.array:
    """The maximum of each bin along an axis; an empty bin is zero."""
    step = max(end - start + 1, 1) / bins
    size = image.shape[axis]
    parts = []
    for k in range(bins):
        low = min(max(start + math.floor(k * step), 0), size)
        high = min(max(start + math.ceil((k + 1) * step), 0), size)
        part = image[(slice(None),) * axis + (slice(low, high),)]
        if high > low:
            parts.append(mx.max(part, axis=axis, keepdims=True))
        else:
            shape = (*image.shape[:axis], 1, *image.shape[axis + 1 :])
            parts.append(mx.zeros(shape, image.dtype))
    return mx.concatenate(parts, axis=axis)


@op(
    "CropAndResize",
    domain=MS,
    since=(1,),
    types={"x": SINGLES, "batch_indices": INDICES},
)
def crop_and_resize(
    x: mx.array,
    rois: mx.array,
    batch_indices: mx.array,
    crop_size: HostInts,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> mx.array:
    sizes = x.shape[2:]
    boxes = _widen(rois)
    places = [
        _crop(boxes[:, k], boxes[:, k + 2], size, out)
        for k, (size, out) in enumerate(zip(sizes, crop_size, strict=True))
    ]
    places = [places[0][:, :, None], places[1][:, None, :]]
    first = (_images(batch_indices, x) * math.prod(sizes))[:, None, None]
    fetch = partial(read_rows, image_rows(_widen(x)), sizes, first)
    inside = reduce(
        mx.logical_and, ((p >= 0) & (p <= size - 1) for p, size in zip(places, sizes, strict=True))
    )
    if mode == "nearest":
        y = fetch([mx.floor(p + 0.5).astype(mx.int32) for p in places])
    else:
        y = interpolate(fetch, [linear_parts(p) for p in places])
    y = mx.where(inside[..., None], y, extrapolation_value)
    return mx.moveaxis(y, -1, 1).astype(x.dtype)


def _crop(start: mx.array, end: mx.array, size: int, out: int) -> mx.array:
    """The coordinates of the crops along one axis, [boxes, out]."""
    if out == 1:
        return (0.5 * (start + end) * (size - 1))[:, None]
    step = ((end - start) * (size - 1) / (out - 1))[:, None]
    return (start * (size - 1))[:, None] + mx.arange(out) * step


@op("NonMaxSuppression", since=(10, 11), safety=EAGER)
def non_max_suppression(
    boxes: HostArray,
    scores: HostArray,
    max_output_boxes_per_class: HostInt | None = None,
    iou_threshold: HostFloat | None = None,
    score_threshold: HostFloat | None = None,
    *,
    center_point_box: int = 0,
) -> HostValue:
    limit = max(max_output_boxes_per_class or 0, 0)
    corners = _corners(boxes, center_point_box)
    chosen: list[int] = []
    for batch, class_ in product(range(scores.shape[0]), range(scores.shape[1])):
        row = scores[batch, class_]
        order = (-row).argsort(kind="stable")
        if score_threshold is not None:
            order = order[row[order] > score_threshold]
        image = [side[batch] for side in corners]
        for box in _suppress(image, order, limit, iou_threshold or 0.0):
            chosen += (batch, class_, box)
    return host_array(chosen).reshape(-1, 3)


def _corners(boxes: HostValue, center_point_box: int) -> tuple[Any, Any, Any, Any]:
    """The low and high sides along both axes, whichever way round the box is given."""
    a, b, c, d = (boxes[..., k] for k in range(4))
    if center_point_box:  # x, y, width, height
        return a - c / 2, b - d / 2, a + c / 2, b + d / 2
    return a.clip(max=c), b.clip(max=d), a.clip(min=c), b.clip(min=d)


def _suppress(sides: Sequence[Any], order: Any, limit: int, threshold: float) -> Iterator[int]:
    """Take the best box, drop those that overlap it, repeat."""
    low_a, low_b, high_a, high_b = sides
    areas = (high_a - low_a) * (high_b - low_b)
    for _ in range(limit):
        if not order.size:
            return
        best, rest = order[0], order[1:]
        yield int(best)
        width = high_a[rest].clip(max=high_a[best]) - low_a[rest].clip(min=low_a[best])
        height = high_b[rest].clip(max=high_b[best]) - low_b[rest].clip(min=low_b[best])
        overlap = width.clip(min=0) * height.clip(min=0)
        union = areas[rest] + areas[best] - overlap
        # Boxes without an area never suppress; multiplying avoids a division by zero.
        real = (areas[rest] > 0) & (areas[best] > 0) & (union > 0)
        order = rest[~(real & (overlap > 0) & (overlap > threshold * union))]
