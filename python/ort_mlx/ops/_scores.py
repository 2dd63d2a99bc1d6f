"""What ai.onnx.ml models do with their scores: the post transforms, and class labels.

Sources: ONNX ai.onnx.ml `post_transform`; ONNX Runtime's CPU kernels for the second score of a
binary classifier and for PROBIT, whose inverse error function is Winitzki's approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import mlx.core as mx

from ..node import Node


def _softmax_zero(x: mx.array) -> mx.array:
    """Softmax in which a score of zero stays zero."""
    high = x.max(axis=-1, keepdims=True)
    present = mx.abs(x) > 1e-7
    grown = mx.exp(x - high)
    total = mx.where(present, grown, 0).sum(axis=-1, keepdims=True)
    return mx.where(present, grown, x * mx.exp(-high)) / total


def _probit(x: mx.array) -> mx.array:
    y = 2 * x - 1
    log = mx.log((1 - y) * (1 + y))
    v = 2 / (3.14159 * 0.147) + 0.5 * log
    return math.sqrt(2) * mx.where(y < 0, -1.0, 1.0) * mx.sqrt(mx.sqrt(v * v - log / 0.147) - v)


_TRANSFORMS: Final[dict[str, Callable[[mx.array], mx.array]]] = {
    "NONE": lambda x: x,
    "LOGISTIC": mx.sigmoid,
    "SOFTMAX": lambda x: mx.softmax(x, axis=-1),
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def transform(scores: mx.array, name: str) -> mx.array:
    """The post transform of [batch, scores]; a single score only knows PROBIT, as in ORT."""
    if scores.shape[-1] == 1 and name != "PROBIT":
        return scores
    return _TRANSFORMS[name](scores)


def with_complement(score: mx.array, name: str) -> mx.array:
    """Both scores of a binary classifier from its one; ORT knows no transform but LOGISTIC here."""
    score = mx.sigmoid(score) if name == "LOGISTIC" else score
    return mx.concatenate([1 - score, score], axis=1)


def decline_scores(node: Node) -> Iterator[str]:
    """The claim shared by all models: known transforms, integer labels, a plain batch."""
    if (name := node.attr("post_transform", "NONE")) not in _TRANSFORMS:
        yield f"post_transform {name} is unknown"
    if (node.rank("x") or 0) > 2:
        yield "the input has more than two axes"


def batch_of(x: mx.array) -> mx.array:
    """The samples as float32 [batch, features]; a vector is a batch of one."""
    x = x.astype(mx.float32)
    return x.reshape(1, -1) if x.ndim < 2 else x


def constant(values: tuple[float, ...] | None, *shape: int) -> mx.array:
    """A float32 array of this shape from an attribute."""
    return mx.array(values or (), dtype=mx.float32).reshape(shape)


def labels_of(index: mx.array, labels: tuple[int, ...]) -> mx.array:
    """The int64 class labels at these positions."""
    return mx.array(labels, dtype=mx.int64)[index]
