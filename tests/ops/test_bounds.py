"""Indices and lengths outside of what they index.

An error where they are an input of the model, a clamped one where the graph computes them, and
never a read or a write outside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.helper as oh
import pytest

from support.case import ML, MS, Case, Dim, Input, case, const, ints, omitted, rand
from support.edges import run_session
from support.ep import Ep
from support.placement import assert_placed, mlx_session
from support.references import feed_of

NONE = omitted()
FLOAT = ["float32"]


class Outside(NamedTuple):
    """A case with bad values in one input, which of them is clamped to, and what is said."""

    case: Case
    input: int
    inside: Any
    text: str

    def __str__(self) -> str:
        return str(self.case)


def int32(values: Any) -> Input:
    return ints(values, dtype="int32")


def out_of(index: int, size: int) -> str:
    return f"index {index} is out of range for an axis of {size}"


def outside(
    op: str, *inputs: Input, at: int, inside: Any, text: str, id: str = "outside", **options: Any
) -> Outside:
    return Outside(case(op, *inputs, id=id, **{"dtypes": FLOAT, **options}), at, inside, text)


CAT = [rand(5, 8), rand(7, 8), rand(2, 8), rand(8), rand(8)]


def embedding(ids: Any, segments: Any, positions: Any, at: int, inside: Any, text: str) -> Outside:
    words, places, kinds, gamma, beta = CAT
    return outside(
        "EmbedLayerNormalization",
        *(int32(ids), int32(segments), words, places, kinds, gamma, beta, NONE, int32(positions)),
        at=at,
        inside=inside,
        text=text,
        domain=MS,
        outputs=2,
        id=f"input{at}",
    )


IMAGES = rand(2, 3, 4, 4)
BOXES = const([[0.0, 0.0, 3.0, 3.0], [1.0, 1.0, 2.0, 2.0]])
FAR, NEAR = 4_000_000, -4_000_000

OUTSIDE = [
    outside("Gather", rand(4, 3), ints([1, FAR]), at=1, inside=[1, 3], text=out_of(FAR, 4)),
    outside(
        "GatherElements",
        *(rand(4, 3), ints([[FAR, 0, 1]])),
        at=1,
        inside=[[3, 0, 1]],
        text=out_of(FAR, 4),
    ),
    outside("GatherND", rand(4, 3), ints([[NEAR]]), at=1, inside=[[0]], text=out_of(NEAR, 4)),
    outside(
        "ScatterElements",
        *(rand(4, 3), ints([[1, FAR, 2]]), rand(1, 3)),
        at=1,
        inside=[[1, 3, 2]],
        text=out_of(FAR, 4),
    ),
    outside(
        "ScatterND",
        rand(4, 3),
        ints([[NEAR]]),
        rand(1, 3),
        at=1,
        inside=[[0]],
        text=out_of(NEAR, 4),
    ),
    outside(
        "MaxUnpool",
        *(rand(1, 1, 2, 2), ints([[[[0, 3], [9, FAR]]]])),
        at=1,
        inside=[[[[0, 3], [9, 15]]]],
        text=out_of(FAR, 16),
        kernel_shape=[2, 2],
        strides=[2, 2],
    ),
    outside(
        "ArrayFeatureExtractor",
        *(rand(2, 5), ints([1, FAR])),
        at=1,
        inside=[1, 4],
        text=out_of(FAR, 5),
        domain=ML,
    ),
    outside(
        "NegativeLogLikelihoodLoss",
        *(rand(2, 3), ints([1, FAR]), rand(3)),
        at=1,
        inside=[1, 2],
        text=out_of(FAR, 3),
        reduction="none",
    ),
    outside(
        "SoftmaxCrossEntropyLoss",
        *(rand(2, 3), ints([1, NEAR])),
        at=1,
        inside=[1, 0],
        text=out_of(NEAR, 3),
        reduction="none",
    ),
    outside(
        "ReverseSequence",
        *(rand(4, 2), ints([3, FAR])),
        at=1,
        inside=[3, 4],
        text=out_of(FAR, 5),
        id="long",
    ),
    outside(
        "LSTM",
        *(rand(4, 2, 2), rand(1, 12, 2), rand(1, 12, 3), NONE, int32([3, FAR])),
        at=4,
        inside=[3, 4],
        text=out_of(FAR, 5),
        outputs=3,
        hidden_size=3,
        direction="reverse",
    ),
    outside(
        "RoiAlign",
        *(IMAGES, BOXES, ints([0, FAR])),
        at=2,
        inside=[0, 1],
        text=out_of(FAR, 2),
        output_height=2,
        output_width=2,
        sampling_ratio=1,
    ),
    outside(
        "CropAndResize",
        *(IMAGES, BOXES, int32([0, FAR]), const([2, 2], "int32")),
        at=2,
        inside=[0, 1],
        text=out_of(FAR, 2),
        domain=MS,
    ),
    embedding([[1, FAR]], [[0, 1]], [[0, 1]], 0, [[1, 4]], out_of(FAR, 5)),
    embedding([[1, 4]], [[0, FAR]], [[0, 1]], 1, [[0, 1]], out_of(FAR, 2)),
    embedding([[1, 4]], [[0, 1]], [[0, FAR]], 8, [[0, 6]], out_of(FAR, 7)),
    outside(
        "RotaryEmbedding",
        *(rand(1, 2, 8), ints([[1, FAR]]), rand(6, 4), rand(6, 4)),
        at=1,
        inside=[[1, 5]],
        text=out_of(FAR, 6),
        domain=MS,
        num_heads=1,
    ),
    outside(
        "MRotaryEmbedding",
        *(rand(1, 1, 2, 8), ints([[[1, FAR]]] * 3), rand(6, 4), rand(6, 4)),
        at=1,
        inside=[[[1, 5]]] * 3,
        text=out_of(FAR, 6),
        domain=MS,
        mrope_section=[2, 1, 1],
    ),
    outside(
        "PackedMultiHeadAttention",
        *(rand(3, 8), rand(3, 8), rand(3, 8), NONE, int32([[0, FAR], [2, 1]]), int32([0, 2, 3])),
        at=4,
        inside=[[0, 3], [2, 1]],
        text=out_of(FAR, 4),
        domain=MS,
        num_heads=2,
    ),
    outside(
        "MatMulNBits",
        *(rand(2, 32), const(np.full((4, 2, 8), 90), "uint8"), rand(4, 2), NONE),
        int32([0] * 31 + [FAR]),
        at=4,
        inside=[0] * 31 + [1],
        text=out_of(FAR, 2),
        domain=MS,
        K=32,
        N=4,
        bits=4,
        block_size=16,
    ),
]


def computed(c: Case, at: int) -> onnx.ModelProto:
    """The case's model, in which one input is first added to zeros."""
    model = c.model(c.arrays("float32", 0), c.version)
    (node,) = model.graph.node
    name = node.input[at]
    (given,) = (i for i in model.graph.input if i.name == name)
    zeros = onnx.ValueInfoProto()
    zeros.CopyFrom(given)
    zeros.name = "zeros"
    model.graph.input.append(zeros)
    node.input[at] = "sum"
    model.graph.node.insert(0, oh.make_node("Add", [name, "zeros"], ["sum"], "add"))
    return model


