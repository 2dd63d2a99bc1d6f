"""Loops that become one node of a closure: the same values as ONNX Runtime's, without Python."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from core.graphs import BOOL, FLOAT, INT64, body, cpu_session, model, node, tensor
from core.routes import assert_same, compiled, counts, no_python, run
from ort_mlx import repeat as repeating

WIDTH = 3
COUNTED = [tensor("i", INT64, []), tensor("going", BOOL, [])]


@pytest.fixture(autouse=True)
def every_loop_is_repeated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """However short; the list fills with what was made of each loop."""
    made: list[Any] = []
    native = repeating._native.repeat

    def recorded(*arguments: Any, **keywords: Any) -> Any:
        made.append(keywords)
        return native(*arguments, **keywords)

    monkeypatch.setattr(repeating, "_WORTHWHILE", 0)
    monkeypatch.setattr(repeating._native, "repeat", recorded)
    return made


def one_closure(made: bytes, feed: dict[str, Any]) -> None:
    """As ORT CPU, in one closure that does without Python the second time."""
    session = compiled(made)
    wanted = run(cpu_session(made), feed)
    assert_same(run(session, feed), wanted, rtol=1e-4)
    with no_python():
        assert_same(run(session, feed), wanted, rtol=1e-4)
    added = counts(session)
    assert (added["traces"], added["failures"], added["eager_runs"]) == (1, 0, 0)


def graph(kind: str, nodes: Any, carried: int, scanned: int, rows: list[str], trips: int) -> Any:
    """A model around one Loop or Scan: `x` comes from outside, `s0`, ... is carried."""
    shape = [WIDTH]
    states = [f"s{k}" for k in range(carried)]
    sources = [f"u{k}" for k in range(scanned)]
    ends = [tensor(f"t{k}", FLOAT, shape) for k in range(carried)]
    stacked = [tensor(r, FLOAT, shape) for r in rows]
    outputs = [*(f"y{k}" for k in range(carried)), *(f"z{k}" for k in range(len(rows)))]
    entries = [tensor(n, FLOAT, shape) for n in (*states, *sources)]
    if kind == "Scan":
        inner = body(nodes, entries, [*ends, *stacked])
        outer = node(
            "Scan",
            [*(f"{n}i" for n in states), *(f"{n}i" for n in sources)],
            outputs,
            body=inner,
            num_scan_inputs=scanned,
        )
    else:
        nodes = [*nodes, node("Identity", ["going"], ["still"])]
        inner = body(nodes, [*COUNTED, *entries], [tensor("still", BOOL, []), *ends, *stacked])
        outer = node("Loop", ["n", "", *(f"{n}i" for n in states)], outputs, body=inner)
    inputs = [tensor("x", FLOAT, shape)]
    inputs += [tensor(f"{n}i", FLOAT, shape) for n in states]
    inputs += [tensor(f"{n}i", FLOAT, [trips, WIDTH]) for n in sources]
    return model(
        [node("Sin", ["x"], ["outside"]), outer],
        inputs,
        [tensor(o) for o in outputs],
        {"n": np.array(trips), "w": np.linspace(-1, 1, WIDTH, dtype=np.float32)},
    )


@st.composite
def loops(draw: Any) -> tuple[bytes, dict[str, Any]]:
    """Bodies of elementwise steps over carried values, rows, values from outside and constants."""
    kind = draw(st.sampled_from(["Loop", "Scan"]))
    carried = draw(st.integers(0 if kind == "Scan" else 1, 3))
    scanned = draw(st.integers(1, 2)) if kind == "Scan" else 0
    known = [f"s{k}" for k in range(carried)] + [f"u{k}" for k in range(scanned)]
    known += ["x", "outside", "w"]
    nodes = []
    for k in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from(["Add", "Sub", "Max", "Tanh", "Neg", "Identity"]))
        count = 2 if op in ("Add", "Sub", "Max") else 1
        nodes.append(node(op, [draw(st.sampled_from(known)) for _ in range(count)], [f"v{k}"]))
        known.append(f"v{k}")
    values = [v for v in known if v != "w"]
    nodes += [  # Tanh, so that nothing overflows
        node("Tanh", [draw(st.sampled_from(values))], [f"t{k}"]) for k in range(carried)
    ]
    ends = [f"t{k}" for k in range(carried)]
    rows = []
    for k in range(draw(st.integers(0 if carried else 1, 2))):
        nodes.append(node("Identity", [draw(st.sampled_from([*values, *ends]))], [f"r{k}"]))
        rows.append(f"r{k}")
    trips = draw(st.integers(1, 9))
    seed = np.random.default_rng(draw(st.integers(0, 99)))
    feed = {name: seed.standard_normal(WIDTH).astype(np.float32) for name in ("x",)}
    feed |= {f"s{k}i": seed.standard_normal(WIDTH).astype(np.float32) for k in range(carried)}
    feed |= {
        f"u{k}i": seed.standard_normal((trips, WIDTH)).astype(np.float32) for k in range(scanned)
    }
    return graph(kind, nodes, carried, scanned, rows, trips), feed


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(loops())
def test_random_loops(every_loop_is_repeated: list[Any], case: tuple[bytes, Any]) -> None:
    every_loop_is_repeated.clear()
    one_closure(*case)
    assert every_loop_is_repeated


@pytest.mark.parametrize("trips", [100, 5])
def test_an_end_that_data_decides(monkeypatch: pytest.MonkeyPatch, trips: int) -> None:
    monkeypatch.undo()  # however short it is, since unrolled it would need the data
    nodes = [
        node("Add", ["s", "x"], ["t"]),
        node("ReduceMax", ["t"], ["m"], keepdims=0),
        node("Less", ["m", "limit"], ["more"]),
    ]
    inner = body(nodes, [*COUNTED, tensor("s")], [tensor("more", BOOL, []), tensor("t")])
    made = model(
        [node("Loop", ["n", "", "x"], ["y"], body=inner)],
        [tensor("x", FLOAT, ["a", "b"])],
        [tensor("y")],
        {"n": np.array(trips), "limit": np.array(7.5, np.float32)},
    )
    one_closure(made, {"x": np.ones((2, 3), np.float32)})


def test_the_number_of_the_iteration_and_an_empty_row() -> None:
    nodes = [
        node("Cast", ["i"], ["f"], to=FLOAT),
        node("Add", ["s", "f"], ["t"]),
        node("Identity", ["none"], ["r"]),
        node("Identity", ["going"], ["still"]),
    ]
    inner = body(
        nodes,
        [*COUNTED, tensor("s", FLOAT, [2])],
        [tensor("still", BOOL, []), tensor("t", FLOAT, [2]), tensor("r", FLOAT, [0])],
    )
    made = model(
        [node("Loop", ["n", "", "x"], ["y", "z"], body=inner)],
        [tensor("x", FLOAT, [2]), tensor("none", FLOAT, [0])],
        [tensor("y"), tensor("z")],
        {"n": np.array(20)},
    )
    one_closure(made, {"x": np.ones(2, np.float32), "none": np.zeros(0, np.float32)})


def test_loops_inside_loops(every_loop_is_repeated: list[Any]) -> None:
    inner = body(
        [
            node("Mul", ["p", "outer"], ["q0"]),
            node("Sin", ["q0"], ["q"]),
            node("Identity", ["g"], ["h"]),
        ],
        [tensor("j", INT64, []), tensor("g", BOOL, []), tensor("p", FLOAT, [3])],
        [tensor("h", BOOL, []), tensor("q", FLOAT, [3]), tensor("q", FLOAT, [3])],
    )
    middle = body(
        [
            node("Add", ["s", "x"], ["outer"]),
            node("Loop", ["n", "", "s"], ["t", "rows"], body=inner),
            node("ReduceSum", ["rows", "zero"], ["sum"], keepdims=0),
            node("Identity", ["going"], ["still"]),
        ],
        [*COUNTED, tensor("s", FLOAT, [3])],
        [tensor("still", BOOL, []), tensor("t", FLOAT, [3]), tensor("sum", FLOAT, [3])],
    )
    made = model(
        [node("Loop", ["n", "", "x"], ["y", "z"], body=middle)],
        [tensor("x", FLOAT, [3])],
        [tensor("y"), tensor("z")],
        {"n": np.array(6), "zero": np.array([0])},
    )
    one_closure(made, {"x": np.linspace(-1, 2, 3, dtype=np.float32)})
    assert len(every_loop_is_repeated) == 2


def test_a_number_from_a_body_that_steers_the_graph_after_it(
    every_loop_is_repeated: list[Any],
) -> None:
    """Only unrolled it is known in a trace."""
    nodes = [node("Add", ["three", "one"], ["d"]), node("Identity", ["yes"], ["still"])]
    inner = body(
        nodes,
        [*COUNTED, tensor("c", INT64, [1])],
        [tensor("still", BOOL, []), tensor("d", INT64, [1])],
    )
    made = model(
        [
            node("Loop", ["n", "", "one"], ["count"], body=inner),
            node("Expand", ["x", "count"], ["y"]),
        ],
        [tensor("x", FLOAT, [1])],
        [tensor("y")],
        {"n": np.array(4), "one": np.array([1]), "three": np.array([3]), "yes": np.array(True)},
    )
    one_closure(made, {"x": np.ones(1, np.float32)})
    assert not every_loop_is_repeated


def test_a_trip_number_that_steers_the_graph_after_the_loop(
    every_loop_is_repeated: list[Any],
) -> None:
    nodes = [
        node("Unsqueeze", ["i", "zero"], ["j"]),
        node("Add", ["j", "one"], ["d"]),
        node("Identity", ["yes"], ["still"]),
    ]
    inner = body(
        nodes,
        [*COUNTED, tensor("c", INT64, [1])],
        [tensor("still", BOOL, []), tensor("d", INT64, [1])],
    )
    made = model(
        [
            node("Loop", ["n", "", "one"], ["count"], body=inner),
            node("Expand", ["x", "count"], ["y"]),
        ],
        [tensor("x", FLOAT, [1])],
        [tensor("y")],
        {"n": np.array(4), "one": np.array([1]), "zero": np.array([0]), "yes": np.array(True)},
    )
    one_closure(made, {"x": np.ones(1, np.float32)})
    assert not every_loop_is_repeated


def test_a_loop_that_is_part_of_a_plan_in_stretches(every_loop_is_repeated: list[Any]) -> None:
    """Its trip count is data; it runs without Python from the first iteration to the last."""
    nodes = [node("Mul", ["s", "w"], ["t"]), node("Identity", ["going"], ["still"])]
    inner = body(
        nodes,
        [*COUNTED, tensor("s", FLOAT, [2])],
        [tensor("still", BOOL, []), tensor("t", FLOAT, [2])],
    )
    made = model(
        [
            node("ReduceSum", ["x"], ["total"], keepdims=0),
            node("Cast", ["total"], ["n"], to=INT64),
            node("Loop", ["n", "", "x"], ["y"], body=inner),
        ],
        [tensor("x", FLOAT, [2])],
        [tensor("y")],
        {"w": np.array([0.5, 1.5], np.float32)},
    )
    session, reference = compiled(made), cpu_session(made)
    for x in ([1, 2], [4, 4], [0, 0]):
        feed = {"x": np.array(x, np.float32)}
        assert_same(run(session, feed), run(reference, feed))
    assert counts(session)["failures"] == 0
    assert [k["trips"] for k in every_loop_is_repeated] == [3, 8]
