"""Transposed convolutions."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from support.case import MS, Dim, N, case, const, ints, loose, rand
from support.ep import Ep

SUMS = loose(2e-2, 2e-2, "halves are summed in another order", "float16", "bfloat16")
SINGLES = ["float32", "float16", "bfloat16"]  # ORT has no float64 kernel
H = Dim("H", (5, 7))

CASES = [
    case("ConvTranspose", rand(N, 3, 6), rand(3, 4, 3), tolerance=SUMS, id="1d"),
    case(
        "ConvTranspose",
        rand(N, 3, H, 4),
        const(rand(3, 2, 3, 2)),
        const(rand(2)),
        strides=[2, 3],
        tolerance=SUMS,
        id="2d",
    ),
    case("ConvTranspose", rand(N, 2, 3, 4, 3), rand(2, 3, 2, 2, 3), tolerance=SUMS, id="3d"),
    case(
        "ConvTranspose",
        rand(N, 4, H, H),
        const(rand(4, 3, 3, 3)),
        group=2,
        strides=[2, 2],
        pads=[1, 0, 1, 2],
        output_padding=[1, 0],
        tolerance=SUMS,
        id="groups",
        dtypes=SINGLES,
    ),
    case(
        "ConvTranspose",
        rand(N, 2, 4, 4),
        const(rand(2, 3, 3, 3)),
        strides=[2, 2],
        output_shape=[9, 8],
        tolerance=SUMS,
        id="output-shape",
        dtypes=SINGLES,
    ),
    case(
        "ConvTranspose",
        rand(N, 2, H, 4),
        const(rand(2, 3, 3, 3)),
        dilations=[2, 1],
        tolerance=SUMS,
        id="dilated",
    ),
    *(
        case(
            "ConvTranspose",
            rand(N, 2, 4, 4),
            const(rand(2, 3, 3, 3)),
            strides=[2, 2],
            auto_pad=p,
            tolerance=SUMS,
        )
        for p in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    case(
        "ConvTransposeWithDynamicPads",
        rand(N, 3, 5, 4),
        const(rand(3, 2, 3, 3)),
        ints([1, 0, 1, 1], [0, 1, 0, 0]),
        domain=MS,
        strides=[2, 2],
        tolerance=SUMS,
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@st.composite
def transposed(draw):
    """A transposed convolution that fits and has an output."""
    rank = draw(st.integers(1, 2))
    each = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    kernel, dilations, strides, size = each(2, 3), each(1, 2), each(1, 3), each(2, 5)
    pads = each(0, 1) + each(0, 1)
    more = [draw(st.integers(0, s - 1)) for s in strides]
    group = draw(st.sampled_from([1, 2]))
    x, w = rand(2, 2 * group, *size), rand(2 * group, draw(st.integers(1, 2)), *kernel)
    return case(
        "ConvTranspose",
        x,
        w,
        group=group,
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=more,
        id="any",
    )


@given(c=transposed())
def test_conv_transpose(c, ep: Ep) -> None:
    ep.check_one(c, 11, "float32")
