"""Element types: the ONNX names used throughout, and what MLX calls them.

A dtype is its lower-case ONNX name without the enum's spelling quirks: ``float32`` for
``TensorProto.FLOAT``, ``bfloat16`` for ``TensorProto.BFLOAT16``. Sets of them are what ops declare.
"""

from __future__ import annotations

from typing import Final

import mlx.core as mx

# ONNX TensorProto.DataType, which ORT's ONNXTensorElementDataType repeats.
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

# The dtypes an MLX array can hold as they are.
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
}

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


def mlx_dtype(onnx_code: int) -> mx.Dtype:
    """The MLX dtype of an ONNX TensorProto.DataType code, such as the `to` of a Cast.

    Raises:
        ValueError: MLX has no array of that type.
    """
    name = ONNX_NAMES.get(onnx_code, str(onnx_code))
    if name not in MLX_DTYPES:
        raise ValueError(f"MLX has no array of type {name}")
    return MLX_DTYPES[name]
