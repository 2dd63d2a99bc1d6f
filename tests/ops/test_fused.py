"""Operators of com.microsoft that fuse several steps."""

from __future__ import annotations

import numpy as np
import pytest

from support.case import MS, K, M, N, case, const, ints, loose, omitted, rand
from support.ep import Ep
from support.references import run_op

HALVES = loose(2e-2, 2e-2, "halves are rounded at other places", "float16", "bfloat16")
CLOSE = loose(1e-3, 1e-4, "summed in another order", "float32")
WEIGHTS = (const(rand(8)), const(rand(8)), const(rand(8)))


def silu(x):
    return x / (1 + np.exp(-x))


def group_norm(x, gamma, beta, *, groups, activation, epsilon=1e-5, channels_last=1):
    """ORT has GroupNorm on CUDA only; its own GroupNormalization is the same per channel."""
    first = np.moveaxis(x, -1, 1) if channels_last else x
    y = run_op("GroupNormalization", first, gamma, beta, num_groups=groups, epsilon=epsilon)
    y = silu(y) if activation else y
    return np.moveaxis(y, 1, -1) if channels_last else y


def skip_group_norm(x, gamma, beta, skip, bias=None, **options):
    skip = skip.reshape(*skip.shape[:1], 1, 1, skip.shape[-1]) if skip.ndim == 2 else skip
    total = x + skip + (0 if bias is None else bias)
    return group_norm(total, gamma, beta, **options), total


def gemm(activation):
    """FusedGemm is Gemm and then the activation, which ORT's kernel takes few of."""

    def reference(a, b, c, *, activation, transB=0, alpha=1.0, **parameters):
        names = {
            "activation_alpha": "alpha",
            "activation_beta": "beta",
            "activation_gamma": "gamma",
        }
        y = run_op("Gemm", a, b, c, transB=transB, alpha=alpha)
        return run_op(activation, y, **{names[k]: v for k, v in parameters.items()})

    return reference


def bias_split_gelu(x, bias):
    left, right = np.split(x + bias, 2, -1)
    return left * run_op("Gelu", right)


def swi_glu(gate, up=None, *, activation_alpha=1.0, activation_beta=0.0, limit=0.0):
    g, linear = np.split(gate, 2, -1) if up is None else (gate, up)
    if limit > 0:
        g, linear = np.minimum(g, limit), np.clip(linear, -limit, limit)
    return g / (1 + np.exp(-activation_alpha * g)) * (linear + activation_beta)


