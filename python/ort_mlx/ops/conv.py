"""Convolutions: Conv, ConvTranspose and their com.microsoft variants, over `mx.conv_general`.

Sources: ONNX Conv and ConvTranspose; ORT FusedConv, NhwcConv, NhwcFusedConv and
ConvTransposeWithDynamicPads. MLX wants channels last, so weights are laid out by `prepare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Final

import mlx.core as mx

from ..dtypes import FLOATS, SINGLES
from ..node import Node
from ..registry import MS, op
from ._padding import batched
from ._windows import (
    Ints,
    Windows,
    along,
    channels_first,
    channels_last,
    pad_spatial,
    place_windows,
)


def _weight_last(w: mx.array) -> mx.array:
    """[out, in / group, *kernel] as [out, *kernel, in / group]."""
    return mx.contiguous(channels_last(w))


def convolve(x: mx.array, w: mx.array, windows: Windows, group: int) -> mx.array:
    """Convolve channels-last arrays; what MLX has no kernel for is split along the first axis."""
    rank = len(windows.sizes)
    if rank == 0:
        return _group_matmul(x, w, group)
    # MLX's convolution of float64 is only as accurate as float32.
    if rank > 3 or (rank == 3 and group > 1) or x.dtype == mx.float64:
        x = pad_spatial(x, windows.low, windows.high)
        return _convolve_by_planes(x, w, windows, group)
    return mx.conv_general(
        x,
        w,
        stride=windows.strides,
        padding=(windows.low, windows.high),
        kernel_dilation=windows.dilations,
        groups=group,
    )


def _group_matmul(x: mx.array, w: mx.array, group: int) -> mx.array:
    """[rows, in] and [out, in / group] to [rows, out]."""
    x = mx.moveaxis(x.reshape(x.shape[0], group, -1), 1, 0)
    w = mx.swapaxes(w.reshape(group, -1, w.shape[1]), 1, 2)
    return mx.moveaxis(x @ w, 0, 1).reshape(x.shape[1], -1)


def _convolve_by_planes(x: mx.array, w: mx.array, windows: Windows, group: int) -> mx.array:
    """The sum over the kernel's first axis of convolutions with one axis less, x padded already."""
    zeros = (0,) * (len(windows.sizes) - 1)
    inner = Windows(
        x.shape[2:-1],
        windows.kernel[1:],
        windows.strides[1:],
        windows.dilations[1:],
        zeros,
        zeros,
        windows.counts[1:],
    )
    planes = (along(x, 1, tap) for tap in windows.taps(0))
    summed = reduce(
        mx.add,
        (
            convolve(plane.reshape(-1, *plane.shape[2:]), w[:, k], inner, group)
            for k, plane in enumerate(planes)
        ),
    )
    return summed.reshape(x.shape[0], windows.counts[0], *summed.shape[1:])


def check_shapes(
    x: mx.array, w: mx.array, channels: int, divided: int, group: int, kernel_shape: Ints | None
) -> None:
    """Refuse shapes that do not fit: x must have `channels`, and `group` must divide `divided`."""
    if x.ndim != w.ndim or x.ndim < 3:
        raise ValueError(f"input and weight ranks differ or are below 3, {x.shape} and {w.shape}")
    if x.shape[-1] != channels or divided % group:
        raise ValueError(
            f"the input channels in {group} groups do not fit the weight, "
            f"channels last {x.shape} and {w.shape}"
        )
    if kernel_shape is not None and kernel_shape != w.shape[1:-1]:
        raise ValueError(f"kernel_shape {kernel_shape} is not the weight's {w.shape[1:-1]}")


def add_bias(y: mx.array, b: mx.array | None) -> mx.array:
    """Add a bias along the last axis, if there is one."""
    return y if b is None else y + b


def _conv_last(
    x: mx.array,
    w: mx.array,
    b: mx.array | None,
    auto_pad: str,
    dilations: Ints | None,
    group: int,
    kernel_shape: Ints | None,
    pads: Ints | None,
    strides: Ints | None,
) -> mx.array:
    """Conv with everything channels last."""
    check_shapes(x, w, w.shape[-1] * group, w.shape[0], group, kernel_shape)
    windows = place_windows(
        x.shape[1:-1],
        w.shape[1:-1],
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
    )
    if windows.overhang != windows.high:
        raise ValueError(f"the kernel is larger than the padded input, {w.shape} on {x.shape}")
    if 0 in x.shape or 0 in w.shape:  # an empty sum, which MLX refuses
        return add_bias(mx.zeros((x.shape[0], *windows.counts, w.shape[0]), x.dtype), b)
    return add_bias(convolve(x, w, windows, group), b)


@op(
    "NhwcConv",
    domain=MS,
    since=(1,),
    types={"x": SINGLES},
    prepare={"w": _weight_last},
    padding=batched("x"),
)
@op(
    "Conv",
    since=(1, 11, 22),
    types={"x": FLOATS},
    prepare={"w": _weight_last},
    padding=batched("x"),
)
def conv(
    x: mx.array,
    w: mx.array,
    b: mx.array | None = None,
    *,
    node: Node,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    if node.op_type == "NhwcConv":
        return _conv_last(x, w, b, auto_pad, dilations, group, kernel_shape, pads, strides)
    x = channels_last(x)
    return channels_first(
        _conv_last(x, w, b, auto_pad, dilations, group, kernel_shape, pads, strides)
    )


def _leaky_relu(x: mx.array, alpha: float = 0.01) -> mx.array:
    return mx.where(x < 0, alpha * x, x)


def _hard_sigmoid(x: mx.array, alpha: float = 0.2, beta: float = 0.5) -> mx.array:
    return mx.clip(alpha * x + beta, 0, 1)


_ACTIVATIONS: Final[dict[str, Callable[..., mx.array]]] = {
    "": lambda x: x,
    "Relu": lambda x: mx.maximum(x, 0),
    "Tanh": mx.tanh,
    "Sigmoid": mx.sigmoid,
    "LeakyRelu": _leaky_relu,
    "Clip": mx.clip,
    "HardSigmoid": _hard_sigmoid,
}


def _activation_claim(node: Node) -> Iterator[str]:
    if node.attr("activation", "") not in _ACTIVATIONS:
        yield "the activation is not Relu, Tanh, Sigmoid, LeakyRelu, Clip or HardSigmoid"


def _fused(name: str) -> None:
    """One of the two fused forms; Z is added before the activation."""

    @op(
        name,
        domain=MS,
        since=(1,),
        types={"x": SINGLES},
        claim=_activation_claim,
        prepare={"w": _weight_last},
    )
    def fused_conv(
        x: mx.array,
        w: mx.array,
        b: mx.array | None = None,
        z: mx.array | None = None,
        *,
        activation: str | None = None,
        activation_params: tuple[float, ...] | None = None,
        auto_pad: str = "NOTSET",
        dilations: Ints | None = None,
        group: int = 1,
        kernel_shape: Ints | None = None,
        pads: Ints | None = None,
        strides: Ints | None = None,
    ) -> mx.array:
        last = name.startswith("Nhwc")
        x = x if last else channels_last(x)
        y = _conv_last(x, w, b, auto_pad, dilations, group, kernel_shape, pads, strides)
        y = y if last else channels_first(y)
        return _ACTIVATIONS[activation or ""](y if z is None else y + z, *activation_params or ())


_fused("FusedConv")
_fused("NhwcFusedConv")
