"""Slicing, and triangular and one-hot selection by position.

Sources: ONNX Slice, Trilu, OneHot, Compress, ReverseSequence; mlx.core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from ..bounds import lengths
from ..dtypes import NUMERIC
from ..hosts import HostArray, HostFloat, HostInt, HostInts
from ..node import Node
from ..padding import Axes, Carried, Mixes
from ..registry import op
from ..safety import EAGER, Safety
from ._padding import known, rank_of, sole
from ._shapes import clamp_slice, normalize_axes, normalize_axis


def _slice(
    x: mx.array,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None = None,
) -> mx.array:
    chosen = range(len(starts)) if axes is None else normalize_axes(axes, x.ndim)
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(chosen) == len(steps) <= x.ndim:
        raise ValueError(
            f"starts {starts}, ends {ends}, axes {axes} and steps {steps} do not fit {x.shape}"
        )
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(chosen, starts, ends, steps, strict=True):
        index[axis] = clamp_slice(start, end, step, x.shape[axis])
    return x[tuple(index)]


@op("Slice", since=(1,))
def slice_1(
    data: mx.array,
    *,
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    axes: tuple[int, ...] | None = None,
) -> mx.array:
    return _slice(data, starts, ends, axes)


def _slice_claim(node: Node) -> Iterator[str]:
    if 0 in (node.const("steps") or ()):
        yield "a step is zero"


def _sliced(node: Node, axes: Axes) -> Carried:
    if isinstance(axes[0], tuple):
        start, end = known(node, "starts")[0], known(node, "ends")[0]
        step = 1 if node.missing("steps") else known(node, "steps")[0]
        return axes[0][clamp_slice(start, end, step, len(axes[0]))]
    axis, rank = sole(node, axes, "data"), rank_of(node.input("data"))
    if node.missing("axes"):
        chosen: tuple[int, ...] = tuple(range(len(known(node, "starts"))))
    else:
        chosen = normalize_axes(known(node, "axes"), rank)
    if axis in chosen:
        raise Mixes("it takes a part of this axis")
    return axis


@op("Slice", since=(10, 11, 13), claim=_slice_claim, padding=_sliced)
def slice_(
    data: mx.array,
    starts: HostInts,
    ends: HostInts,
    axes: HostInts | None = None,
    steps: HostInts | None = None,
) -> mx.array:
    return _slice(data, starts, ends, axes, steps)


@op("Trilu", since=(14,))
def trilu(input: mx.array, k: HostInt | None = None, *, upper: int = 1) -> mx.array:
    rows, columns = input.shape[-2:]
    # Beyond the matrix every diagonal is the same, and MLX takes an int32.
    diagonal = min(max(k or 0, -rows - 1), columns + 1)
    below = mx.tri(rows, columns, diagonal - 1 if upper else diagonal, dtype=mx.bool_)
    zero = mx.array(0, dtype=input.dtype)
    return mx.where(below, zero, input) if upper else mx.where(below, input, zero)


@op("OneHot", since=(9, 11, 28), types={"indices": NUMERIC})
def one_hot(indices: mx.array, depth: HostFloat, values: mx.array, *, axis: int = -1) -> mx.array:
    count = int(depth)
    if count < 0 or values.shape != (2,):
        raise ValueError(f"the depth {count} is negative, or not two values: {values.shape}")
    axis = normalize_axis(axis, indices.ndim + 1)
    wanted = mx.expand_dims(indices.astype(mx.int64), axis)
    wanted = mx.where(wanted < 0, wanted + count, wanted)
    place = mx.arange(count, dtype=mx.int64)
    place = place.reshape((count,) + (1,) * (indices.ndim - axis))
    return mx.where(wanted == place, values[1], values[0])


def _of_condition(node: Node) -> Iterator[tuple[Safety, str]]:
    if node.const("condition") is None:
        yield EAGER, "the condition, which is not a constant, decides the size"


@op("Compress", since=(9, 11, 28), less_safe=_of_condition)
def compress(input: mx.array, condition: HostArray, *, axis: int | None = None) -> mx.array:
    if axis is None:
        input, axis = input.reshape(-1), 0
    axis = normalize_axis(axis, input.ndim)
    kept = mx.array(condition[: input.shape[axis]].nonzero()[0])
    return mx.take(input, kept, axis=axis)


@op("ReverseSequence", since=(10, 28))
def reverse_sequence(
    input: mx.array, sequence_lens: mx.array, *, batch_axis: int = 1, time_axis: int = 0
) -> mx.array:
    time = normalize_axis(time_axis, input.ndim)
    batch = normalize_axis(batch_axis, input.ndim)
    counts = lengths(sequence_lens, input.shape[time]).astype(mx.int32).reshape(-1, 1)
    step = mx.arange(input.shape[time], dtype=mx.int32)
    order = mx.where(step < counts, counts - 1 - step, step)  # [batch, time]
    if time < batch:
        order = order.T
    order = mx.expand_dims(order, [a for a in range(input.ndim) if a not in (time, batch)])
    return mx.take_along_axis(input, order, axis=time)
