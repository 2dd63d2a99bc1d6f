"""Attention over pages; no CPU kernel has it, so the reference goes token by token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.case import MS, Array, Case, Input, case, const, ints, loose, omitted, rand
from support.edges import run_session
from support.ep import Ep
from support.placement import assert_placed, mlx_session
from support.references import feed_of

NONE = omitted()
PAGE, PAGES = 4, 12
HEADS = {"num_heads": 4, "kv_num_heads": 2}
HALF_SUMS = loose(4e-2, 4e-2, "halves are summed in another order")
_ANGLES = np.arange(32)[:, None] / 100 ** (np.arange(4) / 4)
COS, SIN = const(np.cos(_ANGLES)), const(np.sin(_ANGLES))


def int32(given: Any, then: Any = None) -> Input:
    return ints(given, then, "int32")


ENDS = int32([0, 3, 4, 6], [0, 1, 4, 6])
PAST = int32([5, 0, 10], [7, 2, 0])
TABLE = int32(
    [[3, 7, -1, -1], [0, -1, -1, 99], [8, 2, 5, -1]],
    [[3, 7, -1, -1], [0, 4, -1, -1], [8, -9, 5, 1]],
)


def _turned(x: Array, cos: Array, sin: Array, first: int) -> Array:
    half = cos.shape[-1]
    a, b = x[..., first : first + half], x[..., first + half : first + 2 * half]
    turned = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return np.concatenate([x[..., :first], turned, x[..., first + 2 * half :]], axis=-1)


def _norm(x: Array, weight: Array | None) -> Array:
    if weight is None:
        return x
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight)


def _by_token(*given: Any, num_heads: int, kv_num_heads: int, **attributes: Any) -> list[Array]:
    given = (*given, *[None] * (17 - len(given)))
    query, key, value, key_cache, value_cache, ends, past, table, cos, sin, slots = given[:11]
    sink, q_weight, k_weight, k_scale, v_scale = given[11:16]
    latent = attributes.get("kv_cache_layout") == "LATENT"
    tokens = len(query)
    if key is None:
        joined = query.reshape(tokens, num_heads + 2 * kv_num_heads, -1)
        q, k, v = np.split(joined, [num_heads, num_heads + kv_num_heads], axis=1)
    else:
        q, k = query.reshape(tokens, num_heads, -1), key.reshape(tokens, kv_num_heads, -1)
        v = k if latent else value.reshape(tokens, kv_num_heads, -1)
    q, k = _norm(q, q_weight), _norm(k, k_weight)
    sequence = np.searchsorted(ends[1:], np.arange(tokens), side="right")
    at = past[sequence] + np.arange(tokens) - ends[sequence]
    if cos is not None:
        tables = cos[at][:, None], sin[at][:, None]
        first = attributes.get("rotary_offset", 0)
        q, k = _turned(q, *tables, first), _turned(k, *tables, first)

    def place(of: int, position: int) -> tuple[int, int] | None:
        page = table[of, position // PAGE]
        return (page, position % PAGE) if 0 <= page < PAGES else None

    def coded(rows: Array, scale: Array | None) -> Array:
        if scale is None:
            return rows
        return np.clip(np.rint(rows / (scale if scale.ndim == 1 else scale[:, 0])), -128, 127)

    caches = [c.copy() for c in (key_cache, value_cache) if c is not None]
    for t in range(tokens):
        where = place(sequence[t], at[t])
        if slots is not None:
            where = divmod(slots[t], PAGE) if slots[t] >= 0 else None
        if where is not None:
            for cache, rows, scale in zip(caches, (k, v), (k_scale, v_scale), strict=False):
                cache[where] = coded(rows[t], scale)
    y = np.zeros((tokens, num_heads, attributes.get("v_head_size", v.shape[-1])), np.float32)
    size, window = q.shape[-1], attributes.get("local_window_size", -1)
    for t in range(tokens):
        of = sequence[t]
        total = past[of] + ends[of + 1] - ends[of]
        last = at[t] + 1 if attributes.get("is_causal", 1) else total
        first = max(at[t] - window + 1, 0) if window > 0 else 0
        seen = [w for p in range(first, last) if (w := place(of, p)) is not None]
        if not seen:
            continue
        held = [np.stack([c[w] for w in seen]).astype(np.float64) for c in caches]
        for i, scale in enumerate((k_scale, v_scale)[: len(held)]):
            if scale is not None:
                held[i] = held[i] * (scale if scale.ndim == 1 else scale[:, 0])
        keys = held[0]
        values = keys[..., : y.shape[-1]] if latent else held[1]
        for h in range(num_heads):
            g = h // (num_heads // kv_num_heads)
            scores = keys[:, g] @ q[t, h] * attributes.get("scale", size**-0.5)
            if cap := attributes.get("softcap", 0):
                scores = np.tanh(scores / cap) * cap
            weights = np.exp(scores)
            total_weight = weights.sum() + (0 if sink is None else np.exp(sink[h]))
            y[t, h] = weights @ values[:, g] / total_weight
    return [y.reshape(tokens, -1).astype(query.dtype), *caches]


def paged(*more: Input, id: str, new: Any = None, caches: Any = None, **options: Any) -> Case:
    filled = [*more, *[NONE] * (8 - len(more))]
    latent = options.get("kv_cache_layout") == "LATENT"
    return case(
        "PagedAttention",
        *(new or (rand(6, 32), rand(6, 16), rand(6, 16))),
        *(caches or (rand(PAGES, PAGE, 2, 8), rand(PAGES, PAGE, 2, 8))),
        *(ENDS, PAST, TABLE, *filled),
        domain=MS,
        id=id,
        outputs=2 if latent else 3,
        tolerance=HALF_SUMS,
        reference=_by_token,
        **{**HEADS, **options},
    )


def stored(kind: str) -> dict[str, Any]:
    codes = rand(PAGES, PAGE, 2, 8, dtype="int8", low=-100, high=100)
    return {"caches": (codes, codes), "k_quant_type": kind, "v_quant_type": kind}


def scales(*shape: int) -> tuple[Input, ...]:
    step = rand(*shape, low=0.02, high=0.04, dtype="float32")
    return (*[NONE] * 6, const(step), const(step))


LATENT = {
    "kv_cache_layout": "LATENT",
    "num_heads": 4,
    "kv_num_heads": 1,
    "v_head_size": 8,
    "scale": 0.3,
}
CASES = [
    paged(id="plain"),
    paged(id="joined", new=(rand(6, 64), NONE, NONE)),
    paged(COS, SIN, id="rotary", do_rotary=1),
    paged(*[NONE] * 4, rand(8), rand(8), id="norm"),
    paged(id="window", local_window_size=3),
    paged(id="both-ways", is_causal=0, local_window_size=4),
    paged(NONE, NONE, NONE, rand(4), id="sink", softcap=2.0),
    paged(NONE, NONE, int32([40, -1, 13, 2, -1, 0], [-1] * 6), id="slots"),
    paged(*scales(1), id="codes", **stored("PER_TENSOR")),
    paged(*scales(2, 1, 8), id="codes-of-channels", **stored("PER_CHANNEL")),
    paged(
        *(COS, SIN),
        id="latent",
        new=(rand(6, 64), rand(6, 16), NONE),
        caches=(rand(PAGES, PAGE, 1, 16), NONE),
        do_rotary=1,
        rotary_offset=8,
        **LATENT,
    ),
]

LATENT_NEW = {"new": (rand(6, 64), rand(6, 16), NONE), "caches": (rand(PAGES, PAGE, 1, 16), NONE)}
REFUSED = [
    (paged(id="layout", kv_cache_layout="RING"), "cache layout RING"),
    (paged(id="half", new=(rand(6, 32), rand(6, 16), NONE)), "only one of key and value"),
    (
        paged(id="two", new=LATENT_NEW["new"], **LATENT),
        "a value cache that does not fit the cache layout",
    ),
    (
        paged(id="joined-latent", **{**LATENT_NEW, "new": (rand(6, 80), NONE, NONE)}, **LATENT),
        "packed queries and keys of a latent cache",
    ),
    (
        paged(*[NONE] * 4, rand(8), id="half-norm"),
        "only one of q_norm_weight and k_norm_weight",
    ),
    (paged(id="no-tables", do_rotary=1), "rotary embedding without its tables"),
    (paged(id="packed", k_cache_dtype="int4"), "a cache of int4 held in bfloat16"),
    (
        paged(id="kind", k_quant_type="PER_TENSOR"),
        "quantization PER_TENSOR of a cache of bfloat16",
    ),
    (paged(id="no-scale", **stored("PER_TENSOR")), "a quantized cache without its scale"),
    (
        replace(paged(id="in-place"), outputs=(True,)),
        "a cache that is only written in place",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c: Case, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c: Case, sentence: str, ep: Ep) -> None:
    ep.refuse(c, sentence)


WILD = {
    5: [0, -7, 10**6, 3],
    6: [-5, 10**6, 2**31 - 9],
    7: [[10**6] * 4, [-(10**6)] * 4, [11, 12, -1, 3]],
    10: [10**6, -(10**6), 47, 48, 2**31 - 1, -(2**31)],
}


@pytest.mark.parametrize("at", WILD)
def test_wild_places_are_kept_inside(at: int) -> None:
    """A value outside its range reads and writes nothing outside of the caches."""
    c = paged(NONE, NONE, int32([40, -1, 13, 2, -1, 0]), id="wild")
    inputs = list(c.inputs)
    inputs[at] = int32(WILD[at])
    c = replace(c, inputs=tuple(inputs))
    arrays = c.arrays("float16", 0)
    session = mlx_session(c.model(arrays, 1))
    assert_placed(session)
    feed = feed_of(arrays, c)
    first, second = (run_session(session, feed) for _ in range(2))
    for got, again in zip(first, second, strict=True):
        assert np.isfinite(got).all()
        np.testing.assert_array_equal(got, again)
    old, new = arrays[3], first[1]
    assert (old != new).any(axis=(2, 3)).sum() <= 6, "more rows are written than there are tokens"


def test_tables_must_fit(ep: Ep) -> None:
    c = paged(id="few")
    short = replace(c, inputs=(*c.inputs[:7], int32([[3, 7]]), *c.inputs[8:]))
    ep.fails(short, "sequences do not fit")
