"""Mixture-of-experts arithmetic: routing, products with chosen experts, gated activations.

Source: com.microsoft MoE and QMoE; mx.gather_mm and mx.gather_qmm compute only the chosen experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import mlx.core as mx

from ..node import Node
from ._bits import Packed, sum_dtype

Unary: TypeAlias = Callable[[mx.array], mx.array]
Project: TypeAlias = Callable[[mx.array, mx.array, bool], mx.array]  # rows, experts, sorted


def _gelu(x: mx.array) -> mx.array:
    return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


ACTIVATIONS: Final[Mapping[str, Unary]] = {
    "relu": lambda x: mx.maximum(x, 0),
    "relu2": lambda x: mx.square(mx.maximum(x, 0)),
    "gelu": _gelu,
    "silu": lambda x: x * mx.sigmoid(x),
    "identity": lambda x: x,
}
_GATED: Final = ("swiglu", "geglu")
_JITTER: Final = 0.01  # of the sparse mixer: twice that apart, relatively, is not close
_SORTED_FROM = 64  # rows from which grouping them by expert pays


@dataclass(frozen=True)
class Gate:
    """How the first projections become the input of the second."""

    activation: str
    fusion: int = 0  # 0: two projections, 1: interleaved, 2: one after the other
    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None
    limit_after: bool = False

    def __call__(self, first: mx.array, third: mx.array | None) -> mx.array:
        if self.activation not in _GATED:
            y = ACTIVATIONS[self.activation](first)
            return y if third is None else y * third
        gate, up = self._pair(first, third)
        if self.activation == "geglu":
            return _gelu(gate) * up
        if self.limit is None:
            return gate * mx.sigmoid(self.alpha * gate) * (up + self.beta)
        up = mx.clip(up, -self.limit, self.limit)
        if self.limit_after:
            return mx.minimum(gate * mx.sigmoid(self.alpha * gate), self.limit) * (up + self.beta)
        gate = mx.minimum(gate, self.limit)
        return gate * mx.sigmoid(self.alpha * gate) * (up + self.beta)

    def _pair(self, first: mx.array, third: mx.array | None) -> tuple[mx.array, mx.array]:
        if self.fusion == 0 and third is not None:
            return first, third
        if self.fusion == 1:
            return first[..., 0::2], first[..., 1::2]
        half = first.shape[-1] // 2
        return first[..., :half], first[..., half:]


def expert_claim(node: Node) -> Iterator[str]:
    """What neither MoE nor QMoE translates."""
    activation = node.attr("activation_type", "relu")
    fusion = node.attr("swiglu_fusion", 0)
    if activation not in (*ACTIVATIONS, *_GATED):
        yield f"activation {activation}"
    if activation in _GATED and fusion == 0 and node.missing("fc3_experts_weights"):
        yield f"{activation} without its second projection"
    if activation == "geglu" and fusion == 0:
        yield "geglu with separate projections"
    if fusion and not node.missing("fc3_experts_weights"):
        yield "fused projections and a third one"
    if node.attr("use_sparse_mixer", 0):
        if node.attr("k", 1) != 2:
            yield "the sparse mixer of another number of experts than 2"
        if "router_weights" in node.param_names and not node.missing("router_weights"):
            yield "the sparse mixer and weights of the router"


def check_experts(router: mx.array, *tensors: mx.array | None) -> None:
    """Every tensor has a row for each expert of the router.

    Raises:
        ValueError: one has more or fewer.
    """
    count = router.shape[-1]
    if any(t is not None and t.shape[0] != count for t in tensors):
        shapes = [t.shape for t in tensors if t is not None]
        raise ValueError(f"the tensors are not those of {count} experts: {shapes}")


def mix_experts(
    x: mx.array,
    router: mx.array,
    projections: tuple[Project, Project, Project | None],
    gate: Gate,
    *,
    k: int,
    normalize: bool,
    sparse: bool = False,
    shares: mx.array | None = None,
) -> mx.array:
    """The sum over each token's best `k` experts, weighted by the softmax of the router.

    Args:
        x: the tokens, [..., hidden].
        router: a logit for each expert, [tokens, experts].
        projections: the first, the second, and the one that is gated by the first.
        gate: the activation between them.
        k: how many experts of each token.
        normalize: whether their weights sum up to 1.
        sparse: whether the sparse mixer chooses and weighs them instead.
        shares: the weights, like `router`, where they are not its softmax.
    """
    tokens = x.reshape(-1, x.shape[-1])
    if not 0 < k <= router.shape[-1]:
        raise ValueError(f"{k} of {router.shape[-1]} experts")
    if tokens.shape[0] == 0 or router.shape[0] != tokens.shape[0]:
        if tokens.size == 0:
            return x
        raise ValueError(f"router rows do not match the tokens: {router.shape}, {x.shape}")
    if sparse:
        experts, weights = _mix_sparsely(router.astype(mx.float32))
    else:
        experts, weights = _route(router, k, normalize, shares)
    chosen = experts.reshape(-1)
    rows = mx.repeat(mx.arange(tokens.shape[0]), k)
    grouped = chosen.size >= _SORTED_FROM
    if grouped:
        order = mx.argsort(chosen)
        chosen, rows = chosen[order], rows[order]
    first, second, third = projections
    inner = mx.take(tokens, rows, axis=0)
    up = None if third is None else third(inner, chosen, grouped)
    y = second(gate(first(inner, chosen, grouped), up), chosen, grouped)
    if grouped:
        y = y[mx.argsort(order)]
    y = y.reshape(-1, k, y.shape[-1]).astype(mx.float32) * weights[..., None]
    return y.sum(axis=1).astype(x.dtype).reshape(x.shape)


def _route(
    router: mx.array, k: int, normalize: bool, shares: mx.array | None
) -> tuple[mx.array, mx.array]:
    """The best experts of each token and the weight of each, [tokens, k]."""
    logits = router.astype(mx.float32)
    experts = mx.argsort(logits, axis=-1)[:, -k:]  # of equals the last, as ORT does
    if shares is not None and shares.shape != router.shape:
        raise ValueError(f"the weights do not fit the router: {shares.shape}, {router.shape}")
    shares = mx.softmax(logits, axis=-1) if shares is None else shares.astype(mx.float32)
    weights = mx.take_along_axis(shares, experts, axis=-1)
    if normalize:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return experts, weights


def _as_matrices(rows: mx.array) -> mx.array:
    """Each row as a matrix of one row.

    By a reshape, since MLX's CUDA products of sorted groups go by the stride of that axis, which
    is not the row's after an expansion.
    """
    return rows.reshape(rows.shape[0], 1, rows.shape[1])


def _mix_sparsely(logits: mx.array) -> tuple[mx.array, mx.array]:
    """The two best experts of each token, each weighed against those that come close to it.

    The second is chosen, and weighed, without the first. ORT's CPU kernel ignores the attribute;
    this is SparseMixer as its CUDA kernel has it.
    """
    chosen, weights = [], []
    left = logits
    for _ in range(2):
        best = mx.argmax(left, axis=-1, keepdims=True)
        high = mx.take_along_axis(left, best, axis=-1)
        near = high - logits <= 2 * _JITTER * mx.maximum(mx.abs(logits), high)
        total = mx.where(near, mx.exp(left - high), 0).sum(axis=-1, keepdims=True)
        chosen.append(best)
        weights.append(1 / total)
        left = mx.where(mx.arange(logits.shape[-1]) == best, -math.inf, left)
    return mx.concatenate(chosen, axis=-1), mx.concatenate(weights, axis=-1)


def dense_projection(weight: mx.array, bias: mx.array | None) -> Project:
    """Rows times their expert's weight [experts, out, in], and its bias."""

    def project(rows: mx.array, experts: mx.array, grouped: bool) -> mx.array:
        dtype = sum_dtype(rows.dtype)
        y = mx.gather_mm(
            _as_matrices(rows.astype(dtype)),
            weight.swapaxes(-1, -2).astype(dtype),
            rhs_indices=experts,
            sorted_indices=grouped,
        )[:, 0].astype(rows.dtype)
        return y if bias is None else y + mx.take(bias, experts, axis=0)

    return project


def packed_projection(weight: Packed, bias: mx.array | None) -> Project:
    """Rows times their expert's quantized weight, and its bias."""

    def project(rows: mx.array, experts: mx.array, grouped: bool) -> mx.array:
        dtype = sum_dtype(rows.dtype)
        y = mx.gather_qmm(
            _as_matrices(rows.astype(dtype)),
            weight.codes,
            weight.scales.astype(dtype),
            weight.biases.astype(dtype),
            rhs_indices=experts,
            group_size=weight.group,
            bits=weight.bits,
            sorted_indices=grouped,
        )[:, 0].astype(rows.dtype)
        return y if bias is None else y + mx.take(bias, experts, axis=0)

    return project
