"""Losses over class scores: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.

Sources: ONNX operators of the same names; mx.take_along_axis, mx.logsumexp. Halves are summed in
float32.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..bounds import inside
from ..dtypes import FLOATS, INDICES, SINGLES
from ..node import Node
from ..registry import op


def _claim(node: Node) -> Iterator[str]:
    if (reduction := node.attr("reduction", "mean")) not in ("none", "sum", "mean"):
        yield f"reduction {reduction} is unknown"


def _nll(
    log_prob: mx.array,
    target: mx.array,
    weight: mx.array | None,
    ignore_index: int | None,
    reduction: str,
) -> mx.array:
    """The loss of float32 or float64 log probabilities [batch, classes, ...]."""
    if log_prob.shape[:1] + log_prob.shape[2:] != target.shape:
        shapes = f"{log_prob.shape} and {target.shape}"
        raise ValueError(f"targets do not fit the scores: got shapes {shapes}")
    counted = None if ignore_index is None else target != ignore_index
    if counted is not None:
        target = mx.where(counted, target, 0)
    classes = log_prob.shape[1]
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"weights of {weight.shape} for {classes} classes")
    target = inside(target, classes)
    loss = -mx.take_along_axis(log_prob, target[:, None], axis=1).squeeze(1)
    scale = mx.ones_like(loss) if weight is None else weight[target].astype(loss.dtype)
    loss = loss * scale
    if counted is not None:  # an ignored row counts as nothing even where its score is infinite
        loss, scale = mx.where(counted, loss, 0), mx.where(counted, scale, 0)
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / scale.sum()


def _widen(x: mx.array) -> mx.array:
    return x if x.dtype == mx.float64 else x.astype(mx.float32)


@op(
    "NegativeLogLikelihoodLoss",
    since=(12, 13, 22),
    types={"input_": FLOATS, "target": INDICES},
    claim=_claim,
)
def negative_log_likelihood_loss(
    input_: mx.array,
    target: mx.array,
    weight: mx.array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> mx.array:
    return _nll(_widen(input_), target, weight, ignore_index, reduction).astype(input_.dtype)


# mx.logsumexp keeps only float32 accuracy in float64.
@op(
    "SoftmaxCrossEntropyLoss",
    since=(12, 13),
    types={"scores": SINGLES, "labels": INDICES},
    claim=_claim,
)
def softmax_cross_entropy_loss(
    scores: mx.array,
    labels: mx.array,
    weights: mx.array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[mx.array, mx.array]:
    wide = _widen(scores)
    # mx.logsumexp refuses an empty array.
    log_prob = wide - mx.logsumexp(wide, axis=1, keepdims=True) if wide.size else wide
    loss = _nll(log_prob, labels, weights, ignore_index, reduction)
    return loss.astype(scores.dtype), log_prob.astype(scores.dtype)