@pytest.mark.parametrize("o", OUTSIDE, ids=str)
def test_an_input_is_checked(o: Outside, ep: Ep) -> None:
    ep.fails(o.case, o.text)


@pytest.mark.parametrize("o", OUTSIDE, ids=str)
def test_what_the_graph_computes_is_clamped(o: Outside) -> None:
    session = mlx_session(computed(o.case, o.input))
    assert_placed(session)
    feed = feed_of(o.case.arrays("float32", 0), o.case)
    name = f"x{o.input}"
    feed["zeros"] = np.zeros_like(feed[name])
    clamped = {**feed, name: np.array(o.inside, feed[name].dtype)}
    wanted = run_session(session, clamped)
    for _ in range(2):  # traced, then replayed
        for got, want in zip(run_session(session, feed), wanted, strict=True):
            np.testing.assert_array_equal(got, want)
    assert all(np.isfinite(y).all() for y in wanted)


MISFITS = [
    (
        case(
            "GatherBlockQuantized",
            *(rand(9, 16, dtype="uint8", low=0, high=256), ints([8]), rand(Dim("S", (4, 9)), 1)),
            domain=MS,
            dtypes=FLOAT,
            block_size=32,
            id="few-scales",
        ),
        "the scales or zero points do not fit",
    ),
    (
        case("OneHot", ints([0, 1]), const(3), rand(Dim("V", (1, 2))), dtypes=FLOAT, id="short"),
        "not two values",
    ),
    (
        case(
            "Attention",
            *(rand(1, 2, 8), rand(8, 24), rand(24), NONE, rand(1, 1, 2, 3, 4)),
            domain=MS,
            dtypes=FLOAT,
            num_heads=2,
            outputs=2,
            id="half-a-past",
        ),
        "the past is not that of keys and values",
    ),
    (
        case(
            "MoE",
            *(rand(2, 8), rand(2, 4), rand(3, 4, 8), NONE, rand(3, 8, 4)),
            domain=MS,
            dtypes=FLOAT,
            id="missing-expert",
        ),
        "the tensors are not those of 4 experts",
    ),
    (
        case(
            "MoE",
            *(rand(2, 8), rand(2, 4), rand(4, 4, 8), NONE, rand(4, 8, 4)),
            domain=MS,
            dtypes=FLOAT,
            id="too-many",
            k=5,
        ),
        "5 of 4 experts",
    ),
    (
        case(
            "MaxRoiPool",
            *(rand(1, 2, 4, 4), const([[3.0, 0, 0, 2, 2]])),
            dtypes=FLOAT,
            pooled_shape=[2, 2],
            id="another-image",
        ),
        "a box of image 3.0 of 1",
    ),
    (
        case(
            "NegativeLogLikelihoodLoss", rand(2, 3), ints([1, 2]), rand(2), dtypes=FLOAT, id="few"
        ),
        "weights of (2,) for 3 classes",
    ),
]


@pytest.mark.parametrize(("c", "text"), MISFITS, ids=str)
def test_shapes_that_do_not_fit_fail(c: Case, text: str, ep: Ep) -> None:
    ep.fails(c, text)
