"""Windows over spatial axes: auto_pad, output sizes and pads, shared by convolution and pooling.

Pure Python over host sizes, following the shape rules of ONNX Conv, ConvTranspose and the pools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import mlx.core as mx

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """Where the windows lie; every field has one entry a spatial axis."""

    sizes: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    low: Ints  # pads in front
    high: Ints  # pads behind
    counts: Ints  # output sizes

    @property
    def overhang(self) -> Ints:
        """Pads behind that make the last window fit: more than `high` only in ceil_mode."""
        ends = (
            (count - 1) * s + (k - 1) * d + 1
            for count, s, k, d in zip(
                self.counts, self.strides, self.kernel, self.dilations, strict=True
            )
        )
        return tuple(
            max(high, end - low - size)
            for high, end, low, size in zip(self.high, ends, self.low, self.sizes, strict=True)
        )

    def taps(self, axis: int) -> Iterator[slice]:
        """For each kernel position along spatial `axis`, the padded elements that it meets."""
        length = (self.counts[axis] - 1) * self.strides[axis] + 1
        for k in range(self.kernel[axis]):
            start = k * self.dilations[axis]
            yield slice(start, start + length, self.strides[axis])

    def covered(self, axis: int, low: int, high: int) -> list[int]:
        """For each window along `axis`, its positions inside [-low, size + high)."""
        size, d = self.sizes[axis], self.dilations[axis]
        starts = (i * self.strides[axis] - self.low[axis] for i in range(self.counts[axis]))
        return [
            sum(-low <= start + k * d < size + high for k in range(self.kernel[axis]))
            for start in starts
        ]


def place_windows(
    sizes: Ints,
    kernel: Ints,
    *,
    strides: Ints | None = None,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Windows:
    """Apply the defaults, auto_pad and the output size rule.

    Raises:
        ValueError: the kernel does not fit, or a list has not one entry a spatial axis.
    """
    rank = len(sizes)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    if not len(kernel) == len(strides) == len(dilations) == rank:
        raise ValueError(
            f"kernel {kernel}, strides {strides} and dilations {dilations} do not fit "
            f"the spatial shape {sizes}"
        )
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    low, high = resolve_pads(sizes, reach, strides, pads, auto_pad)
    spare = [s + lo + hi - r for s, lo, hi, r in zip(sizes, low, high, reach, strict=True)]
    # Rounded toward zero as ORT does: a window may hang over by less than a stride.
    counts = [int(room / stride) + 1 for room, stride in zip(spare, strides, strict=True)]
    if ceil_mode:
        counts = [-(-room // stride) + 1 for room, stride in zip(spare, strides, strict=True)]
        # A window that would start in the padding behind is dropped.
        counts = [
            c - ((c - 1) * stride >= size + lo)
            for c, stride, size, lo in zip(counts, strides, sizes, low, strict=True)
        ]
    if min(counts, default=1) < 1:
        raise ValueError(f"kernel {kernel} with dilations {dilations} is larger than {sizes}")
    return Windows(sizes, kernel, strides, dilations, low, high, tuple(counts))


def resolve_pads(
    sizes: Ints, reach: Ints, strides: Ints, pads: Ints | None, auto_pad: str
) -> tuple[Ints, Ints]:
    """The pads in front and behind, where `reach` is the dilated kernel."""
    rank = len(sizes)
    if auto_pad.startswith("SAME"):
        totals = tuple(
            max(0, (-(-size // stride) - 1) * stride + r - size)
            for size, stride, r in zip(sizes, strides, reach, strict=True)
        )
        return split_pads(totals, auto_pad)
    if auto_pad == "VALID" or not pads:
        return (0,) * rank, (0,) * rank
    if len(pads) != 2 * rank:
        raise ValueError(f"pads {pads} do not fit the spatial shape {sizes}")
    return tuple(pads[:rank]), tuple(pads[rank:])


def split_pads(totals: Ints, auto_pad: str) -> tuple[Ints, Ints]:
    """Split each total in two; SAME_LOWER puts the odd one in front."""
    small = tuple(total // 2 for total in totals)
    large = tuple(total - total // 2 for total in totals)
    return (large, small) if auto_pad == "SAME_LOWER" else (small, large)


def pad_spatial(
    x: mx.array, low: Ints, high: Ints, value: float = 0, first_axis: int = 1
) -> mx.array:
    """Pad (or with negative pads crop) the axes from `first_axis` on."""
    if not any(low) and not any(high):
        return x
    crop: list[slice] = [slice(None)] * x.ndim
    width = [(0, 0)] * x.ndim
    for axis, (lo, hi) in enumerate(zip(low, high, strict=True), first_axis):
        crop[axis] = slice(max(-lo, 0), x.shape[axis] + min(hi, 0))
        width[axis] = (max(lo, 0), max(hi, 0))
    if min((*low, *high)) < 0:
        x = x[tuple(crop)]
    return mx.pad(x, width, constant_values=mx.array(value, x.dtype))


def fold_windows(
    x: mx.array, windows: Windows, combine: Callable[[mx.array, mx.array], mx.array]
) -> mx.array:
    """Combine the elements of every window of a padded channels-last array, one axis at a time."""
    for axis in reversed(range(len(windows.sizes))):
        x = reduce(combine, (along(x, axis + 1, tap) for tap in windows.taps(axis)))
    return x


def along(x: mx.array, axis: int, part: slice) -> mx.array:
    """Slice one axis."""
    return x[(slice(None),) * axis + (part,)]


def channels_last(x: mx.array) -> mx.array:
    """[batch, channels, *spatial] as [batch, *spatial, channels]; a view."""
    return mx.moveaxis(x, 1, -1)


def channels_first(x: mx.array) -> mx.array:
    """[batch, *spatial, channels] as [batch, channels, *spatial]; a view."""
    return mx.moveaxis(x, -1, 1)


def outer(columns: Sequence[mx.array]) -> mx.array:
    """The product of one vector a spatial axis, shaped [*spatial, 1]."""
    rank = len(columns)
    shaped = (c.reshape((-1,) + (1,) * (rank - i)) for i, c in enumerate(columns))
    return reduce(mx.multiply, shaped)
