"""Mixture of experts, dense and quantized.

Sources: com.microsoft MoE and QMoE (integer weights, and float8e4m3fn scaled by squares).
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import SINGLES
from ..node import Node
from ..registry import MS, op
from ._bits import block_zeros, dequantize, pack, unpack
from ._experts import (
    Gate,
    Project,
    check_experts,
    dense_projection,
    expert_claim,
    mix_experts,
    packed_projection,
)

_BITS = (2, 3, 4, 8)
_WEIGHTS = frozenset({"uint8", "float8e4m3fn"})


@op("MoE", domain=MS, since=(1,), types={"input": SINGLES}, claim=expert_claim)
def moe(
    input: mx.array,
    router_probs: mx.array,
    fc1_experts_weights: mx.array,
    fc1_experts_bias: mx.array | None,
    fc2_experts_weights: mx.array,
    fc2_experts_bias: mx.array | None = None,
    fc3_experts_weights: mx.array | None = None,
    fc3_experts_bias: mx.array | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
) -> mx.array:
    check_experts(
        router_probs,
        *(fc1_experts_weights, fc1_experts_bias),
        *(fc2_experts_weights, fc2_experts_bias),
        *(fc3_experts_weights, fc3_experts_bias),
    )
    third = None
    if fc3_experts_weights is not None:
        third = dense_projection(fc3_experts_weights, fc3_experts_bias)
    gate = Gate(
        activation_type,
        swiglu_fusion,
        activation_alpha,
        activation_beta,
        swiglu_limit,
        bool(swiglu_limit_after_activation),
    )
    first = dense_projection(fc1_experts_weights, fc1_experts_bias)
    second = dense_projection(fc2_experts_weights, fc2_experts_bias)
    return mix_experts(
        input,
        router_probs,
        (first, second, third),
        gate,
        k=k,
        normalize=bool(normalize_routing_weights),
        sparse=bool(use_sparse_mixer),
    )


def _qmoe_claim(node: Node) -> Iterator[str]:
    yield from expert_claim(node)
    kind, held = node.attr("quant_type", "int"), node.dtype("fc1_experts_weights")
    if kind not in ("int", "fp8"):
        yield f"weights of {kind}"
        return
    if (kind == "fp8") != (held == "float8e4m3fn"):
        yield f"weights of {kind} held in {held}"
    if any(not node.missing(name) for name in ("fc1_global_scale", "fc1_act_scale")):
        yield "scales of whole experts or of activations"
    if kind == "fp8":
        if node.attr("block_size", 0) <= 0:
            yield "float8 weights without blocks"
        return
    default = node.attr("expert_weight_bits", 4)
    for name in ("fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits"):
        if (bits := node.attr(name, default)) not in _BITS:
            yield f"{bits} bits"
        elif bits == 3 and node.attr("block_size", 0) not in (32, 64, 128):
            yield "3 bits without blocks of 32, 64 or 128"
    if node.attr("weights_prepacked", -1) == 1:
        yield "weights packed for another provider"


@op(
    "QMoE",
    domain=MS,
    since=(1,),
    types={
        "input": SINGLES,
        "fc1_experts_weights": _WEIGHTS,
        "fc2_experts_weights": _WEIGHTS,
        "fc3_experts_weights": _WEIGHTS,
        "fc1_scales": SINGLES,
        "fc2_scales": SINGLES,
    },
    claim=_qmoe_claim,
)
def qmoe(
    input: mx.array,
    router_probs: mx.array,
    fc1_experts_weights: mx.array,
    fc1_scales: mx.array,
    fc1_experts_bias: mx.array | None,
    fc2_experts_weights: mx.array,
    fc2_scales: mx.array,
    fc2_experts_bias: mx.array | None = None,
    fc3_experts_weights: mx.array | None = None,
    fc3_scales: mx.array | None = None,
    fc3_experts_bias: mx.array | None = None,
    fc1_zero_points: mx.array | None = None,
    fc2_zero_points: mx.array | None = None,
    fc3_zero_points: mx.array | None = None,
    router_weights: mx.array | None = None,
    fc1_global_scale: mx.array | None = None,
    fc2_global_scale: mx.array | None = None,
    fc1_act_scale: mx.array | None = None,
    fc2_act_scale: mx.array | None = None,
    fc1_act_block_scale: mx.array | None = None,
    fc2_act_block_scale: mx.array | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int | None = None,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
) -> mx.array:
    def project(
        weight: mx.array,
        scales: mx.array,
        zeros: mx.array | None,
        bias: mx.array | None,
        bits: int | None,
    ) -> Project:
        check_experts(router_probs, weight, scales, zeros, bias)
        if quant_type == "fp8":
            return dense_projection(_by_squares(weight, scales, block_size or 0), bias)
        width = bits or expert_weight_bits
        return _quantized_projection(weight, scales, zeros, bias, width, block_size or 0)

    first = project(
        fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_experts_bias, fc1_expert_weight_bits
    )
    second = project(
        fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_experts_bias, fc2_expert_weight_bits
    )
    third = None
    if fc3_experts_weights is not None and fc3_scales is not None:
        third = project(
            fc3_experts_weights,
            fc3_scales,
            fc3_zero_points,
            fc3_experts_bias,
            fc3_expert_weight_bits,
        )
    gate = Gate(
        activation_type,
        swiglu_fusion,
        activation_alpha,
        activation_beta,
        swiglu_limit,
        bool(swiglu_limit_after_activation),
    )
    return mix_experts(
        input,
        router_probs,
        (first, second, third),
        gate,
        k=k,
        normalize=bool(normalize_routing_weights),
        sparse=bool(use_sparse_mixer),
        shares=router_weights,
    )


def _by_squares(weight: mx.array, scales: mx.array, block: int) -> mx.array:
    """Weights [experts, out, in] times the scale of the square that each lies in."""
    rows, columns = weight.shape[1:]
    for axis, size in ((1, rows), (2, columns)):
        if scales.ndim != 3 or scales.shape[axis] != -(-size // block):
            raise ValueError(f"squares of {block} do not fit: {weight.shape}, {scales.shape}")
        scales = mx.repeat(scales, block, axis=axis)
    wide = weight.astype(mx.float32) * scales[:, :rows, :columns].astype(mx.float32)
    return wide.astype(scales.dtype)


def _quantized_projection(
    weight: mx.array,
    scales: mx.array,
    zeros: mx.array | None,
    bias: mx.array | None,
    bits: int,
    block: int,
) -> Project:
    """A projection by integer weights [experts, out, bytes], in MLX's layout when it fits."""
    if bits == 3:  # the only zero point allowed there is the default
        zeros = None
    if block <= 0:  # one scale for a whole row, and zero points packed along the rows
        block = weight.shape[-1] * 8 // bits
        if zeros is not None:
            zeros = unpack(zeros, bits)[:, : scales.shape[1], None].astype(scales.dtype)
        scales = scales.reshape(*weight.shape[:2], 1)
    points = block_zeros(zeros, scales, bits)
    packed = pack(weight, scales, points, bits=bits, block=block)
    if packed is not None:
        return packed_projection(packed, bias)
    return dense_projection(dequantize(weight, scales, points, bits=bits, block=block), bias)
