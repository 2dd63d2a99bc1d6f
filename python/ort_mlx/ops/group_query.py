"""Grouped-query attention with a key/value cache, the attention of exported decoders.

Source: com.microsoft GroupQueryAttention; mx.fast.scaled_dot_product_attention.
The lengths arrive as data. From the host value of total_sequence_length only two things are
decided: the output's shape, max(capacity, total), and whether the whole sequence is in this call.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import SINGLES
from ..hosts import HostInt
from ..node import Node
from ..registry import MS, op
from ._cache import Cache, append, slide
from ._heads import (
    attend,
    cap,
    combine,
    default_scale,
    masked,
    meet,
    merge_heads,
    score,
    softmax,
    split_heads,
    visible,
    weigh,
)
from ._quantized_cache import CACHE_TYPES, codes_of, quantized_cache_claim
from .rotary import rotate, table_rows


def _gqa_claim(node: Node) -> Iterator[str]:
    if node.missing("key") != node.missing("value"):
        yield "only one of key and value"
    if node.missing("past_key") != node.missing("past_value"):
        yield "only one of past_key and past_value"
    if node.missing("q_norm_weight") != node.missing("k_norm_weight"):
        yield "only one of q_norm_weight and k_norm_weight"
    if node.attr("do_rotary", 0) and (node.missing("cos_cache") or node.missing("sin_cache")):
        yield "rotary embedding without its tables"
    if node.attr("sliding_window_cache", 0) and node.missing("past_key"):
        yield "a sliding window cache without past_key"
    yield from quantized_cache_claim(node)
    if _wants_scores(node):
        if node.attr("qk_output", 0) not in (1, 2):
            yield "an output of scores without qk_output"
        if node.attr("sliding_window_cache", 0):
            yield "the scores of a sliding window cache"


def _wants_scores(node: Node) -> bool:
    return len(node.outputs) > 3 and node.outputs[3] is not None


@op(
    "GroupQueryAttention",
    domain=MS,
    since=(1,),
    types={"query": SINGLES, "past_key": CACHE_TYPES, "past_value": CACHE_TYPES},
    claim=_gqa_claim,
)
def group_query_attention(
    query: mx.array,
    key: mx.array | None,
    value: mx.array | None,
    past_key: mx.array | None,
    past_value: mx.array | None,
    seqlens_k: mx.array,
    total_sequence_length: HostInt,
    cos_cache: mx.array | None = None,
    sin_cache: mx.array | None = None,
    position_ids: mx.array | None = None,
    attention_bias: mx.array | None = None,
    head_sink: mx.array | None = None,
    k_scale: mx.array | None = None,
    v_scale: mx.array | None = None,
    q_norm_weight: mx.array | None = None,
    k_norm_weight: mx.array | None = None,
    query_seqlens: mx.array | None = None,
    *,
    causal: int = 1,
    do_rotary: int | None = None,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int | None = None,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int | None = None,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float | None = None,
    v_quant_type: str = "NONE",
    node: Node,
) -> tuple[mx.array | None, ...]:
    q, k, v = split_packed(query, key, value, num_heads, kv_num_heads)
    _check_lengths(q, k, v, total_sequence_length, bool(sliding_window_cache))
    if q_norm_weight is not None and k_norm_weight is not None:
        q = mx.fast.rms_norm(q, q_norm_weight, q_norm_epsilon or qk_norm_epsilon)
        k = mx.fast.rms_norm(k, k_norm_weight, k_norm_epsilon or qk_norm_epsilon)
    length = q.shape[2]
    total = seqlens_k.reshape(-1) + 1
    start = total - (mx.minimum(total, length) if query_seqlens is None else query_seqlens)
    query_at = start[:, None] + mx.arange(length)
    prompt = query_seqlens is None and total_sequence_length == length
    if do_rotary and cos_cache is not None and sin_cache is not None:
        if cos_cache.shape[0] < total_sequence_length:
            raise ValueError(
                f"rotary tables of {cos_cache.shape[0]} rows are too short for "
                f"total_sequence_length {total_sequence_length}"
            )
        places = query_at if position_ids is None else _places(position_ids, length, prompt)
        cos, sin = table_rows(cos_cache, sin_cache, places)
        q, k = (rotate(t, cos, sin, interleaved=bool(rotary_interleaved)) for t in (q, k))

    k_codes = codes_of(k_quant_type, node.dtype("past_key"), k_scale, k)
    v_codes = codes_of(v_quant_type, node.dtype("past_value"), v_scale, v)
    k, v = (t if c is None else c.encode(t) for t, c in ((k, k_codes), (v, v_codes)))
    if sliding_window_cache and past_key is not None and past_value is not None:
        cache = slide(past_key, past_value, k, v, start, total, local_window_size)
    else:
        cache = append(past_key, past_value, k, v, start, total_sequence_length)
    whole = prompt and k.shape[2] == length
    if whole:  # nothing came before: attend the new tokens alone
        cache = cache._replace(key=k, value=v, positions=mx.arange(length)[None], kept=None)
    if k_codes is not None and v_codes is not None:
        keys, values = k_codes.decode(cache.key, q.dtype), v_codes.decode(cache.value, q.dtype)
        cache = cache._replace(key=keys, value=values)
    mask: mx.array | str | None = "causal"
    if not (whole and causal and local_window_size <= 0 and attention_bias is None):
        seen = _seen(query_at, cache, total, bool(causal), local_window_size)
        mask = combine(seen, _columns(attention_bias, cache.positions, bool(sliding_window_cache)))
    if head_sink is None and smooth_softmax == 1:
        head_sink = mx.zeros((num_heads,), dtype=q.dtype)
    scale, softcap = default_scale(scale, q.shape[-1]), softcap or 0.0
    present = cache.present_key, cache.present_value
    if not _wants_scores(node):
        y = attend(
            q, cache.key, cache.value, scale=scale, mask=mask, softcap=softcap, sinks=head_sink
        )
        return merge_heads(y), *present, None
    logits = masked(cap(score(q, cache.key, scale), softcap), mask)
    weights = softmax(logits, head_sink)
    y = weigh(weights, cache.value).astype(q.dtype)
    shown = mx.where(mx.isinf(logits), 0, logits) if qk_output == 1 else weights
    return merge_heads(y), *present, shown.astype(q.dtype)


def _places(position_ids: mx.array, length: int, prompt: bool) -> mx.array:
    """Rows of the rotary tables; in a prompt ORT counts on from the first position."""
    if not prompt:
        return position_ids
    return position_ids.reshape(-1)[:1, None] + mx.arange(length)


def split_packed(
    query: mx.array, key: mx.array | None, value: mx.array | None, heads: int, kv_heads: int
) -> tuple[mx.array, mx.array, mx.array]:
    """Query, key and value heads, from three inputs or one packed one."""
    if key is not None and value is not None:
        return split_heads(query, heads), split_heads(key, kv_heads), split_heads(value, kv_heads)
    packed = split_heads(query, heads + 2 * kv_heads)
    q, k, v = mx.split(packed, [heads, heads + kv_heads], axis=1)
    return q, k, v


def _check_lengths(q: mx.array, k: mx.array, v: mx.array, total: int, windowed: bool) -> None:
    if k.shape != v.shape or k.shape[2] not in (0, q.shape[2]):
        raise ValueError(f"key and value do not fit the query: {k.shape}, {v.shape}, {q.shape}")
    if k.shape[2] > total and not windowed:
        raise ValueError(f"total_sequence_length {total} is less than the new tokens: {k.shape}")


def _seen(
    query_at: mx.array, cache: Cache, total: mx.array, causal: bool, window: int
) -> mx.array | None:
    """What each query may attend, [batch, 1, queries, rows of the cache]."""
    kept = cache.kept
    if not causal and kept is None:
        kept = cache.positions < total[:, None]
    rows = None if kept is None else kept[:, None, None]
    if not causal:
        return rows
    order = visible(query_at, cache.positions, left=window - 1 if window > 0 else -1)
    return meet(order[:, None], rows)


def _columns(bias: mx.array | None, positions: mx.array, gather: bool) -> mx.array | None:
    """The columns of an additive mask over absolute positions that belong to the cache's rows."""
    if bias is None:
        return None
    rows = positions.shape[1]
    if gather:
        at = mx.clip(positions, 0, bias.shape[-1] - 1)[:, None, None]
        shape = (at.shape[0], *bias.shape[1:-1], rows)
        bias = mx.broadcast_to(bias, (at.shape[0], *bias.shape[1:]))
        return mx.take_along_axis(bias, mx.broadcast_to(at, shape), axis=-1)
    if (short := rows - bias.shape[-1]) > 0:
        return mx.pad(bias, [(0, 0), (0, 0), (0, 0), (0, short)])
    return bias[..., :rows]
