"""Control flow: If, Loop and Scan (ONNX), over bodies that are translated like any other node.

A body is called with tensors and returns tensors; both may be host values. A long loop becomes one
node of the graph where it can (see `repeat`). Else a loop is unrolled in a trace, and a decision on
data computed on the device ends the trace; such a plan runs step by step, with compiled bodies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import mlx.core as mx

from ..dtypes import EVERY, MLX_DTYPES
from ..execute import BoundBody
from ..hosts import HostBool, HostInt, HostInts, Tensor, host_array, to_device, to_host
from ..node import Node
from ..registry import op
from ..repeat import repeat
from ..running import FOREVER, after_iteration, check_length
from ..tracing import is_tracing
from ._shapes import normalize_axis

_BATCH: Final = 256  # rows that become views together


@op("If", since=(1, 11, 13, 16, 19, 21, 23, 24, 25))
def if_(cond: HostBool, *, then_branch: BoundBody, else_branch: BoundBody) -> tuple[Tensor, ...]:
    return (then_branch if cond else else_branch)()


@op(
    "Loop",
    since=(1, 11, 13, 16, 19, 21, 23, 24, 25),
    types={"v_initial": EVERY},
    counts=True,
)
def loop(
    m: HostInt | None,
    cond: HostBool | None,
    *v_initial: mx.array,
    body: BoundBody,
    node: Node,
) -> tuple[Tensor, ...]:
    carried: tuple[Tensor, ...] = v_initial
    going: Tensor = host_array(1 if cond is None else int(cond), "bool")
    trips = FOREVER if m is None else m
    if trips > 0 and (cond is None or cond):
        made = repeat(body, trips, v_initial, is_loop=True)
        if made is not None:
            return made[0] + made[1]
    check_length(0 if m is None else m * body.block.step_count)
    rows: list[list[mx.array]] = [[] for _ in node.outputs[len(v_initial) :]]
    trip = 0
    while trip < trips and bool(to_host(going).item()):
        going, *results = body(host_array(trip), going, *carried)
        carried = tuple(results[: len(v_initial)])
        for column, row in zip(rows, results[len(v_initial) :], strict=True):
            column.append(to_device(row))
        trip += 1
        after_iteration(trip, carried, rows)
    outputs = node.bodies["body"].outputs[1 + len(v_initial) :]
    scanned = tuple(
        mx.stack(column) if column else _empty(value.shape, value.dtype)
        for column, value in zip(rows, outputs, strict=True)
    )
    return carried + scanned


def _empty(shape: Sequence[object] | None, dtype: str) -> mx.array:
    """What a scan output of no iterations is; an unknown dimension counts as 0."""
    dims = [d if isinstance(d, int) else 0 for d in shape or ()]
    return mx.zeros([0, *dims], dtype=MLX_DTYPES[dtype])


def _scan_claim(node: Node) -> Iterator[str]:
    if any(v is None for v in node.inputs):
        yield "an input is omitted"


@op(
    "Scan",
    since=(9, 11, 16, 19, 21, 23, 24, 25),
    types={"initial_state_and_scan_inputs": EVERY},
    claim=_scan_claim,
)
def scan(
    *initial_state_and_scan_inputs: mx.array,
    body: BoundBody,
    num_scan_inputs: int,
    scan_input_axes: tuple[int, ...] | None = None,
    scan_input_directions: tuple[int, ...] | None = None,
    scan_output_axes: tuple[int, ...] | None = None,
    scan_output_directions: tuple[int, ...] | None = None,
    node: Node,
) -> tuple[Tensor, ...]:
    states = len(initial_state_and_scan_inputs) - num_scan_inputs
    initial = initial_state_and_scan_inputs[:states]
    carried: tuple[Tensor, ...] = initial
    sources = [
        _in_order(x, axis, backwards)
        for x, axis, backwards in zip(
            initial_state_and_scan_inputs[states:],
            scan_input_axes or (0,) * num_scan_inputs,
            scan_input_directions or (0,) * num_scan_inputs,
            strict=True,
        )
    ]
    lengths = {x.shape[0] for x in sources}
    if len(lengths) != 1:
        raise ValueError(f"the scan inputs have different lengths {sorted(lengths)}")
    outputs = node.bodies["body"].outputs[states:]
    axes = scan_output_axes or (0,) * len(outputs)
    directions = scan_output_directions or (0,) * len(outputs)
    trips = lengths.pop()
    if (made := repeat(body, trips, initial, sources, is_loop=False)) is not None:
        turned = zip(made[1], axes, directions, strict=True)
        return (*made[0], *(_turned(y, axis, backwards) for y, axis, backwards in turned))
    rows: list[list[mx.array]] = [[] for _ in outputs]
    check_length(trips * body.block.step_count)
    for trip, taken in enumerate(zip(*map(_rows, sources), strict=True)):
        results = body(*carried, *taken)
        carried = results[:states]
        for column, row in zip(rows, results[states:], strict=True):
            column.append(to_device(row))
        after_iteration(trip + 1, carried, rows)
    stacked = []
    for column, value, axis, backwards in zip(rows, outputs, axes, directions, strict=True):
        made_rows = mx.stack(column) if column else _empty(value.shape, value.dtype)
        stacked.append(_turned(made_rows, axis, backwards))
    return (*carried, *stacked)


def _turned(rows: mx.array, axis: int, backwards: int) -> mx.array:
    """Stacked rows along the axis and in the order that the model asks for."""
    turned = rows[::-1] if backwards else rows
    return mx.moveaxis(turned, 0, normalize_axis(axis, rows.ndim))


def _batch_claim(node: Node) -> Iterator[str]:
    if any(v is None for v in node.inputs[1:]):
        yield "an input is omitted"
    if any(v is not None and v.shape and v.shape[0] == 0 for v in node.inputs[1:]):
        yield "the batch is empty"


@op("Scan", since=(8,), claim=_batch_claim)
def scan_8(
    sequence_lens: HostInts | None,
    *initial_state_and_scan_inputs: mx.array,
    body: BoundBody,
    num_scan_inputs: int,
    directions: tuple[int, ...] | None = None,
    node: Node,
) -> tuple[Tensor, ...]:
    first, scanned = initial_state_and_scan_inputs[0], initial_state_and_scan_inputs[-1]
    if not first.shape[0]:
        raise ValueError("the batch is empty")
    if len({x.shape[0] for x in initial_state_and_scan_inputs}) > 1:
        raise ValueError("the inputs have batches of different sizes")
    states = len(initial_state_and_scan_inputs) - num_scan_inputs
    whole = scanned.shape[1]
    made = []
    for row in range(first.shape[0]):
        length = sequence_lens[row] if sequence_lens else whole
        values = [x[row] for x in initial_state_and_scan_inputs]
        values[states:] = [x[:length] for x in values[states:]]
        results = scan(
            *values,
            body=body,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
            node=node,
        )
        kept = [to_device(r) for r in results]
        kept[states:] = [_filled_up(y, whole) for y in kept[states:]]
        made.append(kept)
    return tuple(mx.stack(list(column)) for column in zip(*made, strict=True))


def _filled_up(y: mx.array, length: int) -> mx.array:
    """Zeros after the rows of a shorter sequence."""
    return mx.pad(y, [(0, length - y.shape[0]), *[(0, 0)] * (y.ndim - 1)])


def _in_order(x: mx.array, axis: int, backwards: int) -> mx.array:
    """The scanned axis first, in the order of the iterations."""
    moved = mx.moveaxis(x, normalize_axis(axis, x.ndim), 0)
    return moved[::-1] if backwards else moved


def _rows(x: mx.array) -> Iterator[mx.array]:
    """x[0], x[1], ... as views, where an index of MLX would gather; many at once where it waits."""
    for start in range(0, x.shape[0], _BATCH):
        stop = min(start + _BATCH, x.shape[0])
        rows = [x[i : i + 1].squeeze(0) for i in range(start, stop)]
        if not is_tracing():
            mx.eval(rows)
        yield from rows
