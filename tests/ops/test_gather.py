"""Reading by index."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from support.case import K, M, N, case, const, ints, rand
from support.ep import Ep
from support.strategies import axis, index, shapes

CASES = [
    case("Gather", rand(N, M), rand(K, low=0, high=3, dtype="int64")),
    case("Gather", rand(N, 5), ints([[0, -1], [2, 4]], [[1, 1], [-5, 0]]), axis=1),
    case("Gather", rand(4, N), ints(2, -1, dtype="int32"), id="scalar"),
    case("Gather", rand(4, N), const([3, 0]), axis=-2),
    case("Gather", rand(4, 0, 2), ints([1]), axis=2, id="empty"),
    case("Gather", rand(4), ints(np.zeros((0, 2))), id="no-indices"),
    case("GatherElements", rand(4, M), rand(3, M, low=-4, high=4, dtype="int64")),
    case("GatherElements", rand(4, 5), ints([[0, -1, 4]], [[2, 2, -5]]), axis=1),
    case(
        "GatherElements",
        rand(4, 5, 2),
        rand(2, 5, 1, low=0, high=5, dtype="int32"),
        axis=-2,
        id="smaller",
    ),
    case("GatherND", rand(3, 4, M), ints([[0, 1], [-1, -4]], [[2, 3], [0, 0]])),
    case("GatherND", rand(3, 4), ints([[0], [2]]), id="rows"),
    case("GatherND", rand(3, 4), ints([[0, 1]]), opset=11, id="old"),
    case("GatherND", rand(2, 4, 3), ints([[1], [-1]], [[3], [0]]), batch_dims=1),
]
REFUSED = [
    (case("Gather", rand(3, 4), const([3])), "an index is out of range for an axis of 3"),
    (
        case("GatherElements", rand(3, 4), const([[0, 1, 2, -4]])),
        "an index is out of range for an axis of 3",
    ),
    (case("GatherND", rand(3, 4), const([[0, 4]])), "an index is out of range for an axis of 4"),
]
FAILING = [
    (case("GatherElements", rand(3, N), rand(N, low=0, high=2, dtype="int64")), ""),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


@pytest.mark.parametrize(("c", "text"), FAILING, ids=str)
def test_failing(c, text, ep: Ep) -> None:
    ep.fails(c, text)


@given(data=st.data(), shape=shapes(min_rank=1, least=1))
def test_gather(data, shape, ep: Ep) -> None:
    at = data.draw(axis(len(shape)))
    picked = data.draw(shapes(max_rank=2))
    indices = [data.draw(index(shape[at])) for _ in range(math.prod(picked))]
    c = case("Gather", rand(*shape), ints(np.reshape(indices, picked)), axis=at, id="any")
    ep.check_one(c, 13, "int32")


@given(data=st.data(), shape=shapes(min_rank=1, least=1))
def test_gather_elements(data, shape, ep: Ep) -> None:
    at = data.draw(axis(len(shape)))
    picked = [data.draw(st.integers(0, n)) for n in shape]
    picked[at] = data.draw(st.integers(0, 4))
    indices = [data.draw(index(shape[at])) for _ in range(math.prod(picked))]
    c = case("GatherElements", rand(*shape), ints(np.reshape(indices, picked)), axis=at, id="any")
    ep.check_one(c, 13, "int32")


@given(data=st.data(), shape=shapes(min_rank=1, max_rank=3, least=1))
def test_gather_nd(data, shape, ep: Ep) -> None:
    batch = data.draw(st.integers(0, len(shape) - 1))
    width = data.draw(st.integers(1, len(shape) - batch))
    outer = [*shape[:batch], *data.draw(shapes(min_rank=1, max_rank=2))]
    tuples = [
        [data.draw(index(n)) for n in shape[batch : batch + width]] for _ in range(math.prod(outer))
    ]
    c = case(
        "GatherND",
        rand(*shape),
        ints(np.reshape(tuples, [*outer, width])),
        batch_dims=batch,
        id="any",
    )
    ep.check_one(c, 13, "int32")
