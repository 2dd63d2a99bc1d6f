"""Changing the element type."""

from __future__ import annotations

import pytest

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
REFUSED = [
    (
        case("Cast", rand(3), to=onnx_code("string")),
        "'y0' is of type string, which MLX has no array for",
    ),
    (
        case("Cast", rand(3), to=onnx_code("float8e4m3fn")),
        "'y0' is of type float8e4m3fn, which MLX has no array for",
    ),
    (case("BitCast", rand(4, dtype="float32"), to=onnx_code("int16")), "the element sizes differ"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
