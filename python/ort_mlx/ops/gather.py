"""Reading elements by index.

MLX adds the dimension to a negative index, as ONNX asks. An index outside the dimension is an error
in ONNX; here a constant one is left to another provider, one that comes in with a Run is an error
too, and one that is only known on the device is clamped, since looking would stop the device.
Sources: ONNX Gather, GatherElements, GatherND; mlx.core.take, mlx.core.take_along_axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import mlx.core as mx

from ..bounds import inside
from ..dtypes import INDICES
from ..node import Node
from ..padding import Axes, Carried, Mixes
from ..registry import op
from ._padding import along, known, rank_of
from ._shapes import normalize_axis, strides_of


def index_claim(node: Node) -> Iterator[str]:
    """Declines constant indices that are outside the axis they index."""
    dims, indices = node.dims("data"), node.const("indices")
    axis = node.attr("axis", 0)
    if not indices or not -len(dims) <= axis < len(dims):
        return
    size = dims[axis]
    if isinstance(size, int) and not all(-size <= index < size for index in indices):
        yield f"an index is out of range for an axis of {size}"


def index_nd_claim(node: Node) -> Iterator[str]:
    """Declines constant index tuples that are outside the axes they index."""
    dims, indices, index_dims = node.dims("data"), node.const("indices"), node.dims("indices")
    width = index_dims[-1] if index_dims else None
    if not indices or not dims or not isinstance(width, int):
        return
    first = node.attr("batch_dims", 0)
    for place, size in enumerate(dims[first : first + width]):
        if isinstance(size, int) and not all(-size <= i < size for i in indices[place::width]):
            yield f"an index is out of range for an axis of {size}"


def _gathered(node: Node, axes: Axes) -> Carried:
    if isinstance(axes[0], tuple) and axes[1] is None:
        return tuple(axes[0][i] for i in known(node, "indices"))
    data, indices = along(axes)
    rank = rank_of(node.input("data"))
    at = normalize_axis(node.attr("axis", 0), rank)
    if data is None and indices is not None:
        return at + indices
    if data is None or indices is not None or data == at:
        raise Mixes("it takes positions along this axis")
    return data if data < at else data + rank_of(node.input("indices")) - 1


@op("Gather", since=(1, 11, 13), types={"indices": INDICES}, claim=index_claim, padding=_gathered)
def gather(data: mx.array, indices: mx.array, *, axis: int = 0) -> mx.array:
    axis = normalize_axis(axis, data.ndim)
    return mx.take(data, inside(indices, data.shape[axis]), axis=axis)


@op("GatherElements", since=(11, 13), types={"indices": INDICES}, claim=index_claim)
def gather_elements(data: mx.array, indices: mx.array, *, axis: int = 0) -> mx.array:
    axis = normalize_axis(axis, data.ndim)
    if indices.ndim != data.ndim:
        raise ValueError(f"the ranks differ, got shapes {data.shape} and {indices.shape}")
    near = [slice(size) for size in indices.shape]
    near[axis] = slice(None)
    return mx.take_along_axis(data[tuple(near)], inside(indices, data.shape[axis]), axis=axis)


def position_dtype(count: int) -> mx.Dtype:
    """The dtype for positions among `count` elements: 32 bits wherever they are enough."""
    return mx.int32 if count < 2**31 else mx.int64


def row_numbers(indices: mx.array, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """Tuples in the last axis as row-major positions in `shape`, negative indices wrapped."""
    if indices.shape[-1] == 0:
        return mx.zeros(indices.shape[:-1], dtype=dtype)
    indices = inside(indices, max(shape)).astype(dtype)
    sizes, strides = mx.array(shape, dtype=dtype), mx.array(strides_of(shape), dtype=dtype)
    indices = mx.clip(mx.where(indices < 0, indices + sizes, indices), 0, sizes - 1)
    return mx.sum(indices * strides, axis=-1)


def _gather_nd(data: mx.array, indices: mx.array, batch_dims: int) -> mx.array:
    batch, width = indices.shape[:batch_dims], indices.shape[-1]
    if data.shape[:batch_dims] != batch or batch_dims + width > data.ndim:
        raise ValueError(f"indices of {indices.shape} do not fit data of {data.shape}")
    indexed, rest = data.shape[batch_dims : batch_dims + width], data.shape[batch_dims + width :]
    rows = row_numbers(indices, indexed, position_dtype(data.size))
    if batch_dims:
        first = mx.arange(math.prod(batch), dtype=rows.dtype) * math.prod(indexed)
        rows = rows + first.reshape(batch + (1,) * (rows.ndim - batch_dims))
    flat = data.reshape((math.prod(batch) * math.prod(indexed), *rest))
    return mx.take(flat, rows, axis=0)


@op("GatherND", since=(11,), types={"indices": INDICES}, claim=index_nd_claim)
def gather_nd_11(data: mx.array, indices: mx.array) -> mx.array:
    return _gather_nd(data, indices, 0)


@op("GatherND", since=(12, 13), types={"indices": INDICES}, claim=index_nd_claim)
def gather_nd(data: mx.array, indices: mx.array, *, batch_dims: int = 0) -> mx.array:
    return _gather_nd(data, indices, batch_dims)
