"""Axes, pads, bounds and broadcasting: the shape arithmetic of ONNX, in pure Python.

Nothing here touches an array. Sources: the ONNX operator texts (Reshape, Slice, Pad, Expand).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, zip_longest
from typing import TypeAlias

Shape: TypeAlias = tuple[int, ...]
Pads: TypeAlias = list[tuple[int, int]]


def normalize_axis(axis: int, rank: int) -> int:
    """The axis counted from the front; raises ValueError when the rank has no such axis."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def normalize_axes(axes: Iterable[int], rank: int) -> Shape:
    """Every axis counted from the front, in the order given; raises ValueError on a repeat."""
    axes = tuple(axes)
    normal = tuple(normalize_axis(axis, rank) for axis in axes)
    if len(set(normal)) != len(normal):
        raise ValueError(f"axes {axes} name an axis twice for rank {rank}")
    return normal


def broadcast_shape(*shapes: Sequence[int]) -> Shape:
    """The shape that all of these broadcast to, as ONNX and numpy say."""
    result = []
    for dims in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        sizes = set(dims) - {1}
        if len(sizes) > 1:
            raise ValueError(f"shapes {', '.join(map(str, map(tuple, shapes)))} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(reversed(result))


def strides_of(shape: Sequence[int]) -> Shape:
    """How many elements one step along each axis skips in row-major order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def resolve_reshape(shape: Sequence[int], target: Sequence[int], allowzero: bool) -> Shape:
    """The shape Reshape makes: a 0 copies a dimension unless `allowzero`, a -1 takes the rest."""
    resolved = list(target)
    mismatch = f"cannot reshape {tuple(shape)} to {tuple(target)}"
    if resolved.count(-1) > 1 or min(resolved, default=0) < -1:
        raise ValueError(mismatch)
    if allowzero and 0 in resolved and -1 in resolved:
        raise ValueError(f"{mismatch}: -1 and 0 together are ambiguous with allowzero")
    for axis, size in enumerate(resolved):
        if size == 0 and not allowzero:
            if axis >= len(shape):
                raise ValueError(f"{mismatch}: there is no dimension {axis} to copy")
            resolved[axis] = shape[axis]
    total = math.prod(shape)
    if -1 in resolved:
        known = math.prod(size for size in resolved if size != -1)
        if known == 0:
            raise ValueError(f"{mismatch}: any size would fit in place of -1")
        resolved[resolved.index(-1)] = total // known
    if math.prod(resolved) != total:
        raise ValueError(mismatch)
    return tuple(resolved)


def clamp_slice(start: int, end: int, step: int, size: int) -> slice:
    """The Python slice that selects what ONNX Slice does.

    Python clamps a negative step's start differently when it lies left of the axis.
    """
    if step == 0:
        raise ValueError("a slice step is zero")
    low, high = (0, size) if step > 0 else (-1, size - 1)
    start, end = (min(max(i + size if i < 0 else i, low), high) for i in (start, end))
    longest = max(size, 1)  # MLX takes 32-bit steps, and a longer one selects no more
    step = min(max(step, -longest), longest)
    return slice(max(start, 0), end if end >= 0 else None, step)


def pad_pairs(pads: Sequence[int], rank: int, axes: Sequence[int] | None = None) -> Pads:
    """ONNX pads (all begins, then all ends) as one (begin, end) pair for every axis."""
    chosen = range(rank) if axes is None else normalize_axes(axes, rank)
    if len(pads) != 2 * len(chosen):
        raise ValueError(f"{len(pads)} pads do not fit {len(chosen)} axes")
    pairs = [(0, 0)] * rank
    for axis, begin, end in zip(chosen, pads, pads[len(chosen) :], strict=False):
        pairs[axis] = (begin, end)
    return pairs


def split_points(sizes: Sequence[int], size: int) -> list[int]:
    """Where to cut an axis into parts of these sizes; raises ValueError unless they fill it."""
    if min(sizes, default=0) < 0 or sum(sizes) != size:
        raise ValueError(f"parts of {tuple(sizes)} do not make an axis of {size}")
    return list(accumulate(sizes[:-1]))
