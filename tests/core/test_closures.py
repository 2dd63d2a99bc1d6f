"""Closures: bounded, evicted in order, replayed without Python and from any thread."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given

import ort_mlx
from core.graphs import FLOAT, INT64, cpu_session, mlx_session, model, node, tensor
from core.routes import Both, assert_same, compiled, counted, counts, no_python, run
from ort_mlx import _native

TESTS = Path(__file__).parents[1]


def mixed() -> bytes:
    """Shape arithmetic, a product, a constant and a reduction."""
    rng = np.random.default_rng(0)
    return model(
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Shape", ["h"], ["s"]),
            node("ConstantOfShape", ["s"], ["zeros"]),
            node("Max", ["h", "zeros"], ["r"]),
            node("Softmax", ["r"], ["p"], axis=-1),
            node("ReduceSum", ["p"], ["y"], keepdims=0),
        ],
        [tensor("x", FLOAT, ["n", 8])],
        [tensor("p"), tensor("y")],
        {"w": rng.standard_normal((8, 12)).astype(np.float32)},
    )


def rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)}


# --- replay ---------------------------------------------------------------------------------------


def test_ten_thousand_runs_without_python() -> None:
    session = compiled(mixed())
    wanted = {n: run(session, rows(n)) for n in (1, 2, 5, 0)}
    with no_python():
        for _ in range(2500):
            for n, results in wanted.items():
                got = session.run(None, rows(n))
                assert np.array_equal(got[0], results[0])
    added = counts(session)
    assert (added["traces"], added["hits"], added["eager_runs"]) == (4, 10_000, 0)


def test_a_steady_run_enters_python_on_no_route_but_the_eager_one() -> None:
    eagerly = compiled(mixed(), routes=())
    run(eagerly, rows(3))
    with pytest.raises(AssertionError, match="1 entries"), no_python():
        run(eagerly, rows(3))
    assert counts(eagerly)["eager_runs"] == 2


@contextmanager
def burning_the_gil() -> Iterator[None]:
    """A thread that never lets go of the GIL by itself."""
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=burn)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_eight_threads_beside_one_that_burns_the_gil() -> None:
    """Every Run of every thread is a replay: right, and without Python."""
    sessions = [compiled(mixed()) for _ in range(8)]
    wanted = [run(s, rows(4 + i)) for i, s in enumerate(sessions)]
    start = threading.Barrier(9)

    def work(index: int) -> None:
        start.wait()
        for _ in range(40):
            assert_same(run(sessions[index], rows(4 + index)), wanted[index])

    with burning_the_gil(), ThreadPoolExecutor(8) as pool:
        tasks = [pool.submit(work, i) for i in range(8)]
        with no_python():
            start.wait()
            for task in tasks:
                task.result(timeout=120)
    assert all(counts(s)["traces"] == 1 and counts(s)["hits"] == 40 for s in sessions)


def test_a_closure_traced_on_one_thread_is_replayed_on_others() -> None:
    session = compiled(mixed())
    with ThreadPoolExecutor(1) as pool:
        wanted = pool.submit(run, session, rows(6)).result()
    for _ in range(4):
        with ThreadPoolExecutor(1) as pool:
            assert_same(pool.submit(run, session, rows(6)).result(), wanted)
    assert counts(session)["traces"] == 1


# --- bounds ---------------------------------------------------------------------------------------


@given(
    st.integers(1, 5),
    st.lists(st.integers(0, 7), min_size=1, max_size=40),
)
def test_the_least_recent_closure_goes_first(limit: int, lengths: list[int]) -> None:
    """Against a model of the cache: which Runs hit, how many closures are held and evicted."""
    session = compiled(mixed(), max_closures=limit, routes=["general"])
    held: list[int] = []
    evicted = 0
    for n in lengths:
        with counted(session) as added:
            run(session, rows(n))
        assert added["hits"] == (n in held)
        assert added["traces"] == added["misses"] == (n not in held)
        held = [n, *(h for h in held if h != n)]
        evicted += max(0, len(held) - limit)
        held = held[:limit]
    assert counts(session)["evictions"] == evicted
    assert len(ort_mlx.report(session).closures) == len(held)


def test_closures_are_bounded_in_bytes() -> None:
    """What a closure folds itself counts; the newest one always stays."""
    made = model(
        [
            node("Shape", ["x"], ["s"]),
            node("ConstantOfShape", ["s"], ["c"]),
            node("Add", ["x", "c"], ["y"]),
        ],
        [tensor("x", FLOAT, ["n"])],
        [tensor("y")],
    )
    free = compiled(made, routes=["general"])
    sizes = []
    for n in range(1, 11):
        run(free, {"x": np.ones(n, np.float32)})
        sizes.append(ort_mlx.report(free).closures.nbytes)
    assert sizes == sorted(sizes)
    one = sizes[0]
    session = compiled(made, routes=["general"], max_closure_bytes=int(3.5 * one))
    for n in range(1, 11):
        run(session, {"x": np.ones(n, np.float32)})
        closures = ort_mlx.report(session).closures
        assert closures.nbytes <= 3.5 * one
    assert len(closures) < 10
    assert counts(session)["evictions"] == 10 - len(closures)
    tiny = compiled(made, max_closure_bytes=1)
    for n in (1, 2, 2):
        run(tiny, {"x": np.ones(n, np.float32)})
    assert len(ort_mlx.report(tiny).closures) == 1
    assert counts(tiny)["hits"] == 1


def test_an_evicted_closure_says_so_when_it_is_traced_again() -> None:
    session = compiled(mixed(), max_closures=1)
    for n in (1, 2, 1):
        run(session, rows(n))
    assert "'x' has shape [1, 8] after [2, 8]" in ort_mlx.report(session).misses
    with counted(session) as added:
        run(session, rows(1))
    assert added["hits"] == 1


def test_closures_can_be_dropped() -> None:
    session = compiled(mixed())
    wanted = run(session, rows(3))
    ort_mlx.report(session).closures.clear()
    assert_same(run(session, rows(3)), wanted)
    assert counts(session)["traces"] == 2
    assert ort_mlx.report(session).misses[-1] == "its closure was evicted or had failed"


def test_warmup_traces_ahead() -> None:
    session = compiled(mixed())
    ort_mlx.warmup(session, {"x": (5, 8)})
    with counted(session) as added, no_python():
        got = run(session, rows(5))
    assert (added["hits"], added["traces"]) == (1, 0)
    assert_same(got, run(cpu_session(mixed()), rows(5)))


def test_warmup_takes_values_that_steer() -> None:
    made = model(
        [node("Reshape", ["x", "s"], ["t"]), node("Neg", ["t"], ["y"])],
        [tensor("x", FLOAT, ["n"]), tensor("s", INT64, [2])],
        [tensor("y")],
    )
    session = compiled(made)
    ort_mlx.warmup(session, {"x": (6,), "s": np.array([2, 3])})
    with counted(session) as added:
        run(session, {"x": np.ones(6, np.float32), "s": np.array([2, 3])})
        run(session, {"x": np.ones(6, np.float32), "s": np.array([3, 2])})
    assert (added["hits"], added["traces"]) == (1, 1)


# --- routes ---------------------------------------------------------------------------------------


def test_routes_are_options_and_an_environment_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = run(cpu_session(mixed()), rows(3))

    def ways(**options: Any) -> tuple[int, int, int]:
        session = mlx_session(mixed(), **options)
        for n in range(3, 11):
            got = run(session, rows(n))
            if n == 3:
                assert_same(got, wanted)
        made = counts(session)
        return made["traces"], made["hits"], made["eager_runs"]

    assert ways(routes=()) == (0, 0, 8)
    assert ways(routes=["general"]) == (8, 0, 0)
    assert ways()[2] == 0
    assert ways()[0] < 8, "a growing length needs no closure of its own for each step"
    monkeypatch.setenv("ORT_MLX_ROUTES", "")
    assert ways() == (0, 0, 8)
    monkeypatch.setenv("ORT_MLX_ROUTES", "general")
    assert ways() == (8, 0, 0)
    assert ways(routes="") == (0, 0, 8), "the session's own option holds"


def test_constants_are_folded_and_shape_arithmetic_costs_nothing() -> None:
    """The closure of a graph that is mostly shape arithmetic holds the one node that is not."""
    nodes = [
        node("Shape", ["x"], ["s0"]),
        *(node("Mul", [f"s{i}", "ones"], [f"s{i + 1}"]) for i in range(50)),
        node("Exp", ["k"], ["ek"]),
        node("Expand", ["ek", "s50"], ["e"]),
        node("Add", ["x", "e"], ["y"]),
    ]
    made = model(
        nodes,
        [tensor("x", FLOAT, ["a", "b"])],
        [tensor("y")],
        {"ones": np.array([1, 1]), "k": np.array([0.5], np.float32)},
    )
    both = Both(made)
    both.run({"x": np.ones((3, 4), np.float32)})
    one = Both(model([node("Neg", ["x"], ["y"])], [tensor("x", FLOAT, ["a", "b"])], [tensor("y")]))
    one.run({"x": np.ones((3, 4), np.float32)})
    tape = ort_mlx.report(both.compiled).closures.nbytes
    assert tape < 5 * ort_mlx.report(one.compiled).closures.nbytes


# --- the native classes ---------------------------------------------------------------------------


def captured(fn: Any, *like: mx.array) -> _native.Closure:
    placeholders = [_native.placeholder(a) for a in like]
    outputs = fn(*placeholders)
    return _native.capture(placeholders, outputs if isinstance(outputs, list) else [outputs])


def test_capture_merges_and_folds() -> None:
    x = mx.ones((2, 3))
    k = mx.array(2.0)
    twice = captured(lambda a: [mx.exp(a) + mx.exp(a), mx.exp(a)], x)
    assert twice.node_count == 2
    folded = captured(lambda a: a + mx.exp(k) * 3, x)
    assert folded.node_count <= 2  # the sum, and perhaps a broadcast
    got = folded.replay([x])[0]
    assert np.allclose(np.array(got), np.array(x + mx.exp(k) * 3))


def test_capture_keeps_outputs_that_are_inputs_or_constants() -> None:
    x, k = mx.ones((2,)), mx.array([5.0])
    closure = captured(lambda a: [a, k, a], x)
    assert closure.node_count == 0
    first, second, third = closure.replay([x * 3])
    assert first.tolist() == third.tolist() == [3, 3]
    assert second.tolist() == [5]


def test_capture_of_primitives_with_several_outputs() -> None:
    x = mx.arange(6.0).reshape(6, 1)
    closure = captured(lambda a: [*mx.split(a, 3), mx.divmod(a, mx.array(4.0))[1]], x)
    got = closure.replay([x + 1])
    assert [g.tolist() for g in got[:3]] == [[[1], [2]], [[3], [4]], [[5], [6]]]
    assert got[3].tolist() == [[1], [2], [3], [0], [1], [2]]


def test_capture_of_a_long_chain_does_not_recurse() -> None:
    x = mx.ones((2,))

    def chain(a: mx.array) -> mx.array:
        for _ in range(100_000):
            a = -a
        return a

    closure = captured(chain, x)
    assert closure.node_count == 100_000
    assert closure.replay([x])[0].tolist() == [1, 1]


def test_a_placeholder_of_another_trace_is_refused() -> None:
    mine, other = _native.placeholder(mx.ones((2,))), _native.placeholder(mx.ones((2,)))
    with pytest.raises(RuntimeError, match="placeholder of another trace"):
        _native.capture([mine], [mine + other])


def test_the_cache_by_itself() -> None:
    cache = _native.ClosureCache(2, 1 << 20)
    closures = {k: captured(lambda a: -a, mx.ones((2,))) for k in (b"a", b"b", b"c")}
    for key, closure in closures.items():
        assert cache.find(key) is None
        cache.insert(key, closure)
    assert cache.find(b"a") is None  # the first was the least recent
    assert cache.find(b"b") is not None
    cache.insert(b"a", closures[b"a"])
    assert cache.find(b"c") is None
    assert len(cache) == 2
    cache.insert(b"a", closures[b"c"])  # replaces
    assert len(cache) == 2
    assert cache.find(b"") is None
    assert cache.find(b"a\0") is None, "the length is part of a key"
    assert cache.counts()["evictions"] == 2
    cache.clear()
    assert (len(cache), cache.nbytes) == (0, 0)


# --- the CPU backend compiles nothing -------------------------------------------------------------


def test_no_compiler_and_no_temporary_files(tmp_path: Path) -> None:
    """An empty PATH, and a temporary folder that stays empty; spawning anything is an error."""
    code = f"""
    import os, sys
    sys.path[:0] = {[str(TESTS), *filter(None, sys.path)]!r}
    def watch(event, args):
        if event in ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec"):
            raise SystemExit(f"started: {{event}} {{args}}")
    import numpy as np
    from core.graphs import *
    from core.test_closures import mixed, rows
    sys.addaudithook(watch)
    session = mlx_session(mixed())
    for n in (1, 3, 3, 5, 7, 9):
        session.run(None, rows(n))
    assert ort_mlx.report(session).counts["failures"] == 0
    """
    temporary, home = tmp_path / "temporary", tmp_path / "home"  # ORT writes into the latter
    for folder in (temporary, home):
        folder.mkdir()
    environment = {k: v for k, v in os.environ.items() if k not in ("PATH", "CXX", "CC")}
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**environment, "PATH": "", "TMPDIR": str(temporary), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert [p.name for p in temporary.iterdir() if p.name != ".ses"] == []  # that is ORT's own
