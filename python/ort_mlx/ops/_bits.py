"""Weights quantized in blocks: reading packed codes, and MLX's own layout for them.

ONNX Runtime packs codes of 2, 3, 4 or 8 bits into bytes, low bits first, with a scale and a zero
point for each block of a row. MLX packs the same bits into 32-bit words, with a scale and a bias
for each group of 32, 64 or 128: a reinterpretation, not a copy.
Sources: com.microsoft MatMulNBits and QMoE; mx.quantized_matmul.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx


class Packed(NamedTuple):
    """A quantized weight [..., rows, columns] in MLX's layout."""

    codes: mx.array  # uint32
    scales: mx.array  # [..., rows, groups]
    biases: mx.array
    group: int
    bits: int


def unpack(codes: mx.array, bits: int) -> mx.array:
    """Codes packed in bytes along the last axis, low bits first, one to an element (uint8)."""
    if bits == 8:
        return codes
    shifts = mx.arange(0, 8, bits).astype(mx.uint8)
    return ((codes[..., None] >> shifts) & mx.array((1 << bits) - 1, mx.uint8)).flatten(-2)


def block_zeros(given: mx.array | None, scales: mx.array, bits: int) -> mx.array:
    """The zero point of every block, like `scales`; they are packed like codes, or floats."""
    if given is None:
        return mx.array(1 << (bits - 1), dtype=scales.dtype)
    if given.dtype == mx.uint8:
        given = unpack(given, bits)[..., : scales.shape[-1]]
    return given.astype(scales.dtype)


def native_group(block: int, columns: int) -> int | None:
    """The largest group of MLX that divides a block and the row, if there is one."""
    return next((g for g in (128, 64, 32) if block % g == 0 and columns % g == 0), None)


def pack(
    codes: mx.array, scales: mx.array, zeros: mx.array, *, bits: int, block: int
) -> Packed | None:
    """The weight in MLX's layout, or None when MLX has no group of a fitting size.

    Args:
        codes: bytes, [..., rows, bytes].
        scales: [..., rows, blocks].
        zeros: zero points like `scales`, or one for all.
        bits: bits of a code.
        block: columns that share a scale.
    """
    columns = codes.shape[-1] * 8 // bits
    group = native_group(block, columns)
    if group is None or codes.shape[-1] % 4:
        return None
    biases = -zeros * scales
    if block > group:
        scales, biases = (
            mx.repeat(t, block // group, axis=-1)[..., : columns // group] for t in (scales, biases)
        )
    return Packed(codes.view(mx.uint32), scales, biases, group, bits)


def sum_dtype(dtype: mx.Dtype) -> mx.Dtype:
    """The dtype for quantized and gathered products.

    MLX's CPU kernels add halves up in half precision, or do not take them.
    """
    return mx.float32 if mx.default_device() == mx.Device(mx.cpu) else dtype


def dequantize(
    codes: mx.array, scales: mx.array, zeros: mx.array, *, bits: int, block: int
) -> mx.array:
    """The weight [..., rows, columns] as (code - zero point) * scale, in the dtype of `scales`."""
    values = unpack(codes, bits).astype(scales.dtype)
    columns = values.shape[-1]
    zeros = mx.broadcast_to(zeros, scales.shape)
    scales, zeros = (mx.repeat(t, block, axis=-1)[..., :columns] for t in (scales, zeros))
    return (values - zeros) * scales
