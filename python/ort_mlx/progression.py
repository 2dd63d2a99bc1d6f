"""Progressions of keys: when Runs differ by the same amount each time, one closure serves them all.

A decoder whose cache grows by a row at each step is the case that matters, in whatever way its
graph spells it. Nothing is known of names or operators: after three keys at equal distances the
graph is traced at several steps ahead, and the native layer unites the traces where all of them are
linear in the step. Both ends of the range are among them, so a threshold inside it is noticed; what
could be different at a single step is looked for on the host (see `trail`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import mlx.core as mx
import numpy as np

from . import _native
from .attempts import Backoff
from .bounds import Check
from .dtypes import ORT_NAMES
from .errors import OrtMlxError
from .guards import HostRecords
from .routes import Route
from .running import Cancelled
from .trail import Trail, recording, require_linear

Words: TypeAlias = Sequence[int]
Sample: TypeAlias = tuple[list[mx.array], list[Check]]
Translate: TypeAlias = Callable[[list[mx.array], HostRecords], Sample]

# How many steps ahead to serve, best first; each try traces the graph at a few of them.
_RANGES: Final = (2048, 512, 128, 32, 8)
_KEPT: Final = 64  # refused changes that are remembered, and reasons
_MAX_DIM: Final = 2**31 - 1
_MASK: Final = 2**64 - 1


@dataclass(frozen=True)
class KeyLayout:
    """How the native kernel lays a key out (cpp/kernel.cpp): owner, dimensions, host values."""

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
    name = ORT_NAMES[code]
    return 2 if name == "bfloat16" else int(np.dtype(name).itemsize)


class _Samples:
    """Traces of a plan at steps of a progression, each made once."""

    def __init__(
        self,
        key: Words,
        change: Words,
        arrays: list[mx.array],
        host_values: HostRecords,
        translate: Translate,
        threads: int,
    ) -> None:
        self._key = key
        self._change = change
        self._arrays = arrays
        self._layout = KeyLayout(len(arrays), tuple(code for code, _, _ in host_values))
        self._translate = translate
        self._threads = threads
        self._made: dict[int, tuple[_native.Closure, list[tuple[int, int]], Trail]] = {}

    def ranges(self) -> list[int]:
        """How many steps ahead to try, best first.

        A size that grows often has room up to another one, as a cache's rows up to its capacity:
        the steps until they meet are tried as well.
        """
        fixed = {
            word for word, change in zip(self._key[1:], self._change[1:], strict=True) if not change
        }
        meetings = {
            step
            for word, change in zip(self._key, self._change, strict=True)
            if 0 < change <= _MAX_DIM
            for limit in fixed
            if word < limit <= _MAX_DIM
            for step in ((limit - word) // change, (limit - word) // change - 1)
        }
        return sorted({*_RANGES, *(m for m in meetings if 2 < m < _RANGES[0])}, reverse=True)

    def unite(self, steps: list[int]) -> _native.Closure:
        """One closure for all steps up to the last of these.

        Raises:
            RuntimeError, ValueError, OrtMlxError: the graphs are not linear in the step.
        """
        closures, checks, trails = zip(*(self._at(step) for step in steps), strict=True)
        require_linear(trails, steps)
        return _native.unite(list(closures), steps, list(checks))

    def _at(self, step: int) -> tuple[_native.Closure, list[tuple[int, int]], Trail]:
        if step not in self._made:
            words = [(w + c * step) & _MASK for w, c in zip(self._key, self._change, strict=True)]
            shapes, records = self._layout.decode(words)
            placeholders = [
                _native.placeholder(list(shape), like)
                for shape, like in zip(shapes, self._arrays, strict=True)
            ]
            with recording() as trail:
                outputs, asked = self._translate(placeholders, records)
            outputs = [_native.row_major(o) for o in outputs]
            closure = _native.sample(placeholders, outputs, self._threads)
            self._made[step] = closure, [(c.position, c.size) for c in asked], trail
        return self._made[step]


class Progressions:
    """Notices progressions among the keys of one plan and makes closures for them."""

    def __init__(self, closures: _native.ClosureCache, threads: int) -> None:
        self._closures = closures
        self._threads = threads
        self._last: list[Words] = []
        self._continues: dict[tuple[int, ...], tuple[int, ...]] = {}  # a key after a range: change
        self._refused: dict[tuple[int, ...], Backoff] = {}  # by change
        self.reasons: deque[str] = deque(maxlen=_KEPT)

    def serve(
        self,
        key: Words,
        arrays: list[mx.array],
        host_values: HostRecords,
        translate: Translate,
        route: Callable[[], Route | None],
    ) -> bool:
        """Make a closure for the progression that this key continues, if there is one.

        Args:
            key: the key that has no closure.
            arrays: placeholders for the array inputs.
            host_values: the host inputs.
            translate: traces the plan, on placeholders and host values.
            route: of the last trace; None when its Runs are not to be compiled.
        """
        change = self._change(key)
        if change is None or not self._may_try(change):
            return False
        samples = _Samples(key, change, arrays, host_values, translate, self._threads)
        reason = ""
        for last in samples.ranges():
            try:
                samples.unite([0, 1, last])  # the ends first: most refusals come from there
                closure = samples.unite(
                    sorted({0, 1, 2, last // 3, 2 * last // 3 + 1, last - 1, last})
                )
            except Cancelled:
                raise
            except (OrtMlxError, RuntimeError, ValueError) as error:
                reason = str(error)
                continue
            if (taken := route()) is None:
                return False
            self._closures.insert_progression(list(key), list(change), last, closure, taken)
            self._refused.pop(change, None)
            self._expect(key, change, last)
            return True
        self._refused.setdefault(change, Backoff()).failed()
        self.reasons.append(reason)
        return False

    def _may_try(self, change: tuple[int, ...]) -> bool:
        if len(self._refused) > _KEPT:
            self._refused.clear()
        return change not in self._refused or self._refused[change].may_try()

    def _expect(self, key: Words, change: tuple[int, ...], last: int) -> None:
        if len(self._continues) > _KEPT:
            self._continues.clear()
        after = ((w + c * (last + 1)) & _MASK for w, c in zip(key, change, strict=True))
        self._continues[tuple(after)] = change

    def _change(self, key: Words) -> tuple[int, ...] | None:
        """What each word changes by, when this key and the two before it are equally far apart."""
        self._last = [*self._last[-2:], key]
        if (known := self._continues.pop(tuple(key), None)) is not None:
            return known
        if len(self._last) < 3 or len({len(k) for k in self._last}) != 1:
            return None
        first, second, third = self._last
        change = tuple((b - a) & _MASK for a, b in zip(first, second, strict=True))
        again = tuple((b - a) & _MASK for a, b in zip(second, third, strict=True))
        return change if change == again and any(change) else None
