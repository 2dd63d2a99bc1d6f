"""Random values: RandomNormal, RandomUniform and their Like forms, Bernoulli, Multinomial.

Sources: ONNX operators of the same names; mx.random. The numbers come from MLX's generator, so a
`seed` gives a stream of its own: repeatable for the same session history, but not ONNX Runtime's.
Each Run draws new numbers, as in ONNX Runtime; that is why these ops are never compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final
from weakref import WeakKeyDictionary

import mlx.core as mx

from ..dtypes import FLOATS, mlx_dtype
from ..node import Node
from ..registry import op
from ..safety import EAGER

_DRAWS: Final[WeakKeyDictionary[Node, Iterator[int]]] = WeakKeyDictionary()


def draw_key(seed: float | None, node: Node) -> mx.array | None:
    """The key of this draw; None, without a seed, is MLX's own generator."""
    if seed is None:
        return None
    draws = _DRAWS.setdefault(node, count())
    return mx.random.key((int(seed) * 0x9E3779B97F4A7C15 + next(draws)) % 2**64)


def _normal(
    shape: tuple[int, ...], dtype: mx.Dtype, mean: float, scale: float, key: mx.array | None
) -> mx.array:
    return (mx.random.normal(shape, key=key) * scale + mean).astype(dtype)


def _uniform(
    shape: tuple[int, ...], dtype: mx.Dtype, low: float, high: float, key: mx.array | None
) -> mx.array:
    # Drawn in the result's own type, so that rounding cannot reach `high`.
    drawn = mx.float32 if dtype == mx.float64 else dtype
    return mx.random.uniform(low, high, shape, drawn, key).astype(dtype)


def _float_result(node: Node) -> Iterator[str]:
    result = node.outputs[0]
    if result is not None and result.dtype not in FLOATS:
        yield f"the result type {result.dtype} is not a float type"


@op("RandomNormal", since=(1, 22), safety=EAGER, deterministic=False, claim=_float_result)
def random_normal(
    *,
    node: Node,
    shape: tuple[int, ...],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> mx.array:
    return _normal(shape, mlx_dtype(dtype), mean, scale, draw_key(seed, node))


@op("RandomNormalLike", since=(1, 22), safety=EAGER, deterministic=False, claim=_float_result)
def random_normal_like(
    input_: mx.array,
    *,
    node: Node,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> mx.array:
    return _normal(input_.shape, _or_input(dtype, input_), mean, scale, draw_key(seed, node))


def _or_input(dtype: int | None, like: mx.array) -> mx.Dtype:
    return like.dtype if dtype is None else mlx_dtype(dtype)


@op("RandomUniform", since=(1, 22), safety=EAGER, deterministic=False, claim=_float_result)
def random_uniform(
    *,
    node: Node,
    shape: tuple[int, ...],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> mx.array:
    return _uniform(shape, mlx_dtype(dtype), low, high, draw_key(seed, node))


@op("RandomUniformLike", since=(1, 22), safety=EAGER, deterministic=False, claim=_float_result)
def random_uniform_like(
    input_: mx.array,
    *,
    node: Node,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> mx.array:
    return _uniform(input_.shape, _or_input(dtype, input_), low, high, draw_key(seed, node))


@op("Bernoulli", since=(15, 22), types={"input_": FLOATS}, safety=EAGER, deterministic=False)
def bernoulli(
    input_: mx.array, *, node: Node, dtype: int | None = None, seed: float | None = None
) -> mx.array:
    drawn = mx.random.uniform(shape=input_.shape, key=draw_key(seed, node))
    return (drawn < input_.astype(mx.float32)).astype(_or_input(dtype, input_))


@op("Multinomial", since=(7, 22), types={"input_": FLOATS}, safety=EAGER, deterministic=False)
def multinomial(
    input_: mx.array,
    *,
    node: Node,
    dtype: int = 6,
    sample_size: int = 1,
    seed: float | None = None,
) -> mx.array:
    logits, key = input_.astype(mx.float32), draw_key(seed, node)
    drawn = mx.random.categorical(logits, -1, num_samples=sample_size, key=key)
    return drawn.astype(mlx_dtype(dtype))
