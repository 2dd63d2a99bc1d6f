"""Operators from quantized tensors to quantized tensors: QLinearMatMul, QLinearConv and kin.

Sources: the ONNX operators, and the com.microsoft ones from ORT's contrib schemas. Sums of products
are exact integers, see `integer`; all else is dequantized to float32 and quantized again. Scales
are combined in ORT's order, so that roundings agree.
"""

from __future__ import annotations

from math import prod
from typing import Final

import mlx.core as mx

from ..dtypes import name_of
from ..hosts import HostArray
from ..node import Node
from ..registry import MS, op
from ._windows import Ints, channels_first, fold_windows, outer, pad_spatial, place_windows
from ._windows import channels_last as _last
from .integer import (
    by_rows,
    byte_convolve,
    byte_matmul,
    centred,
    centred_last,
    scalar,
    scale_up,
)
from .quantize import BYTES, SCALES, dequantize, quantize, saturate


def requantize(
    total: mx.array,
    in_scale: mx.array,
    w_scale: mx.array,
    out_scale: mx.array,
    out_zero: mx.array | None,
    dtype: mx.Dtype,
) -> mx.array:
    """Integer sums to 8 bits: the three scales make one factor first, as in ORT."""
    factor = in_scale.astype(mx.float32) * w_scale.astype(mx.float32)
    return saturate(
        total.astype(mx.float32) * (factor / scalar(out_scale).astype(mx.float32)),
        None if out_zero is None else scalar(out_zero),
        name_of(dtype),
    )


@op(
    "QLinearMatMul",
    since=(10, 21),
    types={
        "a": BYTES,
        "b": BYTES,
        "b_zero_point": BYTES,
        "a_scale": SCALES,
        "y_zero_point": BYTES,
    },
    prepare={"b": centred},
)
def qlinear_matmul(
    a: mx.array,
    a_scale: mx.array,
    a_zero_point: mx.array,
    b: mx.array,
    b_scale: mx.array,
    b_zero_point: HostArray,
    y_scale: mx.array,
    y_zero_point: mx.array,
    *,
    node: Node,
) -> mx.array:
    total = byte_matmul(a, b, a_zero_point, b_zero_point, node.dtype("b"))
    scales = by_rows(a_scale), scalar(b_scale), y_scale
    return requantize(total, *scales, y_zero_point, y_zero_point.dtype)


@op(
    "QGemm",
    domain=MS,
    since=(1,),
    types={"a": BYTES, "b": BYTES, "b_zero_point": BYTES, "y_zero_point": BYTES},
    prepare={"b": centred},
)
def qgemm(
    a: mx.array,
    a_scale: mx.array,
    a_zero_point: mx.array,
    b: mx.array,
    b_scale: mx.array,
    b_zero_point: HostArray,
    c: mx.array | None = None,
    y_scale: mx.array | None = None,
    y_zero_point: mx.array | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    node: Node,
) -> mx.array:
    a, b = a.T if transA else a, b.T if transB else b
    total = byte_matmul(a, b, a_zero_point, b_zero_point, node.dtype("b"))
    total = total if c is None else total + c
    a_scale = scalar(a_scale) * alpha
    if y_scale is None:
        return scale_up(total, a_scale, b_scale, None)
    made = a_zero_point.dtype if y_zero_point is None else y_zero_point.dtype
    return requantize(total, a_scale, scalar(b_scale), y_scale, y_zero_point, made)


_QCONV_TYPES: Final = {"x": BYTES, "w": BYTES, "w_zero_point": BYTES, "y_zero_point": BYTES}


