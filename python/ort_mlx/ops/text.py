"""TfIdfVectorizer over integer tokens: every window of the sequence is compared with every n-gram.

Source: ONNX TfIdfVectorizer. Pools of strings stay with another provider.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import mlx.core as mx

from ..dtypes import INDICES
from ..node import Node
from ..registry import op


def _claim(node: Node) -> Iterator[str]:
    if not node.attr("pool_int64s"):
        yield "the pool does not hold integers"
    if (mode := node.attr("mode")) not in ("TF", "IDF", "TFIDF"):
        yield f"mode {mode} is unknown"
    indexes = node.attr("ngram_indexes") or ()
    if min(indexes, default=0) < 0:
        yield "an n-gram has a negative place in the output"
    # Weights belong to n-grams in ONNX, to output positions in ONNX Runtime.
    if node.attr("weights") and tuple(indexes) != tuple(range(len(indexes))):
        yield "there are weights for n-grams that are not in the order of the output"


@op("TfIdfVectorizer", since=(9,), types={"x": INDICES}, claim=_claim)
def tf_idf_vectorizer(
    x: mx.array,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: tuple[int, ...],
    ngram_indexes: tuple[int, ...],
    pool_int64s: tuple[int, ...] | None = None,
    pool_strings: tuple[str, ...] | None = None,
    weights: tuple[float, ...] | None = None,
) -> mx.array:
    rows, pool = x.reshape(-1, x.shape[-1]).astype(mx.int64), pool_int64s or ()
    out = mx.zeros((rows.shape[0], max(ngram_indexes) + 1))
    first, starts = 0, (*ngram_counts, len(pool))
    for size, (start, end) in enumerate(pairwise(starts), start=1):
        grams = mx.array(pool[start:end], dtype=mx.int64).reshape(-1, size)
        places = mx.array(ngram_indexes[first : first + grams.shape[0]], dtype=mx.int32)
        first += grams.shape[0]
        if grams.size and min_gram_length <= size <= max_gram_length:
            skips = range(max_skip_count + 1 if size > 1 else 1)
            out = out.at[:, places].add(sum(_count(rows, grams, skip) for skip in skips))
    if mode == "IDF":
        out = (out > 0).astype(mx.float32)
    out = out * mx.array(weights, dtype=mx.float32) if weights and mode != "TF" else out
    return out.reshape(*x.shape[:-1], -1)


def _count(rows: mx.array, grams: mx.array, skip: int) -> mx.array:
    """How often each n-gram [grams, size] occurs in each row, its tokens `skip` apart."""
    size = grams.shape[1]
    windows = rows.shape[1] - (skip + 1) * (size - 1)
    if windows <= 0:
        return mx.zeros((rows.shape[0], grams.shape[0]))
    found = mx.array(True)
    for place in range(size):
        start = place * (skip + 1)
        found = found & (rows[:, start : start + windows, None] == grams[:, place])
    return found.sum(axis=1).astype(mx.float32)
