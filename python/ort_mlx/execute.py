"""Run a block step by step: the op functions build an MLX graph, or small values on the host.

Tracing is the same code on placeholders. Nothing here evaluates a device array unless an op needs
one as a host parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import mlx.core as mx
import numpy as np

from . import trail
from .blocks import ABSENT, Argument, Block, Step
from .errors import InputError, OrtMlxError, TranslationError
from .hosts import Tensor, may_stay_on_host, to_device, to_host
from .running import check_cancelled, count_unrolled
from .tracing import is_tracing

Frame: TypeAlias = "list[Any]"  # slot to Tensor, or None


class Runner:
    """Runs blocks eagerly. `compiled.CompiledRunner` runs stretches of them as closures instead."""

    def __init__(self, host_stream: mx.Stream, threads: int) -> None:
        self._host_stream = host_stream
        self._is_on_cpu = mx.default_device() == mx.Device(mx.cpu)
        self.threads = threads

    @property
    def repeats(self) -> bool:
        """Whether the body of a loop may become a node of its own: compiled, and on the CPU."""
        return self._is_on_cpu and is_tracing()

    @property
    def for_traces(self) -> Runner:
        """What traces the body of such a loop."""
        return self

    def run_block(self, block: Block, frame: Frame) -> list[Tensor]:
        """Run every step of a block on a frame that holds its inputs and constants.

        Raises:
            InputError: values given to this Run do not fit an op.
            TranslationError: an op failed for another reason.
            NotTraceable: in a trace, a step needs data.
        """
        for step in block.steps:
            self.run_step(step, frame)
            release(step, frame)
        return [frame[slot] for slot in block.outputs]

    def run_step(self, step: Step, frame: Frame) -> None:
        """Run one step and store its outputs in the frame."""
        try:
            results: Sequence[Tensor]
            if step.on_host and not step.returns_host and _all_on_host(step, frame):
                with mx.stream(self._host_stream):
                    results = [_kept_on_host(r) for r in self._call(step, frame)]
            else:
                results = self._call(step, frame)
        except OrtMlxError:
            raise
        except (ValueError, IndexError) as error:
            raise InputError(_message(step, frame, error)) from error
        except Exception as error:
            raise TranslationError(_message(step, frame, error)) from error
        if step.on_host and trail.is_recording():
            trail.note(
                step.label, [frame[a.slot] for a in step.arguments if a.slot != ABSENT], results
            )
        for slot, result in zip(step.outputs, results, strict=False):
            if slot != ABSENT:
                frame[slot] = result

    def _call(self, step: Step, frame: Frame) -> Sequence[Tensor]:
        keywords = step.keywords
        if step.bodies:
            check_cancelled()
            bound = {name: BoundBody(b, frame, self) for name, b in step.bodies.items()}
            keywords = {**keywords, **bound}
        result = step.fn(*(_value(a, frame) for a in step.arguments), **keywords)
        return result if isinstance(result, tuple) else (result,)


def release(step: Step, frame: Frame) -> None:
    """Drop what no step after this one reads, so that MLX may reuse the memory."""
    for slot in step.releases:
        frame[slot] = None


@dataclass(frozen=True)
class BoundBody:
    """A body as a control-flow op sees it: call it with the body's inputs, get its outputs."""

    block: Block
    outer: Frame
    runner: Runner

    def traced(self) -> BoundBody:
        """The body as a trace runs it."""
        return replace(self, runner=self.runner.for_traces)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the body once."""
        count_unrolled(len(self.block.steps))
        frame = self.block.template.copy()
        for outside, here in self.block.captured:
            frame[here] = self.outer[outside]
        for slot, value in zip(self.block.inputs, inputs, strict=True):
            frame[slot] = value
        return tuple(self.runner.run_block(self.block, frame))


def _all_on_host(step: Step, frame: Frame) -> bool:
    return not any(a.slot != ABSENT and isinstance(frame[a.slot], mx.array) for a in step.arguments)


def _kept_on_host(result: Tensor) -> Tensor:
    if isinstance(result, mx.array) and may_stay_on_host(result):
        return to_host(result)
    return result


def _value(argument: Argument, frame: Frame) -> Any:
    if argument.slot == ABSENT:
        return argument.value
    value = frame[argument.slot]
    if argument.host is None:
        return to_device(value)
    return argument.host.convert(to_host(value))


def _message(step: Step, frame: Frame, error: Exception) -> str:
    shapes = [_shown(frame[a.slot]) for a in step.arguments if a.slot != ABSENT]
    return f"[{step.label}] {str(error).rstrip('.')}; got {', '.join(shapes) or 'no inputs'}"


def _shown(value: Tensor | None) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, np.ndarray) and value.size <= 8:
        return f"{value.dtype}{list(value.shape)} = {value.tolist()}"
    return f"{str(value.dtype).removeprefix('mlx.core.')}{list(value.shape)}"
