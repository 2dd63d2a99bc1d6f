"""Shape, axes and order."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from support.case import K, L, M, N, case, const, ints, omitted, rand
from support.ep import Ep
from support.strategies import axes, axis, shapes

CASES = [
    case("Shape", rand(N, M, 2)),
    case("Shape", rand(), id="scalar"),
    case("Shape", rand(N, 0), id="empty"),
    case("Shape", rand(N, M), opset=13, id="old"),
    *(case("Shape", rand(N, M, K), start=a, end=b) for a, b in ((1, 2), (-2, -1), (2, 1), (-9, 9))),
    case("Shape", rand(N, M, K), start=1),
    case("Size", rand(N, M)),
    case("Size", rand(), id="scalar"),
    case("Size", rand(0, N), id="empty"),
    case("Identity", rand(N, M)),
    case("Identity", rand(), id="scalar"),
    case("Squeeze", rand(1, N, 1, M), opset=11, axes=[0, -2]),
    case("Squeeze", rand(1, N, 1), opset=11, id="old-all"),
    case("Squeeze", rand(1, N, 1, M), const([0, -2])),
    case("Squeeze", rand(1, 3, 1, 1), ints([0], [2]), id="run-time"),
    case("Squeeze", rand(1, N, 1), id="all"),
    case("Squeeze", rand(1, 1), id="to-scalar"),
    case("Unsqueeze", rand(N, M), opset=11, axes=[0, 3]),
    case("Unsqueeze", rand(N, M), const([-1, 0])),
    case("Unsqueeze", rand(), const([0, 1]), id="scalar"),
    case("Unsqueeze", rand(2, 3), ints([1], [-1]), id="run-time"),
    case("Transpose", rand(N, M, K)),
    case("Transpose", rand(N, M, K), perm=[1, 2, 0]),
    case("Transpose", rand(), id="scalar"),
    case("Transpose", rand(N, 0, M), id="empty"),
    case("Concat", rand(N, M), rand(K, M), axis=0),
    case("Concat", rand(N, M, K), rand(N, L, K), rand(N, 1, K), axis=-2),
    case("Concat", rand(N, M), axis=1, id="one"),
    case("Concat", rand(0, M), rand(N, M), axis=0, id="empty"),
    case("Split", rand(N, 6), opset=7, outputs=3, axis=1),
    case("Split", rand(N, 6), opset=11, outputs=2, axis=-1, split=[4, 2]),
    case("Split", rand(6, N), opset=13, outputs=3),
    case("Split", rand(N, 6), const([1, 0, 5]), opset=13, outputs=3, axis=1),
    case("Split", rand(N, 7), outputs=3, axis=1, num_outputs=3),
    case("Split", rand(N, 6), ints([1, 5], [4, 2]), outputs=2, axis=1, id="run-time"),
    case(
        "Split",
        rand(N, 6),
        const([2, 4]),
        outputs=(0, 1),
        axis=1,
        id="second",
        reference=lambda x, _, axis: x[:, 2:],
    ),  # ORT's own kernel crashes on this
]
FAILING = [
    (case("Squeeze", rand(N, 3), const([0])), "are not all of size 1"),
    (case("Split", rand(N, 6), ints([1, 4]), outputs=2, axis=1), "do not make an axis of 6"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "text"), FAILING, ids=str)
def test_failing(c, text, ep: Ep) -> None:
    ep.fails(c, text)


@given(data=st.data(), shape=shapes())
def test_transpose(data, shape, ep: Ep) -> None:
    perm = data.draw(st.permutations(range(len(shape))))
    ep.check_one(case("Transpose", rand(*shape), perm=perm), 13, "int32")


@given(data=st.data(), shape=shapes(max_rank=3))
def test_unsqueeze_and_squeeze(data, shape, ep: Ep) -> None:
    rank = len(shape)
    more = data.draw(axes(rank + 2, min_size=1).filter(lambda a: len(a) <= 2))
    ep.check_one(
        case("Unsqueeze", rand(*shape[: rank + 2 - len(more)]), const(more)), 13, "float32"
    ) if (len(more) == 2) else None
    ones = tuple(1 if data.draw(st.booleans()) else n for n in shape)
    chosen = [a for a in data.draw(axes(rank)) if ones[a] == 1]
    ep.check_one(
        case("Squeeze", rand(*ones), const(chosen) if chosen else omitted()), 13, "float32"
    )


@given(
    data=st.data(),
    shape=shapes(min_rank=1),
    sides=st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
def test_concat_and_split(data, shape, sides, ep: Ep) -> None:
    at = data.draw(axis(len(shape)))
    parts = []
    for side in sides:
        part = list(shape)
        part[at] = side
        parts.append(rand(*part))
    ep.check_one(case("Concat", *parts, axis=at), 13, "int64")
    whole = list(shape)
    whole[at] = sum(sides)
    ep.check_one(
        case("Split", rand(*whole), const(sides), outputs=len(sides), axis=at), 18, "float32"
    )
