"""Normalisation, activations, rotary embedding and what fused transformer blocks are made of."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from conformance.contrib.build import FLOATS, Array, Const, ContribCase, Random, case

SUM_TOO = (True, False, False, True)


def cases() -> Iterator[ContribCase]:
    """All of them."""
    for label, dtype in FLOATS.items():
        yield from norms(label, dtype)
        yield from activations(label, dtype)
        yield from rotary(label, dtype)
        yield from products(label, dtype)
    yield from state_space()
    yield from fused()


def norms(label: str, dtype: Any) -> Iterator[ContribCase]:
    """Norms with a residual, and the plain one."""
    r = Random(f"norms {label}")
    x, skip = r.normal(2, 5, 32, dtype=dtype), r.normal(2, 5, 32, dtype=dtype)
    gain, beta, bias = (r.normal(32, dtype=dtype) for _ in range(3))
    rms, full = "SkipSimplifiedLayerNormalization", "SkipLayerNormalization"
    plain = "SimplifiedLayerNormalization"
    yield case(label, rms, x, skip, gain, epsilon=1e-6)
    yield case(f"sum_{label}", rms, x, skip, gain, outputs=SUM_TOO, epsilon=1e-5)
    held = (Const(gain), Const(bias))
    yield case(f"bias_{label}", rms, x, skip, *held, outputs=SUM_TOO, epsilon=1e-5)
    yield case(label, full, x, skip, gain, beta, epsilon=1e-5)
    sums = {"outputs": SUM_TOO, "epsilon": 1e-12}
    yield case(f"bias_sum_{label}", full, x, skip, gain, beta, bias, **sums)
    yield case(f"no_beta_{label}", full, x, skip, gain, epsilon=1e-5)
    yield case(f"skip_rank_2_{label}", full, x, skip[0], gain, beta, epsilon=1e-5)
    yield case(f"skip_batch_1_{label}", full, x, skip[:1], gain, beta, epsilon=1e-5)
    own = {"epsilon": 1e-6, "axis": -1, "stash_type": 1, "domain": ""}
    yield case(label, plain, x, gain, **own)
    yield case(f"rank_4_{label}", plain, x.reshape(2, 5, 4, 8), gain[:8], **own)


def activations(label: str, dtype: Any) -> Iterator[ContribCase]:
    """The GELUs."""
    r = Random(f"activations {label}")
    x, bias = r.normal(2, 5, 32, dtype=dtype, scale=3), r.normal(32, dtype=dtype)
    yield case(label, "Gelu", x)
    yield case(label, "QuickGelu", x, alpha=1.702)
    yield case(label, "FastGelu", x)
    yield case(f"bias_{label}", "FastGelu", x, bias)
    yield case(label, "BiasGelu", x, bias)


def angles(count: int, half: int, base: float, dtype: Any) -> tuple[Array, Array]:
    """The caches of a rotary embedding."""
    turns = np.arange(count)[:, None] / base ** (np.arange(half) / half)
    return np.cos(turns).astype(dtype), np.sin(turns).astype(dtype)


def rotary(label: str, dtype: Any) -> Iterator[ContribCase]:
    """Both layouts of heads, positions as an offset and one by one, and a part of the channels."""
    caches = [Const(c) for c in angles(32, 8, 100, dtype)]
    shapes = {"rank_3": (2, 6, 64), "rank_4": (2, 4, 6, 16)}
    for interleaved, (layout, shape), by in product((0, 1), shapes.items(), ("offset", "ids")):
        name = f"{layout}_{by}_{'interleaved_' * interleaved}{label}"
        r = Random(name)
        ids = np.stack([r.order(20)[:6], np.arange(6)]).astype(np.int64)
        position = np.array([3], np.int64) if by == "offset" else ids
        x = r.normal(*shape, dtype=dtype)
        yield case(name, "RotaryEmbedding", x, position, *caches, interleaved=interleaved)
    caches = [Const(c) for c in angles(32, 4, 100, dtype)]
    for interleaved in (0, 1):
        name = f"partial_{'interleaved_' * interleaved}{label}"
        x = Random(name).normal(2, 6, 64, dtype=dtype)
        position = np.tile(np.arange(6), (2, 1))
        own = {"interleaved": interleaved, "num_heads": 4, "rotary_embedding_dim": 8}
        yield case(name, "RotaryEmbedding", x, position, *caches, **own)


def products(label: str, dtype: Any) -> Iterator[ContribCase]:
    """FusedMatMul with each of its transpositions."""
    r = Random(f"products {label}")

    def given(*shape: int) -> Array:
        return r.normal(*shape, dtype=dtype)

    op = "FusedMatMul"
    yield case(f"right_{label}", op, given(2, 4, 5), given(2, 6, 5), transB=1, alpha=0.5)
    yield case(f"left_{label}", op, given(3, 5, 4), given(3, 5, 6), transA=1, alpha=2.0)
    yield case(f"batch_{label}", op, given(4, 2, 5), given(2, 5, 6), transBatchA=1)


def state_space() -> Iterator[ContribCase]:
    """The operators of hybrid models."""
    for activation, has_past in product(("none", "silu"), (False, True)):
        name = f"{activation}{'_past' * has_past}"
        r = Random(name)
        x, past = r.normal(2, 8, 5), r.normal(2, 8, 3) if has_past else None
        weight, bias = Const(r.normal(8, 1, 4)), Const(r.normal(8))
        own = {"ndim": 1, "activation": activation, "outputs": 2}
        yield case(name, "CausalConvWithState", x, weight, bias, past, **own)
    for rule in ("linear", "gated", "delta", "gated_delta"):
        r = Random(rule)
        q, k, v = (r.normal(1, 5, 16, scale=0.3) for _ in range(3))
        state = r.normal(1, 2, 8, 8, scale=0.1)
        decay = -np.abs(r.normal(1, 5, 2)) if "gated" in rule else None
        beta = r.uniform(1, 5, 2) if "delta" in rule else None
        own = {"update_rule": rule, "q_num_heads": 2, "kv_num_heads": 2, "scale": 1.0}
        yield case(rule, "LinearAttention", q, k, v, state, decay, beta, outputs=2, **own)
    r = Random("gates")
    x, gate, weight = r.normal(2, 5, 32), r.normal(2, 5, 32), Const(r.normal(8))
    yield case("silu", "GatedRMSNorm", x, weight, gate, epsilon=1e-6, activation="silu")
    a, b, bias, scale = r.normal(2, 5, 4), r.normal(2, 5, 4), r.normal(4), -np.abs(r.normal(4))
    yield case("", "LinearAttentionGate", a, Const(bias), Const(scale), b, outputs=2)


def fused() -> Iterator[ContribCase]:
    """What ORT's optimisers write into a model."""
    r = Random("fused")
    ids = np.array([[1, 4, 7, 0], [2, 2, 9, 3]], np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)
    words, places, kinds = (Const(r.normal(n, 16)) for n in (10, 6, 2))
    ends = Const(r.normal(16)), Const(r.normal(16))
    own = {"outputs": 2, "types": (1, 6), "epsilon": 1e-12}
    embed = "EmbedLayerNormalization"
    yield case("segments", embed, ids, ids % 2, words, places, kinds, *ends, **own)
    yield case("mask", embed, ids, None, words, places, None, *ends, mask, **own)
    x, weight, bias = r.normal(1, 3, 8, 8), Const(r.normal(4, 3, 3, 3)), Const(r.normal(4))
    shape = {"activation": "Relu", "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    yield case("relu", "FusedConv", x, weight, bias, **shape)
    a, b, c = r.normal(4, 6), Const(r.normal(6, 5)), Const(r.normal(5))
    yield case("relu", "FusedGemm", a, b, c, activation="Relu")
