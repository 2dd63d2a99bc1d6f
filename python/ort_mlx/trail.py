"""What a trace computes on the host along the way, and whether it is linear along a progression.

The outputs of a few samples may be linear though a value in between is not: a size that is special
at one step only, say. Such a value goes through a comparison, an absolute value or a remainder on
the host, so every step there is looked at: its numbers have to be linear, and where it compares two
of them, they must not meet or cross in the range.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .hosts import HostValue


@dataclass(frozen=True)
class HostStep:
    """One step that was evaluated on the host."""

    label: str
    taken: tuple[HostValue, ...]
    made: tuple[HostValue, ...]


Trail = list[HostStep]


class _State(threading.local):
    trail: Trail | None = None


_state = _State()


@contextmanager
def recording() -> Iterator[Trail]:
    """Collect the host steps of the enclosed translation."""
    before, _state.trail = _state.trail, []
    try:
        yield _state.trail
    finally:
        _state.trail = before


def is_recording() -> bool:
    """Whether the translation on this thread is recorded."""
    return _state.trail is not None


def note(label: str, taken: Sequence[Any], made: Sequence[Any]) -> None:
    """Add a host step; what is not a host value is left out."""
    if _state.trail is not None:
        _state.trail.append(HostStep(label, _hosts(taken), _hosts(made)))


def _hosts(values: Sequence[Any]) -> tuple[HostValue, ...]:
    return tuple(v for v in values if isinstance(v, np.ndarray))


def require_linear(trails: Sequence[Trail], steps: Sequence[int]) -> None:
    """Check the trails of the samples at `steps`, the range's first and last step included.

    Raises:
        ValueError: a value on the host is not linear, or a comparison may turn out differently.
    """
    if len({len(trail) for trail in trails}) != 1:
        raise ValueError("not a progression: the graphs have different nodes")
    for at in zip(*trails, strict=True):
        if not _is_linear(at, np.array(steps)):
            raise ValueError(f"not a progression: [{at[0].label}] is not linear in the step")


def _is_linear(at: Sequence[HostStep], steps: Any) -> bool:
    made = _rows(at, "made")
    if made is None or not all(_on_a_line(row, steps) for row in made):
        return False
    if not any(row.dtype == np.bool_ for row in made):
        return True
    taken = _rows(at, "taken")
    if taken is None or not all(_on_a_line(row, steps) for row in taken):
        return False
    numbers = [row for row in taken if row.dtype != np.bool_]
    if len(numbers) > 2:
        return all((row == row[:1]).all() for row in numbers)
    return not numbers or _keep_their_order(numbers)


def _rows(at: Sequence[HostStep], side: str) -> list[Any] | None:
    """For each value its samples as the rows of one array; None when their shapes differ."""
    columns = [getattr(step, side) for step in at]
    if len({tuple((v.shape, v.dtype) for v in column) for column in columns}) != 1:
        return None
    return [
        np.stack([np.asarray(v).reshape(-1) for v in values])
        for values in zip(*columns, strict=True)
    ]


def _on_a_line(row: Any, steps: Any) -> bool:
    if row.dtype == np.bool_:
        return bool((row == row[:1]).all())
    if row.dtype.kind == "f":
        wide = row.astype(np.float64)
        line = wide[:1] + (wide[-1:] - wide[:1]) * (steps[:, None] / steps[-1])
        return bool(np.allclose(wide, line, rtol=1e-6, atol=0, equal_nan=True))
    whole = row.astype(np.int64)
    line = whole[:1] + (whole[1:2] - whole[:1]) // steps[1] * steps[:, None]
    return bool((whole == line).all())


def _keep_their_order(numbers: list[Any]) -> bool:
    """Whether the order at both ends is the same; the numbers are linear in between."""
    first, second = (*numbers, np.zeros_like(numbers[0]))[:2]
    if first.shape[1] != second.shape[1] and 1 not in (first.shape[1], second.shape[1]):
        return False
    order = np.sign(first.astype(np.float64) - second.astype(np.float64))
    return bool((order[0] == order[-1]).all())
