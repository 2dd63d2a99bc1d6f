"""Changing the element type."""

from __future__ import annotations

import pytest

from ort_mlx.dtypes import FLOAT8, NARROW_INTS
from support.case import M, N, case, onnx_code, rand, values
from support.ep import Ep

TARGETS = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
SINGLE = ["float32"]
TIES = ["float32", "float64", "float16", "bfloat16", *sorted(FLOAT8)]
E8M0 = onnx_code("float8e8m0")
FLOATS = ["float32", "float64", "float16", "bfloat16"]

CASES = [
    *(case("Cast", rand(N, M, low=0, high=9), to=onnx_code(t), id=t) for t in TARGETS),
    *(
        case("Cast", rand(N, M), opset=opset, to=onnx_code("int32"), id=f"opset{opset}")
        for opset in (13, 19)
    ),
    case(
        "Cast", values([1.9, -1.9, 0.5, -0.5]), dtypes=FLOATS, to=onnx_code("int32"), id="truncates"
    ),
    case(
        "Cast",
        values([0.0, -0.0, 0.1, float("nan")]),
        dtypes=FLOATS,
        to=onnx_code("bool"),
        id="truth",
    ),
    case(
        "Cast",
        values([300, -1, 70000, 128]),
        dtypes=["int32", "int64"],
        to=onnx_code("uint8"),
        id="wraps",
    ),
    case(
        "Cast",
        values([7e4, -1e9, 6e-8]),
        dtypes=["float32", "float64"],
        to=onnx_code("float16"),
        id="overflow",
    ),
    *(
        case("CastLike", rand(N, M, low=0, high=9), rand(M, dtype=t), id=t)
        for t in ("int32", "float16", "bool", "float64")
    ),
    *(
        case("CastLike", rand(N, M), rand(N, dtype="int64"), opset=opset, id=f"opset{opset}")
        for opset in (15, 19)
    ),
    case("BitCast", rand(N, M, dtype="float32"), to=onnx_code("int32"), id="float"),
    case("BitCast", rand(N, M, dtype="int64"), to=onnx_code("uint64"), id="int"),
    case("BitCast", rand(N, M, dtype="uint16"), to=onnx_code("float16"), id="half"),
]
# Around every kind of edge: subnormals, ties, the largest values, and what lies beyond.
EDGES = [
    *(s * v for s in (1, -1) for v in (0.0, 1e-30, 2.0**-18, 2.0**-10, 1.5 * 2.0**-9, 0.3, 17.0)),
    *(s * v for s in (1, -1) for v in (240.0, 248.0, 448.0, 464.0, 465.0, 57344.0, 61440.0, 1e30)),
    *(float("inf"), -float("inf"), float("nan")),
]
POWERS = [2.0**-130, 1e-38, 0.7, 0.75, 1.0, 1.5, 3.0, 5.9, 6.1, 2.0**127, 3e38, float("inf")]

CASES += [
    *(
        case("Cast", rand(N, M, low=-2, high=3), to=onnx_code(t), oldest=19, id=t)
        for t in sorted(FLOAT8)
    ),
    *(
        case("Cast", values(EDGES), dtypes=FLOATS, to=onnx_code(t), saturate=s, id=f"{t}-edges{s}")
        for t in sorted(FLOAT8)
        for s in (0, 1)
    ),
    case(
        "Cast",
        values([465.0, 479.0, 480.0, 488.0, 495.0, 496.0, -480.0, -496.0]),
        dtypes=FLOATS,
        to=onnx_code("float8e4m3fn"),
        saturate=0,
        id="float8e4m3fn-beyond",
    ),
    case("Cast", values(EDGES), oldest=23, dtypes=FLOATS, to=onnx_code("float4e2m1"), id="fours"),
    *(
        case("Cast", values(POWERS), dtypes=SINGLE, to=E8M0, id=f"power-{mode}{s}", **kind)
        for s in (0, 1)
        for mode in ("up", "down", "nearest")
        for kind in [{"saturate": s, "round_mode": mode}]
    ),
    *(
        case("Cast", values([-9, -8, -3, -1, 0, 1, 5, 7, 8, 15, 16, 300]), to=onnx_code(t), id=t)
        for t in sorted(NARROW_INTS)
    ),
    *(
        case(op, values([-1.5, -0.5, 0.4, 0.5, 1.4]), *like, dtypes=TIES, id=f"{t}-rounded", **to)
        for t in sorted(NARROW_INTS)
        for op, like, to in [
            ("Cast", [], {"to": onnx_code(t)}),
            ("CastLike", [rand(2, dtype=t)], {"oldest": 25}),
        ]
    ),
    case("CastLike", values(EDGES), rand(2, dtype="float8e4m3fn"), dtypes=SINGLE, saturate=0),
    case("CastLike", rand(N, M, low=0, high=2), rand(M, dtype="float8e8m0")),
    case("Cast", rand(N, M), opset=19, to=onnx_code("float8e5m2"), id="opset19-float8"),
    case("CastLike", rand(N, M), rand(2, dtype="float8e5m2"), opset=19, id="opset19-float8"),
]
REFUSED = [
    (
        case("Cast", rand(3), to=onnx_code("string")),
        "'y0' is of type string, which MLX has no array for",
    ),
    (case("BitCast", rand(4, dtype="uint8"), to=onnx_code("int4")), "the bits of int4"),
    (case("BitCast", rand(4, dtype="float32"), to=onnx_code("int16")), "the element sizes differ"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
