"""Memory over many input lengths and batch sizes: flat, and closures within their bound.

Each is measured in a process of its own: what other tests left in this one changes how much of it
stays resident.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx
import numpy as np
import psutil
import pytest

import ort_mlx
from core.graphs import FLOAT, mlx_session, model, node, tensor
from native.conftest import Child

LENGTHS = 1000
MIB = 2**20


def attention() -> bytes:
    """Closures of a few nodes, with results in between that grow with the square of n."""
    return model(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0]),
            node("MatMul", ["x", "t"], ["g"]),
            node("Softmax", ["g"], ["p"], axis=-1),
            node("MatMul", ["p", "x"], ["m"]),
            node("Tanh", ["m"], ["y"]),
        ],
        [tensor("x", FLOAT, ["n", 8])],
        [tensor("y")],
    )


def use(session: Any, lengths: Iterable[int]) -> tuple[float, float]:
    """Resident memory and what MLX holds, in MiB, after Runs of these lengths."""
    for n in lengths:
        session.run(None, {"x": np.ones((n, 8), np.float32)})
    gc.collect()
    held = mx.get_active_memory() + mx.get_cache_memory()
    return psutil.Process().memory_info().rss / MIB, held / MIB


def in_a_process(child: Child, check: Callable[..., None], *args: int) -> None:
    child(f"from native import test_memory\ntest_memory.{check.__name__}{args}")


@pytest.mark.parametrize("bound", [16, 128])
def test_a_thousand_lengths_and_the_same_again(bound: int, child: Child) -> None:
    in_a_process(child, a_thousand_lengths_and_the_same_again, bound)


def a_thousand_lengths_and_the_same_again(bound: int) -> None:
    session = mlx_session(attention(), max_closures=bound)
    order = [int(n) for n in np.random.default_rng(0).permutation(np.arange(1, LENGTHS + 1))]
    use(session, [LENGTHS])  # the largest decides what MLX keeps
    early = use(session, order[:200])
    later = use(session, order[200:] + order)
    report = ort_mlx.report(session)
    assert len(report.closures) == bound
    assert report.closures.nbytes < 2 * MIB
    assert report.counts["evictions"] == report.counts["traces"] - bound
    assert later[0] - early[0] < 16, (early, later)
    assert later[1] - early[1] < 16, (early, later)


def test_lengths_that_grow_need_no_more_closures(child: Child) -> None:
    in_a_process(child, lengths_that_grow_need_no_more_closures)


def lengths_that_grow_need_no_more_closures() -> None:
    session = mlx_session(attention())
    early = use(session, [*range(1, 220), LENGTHS])
    later = use(session, [*range(220, LENGTHS), *range(1, LENGTHS)])
    assert len(ort_mlx.report(session).closures) <= 8
    # MLX keeps up to 32 MB of freed buffers, and how soon it does depends on the order of frees.
    assert later[1] < 40, (early, later)
    assert (later[0] - later[1]) - (early[0] - early[1]) < 16, (early, later)


def test_keys_that_steer_are_dropped_with_their_closures(child: Child) -> None:
    in_a_process(child, keys_that_steer_are_dropped_with_their_closures)


def keys_that_steer_are_dropped_with_their_closures() -> None:
    """What a plan remembers of keys, refusals and reasons is bounded as well."""
    made = model(
        [node("Reshape", ["x", "s"], ["r"]), node("Neg", ["r"], ["y"])],
        [tensor("x", FLOAT, ["n"]), tensor("s", 7, [2])],
        [tensor("y")],
    )
    session = mlx_session(made, max_closures=8)
    draw = np.random.default_rng(0)

    def steer(count: int) -> float:
        for _ in range(count):
            a, b = draw.integers(1, 30, 2)
            session.run(None, {"x": np.ones(a * b, np.float32), "s": np.array([a, b])})
        gc.collect()
        return psutil.Process().memory_info().rss / MIB

    before = steer(300)
    assert steer(2000) - before < 8
    assert len(ort_mlx.report(session).closures) <= 8
    assert len(ort_mlx.report(session).misses) <= 8
