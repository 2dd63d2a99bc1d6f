"""Transposed convolutions: ConvTranspose and ORT's ConvTransposeWithDynamicPads.

A transposed convolution is a stride-1 `mx.conv_general` over an input dilated by the strides, with
a mirrored kernel.
"""

from __future__ import annotations

import mlx.core as mx

from ..dtypes import FLOATS, SINGLES
from ..hosts import HostInts
from ..registry import MS, op
from ._padding import batched
from ._windows import (
    Ints,
    along,
    channels_first,
    channels_last,
    pad_spatial,
    place_windows,
    split_pads,
)
from .conv import add_bias, check_shapes, convolve


def _weight_transposed(w: mx.array) -> mx.array:
    """[in, out / group, *kernel] as [out / group, *kernel, in]."""
    return mx.contiguous(mx.moveaxis(w, 0, -1))


def _spread(x: mx.array, strides: Ints) -> mx.array:
    """Put stride - 1 zeros between the elements of every spatial axis, channels last."""
    for axis, stride in enumerate(strides, 1):
        if stride > 1 and x.shape[axis] > 0:
            size = x.shape[axis]
            x = mx.expand_dims(x, axis + 1)
            x = pad_spatial(x, (0,), (stride - 1,), first_axis=axis + 1)
            x = x.reshape(*x.shape[:axis], size * stride, *x.shape[axis + 2 :])
            x = along(x, axis, slice(0, (size - 1) * stride + 1))
    return x


def _group_transposed(w: mx.array, group: int) -> mx.array:
    """[out / group, *kernel, in] as [out, *kernel, in / group], kernel mirrored."""
    w = w.reshape(*w.shape[:-1], group, w.shape[-1] // group)
    w = mx.moveaxis(w, -2, 0)
    w = w.reshape(-1, *w.shape[2:])
    return w[(slice(None), *(slice(None, None, -1),) * (w.ndim - 2))]


def _correlate_back(
    x: mx.array,
    w: mx.array,
    strides: Ints,
    dilations: Ints,
    low: Ints,
    high: Ints,
    group: int,
) -> mx.array:
    """The stride-1 convolution that a transposed convolution is; no pad is negative."""
    rank = len(strides)
    # MLX's CUDA kernels are kept by a key that leaves the input's dilation out.
    if group == 1 and rank <= 3 and x.dtype != mx.float64 and not mx.cuda.is_available():
        return mx.conv_general(
            x,
            w,
            padding=(low, high),
            kernel_dilation=dilations,
            input_dilation=strides,
            flip=True,
        )
    # MLX's GPU kernels for groups do not dilate their input.
    x, w = _spread(x, strides), _group_transposed(w, group)
    pads = (*low, *high)
    return convolve(
        x,
        w,
        place_windows(x.shape[1:-1], w.shape[1:-1], dilations=dilations, pads=pads),
        group,
    )


def _transposed_pads(
    spans: Ints, full: Ints, output_shape: Ints | None, pads: Ints | None, auto_pad: str
) -> tuple[Ints, Ints]:
    """The pads taken off an output of size `full`; `spans` are the sizes times the strides."""
    rank = len(full)
    if output_shape:
        totals = tuple(f - out for f, out in zip(full, output_shape[-rank:], strict=True))
        # The specification puts the odd one in front unless SAME_UPPER is asked for.
        auto_pad = auto_pad if auto_pad == "SAME_UPPER" else "SAME_LOWER"
        low, _ = split_pads(tuple(max(0, total) for total in totals), auto_pad)
        return low, tuple(total - lo for total, lo in zip(totals, low, strict=True))
    if auto_pad.startswith("SAME"):
        totals = tuple(max(0, f - span) for f, span in zip(full, spans, strict=True))
        return split_pads(totals, auto_pad)
    if auto_pad == "VALID" or not pads:
        return (0,) * rank, (0,) * rank
    return tuple(pads[:rank]), tuple(pads[rank:])


def _conv_transpose(
    x: mx.array,
    w: mx.array,
    b: mx.array | None,
    auto_pad: str,
    dilations: Ints | None,
    group: int,
    kernel_shape: Ints | None,
    output_padding: Ints | None,
    output_shape: Ints | None,
    pads: Ints | None,
    strides: Ints | None,
) -> mx.array:
    x = channels_last(x)
    rank = x.ndim - 2
    check_shapes(x, w, w.shape[-1], w.shape[-1], group, kernel_shape)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    extra = output_padding or (0,) * rank
    reach = tuple((k - 1) * d for k, d in zip(w.shape[1:-1], dilations, strict=True))
    spans = tuple(size * stride for size, stride in zip(x.shape[1:-1], strides, strict=True))
    full = tuple(
        span - stride + 1 + r + e
        for span, stride, r, e in zip(spans, strides, reach, extra, strict=True)
    )
    cut_low, cut_high = _transposed_pads(spans, full, output_shape, pads, auto_pad)
    sizes = tuple(f - lo - hi for f, lo, hi in zip(full, cut_low, cut_high, strict=True))
    if min(sizes) < 0:
        raise ValueError(f"the output would have the negative spatial shape {sizes}")
    # Pads beyond the kernel's reach would be negative: they crop the output instead.
    low = tuple(r - cut for r, cut in zip(reach, cut_low, strict=True))
    high = tuple(r + e - cut for r, e, cut in zip(reach, extra, cut_high, strict=True))
    if 0 in x.shape or 0 in w.shape or 0 in sizes:
        y = mx.zeros((x.shape[0], *sizes, w.shape[0] * group), x.dtype)
    else:
        kept_low, kept_high = (tuple(max(p, 0) for p in p_) for p_ in (low, high))
        y = _correlate_back(x, w, strides, dilations, kept_low, kept_high, group)
        y = pad_spatial(y, tuple(min(p, 0) for p in low), tuple(min(p, 0) for p in high))
    return channels_first(add_bias(y, b))


@op(
    "ConvTranspose",
    since=(1, 11, 22),
    types={"x": FLOATS},
    prepare={"w": _weight_transposed},
    padding=batched("x"),
)
def conv_transpose(
    x: mx.array,
    w: mx.array,
    b: mx.array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    return _conv_transpose(
        x,
        w,
        b,
        auto_pad,
        dilations,
        group,
        kernel_shape,
        output_padding,
        output_shape,
        pads,
        strides,
    )


@op(
    "ConvTransposeWithDynamicPads",
    domain=MS,
    since=(1,),
    types={"x": SINGLES},
    prepare={"w": _weight_transposed},
)
def conv_transpose_with_dynamic_pads(
    x: mx.array,
    w: mx.array,
    pads: HostInts | None = None,
    b: mx.array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    strides: Ints | None = None,
) -> mx.array:
    return _conv_transpose(
        x,
        w,
        b,
        auto_pad,
        dilations,
        group,
        kernel_shape,
        output_padding,
        None,
        pads,
        strides,
    )
