"""Closures captured from MLX functions, compared with the functions themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from ort_mlx import _native

Function = Callable[..., Any]


def outputs_of(result: Any) -> list[mx.array]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def captured(f: Function, inputs: list[mx.array], threads: int = 2) -> list[mx.array]:
    mx.eval(inputs)
    placeholders = [_native.placeholder(a) for a in inputs]
    closure = _native.capture(placeholders, outputs_of(f(*placeholders)), threads)
    first = closure.replay(list(inputs))
    mx.eval(first)
    again = closure.replay(list(inputs))  # inputs must not have been overwritten
    mx.eval(again)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(np.array(a), np.array(b))
    return first


def same(f: Function, *inputs: mx.array, rtol: float = 1e-6, atol: float = 0.0) -> None:
    """The closure gives what MLX gives, on one thread and on two."""
    expected = outputs_of(f(*inputs))
    mx.eval(expected)
    for threads in (1, 2):
        made = captured(f, list(inputs), threads)
        assert len(made) == len(expected)
        for a, b in zip(made, expected, strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            np.testing.assert_allclose(np.array(a), np.array(b), rtol=rtol, atol=atol)


def floats(shape: tuple[int, ...], seed: int = 0, scale: float = 2.0) -> mx.array:
    rng = np.random.default_rng(seed)
    return mx.array((rng.standard_normal(shape) * scale).astype(np.float32))
