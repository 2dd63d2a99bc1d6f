"""Attention over a cache of pages: packed tokens of many sequences, and tables of their pages.

Source: com.microsoft PagedAttention. All tokens attend the pages of all sequences at once, where a
mask keeps sequences apart: only shapes are traced, whatever the sequences' lengths are.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import HALVES
from ..node import Node
from ..registry import MS, op
from ._heads import attend, default_scale, merge_heads, scalar
from ._quantized_cache import Codes, codes_of
from .group_query import split_packed
from .rotary import rotate, table_rows

_CACHE_TYPES = HALVES | {"int8", "float8e4m3fn"}


def _claim(node: Node) -> Iterator[str]:
    latent = node.attr("kv_cache_layout", "SEPARATE") == "LATENT"
    if node.attr("kv_cache_layout", "SEPARATE") not in ("SEPARATE", "LATENT"):
        yield f"cache layout {node.attr('kv_cache_layout')}"
    if not latent and node.missing("key") != node.missing("value"):
        yield "only one of key and value"
    if node.missing("value_cache") != latent:
        yield "a value cache that does not fit the cache layout"
    if latent and node.missing("key"):
        yield "packed queries and keys of a latent cache"
    if node.missing("q_norm_weight") != node.missing("k_norm_weight"):
        yield "only one of q_norm_weight and k_norm_weight"
    if node.attr("do_rotary", 0) and (node.missing("cos_cache") or node.missing("sin_cache")):
        yield "rotary embedding without its tables"
    if len([o for o in node.outputs if o is not None]) < (2 if latent else 3):
        yield "a cache that is only written in place"
    for side in ("k",) if latent else ("k", "v"):
        cached = node.dtype("key_cache" if side == "k" else "value_cache")
        named = node.attr(f"{side}_cache_dtype", "") or cached
        kind, is_plain = node.attr(f"{side}_quant_type", "NONE"), cached in HALVES
        if named != cached:
            yield f"a cache of {named} held in {cached}"
        if kind not in ("NONE", "PER_TENSOR", "PER_CHANNEL") or (kind == "NONE") != is_plain:
            yield f"quantization {kind} of a cache of {cached}"
        elif not is_plain and node.missing(f"{side}_scale"):
            yield "a quantized cache without its scale"


@op(
    "PagedAttention",
    domain=MS,
    since=(1,),
    types={"query": HALVES, "key_cache": _CACHE_TYPES, "value_cache": _CACHE_TYPES},
    claim=_claim,
)
def paged_attention(
    query: mx.array,
    key: mx.array | None,
    value: mx.array | None,
    key_cache: mx.array,
    value_cache: mx.array | None,
    cumulative_sequence_length: mx.array,
    past_seqlens: mx.array,
    block_table: mx.array,
    cos_cache: mx.array | None = None,
    sin_cache: mx.array | None = None,
    slot_mapping: mx.array | None = None,
    head_sink: mx.array | None = None,
    q_norm_weight: mx.array | None = None,
    k_norm_weight: mx.array | None = None,
    k_scale: mx.array | None = None,
    v_scale: mx.array | None = None,
    attention_metadata: mx.array | None = None,
    *,
    do_rotary: int | None = None,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float | None = None,
    rotary_interleaved: int | None = None,
    rotary_offset: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    v_cache_dtype: str = "",
    v_head_size: int | None = None,
    v_quant_type: str = "NONE",
    node: Node,
) -> tuple[mx.array | None, ...]:
    if key is not None and value is None:  # values are the first channels of the keys
        value = key
    new_key, new_value = (None if t is None else t[None] for t in (key, value))
    q, k, v = split_packed(query[None], new_key, new_value, num_heads, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        epsilon = 1e-6 if qk_norm_epsilon is None else qk_norm_epsilon
        q = mx.fast.rms_norm(q, q_norm_weight, epsilon)
        k = mx.fast.rms_norm(k, k_norm_weight, epsilon)
    pages = _Pages(key_cache, cumulative_sequence_length, past_seqlens, block_table, q.shape[2])
    if do_rotary and cos_cache is not None and sin_cache is not None:
        cos, sin = table_rows(cos_cache, sin_cache, pages.query_at[None])
        first = rotary_offset or 0
        q, k = (
            mx.concatenate(
                [
                    t[..., :first],
                    rotate(t[..., first:], cos, sin, interleaved=bool(rotary_interleaved)),
                ],
                axis=-1,
            )
            for t in (q, k)
        )
    slots = pages.slots(slot_mapping)
    k_codes = codes_of(k_quant_type, node.dtype("key_cache"), k_scale, k)
    key_cache = _store(key_cache, k, slots, k_codes)
    keys = pages.read(key_cache, k_codes, q.dtype)
    if value_cache is None:
        values = keys[..., : v_head_size or keys.shape[-1]]
    else:
        v_codes = codes_of(v_quant_type, node.dtype("value_cache"), v_scale, v)
        value_cache = _store(value_cache, v, slots, v_codes)
        values = pages.read(value_cache, v_codes, q.dtype)
    seen = pages.seen(bool(is_causal), local_window_size)
    y = attend(
        q,
        keys,
        values,
        scale=default_scale(scale, q.shape[-1]),
        mask=seen,
        softcap=softcap or 0.0,
        sinks=head_sink,
    )
    y = mx.where(seen.any(axis=-1, keepdims=True), y, scalar(0, y.dtype))
    return merge_heads(y)[0], key_cache, value_cache


class _Pages:
    """Where the tokens of each sequence lie in a cache [pages, page size, heads, size]."""

    def __init__(
        self, cache: mx.array, ends: mx.array, past: mx.array, table: mx.array, tokens: int
    ) -> None:
        self.count, self.size = cache.shape[:2]
        if table.shape[0] != past.size or ends.size != past.size + 1 or not table.size:
            raise ValueError(f"sequences do not fit: {ends.shape}, {past.shape}, {table.shape}")
        token = mx.arange(tokens)
        sequence = (ends[1:] <= token[:, None]).sum(axis=1)
        self.is_real = (sequence < past.size) & (token >= ends[0])
        self.sequence = mx.minimum(sequence, past.size - 1)
        self.table = mx.where((table >= 0) & (table < self.count), table, -1)
        past = mx.maximum(past, 0)
        self.query_at = past[self.sequence] + token - ends[self.sequence]
        self.totals = past + mx.maximum(ends[1:] - ends[:-1], 0)

    def slots(self, given: mx.array | None) -> mx.array:
        """The row of the flat cache for each token; -1 where it is not stored."""
        if given is not None:
            slot = given
        else:
            page = self.query_at // self.size
            inside = (page >= 0) & (page < self.table.shape[1])
            at = self.table[self.sequence, mx.where(inside, page, 0)]
            slot = mx.where(inside & (at >= 0), at * self.size + self.query_at % self.size, -1)
        return mx.where(self.is_real & (slot < self.count * self.size), slot, -1)

    def read(self, cache: mx.array, codes: Codes | None, dtype: mx.Dtype) -> mx.array:
        """The rows of all sequences one after the other, [1, heads, rows, size]."""
        rows = mx.take(cache, mx.maximum(self.table, 0).reshape(-1), axis=0).flatten(0, 1)
        heads = rows[None].swapaxes(1, 2)
        return heads.astype(dtype) if codes is None else codes.decode(heads, dtype)

    def seen(self, causal: bool, window: int) -> mx.array:
        """Which of those rows each token attends, [tokens, rows]."""
        sequences, width = self.table.shape
        row = mx.arange(width * self.size)
        mapped = mx.repeat(self.table >= 0, self.size, axis=1)
        held = (mapped & (row < self.totals[:, None])).reshape(-1)
        own = mx.repeat(mx.arange(sequences), row.size) == self.sequence[:, None]
        ahead = mx.tile(row, (sequences,)) - self.query_at[:, None]
        seen = own & held & self.is_real[:, None]
        if causal:
            seen = seen & (ahead <= 0)
        return seen & (ahead > -window) if window > 0 else seen


def _store(cache: mx.array, rows: mx.array, slots: mx.array, codes: Codes | None) -> mx.array:
    """The cache with [1, heads, tokens, size] rows at these slots, but for those that are -1."""
    rows = rows.astype(cache.dtype) if codes is None else codes.encode(rows)
    rows = rows[0].swapaxes(0, 1)
    if not slots.size:
        return cache
    flat = cache.flatten(0, 1)
    stored = slots >= 0
    # A token that is not stored repeats one that is, or what the cache holds when there is none.
    other = mx.argmax(stored)
    source = mx.where(stored, mx.arange(slots.size), other)
    at = mx.maximum(slots[source], 0)
    made = mx.where(stored[other], rows[source], flat[at])
    index = mx.broadcast_to(at[:, None, None], made.shape)
    return mx.put_along_axis(flat, index, made, axis=0).reshape(cache.shape)
