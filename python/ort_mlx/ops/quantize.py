"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear, per tensor, per axis and in blocks.

Sources: the ONNX operators, and ORT's com.microsoft forms of the first two. The arithmetic is done
in float32 whatever the types at the edges, rounding half to even as `mx.round` does.
"""

from __future__ import annotations

from typing import Final

import mlx.core as mx

from ..dtypes import (
    FLOAT8,
    MLX_DTYPES,
    NARROW_FLOATS,
    NARROW_INTS,
    ONNX_NAMES,
    SINGLES,
    mlx_dtype,
    name_of,
)
from ..node import Node
from ..registry import MS, op
from ._narrow import narrow, reach

BYTES: Final = frozenset({"int8", "uint8"})
QUANTIZED: Final = BYTES | frozenset({"int16", "uint16"})
STORED: Final = QUANTIZED | frozenset({"int32"})
NARROW_STORED: Final = NARROW_INTS | FLOAT8 | {"float4e2m1"}
SCALES: Final = SINGLES
_SCALES: Final = SCALES | {"float8e8m0"}  # a power of two, as the microscaling formats have it


def quantize(x: mx.array, scale: mx.array, zero: mx.array | None, dtype: mx.Dtype) -> mx.array:
    """round(x / scale) + zero, saturated; the three must broadcast."""
    return saturate(_quotient(x, scale), zero, name_of(dtype))


def _quotient(x: mx.array, scale: mx.array) -> mx.array:
    return x.astype(mx.float32) / scale.astype(mx.float32)


def saturate(x: mx.array, zero: mx.array | None, name: str) -> mx.array:
    """round(x) + zero, saturated to the integer type of this name."""
    low, high = reach(name)
    y = mx.round(x)
    if zero is not None:
        y = y + zero.astype(mx.float32)
    # NaN becomes the smallest value, as in ORT.
    return mx.minimum(mx.where(y > low, y, low), high).astype(MLX_DTYPES[name])


def dequantize(x: mx.array, scale: mx.array, zero: mx.array | None) -> mx.array:
    """(x - zero) * scale in float32; the three must broadcast. Float types have no zero point."""
    if mx.issubdtype(x.dtype, mx.floating):
        return x.astype(mx.float32) * scale.astype(mx.float32)
    wide = x.astype(mx.int32)
    if zero is not None:
        wide = wide - zero.astype(mx.int32)
    return wide.astype(mx.float32) * scale.astype(mx.float32)


def spread(param: mx.array, x: mx.array, axis: int, block_size: int = 0) -> mx.array:
    """Shape a scale or a zero point so that it broadcasts with `x`."""
    if param.size == 1 and not block_size:
        return param.reshape(())
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis {axis} is out of range, got shape {x.shape}")
    axis %= x.ndim
    size = x.shape[axis]
    if not block_size:
        if param.ndim != 1 or param.size != size:
            raise ValueError(f"the scale does not fit axis {axis}, got {param.shape} and {x.shape}")
        return param.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    blocks = tuple(-(-d // block_size) if i == axis else d for i, d in enumerate(x.shape))
    if param.shape != blocks:
        raise ValueError(f"blocks of {block_size} need scales {blocks}, got shape {param.shape}")
    repeated = mx.repeat(param, block_size, axis=axis)
    return repeated[(slice(None),) * axis + (slice(0, size),)]


def _quantize(
    node: Node,
    x: mx.array,
    y_scale: mx.array,
    y_zero_point: mx.array | None,
    axis: int,
    block_size: int = 0,
    output_dtype: int = 0,
    saturates: int = 1,
) -> mx.array:
    name = node.dtype("y_zero_point") or (ONNX_NAMES[output_dtype] if output_dtype else "uint8")
    y = _quotient(x, spread(y_scale, x, axis, block_size))
    zero = None if y_zero_point is None else spread(y_zero_point, x, axis, block_size)
    if name in NARROW_FLOATS:
        return narrow(y, name, saturate=saturates)
    return saturate(y, zero, name)


_QUANTIZE_TYPES: Final = {
    "x": SINGLES | {"int32"},
    "y_scale": _SCALES,
    "y_zero_point": QUANTIZED | NARROW_STORED,
}


@op("QuantizeLinear", since=(10,), types=_QUANTIZE_TYPES)
def quantize_linear_10(
    x: mx.array, y_scale: mx.array, y_zero_point: mx.array | None = None, *, node: Node
) -> mx.array:
    return _quantize(node, x, y_scale, y_zero_point, 1)


@op("QuantizeLinear", since=(13,), types=_QUANTIZE_TYPES)
def quantize_linear_13(
    x: mx.array,
    y_scale: mx.array,
    y_zero_point: mx.array | None = None,
    *,
    axis: int = 1,
    node: Node,
) -> mx.array:
    return _quantize(node, x, y_scale, y_zero_point, axis)


@op("QuantizeLinear", since=(19,), types=_QUANTIZE_TYPES)
def quantize_linear_19(
    x: mx.array,
    y_scale: mx.array,
    y_zero_point: mx.array | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    node: Node,
) -> mx.array:
    return _quantize(node, x, y_scale, y_zero_point, axis, saturates=saturate)


@op("QuantizeLinear", since=(21,), types=_QUANTIZE_TYPES)
def quantize_linear_21(
    x: mx.array,
    y_scale: mx.array,
    y_zero_point: mx.array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
    node: Node,
) -> mx.array:
    return _quantize(node, x, y_scale, y_zero_point, axis, block_size, output_dtype, saturate)


# `precision` asks for a division in float16, bfloat16 or float32; float32 is at least as precise.
@op("QuantizeLinear", since=(23, 24, 25, 28), types=_QUANTIZE_TYPES)
def quantize_linear(
    x: mx.array,
    y_scale: mx.array,
    y_zero_point: mx.array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    node: Node,
) -> mx.array:
    del precision
    return _quantize(node, x, y_scale, y_zero_point, axis, block_size, output_dtype, saturate)


@op("QuantizeLinear", domain=MS, since=(1,), types=_QUANTIZE_TYPES)
def quantize_linear_ms(
    x: mx.array,
    y_scale: mx.array,
    y_zero_point: mx.array | None = None,
    *,
    axis: int | None = None,
    node: Node,
) -> mx.array:
    return _quantize(node, x, y_scale, y_zero_point, 1 if axis is None else axis)


def _dequantize(
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array | None,
    axis: int,
    block_size: int = 0,
    output_dtype: int = 0,
) -> mx.array:
    scale = spread(x_scale, x, axis, block_size)
    zero = None if x_zero_point is None else spread(x_zero_point, x, axis, block_size)
    made = mlx_dtype(output_dtype) if output_dtype else x_scale.dtype
    return dequantize(x, scale, zero).astype(made)


_DEQUANTIZE_TYPES: Final = {
    "x": STORED | NARROW_STORED,
    "x_scale": _SCALES,
    "x_zero_point": STORED | NARROW_STORED,
}


@op("DequantizeLinear", since=(10,), types=_DEQUANTIZE_TYPES)
def dequantize_linear_10(
    x: mx.array, x_scale: mx.array, x_zero_point: mx.array | None = None
) -> mx.array:
    return _dequantize(x, x_scale, x_zero_point, 1)


@op("DequantizeLinear", since=(13, 19), types=_DEQUANTIZE_TYPES)
def dequantize_linear_13(
    x: mx.array, x_scale: mx.array, x_zero_point: mx.array | None = None, *, axis: int = 1
) -> mx.array:
    return _dequantize(x, x_scale, x_zero_point, axis)


@op("DequantizeLinear", since=(21,), types=_DEQUANTIZE_TYPES)
def dequantize_linear_21(
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
) -> mx.array:
    return _dequantize(x, x_scale, x_zero_point, axis, block_size)


@op(
    "DequantizeLinear",
    since=(23, 24, 25, 28),
    types=_DEQUANTIZE_TYPES,
)
def dequantize_linear(
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> mx.array:
    return _dequantize(x, x_scale, x_zero_point, axis, block_size, output_dtype)


@op("DequantizeLinear", domain=MS, since=(1,), types=_DEQUANTIZE_TYPES)
def dequantize_linear_ms(
    x: mx.array, x_scale: mx.array, x_zero_point: mx.array | None = None, *, axis: int | None = None
) -> mx.array:
    return _dequantize(x, x_scale, x_zero_point, 1 if axis is None else axis)


def dynamic_range(x: mx.array) -> tuple[mx.array, mx.array]:
    """The float32 scale and zero point that map [min(x, 0), max(x, 0)] to [0, 255]."""
    if x.size == 0:
        return mx.array(1.0), mx.array(0.0)
    low, high = mx.minimum(mx.min(x), 0), mx.maximum(mx.max(x), 0)
    scale = mx.where(high == low, 1.0, (high - low) / 255)
    return scale, mx.round(mx.clip(-low / scale, 0, 255))


@op("DynamicQuantizeLinear", since=(11,), types={"x": frozenset({"float32"})})
def dynamic_quantize_linear(x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    scale, zero = dynamic_range(x)
    return quantize(x, scale, zero, mx.uint8), scale, zero.astype(mx.uint8)
