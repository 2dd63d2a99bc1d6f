"""Element types: the ONNX names used throughout, and what MLX calls them.

A dtype is its lower-case ONNX name without the enum's spelling quirks: ``float32`` for
``TensorProto.FLOAT``, ``bfloat16`` for ``TensorProto.BFLOAT16``. Sets of them are what ops declare.
"""

from __future__ import annotations

from typing import Final

import mlx.core as mx

# ONNX TensorProto.DataType, as attributes such as the `to` of a Cast have it.
ONNX_NAMES: Final[dict[int, str]] = {
    0: "undefined",
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
}
ONNX_CODES: Final[dict[str, int]] = {name: code for code, name in ONNX_NAMES.items()}

# ORT's ONNXTensorElementDataType, which numbers the last three otherwise.
ORT_NAMES: Final[dict[int, str]] = {**ONNX_NAMES, 24: "uint2", 25: "int2", 26: "float8e8m0"}
ORT_CODES: Final[dict[str, int]] = {name: code for code, name in ORT_NAMES.items()}

# The MLX dtype that holds each ONNX dtype; a wider one for those that MLX lacks. The native
# layer unpacks and packs them (cpp/narrow.cpp), so no packed byte is seen here.
MLX_DTYPES: Final[dict[str, mx.Dtype]] = {
    "bool": mx.bool_,
    "uint8": mx.uint8,
    "uint16": mx.uint16,
    "uint32": mx.uint32,
    "uint64": mx.uint64,
    "int8": mx.int8,
    "int16": mx.int16,
    "int32": mx.int32,
    "int64": mx.int64,
    "float16": mx.float16,
    "bfloat16": mx.bfloat16,
    "float32": mx.float32,
    "float64": mx.float64,
    "float8e4m3fn": mx.float16,
    "float8e4m3fnuz": mx.float16,
    "float8e5m2": mx.float16,
    "float8e5m2fnuz": mx.float16,
    "uint4": mx.uint8,
    "int4": mx.int8,
    "float4e2m1": mx.float16,
    "float8e8m0": mx.bfloat16,
    "uint2": mx.uint8,
    "int2": mx.int8,
}

FLOAT8: Final = frozenset({"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"})
NARROW_FLOATS: Final = FLOAT8 | {"float4e2m1", "float8e8m0"}
NARROW_INTS: Final = frozenset({"int4", "uint4", "int2", "uint2"})
NARROW: Final = NARROW_FLOATS | NARROW_INTS
HALVES: Final = frozenset({"float16", "bfloat16"})
FLOATS: Final = frozenset({"float32", "float16", "bfloat16", "float64"})
SINGLES: Final = frozenset({"float32", "float16", "bfloat16"})
SIGNED_INTS: Final = frozenset({"int8", "int16", "int32", "int64"})
UNSIGNED_INTS: Final = frozenset({"uint8", "uint16", "uint32", "uint64"})
INTS: Final = SIGNED_INTS | UNSIGNED_INTS
INDICES: Final = frozenset({"int32", "int64"})
NUMERIC: Final = FLOATS | INTS
BOOL: Final = frozenset({"bool"})
ANY: Final = NUMERIC | BOOL
EVERY: Final = ANY | NARROW  # for ops that only move elements around


def mlx_dtype(onnx_code: int) -> mx.Dtype:
    """The MLX dtype that holds an ONNX TensorProto.DataType code, such as the `to` of a Cast.

    Raises:
        ValueError: no MLX array can hold that type.
    """
    name = ONNX_NAMES.get(onnx_code, str(onnx_code))
    if name not in MLX_DTYPES:
        raise ValueError(f"MLX has no array of type {name}")
    return MLX_DTYPES[name]


def name_of(dtype: mx.Dtype) -> str:
    """The ONNX name of an MLX dtype, which numpy shares but for bfloat16."""
    return str(dtype).removeprefix("mlx.core.")
