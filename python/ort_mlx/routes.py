"""What a Run is to a decoder: found in its data flow, never in names.

A Run that appends rows to a key/value cache is a step of decoding when it is one row, and prefill
when it is more. A cache shows in a trace in two ways: an op writes rows into one that is shared
(`tracing.note_appended`), or a step makes an output of the partition of one of its inputs and new
rows. Everything else is general.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import mlx.core as mx

from . import tracing
from .blocks import Block
from .settings import ROUTES

_MIN_RANK: Final = 3  # of a cache: rows, their size, and a batch or heads


class Route(IntEnum):
    """As the native layer numbers them; names as in the option `routes`."""

    GENERAL = ROUTES.index("general")
    PREFILL = ROUTES.index("prefill")
    DECODE = ROUTES.index("decode")


class Caches:
    """The inputs of a partition that come back as an output of the step that reads them."""

    def __init__(self, block: Block, array_slots: Sequence[int]) -> None:
        position = {slot: i for i, slot in enumerate(array_slots)}
        output = {slot: i for i, slot in enumerate(block.outputs)}
        self._joined = [
            ([position[a.slot] for a in step.arguments if a.slot in position], output[slot])
            for step in block.steps
            for slot in step.outputs
            if slot in output
        ]

    def route(self, inputs: Sequence[mx.array], outputs: Sequence[mx.array]) -> Route:
        """The route of the Runs that the last trace stands for."""
        rows = tracing.appended()
        for read, made in self._joined:
            # The past comes first, as what is appended to it may have the same shape.
            grown = (_appended(inputs[i].shape, outputs[made].shape) for i in read)
            rows = max(rows, next(filter(None, grown), 0))
        if rows == 0:
            return Route.GENERAL
        return Route.DECODE if rows == 1 else Route.PREFILL


def _appended(before: tuple[int, ...], after: tuple[int, ...]) -> int:
    """By how many rows an array is longer that is the same otherwise; 0 when it is no cache."""
    if len(before) != len(after) or len(before) < _MIN_RANK or before[-1] != after[-1]:
        return 0
    longer = [b - a for a, b in zip(before, after, strict=True) if a != b]
    return max(longer[0], 0) if len(longer) == 1 else 0
