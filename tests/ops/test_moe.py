"""Mixtures of experts, dense and quantized."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from support.case import MS, Array, Case, Dim, Input, case, const, loose, omitted, rand
from support.ep import Ep

NONE = omitted()
R = Dim("R", (5, 40))  # tokens: few are taken as they come, many are grouped by expert
E, HIDDEN, INNER = 4, 64, 32
HALF_SUMS = loose(2e-2, 3e-2, "halves are summed in another order")
QUANTIZED = loose(2e-2, 2e-2, "ONNX Runtime rounds the tokens of 8-bit experts to int8")


def weight(*shape: int) -> Input:
    return const(rand(E, *shape, low=-0.3, high=0.3))


def first(width: int) -> tuple[Input, ...]:
    return weight(width, HIDDEN), weight(width)


SECOND = (weight(HIDDEN, INNER), weight(HIDDEN))
TOKENS = (rand(R, HIDDEN), rand(R, E))


def moe(*inputs: Input, id: str, **options: Any) -> Case:
    return case("MoE", *inputs, domain=MS, id=id, tolerance=HALF_SUMS, **{"k": 2, **options})


def _by_hand(
    x: Array,
    router: Array,
    *given: Any,
    k: int,
    activation_type: str,
    swiglu_fusion: int = 0,
    **rest: Any,
) -> Array:
    """The forms that no CPU kernel has."""
    w1, b1, w2, b2, w3, b3 = (*given, *[None] * (6 - len(given)))
    shares = np.exp(router) / np.exp(router).sum(-1, keepdims=True)
    y = np.zeros(x.shape, np.float64)
    for t, token in enumerate(x.astype(np.float64)):
        for e in np.argsort(router[t])[-k:]:
            g = w1[e] @ token + b1[e]
            up = None if w3 is None else w3[e] @ token + b3[e]
            if swiglu_fusion:
                g, up = (g[0::2], g[1::2]) if swiglu_fusion == 1 else np.split(g, 2)
            if activation_type == "geglu":
                g = 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3))) * up
            elif activation_type == "relu2":
                g = np.maximum(g, 0) ** 2
            else:
                g = g / (1 + np.exp(-g)) * up
            y[t] += shares[t, e] * (w2[e] @ g + b2[e])
    return y.astype(x.dtype)


def _sparsely(x: Array, router: Array, *given: Any, **rest: Any) -> Array:
    """SparseMixer token by token; the CPU kernel ignores it."""
    w1, b1, w2, b2 = given
    y = np.zeros(x.shape, np.float64)
    for t, token in enumerate(x.astype(np.float64)):
        logits = router[t].astype(np.float64)
        left = set(range(len(logits)))
        for _ in range(2):
            e = max(left, key=lambda i: (logits[i], -i))
            close = [
                i for i in left if logits[e] - logits[i] <= 0.02 * max(abs(logits[i]), logits[e])
            ]
            share = 1 / sum(np.exp(logits[i] - logits[e]) for i in close) if close else 1.0
            y[t] += share * (w2[e] @ np.maximum(w1[e] @ token + b1[e], 0) + b2[e])
            left.remove(e)
    return y.astype(x.dtype)


# Some experts come as close to the best as a hundredth, some only to a half.
CLOSE = rand(R, E, low=4.0, high=4.2)


def qmoe(bits: int, block: int, zeros: bool = False, id: str = "", **options: Any) -> Case:
    def expert(rows: int, columns: int) -> tuple[Input, Input, Input]:
        blocks = (columns // block,) if block else ()
        shape = (
            (rows, -(-columns // (block or columns) * bits // 8))
            if block
            else (-(-rows * bits // 8),)
        )
        return (
            const(rand(E, rows, columns * bits // 8, dtype="uint8", low=0, high=256)),
            const(rand(E, rows, *blocks, low=0.1 / 2**bits, high=0.4 / 2**bits)),
            const(rand(E, *shape, dtype="uint8", low=0, high=256)) if zeros else NONE,
        )

    w1, s1, z1 = expert(2 * INNER, HIDDEN)
    w2, s2, z2 = expert(HIDDEN, INNER)
    named = {"block_size": block} if block else {}
    return case(
        "QMoE",
        *TOKENS,
        w1,
        s1,
        weight(2 * INNER),
        w2,
        s2,
        weight(HIDDEN),
        NONE,
        NONE,
        NONE,
        z1,
        z2,
        domain=MS,
        id=id or f"{bits}bits-{block}-{'zeros' if zeros else 'symmetric'}",
        tolerance=QUANTIZED,
        dtypes=["float32", "float16"],
        **{
            "k": 2,
            "activation_type": "swiglu",
            "swiglu_fusion": 1,
            "expert_weight_bits": bits,
            "normalize_routing_weights": 1,
            **named,
            **options,
        },
    )


def replaced(c: Case, index: int, x: Input) -> Case:
    """The case with another input, those before it left out where it has none."""
    inputs = [*c.inputs, *[NONE] * (index + 1 - len(c.inputs))]
    inputs[index] = x
    return replace(c, inputs=tuple(inputs))


def _of_squares(
    x: Array, router: Array, w1: Array, s1: Array, _: Any, *rest: Any, **more: Any
) -> Array:
    """The dense experts of these weights; the CPU kernel has no such type."""
    block = more["block_size"]

    def dense(w: Array, s: Array) -> Array:
        scales = s.repeat(block, axis=1).repeat(block, axis=2)
        return np.asarray(w.astype(np.float64) * scales[:, : w.shape[1], : w.shape[2]])

    w2, s2, b2 = rest
    zeros = np.zeros(w1.shape[:2])
    return _by_hand(x, router, dense(w1, s1), zeros, dense(w2, s2), b2, k=2, **_GATED)


_GATED: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 2}


def squares(id: str, **options: Any) -> Case:
    """Weights in float8e4m3fn, whose last squares of 24 are not whole."""

    def expert(rows: int, columns: int) -> tuple[Input, Input]:
        counts = (-(-rows // 24), -(-columns // 24))
        return (
            const(rand(E, rows, columns, dtype="float8e4m3fn")),
            const(rand(E, *counts, low=0.05, high=0.1)),
        )

    return case(
        "QMoE",
        *(*TOKENS, *expert(2 * INNER, HIDDEN), NONE, *expert(HIDDEN, INNER), weight(HIDDEN)),
        domain=MS,
        id=id,
        tolerance=HALF_SUMS,
        reference=_of_squares,
        **{"k": 2, "quant_type": "fp8", "block_size": 24, **_GATED, **options},
    )


CASES = [
    squares(id="squares"),
    *(
        moe(*TOKENS, *first(INNER), *SECOND, id=activation, activation_type=activation)
        for activation in ("relu", "gelu", "silu", "identity")
    ),
    moe(
        *(rand(R, HIDDEN), CLOSE, *first(INNER), *SECOND),
        id="mixer",
        use_sparse_mixer=1,
        reference=_sparsely,
    ),
    moe(
        *(*TOKENS, *first(INNER), *SECOND),
        id="mixer-apart",
        use_sparse_mixer=1,
        reference=_sparsely,
    ),
    moe(*TOKENS, weight(INNER, HIDDEN), NONE, weight(HIDDEN, INNER), id="no-bias", k=1),
    moe(
        rand(2, 3, HIDDEN),
        rand(6, E),
        *first(INNER),
        *SECOND,
        id="batch",
        normalize_routing_weights=1,
    ),
    moe(
        *TOKENS, *first(2 * INNER), *SECOND, id="swiglu", activation_type="swiglu", swiglu_fusion=1
    ),
    moe(
        *TOKENS,
        *first(2 * INNER),
        *SECOND,
        id="swiglu-limits",
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=1.702,
        activation_beta=1.0,
        swiglu_limit=0.5,
    ),
    moe(
        *TOKENS,
        *first(2 * INNER),
        *SECOND,
        id="swiglu-halves",
        activation_type="swiglu",
        swiglu_fusion=2,
        reference=_by_hand,
    ),
    moe(
        *TOKENS,
        *first(2 * INNER),
        *SECOND,
        id="geglu",
        activation_type="geglu",
        swiglu_fusion=1,
        reference=_by_hand,
    ),
    moe(*TOKENS, *first(INNER), *SECOND, id="relu2", activation_type="relu2", reference=_by_hand),
    moe(
        *TOKENS,
        *first(INNER),
        *SECOND,
        *first(INNER),
        id="third",
        activation_type="silu",
        reference=_by_hand,
    ),
    *(
        qmoe(bits, block, zeros)
        for bits, block, zeros in product((2, 4, 8), (0, 16, 32), (False, True))
    ),
    qmoe(4, 32, id="raw", weights_prepacked=0),
]

REFUSED = [
    (
        moe(*TOKENS, *first(INNER), *SECOND, id="geglu", activation_type="geglu"),
        "geglu with separate projections",
    ),
    (
        moe(
            *TOKENS,
            *first(INNER),
            *SECOND,
            *first(INNER),
            id="third",
            activation_type="swiglu",
            swiglu_fusion=1,
        ),
        "fused projections and a third one",
    ),
    (
        qmoe(4, 32, id="three", fc1_expert_weight_bits=3, block_size=16),
        "3 bits without blocks of 32, 64 or 128",
    ),
    (replaced(qmoe(4, 32, id="no-scales"), 3, NONE), "input 'fc1_scales' is missing"),
    (replaced(qmoe(4, 32, id="no-second"), 6, NONE), "input 'fc2_scales' is missing"),
    (
        replaced(qmoe(4, 32, id="scaled"), 15, const(rand(E))),
        "scales of whole experts or of activations",
    ),
    (qmoe(4, 32, id="fp4", quant_type="fp4"), "weights of fp4"),
    (qmoe(4, 32, id="fp8", quant_type="fp8"), "weights of fp8 held in uint8"),
    (squares(id="squares-none", block_size=0), "float8 weights without blocks"),
    (
        moe(*TOKENS, *first(INNER), *SECOND, id="mixer", use_sparse_mixer=1, k=1),
        "the sparse mixer of another number of experts than 2",
    ),
    (
        replaced(qmoe(4, 32, id="mixer", use_sparse_mixer=1), 14, rand(R, E)),
        "the sparse mixer and weights of the router",
    ),
    (
        moe(*TOKENS, *first(INNER), *SECOND, id="one-half", activation_type="swiglu"),
        "swiglu without its second projection",
    ),
    (moe(*TOKENS, *first(INNER), *SECOND, id="unknown", activation_type="elu"), "activation elu"),
    (qmoe(4, 32, id="prepacked", weights_prepacked=1), "weights packed for another provider"),
    (qmoe(4, 32, id="five", fc1_expert_weight_bits=5), "5 bits"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c: Case, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c: Case, sentence: str, ep: Ep) -> None:
    ep.refuse(c, sentence)
