"""Convolutions, fused ones and channels-last ones."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from support.case import MS, Dim, N, case, const, loose, rand
from support.ep import Ep
from support.references import run_op

SUMS = loose(2e-2, 2e-2, "halves are summed in another order", "float16", "bfloat16")
FUSED = loose(1e-3, 1e-4, "summed in another order")
H = Dim("H", (8, 11))


def channels_last(op_type):
    """An NHWC convolution through the NCHW one."""

    def reference(x, w, *rest, **attributes):
        arrays = [np.moveaxis(x, -1, 1), w, *rest]
        return np.moveaxis(
            run_op(op_type, *arrays, domain=MS if "Fused" in op_type else "", **attributes), 1, -1
        )

    return reference


CASES = [
    case("Conv", rand(N, 3, 9), rand(4, 3, 3), tolerance=SUMS, id="1d"),
    case(
        "Conv",
        rand(N, 3, H, 7),
        const(rand(4, 3, 3, 2)),
        const(rand(4)),
        pads=[1, 0, 2, 1],
        tolerance=SUMS,
        id="2d",
    ),
    case(
        "Conv",
        rand(N, 2, 5, 4, 6),
        rand(3, 2, 2, 2, 3),
        rand(3),
        strides=[1, 2, 1],
        tolerance=SUMS,
        id="3d",
    ),
    case(
        "Conv",
        rand(N, 4, H, H),
        const(rand(4, 1, 3, 3)),
        group=4,
        strides=[2, 2],
        tolerance=SUMS,
        id="depthwise",
    ),
    case(
        "Conv",
        rand(N, 4, H, H),
        const(rand(6, 2, 3, 3)),
        rand(6),
        group=2,
        dilations=[2, 1],
        tolerance=SUMS,
        id="groups",
    ),
    case("Conv", rand(N, 3, H, 6), const(rand(5, 3, 1, 1)), tolerance=SUMS, id="pointwise"),
    *(
        case(
            "Conv",
            rand(N, 2, H, 7),
            const(rand(3, 2, 3, 2)),
            auto_pad=p,
            strides=[2, 1],
            tolerance=SUMS,
        )
        for p in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    *(
        case(
            "FusedConv",
            rand(N, 3, H, 6),
            const(rand(4, 3, 3, 3)),
            const(rand(4)),
            domain=MS,
            activation=a,
            tolerance=FUSED,
            id=a,
            **({"activation_params": p} if p else {}),
        )
        for a, p in {
            "Relu": (),
            "Tanh": (),
            "Sigmoid": (),
            "LeakyRelu": [0.2],
            "Clip": [-0.5, 0.7],
            "HardSigmoid": [0.3, 0.4],
        }.items()
    ),
    case(
        "FusedConv",
        rand(N, 3, 5, 5),
        const(rand(4, 3, 3, 3)),
        const(rand(4)),
        rand(N, 4, 3, 3),
        domain=MS,
        activation="Relu",
        tolerance=FUSED,
        id="sum",
    ),
    case(
        "NhwcConv",
        rand(N, H, 6, 3),
        const(rand(4, 3, 3, 3)),
        const(rand(4)),
        domain=MS,
        pads=[1, 1, 1, 1],
        tolerance=SUMS,
        reference=channels_last("Conv"),
    ),
    case(
        "NhwcFusedConv",
        rand(N, H, 6, 3),
        const(rand(4, 3, 3, 3)),
        const(rand(4)),
        domain=MS,
        activation="Relu",
        tolerance=SUMS,
        reference=channels_last("FusedConv"),
    ),
]
REFUSED = [
    (
        case(
            "FusedConv", rand(1, 3, 5, 5), const(rand(4, 3, 3, 3)), domain=MS, activation="Softmax"
        ),
        "the activation is not Relu, Tanh, Sigmoid, LeakyRelu, Clip or HardSigmoid",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


@st.composite
def convolutions(draw):
    """A convolution that fits: kernel, stride, dilation, pads, groups."""
    rank = draw(st.integers(1, 3))
    each = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    kernel, dilations, strides, pads = each(1, 3), each(1, 2), each(1, 3), each(0, 2) + each(0, 2)
    size = [
        max((k - 1) * d + 1, 1) + extra
        for k, d, extra in zip(kernel, dilations, each(0, 4), strict=True)
    ]
    group = draw(st.sampled_from([1, 1, 2, 3]))
    inner, outer = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    x, w = rand(2, inner * group, *size), rand(outer * group, inner, *kernel)
    return case(
        "Conv", x, w, group=group, strides=strides, dilations=dilations, pads=pads, id="any"
    )


@given(c=convolutions())
def test_conv(c, ep: Ep) -> None:
    ep.check_one(c, 11, "float32")
