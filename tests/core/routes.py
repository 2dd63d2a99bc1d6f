"""The same model compiled and eagerly, and what its closures did meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime as ort

import ort_mlx
from core.graphs import MLX, NOTHING, mlx_session, placed
from ort_mlx import _native

Feed = Mapping[str, np.ndarray]


def compiled(made: bytes, **options: Any) -> Any:
    """A session that is all ours, its graph as it was written."""
    return _session(made, **options)


def eager(made: bytes) -> Any:
    """The reference of the compiled routes."""
    return _session(made, routes=())


def _session(made: bytes, **options: Any) -> Any:
    session_options = ort.SessionOptions()
    session_options.graph_optimization_level = NOTHING
    session_options.log_severity_level = 4
    session = mlx_session(made, session_options, keep_islands=True, **options)
    assert set(placed(session)) == {MLX}, placed(session)
    return session


def counts(session: Any) -> dict[str, int]:
    return ort_mlx.report(session).counts


@contextmanager
def counted(session: Any) -> Iterator[dict[str, int]]:
    """Fills a dict with what the enclosed Runs added to each count."""
    before = counts(session)
    added: dict[str, int] = {}
    yield added
    after = counts(session)
    added.update({name: after[name] - before[name] for name in after})


@contextmanager
def no_python() -> Iterator[None]:
    """The enclosed Runs do not enter Python."""
    before = _native.counters()["python_entries"]
    yield
    entered = _native.counters()["python_entries"] - before
    assert entered == 0, f"{entered} entries into Python"


def run(session: Any, feed: Feed) -> list[np.ndarray]:
    return list(session.run(None, dict(feed)))


def assert_same(got: list[np.ndarray], wanted: list[np.ndarray], rtol: float = 1e-5) -> None:
    """Equal in type and shape, and in value up to the order in which a product adds."""
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if g.dtype.kind == "f":
            np.testing.assert_allclose(g, w, rtol=rtol, atol=1e-6)
        else:
            np.testing.assert_array_equal(g, w)


class Both:
    """A model on both routes."""

    def __init__(self, made: bytes, **options: Any) -> None:
        self.compiled = compiled(made, **options)
        self.eager = eager(made)

    def run(self, feed: Feed) -> list[np.ndarray]:
        """The compiled result, which equals the eager one."""
        got = run(self.compiled, feed)
        assert_same(got, run(self.eager, feed))
        return got
