"""MultiHeadAttention and Attention of com.microsoft."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from conformance.contrib.build import FLOATS, Const, ContribCase, Random, case
from conformance.contrib.references import packed_attention

BATCH: Final = 2
LENGTH: Final = 6
HEADS: Final = 4
SIZE: Final = 16

_ROWS: Final = np.array([6, 4], np.int32)
_MASK: Final = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]], np.int32)


def cases() -> Iterator[ContribCase]:
    """All of them in both dtypes."""
    for label, dtype in FLOATS.items():
        for made in (*multi_head(dtype), *whole(dtype)):
            form, op_type, inputs, own = made
            yield case(f"{form}_{label}", op_type, *inputs, num_heads=HEADS, **own)


def multi_head(dtype: Any) -> Iterator[tuple[str, str, tuple[Any, ...], dict[str, Any]]]:
    """Projected queries, keys and values, apart and packed, with past, mask and bias."""
    r = Random("multi head")

    def given(*shape: int) -> Any:
        return r.normal(*shape, dtype=dtype)

    q, k, v = (given(BATCH, LENGTH, HEADS * SIZE) for _ in range(3))
    bias = r.normal(3 * HEADS * SIZE, dtype=dtype, scale=0.3)
    one = tuple(x[:, :1] for x in (q, k, v))
    past = given(BATCH, HEADS, 5, SIZE), given(BATCH, HEADS, 5, SIZE)
    far = given(BATCH, HEADS, 9, SIZE), given(BATCH, HEADS, 9, SIZE)
    scores = given(1, HEADS, LENGTH, LENGTH)
    all_packed = given(BATCH, LENGTH, HEADS, 3, SIZE)
    kv_packed = given(BATCH, LENGTH, HEADS, 2, SIZE)
    op = "MultiHeadAttention"
    yield "basic", op, (q, k, v), {}
    yield "bias", op, (q, k, v, bias), {}
    yield "causal", op, (q, k, v), {"unidirectional": 1}
    yield "scale", op, (q, k, v), {"scale": 0.1}
    yield "mask", op, (q, k, v, None, _MASK), {}
    yield "lengths", op, (q, k, v, None, _ROWS), {}
    yield "attention_bias", op, (q, k, v, None, None, scores), {}
    yield "packed", op, (all_packed,), {"oracle": packed_attention}
    yield "packed_kv", op, (q, kv_packed), {"oracle": packed_attention}
    yield "cross", op, (q, *far), {}
    yield "short_query", op, (q[:, :2], k, v), {}
    yield "past", op, (*one, None, None, None, *past), {"outputs": 3, "unidirectional": 1}


def whole(dtype: Any) -> Iterator[tuple[str, str, tuple[Any, ...], dict[str, Any]]]:
    """With the projection inside."""
    r = Random("whole attention")
    width = HEADS * SIZE
    x = r.normal(BATCH, LENGTH, width, dtype=dtype)
    weight = Const(r.normal(width, 3 * width, dtype=dtype, scale=0.2))
    bias = Const(r.normal(3 * width, dtype=dtype, scale=0.2))
    past = r.normal(2, BATCH, HEADS, 3, SIZE, dtype=dtype)
    scores = r.normal(1, HEADS, LENGTH, LENGTH, dtype=dtype)
    op = "Attention"
    yield "basic", op, (x, weight, bias), {}
    yield "causal", op, (x, weight, bias), {"unidirectional": 1}
    yield "mask", op, (x, weight, bias, _MASK), {}
    yield "lengths", op, (x, weight, bias, _ROWS), {}
    yield "no_bias", op, (x, weight), {}
    own = {"outputs": 2, "unidirectional": 1}
    yield "past", op, (x[:, :2], weight, bias, None, past), own
    yield "attention_bias", op, (x, weight, bias, None, None, scores), {}
