"""Integer products and convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from support.case import MS, Dim, M, N, case, const, loose, omitted, rand
from support.ep import Ep

SIGNED = {"dtype": "int8", "low": -100, "high": 100}
STEP = loose(2e-2, 5e-2, "rounding the activations may differ by one step")
A = rand(N, 6, low=-100, high=120)
H = Dim("H", (6, 8))


def scale(*of):
    return const(of[0] if len(of) == 1 else list(of), "float32")


def wide_product(a, b):
    return np.matmul(a.astype(np.int32), b.astype(np.int32))


CASES = [
    case("MatMulInteger", A, rand(6, M, **SIGNED)),
    case(
        "MatMulInteger",
        A,
        const(rand(6, 3, **SIGNED)),
        const(rand(low=3, high=9)),
        const(2, "int8"),
        id="zeros",
    ),
    case(
        "MatMulInteger",
        rand(2, N, 6, low=0, high=120),
        const(rand(6, 3, **SIGNED)),
        omitted(),
        const([1, 2, 3], "int8"),
        id="columns",
    ),
    case(
        "ConvInteger",
        rand(N, 2, H, 5, low=0, high=200, dtype="uint8"),
        const(rand(3, 2, 3, 2, low=0, high=200, dtype="uint8")),
        const(7, "uint8"),
        pads=[1, 0, 1, 1],
    ),
    case(
        "ConvInteger",
        rand(N, 4, H, 5, low=0, high=200, dtype="uint8"),
        const(rand(4, 2, 3, 3, low=0, high=200, dtype="uint8")),
        const(7, "uint8"),
        const(9, "uint8"),
        group=2,
        strides=[2, 1],
    ),
    case(
        "MatMulInteger16",
        rand(N, 6, low=-3000, high=3000, dtype="int16"),
        rand(6, M, low=-3000, high=3000, dtype="int16"),
        domain=MS,
        reference=wide_product,
    ),
    case(
        "MatMulIntegerToFloat",
        rand(N, 6, low=0, high=200, dtype="uint8"),
        const(rand(6, 3, **SIGNED)),
        scale(0.1),
        scale(0.2),
        const(9, "uint8"),
        const(1, "int8"),
        const(rand(3, dtype="float32")),
        domain=MS,
    ),
    case(
        "MatMulIntegerToFloat",
        rand(N, 6, low=0, high=200, dtype="uint8"),
        const(rand(6, 3, **SIGNED)),
        scale(0.1),
        scale(0.2, 0.3, 0.4),
        domain=MS,
        id="columns",
    ),
    case(
        "DynamicQuantizeMatMul",
        rand(N, 6),
        const(rand(6, 3, **SIGNED)),
        scale(0.1),
        const(1, "int8"),
        const(rand(3, dtype="float32")),
        domain=MS,
        dtypes=["float32"],
        tolerance=STEP,
    ),
    case(
        "DynamicQuantizeMatMul",
        rand(N, 6),
        const(rand(6, 3, **SIGNED)),
        scale(0.1, 0.2, 0.3),
        domain=MS,
        dtypes=["float32"],
        tolerance=STEP,
        id="columns",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)
