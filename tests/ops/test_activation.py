"""Activations of both domains."""

from __future__ import annotations

import numpy as np
import pytest

from support.case import MS, K, M, N, case, loose, rand, values
from support.ep import Ep

INF, NAN = np.inf, np.nan
EDGES = values([NAN, INF, -INF, 0.0, -0.0, 60.0, -60.0, 1.5])
PLAIN = (
    "Celu",
    "Elu",
    "HardSigmoid",
    "LeakyRelu",
    "Mish",
    "Relu",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Swish",
    "ThresholdedRelu",
)
ROUNDED = loose(1e-3, 1e-6, "ORT rounds the constants of the formula", "float64")

CASES = [
    *(case(name, rand(N, M, low=-4, high=4)) for name in (*PLAIN, "Gelu")),
    *(
        case(name, EDGES, id="edges")
        for name in ("Relu", "Sigmoid", "Softplus", "LeakyRelu", "Elu", "Selu")
    ),
    *(case(name, rand(N, 0), id="empty") for name in ("Relu", "Sigmoid", "Elu")),
    case(
        "HardSwish",
        rand(N, M, low=-4, high=4),
        tolerance=loose(1e-7, 1e-7, "the references round 1/6 to float32", "float64"),
    ),
    case("Celu", rand(N, M), alpha=0.3),
    case("Elu", rand(N, M), alpha=0.3),
    case("HardSigmoid", rand(N, M, low=-6, high=6), alpha=0.4, beta=0.3),
    case("LeakyRelu", rand(N, M), alpha=-0.3),
    case("Selu", rand(N, M), alpha=0.9, gamma=1.4),
    case("Shrink", rand(N, M, low=-4, high=4), lambd=1.2, bias=0.5),
    case("Swish", rand(N, M), alpha=0.4),
    case("ThresholdedRelu", rand(N, M), alpha=0.2),
    case("Gelu", rand(N, M, low=-4, high=4), approximate="tanh"),
    case("PRelu", rand(N, M, K), rand(M, 1)),
    case("PRelu", rand(N, M, K), rand(1), id="one-slope"),
    case("SwiGLU", rand(N, M, K), rand(N, M, K)),
    case("QuickGelu", rand(N, M), domain=MS, alpha=1.3),
    case("QuickGelu", rand(N, M, low=-4, high=4), domain=MS),
    case("Gelu", rand(N, M, low=-4, high=4), domain=MS),
    case("FastGelu", rand(N, M, low=-4, high=4), domain=MS, tolerance=ROUNDED),
    case("FastGelu", rand(N, M, K), rand(K), domain=MS, id="bias", tolerance=ROUNDED),
    case("BiasGelu", rand(N, M, K), rand(K), domain=MS),
]
REFUSED = [
    (case("Gelu", rand(3, 4), approximate="quick"), "the approximation is neither none nor tanh"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
