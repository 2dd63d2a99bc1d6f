"""Products of 8 and 16 bit integers: MatMulInteger, ConvInteger and their com.microsoft kin.

Sources: the ONNX operators, and com.microsoft from ORT's contrib schemas. The sums are exact: the
integers are multiplied in float32, in pieces short enough that no partial sum leaves its 24 bits.
Weights are laid out once as float32 centred on zero; their zero points then cost one sum a row.
"""

from __future__ import annotations

from math import prod
from typing import Final

import mlx.core as mx

from ..hosts import HostArray, HostValue
from ..node import Node
from ..registry import MS, op
from ._windows import Ints, channels_first, channels_last, pad_spatial, place_windows
from .matmul import exact_matmul, integer_matmul
from .quantize import BYTES, SCALES, dynamic_range

_TERM: Final = 255 * 128  # |a - zero point| times |centred b|
_FLOAT: Final = frozenset({"float32"})


def _middle(dtype: str | mx.Dtype | None) -> int:
    return 128 if dtype in ("uint8", mx.uint8) else 0


def centred(w: mx.array) -> mx.array:
    """A weight as float32 in [-128, 127]; its zero point moves along."""
    return w.astype(mx.float32) - _middle(w.dtype)


def centred_last(w: mx.array) -> mx.array:
    """The same for [out, in / group, *kernel], as [out, *kernel, in / group]."""
    return mx.contiguous(channels_last(centred(w)))


def _from_zero(x: mx.array, zero: mx.array | None) -> mx.array:
    """x - zero as float32; a zero point with one entry a row is 1-D."""
    wide = x.astype(mx.float32)
    if zero is None:
        return wide
    rows = zero[:, None] if zero.ndim == 1 and zero.size > 1 else zero
    return wide - (rows.reshape(()) if zero.size == 1 else rows).astype(mx.float32)


def _shift(zero: HostValue | None, middle: int) -> mx.array | None:
    """The zero point of a centred weight, or None where it is 0 and costs nothing."""
    if zero is None:
        return mx.array(-middle, dtype=mx.int32) if middle else None
    moved = zero.astype("int32") - middle
    return mx.array(moved.reshape(()) if moved.size == 1 else moved) if moved.any() else None


def byte_matmul(
    a: mx.array, b: mx.array, a_zero: mx.array | None, b_zero: HostValue | None, b_dtype: str | None
) -> mx.array:
    """(a - a_zero) @ (b - b_zero) in int32, where `b` is `centred` already."""
    _check_inner(a, b)
    return _shifted_product(_from_zero(a, a_zero), b, _shift(b_zero, _middle(b_dtype)))


def _shifted_product(a: mx.array, b: mx.array, shift: mx.array | None) -> mx.array:
    product = exact_matmul(a, b, _TERM)
    if shift is None:
        return product
    rows = mx.sum(a.astype(mx.int32), axis=-1, keepdims=b.ndim > 1)
    return product - rows * (shift.reshape(()) if product.ndim == 0 else shift)


def _check_inner(a: mx.array, b: mx.array) -> None:
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise ValueError(f"the inner dimensions differ, got shapes {a.shape} and {b.shape}")


_MATMUL_TYPES: Final = {"a": BYTES, "b": BYTES, "a_zero_point": BYTES, "b_zero_point": BYTES}


@op("MatMulInteger", since=(10,), types=_MATMUL_TYPES, prepare={"b": centred})
def matmul_integer(
    a: mx.array,
    b: mx.array,
    a_zero_point: mx.array | None = None,
    b_zero_point: HostArray | None = None,
    *,
    node: Node,
) -> mx.array:
    return byte_matmul(a, b, a_zero_point, b_zero_point, node.dtype("b"))


_WIDE: Final = frozenset({"int16", "uint16"})


@op("MatMulInteger16", domain=MS, since=(1,), types={"a": _WIDE, "b": _WIDE})
def matmul_integer_16(a: mx.array, b: mx.array, *, node: Node) -> mx.array:
    made = node.outputs[0]
    dtype = mx.uint32 if made is not None and made.dtype == "uint32" else mx.int32
    return integer_matmul(a.astype(dtype), b.astype(dtype))


@op(
    "MatMulIntegerToFloat",
    domain=MS,
    since=(1,),
    types=_MATMUL_TYPES | {"a_scale": SCALES},
    prepare={"b": centred},
)
def matmul_integer_to_float(
    a: mx.array,
    b: mx.array,
    a_scale: mx.array,
    b_scale: mx.array,
    a_zero_point: mx.array | None = None,
    b_zero_point: HostArray | None = None,
    bias: mx.array | None = None,
    *,
    node: Node,
) -> mx.array:
    product = byte_matmul(a, b, a_zero_point, b_zero_point, node.dtype("b"))
    return scale_up(product, by_rows(a_scale), b_scale, bias)


