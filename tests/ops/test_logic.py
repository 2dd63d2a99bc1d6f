"""Comparisons, logic, bits and selection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from support.case import K, M, N, case, rand, values
from support.ep import Ep
from support.strategies import broadcastable

INF, NAN = np.inf, np.nan

CASES = [
    *(
        case(name, rand(N, M), rand(N, M))
        for name in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
    ),
    *(
        case(name, rand(N, 1, K), rand(M, 1), id="broadcast")
        for name in ("Equal", "Greater", "Less")
    ),
    *(
        case(
            name, values([NAN, 1.0, INF, -0.0, 2.0]), values([NAN, NAN, INF, 0.0, 3.0]), id="edges"
        )
        for name in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
    ),
    case("Equal", rand(N, M), rand(M), opset=7, id="old"),
    case("Greater", rand(N, M), rand(M), opset=7, id="old"),
    case("Less", rand(N, M), rand(M), opset=7, id="old"),
    *(case(name, rand(N, M), rand(N, M)) for name in ("And", "Or", "Xor")),
    *(case(name, rand(N, 1, K), rand(M, 1), id="broadcast") for name in ("And", "Or", "Xor")),
    case("Not", rand(N, M)),
    *(
        case(name, rand(N, 1, K, low=-90, high=90), rand(M, 1, low=-90, high=90))
        for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
    ),
    case("BitwiseNot", rand(N, M, low=-90, high=90)),
    *(
        case("BitShift", rand(N, M, low=0, high=90), rand(M, low=0, high=7), direction=d)
        for d in ("LEFT", "RIGHT")
    ),
    case(
        "BitShift",
        values([255, 7, 1], dtype="uint8"),
        values([8, 9, 200], dtype="uint8"),
        direction="LEFT",
        id="too-far",
    ),
    case("IsNaN", values([NAN, 1.0, INF, -INF])),
    case("IsNaN", rand(N, M), id="dims"),
    *(
        case("IsInf", values([NAN, 1.0, INF, -INF]), detect_positive=p, detect_negative=n)
        for p in (0, 1)
        for n in (0, 1)
    ),
    case("IsInf", rand(N, M), id="dims"),
    case("Where", rand(N, 1, dtype="bool"), rand(N, M), rand(M)),
    case("Where", rand(dtype="bool"), rand(N, M), rand(), id="scalars"),
    case("Where", rand(0, 2, dtype="bool"), rand(2), rand(1, 2), id="empty"),
]
REFUSED = [
    (
        case("BitShift", rand(3, dtype="uint8"), rand(3, dtype="uint8"), direction="UP"),
        "the direction is neither LEFT nor RIGHT",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


@given(shapes=broadcastable(3))
def test_where_broadcasts(shapes, ep: Ep) -> None:
    condition, x, y = shapes
    ep.check_one(case("Where", rand(*condition, dtype="bool"), rand(*x), rand(*y)), 16, "float32")


@given(shapes=broadcastable(2))
def test_comparison_broadcasts(shapes, ep: Ep) -> None:
    a, b = shapes
    ep.check_one(case("Less", rand(*a), rand(*b)), 13, "int32")
