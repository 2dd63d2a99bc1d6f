"""Products on the CPU whose weights are quantised or 16 bits wide, against float64."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest

from support.closures import captured, floats

# What rounding to the dtype allows, relative to the sum of the magnitudes.
ROUNDING = {mx.float32: 1e-6, mx.float16: 2**-10, mx.bfloat16: 2**-7}
# One row, several, and enough of them for BLAS.
ROWS = [(1,), (1, 1), (2,), (8,), (3, 7)]


@pytest.fixture(autouse=True)
def on_the_cpu(instruction_set: str) -> Iterator[None]:
    with mx.stream(mx.cpu):
        yield


def check(y: mx.array, x: mx.array, w: mx.array) -> None:
    """y, widened after rounding to x's dtype, against x w."""
    a = np.array(x.astype(mx.float32), np.float64)
    b = np.array(w.astype(mx.float32), np.float64)
    error = np.abs(np.array(y, np.float64) - a @ b)
    assert (error <= ROUNDING[x.dtype] * (np.abs(a) @ np.abs(b)) + 1e-30).all()


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_quantized(bits: int, group: int, rows: tuple[int, ...], dtype: mx.Dtype) -> None:
    # Odd counts of groups and rows; large enough that two threads share it.
    n, k = 333, group * (5 if group < 128 else 3)
    w, scales, biases = mx.quantize(floats((n, k)).astype(dtype), group, bits)
    exact = mx.dequantize(w, scales.astype(mx.float32), biases.astype(mx.float32), group, bits)
    x = floats((*rows, k), seed=1).astype(dtype)

    def product(x: mx.array) -> mx.array:
        y = mx.quantized_matmul(x, w, scales, biases, True, group, bits)
        assert y.dtype == dtype
        return y.astype(mx.float32)

    for threads in (1, 2):
        (y,) = captured(product, [x], threads)
        assert y.shape == (*rows, n)
        check(y, x, exact.T)


def test_quantized_is_ours() -> None:
    """Float16 sums of MLX's own are rounded at each step, ours once."""
    w, scales, biases = mx.quantize(mx.ones((40, 8192), mx.float16), 64, 4)
    x = mx.full((1, 8192), 1.0 + 2**-10, mx.float16)
    (y,) = captured(lambda x: mx.quantized_matmul(x, w, scales, biases, True, 64, 4), [x])
    np.testing.assert_array_equal(np.array(y), np.full((1, 40), 8200.0, np.float16))


def test_quantized_takes_any_layout() -> None:
    w, scales, biases = mx.quantize(floats((96, 128)), 32, 4)
    x = floats((128, 6), seed=1)
    (y,) = captured(lambda x: mx.quantized_matmul(x.T, w, scales, biases, True, 32, 4), [x])
    check(y, x.T, mx.dequantize(w, scales, biases, 32, 4).T)


def test_quantized_without_rows() -> None:
    w, scales, biases = mx.quantize(floats((96, 128)), 32, 4)
    x = mx.zeros((0, 128))
    (y,) = captured(lambda x: mx.quantized_matmul(x, w, scales, biases, True, 32, 4), [x])
    assert y.shape == (0, 96)


def test_quantized_infinity() -> None:
    """An infinite activation gives what the exact weights give."""
    w, scales, biases = mx.quantize(mx.abs(floats((40, 64))) + 1, 32, 4)
    x = mx.zeros((1, 64)).at[0, 3].add(mx.array(np.inf))
    (y,) = captured(lambda x: mx.quantized_matmul(x, w, scales, biases, True, 32, 4), [x])
    np.testing.assert_array_equal(np.array(y), np.full((1, 40), np.inf, np.float32))


HALVES = [mx.float16, mx.bfloat16]
# One row of a, several, and enough of them for BLAS.
SHAPES = [(1, 700, 333), (3, 65, 130), (5, 65, 130), (33, 257, 300), (4, 1, 1)]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", ["rows", "columns", "strided"])
def test_half_product(layout: str, shape: tuple[int, int, int], dtype: mx.Dtype) -> None:
    m, k, n = shape
    a = floats((m, k)).astype(dtype)
    stored = {"rows": (k, n), "columns": (n, k), "strided": (k, 2 * n)}[layout]
    b = floats(stored, seed=1).astype(dtype)

    def right(b: mx.array) -> mx.array:
        return {"rows": b, "columns": b.T, "strided": b[:, ::2]}[layout]

    for threads in (1, 2):
        (y,) = captured(lambda a, b: (a @ right(b)).astype(mx.float32), [a, b], threads)
        check(y, a, right(b))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_product_of_shared_heads(dtype: mx.Dtype) -> None:
    """Three heads of queries read each head of keys, which a transposed view gives."""
    q = floats((2, 2, 3, 1, 64)).astype(dtype)
    keys = floats((2, 2, 1, 77, 64), seed=1).astype(dtype)

    def scores(q: mx.array, keys: mx.array) -> mx.array:
        return (q @ keys.swapaxes(-1, -2)).astype(mx.float32)

    (y,) = captured(scores, [q, keys])
    check(y, q, mx.repeat(keys, 3, 2).swapaxes(-1, -2))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("rows", [1, 20])
def test_half_sum_and_product(rows: int, dtype: mx.Dtype) -> None:
    a, b = floats((rows, 96)).astype(dtype), floats((96, 140), seed=1).astype(dtype)
    c = floats((140,), seed=2).astype(dtype)
    (y,) = captured(lambda *args: mx.addmm(*args, 2.0, -3.0).astype(mx.float32), [c, a, b])
    wide_a = mx.concatenate([2 * a, mx.full((rows, 1), -3.0, dtype)], 1)
    check(y, wide_a, mx.concatenate([b, c[None]]))


def test_half_product_of_nothing() -> None:
    a, b = mx.zeros((3, 0), mx.float16), mx.zeros((0, 5), mx.float16)
    (y,) = captured(mx.matmul, [a, b])
    np.testing.assert_array_equal(np.array(y), np.zeros((3, 5), np.float16))


def test_every_half_is_widened() -> None:
    """Subnormal numbers, infinities and NaN too."""
    every = mx.arange(1 << 16).astype(mx.uint16).view(mx.float16)[:, None]
    (y,) = captured(lambda x: mx.ones((1, 1), mx.float16) @ x.T, [every])
    np.testing.assert_array_equal(np.array(y), np.array(every.T))
