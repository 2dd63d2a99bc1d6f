"""Cases of com.microsoft operators, one node each."""

from __future__ import annotations

from conformance.contrib import attention, group_query, layers, quantized, weights
from conformance.contrib.build import ContribCase

__all__ = ["ContribCase", "cases"]


def cases() -> list[ContribCase]:
    """All of them, in a fixed order."""
    return [
        *layers.cases(),
        *group_query.cases(),
        *attention.cases(),
        *weights.cases(),
        *quantized.cases(),
    ]
