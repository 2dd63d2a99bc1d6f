"""What a trace assumed of its inputs, and how two sets of assumptions differ.

The native kernel compares guards as binary keys; this is their readable form, made on a miss only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import mlx.core as mx

from .records import host_value

HostRecords: TypeAlias = "list[tuple[int, tuple[int, ...], bytes]]"


@dataclass(frozen=True)
class Guards:
    """The shapes of the array inputs, then the values of the host inputs."""

    shapes: tuple[tuple[int, ...], ...]
    values: tuple[Any, ...]

    @classmethod
    def of(cls, arrays: Sequence[mx.array], host_values: HostRecords) -> Guards:
        """The guards of one Run."""
        return cls(
            tuple(tuple(a.shape) for a in arrays),
            tuple((tuple(parts[1]), host_value(*parts).tolist()) for parts in host_values),
        )

    def difference(self, earlier: Guards | None, names: Sequence[str]) -> str:
        """Which guard failed, in words; `names` are the inputs in order."""
        if earlier is None:
            return "first Run"
        for name, old, new in zip(names, earlier.shapes, self.shapes, strict=False):
            if old != new:
                return f"'{name}' has shape {list(new)} after {list(old)}"
        steering = names[len(self.shapes) :]
        for name, old, new in zip(steering, earlier.values, self.values, strict=True):
            if old != new:
                return f"'{name}' is {new[1]} after {old[1]}"
        return "its closure was evicted or had failed"
