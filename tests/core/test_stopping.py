"""Stopping a Run that is one long closure, by `cancel` and from the keyboard."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest

import ort_mlx
from core.graphs import FLOAT, model, node, tensor
from core.routes import assert_same, compiled, counted, run
from native.conftest import Child, child

__all__ = ["child"]

SOON = 0.25  # seconds; 0.1 on a machine that has nothing else to do


def chain(op: str, length: int, width: int, **attributes: Any) -> bytes:
    """One op after the other on [width, width], which takes a second or so."""
    names = ["x", *(f"v{i}" for i in range(length - 1)), "y"]
    extra = {"MatMul": ["w"], "Gather": ["order"]}[op]
    nodes = [node(op, [a, *extra], [b], **attributes) for a, b in itertools.pairwise(names)]
    return model(
        nodes,
        [tensor("x", FLOAT, ["n", width])],
        [tensor("y")],
        {"w": np.eye(width, dtype=np.float32), "order": np.arange(width)[::-1].copy()},
    )


# Products run on a kernel of ours, gathers on MLX's scheduler. With the rows that take a second.
CHAINS = {
    "kernels": (chain("MatMul", 4000, 512), 64),
    "primitives": (chain("Gather", 12000, 512, axis=1), 512),
}


def feed(rows: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((rows, 512), np.float32)}


@pytest.mark.parametrize("kind", CHAINS)
def test_cancel_stops_a_closure(kind: str) -> None:
    made, rows = CHAINS[kind]
    session = compiled(made, threads=1)
    wanted = run(session, feed(rows))
    asked = 0.0

    def stop() -> None:
        nonlocal asked
        asked = time.monotonic()
        ort_mlx.cancel(session)

    timer = threading.Timer(0.2, stop)
    with counted(session) as added:
        timer.start()
        with pytest.raises(Exception, match=r"this Run was stopped by ort_mlx\.cancel"):
            run(session, feed(rows))
        took = time.monotonic() - asked
        timer.join()
    assert took < SOON
    assert added["hits"] == 1
    assert added["failures"] == added["eager_runs"] == 0
    with counted(session) as added:
        assert_same(run(session, feed(rows)), wanted)
    assert added["traces"] == 0


def test_cancel_stops_runs_that_wait_for_their_turn() -> None:
    """Of one session, one Run at a time is in the kernels."""
    made, rows = CHAINS["kernels"]
    session = compiled(made, threads=1)
    run(session, feed(rows))
    said: list[str] = []

    def start() -> None:
        try:
            run(session, feed(rows))
        except Exception as error:
            said.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    ort_mlx.cancel(session)
    for thread in threads:
        thread.join()
    assert ["this Run was stopped by ort_mlx.cancel" in text for text in said] == [True] * 3


@pytest.mark.parametrize("kind", CHAINS)
def test_ctrl_c_stops_a_closure(child: Child, kind: str) -> None:
    """In a process of its own: the signal arrives while the main thread is in Run."""
    child(
        f"""
        import os, signal, threading, time
        # A job in the background of a shell is started with it ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from core.routes import compiled, counts
        from core.test_stopping import CHAINS, SOON, feed
        made, rows = CHAINS["{kind}"]
        session = compiled(made, threads=1)
        wanted = session.run(None, feed(rows))
        sent = []
        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.2, interrupt).start()
        try:
            session.run(None, feed(rows))
        except Exception as error:
            assert "interrupted from the keyboard" in str(error), error
            assert time.monotonic() - sent[0] < SOON
        else:
            raise SystemExit("the Run ended by itself")
        np.testing.assert_array_equal(session.run(None, feed(rows))[0], wanted[0])
        assert counts(session)["failures"] == 0
        """
    )


def test_another_signal_ends_the_run_with_what_was_raised(child: Child) -> None:
    child(
        """
        import os, signal, threading
        from core.routes import compiled
        from core.test_stopping import CHAINS, feed
        made, rows = CHAINS["kernels"]
        session = compiled(made, threads=1)
        session.run(None, feed(rows))
        def raise_timeout(*_):
            raise TimeoutError("too slow")
        signal.signal(signal.SIGALRM, raise_timeout)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            session.run(None, feed(rows))
        except Exception as error:
            assert "ended by a signal: TimeoutError: too slow" in str(error), error
        else:
            raise SystemExit("the Run ended by itself")
        """
    )


def test_a_signal_cannot_start_a_run_inside_a_run(child: Child) -> None:
    """It would wait for ever, for a lock that its own thread holds; the Run goes on after it."""
    child(
        """
        import signal
        from core.routes import compiled
        from core.test_stopping import CHAINS, feed
        made, rows = CHAINS["kernels"]
        session = compiled(made, threads=1)
        wanted = session.run(None, feed(rows))
        errors = []
        def run_again(*_):
            try:
                session.run(None, feed(1))
            except Exception as error:
                errors.append(str(error))
        signal.signal(signal.SIGALRM, run_again)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        np.testing.assert_array_equal(session.run(None, feed(rows))[0], wanted[0])
        assert len(errors) == 1 and "in a Run of the session already" in errors[0], errors
        """
    )
