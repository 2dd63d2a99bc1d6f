"""Scaled dot product attention of the ONNX domain.

Sources: ONNX Attention-23, -24 (nonpad_kv_seqlen) and -25 (sliding windows);
mx.fast.scaled_dot_product_attention.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import BOOL, FLOATS, ONNX_NAMES
from ..node import Node
from ..registry import op
from ._heads import (
    NEVER,
    attend,
    cap,
    combine,
    default_scale,
    masked,
    meet,
    merge_heads,
    scalar,
    score,
    softmax,
    split_heads,
    visible,
    weigh,
)

_TYPES = {"q": FLOATS, "k": FLOATS, "v": FLOATS, "attn_mask": FLOATS | BOOL}


def _attention_claim(node: Node) -> Iterator[str]:
    precision = node.attr("softmax_precision")
    if ONNX_NAMES.get(precision) == "float64" and node.dtype("q") != "float64":
        yield "softmax_precision asks for float64"
    if node.missing("past_key") != node.missing("past_value"):
        yield "only one of past_key and past_value"
    if node.rank("q") == 3 and not (node.attr("q_num_heads") and node.attr("kv_num_heads")):
        yield "a 3D query without q_num_heads and kv_num_heads"


@op("Attention", since=(23,), types=_TYPES, claim=_attention_claim)
def attention_23(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    attn_mask: mx.array | None = None,
    past_key: mx.array | None = None,
    past_value: mx.array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    node: Node,
) -> tuple[mx.array | None, ...]:
    return attention(
        q,
        k,
        v,
        attn_mask,
        past_key,
        past_value,
        is_causal=is_causal,
        kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads,
        qk_matmul_output_mode=qk_matmul_output_mode,
        scale=scale,
        softcap=softcap,
        node=node,
    )


@op("Attention", since=(24,), types=_TYPES, claim=_attention_claim)
def attention_24(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    attn_mask: mx.array | None = None,
    past_key: mx.array | None = None,
    past_value: mx.array | None = None,
    nonpad_kv_seqlen: mx.array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    node: Node,
) -> tuple[mx.array | None, ...]:
    return attention(
        q,
        k,
        v,
        attn_mask,
        past_key,
        past_value,
        nonpad_kv_seqlen,
        is_causal=is_causal,
        kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads,
        qk_matmul_output_mode=qk_matmul_output_mode,
        scale=scale,
        softcap=softcap,
        node=node,
    )


@op("Attention", since=(25,), types=_TYPES, claim=_attention_claim)
def attention(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    attn_mask: mx.array | None = None,
    past_key: mx.array | None = None,
    past_value: mx.array | None = None,
    nonpad_kv_seqlen: mx.array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    node: Node,
) -> tuple[mx.array | None, ...]:
    packed = q.ndim == 3
    if packed:
        q, k, v = (
            split_heads(t, heads or 0)
            for t, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
        )
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = (mx.concatenate(pair, axis=2) for pair in ([past_key, k], [past_value, v]))
    queries, keys = q.shape[2], k.shape[2]
    window = (left_window_size, right_window_size)
    scale = default_scale(None, q.shape[-1]) if scale is None else scale
    plain = attn_mask is None and nonpad_kv_seqlen is None and window == (-1, -1)
    if plain and (not is_causal or past + queries == keys) and not _wants_scores(node):
        order = "causal" if is_causal else None
        y = attend(q, k, v, scale=scale, mask=order, softcap=softcap)
        return merge_heads(y) if packed else y, k, v, None

    seen, bias = _given_mask(attn_mask, keys)
    seen = meet(seen, _positional_mask(queries, keys, past, nonpad_kv_seqlen, is_causal, window))
    mask = combine(seen, bias)
    blank = _blank_rows(mask)
    if _wants_scores(node):
        y, scores = _with_scores(q, k, v, mask, blank, scale, softcap, qk_matmul_output_mode)
    else:
        y, scores = attend(q, k, v, scale=scale, mask=mask, softcap=softcap), None
    if blank is not None:
        y = mx.where(blank, scalar(0.0, y.dtype), y)
    return merge_heads(y) if packed else y, k, v, scores


def _wants_scores(node: Node) -> bool:
    return len(node.outputs) > 3 and node.outputs[3] is not None


def _given_mask(mask: mx.array | None, keys: int) -> tuple[mx.array | None, mx.array | None]:
    """The model's mask as what may be seen and what is added; a short one hides the last keys."""
    if mask is None:
        return None, None
    boolean = mask.dtype == mx.bool_
    if (short := keys - mask.shape[-1]) > 0:
        hidden = mx.array(False) if boolean else scalar(NEVER, mask.dtype)
        mask = mx.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, short)], constant_values=hidden)
    return (mask, None) if boolean else (None, mask)


def _positional_mask(
    queries: int,
    keys: int,
    past: int,
    valid: mx.array | None,
    is_causal: int,
    window: tuple[int, int],
) -> mx.array | None:
    """What each query may see by position: causal order, a window, and the valid keys."""
    key_at = mx.arange(keys)
    first: mx.array | int = past
    padding = None
    if valid is not None:
        padding = key_at < valid[:, None, None, None]
        first = valid[:, None, None] - queries
    if not is_causal and window == (-1, -1):
        return padding
    query_at = mx.arange(queries) + first
    seen = visible(query_at, key_at, causal=bool(is_causal), left=window[0], right=window[1])
    return meet(seen, padding)


def _blank_rows(mask: mx.array | None) -> mx.array | None:
    """Queries that may see no key at all, [..., queries, 1]: their result is zero."""
    if mask is None:
        return None
    if mask.dtype == mx.bool_:
        return mx.logical_not(mask.any(axis=-1, keepdims=True))
    return (mask == NEVER).all(axis=-1, keepdims=True)


def _with_scores(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    mask: mx.array | None,
    blank: mx.array | None,
    scale: float,
    softcap: float,
    mode: int,
) -> tuple[mx.array, mx.array]:
    """The attention and its scores: raw, capped, masked or after the softmax, by mode."""
    raw = score(q, k, scale)
    capped = cap(raw, softcap)
    added = masked(capped, mask)
    weights = softmax(added)
    if blank is not None:
        weights = mx.where(blank, scalar(0.0, weights.dtype), weights)
    y = weigh(weights, v).astype(q.dtype)
    return y, (raw, capped, added, weights)[mode].astype(q.dtype)
