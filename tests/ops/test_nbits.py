"""Products with weights quantized in blocks, and lookups in them."""

from __future__ import annotations

from itertools import product
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from support.case import MS, Array, Case, Input, N, case, const, ints, loose, omitted, rand
from support.ep import Ep
from support.strategies import axis

NONE = omitted()
# ONNX Runtime has no bfloat16 kernel: the wide reference also keeps the scales in float32.
ROUNDED = loose(3e-2, 6e-2, "a bias of MLX's layout is rounded to the dtype of the scales")
ROWS = 10


def codes(*shape: int) -> Input:
    return const(rand(*shape, low=0, high=256, dtype="uint8"))


def scales(*shape: int) -> Input:
    return const(rand(*shape, low=0.02, high=0.1))


def nbits(
    bits: int,
    block: int,
    columns: int,
    zeros: str = "",
    a: Input | None = None,
    *,
    bias: bool = False,
    order: Input = NONE,
    id: str = "",
    **options: Any,
) -> Case:
    blocks = -(-columns // block)
    zero = {
        "": NONE,
        "packed": codes(ROWS, -(-blocks * bits // 8)),
        "float": const(rand(ROWS, blocks, low=0, high=2**bits - 1)),
    }[zeros]
    return case(
        "MatMulNBits",
        a or rand(2, N, columns),
        codes(ROWS, blocks, block * bits // 8),
        scales(ROWS, blocks),
        zero,
        order,
        const(rand(ROWS)) if bias else NONE,
        domain=MS,
        tolerance=ROUNDED,
        dtypes=["float32", "float16"],
        id=id or f"{bits}bits-{block}-of-{columns}-{zeros or 'symmetric'}",
        K=columns,
        N=ROWS,
        bits=bits,
        block_size=block,
        **options,
    )


def lookup(
    bits: int,
    block: int,
    *rest: Input,
    shape: tuple[int, ...] = (20,),
    id: str = "",
    indices: Input | None = None,
    **options: Any,
) -> Case:
    columns = 64
    return case(
        "GatherBlockQuantized",
        codes(*shape, columns * bits // 8),
        indices or ints([[3, -1, 25], [0, -21, 19]], [[1, 2, 3], [-20, 20, 7]]),
        scales(*shape, columns // block),
        *rest,
        domain=MS,
        dtypes=["float32", "float16"],
        id=id or f"{bits}bits-{block}",
        bits=bits,
        block_size=block,
        quantize_axis=len(shape),
        **options,
    )


def _ordered(a: Array, b: Array, s: Array, z: Array, g: Array, *rest: Any, **options: Any) -> Array:
    """ONNX Runtime forgets packed zero points when g_idx is given."""
    q = np.stack([b & 15, b >> 4], -1).reshape(len(b), -1).astype(np.float32)
    zero = np.stack([z & 15, z >> 4], -1).reshape(len(b), -1)[:, : s.shape[1]]
    return (a @ ((q - zero[:, g]) * s[:, g]).T).astype(a.dtype)


def _bytes(a: Array, b: Array, s: Array, z: Array, *rest: Any, **options: Any) -> Array:
    """ONNX Runtime takes no float zero points with 8 bits."""
    weight = ((b.astype(np.float32) - z[..., None]) * s[..., None]).reshape(len(b), -1)
    return (a @ weight[:, : a.shape[-1]].T).astype(a.dtype)


GROUPS = const(np.tile([1, 0, 0, 1], 16), dtype="int32")

CASES = [
    *(
        nbits(bits, block, 160, zeros)
        for bits, block, zeros in product((2, 4, 8), (16, 32, 128), ("", "packed", "float"))
        if (bits, zeros) != (8, "float")
    ),
    nbits(8, 32, 160, "float", reference=_bytes),
    nbits(4, 256, 300, "packed"),
    nbits(8, 64, 40),
    nbits(4, 32, 64, bias=True, id="bias"),
    nbits(4, 32, 64, order=GROUPS, id="ordered"),
    case(
        "MatMulNBits",
        rand(N, 64),
        codes(ROWS, 2, 16),
        scales(ROWS, 2),
        codes(ROWS, 1),
        GROUPS,
        domain=MS,
        id="ordered-zeros",
        dtypes=["float32"],
        reference=_ordered,
        K=64,
        N=ROWS,
        bits=4,
        block_size=32,
    ),
    nbits(4, 32, 64, a=rand(64), id="vector"),
    nbits(4, 32, 64, a=rand(0, 64), id="no-rows"),
    case(
        "MatMulNBits",
        rand(N, 64),
        codes(0, 2, 16),
        const(rand(0)),
        domain=MS,
        id="left-out",
        K=64,
        N=ROWS,
        bits=4,
        block_size=32,
        dtypes=["float32"],
    ),
    case(
        "MatMulNBits",
        rand(N, 64),
        rand(ROWS, 2, 16, dtype="uint8", low=0, high=256),
        rand(ROWS, 2),
        domain=MS,
        id="weight-at-run-time",
        K=64,
        N=ROWS,
        bits=4,
        block_size=32,
        dtypes=["float32"],
    ),
    *(lookup(bits, 32) for bits in (2, 4, 8)),
    lookup(4, 32, codes(20, 1), id="zeros"),
    lookup(4, 16, shape=(20, 3), id="two-axes"),
    lookup(8, 16, indices=ints(3, 19, dtype="int32"), id="one"),
]

# Elements of their own type, of which any axis may be looked up and quantized.
CASES += [
    case(
        "GatherBlockQuantized",
        rand(*shape, dtype=t, low=0, high=8),
        ints([[0, 4, -1], [1, 5, 9]], [[-5, 2, 2], [3, 0, -9]]),
        rand(*blocks),
        *([rand(*blocks, dtype=t, low=0, high=3)] if zero else []),
        domain=MS,
        id=f"{t}-{'zeros-' if zero else ''}{gathered}-{blocked}",
        gather_axis=gathered,
        quantize_axis=blocked,
        block_size=16,
        dtypes=["float32", "float16"],
    )
    for t, zero, gathered, blocked, shape, blocks in (
        ("int4", False, 0, 1, (5, 40), (5, 3)),
        ("uint4", True, 0, -1, (5, 40), (5, 3)),
        ("int4", True, 1, 0, (33, 5), (3, 5)),
        ("uint4", False, 2, 1, (2, 32, 5), (2, 2, 5)),
        ("int4", True, 1, 2, (2, 5, 32), (2, 5, 2)),
        ("uint4", True, 0, 0, (40, 3), (3, 3)),
    )
]

REFUSED = [
    (nbits(3, 32, 64), "3 bits"),
    (lookup(4, 32, gather_axis=1, id="columns"), "a gather axis other than the first"),
    (
        case(
            "GatherBlockQuantized",
            codes(20, 32, 8),
            ints([1]),
            scales(20, 2, 8),
            domain=MS,
            id="rows",
            bits=8,
            block_size=16,
            quantize_axis=1,
        ),
        "a quantize axis other than the last",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c: Case, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c: Case, sentence: str, ep: Ep) -> None:
    ep.refuse(c, sentence)


def test_weight_must_fit(ep: Ep) -> None:
    c = case(
        "MatMulNBits",
        rand(2, 64),
        rand(ROWS, 1, 16, dtype="uint8"),
        rand(ROWS, 2),
        domain=MS,
        id="short",
        K=64,
        N=ROWS,
        bits=4,
        block_size=32,
    )
    ep.fails(c, "weight does not fit")


@given(
    data=st.data(),
    shape=st.lists(st.integers(1, 20), min_size=2, max_size=3),
    t=st.sampled_from(["int4", "uint4"]),
)
def test_lookups_along_any_axis(data, shape, t, ep: Ep) -> None:
    gathered, blocked = (data.draw(axis(len(shape))) for _ in range(2))
    blocks = [-(-n // 16) if i == blocked % len(shape) else n for i, n in enumerate(shape)]
    count = shape[gathered]
    indices = data.draw(st.lists(st.integers(-count, count - 1), min_size=1, max_size=4))
    c = case(
        "GatherBlockQuantized",
        const(rand(*shape, dtype=t, low=0, high=8)),
        ints(indices),
        const(rand(*blocks, dtype="float32")),
        *([const(rand(*blocks, dtype=t, low=0, high=3))] if data.draw(st.booleans()) else []),
        domain=MS,
        gather_axis=gathered,
        quantize_axis=blocked,
        block_size=16,
    )
    ep.check_one(c, 1, "float32")
