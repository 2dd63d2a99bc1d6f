"""Runs from many threads, on one session and on several, and asynchronously."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from core.graphs import (
    BOOL,
    FLOAT,
    MLX,
    body,
    cpu_session,
    mlx_session,
    model,
    node,
    placed,
    tensor,
)
from native.conftest import Child

THREADS, RUNS = 8, 50


def network() -> bytes:
    """Products, a branch, a reduction and a constant: enough to show a mix-up of two Runs."""
    rng = np.random.default_rng(0)
    then = body([node("Sin", ["h"], ["t"])], [], [tensor("t")])
    otherwise = body([node("Add", ["h", "b"], ["u"])], [], [tensor("u")])
    return model(
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("ReduceSum", ["x"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], ["c"]),
            node("If", ["c"], ["v"], then_branch=then, else_branch=otherwise),
            node("Softmax", ["v"], ["y"], axis=-1),
        ],
        [tensor("x", FLOAT, ["n", 32])],
        [tensor("y"), tensor("c", BOOL)],
        {
            "w": rng.standard_normal((32, 48)).astype(np.float32),
            "b": rng.standard_normal(48).astype(np.float32),
            "zero": np.array(0, np.float32),
        },
    )


@pytest.fixture(scope="module")
def wanted() -> list[tuple[np.ndarray, list[np.ndarray]]]:
    """Inputs of several shapes, with what ORT CPU makes of them."""
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((1 + i % 5, 32)).astype(np.float32) for i in range(RUNS)]
    reference = cpu_session(network())
    return [(x, reference.run(None, {"x": x})) for x in inputs]


def run_all(session: Any, wanted: Any, first: int) -> None:
    for i in range(RUNS):
        x, (y, c) = wanted[(first + i) % RUNS]
        got_y, got_c = session.run(None, {"x": x})
        np.testing.assert_allclose(got_y, y, rtol=1e-4, atol=1e-6)
        assert got_c == c


def in_threads(fn: Callable[[int], None], count: int = THREADS) -> None:
    start = threading.Barrier(count)

    def begin(index: int) -> None:
        start.wait()
        fn(index)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(begin, i) for i in range(count)]:
            done.result(timeout=120)


@pytest.mark.timeout(120)
def test_threads_share_one_session(wanted: Any) -> None:
    session = mlx_session(network())
    assert set(placed(session)) == {MLX}
    in_threads(lambda i: run_all(session, wanted, 6 * i))


@pytest.mark.timeout(120)
def test_threads_with_sessions_of_their_own(wanted: Any) -> None:
    in_threads(lambda i: run_all(mlx_session(network()), wanted, 6 * i))


@pytest.mark.timeout(120)
def test_sessions_are_made_and_dropped_while_others_run(wanted: Any) -> None:
    shared = mlx_session(network())

    def work(index: int) -> None:
        if index % 2:
            run_all(shared, wanted, index)
        else:
            for i in range(10):
                x, (y, _) = wanted[i]
                np.testing.assert_allclose(
                    mlx_session(network()).run(None, {"x": x})[0], y, rtol=1e-4, atol=1e-6
                )

    in_threads(work)


@pytest.mark.timeout(120)
def test_run_async(wanted: Any) -> None:
    session = mlx_session(network())
    results: dict[int, Any] = {}
    done = threading.Semaphore(0)

    def finished(outputs: Any, index: int, error: str) -> None:
        results[index] = error or outputs
        done.release()

    for i, (x, _) in enumerate(wanted):
        session.run_async(None, {"x": x}, finished, i)
    for _ in wanted:
        assert done.acquire(timeout=60)
    for i, (_, (y, c)) in enumerate(wanted):
        assert not isinstance(results[i], str), results[i]
        np.testing.assert_allclose(results[i][0], y, rtol=1e-4, atol=1e-6)
        assert results[i][1] == c


@pytest.mark.timeout(120)
def test_two_sessions_with_other_options(wanted: Any) -> None:
    sessions = [mlx_session(network()), mlx_session(network(), exclude_ops=["Softmax", "MatMul"])]
    assert placed(sessions[1])[MLX] == {"ReduceSum": 1, "Greater": 1, "If": 1}

    def work(index: int) -> None:
        run_all(sessions[index % 2], wanted, index)

    in_threads(work, 4)


@pytest.mark.timeout(120)
def test_a_program_uses_mlx_itself_meanwhile(wanted: Any) -> None:
    """Its default device and stream are its own, in this thread and in others."""
    session = mlx_session(network())

    def work(index: int) -> None:
        if index % 2:
            run_all(session, wanted, index)
            return
        mx.set_default_stream(mx.new_stream(mx.cpu))
        before = mx.default_device(), mx.default_stream(mx.cpu)
        for i in range(RUNS):
            total = mx.arange(100).sum() + i
            assert total.item() == 4950 + i
            x, (y, _) = wanted[i]
            np.testing.assert_allclose(session.run(None, {"x": x})[0], y, rtol=1e-4, atol=1e-6)
            assert (mx.default_device(), mx.default_stream(mx.cpu)) == before

    in_threads(work, 4)


@pytest.mark.timeout(120)
def test_an_error_in_one_thread_leaves_the_others_alone(wanted: Any) -> None:
    session = mlx_session(
        model(
            [node("Add", ["x", "z"], ["y"], name="sum")], [tensor("x"), tensor("z")], [tensor("y")]
        )
    )
    x, z = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)

    def work(index: int) -> None:
        for _ in range(RUNS):
            if index % 2:
                np.testing.assert_array_equal(session.run(None, {"x": x, "z": x})[0], x + x)
            else:
                with pytest.raises(Exception, match=r"\[Add 'sum'\]"):
                    session.run(None, {"x": x, "z": z})

    in_threads(work, 4)


def test_new_sessions_take_streams_that_are_there(child: Child) -> None:
    """MLX must not make a stream while another thread looks one up."""
    child(
        """
        import mlx.core as mx
        from native.test_threads import number_of_streams
        sessions = [mlx_session(relu())]
        before = number_of_streams()
        sessions += [mlx_session(relu()) for _ in range(100)]
        for session in sessions: check(session)
        assert number_of_streams() == before + 1
        """
    )


def number_of_streams() -> int:
    """How many MLX has made in this process, with one more that shows it."""
    return int(str(mx.new_thread_unsafe_stream(mx.cpu)).rstrip(")").rpartition(" ")[2])