@op("QLinearConv", since=(10,), types=_QCONV_TYPES, prepare={"w": centred_last})
def qlinear_conv(
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array,
    w: mx.array,
    w_scale: mx.array,
    w_zero_point: HostArray,
    y_scale: mx.array,
    y_zero_point: mx.array,
    b: mx.array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
    node: Node,
) -> mx.array:
    total = byte_convolve(
        _last(x),
        w,
        x_zero_point,
        w_zero_point,
        node.dtype("w"),
        group,
        kernel_shape,
        auto_pad=auto_pad,
        dilations=dilations,
        pads=pads,
        strides=strides,
    )
    total = total if b is None else total + b
    scales = scalar(x_scale), scalar(w_scale), y_scale
    return channels_first(requantize(total, *scales, y_zero_point, y_zero_point.dtype))


@op("QLinearConv", domain=MS, since=(1,), types=_QCONV_TYPES, prepare={"w": centred_last})
def qlinear_conv_ms(
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array,
    w: mx.array,
    w_scale: mx.array,
    w_zero_point: HostArray,
    y_scale: mx.array,
    y_zero_point: mx.array,
    b: mx.array | None = None,
    *,
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
    node: Node,
) -> mx.array:
    total = byte_convolve(
        x if channels_last else _last(x),
        w,
        x_zero_point,
        w_zero_point,
        node.dtype("w"),
        group,
        kernel_shape,
        auto_pad=auto_pad,
        dilations=dilations,
        pads=pads,
        strides=strides,
    )
    total = total if b is None else total + b
    scales = scalar(x_scale), scalar(w_scale), y_scale
    y = requantize(total, *scales, y_zero_point, y_zero_point.dtype)
    return y if channels_last else channels_first(y)


def _values(x: mx.array, scale: mx.array, zero: mx.array | None) -> mx.array:
    """The float32 values of a tensor with one scale and one zero point."""
    return dequantize(x, scalar(scale), None if zero is None else scalar(zero))


def _bytes(y: mx.array, scale: mx.array, zero: mx.array | None, dtype: mx.Dtype) -> mx.array:
    """The values quantized to 8 bits with one scale and one zero point."""
    return quantize(y, scalar(scale), None if zero is None else scalar(zero), dtype)


@op("QLinearAdd", domain=MS, since=(1,), types={"a": BYTES})
def qlinear_add(
    a: mx.array,
    a_scale: mx.array,
    a_zero_point: mx.array | None,
    b: mx.array,
    b_scale: mx.array,
    b_zero_point: mx.array | None,
    c_scale: mx.array,
    c_zero_point: mx.array | None = None,
) -> mx.array:
    y = _values(a, a_scale, a_zero_point) + _values(b, b_scale, b_zero_point)
    return _bytes(y, c_scale, c_zero_point, a.dtype)


@op("QLinearMul", domain=MS, since=(1,), types={"a": BYTES})
def qlinear_mul(
    a: mx.array,
    a_scale: mx.array,
    a_zero_point: mx.array | None,
    b: mx.array,
    b_scale: mx.array,
    b_zero_point: mx.array | None,
    c_scale: mx.array,
    c_zero_point: mx.array | None = None,
) -> mx.array:
    one = mx.array(1.0)
    y = _values(a, one, a_zero_point) * _values(b, one, b_zero_point)
    y = y * (scalar(a_scale) * scalar(b_scale) / scalar(c_scale))
    # ORT adds the zero point before it rounds, which decides where ties go.
    if c_zero_point is not None:
        y = y + scalar(c_zero_point).astype(mx.float32)
    return saturate(y, None, name_of(a.dtype))


@op("QLinearSigmoid", domain=MS, since=(1,), types={"x": BYTES})
def qlinear_sigmoid(
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array | None,
    y_scale: mx.array,
    y_zero_point: mx.array | None = None,
) -> mx.array:
    return _bytes(mx.sigmoid(_values(x, x_scale, x_zero_point)), y_scale, y_zero_point, x.dtype)


@op("QLinearLeakyRelu", domain=MS, since=(1,), types={"x": BYTES})
def qlinear_leaky_relu(
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array | None,
    y_scale: mx.array,
    y_zero_point: mx.array | None = None,
    *,
    alpha: float = 0.01,
) -> mx.array:
    value = _values(x, x_scale, x_zero_point)
    return _bytes(mx.where(value >= 0, value, alpha * value), y_scale, y_zero_point, x.dtype)


