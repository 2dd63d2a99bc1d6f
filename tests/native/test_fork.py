"""After fork(): a clear error soon, not a hang; and forking first is fine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

Child = Callable[..., Any]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

# The forked child writes what happened and leaves at once; its parent waits ten seconds at most.
FORKED = """
import os, signal, time
def forked(work):
    reader, writer = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try: text = work() or "fine"
        except BaseException as e: text = f"{type(e).__name__}: {e}"
        os.write(writer, text.encode()); os._exit(0)
    os.close(writer)
    for _ in range(100):
        if os.waitpid(pid, os.WNOHANG)[0]: return os.read(reader, 65536).decode()
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
    return "HANG"
"""
SENTENCE = "this process was forked from one that had used MLX"


def test_a_session_of_the_parent(child: Child) -> None:
    done = child(
        FORKED + "s = mlx_session(relu()); check(s)\nprint(forked(lambda: check(s))); check(s)"
    )
    assert SENTENCE in done.stdout
    assert "spawn" in done.stdout


def test_a_session_of_the_child(child: Child) -> None:
    done = child(
        FORKED + "s = mlx_session(relu()); check(s)\n"
        "print(forked(lambda: check(mlx_session(relu())))); check(s)"
    )
    assert SENTENCE in done.stdout


def test_a_session_that_had_not_run(child: Child) -> None:
    done = child(FORKED + "s = mlx_session(relu())\nprint(forked(lambda: check(s))); check(s)")
    assert SENTENCE in done.stdout


def test_a_session_is_dropped_in_the_child(child: Child) -> None:
    # With one thread, since ORT's own thread pools may wait for ever in a forked child.
    done = child(
        FORKED + "so = ort.SessionOptions(); so.intra_op_num_threads = 1\n"
        "s = [mlx_session(relu(), so)]; check(s[0])\n"
        "print(forked(lambda: s.clear())); check(s[0])"
    )
    assert done.stdout.strip() == "fine"


def test_a_cpu_session_of_the_child_is_not_our_business(child: Child) -> None:
    done = child(
        FORKED
        + "s = mlx_session(relu()); check(s)\nprint(forked(lambda: check(cpu_session(relu()))))"
    )
    assert done.stdout.strip() == "fine"


def test_forking_before_any_session_is_fine(child: Child) -> None:
    done = child(FORKED + "ort_mlx.register()\nprint(forked(lambda: check(mlx_session(relu()))))")
    assert done.stdout.strip() == "fine"


@pytest.mark.timeout(120)
def test_workers_that_are_spawned(child: Child, tmp_path: Any) -> None:
    script = tmp_path / "workers.py"
    script.write_text(
        """
import multiprocessing
import numpy as np
from core.graphs import mlx_session, relu

def work(n):
    return float(mlx_session(relu()).run(None, {"x": np.full((2, 3), n, np.float32)})[0].sum())

if __name__ == "__main__":
    mlx_session(relu()).run(None, {"x": np.ones((2, 3), np.float32)})
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(work, range(4)))
"""
    )
    done = child(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", timeout=110)
    assert done.stdout.strip() == "[0.0, 6.0, 12.0, 18.0]"
