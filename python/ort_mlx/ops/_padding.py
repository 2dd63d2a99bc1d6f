"""Where positions along a padded axis go, for the common kinds of ops: see `padding.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from ..node import Node, Value
from ..padding import SIZE, Axes, Carried, Mixes, Numbers, Padding
from ._shapes import normalize_axis

_UNKNOWN: Final = "has an input of which the rank is not known"


def elementwise(node: Node, axes: Axes) -> int:
    """Broadcast inputs: every one that is not padded has one position along the axis, or none."""
    along(axes)
    ranks = [rank_of(v) for v in node.inputs if v is not None]
    return broadcast(node.inputs, axes, max(ranks))


def along(axes: Axes) -> tuple[int | None, ...]:
    """The axes when no input has the padded size as a number in it."""
    made = []
    for axis in axes:
        if isinstance(axis, tuple):
            raise Mixes("it computes with the size")
        made.append(axis)
    return tuple(made)


def unchanged(node: Node, axes: Axes) -> Carried:
    """One input that matters, whose elements stay what and where they are."""
    return axes[0] if isinstance(axes[0], tuple) else elementwise(node, axes)


def numbers(value: Value | None, carried: Carried) -> Numbers:
    """The elements of a small vector or scalar, as far as they are known."""
    if isinstance(carried, tuple):
        return carried
    if value is not None and value.constant is not None:
        return tuple(int(v) for v in value.constant.load().reshape(-1))
    if carried is not None or value is None or value.shape is None:
        raise Mixes("it computes with the size")
    sizes = [d for d in value.shape if isinstance(d, int)]
    if len(sizes) != len(value.shape):
        raise Mixes(_UNKNOWN)
    return (None,) * math.prod(sizes)


def broadcast(values: Iterable[Value | None], axes: Axes, rank: int) -> int:
    """The axis of a result of this rank that the values are broadcast to."""
    pairs = [(v, axis) for v, axis in zip(values, along(axes), strict=True) if v is not None]
    aligned = {axis + rank - rank_of(v) for v, axis in pairs if axis is not None}
    if len(aligned) != 1:
        raise Mixes("its inputs are padded along different axes")
    (axis,) = aligned
    for value, own in pairs:
        at = axis - rank + rank_of(value)
        if own is None and at >= 0 and value.shape is not None and value.shape[at] != 1:
            raise Mixes(f"'{value.name}' is not padded along it")
    return axis


def sole(node: Node, axes: Axes, name: str) -> int:
    """The padded axis of the one input that may be padded."""
    index = node.param_names.index(name)
    axis = along(axes)[index]
    if axis is None or any(other is not None for i, other in enumerate(axes) if i != index):
        raise Mixes(f"an input other than '{name}' is padded")
    return axis


def batched(name: str) -> Padding:
    """The first axis of the input `name` is a batch."""

    def axis_of(node: Node, axes: Axes) -> int:
        if sole(node, axes, name) != 0:
            raise Mixes("it mixes positions along every axis but the first")
        return 0

    return axis_of


def apart_from(name: str, mixed: Callable[[Node, int], Iterable[int]]) -> Padding:
    """All axes of the input `name` but those that `mixed` gives for a node and the rank."""

    def axis_of(node: Node, axes: Axes) -> int:
        axis = sole(node, axes, name)
        if axis in tuple(mixed(node, rank_of(node.input(name)))):
            raise Mixes("it mixes positions along this axis")
        return axis

    return axis_of


def at_axis(default: int) -> Callable[[Node, int], list[int]]:
    """The axis of the attribute `axis`."""
    return lambda node, rank: [normalize_axis(node.attr("axis", default), rank)]


def from_axis(default: int) -> Callable[[Node, int], range]:
    """The axis of the attribute `axis` and those after it."""
    return lambda node, rank: range(normalize_axis(node.attr("axis", default), rank), rank)


def rank_of(value: Value | None) -> int:
    """The rank of a value; raises Mixes when it is not known."""
    if value is None or value.rank is None:
        raise Mixes(_UNKNOWN)
    return value.rank


def known(node: Node, name: str) -> tuple[int, ...]:
    """The whole numbers of a constant input; raises Mixes when it is not one."""
    values = node.const(name)
    if values is None:
        raise Mixes(f"'{name}' is not a constant")
    return tuple(int(v) for v in values)


def reshaped(node: Node, axes: Axes) -> int:
    """The axis stays where it is when those before it do, and either those behind or itself."""
    axis = axes[0]
    dims = node.dims("data")
    target = numbers(node.inputs[1], axes[1])
    is_literal = 0 in target and bool(node.attr("allowzero", 0))
    if not isinstance(axis, int) or axis >= min(len(target), len(dims)) or is_literal:
        raise Mixes("it joins or parts positions")
    before = zip(target[:axis], dims[:axis], strict=True)
    stays = all(new == 0 or (new == old and isinstance(old, int)) for new, old in before)
    if stays and (target[axis] == 0 or target[axis] is SIZE):
        return axis
    if stays and target[axis] == -1:
        old = dims[axis + 1 :]
        new = [
            dims[i] if size == 0 and i < len(dims) else size  # 0 copies
            for i, size in enumerate(target[axis + 1 :], axis + 1)
        ]
        sizes = [d for d in (*old, *new) if isinstance(d, int) and d > 0]
        if len(sizes) == len(old) + len(new) and math.prod(sizes[: len(old)]) == math.prod(
            sizes[len(old) :]
        ):
            return axis
    raise Mixes("it joins or parts positions")


def expanded(node: Node, axes: Axes) -> int:
    """Data of one position, or of padded ones, is repeated along the padded size."""
    target = numbers(node.inputs[1], axes[1])
    rank = max(len(target), rank_of(node.inputs[0]))
    sized = {i + rank - len(target) for i, size in enumerate(target) if size is SIZE}
    if len(sized) > 1:
        raise Mixes("it has the size twice")
    if not sized:  # ones leave the data as it is
        axis = broadcast(node.inputs[:1], axes[:1], rank)
        own = axis - rank + len(target)
        if own >= 0 and target[own] != 1:
            raise Mixes("it expands along it")
        return axis
    grid = Value("", "", (None,) * rank)
    return broadcast((grid, node.inputs[0]), (*sized, axes[0]), rank)


def product(node: Node, axes: Axes, *, transposed: tuple[bool, bool] = (False, False)) -> int:
    """A matrix product of the first two inputs: rows, columns and batches, not what is summed."""
    a, b = node.inputs[0], node.inputs[1]
    ranks = rank_of(a), rank_of(b)
    rank = max(ranks)
    if min(ranks) < 2:
        raise Mixes("it is a product with a vector")
    behind = [None if x is None else r - x for x, r in zip(along(axes)[:2], ranks, strict=True)]
    turned = [
        (3 - x if x is not None and x <= 2 and t else x)
        for x, t in zip(behind, transposed, strict=True)
    ]
    if turned == [2, None]:
        return rank - 2
    if turned == [None, 1]:
        return rank - 1
    if any(x is not None and x <= 2 for x in turned):
        raise Mixes("it sums over it")
    return broadcast((a, b), axes[:2], rank)
