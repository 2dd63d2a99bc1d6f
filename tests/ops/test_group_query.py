"""Grouped-query attention and its caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.case import (
    MS,
    Array,
    Case,
    Dim,
    Input,
    M,
    case,
    const,
    ints,
    loose,
    omitted,
    rand,
)
from support.ep import Ep

P = Dim("P", (6, 9))  # cached positions
T = Dim("T", (7, 10))  # P and one more
_ANGLES = np.arange(40)[:, None] / 100 ** (np.arange(8) / 8)
COS, SIN = const(np.cos(_ANGLES)), const(np.sin(_ANGLES))
HALF_SUMS = loose(2e-2, 2e-2, "halves are summed in another order")
NONE = omitted()
HEADS = {"num_heads": 4, "kv_num_heads": 2}


def int32(given: Any, then: Any = None) -> Input:
    return ints(given, then, "int32")


def tokens(length: int | Dim, batch: int = 1, packed: bool = False) -> tuple[Input, ...]:
    if packed:
        return rand(batch, length, 128), NONE, NONE
    return rand(batch, length, 64), rand(batch, length, 32), rand(batch, length, 32)


def cache(rows: int | Dim, batch: int = 1) -> tuple[Input, Input]:
    return rand(batch, 2, rows, 16), rand(batch, 2, rows, 16)


def gqa(*inputs: Input, id: str, rotary: bool = True, **options: Any) -> Case:
    tables = (COS, SIN) if rotary and len(inputs) == 7 else ()
    return case(
        "GroupQueryAttention",
        *inputs,
        *tables,
        domain=MS,
        id=id,
        outputs=3,
        tolerance=HALF_SUMS,
        do_rotary=int(rotary),
        **{**HEADS, **options},
    )


def rows(count: int) -> Callable[[list[Array]], list[Array]]:
    """The output, and the rows of the cache that hold tokens."""
    return lambda outputs: [outputs[0], *(present[:, :, :count] for present in outputs[1:])]


PROMPT = (*tokens(M), *cache(0), int32([3], [1]), int32(4, 2))
DECODE = (*tokens(1), *cache(P), int32([6], [9]), int32(7, 10))
CHUNK = (*tokens(3), *cache(P), int32([8], [11]), int32(9, 12))
SHARED = (*tokens(1), *cache(16), int32([6], [11]), int32(7, 12))

CASES = [
    gqa(*PROMPT, id="prompt"),
    gqa(*PROMPT, id="prompt-plain", rotary=False),
    gqa(*tokens(M, packed=True), *cache(0), int32([3], [1]), int32(4, 2), id="packed"),
    gqa(*tokens(M), NONE, NONE, int32([3], [1]), int32(4, 2), id="no-past"),
    gqa(*DECODE, id="decode"),
    gqa(*tokens(1, packed=True), *cache(P), int32([6], [9]), int32(7, 10), id="packed-decode"),
    gqa(*CHUNK, id="chunk"),
    gqa(*CHUNK, id="interleaved", rotary_interleaved=1),
    gqa(*SHARED, id="shared", view=rows(7)),
    gqa(*tokens(M), *cache(16), int32([3], [1]), int32(4, 2), id="shared-prompt", view=rows(2)),
    gqa(
        *tokens(1, 2),
        *cache(P, 2),
        int32([6, 3], [9, 1]),
        int32(7, 10),
        id="ragged-decode",
        view=rows(2),
    ),
    gqa(*tokens(4, 2), *cache(0, 2), int32([3, 3]), int32(4), id="batch"),
    gqa(*CHUNK, id="window", local_window_size=3),
    gqa(*PROMPT, id="window-prompt", local_window_size=2),
    gqa(*CHUNK, id="softcap", softcap=2.0),
    gqa(*CHUNK, id="scale", scale=0.4),
    gqa(*CHUNK, id="smooth", smooth_softmax=1),
    gqa(*CHUNK, id="both-ways", rotary=False, causal=0),
    gqa(*DECODE, COS, SIN, NONE, NONE, rand(4), id="sink"),
    gqa(*DECODE, COS, SIN, NONE, rand(1, 4, 1, T), id="bias"),
    gqa(*SHARED, COS, SIN, NONE, rand(1, 1, 1, Dim("S", (7, 12))), id="shared-bias", view=rows(7)),
    gqa(*CHUNK, COS, SIN, ints([[9, 2, 5]], [[0, 7, 7]]), id="positions"),
    gqa(*PROMPT, COS, SIN, ints([[5, 1, 2, 9]], [[3, 0]]), id="first-position"),
    gqa(
        *tokens(1),
        *cache(8),
        int32([5], [30]),
        int32(6, 31),
        id="sliding",
        local_window_size=6,
        sliding_window_cache=1,
        view=rows(6),
    ),
    gqa(
        *tokens(5),
        *cache(9),
        int32([17], [8]),
        int32(18, 9),
        id="sliding-chunk",
        local_window_size=6,
        sliding_window_cache=1,
        view=rows(6),
    ),
    gqa(
        *tokens(3),
        *cache(12),
        int32([8], [6]),
        int32(9, 7),
        COS,
        SIN,
        *[NONE] * 7,
        int32([2], [2]),
        id="padded-chunk",
        view=lambda o: [o[0][:, :2], *(p[:, :, :7] for p in o[1:])],
    ),
    gqa(
        rand(1, 1, 64),
        rand(1, 0, 32),
        rand(1, 0, 32),
        *cache(P),
        int32([5], [8]),
        int32(6, 9),
        id="borrowed-cache",
    ),
]


def _normed(*given: Any, **attributes: Any) -> list[Array]:
    """QK norm by hand, without rotation; no CPU kernel has it."""
    q, k, v = given[:3]
    heads = [t.reshape(*t.shape[:2], -1, 16).swapaxes(1, 2).astype(np.float64) for t in (q, k, v)]
    for i, weight in ((0, given[14]), (1, given[15])):
        x = heads[i]
        heads[i] = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight
    past = given[3].shape[2]
    keys, vals = (
        np.concatenate([p, t], axis=2) for p, t in zip(given[3:5], heads[1:], strict=True)
    )
    wide = [np.repeat(t, 2, axis=1) for t in (keys, vals)]
    scores = heads[0] @ wide[0].swapaxes(-1, -2) / 4
    order = np.arange(scores.shape[-1]) <= np.arange(scores.shape[-2])[:, None] + past
    weights = np.exp(np.where(order, scores, -np.inf))
    y = (weights / weights.sum(-1, keepdims=True)) @ wide[1]
    y = y.swapaxes(1, 2).reshape(q.shape)
    return [t.astype(q.dtype) for t in (y, keys, vals)]


CASES.append(
    gqa(*CHUNK, *[NONE] * 7, rand(16), rand(16), id="qk-norm", rotary=False, reference=_normed)
)

REFUSED = [
    (
        gqa(rand(1, M, 64), rand(1, M, 32), *PROMPT[2:2], NONE, *PROMPT[3:], id="half-new"),
        "only one of key and value",
    ),
    (
        gqa(*tokens(M), cache(0)[0], NONE, *PROMPT[5:], id="half-past"),
        "only one of past_key and past_value",
    ),
    (
        gqa(*PROMPT, COS, SIN, NONE, NONE, NONE, NONE, NONE, const(rand(16)), id="half-norm"),
        "only one of q_norm_weight and k_norm_weight",
    ),
    (replace(gqa(*PROMPT, id="scores"), outputs=(True,) * 4), "the scores as an output"),
    (gqa(*PROMPT, NONE, NONE, id="no-tables"), "rotary embedding without its tables"),
    (
        gqa(
            *tokens(M),
            NONE,
            NONE,
            int32([3]),
            int32(4),
            id="no-cache",
            local_window_size=4,
            sliding_window_cache=1,
        ),
        "a sliding window cache without past_key",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c: Case, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c: Case, sentence: str, ep: Ep) -> None:
    ep.refuse(c, sentence)


def test_total_covers_the_new_tokens(ep: Ep) -> None:
    c = gqa(*tokens(4), *cache(3), int32([1]), int32(2), id="short")
    ep.fails(c, "total_sequence_length 2 is less than the new tokens")


def test_total_is_inside_the_rotary_tables(ep: Ep) -> None:
    c = gqa(*tokens(1), *cache(60), int32([50]), int32(51), id="long")
    ep.fails(c, "rotary tables of 40 rows are too short for total_sequence_length 51")


def test_positions_are_inside_the_rotary_tables(ep: Ep) -> None:
    c = gqa(*CHUNK, COS, SIN, ints([[9, 40, 5]]), id="far")
    ep.fails(c, "index 40 is out of range for an axis of 40")
