"""Key/value caches of the decoder ops: where new tokens go, what is kept, what may be seen.

A cache is [batch, heads, capacity, size]. Row positions are data (arrays), so that one closure
serves a whole decode over a shared buffer; only the capacity and the query length are shapes.
Sources: com.microsoft GroupQueryAttention, whose cache grows, is shared, or keeps a window, and
MultiHeadAttention, where beams share it.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from ..bounds import lengths
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


def extend(
    past_key: mx.array | None,
    past_value: mx.array | None,
    key: mx.array,
    value: mx.array,
    filled: int | None = None,
) -> tuple[Cache, int]:
    """The new rows after those of the past, and how many those are.

    Args:
        past_key: None where nothing came before.
        past_value: like `past_key`.
        key: the new rows.
        value: like `key`.
        filled: how many rows of the past are in use, when it is a buffer to be written in place.
    """
    if past_key is None or past_value is None:
        return Cache(key, value, mx.arange(key.shape[2])[None], None, key, value), 0
    if filled is None:
        key, value = (mx.concatenate(p, axis=2) for p in ([past_key, key], [past_value, value]))
        rows = mx.arange(key.shape[2])[None]
        return Cache(key, value, rows, None, key, value), past_key.shape[2]
    total = filled + key.shape[2]
    if not 0 <= filled <= total <= past_key.shape[2]:
        raise ValueError(f"rows {filled} to {total} do not fit the past: {past_key.shape}")
    start = mx.full((key.shape[0],), filled, dtype=mx.int32)
    return append(past_key, past_value, key, value, start, total), filled


def by_beam(cache: Cache, origin: mx.array, past: int) -> Cache:
    """The cache as each beam sees it, whose first `past` rows another beam may have made.

    Args:
        cache: of [batch * beams, ...].
        origin: the beam that made each row, [batch, beams, capacity].
        past: rows from here on are a beam's own.
    """
    batch, beams, capacity = origin.shape
    count = cache.key.shape[2]
    if batch * beams != cache.key.shape[0] or capacity < count:
        raise ValueError(f"beams do not fit the cache: {origin.shape}, {cache.key.shape}")
    made = lengths(origin, beams - 1)[:, :, :count]
    made = mx.where(mx.arange(count) < past, made, mx.arange(beams)[:, None])
    row = (made + mx.arange(batch)[:, None, None] * beams).reshape(-1, 1, count, 1)
    key, value = (mx.take_along_axis(t, row, axis=0) for t in (cache.key, cache.value))
    return cache._replace(key=key, value=value)


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
