"""Cast, CastLike and BitCast.

Sources: the ONNX operators of the same names; MLX `astype` and `view`. `saturate` and `round_mode`
only act on the 8-bit floats.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import EVERY, MLX_DTYPES, NARROW, ONNX_NAMES, mlx_dtype
from ..node import Node
from ..padding import Axes, Carried, Mixes
from ..registry import op
from ..safety import PER_SHAPE, SHAPELESS, Safety
from ._narrow import narrow
from ._padding import unchanged


def _cast_padding(node: Node, axes: Axes) -> Carried:
    if isinstance(axes[0], tuple) and ONNX_NAMES.get(node.attr("to")) not in ("int32", "int64"):
        raise Mixes("it computes with the size")
    return unchanged(node, axes)


@op("Cast", since=(6, 9, 13), safety=SHAPELESS, padding=_cast_padding)
def cast_6(input: mx.array, *, to: int) -> mx.array:
    return input.astype(mlx_dtype(to))


def _to_narrow(node: Node) -> Iterator[tuple[Safety, str]]:
    if ONNX_NAMES.get(node.attr("to")) in NARROW:
        yield PER_SHAPE, "the target is a narrow type"


@op(
    "Cast",
    since=(19, 21, 23),
    types={"input": EVERY},
    safety=SHAPELESS,
    less_safe=_to_narrow,
    padding=_cast_padding,
)
def cast_19(input: mx.array, *, to: int, saturate: int = 1) -> mx.array:
    return cast(input, to=to, saturate=saturate)


@op(
    "Cast",
    since=(24, 25, 28),
    types={"input": EVERY},
    safety=SHAPELESS,
    less_safe=_to_narrow,
    padding=_cast_padding,
)
def cast(input: mx.array, *, to: int, saturate: int = 1, round_mode: str = "up") -> mx.array:
    return _converted(input, ONNX_NAMES[to], saturate, round_mode)


@op("CastLike", since=(15,), safety=SHAPELESS)
def cast_like_15(input: mx.array, target_type: mx.array) -> mx.array:
    return input.astype(target_type.dtype)


def _like_narrow(node: Node) -> Iterator[tuple[Safety, str]]:
    if node.dtype("target_type") in NARROW:
        yield PER_SHAPE, "the target is a narrow type"


@op(
    "CastLike",
    since=(19, 21, 23),
    types={"input": EVERY, "target_type": EVERY},
    safety=SHAPELESS,
    less_safe=_like_narrow,
)
def cast_like_19(
    input: mx.array, target_type: mx.array, *, saturate: int = 1, node: Node
) -> mx.array:
    return cast_like(input, target_type, saturate=saturate, node=node)


@op(
    "CastLike",
    since=(24, 25),
    types={"input": EVERY, "target_type": EVERY},
    safety=SHAPELESS,
    less_safe=_like_narrow,
)
def cast_like(
    input: mx.array,
    target_type: mx.array,
    *,
    saturate: int = 1,
    round_mode: str = "up",
    node: Node,
) -> mx.array:
    return _converted(input, node.dtype("target_type") or "float32", saturate, round_mode)


def _converted(x: mx.array, name: str, saturate: int, round_mode: str) -> mx.array:
    if name in NARROW:
        return narrow(x, name, saturate=saturate, round_mode=round_mode)
    return x.astype(MLX_DTYPES[name])


def _bit_cast_claim(node: Node) -> Iterator[str]:
    target, source = ONNX_NAMES.get(node.attr("to"), ""), node.dtype("input") or ""
    sizes = {MLX_DTYPES[name].size for name in (source, target) if name in MLX_DTYPES}
    if target in NARROW:
        yield f"the bits of {target}"
    elif len(sizes) > 1:
        yield "the element sizes differ"


@op("BitCast", since=(26,), claim=_bit_cast_claim)  # MLX's View infers no shape, so not shapeless
def bit_cast(input: mx.array, *, to: int) -> mx.array:
    return input.view(mlx_dtype(to))
