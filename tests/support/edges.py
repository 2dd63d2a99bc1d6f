"""Arrays of every ONNX dtype: in numpy, in and out of ORT's Python, and as MLX holds them.

numpy has bfloat16 and the narrow types from ml_dtypes. ORT's Python takes and gives no such array,
only the memory of an OrtValue, in which elements of less than a byte are packed.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes  # noqa: F401  # so that numpy knows its dtypes
import mlx.core as mx
import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime as ort
from numpy.typing import NDArray

from ort_mlx import hosts
from ort_mlx.dtypes import MLX_DTYPES, NARROW, ONNX_CODES, ONNX_NAMES

Array = NDArray[Any]

_ORT_NAMES: Final = {"float": "float32", "double": "float64"}
_PACKED: Final = {"int4": 4, "uint4": 4, "float4e2m1": 4, "int2": 2, "uint2": 2}  # bits of one


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of an ONNX name."""
    return np.dtype(oh.tensor_dtype_to_np_dtype(ONNX_CODES[name]))


def onnx_name(dtype: np.dtype[Any]) -> str:
    """The ONNX name of a numpy dtype."""
    return ONNX_NAMES[oh.np_dtype_to_tensor_dtype(dtype)]


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether ORT's Python takes arrays of this dtype."""
    return dtype.kind != "V" and dtype.name != "bfloat16" and not dtype.name.startswith("float8")


def cast_array(a: Array, dtype: np.dtype[Any]) -> Array:
    """`a.astype(dtype)` by the value, also where ml_dtypes would not go there directly."""
    with np.errstate(all="ignore"):
        return a.astype(np.float32).astype(dtype) if onnx_name(dtype) in NARROW else a.astype(dtype)


def run_session(session: Any, feed: Mapping[str, Array]) -> list[Array]:
    """`session.run(None, feed)` for any dtype."""
    names = [_dtype_name(o.type) for o in session.get_outputs()]
    plain = all(n is None or is_plain(numpy_dtype(n)) for n in names)
    if plain and all(is_plain(a.dtype) for a in feed.values()):
        return list(session.run(None, dict(feed)))
    memory = {name: _memory(a) for name, a in feed.items()}
    values = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
            memory[name], oh.np_dtype_to_tensor_dtype(a.dtype)
        )
        for name, a in feed.items()
    }
    found = session.run_with_ort_values(None, values)
    return [_array(y, name) for y, name in zip(found, names, strict=True)]


def _memory(a: Array) -> Array:
    """An array of plain bytes or words with the shape of `a` that starts with its memory in ORT."""
    if is_plain(a.dtype):
        return np.ascontiguousarray(a).reshape(a.shape)
    raw = np.frombuffer(onnx.numpy_helper.from_array(a).raw_data, np.uint8)
    made = np.zeros(a.shape, np.uint16 if a.dtype.itemsize == 2 else np.uint8)
    made.reshape(-1).view(np.uint8)[: raw.size] = raw
    return made


def _array(value: Any, name: str | None) -> Array:
    if name is None or is_plain(numpy_dtype(name)):
        return np.asarray(value.numpy())
    count = math.prod(value.shape())
    bits = _PACKED.get(name, 8 * numpy_dtype(name).itemsize)
    raw = ctypes.string_at(value.data_ptr(), -(-bits * count // 8))
    return onnx.numpy_helper.to_array(
        onnx.TensorProto(data_type=ONNX_CODES[name], dims=value.shape(), raw_data=raw)
    )


def _dtype_name(ort_type: str) -> str | None:
    if not ort_type.startswith("tensor("):
        return None
    name = ort_type.removeprefix("tensor(").removesuffix(")")
    return _ORT_NAMES.get(name, name)


def to_mlx(a: Array) -> mx.array:
    """An array as MLX holds it."""
    held = MLX_DTYPES[onnx_name(a.dtype)]
    if is_plain(a.dtype):
        return hosts.array_of(np.asarray(a))
    return mx.array(a.astype(np.float32)).astype(held)
