"""Linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

import numpy as np
import pytest

from support.case import ML, N, case, loose, rand
from support.ep import Ep

SCORES = loose(1e-3, 1e-4, "summed in another order", "float32")
RNG = np.random.default_rng(5)


def numbers(count):
    return [round(float(v), 3) for v in RNG.standard_normal(count)]


COEFFICIENTS, VECTORS = numbers(9), numbers(12)
LABELS = [4, 7, 9]


def ml(op_type, *inputs, outputs=None, **options):
    outputs = outputs or (2 if "Classifier" in op_type else 1)
    options.setdefault("dtypes", ["float32"])
    return case(op_type, *inputs, domain=ML, opset=1, outputs=outputs, tolerance=SCORES, **options)


def linear(**options):
    options = {
        "coefficients": COEFFICIENTS,
        "intercepts": [0.1, -0.2, 0.3],
        "classlabels_ints": LABELS,
        **options,
    }
    return ml("LinearClassifier", rand(N, 3), **options)


def svc(**options):
    options = {
        "classlabels_ints": LABELS,
        "coefficients": numbers(8),
        "support_vectors": VECTORS,
        "vectors_per_class": [2, 1, 1],
        "rho": [0.1, -0.2, 0.3],
        "kernel_params": [0.5, 0.2, 2.0],
        **options,
    }
    return ml("SVMClassifier", rand(N, 3), **options)


def svr(**options):
    options = {
        "coefficients": numbers(4),
        "support_vectors": VECTORS,
        "rho": [0.1],
        "n_supports": 4,
        "kernel_params": [0.5, 0.2, 2.0],
        **options,
    }
    return ml("SVMRegressor", rand(N, 3), **options)


CASES = [
    ml("LinearRegressor", rand(N, 3), coefficients=COEFFICIENTS[:3], intercepts=[0.5]),
    ml("LinearRegressor", rand(N, 3), coefficients=COEFFICIENTS, targets=3, id="targets"),
    *(linear(post_transform=p) for p in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")),
    linear(coefficients=COEFFICIENTS[:3], intercepts=[0.2], classlabels_ints=[3, 8], id="binary"),
    linear(
        coefficients=COEFFICIENTS[:3],
        intercepts=[0.2],
        classlabels_ints=[3, 8],
        post_transform="LOGISTIC",
        id="binary-logistic",
    ),
    *(svc(kernel_type=k) for k in ("LINEAR", "POLY", "RBF", "SIGMOID")),
    svc(post_transform="SOFTMAX", id="softmax"),
    *(svr(kernel_type=k) for k in ("LINEAR", "POLY", "RBF", "SIGMOID")),
    svr(one_class=1, kernel_type="RBF", id="one-class"),
]
REFUSED = [
    (linear(post_transform="CUBE"), "post_transform CUBE is unknown"),
    (
        ml("LinearRegressor", rand(2, 3, 2), coefficients=COEFFICIENTS[:3], intercepts=[0.5]),
        "the input has more than two axes",
    ),
    (
        ml("LinearClassifier", rand(2, 3), coefficients=COEFFICIENTS, classlabels_ints=LABELS),
        "there are no intercepts",
    ),
    (linear(classlabels_ints=[4, 7]), "there is not one label for each class"),
    (
        linear(
            coefficients=COEFFICIENTS[:3],
            intercepts=[0.2],
            classlabels_ints=[3, 8],
            post_transform="PROBIT",
        ),
        "PROBIT of a binary classifier",
    ),
    (svr(kernel_type="CUBE"), "kernel_type CUBE is unknown"),
    (svr(kernel_params=[0.5]), "kernel_params does not hold three values"),
    (
        svc(prob_a=[0.1, 0.2, 0.3], prob_b=[0.1, 0.2, 0.3]),
        "probabilities are estimated from the scores",
    ),
    (svc(classlabels_ints=[4]), "there are fewer than two integer labels"),
    (svc(post_transform="PROBIT"), "PROBIT of a support vector machine"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
