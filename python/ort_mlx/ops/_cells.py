"""What LSTM, GRU, RNN and their quantized forms share: activations, time order, the unrolled loop.

Both directions run in one loop: every array of the loop starts with a direction axis, so that a
bidirectional layer costs no more steps than a forward one. Sources: ONNX LSTM, GRU, RNN; where the
specification is silent (activation defaults, empty sequences) ONNX Runtime's CPU kernels decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import mlx.core as mx

from ..bounds import lengths
from ..node import Node

Activation: TypeAlias = Callable[[mx.array], mx.array]
State: TypeAlias = tuple[mx.array, ...]  # [directions, batch, hidden] each, the hidden state first
Step: TypeAlias = Callable[[mx.array, State, mx.array | None], State]

DIRECTIONS: Final = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _sigmoid(x: mx.array) -> mx.array:
    # mx.sigmoid keeps only float32 accuracy in float64; mx.tanh does not lose any.
    return 0.5 * mx.tanh(0.5 * x) + 0.5 if x.dtype == mx.float64 else mx.sigmoid(x)


def _elu(x: mx.array, alpha: float, beta: float) -> mx.array:
    t = mx.tanh(0.5 * mx.minimum(x, 0))  # expm1(x) = 2t / (1 - t), accurate in every dtype
    return mx.where(x >= 0, x, alpha * (2 * t / (1 - t)))


def _softplus(x: mx.array, alpha: float, beta: float) -> mx.array:
    t = mx.tanh(-0.5 * mx.abs(x))  # exp(-|x|) = (1 + t) / (1 - t)
    return mx.maximum(x, 0) + mx.log(1 + (1 + t) / (1 - t))


@dataclass(frozen=True)
class _Form:
    """An activation of x, alpha and beta; a default of None means that it takes no such value."""

    fn: Callable[[mx.array, float, float], mx.array]
    alpha: float | None = None
    beta: float | None = None


_FORMS: Final[dict[str, _Form]] = {
    "affine": _Form(lambda x, alpha, beta: alpha * x + beta, 0.0, 0.0),
    "relu": _Form(lambda x, alpha, beta: mx.maximum(x, 0)),
    "leakyrelu": _Form(lambda x, alpha, beta: mx.where(x >= 0, x, alpha * x), 0.01),
    "thresholdedrelu": _Form(lambda x, alpha, beta: mx.where(x > alpha, x, 0), 0.0),
    "tanh": _Form(lambda x, alpha, beta: mx.tanh(x)),
    "scaledtanh": _Form(lambda x, alpha, beta: alpha * mx.tanh(beta * x), 0.0, 0.0),
    "sigmoid": _Form(lambda x, alpha, beta: _sigmoid(x)),
    "hardsigmoid": _Form(lambda x, alpha, beta: mx.clip(alpha * x + beta, 0, 1), 0.2, 0.5),
    "elu": _Form(_elu, 1.0),
    "softsign": _Form(lambda x, alpha, beta: x / (1 + mx.abs(x))),
    "softplus": _Form(_softplus),
}


def bind_activations(
    names: tuple[str, ...], alphas: tuple[float, ...], betas: tuple[float, ...], directions: int
) -> tuple[Activation, ...]:
    """One function per kind (f, g, h), each working on all directions at once.

    Alphas and betas are consumed in the order of the names, only by activations that take them.
    """
    rest = iter(alphas), iter(betas)
    calls: list[tuple[_Form, float, float]] = []
    for name in names:
        form = _FORMS[name.lower()]
        defaults = (form.alpha, form.beta)
        alpha, beta = (
            0.0 if d is None else next(r, d) for d, r in zip(defaults, rest, strict=True)
        )
        calls.append((form, alpha, beta))
    kinds = len(calls) // directions
    return tuple(_over_directions(calls[k::kinds]) for k in range(kinds))


def _over_directions(calls: list[tuple[_Form, float, float]]) -> Activation:
    if all(call == calls[0] for call in calls):
        form, alpha, beta = calls[0]
        return lambda x: form.fn(x, alpha, beta)
    return lambda x: mx.concatenate(
        [form.fn(x[d : d + 1], alpha, beta) for d, (form, alpha, beta) in enumerate(calls)]
    )


def clipped(x: mx.array, clip: float | None) -> mx.array:
    """The input of an activation, bounded to [-clip, clip]."""
    return x if clip is None else mx.clip(x, -clip, clip)


def decline_cell(kinds: int) -> Callable[[Node], Iterator[str]]:
    """The claim of a recurrent op with this many activations in a direction."""

    def claim(node: Node) -> Iterator[str]:
        direction = node.attr("direction", "forward")
        if direction not in DIRECTIONS:
            yield f"direction {direction} is unknown"
            return
        names = node.attr("activations") or ()
        if any(name.lower() not in _FORMS for name in names):
            yield "an activation is unknown"
        wanted = kinds * len(DIRECTIONS[direction])
        # RNN's default is two names for any direction.
        if names and len(names) != wanted and not (kinds == 1 and len(names) > wanted):
            yield f"activations does not hold {wanted} names"
        if (clip := node.attr("clip")) is not None and clip <= 0:
            yield "clip is not positive"

    return claim


@dataclass(frozen=True)
class TimeOrder:
    """How each direction walks through time: backwards ones start at the end of each sequence."""

    reverse: tuple[bool, ...]
    steps: int
    lengths: mx.array | None  # [batch]

    def arrange(self, x: mx.array) -> mx.array:
        """Between model and loop time (its own inverse); x is [directions, steps, batch, n]."""
        if not any(self.reverse) or not self.steps:
            return x
        return mx.concatenate(
            [self._flip(part) if flip else part for part, flip in zip(x, self.reverse, strict=True)]
        ).reshape(x.shape)

    def _flip(self, x: mx.array) -> mx.array:
        if self.lengths is None:
            return x[::-1]
        time = mx.arange(self.steps)[:, None]
        counts = lengths(self.lengths, self.steps)
        source = mx.where(time < counts, counts - 1 - time, time)
        return mx.take_along_axis(x, source[:, :, None], axis=0)

    def alive(self) -> mx.array | None:
        """[steps, batch, 1]: whether a row's sequence has a value at that step."""
        if self.lengths is None:
            return None
        return (mx.arange(self.steps)[:, None] < self.lengths)[:, :, None]