def by_rows(scale: mx.array) -> mx.array:
    return scale[:, None] if scale.ndim == 1 and scale.size > 1 else scalar(scale)


def scalar(scale: mx.array) -> mx.array:
    return scale.reshape(()) if scale.size == 1 else scale


def scale_up(
    product: mx.array, a_scale: mx.array, b_scale: mx.array, bias: mx.array | None
) -> mx.array:
    factor = a_scale.astype(mx.float32) * scalar(b_scale).astype(mx.float32)
    y = product.astype(mx.float32) * factor
    return (y if bias is None else y + bias.astype(mx.float32)).astype(b_scale.dtype)


@op(
    "DynamicQuantizeMatMul",
    domain=MS,
    since=(1,),
    types={"a": _FLOAT, "b": BYTES, "b_zero_point": BYTES},
    prepare={"b": centred},
)
def dynamic_quantize_matmul(
    a: mx.array,
    b: mx.array,
    b_scale: mx.array,
    b_zero_point: HostArray | None = None,
    bias: mx.array | None = None,
    *,
    node: Node,
) -> mx.array:
    scale, zero = dynamic_range(a)
    quantized = mx.clip(mx.round(a / scale) + zero, 0, 255)
    product = byte_matmul(quantized, b, zero, b_zero_point, node.dtype("b"))
    return scale_up(product, scale, b_scale, bias)


def _patches(x: mx.array, kernel: Ints, group: int, **window: object) -> tuple[mx.array, Ints]:
    """Every window of a channels-last array as a row, [group, windows, taps * channels]."""
    placed = place_windows(x.shape[1:-1], kernel, **window)  # type: ignore[arg-type]
    x = pad_spatial(x, placed.low, placed.high)
    dims = (*x.shape[:-1], group, x.shape[-1] // group)
    steps = [prod(dims[i + 1 :]) for i in range(len(dims))]
    space = range(len(kernel))
    shape = (group, dims[0], *placed.counts, *kernel, dims[-1])
    strides = (
        steps[-2],
        steps[0],
        *(steps[i + 1] * placed.strides[i] for i in space),
        *(steps[i + 1] * placed.dilations[i] for i in space),
        1,
    )
    rows = dims[0] * prod(placed.counts)
    if not prod(shape):
        flat = mx.zeros(shape, x.dtype)
    else:
        flat = mx.as_strided(x, shape, strides)
    return flat.reshape(group, rows, prod(kernel) * dims[-1]), placed.counts


def byte_convolve(
    x: mx.array,
    w: mx.array,
    x_zero: mx.array | None,
    w_zero: HostValue | None,
    w_dtype: str | None,
    group: int,
    kernel_shape: Ints | None,
    **window: object,
) -> mx.array:
    """The exact convolution of channels-last arrays, `w` centred as [out, *kernel, in / group]."""
    if x.ndim != w.ndim or x.ndim < 3 or x.shape[-1] != w.shape[-1] * group or w.shape[0] % group:
        raise ValueError(
            f"input and weight do not fit in {group} groups, channels last {x.shape} and {w.shape}"
        )
    kernel = w.shape[1:-1]
    if kernel_shape is not None and kernel_shape != kernel:
        raise ValueError(f"kernel_shape {kernel_shape} is not the weight's {kernel}")
    rows, counts = _patches(_from_zero(x, x_zero), kernel, group, **window)
    columns = mx.swapaxes(w.reshape(group, w.shape[0] // group, -1), 1, 2)
    shift = _shift(w_zero, _middle(w_dtype))
    if shift is not None and shift.ndim:
        shift = shift.reshape(group, 1, -1)
    y = _shifted_product(rows, columns, shift)
    y = mx.moveaxis(y.reshape(group, x.shape[0], *counts, w.shape[0] // group), 0, -2)
    return y.reshape(x.shape[0], *counts, w.shape[0])


@op(
    "ConvInteger",
    since=(10,),
    types={"x": BYTES, "w": BYTES, "w_zero_point": BYTES},
    prepare={"w": centred_last},
)
def conv_integer(
    x: mx.array,
    w: mx.array,
    x_zero_point: mx.array | None = None,
    w_zero_point: HostArray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
    node: Node,
) -> mx.array:
    y = byte_convolve(
        channels_last(x),
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
    return channels_first(y)
