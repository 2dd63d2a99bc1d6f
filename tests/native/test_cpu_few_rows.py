"""Products of a few rows on the CPU, as decoders make them for each token, against float64."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from support.closures import captured, floats

# What rounding to the dtype allows, relative to the sum of the magnitudes.
ROUNDING = {mx.float32: 1e-6, mx.float16: 2**-10, mx.bfloat16: 2**-7}
LAYOUTS = ["heads first", "positions first"]


@pytest.fixture(autouse=True)
def on_the_cpu(instruction_set: str) -> Iterator[None]:
    with mx.stream(mx.cpu):
        yield


def widened(y: mx.array, dtype: mx.Dtype) -> mx.array:
    """What NumPy takes, of a result that has to have the dtype."""
    assert y.dtype == dtype
    return y.astype(mx.float32)


def wide(a: mx.array) -> NDArray[np.float64]:
    return np.array(a.astype(mx.float32), np.float64)


def check(y: mx.array, a: mx.array, b: mx.array, dtype: mx.Dtype) -> None:
    error = np.abs(wide(y) - wide(a) @ wide(b))
    assert (error <= ROUNDING[dtype] * (np.abs(wide(a)) @ np.abs(wide(b))) + 1e-30).all()


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 9, 65])
@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
def test_rows(b_transposed: bool, a_transposed: bool, rows: int, dtype: mx.Dtype) -> None:
    k, n = 97, 2313  # wide enough for two threads and for two tiles, and odd
    a = floats((k, rows) if a_transposed else (rows, k)).astype(dtype)
    b = floats((n, k) if b_transposed else (k, n), seed=1).astype(dtype)

    def product(a: mx.array, b: mx.array) -> mx.array:
        y = (a.T if a_transposed else a) @ (b.T if b_transposed else b)
        return widened(y, dtype)

    for threads in (1, 2):
        (y,) = captured(product, [a, b], threads)
        assert y.shape == (rows, n)
        check(y, a.T if a_transposed else a, b.T if b_transposed else b, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("queries", [1, 2])
@pytest.mark.parametrize("shared", [1, 3, 8])
def test_shared_heads(shared: int, queries: int, dtype: mx.Dtype, layout: str) -> None:
    """Heads of queries that share a head of keys and values, which are views of a longer cache."""
    batch, heads, past, size = 2, 2, 131, 64
    is_first = layout == LAYOUTS[0]
    stored = (batch, heads, past + 9, size) if is_first else (batch, past + 9, heads, size)
    q = floats((batch, heads, shared, queries, size)).astype(dtype)
    p = floats((batch, heads, shared, queries, past), seed=1).astype(dtype)
    cache = floats(stored, seed=2).astype(dtype)

    def keys(cache: mx.array) -> mx.array:
        return (cache if is_first else cache.swapaxes(1, 2))[:, :, None, :past]

    def both(q: mx.array, p: mx.array, cache: mx.array) -> list[mx.array]:
        made = [q @ keys(cache).swapaxes(-1, -2), p @ keys(cache)]
        return [widened(y, dtype) for y in made]

    for threads in (1, 2):
        scores, values = captured(both, [q, p, cache], threads)
        check(scores, q, keys(cache).swapaxes(-1, -2), dtype)
        check(values, p, keys(cache), dtype)


@pytest.mark.parametrize("layout", ["rows apart", "rows interleaved"])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_rows_that_do_not_follow_each_other(dtype: mx.Dtype, layout: str) -> None:
    """Matrices of a whose rows cannot become those of one matrix, and some that can."""
    b = floats((70, 33), seed=1).astype(dtype)
    stored = {"rows apart": (4, 5, 70), "rows interleaved": (2, 4, 70)}[layout]
    a = floats(stored).astype(dtype)

    def left(a: mx.array) -> mx.array:
        return a[:, :2] if layout == "rows apart" else a.swapaxes(0, 1)

    def product(a: mx.array, b: mx.array) -> mx.array:
        return widened(left(a) @ mx.broadcast_to(b, (4, 70, 33)), dtype)

    (y,) = captured(product, [a, b])
    check(y, left(a), b, dtype)


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("shape", [(33,), (2, 33), (3, 1, 33), (3, 2, 1), (3, 2, 33)], ids=str)
@pytest.mark.parametrize("rows", [1, 2])
def test_sum_and_product(rows: int, shape: tuple[int, ...], dtype: mx.Dtype) -> None:
    """The summand is broadcast, also along rows that are merged."""
    shape = tuple(rows if i == len(shape) - 2 and d == 2 else d for i, d in enumerate(shape))
    a, b = floats((3, rows, 70)).astype(dtype), floats((70, 33), seed=1).astype(dtype)
    c = floats(shape, seed=2).astype(dtype)

    def sum_of(c: mx.array, a: mx.array, b: mx.array) -> mx.array:
        return widened(mx.addmm(c, a, mx.broadcast_to(b, (3, 70, 33)), 2.0, -3.0), dtype)

    (y,) = captured(sum_of, [c, a, b])
    exact = 2 * wide(a) @ wide(b) - 3 * wide(c)
    limit = 2 * np.abs(wide(a)) @ np.abs(wide(b)) + 3 * np.abs(wide(c))
    assert (np.abs(wide(y) - exact) <= ROUNDING[dtype] * limit).all()
