"""Products with, and lookups in, weights quantized in blocks to 2, 4 or 8 bits.

Sources: com.microsoft MatMulNBits and GatherBlockQuantized; mx.quantized_matmul.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import mlx.core as mx

from ..bounds import inside
from ..dtypes import SINGLES
from ..node import Node
from ..registry import MS, op
from ._bits import Packed, block_zeros, dequantize, pack, sum_dtype, unpack
from ._shapes import normalize_axis
from ._windows import along

_BITS = (2, 4, 8)
_CODES: Final = frozenset({"uint8", "int4", "uint4"})  # bytes are packed


def _nbits_claim(node: Node) -> Iterator[str]:
    if (bits := node.attr("bits", 4)) not in _BITS:
        yield f"{bits} bits"


def _prepared(
    node: Node,
    b: mx.array,
    scales: mx.array,
    zero_points: mx.array | None,
    g_idx: mx.array | None,
) -> Packed | mx.array | None:
    """The weight in MLX's layout, or dequantized where that has none; None when it is empty."""
    if 0 in b.shape:  # a projection left out of the model
        return None
    rows, columns = node.attr("N"), node.attr("K")
    bits, block = node.attr("bits", 4), node.attr("block_size")
    b, scales, zeros = _rows(
        b, scales, zero_points, rows=rows, columns=columns, bits=bits, block=block
    )
    packed = None if g_idx is not None else pack(b, scales, zeros, bits=bits, block=block)
    if packed is not None:
        return packed
    return _weight(b, scales, zeros, g_idx, columns=columns, bits=bits, block=block)


@op(
    "MatMulNBits",
    domain=MS,
    since=(1,),
    types={"a": SINGLES, "scales": SINGLES, "zero_points": SINGLES | {"uint8"}},
    fixed={"weight_prepacked": 0},
    claim=_nbits_claim,
    prepare={("b", "scales", "zero_points", "g_idx"): _prepared},
)
def matmul_nbits(
    a: mx.array,
    b: Packed | mx.array | None,
    scales: mx.array,
    zero_points: mx.array | None = None,
    g_idx: mx.array | None = None,
    bias: mx.array | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
) -> mx.array:
    if b is None or 0 in a.shape:
        y = mx.zeros((*a.shape[:-1], N), dtype=a.dtype)
    elif isinstance(b, Packed):
        y = _product(a, b)
    else:
        y = a @ b.astype(a.dtype).T
    return y if bias is None else y + bias


def _rows(
    b: mx.array,
    scales: mx.array,
    zeros: mx.array | None,
    *,
    rows: int,
    columns: int,
    bits: int,
    block: int,
) -> tuple[mx.array, mx.array, mx.array]:
    """Codes, scales and zero points with one row for each output."""
    blocks = -(-columns // block)
    if b.size != rows * blocks * block * bits // 8 or scales.size != rows * blocks:
        raise ValueError(
            f"weight does not fit: {b.shape} with scales {scales.shape} for N={rows}, K={columns}"
        )
    scales = scales.reshape(rows, blocks)
    zeros = None if zeros is None else zeros.reshape(rows, -1)
    return b.reshape(rows, -1), scales, block_zeros(zeros, scales, bits)


def _product(a: mx.array, weight: Packed) -> mx.array:
    """Times the transposed weight; columns that only pad the last block meet zeros."""
    columns = weight.scales.shape[-1] * weight.group
    if a.shape[-1] < columns:
        a = mx.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, columns - a.shape[-1])])
    dtype = sum_dtype(a.dtype)
    y = mx.quantized_matmul(
        (a[None] if a.ndim == 1 else a).astype(dtype),
        weight.codes,
        scales=weight.scales.astype(dtype),
        biases=weight.biases.astype(dtype),
        group_size=weight.group,
        bits=weight.bits,
    )
    return (y[0] if a.ndim == 1 else y).astype(a.dtype)


def _weight(
    b: mx.array,
    scales: mx.array,
    zeros: mx.array,
    g_idx: mx.array | None,
    *,
    columns: int,
    bits: int,
    block: int,
) -> mx.array:
    """The weight [rows, columns], exactly; `g_idx` names the block of every column."""
    if g_idx is None:
        return dequantize(b, scales, zeros, bits=bits, block=block)[:, :columns]
    block_of = inside(g_idx, scales.shape[1])[:columns]
    zeros = mx.broadcast_to(zeros, scales.shape)
    scales, zeros = (mx.take(t, block_of, axis=1) for t in (scales, zeros))
    return (unpack(b, bits)[:, :columns].astype(scales.dtype) - zeros) * scales


def _gather_claim(node: Node) -> Iterator[str]:
    if node.dtype("data") != "uint8":
        return
    yield from _nbits_claim(node)
    rank = node.rank("data")
    if node.attr("gather_axis", 0) not in (0, -(rank or 0)):
        yield "a gather axis other than the first"
    if rank is None or node.attr("quantize_axis", 1) not in (-1, rank - 1):
        yield "a quantize axis other than the last"


@op(
    "GatherBlockQuantized",
    domain=MS,
    since=(1,),
    types={"data": _CODES, "scales": SINGLES, "zero_points": _CODES},
    claim=_gather_claim,
)
def gather_block_quantized(
    data: mx.array,
    indices: mx.array,
    scales: mx.array,
    zero_points: mx.array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    node: Node,
) -> mx.array:
    is_packed = node.dtype("data") == "uint8"
    gathered, blocked = (normalize_axis(a, data.ndim) for a in (gather_axis, quantize_axis))
    count = data.shape[gathered]
    needed = -(-count // block_size) if gathered == blocked else count
    if any(
        t is not None and (t.ndim != data.ndim or t.shape[gathered] != needed)
        for t in (scales, zero_points)
    ):
        raise ValueError(f"the scales or zero points do not fit: {data.shape}, {scales.shape}")
    inside = (indices >= -count) & (indices < count)
    place = mx.where(inside, mx.where(indices < 0, indices + count, indices), 0)
    codes = mx.take(data, place, axis=gathered)
    codes = unpack(codes, bits) if is_packed else codes

    def of_codes(param: mx.array) -> mx.array:
        """The scale or the zero point of every code."""
        if gathered == blocked:
            return mx.take(param, place // block_size, axis=gathered)
        axis = blocked + (place.ndim - 1 if blocked > gathered else 0)
        taken = mx.repeat(mx.take(param, place, axis=gathered), block_size, axis=axis)
        return along(taken, axis, slice(0, codes.shape[axis]))

    if is_packed:
        zeros = block_zeros(zero_points, scales, bits)
    else:
        zeros = mx.array(0, scales.dtype) if zero_points is None else zero_points
    scale, zero = of_codes(scales), of_codes(zeros) if zeros.ndim else zeros
    y = (codes.astype(scale.dtype) - zero.astype(scale.dtype)) * scale
    inside = inside.reshape(*inside.shape, *(1,) * (data.ndim - 1 - gathered))
    return mx.where(inside, y, mx.array(0.0, dtype=y.dtype))
