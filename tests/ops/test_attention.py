"""Attention of the ONNX domain, and rotary embeddings of both."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from support.case import MS, Dim, K, M, N, case, const, ints, loose, omitted, rand, values
from support.ep import Ep

T = Dim("T", (7, 12))  # keys in all
HALF_SUMS = loose(2e-2, 1e-2, "halves are summed in another order")
_ANGLES = np.arange(32)[:, None] / 100 ** (np.arange(4) / 4)
COS, SIN = const(np.cos(_ANGLES)), const(np.sin(_ANGLES))

QKV = (rand(2, 4, M, 8), rand(2, 2, M, 8), rand(2, 2, M, 8))
CROSS = (rand(2, 4, 3, 8), rand(2, 2, T, 8), rand(2, 2, T, 6))
PAST = (rand(2, 2, 3, 8), rand(2, 2, 3, 8))


def attention(*inputs, id, **options):
    return case("Attention", *inputs, id=id, tolerance=HALF_SUMS, **options)


CASES = [
    attention(*QKV, id="plain"),
    attention(*CROSS, id="cross"),
    *(
        attention(*QKV, rand(M, M), id=f"opset{opset}", opset=opset, is_causal=1)
        for opset in (23, 24)
    ),
    attention(*QKV, id="causal", is_causal=1),
    attention(*CROSS, id="causal-cross", is_causal=1),
    attention(*QKV, id="scale", scale=0.3),
    attention(*QKV, id="softcap", softcap=1.5, is_causal=1),
    attention(*CROSS, rand(3, T), id="mask", dtypes=["float32"]),
    attention(*CROSS, rand(2, 1, 3, T, dtype="bool"), id="bool-mask", is_causal=1),
    attention(*CROSS, rand(4, 3, T), id="mask-of-heads"),
    attention(
        *CROSS[:1],
        rand(2, 2, 7, 8),
        rand(2, 2, 7, 6),
        values([[0.0] * 7, [-np.inf] * 7, [0.0] * 7], [[-np.inf] * 7] * 3),
        id="nothing-to-see",
    ),
    attention(*QKV, omitted(), *PAST, id="past", outputs=3, is_causal=1),
    attention(
        rand(2, 4, 1, 8),
        rand(2, 2, 5, 8),
        rand(2, 2, 5, 8),
        omitted(),
        *PAST,
        id="causal-single-query",
        opset=24,
        outputs=3,
        is_causal=1,
        dtypes=["float32"],
    ),
    attention(
        rand(2, M, 32),
        rand(2, M, 16),
        rand(2, M, 24),
        id="packed",
        outputs=3,
        q_num_heads=4,
        kv_num_heads=2,
    ),
    *(
        attention(
            *QKV,
            omitted(),
            *PAST,
            id=f"scores-{mode}",
            outputs=4,
            opset=24,
            qk_matmul_output_mode=mode,
        )
        for mode in range(4)
    ),
    attention(
        *CROSS, omitted(), omitted(), omitted(), ints([3, 5], [12, 0]), id="nonpad", opset=24
    ),
    attention(
        *CROSS,
        omitted(),
        omitted(),
        omitted(),
        ints([3, 1], [9, 12]),
        id="nonpad-causal",
        opset=24,
        is_causal=1,
    ),
    attention(
        *CROSS, rand(3, 4), omitted(), omitted(), ints([3, 4], [2, 4]), id="short-mask", opset=24
    ),
    *(
        attention(
            *QKV,
            omitted(),
            *PAST,
            id=f"window{left}{right}",
            outputs=3,
            opset=25,
            is_causal=causal,
            left_window_size=left,
            right_window_size=right,
        )
        for left, right, causal in ((1, -1, 1), (2, 1, 0), (-1, 0, 0))
    ),
    *(
        case(
            "RotaryEmbedding",
            rand(2, 3, M, 8),
            COS,
            SIN,
            ints(np.arange(8).reshape(2, 4), [[3, 4], [0, 9]]),
            id=f"heads-{twined}",
            interleaved=twined,
        )
        for twined in (0, 1)
    ),
    case(
        "RotaryEmbedding",
        rand(2, M, 24),
        rand(2, M, 4),
        rand(2, M, 4),
        id="tables-in-order",
        num_heads=3,
    ),
    case(
        "RotaryEmbedding",
        rand(2, 3, M, 12),
        COS,
        SIN,
        ints(np.arange(8).reshape(2, 4), [[3, 4], [0, 9]]),
        id="partial",
        rotary_embedding_dim=8,
    ),
    *(
        case(
            "RotaryEmbedding",
            rand(N, M, 24),
            ints([3], [7]),
            COS,
            SIN,
            domain=MS,
            interleaved=twined,
            id=f"offset-{twined}",
        )
        for twined in (0, 1)
    ),
    case(
        "RotaryEmbedding",
        rand(2, M, 36),
        ints(np.arange(8).reshape(2, 4), [[3, 4], [0, 9]]),
        COS,
        SIN,
        domain=MS,
        id="ms-partial",
        num_heads=3,
        rotary_embedding_dim=8,
    ),
    *(
        case(
            "MRotaryEmbedding",
            rand(2, 3, M, 8),
            ints(np.arange(24).reshape(3, 2, 4), np.arange(12).reshape(3, 2, 2)),
            COS,
            SIN,
            domain=MS,
            id=f"layout{layout}",
            mrope_section=[2, 1, 1],
            mrope_layout=layout,
        )
        for layout in (0, 1)
    ),
]

REFUSED = [
    (
        attention(*QKV, omitted(), PAST[0], id="half-a-past"),
        "only one of past_key and past_value",
    ),
    (
        attention(rand(2, M, 32), rand(2, M, 16), rand(2, M, 16), id="3d-without-heads"),
        "a 3D query without q_num_heads and kv_num_heads",
    ),
    *(
        (
            case(
                "MRotaryEmbedding",
                rand(2, 3, M, 8),
                ints(np.arange(24).reshape(3, 2, 4), np.arange(12).reshape(3, 2, 2)),
                COS,
                SIN,
                domain=MS,
                id=f"refused-{layout}",
                mrope_section=section,
                mrope_layout=layout,
            ),
            sentence,
        )
        for section, layout, sentence in (
            ([2, 2], 0, "mrope_section has not three entries"),
            ([2, 1, 1], 7, "mrope_layout 7"),
        )
    ),
    (
        attention(*QKV, id="float64-softmax", softmax_precision=11, opset=24, dtypes=["float32"]),
        "softmax_precision asks for float64",
    ),
    (
        case("RotaryEmbedding", rand(2, M, 24), rand(2, M, 4), rand(2, M, 4), id="no-heads"),
        "a 3D input without num_heads",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


def test_rotary_tables_must_fit(ep: Ep) -> None:
    ep.fails(
        case(
            "RotaryEmbedding",
            rand(1, 1, 2, 4),
            rand(1, 2, K),
            rand(1, 2, K),
            id="narrow",
            rotary_embedding_dim=2,
        ),
        "rotary tables",
    )


@given(
    data=st.data(),
    batch=st.integers(1, 3),
    heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (3, 1)]),
    queries=st.integers(1, 4),
    keys=st.integers(1, 5),
    past=st.integers(0, 3),
    causal=st.integers(0, 1),
    kind=st.sampled_from([None, "float32", "bool"]),
)
def test_masks(data, batch, heads, queries, keys, past, causal, kind, ep: Ep) -> None:
    """A mask of any rank that broadcasts, of floats or bools, with and without a past."""
    whole = (batch, heads[0], queries, past + keys)
    mask = omitted()
    if kind is not None:
        rank = data.draw(st.integers(2, 4))
        free = [data.draw(st.sampled_from([1, n])) for n in whole[:2]]
        mask = rand(*[*free, *whole[2:]][-rank:], dtype=kind)
    q = rand(batch, heads[0], queries, 4)
    k, v = rand(batch, heads[1], keys, 4), rand(batch, heads[1], keys, 3)
    before = (rand(batch, heads[1], past, 4), rand(batch, heads[1], past, 3)) if past else ()
    outputs = 3 if before else 1
    single = causal and past and queries == 1 < keys
    made = attention(
        *(q, k, v, mask, *before),
        id="causal-single-query" if single else "any",
        is_causal=causal,
        outputs=outputs,
    )
    ep.check_one(made, 23, "float32")
