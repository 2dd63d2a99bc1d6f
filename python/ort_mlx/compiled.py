"""Run a block that no single closure can serve: closures between the steps that need data.

A stretch is a run of steps between two that have to look at data. It is traced once per key and
replayed; the steps in between, and loops and branches, are driven from here, so a loop's body is
compiled even where its trip count is only known from data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import mlx.core as mx
import numpy as np

from . import _native
from .blocks import ABSENT, Block, Step
from .execute import Frame, Runner, release
from .hosts import Tensor, to_device
from .running import check_cancelled
from .safety import EAGER
from .tracing import tracing

# A stretch shorter than this costs more to look up than to translate again.
_MIN_STEPS: Final = 2


@dataclass(frozen=True, eq=False)
class Stretch:
    """Consecutive steps that one closure can serve."""

    steps: tuple[Step, ...]
    arrays: tuple[int, ...]  # slots read as arrays
    steering: tuple[int, ...]  # slots read as host values, part of the key
    outputs: tuple[int, ...]  # slots that are read after it
    releases: tuple[int, ...]

    def key(self, frame: Frame) -> bytes:
        """What a trace of the stretch depends on, as bytes."""
        parts = [id(self).to_bytes(8, "little")]
        for slot in self.arrays:
            value = frame[slot]
            parts.append(_shape_key(value.shape, value.dtype))
        for slot in self.steering:
            value = np.asarray(frame[slot])
            parts.append(_shape_key(value.shape, value.dtype) + value.tobytes())
        return b"".join(parts)


@lru_cache(maxsize=4096)
def _shape_key(shape: tuple[int, ...], dtype: Any) -> bytes:
    return np.array([len(shape), *shape], np.int64).tobytes() + str(dtype).encode()


Piece: TypeAlias = "Stretch | Step"


class CompiledRunner(Runner):
    """Replays closures for stretches, and runs every other step eagerly."""

    def __init__(
        self, host_stream: mx.Stream, closures: _native.ClosureCache, threads: int
    ) -> None:
        super().__init__(host_stream, threads)
        self._closures = closures
        self._eager = Runner(host_stream, threads)
        self._pieces: dict[int, tuple[Block, list[Piece]]] = {}

    @property
    def repeats(self) -> bool:
        """As Runner.repeats, while a Run goes in stretches too."""
        return self._is_on_cpu

    @property
    def for_traces(self) -> Runner:
        """As Runner.for_traces."""
        return self._eager

    def run_block(self, block: Block, frame: Frame) -> list[Tensor]:
        """As Runner.run_block."""
        if id(block) not in self._pieces:
            self._pieces[id(block)] = (block, split(block))
        for piece in self._pieces[id(block)][1]:
            check_cancelled()
            if isinstance(piece, Stretch):
                self._run_stretch(piece, frame)
            else:
                self.run_step(piece, frame)
                release(piece, frame)
        return [frame[slot] for slot in block.outputs]

    def _run_stretch(self, stretch: Stretch, frame: Frame) -> None:
        arrays = [to_device(frame[slot]) for slot in stretch.arrays]
        key = stretch.key(frame)
        closure = self._closures.find(key)
        if closure is None:
            closure = self._trace(stretch, frame, arrays)
            self._closures.insert(key, closure)
        for slot, value in zip(stretch.outputs, closure.replay(arrays), strict=True):
            frame[slot] = value
        for slot in stretch.releases:
            frame[slot] = None

    def _trace(self, stretch: Stretch, frame: Frame, arrays: list[mx.array]) -> _native.Closure:
        placeholders = [_native.placeholder(a) for a in arrays]
        traced = frame.copy()
        for slot, placeholder in zip(stretch.arrays, placeholders, strict=True):
            traced[slot] = placeholder
        with tracing():
            for step in stretch.steps:
                self._eager.run_step(step, traced)
        outputs = [to_device(traced[s]) for s in stretch.outputs]
        return _native.capture(placeholders, outputs, self.threads)


def split(block: Block) -> list[Piece]:
    """The block's steps as stretches and single steps, in order."""
    read_later: list[set[int]] = [set(block.outputs)]
    for step in reversed(block.steps):
        read_later.append(read_later[-1] | set(step.reads()))
    read_later.reverse()  # read_later[i]: what steps[i:] and the outputs read
    pieces: list[Piece] = []
    start = 0
    for end in range(len(block.steps) + 1):
        if end < len(block.steps) and _can_be_compiled(block.steps[end]):
            continue
        steps = block.steps[start:end]
        if len(steps) < _MIN_STEPS:
            pieces.extend(steps)
        else:
            pieces.append(_stretch(block, steps, read_later[end]))
        pieces.extend(block.steps[end : end + 1])
        start = end + 1
    return pieces


def _can_be_compiled(step: Step) -> bool:
    # What follows the number of an iteration would be another closure each time.
    needs_host = step.reads_device or step.on_host or step.follows_count
    return not (step.safety is EAGER or needs_host or step.bodies)


def _stretch(block: Block, steps: list[Step], read_later: set[int]) -> Stretch:
    made = {slot for step in steps for slot in step.outputs if slot != ABSENT}
    constants = {slot for slot, value in enumerate(block.template) if value is not None}
    arguments = [a for step in steps for a in step.arguments if a.slot != ABSENT]
    outside = {a.slot for a in arguments if a.slot not in made}
    steering = _ordered(a.slot for a in arguments if a.host is not None and a.slot in outside)
    arrays = _ordered(
        a.slot
        for a in arguments
        if a.host is None and a.slot in outside - constants and a.slot not in steering
    )
    releases = {slot for step in steps for slot in step.releases}
    # The closure keeps nothing of its own in the frame, so only slots from outside are released.
    return Stretch(
        steps=tuple(steps),
        arrays=arrays,
        steering=tuple(s for s in steering if s not in constants),
        outputs=_ordered(slot for slot in sorted(made) if slot in read_later),
        releases=tuple(releases - made),
    )


def _ordered(slots: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(slots))
