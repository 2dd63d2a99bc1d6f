"""The same elements in another shape, and repeating them."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from support.case import K, M, N, case, const, ints, rand
from support.ep import Ep
from support.strategies import broadcastable, shapes

CASES = [
    case("Reshape", rand(N, M, 2), const([-1])),
    case("Reshape", rand(N, M, 2), const([0, -1]), id="zero-copies"),
    case("Reshape", rand(N, M, 2), const([0, -1]), opset=13, id="old"),
    case("Reshape", rand(2, 6), ints([3, 4], [-1, 1]), id="run-time"),
    case("Reshape", rand(2, 3), ints([6], [6]), id="same-rank"),
    case("Reshape", rand(N, 0), const([0, 4]), allowzero=1),
    case("Reshape", rand(1), const([]), id="to-scalar"),
    case("Reshape", rand(), const([1, 1]), id="scalar"),
    *(case("Flatten", rand(N, M, K), axis=a) for a in (0, 1, 2, 3)),
    case("Flatten", rand(N, M, K), oldest=11, axis=-1),
    case("Flatten", rand(), axis=0, id="scalar"),
    case("Expand", rand(N, 1), const([2, 1, 4])),
    case("Expand", rand(3, 1), ints([2, 3, 4], [5, 1, 1]), id="run-time"),
    case("Expand", rand(3, 1), ints([3, 4], [1, 6]), id="other-size"),
    case("Expand", rand(1, 3), const([0, 3]), id="to-empty"),
    case("Tile", rand(N, M), const([2, 3])),
    case("Tile", rand(2, 3), ints([2, 0], [1, 2]), id="run-time"),
    *(case("DepthToSpace", rand(N, 8, M, K), blocksize=2, mode=m) for m in ("DCR", "CRD")),
    case("DepthToSpace", rand(N, 8, M, K), opset=7, blocksize=2),
    case("SpaceToDepth", rand(N, 3, 4, 6), blocksize=2),
    case("SpaceToDepth", rand(N, 3, 4, 6), opset=13, blocksize=2),
]
FAILING = [
    (case("Reshape", rand(2, 3), ints([4])), "cannot reshape (2, 3) to (4,)"),
    (case("Reshape", rand(2, 3), ints([-1, -1])), "cannot reshape"),
    (case("Expand", rand(2, 3), ints([4])), "do not broadcast"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "text"), FAILING, ids=str)
def test_failing(c, text, ep: Ep) -> None:
    ep.fails(c, text)


@given(data=st.data(), shape=shapes())
def test_reshape(data, shape, ep: Ep) -> None:
    target = list(data.draw(st.permutations(shape)))
    while len(target) > 1 and data.draw(st.booleans()):
        target[:2] = [target[0] * target[1]]
    if target and math.prod(target) > 0 and data.draw(st.booleans()):
        target[data.draw(st.integers(0, len(target) - 1))] = -1
    zero = int(0 in target)
    ep.check_one(case("Reshape", rand(*shape), const(target), allowzero=zero), 14, "float32")


@given(both=broadcastable(2))
def test_expand(both, ep: Ep) -> None:
    shape, target = both
    ep.check_one(case("Expand", rand(*shape), ints(target)), 13, "int32")


@given(data=st.data(), shape=shapes())
def test_tile(data, shape, ep: Ep) -> None:
    repeats = [data.draw(st.integers(0, 3)) for _ in shape]
    ep.check_one(case("Tile", rand(*shape), ints(repeats)), 13, "float32")
