"""Writing by index."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from support.case import M, N, case, const, ints, loose, omitted, rand
from support.ep import Ep
from support.strategies import axis, index, shapes

REDUCTIONS = ("none", "add", "mul", "max", "min")
SUMS = loose(1e-2, 1e-2, "halves are summed in another order")
NUMBERS = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int32",
    "int64",
    "uint8",
    "int8",
    "uint32",
    "uint64",
]

CASES = [
    case("Scatter", rand(3, 4), ints([[0, 2], [1, 0]], [[2, 1], [0, 0]]), rand(2, 2), opset=9),
    case("Scatter", rand(3, 4), ints([[0, -1]]), rand(1, 2), opset=9, axis=1),
    case("ScatterElements", rand(3, 4), ints([[0, 2], [1, 0]]), rand(2, 2), opset=13, id="old"),
    case("ScatterElements", rand(3, M), rand(1, M, low=-3, high=3, dtype="int64"), rand(1, M)),
    *(
        case(
            "ScatterElements",
            rand(3, 4, low=1, high=3),
            ints([[0, 2, 0], [-1, 0, 3]], [[1, 1, 1], [2, 3, 0]]),
            rand(2, 3, low=1, high=3),
            axis=1,
            reduction=r,
            tolerance=SUMS,
            dtypes=NUMBERS,
        )
        for r in REDUCTIONS[1:]
    ),
    case("ScatterND", rand(4, N), ints([[0], [-1]], [[2], [1]]), rand(2, N), opset=13, id="old"),
    case("ScatterND", rand(4, 5), ints([[[0, 1]], [[3, -5]]]), rand(2, 1), id="points"),
    *(
        case(
            "ScatterND",
            rand(4, 3, low=1, high=3),
            ints([[0], [2], [0]], [[1], [1], [1]]),
            rand(3, 3, low=1, high=3),
            reduction=r,
            tolerance=SUMS,
            dtypes=NUMBERS,
        )
        for r in REDUCTIONS[1:]
    ),
    case("TensorScatter", rand(2, 3, 6, 4), rand(2, 3, 2, 4), ints([1, 3], [0, 4])),
    case(
        "TensorScatter", rand(2, 3, 6, 4), rand(2, 3, 2, 4), ints([5, 3], [0, 4]), mode="circular"
    ),
    case("TensorScatter", rand(2, 6, 4), rand(2, 2, 4), omitted(), axis=1, id="start"),
    case("TensorScatter", rand(1, 6, 4), rand(1, 2, 4), ints([3], [4]), dtypes=NUMBERS, id="one"),
    case("TensorScatter", rand(2, 4, 6), rand(2, 4, 2), ints([3, 1]), axis=-1, dtypes=NUMBERS),
    case("TensorScatter", rand(1, 6, 4), rand(1, 6, 4), ints([2]), mode="circular", id="around"),
    case("TensorScatter", rand(1, 6, 4), rand(1, 0, 4), ints([2]), id="nothing"),
]
REFUSED = [
    (
        case("ScatterElements", rand(3, 4), const([[3]]), rand(1, 1)),
        "an index is out of range for an axis of 3",
    ),
    (
        case("ScatterND", rand(3, 4), const([[3]]), rand(1, 4)),
        "an index is out of range for an axis of 3",
    ),
    (
        case("TensorScatter", rand(2, 6, 4), rand(1, 6, 4), ints([0, 0]), axis=0),
        "the axis is the batch axis",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


@given(
    data=st.data(),
    shape=shapes(min_rank=1, max_rank=3, least=1),
    reduction=st.sampled_from(REDUCTIONS),
)
def test_scatter_elements(data, shape, reduction, ep: Ep) -> None:
    at = data.draw(axis(len(shape)))
    picked = [data.draw(st.integers(0, n)) for n in shape]
    rows = [n for i, n in enumerate(picked) if i != at % len(shape)]
    if reduction == "none":  # repeated indices have no defined result then
        lines = [
            data.draw(st.permutations(range(shape[at])))[: picked[at]]
            for _ in range(math.prod(rows))
        ]
    else:
        lines = [
            [data.draw(index(shape[at])) for _ in range(picked[at])] for _ in range(math.prod(rows))
        ]
    indices = np.moveaxis(np.reshape(np.array(lines, np.int64), [*rows, picked[at]]), -1, at)
    c = case(
        "ScatterElements",
        rand(*shape),
        ints(indices),
        rand(*picked),
        axis=at,
        reduction=reduction,
        id="any",
    )
    ep.check_one(c, 18, "int64")


@given(
    data=st.data(),
    shape=shapes(min_rank=1, max_rank=3, least=1),
    reduction=st.sampled_from(REDUCTIONS),
)
def test_scatter_nd(data, shape, reduction, ep: Ep) -> None:
    width = data.draw(st.integers(1, len(shape)))
    places = data.draw(
        st.lists(
            st.tuples(*(index(n).map(lambda i, n=n: i % n) for n in shape[:width])),
            max_size=4,
            unique=reduction == "none",
        )
    )
    indices = np.array(places, np.int64).reshape(len(places), width)
    updates = rand(len(places), *shape[width:])
    ep.check_one(
        case("ScatterND", rand(*shape), ints(indices), updates, reduction=reduction, id="any"),
        18,
        "float32",
    )
