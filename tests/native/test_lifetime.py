"""What lives how long: memory over many sessions, values after sessions, exits in every state."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest

import ort_mlx
from core.graphs import MLX, mlx_session, model, node, placed, relu, tensor

WEIGHT = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)  # 256 KiB
Child = Callable[..., Any]


def weighted() -> bytes:
    """Both kinds of constants: one wrapped, and one that is copied to another layout."""
    return model(
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Reshape", ["h", "s"], ["r"]),
            node("Conv", ["r", "k"], ["y"]),
        ],
        [tensor("x", shape=["n", 256])],
        [tensor("y")],
        {"w": WEIGHT, "s": np.array([-1, 16, 4, 4]), "k": WEIGHT.reshape(256, 16, 4, 4)},
    )


def resident_mib() -> float:
    gc.collect()
    return float(psutil.Process().memory_info().rss / 2**20)


@pytest.mark.timeout(180)
def test_memory_stays_flat_over_200_sessions() -> None:
    made = weighted()
    x = np.ones((2, 256), np.float32)

    def use(count: int) -> None:
        for _ in range(count):
            session = mlx_session(made)
            session.run(None, {"x": x})
            assert len(ort_mlx.report(session).plans) == 1

    use(40)
    grown = []
    for _ in range(3):  # what else this process does with its memory comes and goes
        before = resident_mib()
        use(200)
        grown.append(resident_mib() - before)
    # A leak of one session's weights would be 100 MiB each time, of its plans alone over 10 MiB.
    assert min(grown) < 8


@pytest.mark.timeout(180)
def test_memory_stays_flat_over_failing_sessions_and_runs() -> None:
    bad = model([node("Add", ["x", "z"], ["y"])], [tensor("x"), tensor("z")], [tensor("y")])
    session = mlx_session(bad)
    x = np.ones((512, 128), np.float32)

    def use(count: int) -> None:
        for _ in range(count):
            with pytest.raises(Exception, match="Add"):
                session.run(None, {"x": x, "z": x.T})
            with pytest.raises(Exception, match="strict"):
                mlx_session(with_text, strict=True)

    with_text = model(
        [node("StringNormalizer", ["s"], ["t"]), node("Add", ["x", "w"], ["y"])],
        [tensor("s", 8, ["n"]), tensor("x")],
        [tensor("t", 8), tensor("y")],
        {"w": WEIGHT},
    )
    use(20)
    before = resident_mib()
    use(200)
    assert resident_mib() - before < 8


def test_memory_stays_flat_over_runs_of_many_shapes() -> None:
    session = mlx_session(relu())

    def use(first: int, count: int) -> None:
        for n in range(first, first + count):
            session.run(None, {"x": np.ones((1 + n % 97, 64), np.float32)})

    use(0, 300)
    before = resident_mib()
    use(300, 2000)
    assert resident_mib() - before < 8


def test_outputs_outlive_their_session(x: np.ndarray) -> None:
    session = mlx_session(relu())
    outputs = [session.run(None, {"x": x * i})[0] for i in range(20)]
    del session
    gc.collect()
    mlx_session(relu()).run(None, {"x": x})
    for i, y in enumerate(outputs):
        np.testing.assert_array_equal(y, np.maximum(x * i, 0))


def test_inputs_may_be_gone_after_a_run(x: np.ndarray) -> None:
    session = mlx_session(relu())
    outputs = []
    for i in range(20):
        given = np.full((256, 256), i, np.float32)
        outputs.append(session.run(None, {"x": given})[0])
        del given
    assert [y[0, 0] for y in outputs] == list(range(20))


def test_a_report_may_outlive_its_session() -> None:
    session = mlx_session(weighted())
    session.run(None, {"x": np.ones((2, 256), np.float32)})
    report = ort_mlx.report(session)
    del session
    gc.collect()
    assert "1 partition" in str(report)


def test_a_session_works_after_unregister(x: np.ndarray) -> None:
    session = mlx_session(relu())
    ort_mlx.unregister()
    try:
        for _ in range(3):
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
        assert ort_mlx.report(session).taken == 1
        ort_mlx.register()
        other = mlx_session(relu())
        assert placed(other) == {MLX: {"Relu": 1}}
        for s in (session, other):
            np.testing.assert_array_equal(s.run(None, {"x": x})[0], np.maximum(x, 0))
    finally:
        ort_mlx.register()


EXITS = {
    "without a run": "s = mlx_session(relu())",
    "after a run": "s = mlx_session(relu()); check(s)",
    "with live outputs": "s = mlx_session(relu()); out = s.run(None, {'x': x}); del s",
    "with a live OrtValue": """
        s = mlx_session(relu())
        out = s.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(x)})
        """,
    "after unregister, with a session": "s = mlx_session(relu()); check(s); ort_mlx.unregister()",
    "after unregister and a run": """
        s = mlx_session(relu()); ort_mlx.unregister(); check(s)
        """,
    "after unregister without a session": "check(mlx_session(relu())); ort_mlx.unregister()",
    "with a report": "s = mlx_session(relu()); check(s); r = ort_mlx.report(s)",
    "inside everywhere": """
        on = ort_mlx.everywhere(device="cpu")
        s = ort.InferenceSession(relu()); check(s)
        """,
    "in a cycle": """
        class Holder: pass
        h = Holder(); h.h = h; h.s = mlx_session(relu()); check(h.s); del h
        """,
    "kept in a module": "import builtins as b; b.kept = mlx_session(relu()); check(b.kept)",
    "run in atexit": """
        import atexit
        s = mlx_session(relu()); atexit.register(lambda: check(s))
        """,
    "made in atexit": """
        import atexit
        atexit.register(lambda: check(mlx_session(relu())))
        """,
    "run while modules are torn down": """
        class Late:
            def __init__(self): self.s, self.x, self.np = mlx_session(relu()), x, np
            def __del__(self):
                try: self.s.run(None, {"x": self.x})
                except Exception: pass
        import builtins
        builtins.late = Late()
        """,
    "made in a thread": """
        import threading
        made = []
        t = threading.Thread(target=lambda: made.append(mlx_session(relu())))
        t.start(); t.join(); check(made[0])
        """,
    "by sys.exit in a thread's time": """
        import threading
        s = mlx_session(relu())
        t = threading.Thread(target=lambda: [check(s) for _ in range(200)])
        t.start(); sys.exit(0)
        """,
    "with MLX arrays": """
        import mlx.core as mx
        s = mlx_session(relu()); check(s); a = mx.arange(10) + 1; mx.eval(a)
        """,
    "after an error": """
        s = mlx_session(relu())
        ort_mlx._native.throw_in_callbacks(True)
        try: s.run(None, {"x": x})
        except Exception: pass
        else: raise SystemExit(3)
        """,
    "after a refused session": """
        text = [node("StringNormalizer", ["s"], ["t"])]
        m = model(text, [tensor("s", STRING, ["n"])], [tensor("t", STRING)])
        try: mlx_session(m, strict=True)
        except Exception: pass
        else: raise SystemExit(3)
        """,
}


@pytest.mark.parametrize("state", EXITS)
def test_the_interpreter_exits_well(state: str, child: Child) -> None:
    child(EXITS[state])


@pytest.mark.parametrize("provider", ["mlx", "cpu"])
def test_exit_while_a_daemon_thread_runs(provider: str, child: Child) -> None:
    """Python stops the thread inside ORT's binding, which aborts, with ORT's own provider too."""
    done = child(
        f"""
        import threading, time
        s = {provider}_session(relu())
        def forever():
            while True: s.run(None, {{"x": x}})
        for _ in range(3): threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.2)
        """,
        code=None,
        timeout=30,
    )
    assert done.returncode in (0, -signal.SIGABRT), done.stderr
