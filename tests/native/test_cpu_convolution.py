"""Convolutions of the CPU backend: what a captured closure computes against MLX's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.closures import captured, floats, same


@pytest.fixture(autouse=True)
def on_the_cpu(instruction_set: str) -> Iterator[None]:
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


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, int], dict[str, Any]]:
    """The sizes of a kernel, and of an input where it fits, with arguments of `mx.conv_general`."""
    pair = lambda low, high: (draw(st.integers(low, high)), draw(st.integers(low, high)))  # noqa: E731
    kernel, dilation, stride = pair(1, 5), pair(1, 3), pair(1, 3)
    low, high = pair(0, 4), pair(0, 4)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    extra = (draw(st.integers(0, 20)), draw(st.sampled_from([0, 1, 6, 7, 15, 16, 31, 66, 130])))
    # The whole kernel may lie in the pads.
    size = tuple(max(1, r - a - b) + e for r, a, b, e in zip(reach, low, high, extra, strict=True))
    arguments = {"stride": stride, "kernel_dilation": dilation, "padding": (low, high)}
    return kernel, {"size": size, **arguments}


@given(
    window=windows(),
    batch=st.integers(1, 2),
    groups=st.sampled_from([1, 1, 2, 3, 17, 40]),
    each=st.sampled_from([1, 1, 1, 2, 3, 16, 70]),
    made=st.sampled_from([1, 1, 2, 3, 8, 13, 37]),
)
def test_convolution_of_any_form(
    window: tuple[tuple[int, int], dict[str, Any]], batch: int, groups: int, each: int, made: int
) -> None:
    kernel, arguments = window
    size = arguments.pop("size")
    each, made = (each, made) if groups < 4 else (min(each, 3), min(made, 3))

    def f(x: mx.array, w: mx.array) -> list[mx.array]:
        planar, crossed = x.transpose(0, 2, 3, 1), x.transpose(0, 3, 2, 1)
        across = mx.contiguous(crossed).transpose(0, 2, 1, 3)  # neither order
        return [
            mx.conv_general(y, w, groups=groups, **arguments)
            for y in (planar, mx.contiguous(planar), across)
        ]

    x = floats((batch, groups * each, *size))
    w = floats((groups * made, *kernel, each), 1, 1 / math.sqrt(each))
    same(f, x, w, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 4])
def test_subnormal_numbers_are_zero_in_convolutions_only(groups: int) -> None:
    def f(x: mx.array, w: mx.array, tiny: mx.array) -> list[mx.array]:
        y = mx.conv2d(x, w, 1, 1, groups=groups)
        return [y, tiny * (mx.sum(y) * 0 + 0.5)]

    x, w = floats((1, 40, 40, 4)), floats((4, 3, 3, 4 // groups), 1)
    tiny = mx.full((5,), 1e-40)
    same(f, mx.where(mx.abs(x) < 1, x * 1e-40, x), w, tiny, rtol=1e-5, atol=1e-4)
    kept = captured(f, [x, w, tiny])[1]
    # As bits, which this thread compares rightly even if it should take them for zero.
    np.testing.assert_array_equal(np.array(kept).view(np.int32), 71362 // 2)


@given(
    cut=st.sampled_from([slice(None, -1), slice(1, None), slice(None, None, 2)]),
    axis=st.integers(1, 3),
    first=st.permutations([1, 2, 3]),
)
def test_slices_in_any_memory_order(cut: slice, axis: int, first: list[int]) -> None:
    """Elementwise results follow slices, which have gaps; so do pads and concatenations."""

    def f(x: mx.array) -> list[mx.array]:
        part = x.transpose(0, *first)[(slice(None),) * axis + (cut,)]
        y = mx.maximum(part, 0.5 * part)
        row = mx.maximum(part[:, :1], 0.5)
        padded = mx.pad(part, [(0, 0), (1, 2), (0, 1), (0, 0)])
        return [y, row, padded, mx.concatenate([part, y], 2), y.transpose(0, 3, 1, 2) + 1]

    same(f, floats((2, 6, 9, 8)))
