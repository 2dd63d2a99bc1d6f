"""Tree ensembles of ai.onnx.ml."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx.numpy_helper import from_array

from ort_mlx.claim import Rules, reasons_against
from support.case import ML, Dim, N, case, loose, rand, values
from support.ep import Ep
from support.nodes import node_of

SCORES = loose(1e-4, 1e-5, "summed in another order", "float32")
# Two trees: x0 <= 0.1 ? (x1 <= -0.2 ? leaf : leaf) : leaf, and x2 > 0.3 ? leaf : leaf.
NODES = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
    "nodes_modes": [
        "BRANCH_LEQ",
        "BRANCH_LEQ",
        "LEAF",
        "LEAF",
        "LEAF",
        "BRANCH_GT",
        "LEAF",
        "LEAF",
    ],
    "nodes_values": [0.1, -0.2, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0],
    "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
    "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0, 0, 0],
}
LEAVES = {"treeids": [0, 0, 0, 1, 1], "nodeids": [2, 3, 4, 1, 2]}
WEIGHTS = [0.5, -1.5, 2.0, 0.25, -0.75]
X = rand(N, 3)


def regressor(x=X, opset=1, ids=(0, 0, 0, 0, 0), **options):
    target = {f"target_{k}": v for k, v in LEAVES.items()}
    options = {"n_targets": 1 + max(ids), **options}
    return case(
        "TreeEnsembleRegressor",
        x,
        domain=ML,
        opset=opset,
        dtypes=["float32"],
        tolerance=SCORES,
        target_ids=list(ids),
        target_weights=WEIGHTS,
        **NODES,
        **target,
        **options,
    )


def classifier(x=X, opset=1, ids=(0, 1, 2, 0, 1), labels=(4, 7, 9), **options):
    target = {f"class_{k}": v for k, v in LEAVES.items()}
    return case(
        "TreeEnsembleClassifier",
        x,
        domain=ML,
        opset=opset,
        outputs=2,
        dtypes=["float32"],
        tolerance=SCORES,
        class_ids=list(ids),
        class_weights=WEIGHTS,
        classlabels_int64s=list(labels),
        **NODES,
        **target,
        **options,
    )


def tensor(values, kind=np.float32):
    return from_array(np.array(values, kind))


def members(**options):
    """x0 <= 11 ? (x0 in {12, 7} ? leaf : leaf) : (x0 in {1.5, 3, 8} ? leaf : leaf)."""
    return case(
        "TreeEnsemble",
        values([[1.5], [3.0], [7.0], [8.0], [12.0], [13.0], [float("nan")]]),
        domain=ML,
        opset=5,
        dtypes=["float32"],
        tolerance=SCORES,
        n_targets=4,
        nodes_featureids=[0, 0, 0],
        nodes_modes=tensor([0, 6, 6], np.uint8),
        nodes_splits=tensor([11.0, 0.0, 0.0]),
        membership_values=tensor([1.5, 3.0, 8.0, np.nan, 12.0, 7.0, np.nan]),
        nodes_truenodeids=[1, 0, 1],
        nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 2, 3],
        nodes_falseleafs=[0, 1, 1],
        tree_roots=[0],
        leaf_targetids=[0, 1, 2, 3],
        leaf_weights=tensor([1.0, 10.0, 1000.0, 100.0]),
        **options,
    )


def ensemble(x=X, kind=np.float32, **options):
    return case(
        "TreeEnsemble",
        x,
        domain=ML,
        opset=5,
        dtypes=["float32" if kind is np.float32 else "float64"],
        tolerance=SCORES,
        n_targets=2,
        nodes_featureids=[0, 1, 2],
        nodes_modes=tensor([0, 3, 2], np.uint8),
        nodes_splits=tensor([0.1, -0.2, 0.3], kind),
        nodes_truenodeids=[1, 0, 3],
        nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 1, 4],
        nodes_falseleafs=[1, 1, 1],
        tree_roots=[0],
        leaf_targetids=[0, 1, 0, 1, 1],
        leaf_weights=tensor(WEIGHTS, kind),
        **options,
    )


def logistic(x, **_):
    """The specification numbers SOFTMAX 1 and LOGISTIC 2; ONNX Runtime takes them the other way."""
    second = np.where(x[:, 1] > np.float32(-0.2), 0, 1)
    leaf = np.where(x[:, 0] <= np.float32(0.1), second, 2)
    scores = np.zeros((len(x), 2), np.float32)
    scores[np.arange(len(x)), np.array([0, 1, 0])[leaf]] = np.array(WEIGHTS)[leaf]
    return 1 / (1 + np.exp(-scores))


CASES = [
    *(regressor(opset=o) for o in (1, 3)),
    *(regressor(aggregate_function=a) for a in ("AVERAGE", "MIN", "MAX")),
    regressor(ids=(0, 1, 0, 1, 1), base_values=[0.3, -0.3], post_transform="LOGISTIC"),
    regressor(values([[float("nan"), 0.0, 0.0], [0.0, float("nan"), 1.0]]), id="missing"),
    *(classifier(opset=o) for o in (1, 3)),
    *(classifier(post_transform=p) for p in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")),
    classifier(ids=(0,) * 5, labels=(3, 8), id="binary"),
    classifier(ids=(0,) * 5, labels=(3, 8), post_transform="LOGISTIC", id="binary-logistic"),
    classifier(base_values=[0.1, 0.2, 0.3], id="base"),
    ensemble(id="plain"),
    ensemble(kind=np.float64, id="double"),
    ensemble(aggregate_function=3, post_transform=2, reference=logistic),
    members(id="members"),
]


def changed(c, **attributes):
    """The case with other nodes."""
    return replace(c, attributes={**c.attributes, **attributes}, id="-".join(attributes))


REFUSED = [
    (regressor(aggregate_function="MEDIAN"), "aggregate_function MEDIAN is unknown"),
    (regressor(base_values=[1.0, 2.0]), "there is not one base value for each target"),
    (classifier(labels=(4,), ids=(0,) * 5), "there are fewer than two integer labels"),
    (classifier(labels=(4, 5), ids=(0, 1, 0, 1, 0)), "both of two classes have votes"),
    (
        classifier(labels=(4, 5), ids=(0,) * 5, post_transform="PROBIT"),
        "PROBIT of a binary classifier",
    ),
    (classifier(base_values=[0.1]), "the number of base values does not fit the classes"),
    (ensemble(rand(2, 2, 3)), "the input is not a matrix"),
    *(
        (changed(c, **bad), sentence)
        for c in (regressor(), regressor(opset=3), classifier(), classifier(opset=3))
        for bad, sentence in (
            ({"nodes_truenodeids": [9, 3, 0, 0, 0, 1, 0, 0]}, "the nodes are not those of trees"),
            (
                {"nodes_featureids": [0, 3, 0, 0, 0, 2, 0, 0]},
                "a node reads a feature that the input lacks",
            ),
        )
    ),
    (changed(ensemble(), tree_roots=[-1]), "the nodes are not those of trees"),
    (
        changed(ensemble(), nodes_featureids=[0, 3, 2]),
        "a node reads a feature that the input lacks",
    ),
    (ensemble(kind=np.float64, post_transform=2), "a transform of float64 scores"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


TREES = "the nodes are not those of trees"
LAST_MODES = NODES["nodes_modes"][4:]
BAD = {
    "feature": ({"nodes_featureids": [0, -1, 0, 0, 0, 2, 0, 0]}, TREES),
    "target": ({"target_ids": [0, 0, 0, 0, 5]}, TREES),
    "circle": (
        {
            "nodes_modes": [
                "BRANCH_LEQ",
                "BRANCH_LEQ",
                "LEAF",
                "BRANCH_LEQ",
                *NODES["nodes_modes"][4:],
            ],
            "nodes_falsenodeids": [2, 4, 0, 4, 0, 2, 0, 0],
            "nodes_truenodeids": [1, 3, 0, 1, 0, 1, 0, 0],
        },
        TREES,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_nodes_that_lead_outside_are_declined(name: str) -> None:
    """By the claim alone, since ONNX Runtime's own provider trusts such a model and may crash."""
    attributes, sentence = BAD[name]
    c = changed(regressor(), **attributes)
    assert sentence in reasons_against(node_of(c, 1, "float32"), Rules())


def test_an_input_with_too_few_features_fails(ep: Ep) -> None:
    ep.fails(regressor(rand(N, Dim("F", (2, 3))), id="narrow"), "the trees read 3 features")
