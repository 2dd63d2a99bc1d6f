"""Convolutions of the CPU backend: what a captured closure computes against MLX's own."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import pytest

from support.closures import floats, same


@pytest.fixture(autouse=True)
def on_the_cpu() -> Iterator[None]:
    with mx.stream(mx.cpu):
        yield


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_convolution_keeps_its_memory_order(groups: int, stride: int) -> None:
    def f(x: mx.array, w: mx.array, b: mx.array) -> list[mx.array]:
        y = mx.conv2d(x.transpose(0, 2, 3, 1), w, stride, 1, groups=groups)
        y = mx.maximum(y.transpose(0, 3, 1, 2) + b, 0)
        pooled = mx.maximum(y[:, :, ::2, :-1], y[:, :, ::2, 1:])
        return [y * mx.sigmoid(y), pooled, mx.mean(y, axis=(2, 3), keepdims=True)]

    x, w = floats((2, 8, 19, 23)), floats((16, 3, 3, 8 // groups), 1, 0.2)
    same(f, x, w, floats((1, 16, 1, 1), 2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (4, 3, 0), (5, 1, 2)])
def test_transposed_convolution(groups: int, kernel: int, stride: int, pad: int) -> None:
    def f(x: mx.array, w: mx.array) -> list[mx.array]:
        last = x.transpose(0, 2, 3, 1)
        return [
            mx.conv_transpose2d(last, w, stride, pad, groups=groups),
            mx.conv_transpose2d(mx.contiguous(last), w, stride, pad, 2, (1, 0), groups=groups),
            mx.conv_transpose1d(last[:, 0], w[:, 0], stride, pad, groups=groups),
            mx.conv2d(mx.contiguous(last), w[:, ::-1, ::-1], 1, pad, groups=groups),
        ]

    x, w = floats((2, 4, 7, 9)), floats((6, kernel, kernel, 4 // groups), 1, 0.3)
    same(f, x, w, rtol=1e-5, atol=1e-5)
