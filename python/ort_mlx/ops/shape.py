"""Shape, axes and order: what a tensor's dimensions are, and moving them around.

Sources: ONNX Shape, Size, Identity, Squeeze, Unsqueeze, Transpose, Concat, Split; mlx.core.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import mlx.core as mx

from ..dtypes import EVERY
from ..hosts import HostInts, HostValue, host_array
from ..node import Node
from ..padding import SIZE, Axes, Carried, Mixes
from ..registry import op
from ..safety import SHAPELESS
from ._padding import along, apart_from, at_axis, known, numbers, rank_of, sole, unchanged
from ._shapes import normalize_axes, normalize_axis, split_points


def _measured(node: Node, axes: Axes) -> Carried:
    """The sizes of the dimensions, of which one is the padded size."""
    axis, dims = sole(node, axes, "data"), node.dims("data")
    if not dims:
        raise Mixes("has an input of which the rank is not known")
    sizes = [SIZE if i == axis else d if isinstance(d, int) else None for i, d in enumerate(dims)]
    return tuple(sizes[node.attr("start", 0) : node.attr("end")])


@op("Shape", since=(1, 13), padding=_measured)
def shape_1(data: mx.array) -> HostValue:
    return host_array(data.shape)


@op("Shape", since=(15, 19, 21, 23, 24, 25), types={"data": EVERY}, padding=_measured)
def shape(data: mx.array, *, start: int = 0, end: int | None = None) -> HostValue:
    return host_array(data.shape[start:end])  # both clamp as Python's slices do


@op("Size", since=(1, 13, 19, 21, 23, 24, 25), types={"data": EVERY})
def size(data: mx.array) -> HostValue:
    return host_array(data.size)


@op(
    "Identity",
    since=(1, 13, 14, 16, 19, 21, 23, 24, 25),
    types={"input": EVERY},
    safety=SHAPELESS,
    padding=unchanged,
)
def identity(input: mx.array) -> mx.array:
    return input


def _axes_of(node: Node) -> tuple[int, ...]:
    """The axes of Squeeze and Unsqueeze, an attribute or a constant, as they are written."""
    if node.since_version < 13:
        return tuple(node.attr("axes") or ())
    return () if node.missing("axes") else known(node, "axes")


def _squeezed(node: Node, axes: Axes) -> Carried:
    if isinstance(axes[0], tuple):
        return axes[0]
    axis, chosen = sole(node, axes, "data"), _axes_of(node)
    gone = normalize_axes(chosen, rank_of(node.input("data")))
    if not gone or axis in gone:
        raise Mixes("it removes axes of size 1, whichever these are")
    return axis - sum(g < axis for g in gone)


def _unsqueezed(node: Node, axes: Axes) -> Carried:
    if isinstance(axes[0], tuple):
        return axes[0]
    axis, chosen = sole(node, axes, "data"), _axes_of(node)
    rank = rank_of(node.input("data")) + len(chosen)
    new = normalize_axes(chosen, rank)
    return [i for i in range(rank) if i not in new][axis]


def _transposed(node: Node, axes: Axes) -> int:
    axis, rank = sole(node, axes, "data"), rank_of(node.input("data"))
    return tuple(node.attr("perm") or reversed(range(rank))).index(axis)


def _concatenated(node: Node, axes: Axes) -> Carried:
    if any(isinstance(axis, tuple) for axis in axes):
        parts = (numbers(v, c) for v, c in zip(node.inputs, axes, strict=True))
        return tuple(chain.from_iterable(parts))
    axis = along(axes)[0]
    if axis is None or len(set(axes)) > 1:
        raise Mixes("its inputs are padded along different axes")
    if axis == normalize_axis(node.attr("axis"), rank_of(node.inputs[0])):
        raise Mixes("it joins positions")
    return axis


def _squeeze(x: mx.array, axes: Sequence[int] | None) -> mx.array:
    if axes:
        chosen = normalize_axes(axes, x.ndim)
    else:  # an empty list means the same as none, as in ORT
        chosen = tuple(axis for axis, size in enumerate(x.shape) if size == 1)
    if any(x.shape[axis] != 1 for axis in chosen):
        raise ValueError(f"axes {axes} are not all of size 1, got shape {x.shape}")
    return mx.squeeze(x, axis=chosen)


@op("Squeeze", since=(1, 11), padding=_squeezed)
def squeeze_1(data: mx.array, *, axes: tuple[int, ...] | None = None) -> mx.array:
    return _squeeze(data, axes)


@op("Squeeze", since=(13, 21, 23, 24, 25), types={"data": EVERY}, padding=_squeezed)
def squeeze(data: mx.array, axes: HostInts | None = None) -> mx.array:
    return _squeeze(data, axes)


def _unsqueeze(x: mx.array, axes: Sequence[int]) -> mx.array:
    return mx.expand_dims(x, normalize_axes(axes, x.ndim + len(axes)))


@op("Unsqueeze", since=(1, 11), safety=SHAPELESS, padding=_unsqueezed)
def unsqueeze_1(data: mx.array, *, axes: tuple[int, ...]) -> mx.array:
    return _unsqueeze(data, axes)


@op(
    "Unsqueeze",
    since=(13, 21, 23, 24, 25),
    types={"data": EVERY},
    safety=SHAPELESS,
    padding=_unsqueezed,
)
def unsqueeze(data: mx.array, axes: HostInts) -> mx.array:
    return _unsqueeze(data, axes)


@op(
    "Transpose",
    since=(1, 13, 21, 23, 24, 25),
    types={"data": EVERY},
    safety=SHAPELESS,
    padding=_transposed,
)
def transpose(data: mx.array, *, perm: tuple[int, ...] | None = None) -> mx.array:
    return mx.transpose(data, perm)


@op("Concat", since=(4, 11, 13), safety=SHAPELESS, padding=_concatenated)
def concat(*inputs: mx.array, axis: int) -> mx.array:
    axis = normalize_axis(axis, inputs[0].ndim)
    if len({x.shape[:axis] + x.shape[axis + 1 :] for x in inputs}) > 1:
        # ORT lets an empty input have any other dimensions, which "no boxes found" relies on.
        inputs = tuple(x for x in inputs if x.size) or inputs
    return mx.concatenate(list(inputs), axis=axis)


def _split(x: mx.array, axis: int, sizes: Sequence[int]) -> tuple[mx.array, ...]:
    return tuple(mx.split(x, split_points(sizes, x.shape[axis]), axis=axis))


def _even_parts(size: int, count: int) -> list[int]:
    if size % count:
        raise ValueError(f"an axis of {size} does not split into {count} equal parts")
    return [size // count] * count


@op("Split", since=(2, 11), padding=apart_from("input", at_axis(0)))
def split_2(
    input: mx.array, *, axis: int = 0, split: tuple[int, ...] | None = None, node: Node
) -> tuple[mx.array, ...]:
    axis = normalize_axis(axis, input.ndim)
    return _split(input, axis, split or _even_parts(input.shape[axis], len(node.outputs)))


@op("Split", since=(13,), padding=apart_from("input", at_axis(0)))
def split_13(
    input: mx.array, split: HostInts | None = None, *, axis: int = 0, node: Node
) -> tuple[mx.array, ...]:
    axis = normalize_axis(axis, input.ndim)
    return _split(input, axis, split or _even_parts(input.shape[axis], len(node.outputs)))


@op("Split", since=(18,), padding=apart_from("input", at_axis(0)))
def split(
    input: mx.array,
    split: HostInts | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    node: Node,
) -> tuple[mx.array, ...]:
    axis = normalize_axis(axis, input.ndim)
    if not split:
        count = num_outputs or len(node.outputs)
        size = input.shape[axis]
        part = -(-size // count)  # the last parts may be smaller
        split = tuple(min(part, max(size - part * n, 0)) for n in range(count))
    return _split(input, axis, split)
