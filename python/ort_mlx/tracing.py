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


_state = _State()


def is_tracing() -> bool:
    """Whether the current translation is a trace."""
    return _state.active


@contextmanager
def tracing() -> Iterator[None]:
    """Mark the enclosed translation as a trace."""
    _state.active = True
    try:
        yield
    finally:
        _state.active = False