def unroll(projected: mx.array, state: State, step: Step, order: TimeOrder) -> State:
    """Run `step` over time.

    Args:
        projected: the input part of all gates, [directions, steps, batch, gates * hidden].
        state: the initial state.
        step: takes one step's slice of `projected`, the state and the rows alive at that step.
        order: the walk through time.

    Returns:
        All hidden states as [directions, steps, batch, hidden], then the final state.
    """
    initial, alive, outputs = state, order.alive(), []
    projected = order.arrange(projected)
    for t in range(order.steps):
        rows = None if alive is None else alive[t : t + 1].squeeze(0)  # an index would gather
        new = step(projected[:, t], state, rows)
        if rows is not None:
            new = tuple(mx.where(rows, n, s) for n, s in zip(new, state, strict=True))
        state = new
        outputs.append(state[0])
    if not outputs:
        directions, batch, hidden = initial[0].shape
        return mx.zeros((directions, 0, batch, hidden), initial[0].dtype), *initial
    y = mx.stack(outputs, axis=1)
    if order.lengths is not None and alive is not None:  # padding and empty sequences read as zero
        y = mx.where(alive, y, 0)
        state = tuple(mx.where((order.lengths > 0)[:, None], s, 0) for s in state)
    return order.arrange(y), *state


def lstm_step(
    recur: Callable[[mx.array, mx.array, mx.array | None], mx.array],
    activations: tuple[Activation, ...],
    peepholes: mx.array | None,
    clip: float | None,
    couple: bool,
) -> Step:
    """One LSTM step; `recur(projected, h, rows)` adds the recurrent product to the projection."""
    f, g, h = activations

    def gates(x: mx.array, cell: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        if peepholes is None:
            return mx.split(f(clipped(x, clip)), 3, axis=-1)  # type: ignore[return-value]
        (i, o, forget), (pi, _, pf) = mx.split(x, 3, axis=-1), mx.split(peepholes, 3, axis=-1)
        return f(clipped(i + pi * cell, clip)), o, f(clipped(forget + pf * cell, clip))

    def step(projected: mx.array, state: State, rows: mx.array | None) -> State:
        hidden, cell = state
        size = hidden.shape[-1]
        x = recur(projected, hidden, rows)
        i, o, forget = gates(x[..., : 3 * size], cell)
        candidate = g(clipped(x[..., 3 * size :], clip))
        cell = (1 - i if couple else forget) * cell + i * candidate
        if peepholes is not None:
            o = f(clipped(o + peepholes[..., size : 2 * size] * cell, clip))
        return o * h(cell), cell

    return step
