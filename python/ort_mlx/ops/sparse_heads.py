"""Attention over blocks of positions: a layout for each head says which blocks a block may see.

Source: com.microsoft SparseAttention. MLX has no kernel that skips blocks, so the layout becomes a
mask of mx.fast.scaled_dot_product_attention.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..bounds import lengths
from ..dtypes import SINGLES
from ..hosts import HostInt
from ..node import Node
from ..registry import MS, op
from ._cache import append
from ._heads import attend, default_scale, merge_heads, visible
from .group_query import split_packed
from .rotary import rotate, table_rows


def _claim(node: Node) -> Iterator[str]:
    if node.missing("key") != node.missing("value"):
        yield "only one of key and value"
    if node.attr("do_rotary", 0) and (node.missing("cos_cache") or node.missing("sin_cache")):
        yield "rotary embedding without its tables"


@op("SparseAttention", domain=MS, since=(1,), types={"query": SINGLES}, claim=_claim)
def sparse_attention(
    query: mx.array,
    key: mx.array | None,
    value: mx.array | None,
    past_key: mx.array,
    past_value: mx.array,
    block_row_indices: mx.array,
    block_col_indices: mx.array,
    total_sequence_length: HostInt,
    key_total_sequence_lengths: mx.array,
    cos_cache: mx.array | None = None,
    sin_cache: mx.array | None = None,
    *,
    do_rotary: int | None = None,
    kv_num_heads: int,
    num_heads: int,
    rotary_interleaved: int | None = None,
    scale: float | None = None,
    sparse_block_size: int,
) -> tuple[mx.array, mx.array, mx.array]:
    q, k, v = split_packed(query, key, value, num_heads, kv_num_heads)
    length, capacity = q.shape[2], past_key.shape[2]
    if not length <= total_sequence_length <= capacity:
        raise ValueError(
            f"total_sequence_length {total_sequence_length} is not between the {length} new tokens "
            f"and the cache: {past_key.shape}"
        )
    start = mx.maximum(key_total_sequence_lengths.reshape(-1) - length, 0)
    query_at = start[:, None] + mx.arange(length)
    if do_rotary and cos_cache is not None and sin_cache is not None:
        cos, sin = table_rows(cos_cache, sin_cache, query_at)
        q, k = (rotate(t, cos, sin, interleaved=bool(rotary_interleaved)) for t in (q, k))
    cache = append(past_key, past_value, k, v, start, total_sequence_length)
    blocks = _layouts(block_row_indices, block_col_indices)
    count = blocks.shape[1]
    if count * sparse_block_size < total_sequence_length:
        raise ValueError(f"{count} blocks are too few for {total_sequence_length} positions")
    if num_heads % blocks.shape[0]:
        raise ValueError(f"{blocks.shape[0]} layouts do not fit {num_heads} heads")
    rows = mx.take(blocks, lengths(query_at // sparse_block_size, count - 1), axis=1)
    columns = mx.arange(total_sequence_length) // sparse_block_size
    seen = mx.take(rows, columns, axis=-1).swapaxes(0, 1)  # [batch, layouts, queries, keys]
    seen = mx.tile(seen, (1, num_heads // blocks.shape[0], 1, 1))
    seen = seen & visible(query_at, cache.positions)[:, None]
    y = attend(q, cache.key, cache.value, scale=default_scale(scale, q.shape[-1]), mask=seen)
    return merge_heads(y), cache.present_key, cache.present_value


def _layouts(row_ends: mx.array, columns: mx.array) -> mx.array:
    """Which blocks each block sees, [layouts, blocks, blocks], from compressed sparse rows."""
    layouts, count = row_ends.shape[0], row_ends.shape[1] - 1
    place = mx.arange(columns.shape[1])
    row = (row_ends[:, 1:, None] <= place).sum(axis=1).astype(mx.int32)
    used = (row < count) & (columns >= 0) & (columns < count)
    at = mx.where(used, row * count + columns, count * count)  # what is not used goes behind
    seen = mx.zeros((layouts, count * count + 1), dtype=mx.bool_)
    seen = mx.put_along_axis(seen, at, mx.array(True), axis=1)
    return seen[:, :-1].reshape(layouts, count, count)