@op("QLinearSoftmax", domain=MS, since=(1,), types={"x": BYTES})
def qlinear_softmax(
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array | None,
    y_scale: mx.array,
    y_zero_point: mx.array,
    *,
    axis: int = -1,
    opset: int,
) -> mx.array:
    value = _values(x, x_scale, x_zero_point)
    axes = (axis,) if opset >= 13 else tuple(range(axis % x.ndim, x.ndim))
    return _bytes(mx.softmax(value, axis=axes, precise=True), y_scale, y_zero_point, x.dtype)


@op("QLinearConcat", domain=MS, since=(1,), types={"y_zero_point": BYTES})
def qlinear_concat(
    y_scale: mx.array, y_zero_point: mx.array, *inputs: mx.array, axis: int
) -> mx.array:
    thirds = zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    values = [
        _bytes(_values(*third), y_scale, y_zero_point, y_zero_point.dtype) for third in thirds
    ]
    return mx.concatenate(values, axis=axis)


@op("QLinearWhere", domain=MS, since=(1,), types={"x": BYTES})
def qlinear_where(
    condition: mx.array,
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array,
    y: mx.array,
    y_scale: mx.array,
    y_zero_point: mx.array,
    z_scale: mx.array,
    z_zero_point: mx.array,
) -> mx.array:
    chosen = mx.where(
        condition, _values(x, x_scale, x_zero_point), _values(y, y_scale, y_zero_point)
    )
    return _bytes(chosen, z_scale, z_zero_point, x.dtype)


@op("QLinearReduceMean", domain=MS, since=(1,), types={"data": BYTES})
def qlinear_reduce_mean(
    data: mx.array,
    data_scale: mx.array,
    data_zero_point: mx.array | None,
    reduced_scale: mx.array,
    reduced_zero_point: mx.array | None = None,
    *,
    axes: tuple[int, ...],
    keepdims: int,
) -> mx.array:
    value = _values(data, data_scale, data_zero_point)
    mean = mx.mean(value, axis=axes or None, keepdims=bool(keepdims))
    return _bytes(mean, reduced_scale, reduced_zero_point, data.dtype)


@op("QLinearGlobalAveragePool", domain=MS, since=(1,), types={"x": BYTES})
def qlinear_global_average_pool(
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array,
    y_scale: mx.array,
    y_zero_point: mx.array,
    *,
    channels_last: int = 0,
) -> mx.array:
    axes = tuple(range(1, x.ndim - 1) if channels_last else range(2, x.ndim))
    mean = mx.mean(_values(x, x_scale, x_zero_point), axis=axes, keepdims=True)
    return _bytes(mean, y_scale, y_zero_point, x.dtype)


@op("QLinearAveragePool", domain=MS, since=(1,), types={"x": BYTES})
def qlinear_average_pool(
    x: mx.array,
    x_scale: mx.array,
    x_zero_point: mx.array | None,
    y_scale: mx.array,
    y_zero_point: mx.array | None = None,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    value = _values(x, x_scale, x_zero_point)
    value = value if channels_last else _last(value)
    windows = place_windows(
        value.shape[1:-1],
        kernel_shape,
        strides=strides,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    mean = fold_windows(pad_spatial(value, windows.low, windows.overhang), windows, mx.add)
    if count_include_pad:  # here ORT counts what hangs over in ceil_mode too
        mean = mean / prod(kernel_shape)
    else:
        met = (mx.array(windows.covered(axis, 0, 0)) for axis in range(len(kernel_shape)))
        mean = mean / outer(list(met)).astype(mx.float32)
    y = _bytes(mean, y_scale, y_zero_point, x.dtype)
    return y if channels_last else channels_first(y)
