"""Hypothesis strategies for shapes, axes and bounds: small, with many zeros and ones."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

Shape = tuple[int, ...]

SIZES = st.sampled_from([0, 1, 1, 2, 3, 4, 5])
INT_MAX, INT_MIN = 2**63 - 1, -(2**63)


def shapes(min_rank: int = 0, max_rank: int = 4, least: int = 0) -> st.SearchStrategy[Shape]:
    """Shapes with sides up to 5."""
    sides = SIZES.filter(lambda n: n >= least)
    return st.lists(sides, min_size=min_rank, max_size=max_rank).map(tuple)


@st.composite
def broadcastable(draw: Any, count: int, max_rank: int = 4) -> tuple[Shape, ...]:
    """Shapes that broadcast together: of one shape, some leading sides gone and some made 1."""
    whole = draw(shapes(max_rank=max_rank))

    def part() -> Shape:
        kept = whole[draw(st.integers(0, len(whole))) :]
        return tuple(1 if draw(st.booleans()) else n for n in kept)

    return tuple(part() for _ in range(count))


def axis(rank: int) -> st.SearchStrategy[int]:
    """An axis of a tensor of this rank, counted from either end."""
    return st.integers(-rank, rank - 1)


@st.composite
def axes(draw: Any, rank: int, min_size: int = 0) -> tuple[int, ...]:
    """Different axes in any order, some counted from the end."""
    if rank == 0:
        return ()
    chosen = draw(st.lists(st.integers(0, rank - 1), unique=True, min_size=min_size, max_size=rank))
    return tuple(a - rank if draw(st.booleans()) else a for a in chosen)


def bounds(size: int) -> st.SearchStrategy[int]:
    """Where a slice starts or ends: near the axis, far outside, and the sentinels."""
    near = st.integers(-size - 3, size + 3)
    return st.one_of(near, near, st.sampled_from([INT_MAX, INT_MIN, 2**31 - 1, -(2**31)]))


def steps(size: int) -> st.SearchStrategy[int]:
    """A slice's step, never zero."""
    return st.one_of(
        st.sampled_from([1, 1, 2, -1, -2]),
        st.integers(-size - 2, size + 2).filter(bool),
        st.sampled_from([2**31, -(2**31), 2**40]),
    )


def index(size: int) -> st.SearchStrategy[int]:
    """A position on an axis that is not empty, counted from either end."""
    return st.integers(-size, size - 1)
