"""LSTM, GRU and RNN, unrolled over time; the input projection of all steps is one matmul.

Sources: ONNX LSTM, GRU, RNN; mx.matmul, mx.addmm. Halves compute in float32, as ORT's kernels do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import mlx.core as mx

from ..dtypes import FLOATS, INDICES
from ..registry import Prepare, op
from ._cells import (
    DIRECTIONS,
    State,
    Step,
    TimeOrder,
    bind_activations,
    clipped,
    decline_cell,
    lstm_step,
    unroll,
)


def _widen(x: mx.array) -> mx.array:
    return x if x.dtype == mx.float64 else x.astype(mx.float32)


def _turn(weight: mx.array) -> mx.array:
    """[directions, gates * hidden, n] as [directions, n, gates * hidden], dense."""
    return mx.contiguous(mx.swapaxes(_widen(weight), 1, 2))


_TYPES = {"x": FLOATS, "sequence_lens": INDICES}
_PREPARE: dict[str | tuple[str, ...], Prepare] = {"w": _turn, "r": _turn}


def check_shapes(x: mx.array, w: mx.array, r: mx.array, gates: int, directions: int) -> None:
    """Raise ValueError when the turned weights do not fit the input or each other."""
    hidden = r.shape[1] if r.ndim == 3 else 0
    wide = gates * hidden
    if x.ndim != 3 or w.shape != (directions, x.shape[2], wide) or r.shape[::2] != w.shape[::2]:
        shapes = f"X {x.shape}, W turned {w.shape}, R turned {r.shape}"
        raise ValueError(f"weights do not fit the input for {directions} directions: {shapes}")


def initial_state(given: mx.array | None, x: mx.array, r: mx.array, layout: int) -> mx.array:
    """The state before the first step, [directions, batch, hidden]; x is time-major."""
    shape = (r.shape[0], x.shape[1], r.shape[1])
    if given is None:
        return mx.zeros(shape, r.dtype)
    given = given.swapaxes(0, 1) if layout else given
    if given.shape != shape:
        raise ValueError(f"initial state does not fit: expected {shape}, got {given.shape}")
    return given.astype(r.dtype)


def _project(x: mx.array, w: mx.array, bias: mx.array | None) -> mx.array:
    """The input part of the gates for every step, [directions, steps, batch, gates * hidden]."""
    steps, batch, size = x.shape
    flat = x.reshape(1, steps * batch, size).astype(w.dtype)
    out = flat @ w if bias is None else mx.addmm(bias[:, None], flat, w)
    return out.reshape(w.shape[0], steps, batch, w.shape[2])


def layer(
    x: mx.array, projected: mx.array, state: State, step: Step, order: TimeOrder, layout: int
) -> tuple[mx.array, ...]:
    """Run the loop and lay its outputs out as ONNX wants them: Y, then the final states."""
    y, *final = (a.astype(x.dtype) for a in unroll(projected, state, step, order))
    if layout:
        return y.transpose(2, 1, 0, 3), *(s.swapaxes(0, 1) for s in final)
    return y.swapaxes(0, 1), *final


def _time_major(x: mx.array, layout: int) -> mx.array:
    return x.swapaxes(0, 1) if layout and x.ndim == 3 else x


@op("LSTM", since=(14, 22), types=_TYPES, claim=decline_cell(3), prepare=_PREPARE)
def lstm(
    x: mx.array,
    w: mx.array,
    r: mx.array,
    b: mx.array | None = None,
    sequence_lens: mx.array | None = None,
    initial_h: mx.array | None = None,
    initial_c: mx.array | None = None,
    p: mx.array | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[mx.array, ...]:
    x, reverse = _time_major(x, layout), DIRECTIONS[direction]
    check_shapes(x, w, r, 4, len(reverse))
    names = activations or ("Sigmoid", "Tanh", "Tanh") * len(reverse)
    step = lstm_step(
        lambda projected, h, rows: mx.addmm(projected, h, r),
        bind_activations(names, activation_alpha or (), activation_beta or (), len(reverse)),
        None if p is None else p[:, None].astype(r.dtype),
        clip,
        bool(input_forget),
    )
    state = initial_state(initial_h, x, r, layout), initial_state(initial_c, x, r, layout)
    projected = _project(x, w, _both_biases(b, r))
    return layer(x, projected, state, step, TimeOrder(reverse, x.shape[0], sequence_lens), layout)


def _both_biases(b: mx.array | None, r: mx.array) -> mx.array | None:
    """Wb + Rb, which always occur as a sum in LSTM and RNN."""
    if b is None:
        return None
    return b.astype(r.dtype).reshape(r.shape[0], 2, -1).sum(axis=1)


@op("RNN", since=(14, 22), types=_TYPES, claim=decline_cell(1), prepare=_PREPARE)
def rnn(
    x: mx.array,
    w: mx.array,
    r: mx.array,
    b: mx.array | None = None,
    sequence_lens: mx.array | None = None,
    initial_h: mx.array | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[mx.array, ...]:
    x, reverse = _time_major(x, layout), DIRECTIONS[direction]
    check_shapes(x, w, r, 1, len(reverse))
    names = activations[: len(reverse)]
    (f,) = bind_activations(names, activation_alpha or (), activation_beta or (), len(reverse))

    def step(projected: mx.array, state: State, rows: mx.array | None) -> State:
        return (f(clipped(mx.addmm(projected, state[0], r), clip)),)

    state = (initial_state(initial_h, x, r, layout),)
    projected = _project(x, w, _both_biases(b, r))
    return layer(x, projected, state, step, TimeOrder(reverse, x.shape[0], sequence_lens), layout)


@op("GRU", since=(14, 22), types=_TYPES, claim=decline_cell(2), prepare=_PREPARE)
def gru(
    x: mx.array,
    w: mx.array,
    r: mx.array,
    b: mx.array | None = None,
    sequence_lens: mx.array | None = None,
    initial_h: mx.array | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[mx.array, ...]:
    x, reverse = _time_major(x, layout), DIRECTIONS[direction]
    check_shapes(x, w, r, 3, len(reverse))
    names = activations or ("Sigmoid", "Tanh") * len(reverse)
    f, g = bind_activations(names, activation_alpha or (), activation_beta or (), len(reverse))
    size, wide = r.shape[1], 2 * r.shape[1]
    wb, rb = _gru_biases(b, r, linear_before_reset)
    rh = mx.contiguous(r[..., wide:])
    rzr = mx.contiguous(r[..., :wide])

    def step(projected: mx.array, state: State, rows: mx.array | None) -> State:
        hidden, x_h = state[0], projected[..., wide:]
        if linear_before_reset:  # one product serves all gates
            product = hidden @ r if rb is None else mx.addmm(rb, hidden, r)
            zr = f(clipped(projected[..., :wide] + product[..., :wide], clip))
            pre = x_h + zr[..., size:] * product[..., wide:]
        else:
            zr = f(clipped(mx.addmm(projected[..., :wide], hidden, rzr), clip))
            pre = mx.addmm(x_h, zr[..., size:] * hidden, rh)
        z, candidate = zr[..., :size], g(clipped(pre, clip))
        return ((1 - z) * candidate + z * hidden,)

    state = (initial_state(initial_h, x, r, layout),)
    order = TimeOrder(reverse, x.shape[0], sequence_lens)
    return layer(x, _project(x, w, wb), state, step, order, layout)


def _gru_biases(
    b: mx.array | None, r: mx.array, linear_before_reset: int
) -> tuple[mx.array | None, mx.array | None]:
    """The bias of the projection and that of the recurrent product."""
    if b is None or not linear_before_reset:
        return _both_biases(b, r), None
    wb, rb = mx.split(b.astype(r.dtype), 2, axis=-1)
    return wb, rb[:, None]


def _before_layout(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The op as it was in version 7, which has no attribute `layout`."""

    @wraps(fn)
    def older(*inputs: Any, **attributes: Any) -> Any:
        return fn(*inputs, **attributes)

    signature = inspect.signature(fn)
    kept = [p for p in signature.parameters.values() if p.name != "layout"]
    older.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return older


for _name, _fn, _kinds in (("LSTM", lstm, 3), ("RNN", rnn, 1), ("GRU", gru, 2)):
    _register = op(_name, since=(7,), types=_TYPES, claim=decline_cell(_kinds), prepare=_PREPARE)
    _register(_before_layout(_fn))
