"""Linear attention as a recurrence over chunks of tokens.

A state [batch, heads, key size, value size] takes in k v^T for each token, after fading, and with
the delta rule only what it does not yet hold: u_t = beta_t (v_t - S^T k_t). Within a chunk all u
are the solution of one unit lower triangular system, so a chunk costs a few matrix products.
Sources: ONNX LinearAttention-27, com.microsoft LinearAttention.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

# Fading by key channel needs a table of [chunk, chunk, key size], so its chunks are shorter.
_CHUNK, _CHUNK_BY_CHANNEL = 64, 16


class Tokens(NamedTuple):
    """What the recurrence reads, in float32: [batch, heads, tokens, size] each."""

    query: mx.array  # [batch, heads, queries per head, tokens, key size]
    key: mx.array
    value: mx.array
    decay: mx.array | None  # logarithm of the fading, of size 1 or key size
    beta: mx.array | None  # strength of the delta rule, of size 1

    def between(self, start: int, stop: int) -> Tokens:
        """The tokens of one chunk."""
        parts = (self.key, self.value, self.decay, self.beta)
        cut = [None if p is None else p[:, :, start:stop] for p in parts]
        return Tokens(self.query[:, :, :, start:stop], *cut)  # type: ignore[arg-type]


def run(tokens: Tokens, state: mx.array, window: int = 1) -> tuple[mx.array, list[mx.array]]:
    """All outputs like `query` with the value size, and the states after the last tokens.

    Args:
        tokens: the inputs.
        state: the state before the first token.
        window: how many trailing states to return; fewer come back when there are fewer tokens.
    """
    length = tokens.key.shape[2]
    by_channel = tokens.decay is not None and tokens.decay.shape[-1] > 1
    chunk = _CHUNK_BY_CHANNEL if by_channel else _CHUNK
    single = max(length - window + 1, 0) if window > 1 else length
    stops = [*range(chunk, single, chunk), *range(max(single, 1), length + 1)]
    outputs, states, start = [], [], 0
    for stop in stops:
        out, state = _advance(tokens.between(start, stop), state)
        outputs.append(out)
        states.append(state)
        start = stop
    if not outputs:
        shape = (*tokens.query.shape[:-1], state.shape[-1])
        return mx.zeros(shape, dtype=state.dtype), [state]
    return mx.concatenate(outputs, axis=-2), states[-window:]


def _advance(tokens: Tokens, state: mx.array) -> tuple[mx.array, mx.array]:
    """The outputs of one chunk and the state after it."""
    query, key, value, decay, beta = tokens
    length = key.shape[2]
    row, column = mx.arange(length)[:, None], mx.arange(length)
    faded_query, faded_key, left_key, faded_state = query, key, key, state
    fade = None
    if decay is not None:
        total = mx.cumsum(decay, axis=2)
        since = total[:, :, :, None] - total[:, :, None]  # [batch, heads, to, from, size]
        fade = mx.exp(mx.where((row >= column)[..., None], since, -mx.inf))
        last = total[:, :, -1:]
        faded_query, faded_key = query * mx.exp(total)[:, :, None], key * mx.exp(total)
        left_key = key * mx.exp(last - total)
        faded_state = state * mx.exp(last).swapaxes(-1, -2)
    update = value
    if beta is not None:
        held = mx.where(row > column, _overlap(key, key, fade), 0.0) * beta
        update = _unit_lower_inverse(held) @ (beta * (value - faded_key @ state))
    spread = None if fade is None else fade[:, :, None]
    seen = mx.where(row >= column, _overlap(query, key[:, :, None], spread), 0.0)
    out = faded_query @ state[:, :, None] + seen @ update[:, :, None]
    return out, faded_state + left_key.swapaxes(-1, -2) @ update


def _overlap(left: mx.array, right: mx.array, fade: mx.array | None) -> mx.array:
    """Products of all pairs of tokens, each faded by what lies between them."""
    if fade is not None and fade.shape[-1] > 1:
        return (left[..., :, None, :] * right[..., None, :, :] * fade).sum(axis=-1)
    product = left @ right.swapaxes(-1, -2)
    return product if fade is None else product * fade[..., 0]


def _unit_lower_inverse(lower: mx.array) -> mx.array:
    """The inverse of I + lower, for a strictly lower triangle, by doubling diagonal blocks.

    A series of powers would need fewer products but cancels badly for repeated keys.
    """
    size = lower.shape[-1]
    row, column = mx.arange(size)[:, None], mx.arange(size)
    inverse = mx.eye(size, dtype=lower.dtype)
    block = 1
    while block < size:
        same = row // (2 * block) == column // (2 * block)
        below = same & (row // block > column // block)
        inverse = inverse - inverse @ mx.where(below, lower, 0.0) @ inverse
        block *= 2
    return inverse
