"""Reading an image at computed places: shared by GridSample, RoiAlign and DeformConv.

Images are rows, one per pixel with its channels side by side, so that one `mx.take` reads every
channel of every place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import mlx.core as mx

from ._windows import Ints, channels_last

Fetch = Callable[[Sequence[mx.array]], mx.array]  # whole-numbered places to values


def image_rows(x: mx.array) -> mx.array:
    """[batch, channels, *spatial] as [batch * pixels, channels]."""
    return channels_last(x).reshape(-1, x.shape[1])


def read_rows(rows: mx.array, sizes: Ints, first: mx.array, places: Sequence[mx.array]) -> mx.array:
    """The rows at integer `places`, one array a spatial axis, clamped to the image.

    `first` is the number of the image's first row, broadcast against the places.
    """
    at = mx.zeros_like(places[0])
    for size, place in zip(sizes, places, strict=True):
        at = at * size + mx.clip(place, 0, size - 1)
    return mx.take(rows, first + at, axis=0)


def is_inside(sizes: Ints, places: Sequence[mx.array]) -> mx.array:
    """Where every coordinate is in the image."""
    inside = mx.array(True)
    for size, place in zip(sizes, places, strict=True):
        inside = inside & (place >= 0) & (place <= size - 1)
    return inside


def first_rows(batch: int, sizes: Ints, rank: int) -> mx.array:
    """The first row of each image, shaped [batch, 1, ...] of the given rank."""
    return (mx.arange(batch) * math.prod(sizes)).reshape(-1, *(1,) * (rank - 1))


def read_zero_padded(rows: mx.array, sizes: Ints, first: mx.array) -> Fetch:
    """A fetch that gives zero outside of the image."""

    def fetch(places: Sequence[mx.array]) -> mx.array:
        values = read_rows(rows, sizes, first, places)
        inside = mx.expand_dims(is_inside(sizes, places), -1)
        return mx.where(inside, values, mx.array(0, rows.dtype))

    return fetch


def linear_parts(where: mx.array) -> list[tuple[mx.array, mx.array]]:
    """The two neighbours of a coordinate and their weights."""
    low = mx.floor(where)
    part = where - low
    low = low.astype(mx.int32)
    return [(low, 1 - part), (low + 1, part)]


def interpolate(fetch: Fetch, parts: Sequence[list[tuple[mx.array, mx.array]]]) -> mx.array:
    """The weighted sum over all combinations of neighbours, one list a spatial axis."""
    return sum(weighted_corners(fetch, parts), start=mx.array(0, parts[0][0][1].dtype))


def weighted_corners(
    fetch: Fetch, parts: Sequence[list[tuple[mx.array, mx.array]]]
) -> Iterator[mx.array]:
    """Each combination of neighbours, times its weight."""
    for corner in product(*parts):
        weight = math.prod((w for _, w in corner[1:]), start=corner[0][1])
        yield fetch([place for place, _ in corner]) * mx.expand_dims(weight, -1)
