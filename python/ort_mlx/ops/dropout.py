"""Dropout and ORT's BiasDropout: nothing in inference, random elements dropped in training.

Sources: the ONNX operator, and com.microsoft BiasDropout. What is dropped comes from MLX's
generator, see `random`: a `seed` makes it repeatable, but not the same as elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import FLOATS
from ..hosts import HostBool, HostFloat
from ..node import Node
from ..padding import Axes, Mixes
from ..registry import MS, op
from ..safety import EAGER, Safety
from ._padding import elementwise
from .random import draw_key


# Before opset 12 the mask of an inference is all zeros, in ORT, and from then on all ones.
@op("Dropout", since=(7,), types={"data": FLOATS}, padding=elementwise)
def dropout_7(data: mx.array, *, ratio: float = 0.5) -> tuple[mx.array, mx.array]:
    del ratio
    return data, mx.zeros_like(data)


@op("Dropout", since=(10,), types={"data": FLOATS}, padding=elementwise)
def dropout_10(data: mx.array, *, ratio: float = 0.5) -> tuple[mx.array, mx.array]:
    del ratio
    return data, mx.zeros(data.shape, dtype=mx.bool_)


def _drops_nothing(node: Node) -> bool:
    mode, ratio = (
        (False,) if node.missing("training_mode") else node.const("training_mode"),
        (0.5,) if node.missing("ratio") else node.const("ratio"),
    )
    return mode == (False,) or ratio == (0.0,)


def _in_training(node: Node) -> Iterator[tuple[Safety, str]]:
    if not _drops_nothing(node):
        yield EAGER, "training_mode may be on, in which each Run drops other elements"


def _dropped(
    data: mx.array, ratio: float | None, training_mode: bool | None, seed: int | None, node: Node
) -> tuple[mx.array, mx.array]:
    """The data with elements dropped, and which were kept."""
    ratio = 0.5 if ratio is None else ratio
    if not 0 <= ratio < 1:
        raise ValueError(f"the ratio {ratio} is not in [0, 1)")
    if not training_mode or ratio == 0:
        return data, mx.ones(data.shape, dtype=mx.bool_)
    kept = mx.random.uniform(shape=data.shape, key=draw_key(seed, node)) >= ratio
    return mx.where(kept, data * (1 / (1 - ratio)), mx.zeros_like(data)), kept


def _dropout_padding(node: Node, axes: Axes) -> int:
    if not _drops_nothing(node):
        raise Mixes("it draws random numbers for all positions together")
    return elementwise(node, axes)


@op(
    "Dropout",
    since=(12, 13, 22),
    types={"data": FLOATS, "ratio": FLOATS},
    deterministic=_drops_nothing,
    less_safe=_in_training,
    padding=_dropout_padding,
)
def dropout(
    data: mx.array,
    ratio: HostFloat | None = None,
    training_mode: HostBool | None = None,
    *,
    seed: int | None = None,
    node: Node,
) -> tuple[mx.array, mx.array]:
    return _dropped(data, ratio, training_mode, seed, node)


@op(
    "BiasDropout",
    domain=MS,
    since=(1,),
    types={"data": FLOATS},
    deterministic=_drops_nothing,
    less_safe=_in_training,
)
def bias_dropout(
    data: mx.array,
    bias: mx.array,
    residual: mx.array | None = None,
    ratio: HostFloat | None = None,
    training_mode: HostBool | None = None,
    *,
    seed: int | None = None,
    node: Node,
) -> tuple[mx.array, mx.array]:
    y, kept = _dropped(data + bias, ratio, training_mode, seed, node)
    return (y if residual is None else y + residual), kept
