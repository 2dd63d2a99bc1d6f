"""Tree ensembles of ai.onnx.ml: all samples walk all trees at once, one level a step.

Sources: ONNX TreeEnsembleRegressor, TreeEnsembleClassifier, TreeEnsemble; the scores of a binary
classifier follow ONNX Runtime's CPU kernel. mx.take_along_axis reads the feature of each node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import mlx.core as mx

from ..node import Node
from ..registry import ML, op
from ._forest import Forest, decline_forest, forest_of, from_positions
from ._scores import batch_of, constant, decline_scores, labels_of, transform, with_complement

_TYPES = {"x": frozenset({"float32", "int64", "int32"})}
_AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_DOUBLES: Final[Mapping[str, None]] = {
    "base_values_as_tensor": None,
    "nodes_hitrates_as_tensor": None,
    "nodes_values_as_tensor": None,
}


def _aggregate(forest: Forest, leaves: mx.array, how: str) -> mx.array:
    """[batch, targets] from the node of each tree in which each sample ended."""
    votes = forest.weights[leaves]
    if how in ("SUM", "AVERAGE"):
        total = votes.sum(axis=1)
        return total / leaves.shape[1] if how == "AVERAGE" else total
    voted, worst = forest.voted[leaves], -mx.inf if how == "MAX" else mx.inf
    votes = mx.where(voted, votes, worst)
    best = votes.max(axis=1) if how == "MAX" else votes.min(axis=1)
    return mx.where(voted.any(axis=1), best, 0)


def _regressor_claim(node: Node) -> Iterator[str]:
    yield from decline_scores(node)
    if (how := node.attr("aggregate_function", "SUM")) not in _AGGREGATES:
        yield f"aggregate_function {how} is unknown"
    yield from decline_forest(node, lambda: forest_of(node, "target", node.attr("n_targets") or 1))
    if len(node.attr("base_values") or ()) not in (0, node.attr("n_targets", 1)):
        yield "there is not one base value for each target"


def _regressor(name: str, since: tuple[int, ...], fixed: Mapping[str, None]) -> None:
    @op(name, domain=ML, since=since, types=_TYPES, claim=_regressor_claim, fixed=fixed)
    def regressor(
        x: mx.array,
        *,
        node: Node,
        aggregate_function: str = "SUM",
        base_values: tuple[float, ...] | None = None,
        n_targets: int | None = None,
        nodes_falsenodeids: tuple[int, ...] | None = None,
        nodes_featureids: tuple[int, ...] | None = None,
        nodes_hitrates: tuple[float, ...] | None = None,
        nodes_missing_value_tracks_true: tuple[int, ...] | None = None,
        nodes_modes: tuple[str, ...] | None = None,
        nodes_nodeids: tuple[int, ...] | None = None,
        nodes_treeids: tuple[int, ...] | None = None,
        nodes_truenodeids: tuple[int, ...] | None = None,
        nodes_values: tuple[float, ...] | None = None,
        post_transform: str = "NONE",
        target_ids: tuple[int, ...] | None = None,
        target_nodeids: tuple[int, ...] | None = None,
        target_treeids: tuple[int, ...] | None = None,
        target_weights: tuple[float, ...] | None = None,
    ) -> mx.array:
        forest = forest_of(node, "target", n_targets or 1)
        leaves = forest.walk(batch_of(x))
        scores = _aggregate(forest, leaves, aggregate_function)
        if base_values:  # of several targets, one without a vote stays zero
            base, voted = constant(base_values, -1), forest.voted[leaves].any(axis=1)
            scores = scores + (mx.where(voted, base, 0) if len(base_values) > 1 else base)
        return transform(scores, post_transform)


_regressor("TreeEnsembleRegressor", (1,), {})
_regressor("TreeEnsembleRegressor", (3,), {**_DOUBLES, "target_weights_as_tensor": None})


def _classifier_claim(node: Node) -> Iterator[str]:
    yield from decline_scores(node)
    classes, base = len(node.attr("classlabels_int64s") or ()), len(node.attr("base_values") or ())
    voted = set(node.attr("class_ids") or ())
    if classes < 2:
        yield "there are fewer than two integer labels"
    yield from decline_forest(node, lambda: forest_of(node, "class", classes))
    if classes == 2 and len(voted) != 1:
        yield "both of two classes have votes"  # ONNX Runtime then labels with 0 and 1
    if classes == 2 and node.attr("post_transform") == "PROBIT":
        yield "PROBIT of a binary classifier"
    if base not in ((0, classes) if classes > 2 else (0, 1) if voted == {0} else (0,)):
        yield "the number of base values does not fit the classes"


def _classifier(name: str, since: tuple[int, ...], fixed: Mapping[str, None]) -> None:
    @op(name, domain=ML, since=since, types=_TYPES, claim=_classifier_claim, fixed=fixed)
    def classifier(
        x: mx.array,
        *,
        node: Node,
        base_values: tuple[float, ...] | None = None,
        class_ids: tuple[int, ...] | None = None,
        class_nodeids: tuple[int, ...] | None = None,
        class_treeids: tuple[int, ...] | None = None,
        class_weights: tuple[float, ...] | None = None,
        classlabels_int64s: tuple[int, ...] | None = None,
        classlabels_strings: tuple[str, ...] | None = None,
        nodes_falsenodeids: tuple[int, ...] | None = None,
        nodes_featureids: tuple[int, ...] | None = None,
        nodes_hitrates: tuple[float, ...] | None = None,
        nodes_missing_value_tracks_true: tuple[int, ...] | None = None,
        nodes_modes: tuple[str, ...] | None = None,
        nodes_nodeids: tuple[int, ...] | None = None,
        nodes_treeids: tuple[int, ...] | None = None,
        nodes_truenodeids: tuple[int, ...] | None = None,
        nodes_values: tuple[float, ...] | None = None,
        post_transform: str = "NONE",
    ) -> tuple[mx.array, mx.array]:
        labels = classlabels_int64s or ()
        forest = forest_of(node, "class", len(labels))
        leaves = forest.walk(batch_of(x))
        scores = _aggregate(forest, leaves, "SUM")
        if len(labels) == 2:
            second, positive = set(class_ids or ()) == {1}, min(class_weights or (0.0,)) >= 0
            base = (base_values or (0.0,))[0]
            index, scores = _binary(scores, second, positive, base, post_transform)
            return labels_of(index, labels), scores
        if base_values:
            scores = scores + constant(base_values, -1)
            eligible = scores
        else:  # a class without a vote is not chosen
            eligible = mx.where(forest.voted[leaves].any(axis=1), scores, -mx.inf)
        return labels_of(mx.argmax(eligible, axis=1), labels), transform(scores, post_transform)


def _binary(
    scores: mx.array, second: bool, all_positive: bool, base: float, post_transform: str
) -> tuple[mx.array, mx.array]:
    """The class index and both scores of a classifier whose leaves vote for one class only."""
    score = scores[:, 1:] if second else scores[:, :1] + base
    index = (score[:, 0] > (0.5 if all_positive else 0)).astype(mx.int32)
    if second:
        return index, transform(scores, post_transform)
    if all_positive or post_transform == "LOGISTIC":
        return index, with_complement(score, post_transform)
    return index, mx.concatenate([-score, score], axis=1)


_classifier("TreeEnsembleClassifier", (1,), {})
_classifier("TreeEnsembleClassifier", (3,), {**_DOUBLES, "class_weights_as_tensor": None})


def _ensemble_claim(node: Node) -> Iterator[str]:
    if node.rank("x") not in (2, None):
        yield "the input is not a matrix"
    yield from decline_forest(node, lambda: from_positions(node, node.attr("n_targets") or 1))
    if node.dtype("x") == "float64" and node.attr("post_transform", 0):
        yield "a transform of float64 scores"  # MLX computes it with float32's precision


@op(
    "TreeEnsemble",
    domain=ML,
    since=(5,),
    types={"x": frozenset({"float32", "float64"})},
    claim=_ensemble_claim,
)
def tree_ensemble(
    x: mx.array,
    *,
    node: Node,
    aggregate_function: int = 1,
    leaf_targetids: tuple[int, ...],
    leaf_weights: Any,
    membership_values: Any = None,
    n_targets: int | None = None,
    nodes_falseleafs: tuple[int, ...],
    nodes_falsenodeids: tuple[int, ...],
    nodes_featureids: tuple[int, ...],
    nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None,
    nodes_modes: Any,
    nodes_splits: Any,
    nodes_trueleafs: tuple[int, ...],
    nodes_truenodeids: tuple[int, ...],
    post_transform: int = 0,
    tree_roots: tuple[int, ...],
) -> mx.array:
    forest = from_positions(node, n_targets or 1)
    scores = _aggregate(forest, forest.walk(x), _AGGREGATES[aggregate_function])
    return transform(scores, _TRANSFORMS[post_transform])
