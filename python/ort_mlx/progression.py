"""Progressions of keys: when Runs differ by the same amount each time, one closure serves them all.

A decoder whose cache grows by a row at each step is the case that matters, in whatever way its graph
spells it. Nothing is known of names or operators: after three keys at equal distances the graph is
traced at several steps ahead, and the native layer unites the traces where all of them are linear in
the step. Both ends of the range are among them, so a threshold inside it is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import mlx.core as mx
import numpy as np

from . import _native
from .bounds import Check
from .dtypes import ONNX_NAMES
from .errors import OrtMlxError
from .guards import HostRecords
from .running import Cancelled

Words: TypeAlias = Sequence[int]
Sample: TypeAlias = tuple[list[mx.array], list[Check]]
Translate: TypeAlias = Callable[[list[mx.array], HostRecords], Sample]

# How many steps ahead to serve, best first; each try traces the graph at a few of them.
_RANGES: Final = (2048, 128, 16)
_MAX_DIM: Final = 2**31 - 1
_MASK: Final = 2**64 - 1


@dataclass(frozen=True)
class KeyLayout:
    """How the native kernel lays a key out (cpp/kernel.cpp): owner, dimensions, then host values."""

    arrays: int
    host_types: tuple[int, ...]

    def decode(self, words: Words) -> tuple[list[tuple[int, ...]], HostRecords]:
        """The shapes of the array inputs and the records of the host inputs that a key stands for.

        Raises:
            ValueError: the words are not a key, or a dimension is out of range.
        """
        at = 1
        shapes = []
        for _ in range(self.arrays + len(self.host_types)):
            rank = words[at]
            shapes.append(tuple(words[at + 1 : at + 1 + rank]))
            at += 1 + rank
        if any(dim > _MAX_DIM for shape in shapes for dim in shape):
            raise ValueError("a dimension is out of range")
        records: HostRecords = []
        for code, shape in zip(self.host_types, shapes[self.arrays :], strict=True):
            size = int(np.prod(shape, dtype=np.int64)) * _item_size(code)
            count = (size + 7) // 8
            raw = np.array(words[at : at + count], np.uint64).tobytes()[:size]
            records.append((code, shape, raw))
            at += count
        return shapes[: self.arrays], records


def _item_size(code: int) -> int:
    name = ONNX_NAMES[code]
    return 2 if name == "bfloat16" else int(np.dtype(name).itemsize)


class Progressions:
    """Notices progressions among the keys of one plan and makes closures for them."""

    def __init__(self, closures: _native.ClosureCache, threads: int) -> None:
        self._closures = closures
        self._threads = threads
        self._last: list[Words] = []
        self._refused: set[tuple[int, ...]] = set()
        self.reasons: list[str] = []

    def serve(
        self, key: Words, arrays: list[mx.array], host_values: HostRecords, translate: Translate
    ) -> bool:
        """Make a closure for the progression that this key continues, if there is one.

        Args:
            key: the key that has no closure.
            arrays: placeholders for the array inputs.
            host_values: the host inputs.
            translate: traces the plan, on placeholders and host values.
        """
        change = self._change(key)
        if change is None or change in self._refused:
            return False
        layout = KeyLayout(len(arrays), tuple(code for code, _, _ in host_values))
        reason = ""
        for last in _RANGES:
            try:
                closure = self._unite(key, change, last, layout, arrays, translate)
            except Cancelled:
                raise
            except (OrtMlxError, RuntimeError, ValueError) as error:
                reason = str(error)
                continue
            self._closures.insert_progression(list(key), list(change), last, closure)
            return True
        self._refused.add(change)
        self.reasons.append(reason)
        return False

    def _change(self, key: Words) -> tuple[int, ...] | None:
        """What each word changes by, when this key and the two before it are equally far apart."""
        self._last = [*self._last[-2:], key]
        if len(self._last) < 3 or len({len(k) for k in self._last}) != 1:
            return None
        first, second, third = self._last
        change = tuple((b - a) & _MASK for a, b in zip(first, second, strict=True))
        again = tuple((b - a) & _MASK for a, b in zip(second, third, strict=True))
        return change if change == again and any(change) else None

    def _unite(
        self,
        key: Words,
        change: tuple[int, ...],
        last: int,
        layout: KeyLayout,
        arrays: list[mx.array],
        translate: Translate,
    ) -> _native.Closure:
        steps = sorted({0, 1, 2, last // 3, 2 * last // 3 + 1, last - 1, last})
        samples, checks = [], []
        for step in steps:
            words = [(w + c * step) & _MASK for w, c in zip(key, change, strict=True)]
            shapes, records = layout.decode(words)
            placeholders = [
                _native.placeholder(list(shape), like)
                for shape, like in zip(shapes, arrays, strict=True)
            ]
            outputs, asked = translate(placeholders, records)
            outputs = [mx.contiguous(o) for o in outputs]
            samples.append(_native.sample(placeholders, outputs, self._threads))
            checks.append([(c.position, c.size) for c in asked])
        return _native.unite(samples, steps, checks)
