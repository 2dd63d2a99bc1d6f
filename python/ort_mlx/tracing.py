"""Whether this thread is translating a trace: values are placeholders, and no data can be read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import OrtMlxError


class NotTraceable(OrtMlxError):
    """The graph depends on data, or is too long to unroll: it has to run step by step."""


class _State(threading.local):
    active = False
    unrolled = 0
    appended = 0


_state = _State()


def is_tracing() -> bool:
    """Whether the current translation is a trace."""
    return _state.active


def unrolled(steps: int) -> int:
    """Add to the steps of loops in this trace; what they are now."""
    _state.unrolled += steps
    return _state.unrolled


def note_appended(rows: int) -> None:
    """Say that the trace writes this many rows into a key/value cache."""
    _state.appended = max(_state.appended, rows)


def appended() -> int:
    """The most rows that the last trace writes into a cache; 0 when it has none."""
    return _state.appended


@contextmanager
def tracing() -> Iterator[None]:
    """Mark the enclosed translation as a trace."""
    before = _state.active, _state.unrolled
    if not _state.active:
        _state.appended = 0
    _state.active, _state.unrolled = True, 0
    try:
        yield
    finally:
        _state.active, _state.unrolled = before
