"""Linear models and support vector machines of ai.onnx.ml.

Sources: ONNX LinearRegressor, LinearClassifier, SVMRegressor, SVMClassifier, with the score layouts
of ONNX Runtime's CPU kernels; mx.matmul.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, combinations

import mlx.core as mx

from ..node import Node
from ..registry import ML, op
from ._scores import (
    batch_of,
    constant,
    decline_scores,
    labels_of,
    transform,
    with_complement,
)

_INPUTS = frozenset({"float32", "float64", "int64", "int32"})
_TYPES = {"x": _INPUTS}


def _affine(x: mx.array, coefficients: tuple[float, ...] | None, rows: int) -> mx.array:
    """x @ coefficients.T for coefficients [rows, features]."""
    features = x.shape[1]
    if len(coefficients or ()) != rows * features:
        got = f"input {x.shape}, {len(coefficients or ())} coefficients for {rows} outputs"
        raise ValueError(f"coefficients do not fit the input: got {got}")
    return x @ constant(coefficients, rows, features).T


@op("LinearRegressor", domain=ML, since=(1,), types=_TYPES, claim=decline_scores)
def linear_regressor(
    x: mx.array,
    *,
    coefficients: tuple[float, ...] | None = None,
    intercepts: tuple[float, ...] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> mx.array:
    scores = _affine(batch_of(x), coefficients, targets)
    if len(intercepts or ()) == targets:
        scores = scores + constant(intercepts, targets)
    return transform(scores, post_transform)


def _linear_claim(node: Node) -> Iterator[str]:
    yield from decline_scores(node)
    rows, labels = len(node.attr("intercepts") or ()), len(node.attr("classlabels_ints") or ())
    if not rows:
        yield "there are no intercepts"
    elif labels != max(rows, 2):
        yield "there is not one label for each class"
    if rows == 1 and node.attr("post_transform") == "PROBIT":
        yield "PROBIT of a binary classifier"


@op(
    "LinearClassifier",
    domain=ML,
    since=(1,),
    types=_TYPES,
    claim=_linear_claim,
)
def linear_classifier(
    x: mx.array,
    *,
    classlabels_ints: tuple[int, ...] | None = None,
    classlabels_strings: tuple[str, ...] | None = None,
    coefficients: tuple[float, ...],
    intercepts: tuple[float, ...] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[mx.array, mx.array]:
    rows, labels = len(intercepts or ()), classlabels_ints or ()
    scores = _affine(batch_of(x), coefficients, rows) + constant(intercepts, rows)
    if rows > 1:
        return labels_of(mx.argmax(scores, axis=1), labels), transform(scores, post_transform)
    index = (scores[:, 0] > 0).astype(mx.int32)
    return labels_of(index, labels), with_complement(scores, post_transform)


def _kernel(x: mx.array, vectors: mx.array, kind: str, params: tuple[float, ...]) -> mx.array:
    """The kernel of every sample with every vector, [batch, vectors]."""
    gamma, coef0, degree = params or (0.0, 0.0, 0.0)
    if kind == "RBF":
        return mx.exp(-gamma * mx.square(x[:, None] - vectors).sum(axis=-1))
    dot = x @ vectors.T
    if kind == "LINEAR":
        return dot
    scaled = gamma * dot + coef0
    return mx.power(scaled, degree) if kind == "POLY" else mx.tanh(scaled)


def _svm_claim(node: Node) -> Iterator[str]:
    yield from decline_scores(node)
    if (kind := node.attr("kernel_type", "LINEAR")) not in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        yield f"kernel_type {kind} is unknown"
    if len(node.attr("kernel_params") or ()) not in (0, 3):
        yield "kernel_params does not hold three values"


@op(
    "SVMRegressor",
    domain=ML,
    since=(1,),
    types=_TYPES,
    fixed={"post_transform": "NONE"},
    claim=_svm_claim,
)
def svm_regressor(
    x: mx.array,
    *,
    coefficients: tuple[float, ...] | None = None,
    kernel_params: tuple[float, ...] | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    rho: tuple[float, ...] | None = None,
    support_vectors: tuple[float, ...] | None = None,
) -> mx.array:
    x = batch_of(x)
    if n_supports:
        vectors = constant(support_vectors, n_supports, -1)
        x = _kernel(x, vectors, kernel_type, kernel_params or ())
    y = _affine(x, coefficients, 1) + constant((rho or (0.0,))[:1], 1)
    return mx.where(y > 0, 1.0, -1.0) if one_class else y


def _svc_claim(node: Node) -> Iterator[str]:
    yield from _svm_claim(node)
    if node.attr("prob_a"):
        yield "probabilities are estimated from the scores"
    if len(node.attr("classlabels_ints") or ()) < 2:
        yield "there are fewer than two integer labels"
    if node.attr("post_transform") == "PROBIT":
        yield "PROBIT of a support vector machine"


@op(
    "SVMClassifier",
    domain=ML,
    since=(1,),
    types=_TYPES,
    claim=_svc_claim,
)
def svm_classifier(
    x: mx.array,
    *,
    classlabels_ints: tuple[int, ...] | None = None,
    classlabels_strings: tuple[str, ...] | None = None,
    coefficients: tuple[float, ...] | None = None,
    kernel_params: tuple[float, ...] | None = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: tuple[float, ...] | None = None,
    prob_b: tuple[float, ...] | None = None,
    rho: tuple[float, ...] | None = None,
    support_vectors: tuple[float, ...] | None = None,
    vectors_per_class: tuple[int, ...] | None = None,
) -> tuple[mx.array, mx.array]:
    x, labels, weights = batch_of(x), classlabels_ints or (), coefficients or ()
    total = sum(vectors_per_class or ())
    if not total:
        scores = _affine(x, weights, len(labels)) + constant((rho or (0.0,))[:1], 1)
        index = _top_class(scores, min(weights) >= 0)
        return labels_of(index, labels), transform(scores, post_transform)
    kernels = _kernel(x, constant(support_vectors, total, -1), kernel_type, kernel_params or ())
    mixed = _pair_weights(weights, vectors_per_class or ())
    pairs = list(combinations(range(len(labels)), 2))
    scores = kernels @ mixed.T + constant((rho or ())[: len(pairs)], len(pairs))
    index = _most_votes(scores, pairs, len(labels))
    if len(pairs) > 1:
        return labels_of(index, labels), transform(scores, post_transform)
    if post_transform == "NONE":
        return labels_of(index, labels), mx.concatenate([-scores, scores], axis=1)
    return labels_of(index, labels), with_complement(scores, post_transform)


def _top_class(scores: mx.array, all_positive: bool) -> mx.array:
    """The best class; of two classes ORT takes the second as soon as any score is high enough."""
    index, high = mx.argmax(scores, axis=1), scores.max(axis=1)
    if scores.shape[1] != 2:
        return index
    return mx.where(high >= 0.5 if all_positive else high > 0, 1, index)


def _pair_weights(weights: tuple[float, ...], counts: tuple[int, ...]) -> mx.array:
    """[pairs, vectors]: what each support vector adds to the score of each pair of classes."""
    total, starts = sum(counts), [0, *accumulate(counts)]
    rows = []
    for i, j in combinations(range(len(counts)), 2):
        row = [0.0] * total
        for own, other in ((i, j - 1), (j, i)):
            span = slice(starts[own], starts[own + 1])
            row[span] = weights[other * total : (other + 1) * total][span]
        rows.append(row)
    return mx.array(rows, dtype=mx.float32)


def _most_votes(scores: mx.array, pairs: list[tuple[int, int]], classes: int) -> mx.array:
    """The class that wins most of its pairs; the first of several."""
    wins = [[float(c == i) for c in range(classes)] for i, _ in pairs]
    losses = [[float(c == j) for c in range(classes)] for _, j in pairs]
    won = (scores > 0)[..., None]
    votes = mx.where(won, mx.array(wins), mx.array(losses)).sum(axis=1)
    return mx.argmax(votes, axis=1)
