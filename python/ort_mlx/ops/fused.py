"""ORT's fused forms: products with transposes or activations, and normalizations after a sum.

Sources: com.microsoft FusedMatMul, TransposeMatMul, FusedGemm, SkipLayerNormalization,
SkipSimplifiedLayerNormalization, EmbedLayerNormalization, GroupNorm, SkipGroupNorm, BiasAdd
and BiasDropout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import mlx.core as mx

from ..bounds import inside
from ..dtypes import FLOATS, SINGLES
from ..node import Node
from ..padding import Axes, Mixes
from ..registry import MS, op
from ._padding import elementwise, rank_of
from .matmul import gemm_claim, gemm_product, matrix_product
from .norm import inverse_rms, layer_norm, moments, rms_norm, widened

_GROUP_TYPES: Final = frozenset({"float32", "float16"})


def _transposed(x: mx.array, trans: int, trans_batch: int) -> mx.array:
    """Swap the last two dimensions, or move the first one behind the batch dimensions."""
    if trans_batch and x.ndim > 2:
        x = mx.moveaxis(x, 0, -2)
    return mx.swapaxes(x, -1, -2) if trans and x.ndim > 1 else x


def _product(a: mx.array, b: mx.array, alpha: float) -> mx.array:
    y = matrix_product(a, b)
    return y if alpha == 1.0 else y * alpha


@op("FusedMatMul", domain=MS, since=(1,), types={"a": FLOATS})
def fused_matmul(
    a: mx.array,
    b: mx.array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> mx.array:
    left, right = _transposed(a, transA, transBatchA), _transposed(b, transB, transBatchB)
    return _product(left, right, alpha)


@op("TransposeMatMul", domain=MS, since=(1,), types={"a": FLOATS})
def transpose_matmul(
    a: mx.array, b: mx.array, *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> mx.array:
    return _product(_transposed(a, transA, 0), _transposed(b, transB, 0), alpha)


def _hard_sigmoid(x: mx.array, alpha: float = 0.2, beta: float = 0.5) -> mx.array:
    return mx.clip(x * alpha + beta, 0, 1)


def _elu(x: mx.array, alpha: float = 1.0) -> mx.array:
    return mx.where(x >= 0, x, alpha * mx.expm1(x))


def _leaky_relu(x: mx.array, alpha: float = 0.01) -> mx.array:
    return mx.where(x >= 0, x, alpha * x)


# Each takes as many of activation_alpha, activation_beta as its signature has.
_ACTIVATIONS: Final[dict[str, Callable[..., mx.array]]] = {
    "": lambda x: x,
    "Elu": _elu,
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": _leaky_relu,
    "Relu": lambda x: mx.maximum(x, 0),
    "Sigmoid": mx.sigmoid,
    "Softplus": lambda x: mx.logaddexp(x, 0),
    "Softsign": lambda x: x / (1 + mx.abs(x)),
    "Tanh": mx.tanh,
    "ThresholdedRelu": lambda x, alpha=1.0: mx.where(x > alpha, x, 0),
}


def _fused_gemm_claim(node: Node) -> Iterator[str]:
    yield from gemm_claim(node)
    if node.attr("activation", "") not in _ACTIVATIONS:
        yield f"the activation {node.attr('activation')} is not translated"


@op(
    "FusedGemm",
    domain=MS,
    since=(1,),
    types={"a": SINGLES},
    claim=_fused_gemm_claim,
)
def fused_gemm(
    a: mx.array,
    b: mx.array,
    c: mx.array | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> mx.array:
    del activation_gamma
    y = gemm_product(a, b, c, alpha, beta, (transA, transB))
    named = {"alpha": activation_alpha, "beta": activation_beta}
    given = {name: value for name, value in named.items() if value is not None}
    return _ACTIVATIONS[activation or ""](y, **given)


def _sum_skip(x: mx.array, skip: mx.array, bias: mx.array | None) -> mx.array:
    """input + skip + bias, rounded once to the type of the input."""
    total = x.astype(mx.float32) + skip.astype(mx.float32)
    return (total if bias is None else total + bias.astype(mx.float32)).astype(x.dtype)


def _summed(node: Node, axes: Axes) -> int:
    rank = rank_of(node.input("input"))
    axis = elementwise(node, axes)
    if axis == rank - 1:
        raise Mixes("it normalizes this axis")
    return axis


@op("SkipLayerNormalization", domain=MS, since=(1,), types={"input": SINGLES}, padding=_summed)
def skip_layer_normalization(
    input: mx.array,
    skip: mx.array,
    gamma: mx.array,
    beta: mx.array | None = None,
    bias: mx.array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[mx.array, ...]:
    total = _sum_skip(input, skip, bias)
    mean, inverse = moments(total, (-1,), epsilon)
    return layer_norm(total, gamma, beta, -1, epsilon), mean, inverse, total


@op(
    "SkipSimplifiedLayerNormalization",
    domain=MS,
    since=(1,),
    types={"input": SINGLES},
    padding=_summed,
)
def skip_simplified_layer_normalization(
    input: mx.array,
    skip: mx.array,
    gamma: mx.array,
    bias: mx.array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[mx.array, ...]:
    total = _sum_skip(input, skip, bias)
    inverse = inverse_rms(total, (-1,), epsilon)
    return rms_norm(total, gamma, -1, epsilon), mx.zeros_like(inverse), inverse, total


def embed(table: mx.array, ids: mx.array) -> mx.array:
    """The rows of a table of embeddings, [..., hidden]."""
    return mx.take(table, inside(ids, table.shape[0]), axis=0)


@op("EmbedLayerNormalization", domain=MS, since=(1,), types={"word_embedding": _GROUP_TYPES})
def embed_layer_normalization(
    input_ids: mx.array,
    segment_ids: mx.array | None,
    word_embedding: mx.array,
    position_embedding: mx.array,
    segment_embedding: mx.array | None,
    gamma: mx.array,
    beta: mx.array,
    mask: mx.array | None = None,
    position_ids: mx.array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
) -> tuple[mx.array, ...]:
    batch, length = input_ids.shape
    position = mx.arange(length)[None] if position_ids is None else position_ids
    total = embed(word_embedding, input_ids) + embed(position_embedding, position)
    if segment_ids is not None and segment_embedding is not None:
        total = total + embed(segment_embedding, segment_ids)
    mask_index = mx.zeros((batch,), dtype=mx.int32)
    if mask is not None:
        mask_index = mx.sum(mask, axis=1).astype(mx.int32)
    return layer_norm(total, gamma, beta, -1, epsilon), mask_index, total


def _group_norm(
    x: mx.array, gamma: mx.array, beta: mx.array, epsilon: float, groups: int, activation: int
) -> mx.array:
    """Channels last; activation 1 is SiLU."""
    if x.ndim < 2 or groups < 1 or x.shape[-1] % groups:
        raise ValueError(f"the channels do not fit {groups} groups, channels last {x.shape}")
    split = widened(x).reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    axes = (*range(1, x.ndim - 1), x.ndim)
    mean, inverse = moments(split, axes, epsilon)
    y = ((split - mean) * inverse).reshape(x.shape) * widened(gamma) + widened(beta)
    return (y * mx.sigmoid(y) if activation == 1 else y).astype(x.dtype)


def _group_claim(node: Node) -> Iterator[str]:
    if node.attr("activation") not in (0, 1):
        yield "the activation is neither none nor SiLU"


@op("GroupNorm", domain=MS, since=(1,), types={"x": _GROUP_TYPES}, claim=_group_claim)
def group_norm(
    x: mx.array,
    gamma: mx.array,
    beta: mx.array,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> mx.array:
    last = x if channels_last else mx.moveaxis(x, 1, -1)
    y = _group_norm(last, gamma, beta, epsilon, groups, activation)
    return y if channels_last else mx.moveaxis(y, -1, 1)


@op("SkipGroupNorm", domain=MS, since=(1,), types={"x": _GROUP_TYPES}, claim=_group_claim)
def skip_group_norm(
    x: mx.array,
    gamma: mx.array,
    beta: mx.array,
    skip: mx.array,
    bias: mx.array | None = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> tuple[mx.array, mx.array]:
    if skip.ndim == 2:
        skip = skip[:, None, None, :]
    elif not channels_last:
        skip = mx.moveaxis(skip, 1, -1)
    total = _sum_skip(x if channels_last else mx.moveaxis(x, 1, -1), skip, bias)
    y = _group_norm(total, gamma, beta, epsilon, groups, activation)
    return (y, total) if channels_last else (mx.moveaxis(y, -1, 1), mx.moveaxis(total, -1, 1))


@op("BiasAdd", domain=MS, since=(1,), types={"x": _GROUP_TYPES})
def bias_add(x: mx.array, bias: mx.array, skip: mx.array) -> mx.array:
    return _sum_skip(x, skip, bias)
