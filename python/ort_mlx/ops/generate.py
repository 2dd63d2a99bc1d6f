"""Tensors made from a rule, and those whose size depends on the elements.

Sources: ONNX Constant, ConstantOfShape, Range, EyeLike, NonZero, Unique; mlx.core.
"""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx

from ..dtypes import MLX_DTYPES, mlx_dtype
from ..hosts import HostArray, HostFloat, HostInts, HostValue, host_array, to_device
from ..node import Node
from ..padding import SIZE, Axes, Mixes
from ..registry import op
from ..safety import EAGER
from ._padding import numbers
from ._shapes import normalize_axis


@op("Constant", since=(1, 9))
def constant_1(*, value: HostValue) -> mx.array | HostValue:
    return value


@op("Constant", since=(11,), fixed={"sparse_value": None})
def constant_11(*, value: HostValue | None = None) -> mx.array | HostValue:
    return constant(value=value)


@op(
    "Constant",
    since=(12, 13, 19, 21, 23, 24, 25),
    fixed={"sparse_value": None, "value_string": None, "value_strings": None},
)
def constant(
    *,
    value: HostValue | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None,
) -> mx.array | HostValue:
    if value is not None:
        return value
    if value_int is not None:
        return host_array(value_int)
    if value_ints is not None:
        return host_array(value_ints)
    if value_floats is not None:
        return mx.array(list(value_floats), dtype=mx.float32)
    if value_float is None:
        raise ValueError("no value is given")
    return mx.array(value_float, dtype=mx.float32)


def _filled(node: Node, axes: Axes) -> int:
    sized = [i for i, size in enumerate(numbers(node.inputs[0], axes[0])) if size is SIZE]
    if len(sized) != 1:
        raise Mixes("it has the size twice")
    return sized[0]


@op("ConstantOfShape", since=(9, 20, 21, 23, 24, 25), padding=_filled)
def constant_of_shape(input: HostInts, *, value: HostValue | None = None) -> mx.array:
    if min(input, default=0) < 0:
        raise ValueError(f"the shape {input} has a negative dimension")
    if value is None:
        return mx.zeros(input, dtype=mx.float32)
    return mx.broadcast_to(to_device(value).reshape(()), input)


def _range(start: float, limit: float, delta: float, node: Node) -> mx.array:
    if delta == 0:
        raise ValueError("the delta is zero")
    if isinstance(delta, int):
        count = -((start - limit) // delta)
    else:
        count = math.ceil((limit - start) / delta)  # in double for every type, as ORT does
    dtype = MLX_DTYPES[node.dtype("start") or "float32"]
    inner = mx.float32 if dtype in (mx.float16, mx.bfloat16) else dtype
    steps = mx.arange(max(int(count), 0), dtype=mx.int32).astype(inner)
    return (mx.array(start, dtype=inner) + steps * mx.array(delta, dtype=inner)).astype(dtype)


@op("Range", since=(11,))
def range_11(start: HostFloat, limit: HostFloat, delta: HostFloat, *, node: Node) -> mx.array:
    return _range(start, limit, delta, node)


# Halves are always summed in float32, whatever `stash_type` says: it is never less exact.
@op("Range", since=(27,))
def range_(
    start: HostFloat, limit: HostFloat, delta: HostFloat, *, stash_type: int = 1, node: Node
) -> mx.array:
    return _range(start, limit, delta, node)


@op("EyeLike", since=(9, 22))
def eye_like(input: mx.array, *, dtype: int | None = None, k: int = 0) -> mx.array:
    rows, columns = input.shape
    made = input.dtype if dtype is None else mlx_dtype(dtype)
    diagonal = mx.arange(columns)[None] - mx.arange(rows)[:, None]
    return (diagonal == k).astype(made)


# What follows has to see the elements before it knows the shape of its result.
@op("NonZero", since=(9, 13), safety=EAGER)
def non_zero(x: HostArray) -> mx.array:
    positions = x.reshape(x.shape or (1,)).nonzero()
    return mx.stack([mx.array(axis, dtype=mx.int64) for axis in positions])


def _slices(x: HostValue, axis: int | None) -> list[Any]:
    """What Unique compares: the elements, or the slices along an axis as tuples."""
    if axis is None:
        # One NaN object for all, so that they count as equal.
        return [math.nan if item != item else item for item in x.reshape(-1).tolist()]
    axis = normalize_axis(axis, x.ndim)
    rows = x.transpose(axis, *(other for other in range(x.ndim) if other != axis))
    width = math.prod(rows.shape[1:])
    return [tuple(row) for row in rows.reshape(x.shape[axis], width).tolist()]


@op("Unique", since=(11, 28), safety=EAGER)
def unique(
    x: HostArray, *, axis: int | None = None, sorted: int = 1, node: Node
) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    keys = _slices(x, axis)
    first: dict[Any, int] = {}
    for place, key in enumerate(keys):
        first.setdefault(key, place)
    order = list(first)
    if sorted:
        order.sort(key=lambda key: (key != key, key))  # NaN is the largest
    number = {key: place for place, key in enumerate(order)}
    inverse = [number[key] for key in keys]
    counts = [0] * len(order)
    for place in inverse:
        counts[place] += 1
    chosen = mx.array([first[key] for key in order], dtype=mx.int64)
    source = to_device(x if axis is not None else x.reshape(-1))
    picked = mx.take(source, chosen, axis=axis or 0)
    return (
        picked.astype(MLX_DTYPES[node.dtype("x") or "float32"]),
        chosen,
        mx.array(inverse, dtype=mx.int64),
        mx.array(counts, dtype=mx.int64),
    )
