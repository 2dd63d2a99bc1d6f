"""Loops that are not unrolled: on the CPU a body that is traced once becomes one node of the graph.

The native layer runs such a node iteration by iteration, without Python and without MLX's
scheduler (cpp/cpu/repeat.h). It also decides by itself when a loop ends early.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import mlx.core as mx
import numpy as np

from . import _native
from .blocks import Block
from .bounds import counting
from .execute import BoundBody
from .hosts import Tensor, to_device, to_host
from .running import FOREVER
from .safety import EAGER
from .tracing import NotTraceable, is_tracing, tracing

# Unrolled, a loop of fewer steps than this in all is fused across iterations and takes no longer.
_WORTHWHILE: Final = 512


def repeat(
    body: BoundBody,
    trips: int,
    carried: Sequence[mx.array],
    sources: Sequence[mx.array] = (),
    *,
    is_loop: bool,
) -> tuple[tuple[mx.array, ...], tuple[mx.array, ...]] | None:
    """The carried values after at most `trips` iterations and the rows that they stack.

    Args:
        body: takes the iteration's number and True where `is_loop`, the carried values, and a row
            of each source; returns whether to go on where `is_loop`, carried values, and rows.
        trips: how often, at least once.
        carried: the first carried values.
        sources: arrays with `trips` rows.
        is_loop: whether it is the body of a Loop, which counts and may end early, or of a Scan.

    Returns:
        None when the loop is better unrolled or cannot be compiled: short, unless data ends it, on
        a GPU, with values of changing shape, or with data that its body needs on the host.
    """
    runner = body.runner
    if not runner.repeats or not trips or not _may_be_traced(body.block):
        return None
    is_short = trips * body.block.step_count < _WORTHWHILE
    if is_short and not (is_loop and is_tracing()):
        return None
    number = _native.placeholder([], mx.array(0, mx.int64))
    state = [_native.placeholder(list(x.shape), x) for x in carried]
    rows = [_native.placeholder(list(x.shape[1:]), x) for x in sources]
    counted: tuple[Tensor, ...] = (number, np.array(True)) if is_loop else ()
    placeholders = [*([number] if is_loop else []), *state, *rows]
    try:
        with tracing(), counting(number, trips):
            results = list(body.traced()(*counted, *state, *rows))
            going: bool | mx.array = _condition(results.pop(0)) if is_loop else True
    except NotTraceable:
        return None
    if any(isinstance(r, np.ndarray) for r in results):
        return None  # it may steer the graph after the loop, and is known when unrolled
    outputs = [to_device(r) for r in results]
    if going is False or any(
        x.shape != y.shape or x.dtype != y.dtype for x, y in zip(carried, outputs, strict=False)
    ):
        return None
    condition = [going] if isinstance(going, mx.array) else []
    if is_short and not condition:
        return None
    if (condition or trips == FOREVER) and len(outputs) > len(carried):
        return None  # how many rows there are would be data
    made = _native.repeat(
        placeholders,
        [*condition, *outputs],
        is_counted=is_loop,
        is_conditional=bool(condition),
        trips=trips,
        carried=list(carried),
        sources=[mx.contiguous(x) for x in sources],
        threads=runner.threads,
        is_traced=is_tracing(),
    )
    return tuple(made[: len(carried)]), tuple(made[len(carried) :])


def _condition(going: Tensor) -> bool | mx.array:
    """Whether the loop goes on: known while tracing, or an array."""
    try:
        return bool(to_host(going).item())
    except NotTraceable:
        return to_device(going)


def _may_be_traced(block: Block) -> bool:
    # What is computed on the host may steer the graph after the loop, and is known when unrolled.
    on_host = {slot for step in block.steps if step.on_host for slot in step.outputs}
    return not on_host.intersection(block.outputs) and all(
        step.safety is not EAGER
        and step.deterministic
        and all(_may_be_traced(b) for b in step.bodies.values())
        for step in block.steps
    )
