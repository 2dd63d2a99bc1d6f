"""DynamicQuantizeLSTM: an LSTM with 8-bit weights that quantizes its input and state as it runs.

Sources: ONNX Runtime contrib operator DynamicQuantizeLSTM and its CPU kernel; mx.matmul. Integer
products run as float32 matmuls of whole numbers: exact up to 2**24, then rounded as float sums are.
"""

from __future__ import annotations

import mlx.core as mx

from ..dtypes import INDICES
from ..registry import MS, op
from ._cells import DIRECTIONS, TimeOrder, bind_activations, decline_cell, lstm_step, unroll
from .recurrent import check_shapes, initial_state

_SINGLE = frozenset({"float32"})
_BYTES = frozenset({"int8", "uint8"})


def _whole(weight: mx.array) -> mx.array:
    return weight.astype(mx.float32)


class _Weight:
    """An 8-bit weight [directions, n, gates * hidden] with its scale and zero point."""

    def __init__(self, values: mx.array, scale: mx.array, zero_point: mx.array) -> None:
        directions = values.shape[0]
        if scale.shape[0] != directions or zero_point.shape[0] != directions:
            shapes = f"weight {values.shape}, scale {scale.shape}, zero point {zero_point.shape}"
            raise ValueError(f"quantization does not fit the weight: {shapes}")
        self.values = values
        self.scale = scale.reshape(directions, 1, -1)
        self.zero_point = zero_point.astype(mx.float32).reshape(directions, 1, -1)

    def product(self, x: mx.array, axes: tuple[int, ...]) -> mx.array:
        """x @ weight with x quantized to uint8 over its range along `axes`."""
        low, high = (mx.minimum(mx.min(x, axes, True), 0), mx.maximum(mx.max(x, axes, True), 0))
        scale = mx.where(high == low, 1, (high - low) / 255)
        zero = mx.round(mx.clip(-low / scale, 0, 255))
        whole = mx.clip(mx.round(x / scale) + zero, 0, 255) - zero
        total = whole @ self.values - whole.sum(axis=-1, keepdims=True) * self.zero_point
        return total * (scale * self.scale)


@op(
    "DynamicQuantizeLSTM",
    domain=MS,
    since=(1,),
    types={"x": _SINGLE, "w": _BYTES, "sequence_lens": INDICES},
    claim=decline_cell(3),
    prepare={"w": _whole, "r": _whole},
)
def dynamic_quantize_lstm(
    x: mx.array,
    w: mx.array,
    r: mx.array,
    b: mx.array | None,
    sequence_lens: mx.array | None,
    initial_h: mx.array | None,
    initial_c: mx.array | None,
    p: mx.array | None,
    w_scale: mx.array,
    w_zero_point: mx.array,
    r_scale: mx.array,
    r_zero_point: mx.array,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[mx.array, ...]:
    reverse = DIRECTIONS[direction]
    check_shapes(x, w, r, 4, len(reverse))
    (steps, batch, size), recurrent = x.shape, _Weight(r, r_scale, r_zero_point)
    # ORT quantizes the state of each thread's rows; small layers and big batches are split by row.
    axes = (2,) if batch > 4 or r.shape[1] <= 256 else (1, 2)

    def recur(projected: mx.array, hidden: mx.array, rows: mx.array | None) -> mx.array:
        return projected + recurrent.product(hidden, axes)

    names = activations or ("Sigmoid", "Tanh", "Tanh") * len(reverse)
    step = lstm_step(
        recur,
        bind_activations(names, activation_alpha or (), activation_beta or (), len(reverse)),
        None if p is None else p[:, None],
        clip,
        bool(input_forget),
    )
    if sequence_lens is not None:  # steps after the longest sequence have no part in the range
        x = mx.where((mx.arange(steps) < mx.max(sequence_lens))[:, None, None], x, 0)
    projected = _Weight(w, w_scale, w_zero_point).product(x.reshape(1, steps * batch, size), (1, 2))
    if b is not None:
        projected = projected + b.reshape(len(reverse), 2, 1, -1).sum(axis=1)
    state = initial_state(initial_h, x, r, 0), initial_state(initial_c, x, r, 0)
    order = TimeOrder(reverse, steps, sequence_lens)
    y, *final = unroll(projected.reshape(len(reverse), steps, batch, -1), state, step, order)
    return y.swapaxes(0, 1), *final
