"""Attention arithmetic shared by the attention ops: heads, masks by position, softmax of scores.

Layouts: tokens are [batch, length, heads * size], heads are [batch, heads, length, size], scores
and masks are [batch, heads, queries, keys] or broadcast to it.
Sources: ONNX Attention, com.microsoft MultiHeadAttention and GroupQueryAttention; the fused form
is mx.fast.scaled_dot_product_attention.
"""

from __future__ import annotations

import mlx.core as mx

from ._elementwise import softmax as exact_softmax

NEVER = float("-inf")


def split_heads(tokens: mx.array, heads: int) -> mx.array:
    """[batch, length, heads * size] to [batch, heads, length, size]."""
    batch, length, hidden = tokens.shape
    if heads <= 0 or hidden % heads:
        raise ValueError(f"hidden size is not a multiple of {heads} heads: {tokens.shape}")
    return tokens.reshape(batch, length, heads, hidden // heads).swapaxes(1, 2)


def merge_heads(heads: mx.array) -> mx.array:
    """[batch, heads, length, size] to [batch, length, heads * size]."""
    batch, count, length, size = heads.shape
    return heads.swapaxes(1, 2).reshape(batch, length, count * size)


def accumulator(dtype: mx.Dtype) -> mx.Dtype:
    """The dtype in which sums over this one are made."""
    return dtype if dtype == mx.float64 else mx.float32


def scalar(value: float, dtype: mx.Dtype) -> mx.array:
    """A constant of exactly this dtype; a bare Python float would be rounded to float32 first."""
    return mx.array(value, dtype=dtype)


def attend(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    softcap: float = 0.0,
    sinks: mx.array | None = None,
) -> mx.array:
    """Softmax attention in the query's dtype.

    A mask is boolean (True attends), additive, or "causal", which aligns the last query and key.
    """
    if not softcap and query.dtype != mx.float64:
        if isinstance(mask, mx.array) and mask.dtype != mx.bool_:
            mask = mask.astype(query.dtype)
        sinks = None if sinks is None else sinks.astype(query.dtype)
        key, value = key.astype(query.dtype), value.astype(query.dtype)
        return mx.fast.scaled_dot_product_attention(
            query, key, value, scale=scale, mask=mask, sinks=sinks
        )
    logits = cap(score(query, key, scale), softcap)
    return weigh(softmax(masked(logits, mask), sinks), value).astype(query.dtype)


def score(query: mx.array, key: mx.array, scale: float) -> mx.array:
    """The scaled products of every query with every key, [batch, heads, queries, keys]."""
    dtype = accumulator(query.dtype)
    batch, heads, length, size = query.shape
    shared = key.shape[1]
    rows = length * heads // shared
    query = (query.astype(dtype) * scalar(scale, dtype)).reshape(batch, shared, rows, size)
    logits = query @ key.astype(dtype).swapaxes(-1, -2)
    return logits.reshape(batch, heads, length, key.shape[2])


def cap(logits: mx.array, softcap: float) -> mx.array:
    """Squash scores smoothly into (-softcap, softcap); 0 leaves them alone."""
    if not softcap:
        return logits
    limit = scalar(softcap, logits.dtype)
    return mx.tanh(logits / limit) * limit


def masked(logits: mx.array, mask: mx.array | str | None) -> mx.array:
    """Scores with a mask applied."""
    if mask is None:
        return logits
    if isinstance(mask, str):
        queries, keys = logits.shape[-2:]
        mask = visible(mx.arange(keys - queries, keys), mx.arange(keys))
    if mask.dtype == mx.bool_:
        return mx.where(mask, logits, scalar(NEVER, logits.dtype))
    return logits + mask.astype(logits.dtype)


def softmax(logits: mx.array, sinks: mx.array | None = None) -> mx.array:
    """Softmax over the keys; a sink is a logit per head that only enters the denominator."""
    if sinks is None:
        return exact_softmax(logits, (-1,))
    sink = mx.broadcast_to(sinks.astype(logits.dtype)[:, None, None], (*logits.shape[:-1], 1))
    return exact_softmax(mx.concatenate([logits, sink], axis=-1), (-1,))[..., :-1]


def weigh(weights: mx.array, value: mx.array) -> mx.array:
    """Sum of the values by their attention weights, [batch, heads, queries, size]."""
    batch, heads, length, keys = weights.shape
    shared = value.shape[1]
    rows = length * heads // shared
    mixed = weights.reshape(batch, shared, rows, keys) @ value.astype(weights.dtype)
    return mixed.reshape(batch, heads, length, value.shape[-1])


def visible(
    queries: mx.array, keys: mx.array, *, causal: bool = True, left: int = -1, right: int = -1
) -> mx.array:
    """Which keys each query may attend, by absolute positions: [..., queries, keys].

    Args:
        queries: positions of the queries, [..., queries].
        keys: positions of the keys, [..., keys].
        causal: no key after the query.
        left: how many keys before the query, -1 for all.
        right: how many keys after the query, -1 for all.
    """
    ahead = keys[..., None, :] - queries[..., :, None]
    seen = ahead <= 0 if causal else ahead == ahead
    if left >= 0:
        seen = seen & (ahead >= -left)
    if right >= 0:
        seen = seen & (ahead <= right)
    return seen


def meet(first: mx.array | None, second: mx.array | None) -> mx.array | None:
    """Both boolean masks at once, where None hides nothing."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def combine(seen: mx.array | None, bias: mx.array | None) -> mx.array | None:
    """One mask from what may be seen and what is added, where None changes nothing."""
    if seen is None or bias is None:
        return seen if bias is None else bias
    return mx.where(seen, bias, scalar(NEVER, bias.dtype))


def default_scale(scale: float | None, size: int) -> float:
    """The given scale, or one over the root of the head size when it is left out or 0."""
    return scale or (size**-0.5 if size else 1.0)
