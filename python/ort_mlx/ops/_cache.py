"""Key/value caches of the decoder ops: where new tokens go, what is kept, what may be seen.

A cache is [batch, heads, capacity, size]. Row positions are data (arrays), so that one closure
serves a whole decode over a shared buffer; only the capacity and the query length are shapes.
Source: com.microsoft GroupQueryAttention, whose cache grows, is shared, or keeps a window.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from ..tracing import note_appended


class Cache(NamedTuple):
    """Keys and values as attention sees them, with the absolute position of every row."""

    key: mx.array
    value: mx.array
    positions: mx.array  # [batch or 1, rows]
    kept: mx.array | None  # [batch, rows]: rows that hold a token; None when position order says it
    present_key: mx.array
    present_value: mx.array


def grow(cache: mx.array | None, like: mx.array, length: int) -> mx.array:
    """The cache with at least `length` rows, the new ones zero; None is an empty cache."""
    batch, heads, _, size = like.shape
    have = 0 if cache is None else cache.shape[2]
    if length <= have and cache is not None:
        return cache
    rows = mx.zeros((batch, heads, length - have, size), dtype=like.dtype)
    return rows if cache is None or not have else mx.concatenate([cache, rows], axis=2)


def write(
    cache: mx.array, rows: mx.array, start: mx.array, axis: int = 2, *, circular: bool = False
) -> mx.array:
    """The cache with `rows` written at position `start` of the axis, one for each batch entry.

    MLX does not look at where it writes: a start that leaves no room is moved back. In a circular
    cache rows go on from its beginning instead.
    """
    note_appended(rows.shape[axis])
    room = cache.shape[axis] - rows.shape[axis]
    if not circular:
        if room == 0:
            return rows
        start = mx.clip(start, 0, room)
        if rows.shape[0] == 1:
            return mx.slice_update(cache, rows, start, (axis,))
    at = places(rows, start, axis)
    return mx.put_along_axis(cache, at % cache.shape[axis] if circular else at, rows, axis=axis)


def places(rows: mx.array, start: mx.array, axis: int) -> mx.array:
    """Where along the axis each element of `rows` goes, in their shape."""
    count = rows.shape[axis]
    at = start[:, None] + mx.arange(count, dtype=start.dtype)
    at = at.reshape([-1, *(count if i == axis else 1 for i in range(1, rows.ndim))])
    return mx.broadcast_to(at, rows.shape)


def append(
    past_key: mx.array | None,
    past_value: mx.array | None,
    key: mx.array,
    value: mx.array,
    start: mx.array,
    length: int,
) -> Cache:
    """Write the new rows at `start` into a cache of at least `length` rows.

    Attention sees the first `length`: what it costs does not depend on the capacity.
    """
    present_key = write(grow(past_key, key, length), key, start)
    present_value = write(grow(past_value, value, length), value, start)
    used_key, used_value = present_key[:, :, :length], present_value[:, :, :length]
    return Cache(used_key, used_value, mx.arange(length)[None], None, present_key, present_value)


def slide(
    past_key: mx.array,
    past_value: mx.array,
    key: mx.array,
    value: mx.array,
    start: mx.array,
    total: mx.array,
    window: int,
) -> Cache:
    """Append to a cache that keeps the last positions only, in order from row 0.

    Attention sees the old rows and all new ones; what stays is decided by the total alone.
    """
    note_appended(key.shape[2])
    capacity = past_key.shape[2]
    rows = mx.arange(capacity)
    old = start - _resident(start, capacity, window)  # position of row 0 before and after
    new = total - _resident(total, capacity, window)
    old_at = old[:, None] + rows
    new_at = start[:, None] + mx.arange(key.shape[2])
    seen_key = mx.concatenate([past_key, key], axis=2)
    seen_value = mx.concatenate([past_value, value], axis=2)
    want = new[:, None] + rows
    source = mx.where(want < start[:, None], want - old[:, None], capacity + want - start[:, None])
    source = mx.clip(source, 0, seen_key.shape[2] - 1)[:, None, :, None].astype(mx.int32)
    return Cache(
        seen_key,
        seen_value,
        mx.concatenate([old_at, new_at], axis=1),
        mx.concatenate([old_at < start[:, None], new_at < total[:, None]], axis=1),
        mx.take_along_axis(seen_key, source, axis=2),
        mx.take_along_axis(seen_value, source, axis=2),
    )


def _resident(total: mx.array, capacity: int, window: int) -> mx.array:
    """How many of `total` positions a window cache holds: it evicts a whole slack at once."""
    slack = capacity - window + 1
    over = mx.maximum(total - capacity, 0)
    return total - slack * ((over + slack - 1) // slack)
