"""Weights of few bits: MatMulNBits, GatherBlockQuantized, and experts with and without them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np

from conformance.contrib.build import FLOATS, Const, ContribCase, Random, case
from conformance.contrib.references import experts, low_bit_product

SWIGLU: Final[dict[str, Any]] = {
    "activation_type": "swiglu",
    "activation_alpha": 1.702,
    "activation_beta": 1.0,
    "swiglu_limit": 7.0,
}


def cases() -> Iterator[ContribCase]:
    """All of them."""
    yield from products()
    yield from odd_products()
    yield from gathers()
    yield from mixtures()
    yield from quantized_mixtures()


def products() -> Iterator[ContribCase]:
    """Bits, block sizes and zero points; the depth is no multiple of the largest block."""
    depth, width = 160, 24
    zero_points = ("no_zeros", "packed_zeros", "float_zeros")
    for bits, block, zeros, (label, dtype) in product(
        (4, 8, 2), (16, 32, 128), zero_points, FLOATS.items()
    ):
        name = f"{bits}_bits_block_{block}_{zeros}_{label}"
        r = Random(name)
        blocks = -(-depth // block)
        packed = Const(r.bytes(width, blocks, block * bits // 8))
        scales = Const(r.uniform(width, blocks, low=0.02, high=0.12, dtype=dtype))
        points = {
            "no_zeros": None,
            "packed_zeros": Const(r.bytes(width, -(-blocks * bits // 8))),
            "float_zeros": Const(r.uniform(width, blocks, high=2**bits - 1, dtype=dtype)),
        }
        yield case(
            name,
            "MatMulNBits",
            r.normal(2, 3, depth, dtype=dtype),
            packed,
            scales,
            points[zeros],
            close=(2e-3, 2e-3) if dtype == np.float32 else (2e-2, 6e-2),
            oracle=low_bit_product,
            K=depth,
            N=width,
            bits=bits,
            block_size=block,
        )


def odd_products() -> Iterator[ContribCase]:
    """A bias, int8 activations, and a weight that is no constant."""
    r = Random("odd products")
    x, packed, scales = r.normal(5, 64), r.bytes(10, 2, 16), r.uniform(10, 2, high=0.1)
    own = {"K": 64, "N": 10, "bits": 4, "block_size": 32}
    held = Const(packed), Const(scales)
    op = "MatMulNBits"
    yield case("bias", op, x, *held, None, None, Const(r.normal(10)), **own)
    yield case("int8_activations", op, x, *held, accuracy_level=4, close=(5e-2, 2e-1), **own)
    yield case("given_weight", op, x, packed, scales, **own)


def gathers() -> Iterator[ContribCase]:
    """Rows of a quantized table, by indices that count from the end as well."""
    rows, width, block = 20, 64, 32
    index = np.array([[3, 0, 19], [-1, 5, 5]], np.int64)
    for bits, has_zeros, (label, dtype) in product((4, 8, 2), (False, True), FLOATS.items()):
        name = f"{bits}_bits{'_zeros' * has_zeros}_{label}"
        r = Random(name)
        table = Const(r.bytes(rows, width * bits // 8))
        scales = Const(r.uniform(rows, width // block, low=0.1, high=1.1, dtype=dtype))
        points = r.bytes(rows, max(1, width // block * bits // 8))
        own = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
        given = (table, index, scales, *([Const(points)] if has_zeros else []))
        yield case(name, "GatherBlockQuantized", *given, **own)


def mixtures() -> Iterator[ContribCase]:
    """Experts in float32."""
    forms: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
        ("swiglu_interleaved", 2, 1, {**SWIGLU, "swiglu_fusion": 1}),
        ("swiglu_halves", 2, 1, {**SWIGLU, "swiglu_fusion": 2}),
        ("silu", 2, 0, {"activation_type": "silu"}),
        ("relu", 1, 0, {"activation_type": "relu"}),
        ("gelu", 2, 1, {"activation_type": "gelu"}),
    )
    count, width, inner, rows = 4, 32, 48, 6
    for name, k, normalized, own in forms:
        r = Random(name)
        first = inner * (2 if "swiglu" in name else 1)
        yield case(
            name,
            "MoE",
            r.normal(rows, width),
            r.normal(rows, count),
            Const(r.normal(count, first, width, scale=0.2)),
            Const(r.normal(count, first, scale=0.1)),
            Const(r.normal(count, width, inner, scale=0.2)),
            Const(r.normal(count, width, scale=0.1)),
            oracle=experts,
            k=k,
            normalize_routing_weights=normalized,
            **own,
        )


def quantized_mixtures() -> Iterator[ContribCase]:
    """Experts of 4 and 8 bits, with scales for rows and for blocks."""
    count, width, inner, rows = 4, 64, 32, 5
    for bits, block in product((4, 8), (0, 32)):
        name = f"{bits}_bits_{f'block_{block}' if block else 'rows'}"
        r = Random(name)
        per_byte = 8 // bits

        def scales(
            out: int, depth: int, r: Random = r, block: int = block, bits: int = bits
        ) -> Const:
            shape = (count, out, depth // block) if block else (count, out)
            least, most = (0.01, 0.04) if bits == 4 else (0.01 / 16, 0.04 / 16)
            return Const(r.uniform(*shape, low=least, high=most))

        blocks = {"block_size": block} if block else {}
        yield case(
            name,
            "QMoE",
            r.normal(rows, width),
            r.normal(rows, count),
            Const(r.bytes(count, 2 * inner, width // per_byte)),
            scales(2 * inner, width),
            Const(r.normal(count, 2 * inner, scale=0.1)),
            Const(r.bytes(count, width, inner // per_byte)),
            scales(width, inner),
            Const(r.normal(count, width, scale=0.1)),
            close=(2e-2, 5e-2),
            k=2,
            normalize_routing_weights=1,
            expert_weight_bits=bits,
            swiglu_fusion=1,
            **blocks,
            **SWIGLU,
        )
