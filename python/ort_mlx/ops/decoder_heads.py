"""Multi-head attention of single new tokens, over a cache that beams may share.

Source: com.microsoft DecoderMaskedMultiHeadAttention. Keys lie in the cache in their order, as in
ONNX Runtime's CPU kernel; the order of its CUDA kernel is not that of this operator's inputs here.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..hosts import HostInt
from ..node import Node
from ..registry import MS, op
from ._cache import by_beam, extend
from ._heads import default_scale, split_heads
from .multi_head import attend_heads, attention_mask, projected_heads


def _claim(node: Node) -> Iterator[str]:
    if node.missing("key") != node.missing("value"):
        yield "only one of key and value"
    if node.missing("past_key") != node.missing("past_value"):
        yield "only one of past_key and past_value"
    if node.missing("key") and node.missing("past_key"):
        yield "neither keys nor a past"
    shared = node.attr("past_present_share_buffer", 0)
    if shared and not node.missing("past_key") and node.missing("past_sequence_length"):
        yield "a shared past without past_sequence_length"
    alone = node.missing("beam_width") or node.const("beam_width") == (1,)
    if node.missing("cache_indirection") and not alone:
        yield "beams without cache_indirection"


@op(
    "DecoderMaskedMultiHeadAttention",
    domain=MS,
    since=(1,),
    types={"query": frozenset({"float16", "float32"})},
    claim=_claim,
)
def decoder_masked_multi_head_attention(
    query: mx.array,
    key: mx.array | None = None,
    value: mx.array | None = None,
    mask_index: mx.array | None = None,
    attention_bias: mx.array | None = None,
    past_key: mx.array | None = None,
    past_value: mx.array | None = None,
    past_sequence_length: HostInt | None = None,
    beam_width: mx.array | None = None,
    cache_indirection: mx.array | None = None,
    bias: mx.array | None = None,
    *,
    mask_filter_value: float | None = None,
    num_heads: int,
    output_qk: int | None = None,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    node: Node,
) -> tuple[mx.array | None, ...]:
    if key is not None and key.ndim == 4 and value is not None:  # of another sequence
        if bias is not None:
            query = query + bias[: query.shape[-1]]
        q, k, v = split_heads(query, num_heads), key, value
    else:
        parts = [query] if key is None or value is None else [query, key, value]
        joined = mx.concatenate(parts, axis=-1)
        widths = (query.shape[-1],) * 2
        if past_key is not None:
            widths = (past_key.shape[1] * past_key.shape[3],) * 2
        q, k, v = projected_heads(joined if bias is None else joined + bias, num_heads, widths)
    filled = past_sequence_length if past_present_share_buffer else None
    cache, past = extend(past_key, past_value, k, v, filled)
    if cache_indirection is not None:
        cache = by_beam(cache, cache_indirection, past)
    scores = node.outputs[3] if output_qk and len(node.outputs) > 3 else None
    mask = attention_mask(
        q, cache.key, mask_index, attention_bias, mask_filter_value, None, scores is not None
    )
    y, logits = attend_heads(q, cache, default_scale(scale, q.shape[-1]), mask, scores)
    return y, cache.present_key, cache.present_value, logits
