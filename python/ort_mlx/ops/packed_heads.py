"""Attention over packed tokens: a batch of sequences without their padding, one after the other.

Sources: com.microsoft PackedMultiHeadAttention and PackedAttention. The tokens are put back into
padded rows for mx.fast.scaled_dot_product_attention and packed again.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..bounds import inside
from ..dtypes import HALVES
from ..node import Node
from ..registry import MS, op
from ._heads import attend, default_scale, merge_heads, split_heads
from .multi_head import attention_mask

_TYPES = HALVES - {"bfloat16"} | {"float32"}


def _packed_claim(node: Node) -> Iterator[str]:
    if node.missing("key") != node.missing("value"):
        yield "only one of key and value"


@op(
    "PackedMultiHeadAttention",
    domain=MS,
    since=(1,),
    types={"query": _TYPES},
    claim=_packed_claim,
)
def packed_multi_head_attention(
    query: mx.array,
    key: mx.array | None,
    value: mx.array | None,
    bias: mx.array | None,
    token_offset: mx.array,
    cumulative_sequence_length: mx.array,
    attention_bias: mx.array | None = None,
    *,
    mask_filter_value: float | None = None,
    num_heads: int,
    scale: float | None = None,
) -> mx.array:
    if key is None or value is None:  # [tokens, heads, 3, size]
        parts = [query[:, :, i].flatten(1) for i in range(3)]
    else:
        parts = [query, key, value]
    if bias is not None:
        widths = [part.shape[-1] for part in parts]
        shares = mx.split(bias, [widths[0], widths[0] + widths[1]])
        parts = [part + share for part, share in zip(parts, shares, strict=True)]
    return _attend_packed(
        parts, token_offset, cumulative_sequence_length, attention_bias, num_heads, scale
    )


@op("PackedAttention", domain=MS, since=(1,), types={"input": _TYPES})
def packed_attention(
    input: mx.array,
    weights: mx.array,
    bias: mx.array,
    token_offset: mx.array,
    cumulative_sequence_length: mx.array,
    attention_bias: mx.array | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: tuple[int, ...] | None = None,
    scale: float | None = None,
) -> mx.array:
    third = weights.shape[-1] // 3
    first, second = (qkv_hidden_sizes or (third, third))[:2]
    parts = [*mx.split(mx.addmm(bias, input, weights), [first, first + second], axis=-1)]
    return _attend_packed(
        parts, token_offset, cumulative_sequence_length, attention_bias, num_heads, scale
    )


def _attend_packed(
    parts: list[mx.array],
    token_offset: mx.array,
    ends: mx.array,
    attention_bias: mx.array | None,
    heads: int,
    scale: float | None,
) -> mx.array:
    """Attention within each sequence of packed queries, keys and values, [tokens, hidden]."""
    batch, length = token_offset.shape
    where = inside(token_offset, batch * length).reshape(-1)[: parts[0].shape[0]]
    q, k, v = (split_heads(_unpack(part, where, batch, length), heads) for part in parts)
    lengths = ends[1:] - ends[:-1]
    mask = attention_mask(q, k, lengths, attention_bias, None, past=None)
    y = attend(q, k, v, scale=default_scale(scale, q.shape[-1]), mask=mask)
    return mx.take(merge_heads(y).flatten(0, 1), where, axis=0)


def _unpack(tokens: mx.array, where: mx.array, batch: int, length: int) -> mx.array:
    """Padded rows [batch, length, hidden] from packed tokens and the row of each."""
    rows = mx.zeros((batch * length, tokens.shape[-1]), dtype=tokens.dtype)
    at = mx.broadcast_to(where[:, None], tokens.shape)
    return mx.put_along_axis(rows, at, tokens, axis=0).reshape(batch, length, tokens.shape[-1])
