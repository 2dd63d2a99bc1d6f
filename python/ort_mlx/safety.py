"""Compile-shape safety: what a translated op may assume once it is compiled.

A plan inherits the least safe of its steps. `SHAPELESS` has to be earned by a test that re-runs the
compiled op with every dimension changed: in MLX a false claim is usually silently wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Safety(IntEnum):
    """Ordered from the least to the most permissive."""

    EAGER = 0  # needs data on the host, or its output shape depends on data
    PER_SHAPE = 1  # right for the shapes it was traced with
    SHAPELESS = 2  # right for any shape


EAGER, PER_SHAPE, SHAPELESS = Safety.EAGER, Safety.PER_SHAPE, Safety.SHAPELESS


def least(safeties: Iterable[Safety]) -> Safety:
    """The safety of a plan made of steps with these safeties."""
    return min(safeties, default=SHAPELESS)
