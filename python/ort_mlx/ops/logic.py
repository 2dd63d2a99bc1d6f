"""Comparisons, boolean and bitwise logic, IsNaN, IsInf and Where.

Sources: the ONNX operators of the same names; each is the MLX function shown in its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import mlx.core as mx

from ..dtypes import ANY, BOOL, FLOAT8, FLOATS, INTS, NUMERIC
from ..node import Node
from ..registry import op
from ..safety import SHAPELESS
from ._padding import elementwise

_SIGNED = (mx.int8, mx.int16, mx.int32, mx.int64)


def binary(
    name: str,
    since: tuple[int, ...],
    fn: Callable[[mx.array, mx.array], mx.array],
    types: frozenset[str],
) -> None:
    """Register an op of two broadcast inputs that is the MLX function `fn`."""

    @op(name, since=since, types={"a": types}, safety=SHAPELESS, padding=elementwise)
    def translate(a: mx.array, b: mx.array) -> mx.array:
        return fn(a, b)


binary("Equal", (7, 11, 13, 19), mx.equal, ANY)
binary("Less", (7, 9, 13), mx.less, NUMERIC)
binary("Greater", (7, 9, 13), mx.greater, NUMERIC)
binary("LessOrEqual", (12, 16), mx.less_equal, NUMERIC)
binary("GreaterOrEqual", (12, 16), mx.greater_equal, NUMERIC)
binary("And", (7,), mx.logical_and, BOOL)
binary("Or", (7,), mx.logical_or, BOOL)
binary("Xor", (7,), mx.not_equal, BOOL)
binary("BitwiseAnd", (18,), mx.bitwise_and, INTS)
binary("BitwiseOr", (18,), mx.bitwise_or, INTS)
binary("BitwiseXor", (18,), mx.bitwise_xor, INTS)


@op("Not", since=(1,), types={"x": BOOL}, safety=SHAPELESS, padding=elementwise)
def not_(x: mx.array) -> mx.array:
    return mx.logical_not(x)


@op("BitwiseNot", since=(18,), types={"x": INTS}, safety=SHAPELESS, padding=elementwise)
def bitwise_not(x: mx.array) -> mx.array:
    return mx.bitwise_invert(x)


def _bit_shift_claim(node: Node) -> Iterator[str]:
    if node.attr("direction") not in ("LEFT", "RIGHT"):
        yield "the direction is neither LEFT nor RIGHT"


# Too long a shift is undefined in MLX, so it is made zero and its result replaced.
@op(
    "BitShift",
    since=(11, 28),
    types={"x": INTS},
    safety=SHAPELESS,
    claim=_bit_shift_claim,
    padding=elementwise,
)
def bit_shift(x: mx.array, y: mx.array, *, direction: str) -> mx.array:
    fits = (y >= 0) & (y < 8 * x.dtype.size)
    amount = mx.where(fits, y, 0)
    if direction == "LEFT":
        return mx.where(fits, mx.left_shift(x, amount), 0)
    fill = mx.where(x < 0, -1, 0).astype(x.dtype) if x.dtype in _SIGNED else mx.zeros_like(x)
    return mx.where(fits, mx.right_shift(x, amount), fill)


@op("IsNaN", since=(9, 13, 20), types={"x": FLOATS | FLOAT8}, safety=SHAPELESS, padding=elementwise)
def is_nan(x: mx.array) -> mx.array:
    return mx.isnan(x)


@op("IsInf", since=(10, 20), types={"x": FLOATS | FLOAT8}, safety=SHAPELESS, padding=elementwise)
def is_inf(x: mx.array, *, detect_negative: int = 1, detect_positive: int = 1) -> mx.array:
    found = mx.zeros_like(x).astype(mx.bool_)
    if detect_positive:
        found = found | mx.isposinf(x)
    return found | mx.isneginf(x) if detect_negative else found


@op(
    "Where",
    since=(9, 16),
    types={"condition": BOOL, "x": ANY},
    safety=SHAPELESS,
    padding=elementwise,
)
def where(condition: mx.array, x: mx.array, y: mx.array) -> mx.array:
    return mx.where(condition, x, y)
