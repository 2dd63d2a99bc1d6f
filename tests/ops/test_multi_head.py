"""Multi-head attention of com.microsoft, projected, quantized and packed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from support.case import MS, Array, Case, Dim, Input, M, case, const, ints, loose, omitted, rand
from support.ep import Ep

T = Dim("T", (6, 4))  # the past and M
NONE = omitted()
QKV = (rand(2, M, 32), rand(2, M, 32), rand(2, M, 32))
HALF_SUMS = loose(2e-2, 2e-2, "halves are summed in another order")
LONG_SUMS = loose(2e-2, 3e-2, "the projection is summed in another order")


def int32(given: Any, then: Any = None) -> Input:
    return ints(given, then, "int32")


def mha(*inputs: Input, id: str, outputs: int = 1, **options: Any) -> Case:
    return case(
        "MultiHeadAttention",
        *inputs,
        domain=MS,
        id=id,
        outputs=outputs,
        tolerance=HALF_SUMS,
        **{"num_heads": 2, **options},
    )


def attention(*inputs: Input, id: str, outputs: int = 1, **options: Any) -> Case:
    return case(
        "Attention",
        *inputs,
        domain=MS,
        id=id,
        outputs=outputs,
        tolerance=LONG_SUMS,
        **{"num_heads": 2, **options},
    )


X = rand(2, M, 32)
W, B = const(rand(32, 96, low=-0.3, high=0.3)), const(rand(96))
PADDED = int32([[1, 1, 0, 1], [1] * 4], [[0, 1], [1, 0]])


def _packed(*given: Any, num_heads: int, **rest: Any) -> Array:
    """Attention within each sequence, by hand; there is no CPU kernel."""
    q, k, v = (
        given[:3]
        if given[1] is not None
        else (given[0][:, :, i].reshape(len(given[0]), -1) for i in range(3))
    )
    if given[3] is not None:
        q, k, v = (t + b for t, b in zip((q, k, v), np.split(given[3], 3), strict=True))
    ends = given[5]
    y = np.zeros(v.shape, np.float64)
    for start, end in pairwise(ends):
        heads = [t[start:end].reshape(end - start, num_heads, -1).swapaxes(0, 1) for t in (q, k, v)]
        scores = (
            heads[0].astype(np.float64) @ heads[1].swapaxes(-1, -2) / np.sqrt(heads[0].shape[-1])
        )
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ heads[2]
        y[start:end] = mixed.swapaxes(0, 1).reshape(end - start, -1)
    return y.astype(q.dtype)


OFFSETS = int32([[0, 4, 5, 8], [9, 10, 11, 1], [2, 3, 6, 7]])
ENDS = int32([0, 1, 3, 7])


def _projected(*given: Any, num_heads: int, **rest: Any) -> Array:
    q, k, v = np.split(given[0].astype(np.float64) @ given[1] + given[2], 3, axis=-1)
    made = _packed(q, k, v, None, *given[3:], num_heads=num_heads)
    return made.astype(given[0].dtype)


CASES = [
    mha(*QKV, id="plain"),
    mha(*QKV, rand(96), id="bias", outputs=3),
    mha(*QKV, id="causal", unidirectional=1),
    mha(*QKV, id="scale", scale=0.1),
    mha(rand(2, 3, 32), rand(2, T, 32), rand(2, T, 48), id="cross"),
    mha(rand(2, 3, 32), rand(2, 5, 32), rand(2, 5, 32), id="last-sees-all", unidirectional=1),
    mha(rand(2, 3, 32), rand(2, 2, T, 16), rand(2, 2, T, 16), id="cached", outputs=3),
    mha(rand(2, 3, 32), rand(2, 2, T, 16), rand(2, 2, T, 16), rand(96), id="bias-cached"),
    mha(*QKV, NONE, PADDED, id="padding"),
    mha(*QKV, NONE, PADDED, id="padding-causal", unidirectional=1, mask_filter_value=-5.0),
    mha(*QKV, NONE, int32([4, 2], [0, 2]), id="lengths"),
    mha(
        *QKV,
        NONE,
        int32([2, 4, 0, 2, 6, 0, 2, 6], [1, 2, 0, 1, 3, 0, 1, 3]),
        id="lengths-and-starts",
    ),
    mha(*QKV, NONE, rand(2, M, M, dtype="int32", low=0, high=2), id="mask-of-queries"),
    mha(*QKV, NONE, NONE, rand(1, 2, M, M), id="attention-bias"),
    mha(
        *QKV,
        NONE,
        NONE,
        rand(2, 1, M, T),
        rand(2, 2, 2, 16),
        rand(2, 2, 2, 16),
        id="past",
        outputs=3,
        unidirectional=1,
    ),
    attention(X, W, B, id="plain", outputs=2),
    attention(X, W, id="no-bias", unidirectional=1),
    attention(X, W, B, PADDED, id="padding"),
    attention(X, W, B, int32([3, 2, 1, 0], [2, 1, 0, 1]), id="ends-and-starts"),
    attention(X, W, B, NONE, rand(2, 2, 2, 3, 16), id="past", outputs=2, unidirectional=1),
    attention(X, W, B, NONE, NONE, rand(1, 2, M, M), id="attention-bias"),
    attention(
        X,
        const(rand(32, 80, low=-0.3, high=0.3)),
        const(rand(80)),
        id="sizes",
        qkv_hidden_sizes=[32, 32, 16],
    ),
    case(
        "QAttention",
        rand(2, M, 32, dtype="uint8", low=0, high=256),
        const(rand(32, 96, dtype="int8", low=-99, high=99)),
        B,
        const(0.02, dtype="float32"),
        const(0.001, dtype="float32"),
        int32([4, 2], [1, 2]),
        const(120, dtype="uint8"),
        const(3, dtype="int8"),
        rand(2, 2, 2, 3, 16),
        domain=MS,
        id="quantized",
        outputs=2,
        dtypes=["float32"],
        num_heads=2,
        unidirectional=1,
    ),
    case(
        "PackedMultiHeadAttention",
        rand(7, 32),
        rand(7, 32),
        rand(7, 32),
        rand(96),
        OFFSETS,
        ENDS,
        domain=MS,
        id="packed",
        num_heads=2,
        reference=_packed,
        tolerance=HALF_SUMS,
    ),
    case(
        "PackedMultiHeadAttention",
        rand(7, 2, 3, 16),
        NONE,
        NONE,
        NONE,
        OFFSETS,
        ENDS,
        domain=MS,
        id="packed-together",
        num_heads=2,
        reference=_packed,
        tolerance=HALF_SUMS,
    ),
    case(
        "PackedAttention",
        rand(7, 32),
        W,
        B,
        OFFSETS,
        ENDS,
        domain=MS,
        id="projected",
        num_heads=2,
        reference=_projected,
        tolerance=LONG_SUMS,
    ),
]

BUFFER = (rand(2, 2, 8, 16), rand(2, 2, 8, 16))
FILLED = int32([3], [5])
ROWS = Dim("R", (7, 7))  # FILLED and M
CASES += [
    mha(*QKV, NONE, NONE, NONE, *BUFFER, FILLED, id="shared", outputs=3),
    mha(*QKV, NONE, NONE, NONE, *BUFFER, FILLED, id="shared-causal", outputs=3, unidirectional=1),
    mha(
        *(rand(2, 1, 32), rand(2, 1, 32), rand(2, 1, 32), rand(96)),
        *(int32([[1, 0, 1, 1]] * 2, [[1, 0, 1, 1, 1, 1]] * 2), rand(1, 2, 1, Dim("R", (4, 6)))),
        *(*BUFFER, FILLED),
        id="shared-masked",
        outputs=3,
    ),
]


def _in_buffer(*given: Any, **rest: Any) -> list[Array]:
    """Attention over the rows in use of a buffer, and the buffer; no CPU kernel shares it.

    A mask of positions by positions, which the CPU kernel lacks too, tells what each may see.
    """
    x, w, b, mask, past, _, filled = (*given, None, None)[:7]
    length = x.shape[1]
    if filled is None:
        past = np.pad(past, [(0, 0)] * 3 + [(0, length), (0, 0)])
    n = past.shape[3] - length if filled is None else int(filled[0])
    q, k, v = (
        t.reshape(*t.shape[:2], 2, -1).swapaxes(1, 2)
        for t in np.split(x.astype(np.float64) @ w + b, 3, axis=-1)
    )
    present = past.copy()
    present[:, :, :, n : n + length] = np.stack([k, v])
    keys, values = present[:, :, :, : n + length].astype(np.float64)
    scores = q @ keys.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + np.where(mask[:, :, n : n + length, : n + length], 0, -10000.0)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = weights / weights.sum(-1, keepdims=True) @ values
    return [y.swapaxes(1, 2).reshape(x.shape).astype(x.dtype), present]


CASES.append(
    attention(
        *(X, W, B, rand(2, 1, 8, 8, dtype="int32", low=0, high=2), rand(2, 2, 2, 3, 16)),
        id="square-past",
        outputs=2,
        reference=_in_buffer,
    )
)
CASES.append(
    attention(
        *(X, W, B, NONE, rand(2, 2, 2, 8, 16), NONE, FILLED),
        id="shared",
        outputs=2,
        past_present_share_buffer=1,
        reference=_in_buffer,
    )
)

REFUSED = [
    (
        mha(*QKV, NONE, NONE, NONE, rand(2, 2, 3, 16), id="half-a-past"),
        "only one of past_key and past_value",
    ),
    (
        mha(*QKV, *[NONE] * 6, int32([[[0, 0, 0]]]), id="beams"),
        "beams without past_sequence_length",
    ),
    (mha(*QKV, *[NONE] * 5, int32([3]), id="no-past"), "past_sequence_length without past_key"),
    (
        case(
            "PackedMultiHeadAttention",
            rand(7, 32),
            rand(7, 32),
            NONE,
            NONE,
            OFFSETS,
            ENDS,
            domain=MS,
            id="half",
            num_heads=2,
        ),
        "only one of key and value",
    ),
    (
        mha(rand(2, M, 96), id="joined"),
        "packed queries, keys and values without a dimension for the three",
    ),
    (
        mha(rand(2, 3, 32), rand(2, T, 2, 2, 16), NONE, rand(96), id="bias-packed"),
        "a bias with packed keys",
    ),
    (attention(X, W, B, id="rotary", do_rotary=1), "a rotary embedding inside the projection"),
    (
        attention(X, W, B, id="shared", past_present_share_buffer=1),
        "a shared past without its buffer or past_sequence_length",
    ),
    (
        case(
            "QAttention",
            *(rand(2, M, 32, dtype="uint8", low=0, high=256), rand(32, 96, dtype="int8"), B),
            *(rand(1, dtype="float32"), rand(1, dtype="float32")),
            domain=MS,
            id="shared",
            outputs=2,
            dtypes=["float32"],
            num_heads=2,
            past_present_share_buffer=1,
        ),
        "a past buffer shared with the present",
    ),
    (
        attention(X, W, B, rand(2, 1, 8, 8, dtype="int32"), id="square", unidirectional=1),
        "a 4D mask and causal order",
    ),
    (
        attention(
            X,
            const(rand(32, 80)),
            const(rand(80)),
            id="sizes-present",
            outputs=2,
            qkv_hidden_sizes=[32, 32, 16],
        ),
        "a present of keys and values of different sizes",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c: Case, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c: Case, sentence: str, ep: Ep) -> None:
    ep.refuse(c, sentence)


def test_mask_must_fit(ep: Ep) -> None:
    ep.fails(mha(*QKV, NONE, int32([[1, 1, 1]] * 2), id="bad-mask"), "mask does not fit")