CASES = [
    *(
        case(
            "FusedMatMul",
            rand(*((2, K, N) if ta else (2, N, K))),
            rand(*((2, M, K) if tb else (2, K, M))),
            domain=MS,
            transA=ta,
            transB=tb,
            alpha=0.5,
            tolerance=HALVES,
        )
        for ta in (0, 1)
        for tb in (0, 1)
    ),
    case("FusedMatMul", rand(4, 2, 5), rand(2, 5, 3), domain=MS, transBatchA=1, tolerance=HALVES),
    case("FusedMatMul", rand(2, 3, 5), rand(5, 2, 4), domain=MS, transBatchB=1, tolerance=HALVES),
    case(
        "TransposeMatMul",
        rand(2, N, K),
        rand(2, M, K),
        domain=MS,
        transB=1,
        alpha=2.0,
        tolerance=HALVES,
        reference=lambda a, b, transB, alpha: alpha * a @ b.swapaxes(1, 2),
    ),
    *(
        case(
            "FusedGemm",
            rand(N, K),
            rand(M, K),
            rand(M),
            domain=MS,
            transB=1,
            activation=a,
            tolerance=HALVES,
            reference=gemm(a),
            **options,
        )
        for a, options in {
            "Relu": {},
            "Tanh": {},
            "Sigmoid": {},
            "Elu": {"activation_alpha": 0.5},
            "LeakyRelu": {"activation_alpha": 0.2},
            "Softplus": {},
            "Softsign": {},
            "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4},
        }.items()
    ),
    case(
        "SkipLayerNormalization",
        rand(N, M, 8),
        rand(N, M, 8),
        *WEIGHTS,
        domain=MS,
        outputs=(1, 0, 0, 1),
        tolerance=HALVES,
    ),
    case(
        "SkipLayerNormalization",
        rand(N, M, 8),
        rand(M, 8),
        WEIGHTS[0],
        domain=MS,
        tolerance=HALVES,
        epsilon=0.01,
    ),
    case(
        "SkipSimplifiedLayerNormalization",
        rand(N, M, 8),
        rand(N, M, 8),
        *WEIGHTS[:2],
        domain=MS,
        outputs=(1, 0, 0, 1),
        tolerance=HALVES,
    ),
    case(
        "SkipSimplifiedLayerNormalization",
        rand(N, M, 8),
        rand(1, M, 8),
        WEIGHTS[0],
        domain=MS,
        tolerance=HALVES,
    ),
    case(
        "EmbedLayerNormalization",
        ints([[1, 4, 7], [2, 2, 9]], [[0, 0, 1], [9, 8, 7]], "int32"),
        ints([[0, 1, 0], [1, 1, 0]], dtype="int32"),
        const(rand(10, 8)),
        const(rand(6, 8)),
        const(rand(2, 8)),
        *WEIGHTS[:2],
        ints([[1, 1, 0], [1, 1, 1]], dtype="int32"),
        domain=MS,
        outputs=3,
        tolerance=HALVES,
    ),
    case(
        "EmbedLayerNormalization",
        ints([[1, 4], [2, 9]], dtype="int32"),
        omitted(),
        const(rand(10, 8)),
        const(rand(6, 8)),
        omitted(),
        *WEIGHTS[:2],
        omitted(),
        ints([[3, 1], [0, 2]], dtype="int32"),
        domain=MS,
        outputs=2,
        tolerance=HALVES,
        id="positions",
    ),
    *(
        case(
            "GroupNorm",
            rand(N, M, K, 8),
            const(rand(8, dtype="float32")),
            const(rand(8, dtype="float32")),
            domain=MS,
            groups=4,
            activation=a,
            tolerance=HALVES,
            reference=group_norm,
        )
        for a in (0, 1)
    ),
    case(
        "GroupNorm",
        rand(N, 8, M, K),
        const(rand(8, dtype="float32")),
        const(rand(8, dtype="float32")),
        domain=MS,
        groups=2,
        activation=0,
        channels_last=0,
        tolerance=HALVES,
        reference=group_norm,
    ),
    case(
        "SkipGroupNorm",
        rand(N, M, K, 8),
        const(rand(8, dtype="float32")),
        const(rand(8, dtype="float32")),
        rand(N, 8),
        rand(8),
        domain=MS,
        outputs=2,
        groups=4,
        activation=1,
        tolerance=HALVES,
        reference=skip_group_norm,
    ),
    case(
        "BiasAdd",
        rand(N, M, 8),
        rand(8),
        rand(N, M, 8),
        domain=MS,
        reference=lambda x, b, s: x + b + s,
        tolerance=HALVES,
    ),
    case(
        "BiasSplitGelu",
        rand(N, M, 8),
        rand(8),
        domain=MS,
        reference=bias_split_gelu,
        tolerance=HALVES,
    ),
    case("SwiGLU", rand(N, M, 8), domain=MS, reference=swi_glu, tolerance=HALVES),
    case(
        "SwiGLU",
        rand(N, M, K),
        rand(N, M, K),
        domain=MS,
        activation_alpha=1.7,
        activation_beta=1.0,
        limit=0.9,
        reference=swi_glu,
        tolerance=HALVES,
    ),
]
REFUSED = [
    (
        case("FusedGemm", rand(2, 3), rand(3, 2), rand(2), domain=MS, activation="Gelu"),
        "the activation Gelu is not translated",
    ),
    (
        case(
            "GroupNorm",
            rand(1, 2, 2, 8),
            const(rand(8, dtype="float32")),
            const(rand(8, dtype="float32")),
            domain=MS,
            groups=4,
            activation=2,
        ),
        "the activation is neither none nor SiLU",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
