"""Operators on quantized tensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.case import MS, Dim, M, N, case, const, loose, rand
from support.ep import Ep

STEP = loose(0, 1, "a result between two steps may be rounded to either")
H = Dim("H", (6, 8))
BYTES = rand(N, 6, low=-100, high=120)
UNSIGNED = {"low": 0, "high": 250, "dtype": "uint8"}


def scale(*of):
    return const(of[0] if len(of) == 1 else list(of), "float32")


def zero(value, dtype=None):
    return const(value, dtype) if dtype else const(rand(low=value, high=value + 1))


PAIR = (scale(0.02), zero(10))
OUT = (scale(0.05), zero(3))


def contrib(op_type, *inputs, tolerance=STEP, dtypes=("uint8", "int8"), **options):
    return case(op_type, *inputs, domain=MS, tolerance=tolerance, dtypes=dtypes, **options)


def requantized(y, scale, zero, dtype):
    limits = np.iinfo(dtype)
    return np.clip(np.round(y / scale) + zero, limits.min, limits.max).astype(dtype)


def without_zeros(fn):
    """ORT's own kernels insist on zero points that their schemas call optional."""

    def reference(a, a_scale, a_zero, b, b_scale, b_zero, c_scale):
        return requantized(fn((a - 1.0 * a_zero) * a_scale, b * b_scale), c_scale, 0, a.dtype)

    return reference


def reduce_mean(x, x_scale, x_zero, y_scale, y_zero, *, axes, keepdims):
    """ORT has the schema only."""
    mean = ((x.astype(np.float32) - x_zero) * x_scale).mean(tuple(axes), keepdims=bool(keepdims))
    return requantized(mean, y_scale, y_zero, x.dtype)


CASES = [
    case(
        "QLinearMatMul",
        rand(N, 6, **UNSIGNED),
        scale(0.02),
        zero(10, "uint8"),
        const(rand(6, 3, **UNSIGNED)),
        scale(0.02),
        zero(7, "uint8"),
        scale(0.3),
        zero(3, "uint8"),
        tolerance=STEP,
    ),
    case(
        "QLinearMatMul",
        rand(N, 6, **UNSIGNED),
        scale(0.02),
        zero(10, "uint8"),
        const(rand(6, 3, low=-90, high=90, dtype="int8")),
        scale(0.01, 0.02, 0.03),
        zero([0, 0, 0], "int8"),
        scale(0.3),
        zero(3, "uint8"),
        tolerance=STEP,
        id="columns",
    ),
    case(
        "QLinearConv",
        rand(N, 2, H, 5, **UNSIGNED),
        scale(0.02),
        zero(10, "uint8"),
        const(rand(3, 2, 3, 2, **UNSIGNED)),
        scale(0.03),
        zero(7, "uint8"),
        scale(0.5),
        zero(3, "uint8"),
        const([100, -50, 7], "int32"),
        pads=[1, 0, 1, 1],
        tolerance=STEP,
    ),
    case(
        "QLinearConv",
        rand(N, 4, H, 5, **UNSIGNED),
        scale(0.02),
        zero(10, "uint8"),
        const(rand(4, 2, 3, 3, low=-90, high=90, dtype="int8")),
        scale(0.01, 0.02, 0.03, 0.01),
        zero([0] * 4, "int8"),
        scale(0.5),
        zero(3, "uint8"),
        group=2,
        strides=[2, 1],
        tolerance=STEP,
        id="channels",
    ),
    contrib(
        "QLinearConv",
        rand(N, H, 5, 2, **UNSIGNED),
        scale(0.02),
        zero(10, "uint8"),
        const(rand(3, 2, 3, 2, **UNSIGNED)),
        scale(0.03),
        zero(7, "uint8"),
        scale(0.5),
        zero(3, "uint8"),
        channels_last=1,
    ),
    contrib(
        "QGemm",
        rand(N, 6, **UNSIGNED),
        scale(0.02),
        zero(10, "uint8"),
        const(rand(6, 3, **UNSIGNED)),
        scale(0.03),
        zero(7, "uint8"),
        const([10, -20, 30], "int32"),
        scale(0.4),
        zero(3, "uint8"),
    ),
    contrib(
        "QGemm",
        rand(6, N, **UNSIGNED),
        scale(0.02),
        zero(10, "uint8"),
        const(rand(3, 6, **UNSIGNED)),
        scale(0.03),
        zero(7, "uint8"),
        transA=1,
        transB=1,
        alpha=0.5,
        tolerance=loose(1e-4, 1e-4, "in float32"),
    ),
    *(
        contrib(op, BYTES, *PAIR, rand(6, low=-100, high=120), *PAIR, *OUT)
        for op in ("QLinearAdd", "QLinearMul")
    ),
    *(
        contrib(
            op,
            BYTES,
            scale(0.02),
            zero(0),
            BYTES,
            scale(0.03),
            zero(0),
            scale(0.1),
            dtypes=["uint8"],
            id="no-zeros",
            reference=without_zeros(fn),
        )
        for op, fn in {"QLinearAdd": np.add, "QLinearMul": np.multiply}.items()
    ),
    contrib("QLinearSigmoid", BYTES, *PAIR, scale(0.004), zero(0)),
    contrib("QLinearLeakyRelu", BYTES, *PAIR, *OUT, alpha=0.2),
    *(
        replace(
            contrib("QLinearSoftmax", BYTES, *PAIR, scale(0.004), zero(0), axis=a),
            attributes={"axis": a, "opset": 13},
        )
        for a in (0, -1)
    ),
    case(
        "QLinearConcat",
        scale(0.05),
        zero(3),
        rand(N, 2, low=-100, high=120),
        *PAIR,
        rand(N, 3, low=-100, high=120),
        scale(0.03),
        zero(1),
        axis=1,
        domain=MS,
        dtypes=["uint8", "int8"],
        tolerance=STEP,
    ),
    contrib(
        "QLinearWhere",
        rand(N, 6, dtype="bool"),
        BYTES,
        *PAIR,
        rand(6, low=-100, high=120),
        scale(0.03),
        zero(1),
        *OUT,
    ),
    *(
        contrib(
            "QLinearReduceMean",
            rand(N, 4, M, low=-100, high=120),
            *PAIR,
            *OUT,
            axes=[1],
            keepdims=k,
            reference=reduce_mean,
        )
        for k in (0, 1)
    ),
    *(
        contrib(
            "QLinearGlobalAveragePool",
            rand(N, 3, H, 5, low=-100, high=120),
            *PAIR,
            *OUT,
            channels_last=c,
        )
        for c in (0, 1)
    ),
    contrib(
        "QLinearAveragePool",
        rand(N, 3, H, 5, low=-100, high=120),
        *PAIR,
        *OUT,
        kernel_shape=[3, 2],
        pads=[1, 0, 1, 1],
    ),
    contrib(
        "QLinearAveragePool",
        rand(N, H, 5, 3, low=-100, high=120),
        *PAIR,
        *OUT,
        kernel_shape=[2, 2],
        strides=[2, 2],
        channels_last=1,
        ceil_mode=1,
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)
