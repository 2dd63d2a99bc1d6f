"""Key/value caches stored in 8 or 4 bits: what is written, and what attention reads.

A value is its code times a scale, one for all or one for each head and channel. Codes of 4 bits lie
two in a byte, the even channel in its low half, with 8 for zero.
Source: com.microsoft GroupQueryAttention, k_quant_type, v_quant_type and kv_cache_bit_width.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import mlx.core as mx

from ..dtypes import SINGLES
from ..node import Node
from ._bits import unpack
from ._narrow import narrow

CACHE_TYPES: Final = SINGLES | {"int8", "uint8", "float8e4m3fn"}
_KINDS: Final = ("NONE", "PER_TENSOR", "PER_CHANNEL")
_BITS: Final = {"int8": 8, "uint8": 4, "float8e4m3fn": 8}


class Codes(NamedTuple):
    """How the rows of a cache, [batch, heads, length, size], are stored."""

    dtype: str
    scale: mx.array  # broadcast to the rows
    size: int  # channels of a head

    def encode(self, rows: mx.array) -> mx.array:
        """The nearest codes, as they lie in the cache."""
        scaled = rows.astype(mx.float32) / self.scale
        if self.dtype == "float8e4m3fn":
            return narrow(scaled, self.dtype)
        if self.dtype == "int8":
            return mx.clip(mx.round(scaled), -128, 127).astype(mx.int8)
        codes = (mx.clip(mx.round(scaled), -8, 7) + 8).astype(mx.uint8)
        if self.size % 2:
            codes = mx.pad(codes, [(0, 0), (0, 0), (0, 0), (0, 1)])
        return codes[..., 0::2] | (codes[..., 1::2] << 4)

    def decode(self, cached: mx.array, dtype: mx.Dtype) -> mx.array:
        """The values of cached rows."""
        if self.dtype == "uint8":
            values = unpack(cached, 4)[..., : self.size].astype(mx.float32) - 8
        else:
            values = cached.astype(mx.float32)
        return (values * self.scale).astype(dtype)


def codes_of(kind: str, dtype: str | None, scale: mx.array | None, like: mx.array) -> Codes | None:
    """The codes of a cache whose rows are like these, or None when it holds plain values."""
    if kind == "NONE" or dtype is None or scale is None:
        return None
    return Codes(dtype, scale.astype(mx.float32), like.shape[-1])


def quantized_cache_claim(node: Node) -> Iterator[str]:
    """What is wrong with how a cache is said to be quantized."""
    kinds = [node.attr(name, "NONE") for name in ("k_quant_type", "v_quant_type")]
    dtype = node.dtype("past_key")
    if any(kind not in _KINDS for kind in kinds):
        yield f"quantization {' and '.join(kinds)}"
    if ("NONE" in kinds) != (dtype is None or dtype in SINGLES) or kinds.count("NONE") == 1:
        yield f"quantization {' and '.join(kinds)} of a cache of {dtype}"
    elif "NONE" not in kinds:
        if (bits := node.attr("kv_cache_bit_width", 0) or 8) != _BITS.get(dtype or ""):
            yield f"{bits} bits in a cache of {dtype}"
        if node.missing("k_scale") or node.missing("v_scale"):
            yield "a quantized cache without its scales"
