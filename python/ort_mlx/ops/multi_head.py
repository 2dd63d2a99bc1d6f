"""Multi-head attention of com.microsoft: separate, packed, projected and quantized inputs.

Sources: com.microsoft MultiHeadAttention, Attention and QAttention, with the mask forms they share;
mx.fast.scaled_dot_product_attention.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import MLX_DTYPES, SINGLES
from ..hosts import HostInt
from ..node import Node, Value
from ..registry import MS, op
from ._cache import Cache, by_beam, extend
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
    if node.missing("past_sequence_length") and not node.missing("cache_indirection"):
        yield "beams without past_sequence_length"
    if node.missing("past_key") and not node.missing("past_sequence_length"):
        yield "past_sequence_length without past_key"
    if not node.missing("bias") and node.rank("key") == 5:
        yield "a bias with packed keys"
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
    past_sequence_length: HostInt | None = None,
    cache_indirection: mx.array | None = None,
    *,
    mask_filter_value: float | None = None,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
    node: Node,
) -> tuple[mx.array | None, ...]:
    q, k, v = _heads_of(query, key, value, bias, num_heads)
    cache, past = extend(past_key, past_value, k, v, past_sequence_length)
    if cache_indirection is not None:
        cache = by_beam(cache, cache_indirection, past)
    scores = node.outputs[3] if len(node.outputs) > 3 else None
    causal = past if unidirectional else None
    mask = attention_mask(
        q,
        cache.key,
        key_padding_mask,
        attention_bias,
        mask_filter_value,
        causal,
        scores is not None,
    )
    y, logits = attend_heads(q, cache, default_scale(scale, q.shape[-1]), mask, scores)
    return y, cache.present_key, cache.present_value, logits


def attend_heads(
    q: mx.array,
    cache: Cache,
    scale: float,
    mask: mx.array | str | None,
    scores: Value | None = None,
) -> tuple[mx.array, mx.array | None]:
    """The attention as tokens, and before the softmax its scores if they are this output."""
    if scores is None:
        return merge_heads(attend(q, cache.key, cache.value, scale=scale, mask=mask)), None
    logits = masked(score(q, cache.key, scale), mask)
    y = weigh(softmax(logits), cache.value).astype(q.dtype)
    logits = mx.maximum(logits, mx.finfo(q.dtype).min)  # ORT hides with the lowest value
    return merge_heads(y), logits.astype(MLX_DTYPES[scores.dtype])


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
    if bias is not None and parts[1].ndim == 4:  # cached keys and values have theirs already
        parts[0] = parts[0] + bias[: parts[0].shape[-1]]
    elif bias is not None:
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
    if mask.ndim == 4:  # the queries are the last positions
        side = min(mask.shape[2:])
        if mask.shape[:2] != (batch, 1) or side < keys:
            raise ValueError(f"mask does not fit: {mask.shape} for {(batch, queries, keys)}")
        return mask[:, :, keys - queries : keys, :keys] > 0
    if mask.shape not in ((batch, keys), (batch, queries, keys)):
        raise ValueError(f"mask does not fit: {mask.shape} for {(batch, queries, keys)}")
    return (mask > 0)[:, None, None] if mask.ndim == 2 else (mask > 0)[:, None]


def _attention_claim(node: Node) -> Iterator[str]:
    if node.attr("do_rotary", 0):
        yield "a rotary embedding inside the projection"
    if node.rank("mask_index") == 4 and node.attr("unidirectional", 0):
        yield "a 4D mask and causal order"
    sizes = node.attr("qkv_hidden_sizes")
    if sizes and sizes[1] != sizes[2] and len(node.outputs) > 1 and node.outputs[1] is not None:
        yield "a present of keys and values of different sizes"


def _shared_claim(node: Node) -> Iterator[str]:
    yield from _attention_claim(node)
    if node.attr("past_present_share_buffer", 0) and (
        node.missing("past") or node.missing("past_sequence_length")
    ):
        yield "a shared past without its buffer or past_sequence_length"


@op("Attention", domain=MS, since=(1,), types={"input": SINGLES}, claim=_shared_claim)
def attention(
    input: mx.array,
    weights: mx.array,
    bias: mx.array | None = None,
    mask_index: mx.array | None = None,
    past: mx.array | None = None,
    attention_bias: mx.array | None = None,
    past_sequence_length: HostInt | None = None,
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
    filled = past_sequence_length if past_present_share_buffer else None
    cache, before = _after_past(k, v, past, filled)
    causal = before if unidirectional else None
    mask = attention_mask(q, cache.key, mask_index, attention_bias, mask_filter_value, causal)
    y, _ = attend_heads(q, cache, default_scale(scale, q.shape[-1]), mask)
    return (y, _present(cache)) if k.shape == v.shape else (y,)


def _quantized_claim(node: Node) -> Iterator[str]:
    yield from _attention_claim(node)
    if node.attr("past_present_share_buffer", 0):
        yield "a past buffer shared with the present"


@op("QAttention", domain=MS, since=(1,), types={"bias": SINGLES}, claim=_quantized_claim)
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
    cache, before = _after_past(k, v, past, None)
    mask = attention_mask(
        q, cache.key, mask_index, None, mask_filter_value, before if unidirectional else None
    )
    y, _ = attend_heads(q, cache, default_scale(scale, q.shape[-1]), mask)
    return y, _present(cache)


def _after_past(
    k: mx.array, v: mx.array, past: mx.array | None, filled: int | None
) -> tuple[Cache, int]:
    """Keys and values after those of the past, [2, batch, heads, length, size], and its length."""
    if past is None:
        return extend(None, None, k, v)
    if past.ndim != 5 or past.shape[0] != 2:
        raise ValueError(f"the past is not that of keys and values: {past.shape}")
    return extend(past[0], past[1], k, v, filled)


def _present(cache: Cache) -> mx.array:
    return mx.stack([cache.present_key, cache.present_value])


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
