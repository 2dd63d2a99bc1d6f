"""Lengths and positions far outside of a cache: they write no other rows than the new ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.case import MS, Case, Input, case, ints, omitted, rand
from support.edges import run_session
from support.placement import assert_placed, mlx_session
from support.references import feed_of

NONE = omitted()
LENGTHS = [-(2**31), -5, 7, 10**6, 2**31 - 1]


def int32(values: Any) -> Input:
    return ints(values, dtype="int32")


def kept(c: Case, changed: tuple[int, ...], rows: int) -> None:
    """The case runs twice alike, is finite, and writes at most `rows` rows of each cache entry.

    Args:
        c: a case in which something is far outside.
        changed: the inputs that are caches; the outputs after the first are those changed.
        rows: how many new rows there are.
    """
    arrays = c.arrays("float32", 0)
    session = mlx_session(c.model(arrays, c.version))
    assert_placed(session)
    feed = feed_of(arrays, c)
    first, second = run_session(session, feed), run_session(session, feed)
    for got, again in zip(first, second, strict=True):
        assert np.isfinite(got).all()
        np.testing.assert_array_equal(got, again)
    for given, made in zip(changed, first[1:], strict=False):
        old = arrays[given]
        assert old is not None
        differs = (old != made).any(axis=(1, 3))
        assert (differs.sum(axis=1) <= rows).all(), "more rows are written than there are new ones"


@pytest.mark.parametrize("last", LENGTHS)
@pytest.mark.parametrize("form", ["shared", "biased", "padded", "sliding"])
def test_wild_lengths_of_grouped_queries(form: str, last: int) -> None:
    tokens = (rand(2, 1, 32), rand(2, 1, 16), rand(2, 1, 16))
    cache = rand(2, 2, 8, 8)
    options = {"local_window_size": 4, "sliding_window_cache": 1} if form == "sliding" else {}
    more = {
        "biased": [NONE] * 3 + [rand(1, 4, 1, 8)],
        "padded": [NONE] * 9 + [int32([last, 1])],
    }.get(form, [])
    c = case(
        "GroupQueryAttention",
        *(*tokens, cache, cache, int32([last, 6]), int32(8), *more),
        domain=MS,
        id=form,
        outputs=3,
        num_heads=4,
        kv_num_heads=2,
        **options,
    )
    kept(c, () if form == "sliding" else (3, 4), 1)


@pytest.mark.parametrize("last", LENGTHS)
def test_wild_lengths_of_sparse_attention(last: int) -> None:
    cache = rand(2, 2, 32, 8)
    c = case(
        "SparseAttention",
        *(rand(2, 1, 32), rand(2, 1, 16), rand(2, 1, 16), cache, cache),
        *(int32([[0, 1, last]]), int32([[0, last, 1]]), int32(30), int32([last, 6])),
        domain=MS,
        id="wild",
        outputs=3,
        num_heads=4,
        kv_num_heads=2,
        sparse_block_size=16,
    )
    kept(c, (3, 4), 1)


@pytest.mark.parametrize("start", LENGTHS)
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_wild_places_in_a_cache(mode: str, start: int) -> None:
    c = case(
        "TensorScatter",
        *(rand(2, 3, 8, 4), rand(2, 3, 2, 4), ints([start, 1])),
        dtypes=["float32"],
        id="wild",
        mode=mode,
    )
    c = replace(c, outputs=(True,))
    arrays = c.arrays("float32", 0)
    session = mlx_session(c.model(arrays, c.version))
    assert_placed(session)
    (made,) = run_session(session, feed_of(arrays, c))
    assert arrays[0] is not None
    assert ((arrays[0] != made).any(axis=(1, 3)).sum(axis=1) == 2).all()


@pytest.mark.parametrize("end", LENGTHS)
def test_wild_ends_of_packed_sequences(end: int) -> None:
    c = case(
        "PackedMultiHeadAttention",
        *(rand(3, 8), rand(3, 8), rand(3, 8), NONE, int32([[0, 3], [2, 1]]), int32([0, end, 3])),
        domain=MS,
        id="wild",
        num_heads=2,
    )
    kept(c, (), 0)
