"""QuantizeLinear and DequantizeLinear of both domains, and DynamicQuantizeLinear."""

from __future__ import annotations

import pytest

from support.case import MS, M, N, case, const, loose, onnx_code, rand, values
from support.ep import Ep

F32 = "float32"
STEP = loose(0, 1, "a quotient that falls between two steps may be rounded to either")
HALVES = loose(4e-3, 1e-2, "the reference multiplies in float32", "float16", "bfloat16")
WIDE = rand(N, 4, low=-300, high=300)
BYTES = rand(N, 4, low=-100, high=120)
SCALE, SCALES = const(0.4), const([0.2, 0.3, 0.4, 0.5])
SCALE32, SCALES32 = const(0.4, F32), const([0.2, 0.3, 0.4, 0.5], F32)
BLOCKS = const([[0.2, 0.3], [0.4, 0.5], [0.1, 0.7]])

CASES = [
    case("QuantizeLinear", WIDE, SCALE32, const(5, "int8"), opset=10, dtypes=[F32]),
    case(
        "QuantizeLinear",
        WIDE,
        SCALES32,
        const([1, 2, 3, 4], "uint8"),
        opset=13,
        dtypes=[F32],
        id="axis",
    ),
    case("QuantizeLinear", WIDE, SCALE32, opset=13, dtypes=[F32], id="no-zero-point"),
    *(
        case(
            "QuantizeLinear",
            WIDE,
            SCALE,
            const(5, t),
            oldest=21,
            tolerance=STEP,
            dtypes=[F32, "float16", "bfloat16"],
            id=t,
        )
        for t in ("uint8", "int8", "uint16", "int16")
    ),
    case(
        "QuantizeLinear",
        WIDE,
        SCALES,
        const([1, 2, 3, 4], "int8"),
        opset=19,
        tolerance=STEP,
        dtypes=[F32, "float16"],
        id="opset19",
    ),
    case(
        "QuantizeLinear",
        rand(3, 4),
        BLOCKS,
        const([[1, 2], [3, 4], [5, 6]], "uint8"),
        axis=1,
        block_size=2,
        tolerance=STEP,
        dtypes=[F32, "float16"],
    ),
    case(
        "QuantizeLinear",
        rand(3, 4),
        BLOCKS,
        opset=21,
        axis=1,
        block_size=2,
        tolerance=STEP,
        dtypes=[F32],
    ),
    case("QuantizeLinear", WIDE, SCALE, output_dtype=onnx_code("int16"), dtypes=[F32]),
    case(
        "QuantizeLinear",
        values([0.5, 1.5, 2.5, -0.5, 300.0, -300.0]),
        const(1.0),
        const(0, "int8"),
        dtypes=[F32],
        id="ties",
    ),
    case(
        "DequantizeLinear",
        rand(N, 4, low=-100, high=120),
        SCALE32,
        values(5),
        opset=10,
        dtypes=["int8", "uint8"],
    ),
    case("DequantizeLinear", BYTES, SCALES32, values([1, 2, 3, 4]), opset=13, id="axis"),
    case("DequantizeLinear", BYTES, SCALES32, opset=13, id="no-zero-point"),
    *(
        case(
            "DequantizeLinear",
            BYTES,
            const([0.2, 0.3, 0.4, 0.5], f),
            values([1, 2, 3, 4]),
            oldest=23,
            tolerance=loose(2e-3, 2e-2, "the scale is a half") if f == "float16" else None,
            id=f,
            dtypes=["int8", "uint8", "int16", "uint16"],
        )
        for f in (F32, "float16")
    ),
    case(
        "DequantizeLinear",
        rand(3, 4, low=0, high=100),
        const([[0.2, 0.3], [0.4, 0.5], [0.1, 0.7]], F32),
        opset=21,
        axis=1,
        block_size=2,
        dtypes=["int8", "uint8"],
    ),
    case(
        "DequantizeLinear",
        rand(3, 4, low=0, high=100),
        SCALE32,
        axis=0,
        dtypes=["int8", "int32"],
        id="scalar",
    ),
    case("DynamicQuantizeLinear", rand(N, M), outputs=3, tolerance=STEP),
    case("DynamicQuantizeLinear", values([0.0, 0.0]), outputs=3, id="zeros"),
    *(
        case(
            "QuantizeLinear",
            WIDE,
            SCALES32,
            const([1, 2, 3, 4], t),
            domain=MS,
            axis=1,
            dtypes=[F32],
            id=t,
        )
        for t in ("uint8", "int8", "uint16", "int16")
    ),
    *(
        case(
            "DequantizeLinear",
            BYTES,
            SCALES32,
            const([1, 2, 3, 4], t),
            domain=MS,
            axis=1,
            dtypes=[t],
            id=t,
        )
        for t in ("uint8", "int8", "uint16", "int16")
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)
