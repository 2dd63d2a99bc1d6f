"""What MLX's Metal backend refuses, from its source: mlx/backend/metal of 0.32.

Metal cannot be run everywhere. What an operator asks of MLX can be seen on any machine, and is held
against this table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import mlx.core as mx

Arrays = list[tuple[mx.Dtype, tuple[int, ...]]]

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
    ("LogAddExp ArcTan2", FLOATS),
    ("BitwiseAnd BitwiseOr BitwiseXor", INTS | BOOL),
    ("LeftShift RightShift", INTS),
    ("Select", BOOL),
    # kernels/sort.metal, arg_reduce.metal, scan.metal, reduce.metal with reduce.cpp
    ("Sort ArgSort Partition ArgPartition SearchSorted", INTS | FLOATS | COMPLEX),
    ("ArgReduce", INTS | FLOATS | BOOL),
    ("CumSum CumProd CumMax CumMin", ANY),
    ("CumLogaddexp", FLOATS | COMPLEX),
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
_LARGEST_FFT: Final = 4096 * 4096  # fft.cpp
_INDEX_ARRAYS: Final = 20  # indexing.cpp


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
    if base == "FFT" and max(inputs[0][1], default=1) > _LARGEST_FFT:
        return "too long"
    if base in ("Gather", "Scatter") and len(inputs) > 2 + _INDEX_ARRAYS:
        return "too many index arrays"
    return ""
