"""Writing elements by index.

Metal scatters no 8-byte elements, so those go as pairs of 32-bit lanes, and their reductions by
sorting the updates: exact everywhere. ONNX leaves the result of repeated indices open unless a
reduction is given. Indices known only on the device are clamped (see gather.py).
Sources: ONNX Scatter, ScatterElements, ScatterND, TensorScatter; mlx.core.array.at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import mlx.core as mx

from ..bounds import inside
from ..dtypes import EVERY, INDICES
from ..node import Node
from ..registry import op
from ._cache import places, write
from ._shapes import normalize_axis, strides_of
from .gather import index_claim, index_nd_claim, position_dtype, row_numbers

_WIDE_INTS: Final = (mx.int64, mx.uint64)
_REDUCTIONS: Final[dict[str, Callable[[mx.array, mx.array], mx.array]]] = {
    "add": mx.add,
    "mul": mx.multiply,
    "max": mx.maximum,
    "min": mx.minimum,
}


def _scatter_rows(
    rows: mx.array, index: mx.array, updates: mx.array, reduction: str = "none"
) -> mx.array:
    """Combine `updates` [count, width] into `rows` [total, width] at `index` [count]."""
    if index.size == 0 or updates.size == 0:
        return rows
    if reduction != "none" and rows.dtype in _WIDE_INTS:
        index, updates = _combined(rows, index, updates, _REDUCTIONS[reduction])
        reduction = "none"
    if reduction == "none":
        return _assign_rows(rows, index, updates)
    place = rows.at[index]
    if reduction == "add":
        return place.add(updates)
    if reduction == "mul":
        return place.multiply(updates)
    return place.maximum(updates) if reduction == "max" else place.minimum(updates)


def _assign_rows(rows: mx.array, index: mx.array, updates: mx.array) -> mx.array:
    if rows.dtype in _WIDE_INTS:
        lanes = _assign_rows(rows.view(mx.uint32), index, updates.view(mx.uint32))
        return lanes.view(rows.dtype)
    result = mx.array(rows)  # item assignment rebinds this array, not the caller's
    result[index] = updates
    return result


def _combined(
    rows: mx.array,
    index: mx.array,
    updates: mx.array,
    combine: Callable[[mx.array, mx.array], mx.array],
) -> tuple[mx.array, mx.array]:
    """The final value at every index, by a segmented scan over the sorted indices."""
    order = mx.argsort(index)
    index, updates = index[order], updates[order]
    step = 1
    while step < index.size:
        same = (index[step:] == index[:-step])[:, None]
        reached = mx.where(same, combine(updates[:-step], updates[step:]), updates[step:])
        updates = mx.concatenate([updates[:step], reached])
        step *= 2
    # Every repeat of an index gets its segment's total, so it does not matter which is written.
    last = mx.searchsorted(index, index, side="right").astype(mx.int32) - 1
    return index, combine(rows[index], updates[last])


def _scatter_elements(
    data: mx.array, indices: mx.array, updates: mx.array, axis: int, reduction: str
) -> mx.array:
    axis = normalize_axis(axis, data.ndim)
    fits = indices.shape == updates.shape and indices.ndim == data.ndim
    if not fits or any(
        indices.shape[other] > data.shape[other] for other in range(data.ndim) if other != axis
    ):
        raise ValueError(
            f"indices and updates do not fit, got shapes {data.shape}, {indices.shape} "
            f"and {updates.shape}"
        )
    dtype = position_dtype(data.size)
    strides = strides_of(data.shape)
    if data.size == 0:
        return data
    indices = inside(indices, data.shape[axis]).astype(dtype)
    position = mx.where(indices < 0, indices + data.shape[axis], indices) * strides[axis]
    for other, size in enumerate(indices.shape):
        if other != axis:
            along = mx.arange(size, dtype=dtype) * strides[other]
            position = position + along.reshape((size,) + (1,) * (data.ndim - 1 - other))
    flat = _scatter_rows(
        data.reshape(-1, 1), position.reshape(-1), updates.reshape(-1, 1), reduction
    )
    return flat.reshape(data.shape)


@op("Scatter", since=(9, 11), types={"indices": INDICES}, claim=index_claim)
@op("ScatterElements", since=(11, 13), types={"indices": INDICES}, claim=index_claim)
def scatter_elements_11(
    data: mx.array, indices: mx.array, updates: mx.array, *, axis: int = 0
) -> mx.array:
    return _scatter_elements(data, indices, updates, axis, "none")


@op("ScatterElements", since=(16, 18), types={"indices": INDICES}, claim=index_claim)
def scatter_elements(
    data: mx.array,
    indices: mx.array,
    updates: mx.array,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> mx.array:
    return _scatter_elements(data, indices, updates, axis, reduction)


def _scatter_nd(data: mx.array, indices: mx.array, updates: mx.array, reduction: str) -> mx.array:
    width = indices.shape[-1]
    if width > data.ndim or updates.shape != indices.shape[:-1] + data.shape[width:]:
        raise ValueError(
            f"updates do not fit, got shapes {data.shape}, {indices.shape} and {updates.shape}"
        )
    if data.size == 0 or updates.size == 0:
        return data
    count, columns = math.prod(data.shape[:width]), math.prod(data.shape[width:])
    index = row_numbers(indices, data.shape[:width], position_dtype(data.size))
    rows, flat = data.reshape(count, columns), updates.reshape(-1, columns)
    return _scatter_rows(rows, index.reshape(-1), flat, reduction).reshape(data.shape)


@op("ScatterND", since=(11, 13), types={"indices": INDICES}, claim=index_nd_claim)
def scatter_nd_11(data: mx.array, indices: mx.array, updates: mx.array) -> mx.array:
    return _scatter_nd(data, indices, updates, "none")


@op("ScatterND", since=(16, 18), types={"indices": INDICES}, claim=index_nd_claim)
def scatter_nd(
    data: mx.array, indices: mx.array, updates: mx.array, *, reduction: str = "none"
) -> mx.array:
    return _scatter_nd(data, indices, updates, reduction)


def _tensor_scatter_claim(node: Node) -> Iterator[str]:
    rank = node.rank("past_cache")
    axis = node.attr("axis", -2)
    if rank is not None and (axis + rank if axis < 0 else axis) == 0:
        yield "the axis is the batch axis"


@op(
    "TensorScatter",
    since=(24,),
    types={"past_cache": EVERY, "update": EVERY, "write_indices": INDICES},
    claim=_tensor_scatter_claim,
)
def tensor_scatter(
    past_cache: mx.array,
    update: mx.array,
    write_indices: mx.array | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> mx.array:
    axis = normalize_axis(axis, past_cache.ndim)
    expected = [update.shape[i] if i == axis else n for i, n in enumerate(past_cache.shape)]
    if list(update.shape) != expected:
        raise ValueError(f"the update does not fit: {past_cache.shape} and {update.shape}")
    if update.shape[axis] > past_cache.shape[axis]:
        raise ValueError(f"the update is longer than the cache: {past_cache.shape}, {update.shape}")
    if write_indices is None:
        write_indices = mx.zeros((update.shape[0],), dtype=mx.int32)
    if update.size == 0:
        return past_cache
    if past_cache.dtype in _WIDE_INTS:
        at = places(update, write_indices, axis) % past_cache.shape[axis]
        return _scatter_elements(past_cache, at, update, axis, "none")
    return write(past_cache, update, write_indices, axis, circular=mode == "circular")
