"""Arithmetic, element by element."""

from __future__ import annotations

import numpy as np
import pytest

from support.case import K, M, N, case, const, omitted, rand, values
from support.ep import Ep

INF, NAN = np.inf, np.nan
EDGES = [NAN, INF, -INF, 0.0, -0.0, 1.5, -2.5, 0.5]

CASES = [
    *(
        case(name, rand(N, M))
        for name in (
            "Abs",
            "Neg",
            "Sign",
            "Ceil",
            "Floor",
            "Round",
            "Exp",
            "Erf",
            "Sin",
            "Cos",
            "Tan",
            "Atan",
            "Sinh",
            "Cosh",
            "Tanh",
            "Asinh",
        )
    ),
    *(case(name, rand(N, M, low=0.1, high=4)) for name in ("Sqrt", "Reciprocal", "Log")),
    *(case(name, rand(N, M, low=-0.99, high=0.99)) for name in ("Asin", "Acos", "Atanh")),
    case("Acosh", rand(N, M, low=1.01, high=9)),
    *(
        case(name, values(EDGES), id="edges")
        for name in (
            "Abs",
            "Neg",
            "Sign",
            "Ceil",
            "Floor",
            "Round",
            "Sqrt",
            "Reciprocal",
            "Exp",
            "Log",
            "Tanh",
            "Atan",
            "Erf",
        )
    ),
    *(case(name, rand(), id="scalar") for name in ("Abs", "Neg", "Sqrt", "Tanh")),
    *(case(name, rand(N, 0, 2), id="empty") for name in ("Abs", "Exp", "Floor")),
    *(case(name, rand(N, M), rand(N, M)) for name in ("Add", "Sub", "Mul")),
    *(
        case(name, rand(N, 1, K), rand(M, 1), id="broadcast")
        for name in ("Add", "Sub", "Mul", "Max", "Min", "Sum")
    ),
    case(
        "Mean", rand(N, 1, K), rand(M, 1), oldest=8, id="broadcast", reference=lambda *x: sum(x) / 2
    ),
    case("Div", rand(N, M), rand(N, M, low=1, high=5)),
    case("Div", values([-7, 7, -8, 0, 9]), values([2, -2, 3, 5, -9]), id="truncates"),
    case("Div", values([7, 200, 3]), values([2, 3, 7]), id="unsigned"),
    case(
        "Div",
        values([1.0, -1.0, 0.0]),
        values([0.0, 0.0, 0.0]),
        id="by-zero",
        dtypes=["float32", "float64", "float16", "bfloat16"],
    ),
    *(
        case(
            "Mod",
            values([-7, 7, -8, 0, 9, 6]),
            values([3, -3, 4, 5, -9, -4]),
            fmod=f,
            id=f"fmod{f}",
            dtypes=["int8", "int16", "int32", "int64"],
        )
        for f in (0, 1)
    ),
    case("Mod", rand(N, M, low=0, high=90), rand(M, low=1, high=9), id="positive", fmod=1),
    case(
        "Mod",
        rand(N, M),
        rand(M, low=0.5, high=3),
        id="floats",
        fmod=1,
        dtypes=["float32", "float64", "float16"],
    ),
    case(
        "Pow",
        rand(N, M, low=0.2, high=3),
        rand(M, low=-2, high=3),
        dtypes=["float32", "float64", "float16", "bfloat16"],
    ),
    case("Pow", values([-3, 2, 0, 5]), values([3, 7, 0, 2]), id="whole"),
    case(
        "Pow",
        values([-3, 2, 0, 5], dtype="int32"),
        values([3.0, 0.5, 0.0, 2.0], dtype="float32"),
        oldest=12,
        id="mixed",
    ),
    *(case(name, rand(N, M), id="one") for name in ("Max", "Min", "Sum", "Mean")),
    *(
        case(name, rand(N, M), rand(N, M), rand(N, M), id="three")
        for name in ("Max", "Min", "Sum", "Mean")
    ),
    *(
        case(name, values([NAN, 1.0, INF]), values([2.0, NAN, -INF]), id="nan")
        for name in ("Max", "Min")
    ),
    case("Clip", rand(N, M), opset=7, min=-0.5, max=0.7),
    case("Clip", rand(N, M), opset=7, id="open"),
    case("Clip", rand(N, M), const(1.0), const(3.0)),
    case("Clip", rand(N, M), omitted(), values(3.0), id="upper"),
    case("Clip", rand(N, M), values(1.0), id="lower"),
    case("Clip", rand(N, M), id="open-new"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)
