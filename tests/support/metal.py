"""What MLX's Metal backend refuses, from its source: mlx/backend/metal of 0.32.

Metal cannot be run everywhere. What an operator asks of MLX can be seen on any machine, and is held
against this table. The kernels that are compiled ahead of time were also looked up by name in the
mlx.metallib of mlx-metal 0.32.4; those of indexing.cpp are compiled while running.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import mlx.core as mx

Arrays: TypeAlias = list[tuple[mx.Dtype, tuple[int, ...]]]

FLOATS: Final = frozenset({mx.float16, mx.bfloat16, mx.float32})
INTS: Final = frozenset(
    {mx.int8, mx.int16, mx.int32, mx.int64, mx.uint8, mx.uint16, mx.uint32, mx.uint64}
)
BOOL: Final = frozenset({mx.bool_})
COMPLEX: Final = frozenset({mx.complex64})
ANY: Final = FLOATS | INTS | BOOL | COMPLEX
NONE: Final[frozenset[mx.Dtype]] = frozenset()
NARROW: Final = frozenset(d for d in ANY if d.size < 8)


def _table(*rows: tuple[str, frozenset[mx.Dtype]]) -> dict[str, frozenset[mx.Dtype]]:
    return {name: types for names, types in rows for name in names.split()}


# Types of a primitive's first input that a kernel is built for.
_TYPES: Final = _table(
    # kernels/unary.metal
    ("ArcCosh ArcSinh ArcTanh Erf ErfInv Expm1 Sigmoid", FLOATS),
    ("ArcCos ArcSin ArcTan Cos Cosh Exp Log Round Rsqrt Sin Sinh Sqrt Tan Tanh", FLOATS | COMPLEX),
    ("Log1p Log2 Log10", FLOATS | COMPLEX),
    ("Abs Ceil Floor Negative Sign Square", ANY),
    ("BitwiseInvert", INTS),
    ("LogicalNot LogicalAnd LogicalOr", BOOL),
    ("Real Imag", COMPLEX),
    # kernels/binary.metal
    ("Add Divide FloorDivide Maximum Minimum Multiply Power Remainder Subtract", ANY),
    ("Equal Greater GreaterEqual Less LessEqual NotEqual", ANY),
    ("LogAddExp", FLOATS | COMPLEX),
    ("ArcTan2", FLOATS),
    ("BitwiseAnd BitwiseOr BitwiseXor", INTS | BOOL),
    ("LeftShift RightShift", INTS),
    ("Select", BOOL),
    # kernels/sort.metal, arg_reduce.metal, scan.metal, reduce.metal with reduce.cpp
    ("Sort ArgSort Partition ArgPartition", INTS | FLOATS | COMPLEX),
    ("SearchSorted", ANY),
    ("ArgReduce", INTS | FLOATS | BOOL),
    ("CumSum CumProd CumMax CumMin", ANY),
    ("CumLogAddExp", FLOATS | COMPLEX),
    ("Sum Prod Max Min And Or", ANY),
    # matmul.cpp, conv.cpp, softmax.cpp, logsumexp.cpp, quantized.cpp
    ("Matmul", FLOATS | COMPLEX),
    ("AddMM GatherMM Convolution Softmax LogSumExp", FLOATS),
    ("QuantizedMatmul GatherQMM", FLOATS),
    # indexing.cpp: nothing of eight bytes is scattered
    ("Scatter ScatterAxis", NARROW),
    ("Gather GatherAxis SliceUpdate DynamicSlice DynamicSliceUpdate", ANY),
    # primitives.cpp: the decompositions have no kernels
    ("Cholesky Eig Eigh Inverse Load LUF QRF SVD", NONE),
    ("FFT", FLOATS | COMPLEX),
    ("RandomBits", frozenset({mx.uint32})),
    # copies and views
    ("AsStrided AsType Broadcast Concatenate Contiguous ExpandDims Flatten Full Pad Reshape", ANY),
    ("Slice Split Squeeze StopGradient Transpose Unflatten View", ANY),
)


def _transform(inputs: Arrays, outputs: Arrays) -> str:
    """fft.cpp: a length that is no power of two becomes one of at least twice the length."""
    lengths = [n for _, shape in (*inputs, *outputs) for n in shape]
    padded = [n if n & (n - 1) == 0 else 2 * n - 1 for n in lengths]
    return "too long" if max(padded, default=1) > 4096 * 4096 else ""


def _convolution(inputs: Arrays, outputs: Arrays) -> str:
    """conv.cpp."""
    return "" if len(outputs[0][1]) in (3, 4, 5) else "not 1 to 3 dimensions"


def _sort(inputs: Arrays, outputs: Arrays) -> str:
    """sort.cpp: strides have 32 bits."""
    return "" if math.prod(inputs[0][1]) < 2**31 else "too large"


def _indices(inputs: Arrays, outputs: Arrays) -> str:
    """indexing.cpp; a scatter reads updates too."""
    return "" if len(inputs) <= 21 else "too many index arrays"


def _quantized(inputs: Arrays, outputs: Arrays) -> str:
    """kernels/quantized.metal, of affine weights: x, the packed weight, its scales, and others."""
    (_, x), (_, packed), (kind, scales) = inputs[:3]
    columns = next(n for n in (x[-1], outputs[0][1][-1]) if 32 * packed[-1] % n == 0)
    bits, group = 32 * packed[-1] // columns, columns / scales[-1]
    if kind not in FLOATS or bits not in (1, 2, 3, 4, 5, 6, 8) or group not in (32, 64, 128):
        return f"no kernel for {bits} bits in groups of {group:g}"
    return ""


# These launch a kernel for an empty result too, and whether Metal takes a grid of no threads is not
# said. The others return before, or ops.cpp does not ask for them.
_SUMS: Final = ("CumSum", "CumProd", "CumMin", "CumMax", "CumLogAddExp")
_NOT_EMPTY: Final = {*_SUMS, "Convolution", "FFT", "GatherQMM", "QuantizedMatmul", "SearchSorted"}

# What depends on more than the type of the first input.
_SIZES: Final[dict[str, Callable[[Arrays, Arrays], str]]] = {
    "FFT": _transform,
    "Convolution": _convolution,
    "QuantizedMatmul": _quantized,
    "GatherQMM": _quantized,
    **dict.fromkeys(("Gather", "Scatter"), _indices),
    **dict.fromkeys(("Sort", "ArgSort", "Partition", "ArgPartition"), _sort),
}


def refusals(nodes: Iterable[tuple[str, Arrays, Arrays]]) -> set[str]:
    """Why Metal would not run these primitives.

    Args:
        nodes: name, inputs and outputs of each, as `Closure.nodes` has them.
    """
    return {
        f"{name} of {', '.join(str(d) for d, _ in inputs)}: {reason}"
        for name, inputs, outputs in nodes
        if (reason := _refusal(name, inputs, outputs))
    }


def _refusal(name: str, inputs: Arrays, outputs: Arrays) -> str:
    base = name.partition(" ")[0]  # "Scatter Sum", "View int32"
    if any(dtype == mx.float64 for dtype, _ in [*inputs, *outputs]):
        return "there is no float64 on Metal"
    if base == "Arange":
        return "no kernel for bool" if outputs[0][0] == mx.bool_ else ""
    if base not in _TYPES:
        return "not in the table of what Metal does"
    if inputs and inputs[0][0] not in _TYPES[base]:
        return "no kernel for this type"
    if base in _NOT_EMPTY and all(0 in shape for _, shape in outputs):
        return "an empty grid"
    return _SIZES[base](inputs, outputs) if base in _SIZES else ""
