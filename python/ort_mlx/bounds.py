"""Indices that have to lie inside an axis: checked where they can be seen, made safe where not.

MLX reads and writes out of bounds without a word. Indices that are an input of the partition lie in
host memory, so the native kernel checks them on every Run; others are clamped on the device.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import mlx.core as mx
import numpy as np

from .tracing import is_tracing

_INTEGERS: Final = frozenset({mx.int32, mx.int64})


@dataclass(frozen=True)
class Check:
    """An array input of the partition, by position, whose values must lie in [-size, size)."""

    position: int
    size: int


class _Watch(threading.local):
    positions: dict[int, int] | None = None  # id of an input's array to its position
    checks: list[Check] | None = None
    counts: Mapping[int, int] = {}  # id of an iteration's number to the iterations in all


_watch = _Watch()


@contextmanager
def watching(inputs: Sequence[mx.array]) -> Iterator[list[Check]]:
    """Collect the checks that the enclosed translation asks of these inputs."""
    before = _watch.positions, _watch.checks
    checks: list[Check] = []
    _watch.positions = {id(array): i for i, array in enumerate(inputs)}
    _watch.checks = checks
    try:
        yield checks
    finally:
        _watch.positions, _watch.checks = before


@contextmanager
def counting(number: mx.array, iterations: int) -> Iterator[None]:
    """Take it as known that the enclosed translation's `number` is in [0, iterations)."""
    before = _watch.counts
    _watch.counts = {**before, id(number): iterations}
    try:
        yield
    finally:
        _watch.counts = before


def inside(indices: mx.array, size: int) -> mx.array:
    """The indices, such that using them on an axis of `size` is safe; negative ones stay.

    Raises:
        ValueError: an index is outside and can be seen to be.
    """
    if size == 0:
        if indices.size:
            raise ValueError("an index into an axis of 0 elements")
        return indices
    if _watch.counts.get(id(indices), size + 1) <= size:
        return indices
    position = (_watch.positions or {}).get(id(indices))
    if position is None or _watch.checks is None or indices.dtype not in _INTEGERS:
        return mx.clip(indices, -size, size - 1)
    if is_tracing():
        _watch.checks.append(Check(position, size))
    else:
        _require(np.array(indices), size)
    return indices


def lengths(counts: mx.array, most: int) -> mx.array:
    """How many of `most` elements count, such that none outside is; negative ones are 0.

    Raises:
        ValueError: one is larger and can be seen to be.
    """
    return mx.maximum(inside(counts, most + 1), 0)


def _require(indices: np.ndarray[tuple[int, ...], np.dtype[np.int64]], size: int) -> None:
    outside = indices[(indices < -size) | (indices >= size)]
    if outside.size:
        raise ValueError(f"index {outside.flat[0]} is out of range for an axis of {size}")
