"""The Run in progress on this thread: bounding the graph of its loops, and stopping it."""

from __future__ import annotations

from typing import Any, Final

import mlx.core as mx

from . import _native
from .errors import OrtMlxError
from .hosts import Tensor, to_device
from .tracing import NotTraceable, is_tracing, unrolled

# Steps of unrolled bodies in one trace: more would take long to compile, and much memory.
MAX_UNROLLED: Final = 65536

# The trip count of a Loop that names none.
FOREVER: Final = 2**63 - 1

# Iterations of a loop that is not traced between evaluations: enough to keep the device busy, few
# enough to bound the graph and to stop soon.
EVAL_EVERY: Final = 16


class Cancelled(OrtMlxError):
    """The Run was stopped by `ort_mlx.cancel`, or from the keyboard."""


class TooLong(NotTraceable):
    """A loop is too long for one closure with these inputs; with others it may not be."""


def check_cancelled() -> None:
    """Raise Cancelled when the current Run was asked to stop."""
    _native.check_stopped()


def check_length(steps: int) -> None:
    """Raise TooLong when a trace would unroll a loop of this many steps in all."""
    if is_tracing() and steps > MAX_UNROLLED:
        raise TooLong(f"a loop of more than {MAX_UNROLLED} steps in all")


def count_unrolled(steps: int) -> None:
    """Called before the steps of a body run; raises TooLong when a trace gets too many."""
    if is_tracing():
        check_length(unrolled(max(steps, 1)))


def after_iteration(trip: int, *live: Any) -> None:
    """Called by loops after each iteration: bounds the graph, and lets the Run be stopped.

    Args:
        trip: iterations done so far.
        *live: tensors, and lists of them, that the rest of the loop needs.

    Raises:
        Cancelled: the Run was asked to stop.
    """
    check_cancelled()
    if not is_tracing() and trip % EVAL_EVERY == 0:
        mx.eval([_arrays(v) for v in live])


def _arrays(value: Tensor | list[Any] | tuple[Any, ...]) -> Any:
    if isinstance(value, list) and value and not isinstance(value[0], list):
        value = value[-EVAL_EVERY:]  # a column that grows: what came before has been evaluated
    if isinstance(value, (list, tuple)):
        return [_arrays(v) for v in value]
    return to_device(value)
