"""What the element-wise families share: half precision computed wide, and float64 kept exact.

MLX evaluates exp, sin, cos, sigmoid, logaddexp and softmax of float64 in float32; these functions
do not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import mlx.core as mx

HALF_DTYPES: Final = (mx.float16, mx.bfloat16)

Body = Callable[..., mx.array]


def widened(body: Body) -> Body:
    """The same body computed in float32 when its arrays are halves, as ORT does."""

    @functools.wraps(body)
    def computed(x: mx.array, *rest: Any, **options: Any) -> mx.array:
        if x.dtype not in HALF_DTYPES:
            return body(x, *rest, **options)
        wide = (r.astype(mx.float32) if isinstance(r, mx.array) else r for r in rest)
        return body(x.astype(mx.float32), *wide, **options).astype(x.dtype)

    return computed


def is_float(x: mx.array) -> bool:
    """Whether the dtype is one of the floats."""
    return mx.issubdtype(x.dtype, mx.floating)


def exp(x: mx.array) -> mx.array:
    """The exponential; exact to float64 where `mx.exp` is not."""
    return mx.power(math.e, x) if x.dtype == mx.float64 else mx.exp(x)


def sin(x: mx.array) -> mx.array:
    """The sine; float64 goes through the tangent of the half angle, which MLX computes exactly."""
    if x.dtype != mx.float64:
        return mx.sin(x)
    t = mx.tan(x / 2)
    return 2 * t / (1 + t * t)


def cos(x: mx.array) -> mx.array:
    """The cosine; see `sin`."""
    if x.dtype != mx.float64:
        return mx.cos(x)
    t2 = mx.square(mx.tan(x / 2))
    return (1 - t2) / (1 + t2)


def sigmoid(x: mx.array) -> mx.array:
    """The logistic function."""
    return 1 / (1 + exp(-x)) if x.dtype == mx.float64 else mx.sigmoid(x)


def softplus(x: mx.array) -> mx.array:
    """log(1 + exp(x)) without overflow."""
    if x.dtype != mx.float64:
        return mx.logaddexp(x, 0)
    return mx.maximum(x, 0) + mx.log1p(exp(-mx.abs(x)))


def softmax(x: mx.array, axes: tuple[int, ...]) -> mx.array:
    """Softmax over `axes` taken together."""
    if x.dtype != mx.float64 or x.size == 0:
        return mx.softmax(x, axis=axes, precise=True)
    e = exp(x - mx.max(x, axis=axes, keepdims=True))
    return e / mx.sum(e, axis=axes, keepdims=True)


def log_sum_exp(x: mx.array, axes: tuple[int, ...], keepdims: bool) -> mx.array:
    """log(sum(exp(x))) without overflow; x is not empty."""
    if x.dtype != mx.float64:
        total = mx.logsumexp(x, axis=axes, keepdims=True)  # without keepdims it is not shapeless
    else:
        top = mx.max(x, axis=axes, keepdims=True)
        shift = mx.where(mx.isinf(top), 0.0, top)
        total = mx.log(mx.sum(exp(x - shift), axis=axes, keepdims=True)) + shift
    return total if keepdims else mx.squeeze(total, axis=axes)
