"""Cast, CastLike and BitCast.

Sources: the ONNX operators of the same names; MLX `astype` and `view`. `saturate` and `round_mode`
only act on the 8-bit floats, which MLX has not, so those targets are declined.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import MLX_DTYPES, ONNX_NAMES, mlx_dtype
from ..node import Node
from ..registry import op
from ..safety import SHAPELESS


@op("Cast", since=(6, 9, 13), safety=SHAPELESS)
def cast_6(input: mx.array, *, to: int) -> mx.array:
    return _converted(input, mlx_dtype(to))


@op("Cast", since=(19, 21, 23), safety=SHAPELESS)
def cast_19(input: mx.array, *, to: int, saturate: int = 1) -> mx.array:
    return _converted(input, mlx_dtype(to))


@op("Cast", since=(24, 25, 28), safety=SHAPELESS)
def cast(input: mx.array, *, to: int, saturate: int = 1, round_mode: str = "up") -> mx.array:
    return _converted(input, mlx_dtype(to))


@op("CastLike", since=(15,), safety=SHAPELESS)
def cast_like_15(input: mx.array, target_type: mx.array) -> mx.array:
    return _converted(input, target_type.dtype)


@op("CastLike", since=(19, 21, 23), safety=SHAPELESS)
def cast_like_19(input: mx.array, target_type: mx.array, *, saturate: int = 1) -> mx.array:
    return _converted(input, target_type.dtype)


@op("CastLike", since=(24, 25), safety=SHAPELESS)
def cast_like(
    input: mx.array, target_type: mx.array, *, saturate: int = 1, round_mode: str = "up"
) -> mx.array:
    return _converted(input, target_type.dtype)


def _converted(x: mx.array, dtype: mx.Dtype) -> mx.array:
    return x.astype(dtype)


def _bit_cast_claim(node: Node) -> Iterator[str]:
    target, source = ONNX_NAMES.get(node.attr("to"), ""), node.dtype("input") or ""
    sizes = {MLX_DTYPES[name].size for name in (source, target) if name in MLX_DTYPES}
    if len(sizes) > 1:
        yield "the element sizes differ"


@op("BitCast", since=(26,), claim=_bit_cast_claim)  # MLX's View infers no shape, so not shapeless
def bit_cast(input: mx.array, *, to: int) -> mx.array:
    return input.view(mlx_dtype(to))
