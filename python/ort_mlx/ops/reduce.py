"""Reductions, ArgMax and ArgMin, CumSum and CumProd, TopK.

Sources: the ONNX operators of the same names; MLX reductions, `argmax`, `cumsum`, `argsort`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import mlx.core as mx

from ..dtypes import ANY, FLOATS, INDICES, NUMERIC
from ..hosts import HostInt, HostInts
from ..node import Node
from ..padding import Axes, Mixes
from ..registry import op
from ..safety import SHAPELESS
from ._elementwise import is_float, log_sum_exp, widened
from ._padding import apart_from, at_axis, known, rank_of, sole
from ._shapes import normalize_axes, normalize_axis
from .elementwise import divide

Reduction: TypeAlias = Callable[[mx.array, tuple[int, ...], bool], mx.array]


def _reduced(node: Node, axes: Axes) -> int:
    axis, rank = sole(node, axes, "data"), rank_of(node.input("data"))
    gone: Sequence[int] | None
    if "axes" in node.param_names:
        gone = None if node.missing("axes") else known(node, "axes")
    else:
        gone = (node.attr("axis"),) if node.attr("axis") is not None else node.attr("axes")
    if not gone and node.attr("noop_with_empty_axes", 0):
        return axis
    gone = normalize_axes(gone or range(rank), rank)
    if axis in gone:
        raise Mixes("it reduces this axis")
    return axis if node.attr("keepdims", 1) else axis - sum(g < axis for g in gone)


def _scanned(node: Node, axes: Axes) -> int:
    axis = sole(node, axes, "x")
    if normalize_axis(known(node, "axis")[0], rank_of(node.input("x"))) == axis:
        raise Mixes("it adds up along this axis")
    return axis


def reduction(
    name: str,
    by_attribute: tuple[int, ...],
    by_input: tuple[int, ...],
    fn: Reduction,
    of_nothing: float,
    types: frozenset[str] = NUMERIC,
) -> None:
    """Register a reduction: older versions take `axes` as an attribute, newer ones as an input.

    `of_nothing` is its value over an empty array.
    """

    def reduce(x: mx.array, axes: tuple[int, ...], keepdims: bool) -> mx.array:
        if x.size:
            return fn(x, axes, keepdims)
        # MLX's own reductions refuse empty arrays, or may spin forever on a CPU.
        dims = (1 if axis in axes else dim for axis, dim in enumerate(x.shape))
        kept = [d for axis, d in enumerate(dims) if keepdims or axis not in axes]
        return mx.full(kept, _fitted(of_nothing, x.dtype), x.dtype)

    @op(name, since=by_attribute, types={"data": types}, safety=SHAPELESS, padding=_reduced)
    def by_attribute_(
        data: mx.array, *, axes: tuple[int, ...] | None = None, keepdims: int = 1
    ) -> mx.array:
        return reduce(data, _axes(data, axes), bool(keepdims))

    @op(
        name,
        since=by_input,
        types={"data": types, "axes": INDICES},
        safety=SHAPELESS,
        padding=_reduced,
    )
    def by_input_(
        data: mx.array,
        axes: HostInts | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> mx.array:
        chosen = () if noop_with_empty_axes and not axes else _axes(data, axes)
        return reduce(data, chosen, bool(keepdims))


def _axes(x: mx.array, axes: tuple[int, ...] | None) -> tuple[int, ...]:
    """The axes counted from the front; all of them when none are given."""
    return normalize_axes(axes or range(x.ndim), x.ndim)


def _fitted(value: float, dtype: mx.Dtype) -> float | int:
    """The value in a dtype that may have no infinity or NaN: its own extremes, or zero."""
    if mx.issubdtype(dtype, mx.floating) or math.isfinite(value):
        return value
    if math.isnan(value) or dtype == mx.bool_:
        return value > 0
    if dtype == mx.uint64 and value > 0:
        return -1  # its highest value, which MLX takes from Python only by wrapping
    return int(mx.iinfo(dtype).min if value < 0 else mx.iinfo(dtype).max)


def _itself(x: mx.array) -> mx.array:
    return x


def _over(fn: Callable[..., mx.array], each: Callable[[mx.array], mx.array] = _itself) -> Reduction:
    """The MLX reduction `fn` of `each` element."""

    def reduce(x: mx.array, axes: tuple[int, ...], keepdims: bool) -> mx.array:
        return fn(each(x), axis=axes, keepdims=keepdims)

    return reduce


_sum: Final = widened(_over(mx.sum))
_sum_square: Final = widened(_over(mx.sum, mx.square))


@widened
def _mean(x: mx.array, axes: tuple[int, ...], keepdims: bool) -> mx.array:
    if is_float(x):
        return mx.mean(x, axis=axes, keepdims=keepdims)
    return divide(_sum(x, axes, keepdims), _sum(mx.ones_like(x), axes, keepdims))


@widened
def _l2(x: mx.array, axes: tuple[int, ...], keepdims: bool) -> mx.array:
    squares = _sum_square(x, axes, keepdims)
    root = mx.sqrt(squares).astype(x.dtype)
    # A float32 root of an integer may round up to the next one.
    return root if is_float(x) else root - (root * root > squares).astype(x.dtype)


@widened
def _log_sum(x: mx.array, axes: tuple[int, ...], keepdims: bool) -> mx.array:
    return mx.log(_sum(x, axes, keepdims))


_ROOTS: Final = FLOATS | {"int32", "uint32"}  # a 64-bit integer has no exact root in float32

reduction("ReduceSum", (1, 11), (13,), _sum, 0)
reduction("ReduceMean", (1, 11, 13), (18,), _mean, math.nan)
reduction("ReduceProd", (1, 11, 13), (18,), widened(_over(mx.prod)), 1)
reduction("ReduceMax", (1, 11, 12, 13), (18, 20), _over(mx.max), -math.inf, ANY)
reduction("ReduceMin", (1, 11, 12, 13), (18, 20), _over(mx.min), math.inf, ANY)
reduction("ReduceL1", (1, 11, 13), (18,), widened(_over(mx.sum, mx.abs)), 0)
reduction("ReduceL2", (1, 11, 13), (18,), _l2, 0, _ROOTS)
reduction("ReduceSumSquare", (1, 11, 13), (18,), _sum_square, 0)
reduction("ReduceLogSum", (1, 11, 13), (18, 28), _log_sum, -math.inf, FLOATS)
reduction("ReduceLogSumExp", (1, 11, 13), (18, 28), widened(log_sum_exp), -math.inf, FLOATS)


def arg_extreme(name: str, fn: Callable[..., mx.array]) -> None:
    """Register ArgMax or ArgMin; MLX takes the first of equals."""

    @op(name, since=(1, 11), types={"data": NUMERIC}, claim=_axis_claim, padding=_reduced)
    def first(data: mx.array, *, axis: int = 0, keepdims: int = 1) -> mx.array:
        if data.size == 0:
            return _no_indices(data, normalize_axis(axis, data.ndim), keepdims)
        return fn(data, axis=axis, keepdims=bool(keepdims)).astype(mx.int64)

    @op(name, since=(12, 13), types={"data": NUMERIC}, claim=_axis_claim, padding=_reduced)
    def first_or_last(
        data: mx.array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> mx.array:
        if not select_last_index:
            return first(data, axis=axis, keepdims=keepdims)
        last = data.shape[axis] - 1
        return last - first(_reversed(data, axis), axis=axis, keepdims=keepdims)


def _no_indices(x: mx.array, axis: int, keepdims: int) -> mx.array:
    """The empty result over an empty array; an empty axis itself has no extreme."""
    if x.shape[axis] == 0:
        raise ValueError(f"no extreme along axis {axis} of shape {x.shape}")
    kept = (1,) if keepdims else ()
    return mx.zeros(x.shape[:axis] + kept + x.shape[axis + 1 :], mx.int64)


def _axis_claim(node: Node) -> Iterator[str]:
    rank, axis = node.rank(node.param_names[0]), node.attr("axis", 0)
    if rank is not None and not -rank <= axis < rank:
        yield "the axis is out of range"


def _reversed(x: mx.array, axis: int) -> mx.array:
    return x[(slice(None),) * normalize_axis(axis, x.ndim) + (slice(None, None, -1),)]


arg_extreme("ArgMax", mx.argmax)
arg_extreme("ArgMin", mx.argmin)


def scan(name: str, since: tuple[int, ...], fn: Callable[..., mx.array]) -> None:
    """Register a running sum or product."""
    wide = widened(fn)

    @op(
        name, since=since, types={"x": NUMERIC, "axis": INDICES}, safety=SHAPELESS, padding=_scanned
    )
    def translate(x: mx.array, axis: HostInt, *, exclusive: int = 0, reverse: int = 0) -> mx.array:
        axis = normalize_axis(axis, x.ndim)
        return wide(x, axis=axis, reverse=bool(reverse), inclusive=not exclusive)


scan("CumSum", (11, 14), mx.cumsum)
scan("CumProd", (26,), mx.cumprod)


def _top_k_claim(node: Node) -> Iterator[str]:
    rank, axis = node.rank("x"), node.attr("axis", -1)
    if rank is not None and not -rank <= axis < rank:
        yield "the axis is out of range"


@op(
    "TopK",
    since=(1,),
    types={"x": FLOATS},
    claim=_top_k_claim,
    padding=apart_from("x", at_axis(-1)),
)
def top_k_1(x: mx.array, *, k: int, axis: int = -1) -> tuple[mx.array, mx.array]:
    return _top_k(x, k, axis, largest=True)


@op(
    "TopK",
    since=(10,),
    types={"x": NUMERIC},
    claim=_top_k_claim,
    padding=apart_from("x", at_axis(-1)),
)
def top_k_10(x: mx.array, k: HostInt, *, axis: int = -1) -> tuple[mx.array, mx.array]:
    return _top_k(x, k, axis, largest=True)


# Unsorted order is free to choose, so `sorted` changes nothing.
@op(
    "TopK",
    since=(11, 24),
    types={"x": NUMERIC},
    claim=_top_k_claim,
    padding=apart_from("x", at_axis(-1)),
)
def top_k(
    x: mx.array, k: HostInt, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[mx.array, mx.array]:
    return _top_k(x, k, axis, bool(largest))


def _top_k(x: mx.array, k: int, axis: int, largest: bool) -> tuple[mx.array, mx.array]:
    axis = normalize_axis(axis, x.ndim)
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"k {k} does not fit axis {axis} of shape {x.shape}")
    if k == 1 and x.size:
        chosen = (mx.argmax if largest else mx.argmin)(x, axis=axis, keepdims=True)
    else:
        # MLX's sort is stable, so a key in the opposite order keeps the lower index first.
        order = mx.argsort(_descending_key(x) if largest else x, axis=axis)
        chosen = order[(slice(None),) * axis + (slice(0, k),)]
    return mx.take_along_axis(x, chosen, axis=axis), chosen.astype(mx.int64)


def _descending_key(x: mx.array) -> mx.array:
    return -x if is_float(x) else mx.bitwise_invert(x)
