"""Softmax, LogSoftmax and Hardmax.

Sources: the ONNX operators of the same names; MLX `softmax` (precise) and `logsumexp`. Before opset
13 all axes from `axis` on count as one, which MLX reduces together without a reshape.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import FLOATS
from ..node import Node
from ..registry import op
from ..safety import SHAPELESS
from ._elementwise import log_sum_exp, softmax, widened
from ._padding import apart_from, at_axis, from_axis
from ._shapes import normalize_axis


def _axis_claim(node: Node) -> Iterator[str]:
    rank, axis = node.rank("input"), node.attr("axis", 1 if node.since_version < 13 else -1)
    if rank is not None and not -rank <= axis < rank:
        yield "the axis is out of range"


def _axes_from(x: mx.array, axis: int) -> tuple[int, ...]:
    """The axes that the older forms flatten together."""
    return tuple(range(normalize_axis(axis, x.ndim), x.ndim))


@op(
    "Softmax",
    since=(1, 11),
    types={"input": FLOATS},
    safety=SHAPELESS,
    claim=_axis_claim,
    padding=apart_from("input", from_axis(1)),
)
def softmax_1(input: mx.array, *, axis: int = 1) -> mx.array:
    return softmax(input, _axes_from(input, axis))


@op(
    "Softmax",
    since=(13,),
    types={"input": FLOATS},
    safety=SHAPELESS,
    claim=_axis_claim,
    padding=apart_from("input", at_axis(-1)),
)
def softmax_13(input: mx.array, *, axis: int = -1) -> mx.array:
    return softmax(input, (normalize_axis(axis, input.ndim),))


@op(
    "LogSoftmax",
    since=(1, 11),
    types={"input": FLOATS},
    claim=_axis_claim,
    padding=apart_from("input", from_axis(1)),
)
def log_softmax_1(input: mx.array, *, axis: int = 1) -> mx.array:
    return _log_softmax(input, _axes_from(input, axis))


@op(
    "LogSoftmax",
    since=(13,),
    types={"input": FLOATS},
    claim=_axis_claim,
    padding=apart_from("input", at_axis(-1)),
)
def log_softmax(input: mx.array, *, axis: int = -1) -> mx.array:
    return _log_softmax(input, (normalize_axis(axis, input.ndim),))


@widened
def _log_softmax(x: mx.array, axes: tuple[int, ...]) -> mx.array:
    if x.size == 0:
        return x
    shifted = x - mx.max(x, axis=axes, keepdims=True)
    return shifted - log_sum_exp(shifted, axes, True)


@op(
    "Hardmax",
    since=(1, 11),
    types={"input": FLOATS},
    claim=_axis_claim,
    padding=apart_from("input", from_axis(1)),
)
def hardmax_1(input: mx.array, *, axis: int = 1) -> mx.array:
    if input.size == 0:
        return input
    flat = mx.flatten(input, start_axis=normalize_axis(axis, input.ndim))
    return mx.reshape(_hardmax(flat, -1), input.shape)


@op(
    "Hardmax",
    since=(13,),
    types={"input": FLOATS},
    claim=_axis_claim,
    padding=apart_from("input", at_axis(-1)),
)
def hardmax(input: mx.array, *, axis: int = -1) -> mx.array:
    return input if input.size == 0 else _hardmax(input, normalize_axis(axis, input.ndim))


def _hardmax(x: mx.array, axis: int) -> mx.array:
    """One at the first maximum along the axis."""
    first = mx.argmax(x, axis=axis, keepdims=True)
    return mx.put_along_axis(mx.zeros_like(x), first, mx.array(1, x.dtype), axis=axis)
