"""How long the cold work of a session took: what it costs to open it and to trace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Timings(dict[str, float]):
    """Seconds by kind of work, added up."""

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of the enclosed work."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self[name] = self.get(name, 0.0) + time.perf_counter() - start
