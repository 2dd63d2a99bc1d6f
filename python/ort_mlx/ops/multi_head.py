"""Multi-head attention of com.microsoft: separate, packed, projected and quantized inputs.

Sources: com.microsoft MultiHeadAttention, Attention and QAttention, with the mask forms they share;
mx.fast.scaled_dot_product_attention.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import SINGLES
from ..node import Node
from ..registry import MS, op
from ._heads import (
    attend,
    combine,
    default_scale,
    masked,
    merge_heads,
    score,
    softmax,
    split_heads,
    visible,
    weigh,
)


def _multi_head_claim(node: Node) -> Iterator[str]:
    if node.missing("key") and node.rank("query") == 3:
        yield "packed queries, keys and values without a dimension for the three"
    if not node.missing("past_sequence_length"):
        yield "a past buffer shared with the present"
    if not node.missing("cache_indirection"):
        yield "a cache reordered by beams"
    if not node.missing("bias") and node.rank("key") in (4, 5):
        yield "a bias with packed or cached keys"
    if node.missing("past_key") != node.missing("past_value"):
        yield "only one of past_key and past_value"


@op(
    "MultiHeadAttention",
    domain=MS,
    since=(1,),
    types={"query": SINGLES},
    claim=_multi_head_claim,
)
def multi_head_attention(
    query: mx.array,
    key: mx.array | None = None,
    value: mx.array | None = None,
    bias: mx.array | None = None,
    key_padding_mask: mx.array | None = None,
    attention_bias: mx.array | None = None,
    past_key: mx.array | None = None,
    past_value: mx.array | None = None,
    past_sequence_length: mx.array | None = None,
    cache_indirection: mx.array | None = None,
    *,
    mask_filter_value: float | None = None,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
    node: Node,
) -> tuple[mx.array | None, ...]:
    q, k, v = _heads_of(query, key, value, bias, num_heads)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = (mx.concatenate(pair, axis=2) for pair in ([past_key, k], [past_value, v]))
    wants_scores = len(node.outputs) > 3 and node.outputs[3] is not None
    causal = past if unidirectional else None
    mask = attention_mask(
        q, k, key_padding_mask, attention_bias, mask_filter_value, causal, wants_scores
    )
    scale = default_scale(scale, q.shape[-1])
    if not wants_scores:
        return merge_heads(attend(q, k, v, scale=scale, mask=mask)), k, v, None
    logits = masked(score(q, k, scale), mask)
    y = weigh(softmax(logits), v).astype(q.dtype)
    logits = mx.maximum(logits, mx.finfo(q.dtype).min)  # ORT hides with the lowest value
    return merge_heads(y), k, v, logits.astype(q.dtype)


def _heads_of(
    query: mx.array,
    key: mx.array | None,
    value: mx.array | None,
    bias: mx.array | None,
    heads: int,
) -> tuple[mx.array, mx.array, mx.array]:
    """Query, key and value heads from any of the packings."""
    parts: list[mx.array]
    if key is None:  # [batch, length, heads, 3, size]
        parts = [query[:, :, :, i].flatten(2) for i in range(3)]
    elif value is None:  # [batch, length, heads, 2, size]
        parts = [query, *(key[:, :, :, i].flatten(2) for i in range(2))]
    else:
        parts = [query, key, value]
    if bias is not None:
        widths = [part.shape[-1] for part in parts]
        shares = mx.split(bias, [widths[0], widths[0] + widths[1]])
        parts = [part + share for part, share in zip(parts, shares, strict=True)]
    q, k, v = (part if part.ndim == 4 else split_heads(part, heads) for part in parts)
    return q, k, v


def attention_mask(
    q: mx.array,
    k: mx.array,
    padding: mx.array | None,
    bias: mx.array | None,
    filter_value: float | None,
    past: int | None,
    added: bool = False,
) -> mx.array | str | None:
    """The mask of padding and an additive bias, causal when `past` keys precede the queries.

    Padding is hidden by adding the filter value, which `added` asks to do to the letter.
    """
    queries, keys = q.shape[2], k.shape[2]
    if padding is None and bias is None and past in (None, keys - queries):
        return None if past is None else "causal"
    seen = None if past is None else _order(queries, keys, past)
    if padding is None:
        return combine(seen, bias)
    kept = _kept(padding, q.shape[0], queries, keys)
    fill = -10000.0 if filter_value is None else filter_value
    if fill == -10000.0 and bias is None and not added:
        # As good as hidden, except from a query that sees nothing else; halves would round it.
        both = kept if seen is None else seen & kept
        alone = mx.logical_not(both.any(axis=-1, keepdims=True))
        return both | (alone if seen is None else seen & alone)
    padded = mx.where(kept, 0.0, max(fill, mx.finfo(q.dtype).min))
    return combine(seen, padded if bias is None else bias.astype(padded.dtype) + padded)


def _order(queries: int, keys: int, past: int) -> mx.array:
    """Causal order, [queries, keys]; where the lengths differ ORT lets the last query see all."""
    query_at = mx.arange(past, past + queries)
    if past + queries != keys:
        query_at = mx.array([*range(past, past + queries - 1), keys - 1])
    return visible(query_at, mx.arange(keys))


def _kept(mask: mx.array, batch: int, queries: int, keys: int) -> mx.array:
    """Which keys are no padding, [batch, 1, 1 or queries, keys], from any of the mask forms."""
    if mask.ndim == 1:
        if mask.size not in (batch, 2 * batch, 3 * batch + 2):
            raise ValueError(f"mask has {mask.size} entries for a batch of {batch}")
        at = mx.arange(keys)
        kept = at < mask[:batch, None]
        if mask.size == 2 * batch:  # ends, then starts
            kept = kept & (at >= mask[batch:, None])
        return kept[:, None, None]
    if mask.shape not in ((batch, keys), (batch, queries, keys)):
        raise ValueError(f"mask does not fit: {mask.shape} for {(batch, queries, keys)}")
    return (mask > 0)[:, None, None] if mask.ndim == 2 else (mask > 0)[:, None]


def _attention_claim(node: Node) -> Iterator[str]:
    if node.attr("do_rotary", 0):
        yield "a rotary embedding inside the projection"
    if node.attr("past_present_share_buffer", 0):
        yield "a past buffer shared with the present"
    if node.rank("mask_index") == 4:
        yield "a 4D mask"
    sizes = node.attr("qkv_hidden_sizes")
    if sizes and sizes[1] != sizes[2] and len(node.outputs) > 1 and node.outputs[1] is not None:
        yield "a present of keys and values of different sizes"


@op("Attention", domain=MS, since=(1,), types={"input": SINGLES}, claim=_attention_claim)
def attention(
    input: mx.array,
    weights: mx.array,
    bias: mx.array | None = None,
    mask_index: mx.array | None = None,
    past: mx.array | None = None,
    attention_bias: mx.array | None = None,
    past_sequence_length: mx.array | None = None,
    *,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    num_heads: int,
    past_present_share_buffer: int | None = None,
    qkv_hidden_sizes: tuple[int, ...] | None = None,
    rotary_embedding_dim: int | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[mx.array, ...]:
    projected = input @ weights if bias is None else mx.addmm(bias, input, weights)
    q, k, v = projected_heads(projected, num_heads, qkv_hidden_sizes)
    k, v, before = _after_past(k, v, past)
    causal = before if unidirectional else None
    mask = attention_mask(q, k, mask_index, attention_bias, mask_filter_value, causal)
    y = merge_heads(attend(q, k, v, scale=default_scale(scale, q.shape[-1]), mask=mask))
    return (y, mx.stack([k, v])) if k.shape == v.shape else (y,)


@op("QAttention", domain=MS, since=(1,), types={"bias": SINGLES}, claim=_attention_claim)
def qattention(
    input: mx.array,
    weight: mx.array,
    bias: mx.array,
    input_scale: mx.array,
    weight_scale: mx.array,
    mask_index: mx.array | None = None,
    input_zero_point: mx.array | None = None,
    weight_zero_point: mx.array | None = None,
    past: mx.array | None = None,
    *,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    num_heads: int,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[mx.array, ...]:
    product = _centred(input, input_zero_point) @ _centred(weight, weight_zero_point)
    rescaled = product * (input_scale.astype(mx.float32) * weight_scale.astype(mx.float32))
    projected = (rescaled + bias.astype(mx.float32)).astype(bias.dtype)
    q, k, v = projected_heads(projected, num_heads)
    k, v, before = _after_past(k, v, past)
    mask = attention_mask(
        q, k, mask_index, None, mask_filter_value, before if unidirectional else None
    )
    y = attend(q, k, v, scale=default_scale(scale, q.shape[-1]), mask=mask)
    return merge_heads(y), mx.stack([k, v])


def _after_past(k: mx.array, v: mx.array, past: mx.array | None) -> tuple[mx.array, mx.array, int]:
    """Keys and values after those of the past, [2, batch, heads, length, size], and its length."""
    if past is None:
        return k, v, 0
    if past.ndim != 5 or past.shape[0] != 2:
        raise ValueError(f"the past is not that of keys and values: {past.shape}")
    k, v = (mx.concatenate(pair, axis=2) for pair in ([past[0], k], [past[1], v]))
    return k, v, past.shape[3]


def _centred(codes: mx.array, zero: mx.array | None) -> mx.array:
    """Quantized codes less their zero point, as float32."""
    codes = codes.astype(mx.float32)
    return codes if zero is None else codes - zero.astype(mx.float32)


def projected_heads(
    projected: mx.array, heads: int, hidden_sizes: tuple[int, ...] | None = None
) -> tuple[mx.array, mx.array, mx.array]:
    """Query, key and value heads from one projection, [batch, length, the three hidden sizes]."""
    third = projected.shape[-1] // 3
    first, second = (hidden_sizes or (third, third))[:2]
    q, k, v = mx.split(projected, [first, first + second], axis=-1)
    return split_heads(q, heads), split_heads(k, heads), split_heads(v, heads)
