"""Normalizations: layer, RMS, batch, instance, group, Lp, mean-variance.

Sources: the ONNX operators, ORT's LayerNormalization before opset 17 and its
SimplifiedLayerNormalization; MLX `fast.layer_norm` and `fast.rms_norm`. Halves are normalized in
float32, float64 in float64 by plain arithmetic since the fast forms compute in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import mlx.core as mx

from ..dtypes import FLOATS, mlx_dtype
from ..node import Node
from ..padding import Axes, Mixes
from ..registry import op
from ._padding import apart_from, at_axis, batched, from_axis, sole


def widened(x: mx.array) -> mx.array:
    """The value in the type that normalizations compute in."""
    return x if x.dtype == mx.float64 else x.astype(mx.float32)


def moments(x: mx.array, axes: tuple[int, ...], epsilon: float) -> tuple[mx.array, mx.array]:
    """The mean and 1 / sqrt(variance + epsilon) over `axes`, kept as dimensions of 1."""
    wide = widened(x)
    mean = mx.mean(wide, axis=axes, keepdims=True)
    variance = mx.mean(mx.square(wide - mean), axis=axes, keepdims=True)
    return mean, mx.rsqrt(variance + epsilon)


def inverse_rms(x: mx.array, axes: tuple[int, ...], epsilon: float) -> mx.array:
    """1 / sqrt(mean(x * x) + epsilon) over `axes`, kept as dimensions of 1."""
    return mx.rsqrt(mx.mean(mx.square(widened(x)), axis=axes, keepdims=True) + epsilon)


def standardized(x: mx.array, epsilon: float) -> mx.array:
    """Zero mean and unit variance over the last axis."""
    if x.dtype != mx.float64:
        return mx.fast.layer_norm(x, None, None, epsilon)
    mean, inverse = moments(x, (-1,), epsilon)
    return (x - mean) * inverse


def _tail(x: mx.array, axis: int) -> tuple[int, tuple[int, ...]]:
    """The first normalized axis, counted from the front, and the shape from there on."""
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis {axis} is out of range, got shape {x.shape}")
    axis %= x.ndim
    return axis, x.shape[axis:]


def _is_flat(x: mx.array, tail: tuple[int, ...], *factors: mx.array | None) -> bool:
    """Whether the fast form fits: one factor an element, and not float64."""
    return x.dtype != mx.float64 and all(f is None or f.shape == tail for f in factors)


def layer_norm(
    x: mx.array, scale: mx.array, b: mx.array | None, axis: int, epsilon: float
) -> mx.array:
    """Layer normalization from `axis` on, in the type of `scale`."""
    axis, tail = _tail(x, axis)
    flat = x.reshape(*x.shape[:axis], prod(tail))
    if _is_flat(x, tail, scale, b):
        bias = None if b is None else b.reshape(-1)
        y = mx.fast.layer_norm(flat, scale.reshape(-1), bias, epsilon)
        return y.reshape(x.shape).astype(scale.dtype)
    y = standardized(widened(flat), epsilon).reshape(x.shape) * widened(scale)
    return (y if b is None else y + widened(b)).astype(scale.dtype)


def rms_norm(x: mx.array, scale: mx.array, axis: int, epsilon: float) -> mx.array:
    """RMS normalization from `axis` on, in the type of `scale`."""
    axis, tail = _tail(x, axis)
    if _is_flat(x, tail, scale):
        flat = x.reshape(*x.shape[:axis], prod(tail))
        y = mx.fast.rms_norm(flat, scale.reshape(-1), epsilon)
        return y.reshape(x.shape).astype(scale.dtype)
    inverse = inverse_rms(x, tuple(range(axis, x.ndim)), epsilon)
    return (widened(x) * inverse * widened(scale)).astype(scale.dtype)


def _stash_claim(node: Node) -> Iterator[str]:
    if node.attr("stash_type", 1) not in (1, 10, 16):
        yield "the statistics are stashed in a type other than float32 and the halves"


# Halves as stash_type ask for less precise statistics; float32 ones are at least as good.
@op(
    "LayerNormalization",
    since=(1, 17),
    types={"x": FLOATS, "scale": FLOATS},
    claim=_stash_claim,
    padding=apart_from("x", from_axis(-1)),
)
def layer_normalization(
    x: mx.array,
    scale: mx.array,
    b: mx.array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[mx.array, mx.array, mx.array]:
    y = layer_norm(x, scale, b, axis, epsilon)
    mean, inverse = moments(x, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    stash = mlx_dtype(stash_type)
    return y, mean.astype(stash), inverse.astype(stash)


@op(
    "SimplifiedLayerNormalization",
    since=(1,),
    types={"x": FLOATS, "scale": FLOATS},
    claim=_stash_claim,
    padding=apart_from("x", from_axis(-1)),
)
def simplified_layer_normalization(
    x: mx.array, scale: mx.array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[mx.array, mx.array]:
    y = rms_norm(x, scale, axis, epsilon)
    inverse = inverse_rms(x, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    return y, inverse.astype(mlx_dtype(stash_type))


@op(
    "RMSNormalization",
    since=(23,),
    types={"x": FLOATS, "scale": FLOATS},
    claim=_stash_claim,
    padding=apart_from("x", from_axis(-1)),
)
def rms_normalization(
    x: mx.array, scale: mx.array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> mx.array:
    del stash_type
    return rms_norm(x, scale, axis, epsilon)


def by_channel(param: mx.array, rank: int) -> mx.array:
    """A vector of channels shaped to broadcast with [batch, channels, ...]."""
    return param.reshape(-1, *(1,) * (rank - 2)) if rank > 1 else param


def _batch_norm(
    x: mx.array, scale: mx.array, b: mx.array, mean: mx.array, var: mx.array, epsilon: float
) -> mx.array:
    """Statistics folded into one factor and one offset, all shaped to broadcast with `x`."""
    wide = widened(x)
    factor = scale.astype(wide.dtype) * mx.rsqrt(var.astype(wide.dtype) + epsilon)
    offset = b.astype(wide.dtype) - mean.astype(wide.dtype) * factor
    return (wide * factor + offset).astype(x.dtype)


def _training_claim(node: Node) -> Iterator[str]:
    if any(value is not None for value in node.outputs[1:]):
        yield "the running statistics are outputs, which is training"


def _by_channel_padding(node: Node, axes: Axes) -> int:
    axis = sole(node, axes, "x")
    if axis == 1 or node.attr("training_mode", 0) or not node.attr("spatial", 1):
        raise Mixes("its factors go along this axis, or it is training")
    return axis


@op(
    "BatchNormalization",
    since=(7,),
    types={"x": FLOATS},
    claim=_training_claim,
    padding=_by_channel_padding,
)
def batch_normalization_7(
    x: mx.array,
    scale: mx.array,
    b: mx.array,
    mean: mx.array,
    var: mx.array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
) -> mx.array:
    del momentum
    # Without `spatial` there is one scale an element of [channels, ...], which broadcasts as it is.
    shaped = [by_channel(p, x.ndim) if spatial else p for p in (scale, b, mean, var)]
    return _batch_norm(x, shaped[0], shaped[1], shaped[2], shaped[3], epsilon)


@op(
    "BatchNormalization",
    since=(9,),
    types={"x": FLOATS},
    claim=_training_claim,
    padding=_by_channel_padding,
)
def batch_normalization_9(
    x: mx.array,
    scale: mx.array,
    b: mx.array,
    mean: mx.array,
    var: mx.array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> mx.array:
    del momentum
    scale, b, mean, var = (by_channel(p, x.ndim) for p in (scale, b, mean, var))
    return _batch_norm(x, scale, b, mean, var, epsilon)


@op(
    "BatchNormalization",
    since=(14, 15),
    types={"x": FLOATS, "scale": FLOATS, "input_mean": FLOATS},
    padding=_by_channel_padding,
)
def batch_normalization(
    x: mx.array,
    scale: mx.array,
    b: mx.array,
    input_mean: mx.array,
    input_var: mx.array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[mx.array, mx.array, mx.array]:
    mean, var = input_mean, input_var
    if training_mode:
        axes = [i for i in range(x.ndim) if i != 1]
        mean, var = mx.mean(widened(x), axis=axes), mx.var(widened(x), axis=axes)
    shaped = [by_channel(p, x.ndim) for p in (scale, b, mean, var)]
    y = _batch_norm(x, shaped[0], shaped[1], shaped[2], shaped[3], epsilon)
    if training_mode:
        mean = input_mean * momentum + mean.astype(input_mean.dtype) * (1 - momentum)
        var = input_var * momentum + var.astype(input_var.dtype) * (1 - momentum)
    return y, mean, var


def grouped(x: mx.array, groups: int, epsilon: float) -> mx.array:
    """[batch, channels, ...] standardized over each group of channels, as [batch, groups, -1]."""
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ValueError(f"the channels do not fit {groups} groups, got shape {x.shape}")
    flat = (x.shape[0], groups, prod(x.shape[2:]) * (x.shape[1] // groups))
    return standardized(widened(x).reshape(flat), epsilon)


@op("InstanceNormalization", since=(6, 22), types={"input": FLOATS}, padding=batched("input"))
def instance_normalization(
    input: mx.array, scale: mx.array, b: mx.array, *, epsilon: float = 1e-5
) -> mx.array:
    y = grouped(input, input.shape[1], epsilon) * widened(scale)[:, None] + widened(b)[:, None]
    return y.reshape(input.shape).astype(input.dtype)


@op("GroupNormalization", since=(18,), types={"x": FLOATS}, padding=batched("x"))
def group_normalization_18(
    x: mx.array, scale: mx.array, bias: mx.array, *, epsilon: float = 1e-5, num_groups: int
) -> mx.array:
    y = grouped(x, num_groups, epsilon) * widened(scale)[:, None] + widened(bias)[:, None]
    return y.reshape(x.shape).astype(x.dtype)


@op(
    "GroupNormalization", since=(21,), types={"x": FLOATS}, claim=_stash_claim, padding=batched("x")
)
def group_normalization(
    x: mx.array,
    scale: mx.array,
    bias: mx.array,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> mx.array:
    del stash_type
    scale, bias = (by_channel(widened(p), x.ndim) for p in (scale, bias))
    return (grouped(x, num_groups, epsilon).reshape(x.shape) * scale + bias).astype(x.dtype)


@op(
    "LpNormalization",
    since=(1, 22),
    types={"input": FLOATS},
    padding=apart_from("input", at_axis(-1)),
)
def lp_normalization(input: mx.array, *, axis: int = -1, p: int = 2) -> mx.array:
    wide = widened(input)
    if p == 1:
        norm = mx.sum(mx.abs(wide), axis=axis, keepdims=True)
    else:
        norm = mx.sqrt(mx.sum(mx.square(wide), axis=axis, keepdims=True))
    return mx.where(norm == 0, 0, wide / norm).astype(input.dtype)


@op("MeanVarianceNormalization", since=(9, 13), types={"x": FLOATS})
def mean_variance_normalization(x: mx.array, *, axes: tuple[int, ...] = (0, 2, 3)) -> mx.array:
    wide = widened(x)
    centred = wide - mx.mean(wide, axis=axes, keepdims=True)
    deviation = mx.sqrt(mx.mean(mx.square(centred), axis=axes, keepdims=True))
    return (centred / (deviation + 1e-9)).astype(x.dtype)
