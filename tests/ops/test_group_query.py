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
from support.edges import run_session
from support.ep import Ep
from support.placement import assert_placed, mlx_session
from support.references import feed_of

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


# Caches in 8 and 4 bits.
def stored(rows: int | Dim, dtype: str, batch: int = 1) -> tuple[Input, Input]:
    width, low, high = (8, 0, 256) if dtype == "uint8" else (16, -127, 128)
    made = rand(batch, 2, rows, width, dtype=dtype, low=low, high=high)
    return made, made


def quantized(
    new: tuple[Input, ...],
    past: tuple[Input, Input],
    last: Input,
    total: Input,
    *,
    id: str,
    kinds: tuple[str, str] = ("PER_TENSOR", "PER_TENSOR"),
    **options: Any,
) -> Case:
    step = 0.25 if past[0].dtype == "uint8" else 0.02
    k, v = (
        rand(*((1, 2, 1, 16) if kind == "PER_CHANNEL" else (1,)), low=step, high=2 * step)
        for kind in kinds
    )
    tables = (COS, SIN) if options.get("rotary", True) else (NONE, NONE)
    scales = (const(replace(t, dtype="float32")) for t in (k, v))
    return gqa(
        *(*new, *past, last, total, *tables, NONE, NONE, NONE, *scales),
        id=f"{past[0].dtype}-{id}",
        kv_cache_bit_width=4 if past[0].dtype == "uint8" else 8,
        k_quant_type=kinds[0],
        v_quant_type=kinds[1],
        # Turned keys are rounded in bfloat16 before they are stored, which moves some by one code.
        dtypes=["float32", "float16"],
        **options,
    )


CHANNELS = ("PER_CHANNEL", "PER_CHANNEL")
for stored_as in ("int8", "uint8"):
    CASES += [
        quantized(tokens(M), stored(0, stored_as), int32([3], [1]), int32(4, 2), id="prompt"),
        quantized(tokens(1), stored(P, stored_as), int32([6], [9]), int32(7, 10), id="decode"),
        quantized(
            *(tokens(3), stored(P, stored_as), int32([8], [11]), int32(9, 12)),
            id="channels",
            kinds=CHANNELS,
        ),
        quantized(
            *(tokens(1, 2), stored(16, stored_as, 2), int32([6, 3], [9, 1]), int32(7, 10)),
            id="shared-ragged",
            kinds=CHANNELS,
            view=rows(2),
        ),
    ]
SLIDING = {"local_window_size": 6, "sliding_window_cache": 1}
CASES.append(
    quantized(
        *(tokens(1), stored(8, "int8"), int32([5], [30]), int32(6, 31)),
        id="sliding",
        view=rows(6),
        **SLIDING,
    )
)
CASES += [
    replace(
        gqa(*inputs, id=f"scores-{name}-{mode}", qk_output=mode, **options), outputs=(True,) * 4
    )
    for mode in (1, 2)
    for name, inputs, options in (
        ("prompt", PROMPT, {}),
        ("chunk", CHUNK, {"softcap": 1.0, "local_window_size": 4}),
        ("both-ways", CHUNK, {"rotary": False, "causal": 0}),
        ("bias", (*DECODE, COS, SIN, NONE, rand(1, 4, 1, T)), {"softcap": 2.0}),
        ("sink", (*DECODE, COS, SIN, NONE, NONE, rand(4)), {}),
    )
]

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
    (
        replace(gqa(*PROMPT, id="scores"), outputs=(True,) * 4),
        "an output of scores without qk_output",
    ),
    (
        replace(
            gqa(
                *SHARED,
                id="sliding-scores",
                qk_output=1,
                local_window_size=6,
                sliding_window_cache=1,
            ),
            outputs=(True,) * 4,
        ),
        "the scores of a sliding window cache",
    ),
    (
        gqa(*DECODE, id="plain-codes", k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR"),
        "quantization PER_TENSOR and PER_TENSOR of a cache of float32",
    ),
    (
        quantized(
            *(tokens(1), stored(P, "int8"), int32([6]), int32(7)), id="rows", kinds=("PER_ROW",) * 2
        ),
        "quantization PER_ROW and PER_ROW",
    ),
    (
        replace(
            half := quantized(tokens(1), stored(P, "int8"), int32([6]), int32(7), id="half"),
            attributes={**half.attributes, "kv_cache_bit_width": 4},
        ),
        "4 bits in a cache of int8",
    ),
    (
        replace(half, inputs=half.inputs[:-1], id="no-scale"),
        "a quantized cache without its scales",
    ),
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


def test_a_sliding_cache_of_4_bits_is_a_plain_one_until_it_evicts() -> None:
    """The CPU kernel has no sliding cache of 4 bits."""
    given = tokens(3), stored(16, "uint8"), int32([8]), int32(9)
    results = []
    for options in ({"local_window_size": 6}, SLIDING):
        c = quantized(*given, id="sliding", **options)
        arrays = c.arrays("float32", 0)
        session = mlx_session(c.model(arrays, 1))
        assert_placed(session)
        y, *present = run_session(session, feed_of(arrays, c))
        results.append([y, *(t[:, :, :9] for t in present)])
    np.testing.assert_allclose(results[1][0], results[0][0], 1e-5, 1e-5)
    for plain, sliding in zip(results[0][1:], results[1][1:], strict=True):
        np.testing.assert_array_equal(sliding, plain)
