"""QuantizeLinear and DequantizeLinear of both domains, and DynamicQuantizeLinear."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ort_mlx.dtypes import FLOAT8
from support.case import MS, M, N, case, const, loose, onnx_code, rand, values
from support.ep import Ep
from support.strategies import axis, shapes

F32 = "float32"
STEP = loose(0, 1, "a quotient that falls between two steps may be rounded to either")
HALVES = loose(4e-3, 1e-2, "the reference multiplies in float32")
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

# What ONNX Runtime has no kernel for, such as float4e2m1, the ONNX reference answers.
OLDEST = {
    **dict.fromkeys(FLOAT8, 19),
    **dict.fromkeys(("int4", "uint4"), 21),
    **dict.fromkeys(("int2", "uint2"), 25),
    "float4e2m1": 23,
}
NARROW = sorted(OLDEST)
FEW = rand(N, 4, low=-3, high=3)
ZEROS = {"int4": 1, "uint4": 3, "int2": -1, "uint2": 1}

CASES += [
    *(
        case(
            "QuantizeLinear",
            FEW,
            SCALE,
            const(ZEROS.get(t, 0), t),
            oldest=OLDEST[t],
            dtypes=[F32, "float16", "bfloat16"],
            tolerance=STEP if t in ZEROS else None,
            id=t,
        )
        for t in NARROW
    ),
    *(
        case(
            "QuantizeLinear",
            FEW,
            SCALES32,
            const([ZEROS.get(t, 0)] * 4, t),
            opset=OLDEST[t] if OLDEST[t] <= 21 else None,
            oldest=OLDEST[t],
            dtypes=[F32],
            tolerance=STEP if t in ZEROS else None,
            id=f"{t}-axis",
        )
        for t in NARROW
    ),
    *(
        case(
            "QuantizeLinear",
            rand(3, 5, low=-3, high=3),
            const(rand(3, 3, low=0.1, high=1, dtype=F32)),
            output_dtype=onnx_code(t),
            oldest=OLDEST[t],
            block_size=2,
            dtypes=[F32],
            tolerance=STEP if t in ZEROS else None,
            id=f"{t}-blocks",
        )
        for t in NARROW
    ),
    *(
        case(
            "QuantizeLinear",
            values([1.0, -1.0, 300.0, -7e4, float("inf")]),
            const(1.0),
            const(0, t),
            oldest=19,
            saturate=s,
            dtypes=[F32],
            id=f"{t}-saturate={s}",
        )
        for t in sorted(FLOAT8)
        for s in (0, 1)
    ),
    case(
        "DequantizeLinear", rand(N, 5, low=-2, high=2), SCALE32, oldest=21, dtypes=NARROW, id="few"
    ),
    case(
        "DequantizeLinear",
        rand(N, 4, low=-2, high=2),
        SCALES32,
        values([0, 1, 1, 0]),
        oldest=21,
        dtypes=sorted(ZEROS),
        id="few-axis",
    ),
    *(
        case(
            "DequantizeLinear",
            rand(5, 3, low=-2, high=2),
            const(rand(2, 3, low=0.1, high=1, dtype=f)),
            axis=0,
            block_size=3,
            dtypes=NARROW,
            tolerance=HALVES if f == "float16" else None,
            id=f"few-blocks-{f}",
        )
        for f in (F32, "float16")
    ),
    *(
        case(
            "DequantizeLinear",
            rand(N, 4, low=-2, high=2),
            SCALE32,
            const(0, t),
            opset=19,
            dtypes=[t],
            id=f"{t}-opset19",
        )
        for t in sorted(FLOAT8)
    ),
    case(
        "QuantizeLinear",
        rand(3, 5, low=-3, high=3),
        const(values([[0.25, 1, 2], [1, 1, 0.5], [4, 2, 1]], dtype="float8e8m0")),
        block_size=2,
        output_dtype=onnx_code("float4e2m1"),
        dtypes=[F32],
        oldest=24,
        id="powers",
    ),
    case(
        "DequantizeLinear",
        rand(3, 5, low=-3, high=3),
        const(values([[0.25, 1, 2], [1, 1, 0.5], [4, 2, 1]], dtype="float8e8m0")),
        block_size=2,
        output_dtype=onnx_code(F32),
        dtypes=["float4e2m1", "float8e4m3fn", "int4"],
        oldest=24,
        id="powers",
    ),
    *(
        case(
            op,
            rand(N, 4, low=-3, high=3),
            SCALES32,
            const([ZEROS[t]] * 4, t),
            domain=MS,
            axis=1,
            dtypes=[t if op[0] == "D" else F32],
            id=t,
        )
        for t in ("int4", "uint4")
        for op in ("QuantizeLinear", "DequantizeLinear")
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@given(data=st.data(), shape=shapes(min_rank=1, max_rank=3, least=1), t=st.sampled_from(NARROW))
def test_blocks_of_narrow_types(data, shape, t, ep: Ep) -> None:
    along = data.draw(axis(len(shape)))
    block = data.draw(st.integers(1, shape[along] + 1))
    blocks = [-(-n // block) if i == along % len(shape) else n for i, n in enumerate(shape)]
    scale = const(rand(*blocks, low=0.1, high=2, dtype=F32))
    zero = [const(rand(*blocks, dtype=t, low=-1, high=2))] if t in ZEROS else []
    kind = {"axis": along, "block_size": block, "id": t}
    made = {} if zero else {"output_dtype": onnx_code(t)}
    x = rand(*shape, low=-9, high=9)
    ep.check_one(case("QuantizeLinear", x, scale, *zero, **kind, **made), 25, F32)
    x = rand(*shape, low=-3, high=4)
    ep.check_one(case("DequantizeLinear", x, scale, *zero, **kind), 25, t)
