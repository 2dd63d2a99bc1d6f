"""Values of narrow types: conversion to them, in the wider dtypes that hold them.

Sources: the tables of ONNX Cast for the 8-bit floats; the OCP Microscaling Formats for float8e8m0.
Where the standard is silent, as on floats turned into 2- and 4-bit integers, it is what ORT does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import mlx.core as mx

from ..dtypes import MLX_DTYPES, NARROW_INTS


class _Format(NamedTuple):
    mantissa: int  # bits of it
    exponent: int  # of the smallest normal value
    largest: float
    beyond: float  # what values past the largest become unless they saturate
    has_nan: bool = True


_FORMATS: Final = {
    "float8e4m3fn": _Format(3, -6, 448.0, float("nan")),
    "float8e4m3fnuz": _Format(3, -7, 240.0, float("nan")),
    "float8e5m2": _Format(2, -14, 57344.0, float("inf")),
    "float8e5m2fnuz": _Format(2, -15, 57344.0, float("nan")),
    "float4e2m1": _Format(1, 0, 6.0, 6.0, has_nan=False),
}

_SIGN: Final = 0x80000000
_LARGEST_POWER: Final = 254 << 23  # 2^127 as a float32
_SMALLEST_POWER: Final = 1 << 22  # 2^-127


def narrow(x: mx.array, name: str, *, saturate: int = 1, round_mode: str = "up") -> mx.array:
    """`x` converted to the narrow type `name`, in the dtype that holds it."""
    if name in NARROW_INTS:
        return _integer(x, name)
    if name == "float8e8m0":
        return _power(x.astype(mx.float32), bool(saturate), round_mode)
    return _float(x.astype(mx.float32), _FORMATS[name], bool(saturate))


def _float(x: mx.array, form: _Format, saturate: bool) -> mx.array:
    """The nearest value of the format, ties to even."""
    exponent = ((x.view(mx.uint32) >> 23) & 0xFF).astype(mx.int32) - 127
    exponent = mx.maximum(exponent, form.exponent) - form.mantissa
    unit = ((exponent + 127) << 23).view(mx.float32)  # the distance of the values around x
    y = mx.round(x / unit) * unit
    limit = form.largest if saturate else form.beyond
    y = mx.where(y > form.largest, limit, mx.where(y < -form.largest, -limit, y))
    y = y if form.has_nan else mx.where(mx.isnan(x), 0.0, y)
    return y.astype(mx.float16)


def _power(x: mx.array, saturate: bool, round_mode: str) -> mx.array:
    """A power of two from 2^-127 to 2^127."""
    bits = x.view(mx.uint32)
    exponent, fraction = bits >> 23, bits & 0x7FFFFF
    above = {"up": (0, 0x400000), "nearest": (0x3FFFFF, 0x5FFFFF), "down": (0x7FFFFF, 0x7FFFFF)}
    normal, subnormal = above[round_mode]
    code = exponent + (fraction > mx.where(exponent == 0, subnormal, normal))
    small, large = (0, 254) if saturate else (255, 255)
    code = mx.where(bits > _LARGEST_POWER, large, mx.where(bits < _SMALLEST_POWER, small, code))
    code = mx.where(bits >= _SIGN, small, code)
    power = mx.where(code == 0, 0x40, code << 7).astype(mx.uint16).view(mx.bfloat16)
    return mx.where(mx.isnan(x) | (code == 255), float("nan"), power)


def _integer(x: mx.array, name: str) -> mx.array:
    """The low bits; floats are rounded first, halves away from zero."""
    held, bits = MLX_DTYPES[name], int(name[-1])
    if mx.issubdtype(x.dtype, mx.floating):
        whole = mx.floor(mx.abs(x))
        whole = whole + (mx.abs(x) - whole >= 0.5)
        x = mx.where(x < 0, -whole, whole).astype(mx.int32)
    low = x.astype(mx.uint8) & ((1 << bits) - 1)
    if held == mx.uint8:
        return low
    sign = 1 << (bits - 1)
    return (low ^ sign).astype(mx.int8) - sign


def reach(name: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    bits = int(name.removeprefix("u").removeprefix("int"))
    return (0, (1 << bits) - 1) if name[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
