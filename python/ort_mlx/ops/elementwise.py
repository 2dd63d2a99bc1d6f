"""Arithmetic, element by element: unary, binary and variadic tables, Pow, Mod, Clip.

Sources: the ONNX operators of the same names; each is the MLX function shown in its line. ONNX and
MLX share the numpy broadcasting rules.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import mlx.core as mx

from ..dtypes import FLOATS, NUMERIC, SIGNED_INTS, SINGLES
from ..registry import op
from ..safety import SHAPELESS
from ._elementwise import cos, exp, is_float, sin, widened
from ._padding import elementwise

_SIGNED_NUMERIC: Final = FLOATS | SIGNED_INTS
_UNSIGNED: Final = (mx.uint8, mx.uint16, mx.uint32, mx.uint64)


def unary(
    name: str,
    since: tuple[int, ...],
    fn: Callable[[mx.array], mx.array],
    types: frozenset[str] = FLOATS,
) -> None:
    """Register an op of one input that is the MLX function `fn`."""

    @op(name, since=since, types={"x": types}, safety=SHAPELESS, padding=elementwise)
    def translate(x: mx.array) -> mx.array:
        return fn(x)


def _sign(x: mx.array) -> mx.array:
    return mx.where(mx.isnan(x), x, mx.sign(x)) if is_float(x) else mx.sign(x)


unary("Abs", (6, 13), mx.abs, NUMERIC)
unary("Neg", (6, 13), mx.negative, _SIGNED_NUMERIC)
unary("Sign", (9, 13), _sign, NUMERIC)
unary("Ceil", (6, 13), mx.ceil)
unary("Floor", (6, 13), mx.floor)
unary("Round", (11, 22), mx.round)
unary("Sqrt", (6, 13), mx.sqrt)
unary("Reciprocal", (6, 13), mx.reciprocal)
unary("Exp", (6, 13), exp)
unary("Log", (6, 13), mx.log)
unary("Erf", (9, 13), mx.erf, SINGLES)  # MLX's float64 erf is only float32-accurate
unary("Sin", (7, 22), sin)
unary("Cos", (7, 22), cos)
unary("Tan", (7, 22), mx.tan)
unary("Asin", (7, 22), mx.arcsin)
unary("Acos", (7, 22), mx.arccos)
unary("Atan", (7, 22), mx.arctan)
unary("Sinh", (9, 22), mx.sinh)
unary("Cosh", (9, 22), mx.cosh)
unary("Tanh", (6, 13), mx.tanh)
unary("Asinh", (9, 22), mx.arcsinh)
unary("Acosh", (9, 22), mx.arccosh)
unary("Atanh", (9, 22), mx.arctanh)


def binary(name: str, since: tuple[int, ...], fn: Callable[[mx.array, mx.array], mx.array]) -> None:
    """Register an op of two broadcast inputs that is the MLX function `fn`."""

    @op(name, since=since, types={"a": NUMERIC}, safety=SHAPELESS, padding=elementwise)
    def translate(a: mx.array, b: mx.array) -> mx.array:
        return fn(a, b)


def _safe_divisor(b: mx.array) -> mx.array:
    """`b` without -1: the lowest integer over -1 traps on a CPU."""
    return b if b.dtype in _UNSIGNED else mx.where(b == -1, 1, b)


def _rounds_away(rest: mx.array, a: mx.array) -> mx.array:
    """Where a floored division went below the truncated one: the rest has the other sign."""
    return (rest != 0) & ((rest < 0) != (a < 0))


def divide(a: mx.array, b: mx.array) -> mx.array:
    """Quotient, truncated toward zero for integers."""
    if is_float(a):
        return mx.divide(a, b)
    divisor = _safe_divisor(b)
    quotient = mx.floor_divide(a, divisor)
    if a.dtype in _UNSIGNED:
        return quotient
    away = _rounds_away(a - quotient * divisor, a)
    return mx.where(b == -1, -a, quotient + away.astype(a.dtype))


binary("Add", (7, 13, 14), mx.add)
binary("Sub", (7, 13, 14), mx.subtract)
binary("Mul", (7, 13, 14), mx.multiply)
binary("Div", (7, 13, 14), divide)


@op("Mod", since=(10, 13, 28), types={"a": NUMERIC}, safety=SHAPELESS, padding=elementwise)
def mod(a: mx.array, b: mx.array, *, fmod: int = 0) -> mx.array:
    if is_float(a):
        return _float_fmod(a, b) if fmod else mx.remainder(a, b)
    divisor = _safe_divisor(b)
    rest = mx.remainder(a, divisor)
    return mx.where(_rounds_away(rest, a), rest - divisor, rest) if fmod else rest


def _float_fmod(a: mx.array, b: mx.array) -> mx.array:
    rest = mx.remainder(mx.abs(a), mx.abs(b))
    return mx.where(a < 0, -rest, rest)


@op(
    "Pow",
    since=(7, 12, 13, 15),
    types={"x": FLOATS | {"int32", "int64"}, "y": NUMERIC},
    safety=SHAPELESS,
    padding=elementwise,
)
def pow_(x: mx.array, y: mx.array) -> mx.array:
    if is_float(x):
        return _float_pow(x, y.astype(x.dtype))
    if not is_float(y):
        return _int_pow(x, y.astype(mx.int64)).astype(x.dtype)
    # Whole exponents stay in integers: a float power that falls just short would be cut down.
    whole = _int_pow(x, y.astype(mx.int64)).astype(x.dtype)
    broken = mx.power(x.astype(mx.float32), y.astype(mx.float32)).astype(x.dtype)
    return mx.where(mx.floor(y) == y, whole, broken)


_float_pow: Final = widened(mx.power)


def _int_pow(x: mx.array, y: mx.array) -> mx.array:
    """Integer power; a negative exponent leaves only 1 and -1 other than zero."""
    odd = mx.bitwise_and(y, 1)
    inverse = mx.where(x == 1, 1, mx.where(x == -1, 1 - 2 * odd, 0))
    return mx.where(y < 0, inverse, mx.power(x, mx.maximum(y, 0)))


def variadic(
    name: str,
    since: tuple[int, ...],
    fn: Callable[[mx.array, mx.array], mx.array],
    types: frozenset[str] = NUMERIC,
) -> None:
    """Register an op that folds any number of broadcast inputs with `fn`."""

    @op(name, since=since, types={"data_0": types}, safety=SHAPELESS, padding=elementwise)
    def translate(*data_0: mx.array) -> mx.array:
        return functools.reduce(fn, data_0)


def _total(*data_0: mx.array) -> mx.array:
    return functools.reduce(mx.add, data_0)


variadic("Max", (6, 8, 12, 13), mx.maximum)  # NaN wins, as in ORT
variadic("Min", (6, 8, 12, 13), mx.minimum)


@op("Sum", since=(6, 8, 13), types={"data_0": FLOATS}, safety=SHAPELESS, padding=elementwise)
def sum_(*data_0: mx.array) -> mx.array:
    return widened(_total)(*data_0)


@op("Mean", since=(6, 8, 13), types={"data_0": FLOATS}, safety=SHAPELESS, padding=elementwise)
def mean(*data_0: mx.array) -> mx.array:
    return widened(lambda *items: _total(*items) / len(items))(*data_0)


@op("Clip", since=(6,), types={"input": FLOATS}, safety=SHAPELESS, padding=elementwise)
def clip_6(
    input: mx.array, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38
) -> mx.array:
    return _clipped(input, mx.array(min, input.dtype), mx.array(max, input.dtype))


# ONNX bounds a missing side by the lowest or highest finite value, so an infinity is clipped too.
@op("Clip", since=(11, 12, 13), types={"input": NUMERIC}, safety=SHAPELESS, padding=elementwise)
def clip(input: mx.array, min: mx.array | None = None, max: mx.array | None = None) -> mx.array:
    limits = mx.finfo(input.dtype) if is_float(input) else None
    low = mx.array(limits.min, input.dtype) if limits and min is None else min
    high = mx.array(limits.max, input.dtype) if limits and max is None else max
    return _clipped(input, low, high)


def _clipped(x: mx.array, low: mx.array | None, high: mx.array | None) -> mx.array:
    x = x if low is None else mx.maximum(x, low)
    return x if high is None else mx.minimum(x, high)
