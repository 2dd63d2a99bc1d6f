"""Answers in numpy for forms that ORT CPU has no kernel for, from the operators' documentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

Array = NDArray[Any]


def bound(model: onnx.ModelProto, inputs: list[Array]) -> tuple[list[Any], dict[str, Any]]:
    """The values of the only node's inputs, None where it omits one, and its attributes."""
    (node,) = model.graph.node
    known = dict(zip((i.name for i in model.graph.input), inputs, strict=True))
    known |= {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return [known.get(name) for name in node.input] + [None] * 12, attributes


def unpacked(packed: Array, bits: int) -> Array:
    """The codes of the last axis, those in the low bits of a byte first."""
    shifts = np.arange(0, 8, bits)
    codes = (packed[..., None].astype(np.int32) >> shifts) & (2**bits - 1)
    return codes.reshape(*packed.shape[:-1], -1)


def low_bit_product(model: onnx.ModelProto, inputs: list[Array]) -> list[Array]:
    """MatMulNBits."""
    (x, packed, scales, zeros, _, bias, *_), attrs = bound(model, inputs)
    depth, width, bits, block = attrs["K"], attrs["N"], attrs["bits"], attrs["block_size"]
    blocks = -(-depth // block)
    codes = unpacked(packed, bits).reshape(width, blocks, block).astype(np.float32)
    if zeros is None:
        point = np.full((width, blocks), 2.0 ** (bits - 1), np.float32)
    elif zeros.dtype == np.uint8:
        point = unpacked(zeros.reshape(width, -1), bits)[:, :blocks].astype(np.float32)
    else:
        point = zeros.reshape(width, blocks).astype(np.float32)
    scale = scales.reshape(width, blocks, 1).astype(np.float32)
    weight = ((codes - point[..., None]) * scale).reshape(width, -1)[:, :depth]
    y = x.astype(np.float32) @ weight.T
    return [(y if bias is None else y + bias).astype(x.dtype)]


def softmax(scores: Array) -> Array:
    """Along the last axis."""
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(exp / exp.sum(-1, keepdims=True))


def packed_attention(model: onnx.ModelProto, inputs: list[Array]) -> list[Array]:
    """MultiHeadAttention whose first or second input holds [batch, length, heads, parts, size]."""
    (query, pair, *_), _ = bound(model, inputs)
    if pair is None:
        q, k, v = (query[:, :, :, i] for i in range(3))
    else:
        k, v = (pair[:, :, :, i] for i in range(2))
        q = query.reshape(*query.shape[:2], *k.shape[2:])
    q, k, v = (a.astype(np.float32).transpose(0, 2, 1, 3) for a in (q, k, v))
    weights = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]))
    y = (weights @ v).transpose(0, 2, 1, 3)
    return [y.reshape(*y.shape[:2], -1).astype(query.dtype)]


def _swiglu(h: Array, attrs: dict[str, Any]) -> Array:
    together = attrs["swiglu_fusion"] == 1
    gate, linear = (h[..., 0::2], h[..., 1::2]) if together else np.split(h, 2, -1)
    limit = attrs["swiglu_limit"]
    gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
    swish = gate / (1 + np.exp(-attrs["activation_alpha"] * gate))
    return np.asarray(swish * (linear + attrs["activation_beta"]))


def experts(model: onnx.ModelProto, inputs: list[Array]) -> list[Array]:
    """MoE with the activation swiglu: every row by its best experts, weighed by their logits."""
    (x, logits, first, first_bias, second, second_bias, *_), attrs = bound(model, inputs)
    probabilities = softmax(logits)
    y = np.zeros_like(x)
    for row in range(len(x)):
        best = np.argsort(-logits[row], kind="stable")[: attrs["k"]]
        weights = probabilities[row, best]
        if attrs["normalize_routing_weights"]:
            weights = weights / weights.sum()
        for expert, weight in zip(best, weights, strict=True):
            inner = _swiglu(first[expert] @ x[row] + first_bias[expert], attrs)
            y[row] += weight * (second[expert] @ inner + second_bias[expert])
    return [y]
