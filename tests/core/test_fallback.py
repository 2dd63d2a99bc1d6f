"""When a closure fails: that Run goes step by step, is reported, and a closure is tried later.

The failures are injected where they would arise: in an op's body while it is traced, and in a
primitive that fails when it is evaluated.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import ort_mlx
from core.graphs import BOOL, FLOAT, INT64, body, model, node, tensor
from core.routes import compiled, counted, counts, eager, no_python, run
from native.conftest import Child, child
from ort_mlx import registry
from ort_mlx.attempts import Backoff
from ort_mlx.tracing import is_tracing

__all__ = ["child"]

X = np.array([[1, -2, 3]], np.float32)


class Fault:
    """Breaks an op in traces while it is `on`; counts the traces that met it."""

    def __init__(self, fail: Callable[[mx.array], mx.array]) -> None:
        self.on = True
        self.met = 0
        self._fail = fail

    def put_into(self, monkeypatch: pytest.MonkeyPatch, op_type: str) -> None:
        registry.all_ops()
        for key, made in list(registry._OPS.items()):
            if key[:2] == ("", op_type):
                broken = dataclasses.replace(made, fn=self._wrapped(made.fn))
                monkeypatch.setitem(registry._OPS, key, broken)

    def _wrapped(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def broken(x: mx.array, *rest: Any, **attributes: Any) -> Any:
            if self.on and is_tracing():
                self.met += 1
                return self._fail(x)
            return fn(x, *rest, **attributes)

        return broken


def raising(error: Exception) -> Callable[[mx.array], mx.array]:
    def fail(x: mx.array) -> mx.array:
        raise error

    return fail


def failing_in_eval(x: mx.array) -> mx.array:
    """MLX takes this while the graph is made and refuses it in eval."""
    weights = mx.quantize(mx.ones((64, 64)))
    wide = mx.broadcast_to(x.reshape(-1)[:1], (2, 64)).astype(mx.float64)
    return mx.quantized_matmul(wide, *weights).sum().astype(x.dtype) + x


def reading_a_value(x: mx.array) -> mx.array:
    return x * float(x.sum().item())


FAULTS = {
    "RuntimeError": raising(RuntimeError("no luck")),
    "ValueError": raising(ValueError("no luck")),
    "TypeError": raising(TypeError("no luck")),
    "MemoryError": raising(MemoryError("no luck")),
    "in eval": failing_in_eval,
    "a value read": reading_a_value,
}


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fault]:
    made = Fault(FAULTS[request.param])
    made.put_into(monkeypatch, "Abs")
    yield made
    made.on = False


def whole() -> bytes:
    """One closure serves it."""
    return model(
        [node("Neg", ["x"], ["n"]), node("Abs", ["n"], ["a"]), node("Exp", ["a"], ["y"])],
        [tensor("x", FLOAT, ["a", "b"])],
        [tensor("n"), tensor("y")],
    )


def in_stretches() -> bytes:
    """Data decides a shape in the middle; two steps before it and two after."""
    return model(
        [
            node("Neg", ["x"], ["n"]),
            node("Abs", ["n"], ["a"]),
            node("Greater", ["x", "zero"], ["p"]),
            node("NonZero", ["p"], ["i"]),
            node("Transpose", ["i"], ["it"]),
            node("GatherND", ["a", "it"], ["g"]),
            node("Exp", ["g"], ["y"]),
        ],
        [tensor("x", FLOAT, ["a", "b"])],
        [tensor("n"), tensor("y")],
        {"zero": np.array(0, np.float32)},
    )


def in_a_loop() -> bytes:
    inner = body(
        [
            node("Neg", ["s"], ["n"]),
            node("Abs", ["n"], ["a"]),
            node("Add", ["a", "x"], ["t"]),
            node("ReduceSum", ["t"], ["total"], keepdims=0),
            node("Less", ["total", "limit"], ["still"]),
        ],
        [tensor("i", INT64, []), tensor("going", BOOL, []), tensor("s")],
        [tensor("still", BOOL), tensor("t")],
    )
    return model(
        [node("Loop", ["", "", "x"], ["y"], body=inner)],
        [tensor("x", FLOAT, ["a", "b"])],
        [tensor("y")],
        {"limit": np.array(40, np.float32)},
    )


MODELS = {"whole": whole, "in stretches": in_stretches, "in a loop": in_a_loop}


@pytest.fixture(params=MODELS)
def made(request: pytest.FixtureRequest) -> bytes:
    return MODELS[request.param]()


def test_every_run_is_right_and_tries_are_further_and_further_apart(
    fault: Fault, made: bytes
) -> None:
    session = compiled(made)
    wanted = run(eager(made), {"x": X})
    met = []
    for i in range(16):
        before = fault.met
        for got, want in zip(run(session, {"x": X}), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)
        if fault.met > before:
            met.append(i)
    assert met == [0, 2, 5, 10]  # 1, 2 and 4 Runs are let go by
    after = counts(session)
    assert after["failures"] == 4
    assert after["eager_runs"] == 16
    fault.on = False  # mended: the next try succeeds, and then all Runs are replays
    for _ in range(20):
        run(session, {"x": X})
    with counted(session) as added:
        assert_all_close(run(session, {"x": X}), wanted)
    assert added["misses"] == added["failures"] == 0
    assert added["hits"] > 0


def assert_all_close(got: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6)


def test_a_failure_is_reported(fault: Fault, made: bytes) -> None:
    session = compiled(made)
    run(session, {"x": X})
    report = ort_mlx.report(session)
    (text,) = report.failures
    assert text
    assert f"failed: {text}" in str(report)
    assert "1 failures" in str(report)


def test_other_keys_keep_their_closures(fault: Fault) -> None:
    """A failure costs the closure of its own key only."""
    fault.on = False
    session = compiled(whole())
    run(session, {"x": X})
    fault.on = True
    other = np.ones((2, 2), np.float32)
    run(session, {"x": other})
    fault.on = False
    run(session, {"x": X})  # let go by
    with counted(session) as added, no_python():
        run(session, {"x": X})
    assert added["hits"] == 1


def test_success_ends_the_waiting(fault: Fault) -> None:
    """A failure after a success waits for one Run again, not longer."""
    session = compiled(whole())
    for _ in range(3):  # fails, is let go by, fails
        run(session, {"x": X})
    fault.on = False
    for _ in range(3):  # twice let go by, succeeds
        run(session, {"x": X})
    with counted(session) as added:
        run(session, {"x": X})
    assert added["hits"] == 1
    fault.on = True
    other = np.ones((2, 2), np.float32)
    with counted(session) as added:
        for _ in range(3):  # fails, is let go by, fails
            run(session, {"x": other})
    assert added["failures"] == 2


@pytest.mark.parametrize("build", [whole, in_stretches], ids=["whole", "in stretches"])
def test_a_users_mistake_is_no_failure(build: Callable[[], bytes]) -> None:
    """It is an error of the Run, counts for nothing, and leaves closures as they were."""
    made = model(
        [
            node("Add", ["x", "z"], ["s"], name="sum"),
            node("Neg", ["s"], ["t"]),
            *([] if build is whole else [node("NonZero", ["t"], ["y"])]),
        ],
        [tensor("x", FLOAT, ["a", "b"]), tensor("z", FLOAT, ["c", "d"])],
        [tensor("t"), *([] if build is whole else [tensor("y", INT64)])],
    )
    session = compiled(made)
    good = {"x": X, "z": X}
    wanted = run(session, good)
    for _ in range(5):
        with pytest.raises(Exception, match=r"\[Add 'sum'\].*float32\[1, 3\]"):
            run(session, {"x": X, "z": np.ones((2, 2), np.float32)})
        with counted(session) as added:
            assert_all_close(run(session, good), wanted)
        assert added["hits"] == 1
    after = counts(session)
    assert after["failures"] == 0
    assert ort_mlx.report(session).failures == []


def test_failures_in_eval_leave_nothing_behind(child: Child) -> None:
    """MLX keeps an error for whoever uses the stream next, and forgets to count tasks down."""
    done = child(
        """
        import threading
        import pytest
        from core.routes import compiled, eager, run
        from core.test_fallback import X, Fault, failing_in_eval, in_a_loop, in_stretches, whole

        fault = Fault(failing_in_eval)
        fault.put_into(pytest.MonkeyPatch(), "Abs")
        names = ["x", *(f"v{i}" for i in range(300))]
        long = model(
            [node("CumSum", [a, "axis"], [b]) for a, b in zip(names, names[1:])],
            [tensor("x", FLOAT, ["a", "b"])], [tensor(names[-1])], {"axis": np.array(0)},
        )
        def fail():
            for made in (whole(), in_stretches(), in_a_loop()):
                for _ in range(8):
                    session = compiled(made)
                    for _ in range(8):
                        run(session, {"x": X})
        def work():
            for make in (eager, compiled):
                np.testing.assert_array_equal(run(make(long), {"x": X})[0], X)
        for _ in range(2):
            fail()
            work()
            thread = threading.Thread(target=fail)
            thread.start()
            work()
            thread.join()
            work()
        print("fine", fault.met)
        """
    )
    text, met = done.stdout.split()
    assert text == "fine"
    assert int(met) > 100


def test_the_distance_between_tries() -> None:
    backoff = Backoff()
    tried = []
    for i in range(5000):
        if backoff.may_try():
            tried.append(i)
            backoff.failed()
    gaps = [b - a - 1 for a, b in pairwise(tried)]
    assert gaps[:11] == [2**n for n in range(11)]
    assert set(gaps[11:]) <= {1024}
    backoff.succeeded()
    while not backoff.may_try():
        pass
    backoff.failed()
    assert [backoff.may_try(), backoff.may_try()] == [False, True]
