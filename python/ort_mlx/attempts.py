"""Trying again after failures: less and less often, never not at all."""

from __future__ import annotations

from typing import Final

_MAX_SHIFT: Final = 10


class Backoff:
    """After the nth failure in a row, 2**(n - 1) opportunities are let go by, up to 1,024."""

    def __init__(self) -> None:
        self._failures_in_a_row = 0
        self._to_skip = 0

    def may_try(self) -> bool:
        """Whether to try this time; counts the opportunity."""
        if self._to_skip == 0:
            return True
        self._to_skip -= 1
        return False

    def failed(self) -> None:
        """The try failed."""
        self._to_skip = 1 << min(self._failures_in_a_row, _MAX_SHIFT)
        self._failures_in_a_row += 1

    def succeeded(self) -> None:
        """The try succeeded: forget the failures."""
        self._failures_in_a_row = 0
