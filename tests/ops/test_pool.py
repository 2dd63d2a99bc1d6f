"""Pooling, and LRN."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from support.case import MS, Dim, K, L, M, N, case, ints, loose, rand
from support.ep import Ep
from support.references import run_op

HALVES = loose(2e-2, 2e-2, "halves are summed in another order", "float16", "bfloat16")
H = Dim("H", (8, 11))
KERNEL = {"kernel_shape": [3, 2]}
NAMES = ("AveragePool", "MaxPool", "LpPool")


def nhwc_max_pool(x, **attributes):
    wide = np.moveaxis(x, -1, 1).astype(np.float32)
    return np.moveaxis(run_op("MaxPool", wide, opset=22, **attributes), 1, -1).astype(x.dtype)


def global_lp(x, p=2):
    axes = tuple(range(2, x.ndim))
    return (np.abs(x) ** p).sum(axes, keepdims=True) ** (1 / p)


def lrn(x, size, alpha=1e-4, beta=0.75, bias=1.0):
    """The onnx reference ends its windows at the batch size, and ORT takes odd sizes only."""
    before, after, channels = (size - 1) // 2, size // 2, x.shape[1]
    alpha, beta, bias = map(np.float32, (alpha, beta, bias))
    squares = [
        (x[:, max(c - before, 0) : c + after + 1] ** 2).sum(1, keepdims=True)
        for c in range(channels)
    ]
    return x / (float(bias) + float(alpha) / size * np.concatenate(squares, 1)) ** float(beta)


CASES = [
    *(
        case(name, rand(N, 2, H, 7), opset=o, **KERNEL, tolerance=HALVES, id=f"opset{o}")
        for name, o in (
            ("AveragePool", 7),
            ("AveragePool", 10),
            ("MaxPool", 7),
            ("MaxPool", 8),
            ("LpPool", 11),
        )
    ),
    *(
        case(
            name,
            rand(N, 2, H, 7),
            **KERNEL,
            strides=[2, 1],
            pads=[1, 0, 1, 1],
            tolerance=HALVES,
            id="pads",
        )
        for name in NAMES
    ),
    *(case(name, rand(N, 2, 9), kernel_shape=[3], tolerance=HALVES, id="1d") for name in NAMES),
    case(
        "AveragePool",
        rand(1, 2, 1, 4),
        kernel_shape=[1, 3],
        strides=[1, 3],
        ceil_mode=1,
        oldest=10,
        dtypes=["float32"],
        id="last-window",
    ),
    case(
        "MaxPool",
        rand(1, 2, 2),
        kernel_shape=[2],
        pads=[0, 1],
        dtypes=["float32"],
        id="last-window",
    ),
    *(
        case(name, rand(N, 2, 5, 4, 6), kernel_shape=[2, 1, 3], tolerance=HALVES, id="3d")
        for name in NAMES
    ),
    *(
        case(name, rand(N, 2, H, 7), **KERNEL, ceil_mode=1, strides=[2, 2], tolerance=HALVES)
        for name in NAMES[:2]
    ),
    *(
        case(name, rand(N, 2, H, 7), **KERNEL, auto_pad=p, strides=[2, 2], tolerance=HALVES)
        for name in NAMES[:2]
        for p in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    case(
        "AveragePool",
        rand(N, 2, H, 7),
        **KERNEL,
        pads=[1, 1, 1, 1],
        count_include_pad=1,
        tolerance=HALVES,
    ),
    case("AveragePool", rand(N, 2, H, 7), **KERNEL, dilations=[2, 2], oldest=19, tolerance=HALVES),
    case("LpPool", rand(N, 2, H, 7), **KERNEL, p=3, tolerance=HALVES),
    case("MaxPool", rand(N, 2, H, 7), **KERNEL, dilations=[2, 1]),
    *(
        case(
            "MaxPool",
            rand(N, 2, H, 6),
            outputs=2,
            **KERNEL,
            strides=[2, 2],
            storage_order=s,
            dtypes=["float32"],
        )
        for s in (0, 1)
    ),
    case("MaxPool", rand(N, 2, H, 6), opset=8, outputs=2, **KERNEL, strides=[2, 2], id="indices"),
    *(
        case(name, rand(N, L, M, K), tolerance=HALVES)
        for name in ("GlobalAveragePool", "GlobalMaxPool")
    ),
    case("GlobalLpPool", rand(N, L, M, K), p=3, tolerance=HALVES, reference=global_lp),
    case("GlobalLpPool", rand(N, 2, M), tolerance=HALVES, reference=global_lp, id="1d"),
    case(
        "MaxUnpool",
        rand(1, 1, 2, 2),
        ints([[[[5, 7], [13, 15]]]], [[[[0, 2], [8, 10]]]]),
        kernel_shape=[2, 2],
        strides=[2, 2],
    ),
    case(
        "MaxUnpool",
        rand(1, 1, 2, 2),
        ints([[[[5, 7], [13, 15]]]]),
        ints([1, 1, 5, 5]),
        kernel_shape=[2, 2],
        strides=[2, 2],
        id="output-shape",
        dtypes=["float32"],
    ),
    case(
        "LRN",
        rand(N, 5, M, K),
        size=3,
        alpha=0.3,
        beta=0.6,
        bias=1.5,
        tolerance=HALVES,
        reference=lrn,
    ),
    case("LRN", rand(N, 5, M, K), size=4, tolerance=HALVES, reference=lrn),
    case(
        "NhwcMaxPool",
        rand(N, H, 7, 3),
        domain=MS,
        **KERNEL,
        strides=[2, 1],
        reference=nhwc_max_pool,
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@st.composite
def pools(draw):
    """A pool that fits, for either kind."""
    name = draw(st.sampled_from(["AveragePool", "MaxPool"]))
    rank = draw(st.integers(1, 3))
    each = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    kernel, strides = each(1, 3), each(1, 3)
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    size = [k + extra for k, extra in zip(kernel, each(0, 4), strict=True)]
    options = {"count_include_pad": draw(st.integers(0, 1))} if name == "AveragePool" else {}
    if draw(st.booleans()):
        options["ceil_mode"] = 1
    return case(
        name,
        rand(1, 2, *size),
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        id="last-window",
        **options,
    )


@given(c=pools())
def test_pool(c, ep: Ep) -> None:
    ep.check_one(c, c.version, "float32")
