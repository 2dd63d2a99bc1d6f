"""Plans that need data on the way: closures between the steps that read it, bodies compiled once.

Loops, branches and Scans as they run, whether one closure serves them or several, and how they
stop.
"""

# longer than 400 lines: loops, branches and Scans, each as one closure and as several

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given

import ort_mlx
from core.graphs import BOOL, FLOAT, INT64, body, cpu_session, model, node, tensor
from core.routes import Both, assert_same, compiled, counted, counts, no_python, run
from native.conftest import Child, child
from ort_mlx.compiled import Stretch, split

__all__ = ["child"]

X = np.array([[1, -2, 3], [-4, 5, 0.5]], np.float32)
TRIP = [tensor("i", INT64, []), tensor("going", BOOL, [])]


def arange(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape), dtype=np.float32) / 7 - 1).reshape(shape)


def against_ort(made: bytes, *feeds: dict[str, Any], turns: int = 2, **options: Any) -> Any:
    """Run each feed in turns; results are ORT CPU's, and later turns trace nothing."""
    session, reference = compiled(made, **options), cpu_session(made)
    wanted = [run(reference, feed) for feed in feeds]
    for turn in range(turns):
        for feed, want in zip(feeds, wanted, strict=True):
            with counted(session) as added:
                assert_same(run(session, feed), want, rtol=1e-4)
            assert added["failures"] == 0
            assert turn == 0 or added["traces"] == 0
    return session


# --- branches -------------------------------------------------------------------------------------


def choice_on_data() -> bytes:
    def side(*ops: str) -> Any:
        names = ["n", *(f"{ops[0]}{i}" for i in range(len(ops) - 1)), f"{ops[0]}out"]
        nodes = [node(op, [a], [b]) for op, a, b in zip(ops, names, names[1:], strict=False)]
        return body(nodes, [], [tensor(names[-1])])

    return model(
        [
            node("Neg", ["x"], ["n"]),
            node("ReduceSum", ["n"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], ["c"]),
            node(
                "If", ["c"], ["b"], then_branch=side("Abs", "Sqrt"), else_branch=side("Sin", "Exp")
            ),
            node("Add", ["b", "x"], ["s"]),
            node("Neg", ["s"], ["y"]),
        ],
        [tensor("x", FLOAT, ["a", "b"])],
        [tensor("y"), tensor("c", BOOL)],
        {"zero": np.array(0, np.float32)},
    )


def test_both_branches_of_a_condition_on_data_stay_compiled() -> None:
    session = against_ort(choice_on_data(), {"x": X}, {"x": -X}, turns=3)
    assert counts(session)["traces"] == 4  # before, each branch, after
    assert "needs a value on the host" in ort_mlx.report(session).eager_reasons[0]


def test_branches_chosen_by_an_input_are_specialised() -> None:
    then = body([node("Neg", ["x"], ["t"])], [], [tensor("t")])
    otherwise = body([node("Identity", ["x"], ["u"])], [], [tensor("u")])
    made = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)],
        [tensor("c", BOOL, []), tensor("x", FLOAT, ["a", "b"])],
        [tensor("y")],
    )
    feeds = [{"c": np.array(c), "x": X} for c in (True, False)]
    session = against_ort(made, *feeds)
    assert counts(session)["traces"] == 2
    with no_python():
        for feed in feeds * 5:
            run(session, feed)


def test_a_branch_on_data_inside_a_branch_on_data() -> None:
    def test(name: str, limit: str) -> list[Any]:
        return [
            node("ReduceMax", ["x"], [f"{name}m"], keepdims=0),
            node("Less", [f"{name}m", limit], [name]),
        ]

    inner = [
        *test("small", "four"),
        node(
            "If",
            ["small"],
            ["r"],
            then_branch=body([node("Sin", ["x"], ["p"])], [], [tensor("p")]),
            else_branch=body([node("Cos", ["x"], ["q"])], [], [tensor("q")]),
        ),
    ]
    outer = node(
        "If",
        ["tiny"],
        ["y"],
        then_branch=body([node("Identity", ["x"], ["t"])], [], [tensor("t")]),
        else_branch=body(inner, [], [tensor("r")]),
    )
    made = model(
        [*test("tiny", "one"), outer],
        [tensor("x", FLOAT, ["a", "b"])],
        [tensor("y")],
        {"one": np.array(1, np.float32), "four": np.array(4, np.float32)},
    )
    against_ort(made, {"x": X / 9}, {"x": X}, {"x": X / 2}, turns=3)


# --- loops ----------------------------------------------------------------------------------------


def loop(nodes: Any, carried: Any, outputs: Any, going: str | None = None) -> Any:
    keep = [] if going else [node("Identity", ["going"], ["still"])]
    return body([*nodes, *keep], [*TRIP, *carried], [tensor(going or "still", BOOL), *outputs])


def repeated(trips: Any = None) -> bytes:
    """Y = x + trips * x, rounding aside; `trips` makes the count a constant."""
    inner = loop([node("Add", ["s", "x"], ["t"])], [tensor("s")], [tensor("t")])
    return model(
        [node("Loop", ["n", "", "x"], ["y"], body=inner)],
        [*([] if trips else [tensor("n", INT64, [])]), tensor("x", FLOAT, ["a", "b"])],
        [tensor("y")],
        {"n": np.array(trips)} if trips else {},
    )


@pytest.mark.parametrize("trips", [1, 7, 600])
def test_a_loop_of_few_trips_is_one_closure(trips: int) -> None:
    session = against_ort(repeated(trips), {"x": X})
    assert counts(session)["traces"] == 1
    with no_python():
        run(session, {"x": X})


def test_trip_counts_given_at_run_time() -> None:
    made = repeated()
    feeds = [{"n": np.array(n), "x": X} for n in (0, 1, 5, 3, 40)]
    session = against_ort(made, *feeds)
    assert counts(session)["eager_runs"] == 0


def turned() -> bytes:
    """A loop that carries another shape each time, which only unrolling can put into a closure."""
    nodes = [node("Transpose", ["s"], ["r"], perm=[1, 0]), node("Neg", ["r"], ["t"])]
    inner = loop(nodes, [tensor("s", FLOAT, ["a", "b"])], [tensor("t", FLOAT, ["b", "a"])])
    return model(
        [node("Loop", ["n", "", "x"], ["y"], body=inner)],
        [tensor("n", INT64, []), tensor("x", FLOAT, ["a", "b"])],
        [tensor("y")],
    )


@pytest.fixture
def few_are_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ort_mlx.running.MAX_UNROLLED", 2048)


@pytest.mark.usefixtures("few_are_unrolled")
def test_a_loop_too_long_for_a_closure_runs_a_compiled_body() -> None:
    session = compiled(turned())
    for turn in range(2):
        with counted(session) as added:
            (got,) = run(session, {"n": np.array(1500), "x": X})
        np.testing.assert_array_equal(got, X)
        assert added["failures"] == 0
        assert added["traces"] <= (0 if turn else 3), "its body, in each shape"
    assert "a loop of more than 2048 steps" in str(ort_mlx.report(session))


@pytest.mark.usefixtures("few_are_unrolled")
def test_a_long_loop_does_not_cost_short_ones_their_closure() -> None:
    session = compiled(turned())
    for n in (4, 1500, 4, 1500, 6):
        (got,) = run(session, {"n": np.array(n), "x": X})
        np.testing.assert_array_equal(got, X)
    with no_python():
        for n in (4, 6):
            run(session, {"n": np.array(n), "x": X})


def test_an_early_exit_that_data_decides() -> None:
    nodes = [
        node("Mul", ["s", "half"], ["t"]),
        node("ReduceMax", ["t"], ["m"], keepdims=0),
        node("Greater", ["m", "limit"], ["more"]),
    ]
    made = model(
        [node("Loop", ["n", "", "x"], ["y", "rows"], body=loop(
            [*nodes, node("Identity", ["t"], ["row"])],
            [tensor("s", FLOAT, [2, 3])],
            [tensor("t"), tensor("row", FLOAT, [2, 3])],
            "more",
        ))],
        [tensor("n", INT64, []), tensor("x", FLOAT, [2, 3]), tensor("limit", FLOAT, [])],
        [tensor("y"), tensor("rows")],
        {"half": np.array(0.5, np.float32)},
    )  # fmt: skip
    feeds = [
        {"n": np.array(n), "x": X * scale, "limit": np.array(0.1, np.float32)}
        for n in (100, 3, 0)
        for scale in (1, 50)
    ]
    session = against_ort(made, *feeds)
    assert counts(session)["traces"] == 1, "one closure serves every iteration of every Run"


def test_carried_shapes_that_change() -> None:
    inner = loop([node("Concat", ["s", "x"], ["t"], axis=0)], [tensor("s")], [tensor("t")])
    made = model(
        [node("Loop", ["n", "", "x"], ["y"], body=inner)],
        [tensor("n", INT64, []), tensor("x", FLOAT, ["a", "b"])],
        [tensor("y")],
    )
    against_ort(made, *({"n": np.array(n), "x": X} for n in (0, 1, 6)))


def test_carried_shapes_that_change_while_data_decides() -> None:
    nodes = [
        node("Concat", ["s", "x"], ["t"], axis=0),
        node("ReduceSum", ["t"], ["total"], keepdims=0),
        node("Abs", ["total"], ["size"]),
        node("Less", ["size", "limit"], ["more"]),
    ]
    inner = loop(nodes, [tensor("s", FLOAT, ["r", "b"])], [tensor("t", FLOAT, ["q", "b"])], "more")
    made = model(
        [node("Loop", ["", "", "x"], ["y"], body=inner)],
        [tensor("x", FLOAT, ["a", "b"])],
        [tensor("y", FLOAT, ["z", "b"])],
        {"limit": np.array(40, np.float32)},
    )
    session = against_ort(made, {"x": X}, {"x": X + 1})
    assert counts(session)["traces"] <= 12


def test_nested_loops_with_outputs_of_both() -> None:
    inner = body(
        [
            node("Add", ["v", "s"], ["w"]),
            node("Identity", ["inner_going"], ["inner_still"]),
            node("Identity", ["w"], ["inner_row"]),
        ],
        [tensor("j", INT64, []), tensor("inner_going", BOOL, []), tensor("v", FLOAT, [2, 3])],
        [
            tensor("inner_still", BOOL),
            tensor("w", FLOAT, [2, 3]),
            tensor("inner_row", FLOAT, [2, 3]),
        ],
    )
    nodes = [
        node("Loop", ["i", "", "s"], ["t", "block"], body=inner),
        node("ReduceSum", ["block", "zero"], ["row"], keepdims=0),
    ]
    made = model(
        [
            node("Loop", ["n", "", "x"], ["y", "rows"], body=loop(
                nodes,
                [tensor("s", FLOAT, [2, 3])],
                [tensor("t", FLOAT, [2, 3]), tensor("row", FLOAT, [2, 3])],
            ))
        ],
        [tensor("n", INT64, []), tensor("x", FLOAT, [2, 3])],
        [tensor("y"), tensor("rows")],
        {"zero": np.array([0])},
    )  # fmt: skip
    # ORT CPU makes an inner scan output of no iterations from the declared shape, as we do.
    against_ort(made, *({"n": np.array(n), "x": X} for n in (1, 2, 5)))


def sliced(trips: int) -> bytes:
    """A product of the columns of x, each cut out by the number of the iteration."""
    nodes = [
        node("Unsqueeze", ["i", "zero"], ["start"]),
        node("Add", ["start", "one"], ["end"]),
        node("Slice", ["x", "start", "end", "one"], ["column"]),
        node("Mul", ["s", "column"], ["t"]),
    ]
    shape = [2, 1]
    inner = loop(nodes, [tensor("s", FLOAT, shape)], [tensor("t", FLOAT, shape)])
    return model(
        [node("Loop", ["n", "", "s0"], ["y"], body=inner)],
        [tensor("x", FLOAT, [2, trips]), tensor("s0", FLOAT, shape)],
        [tensor("y")],
        {"zero": np.array([0]), "one": np.array([1]), "n": np.array(trips)},
    )


@pytest.mark.parametrize("trips", [3, 400])
def test_a_trip_number_that_steers_an_unrolled_body(trips: int) -> None:
    feed = {"x": 1 + arange(2, trips) / 99 / trips, "s0": np.ones((2, 1), np.float32)}
    session = against_ort(sliced(trips), feed)
    assert counts(session)["traces"] == 1
    assert counts(session)["eager_runs"] == 0
    with no_python():
        run(session, feed)


@pytest.mark.usefixtures("few_are_unrolled")
def test_a_trip_number_that_steers_a_body_too_long_to_unroll() -> None:
    """No closure for each iteration, which would be as many as there are iterations."""
    trips = 700
    feed = {"x": 1 + arange(2, trips) / 1e6, "s0": np.ones((2, 1), np.float32)}
    session = against_ort(sliced(trips), feed, turns=1)
    assert counts(session)["traces"] <= 3
    assert counts(session)["failures"] == 0


def test_a_trip_number_that_steers_a_body_whose_end_is_data() -> None:
    """Each iteration slices another part: a closure for each, or none, and the right values."""
    nodes = [
        node("Unsqueeze", ["i", "zero"], ["start"]),
        node("Add", ["start", "one"], ["end"]),
        node("Slice", ["x", "start", "end", "one"], ["column"]),
        node("Mul", ["s", "column"], ["p"]),
        node("Neg", ["p"], ["t"]),
        node("ReduceMax", ["t"], ["m"], keepdims=0),
        node("Less", ["m", "limit"], ["more"]),
    ]
    made = model(
        [node("Loop", ["n", "", "s0"], ["y"], body=loop(
            nodes, [tensor("s", FLOAT, [2, 1])], [tensor("t", FLOAT, [2, 1])], "more"))],
        [tensor("n", INT64, []), tensor("x", FLOAT, [2, 40]), tensor("s0", FLOAT, [2, 1])],
        [tensor("y")],
        {"zero": np.array([0]), "one": np.array([1]), "limit": np.array(1e9, np.float32)},
    )  # fmt: skip
    feed = {"x": arange(2, 40) + 2, "s0": np.ones((2, 1), np.float32)}
    against_ort(made, *({**feed, "n": np.array(n)} for n in (0, 3, 40)))


# --- Scan -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_axis", [0, 1, -1])
@pytest.mark.parametrize("out_axis", [0, 1, -1])
@pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_scan_along_every_axis_in_both_directions(
    in_axis: int, out_axis: int, directions: tuple[int, int]
) -> None:
    inner = body(
        [node("Add", ["s", "row"], ["t"]), node("Mul", ["t", "row"], ["out"])],
        [tensor("s", FLOAT, ["k"]), tensor("row", FLOAT, ["k"])],
        [tensor("t", FLOAT, ["k"]), tensor("out", FLOAT, ["k"])],
    )
    made = model(
        [
            node(
                "Scan",
                ["s0", "x"],
                ["last", "y"],
                body=inner,
                num_scan_inputs=1,
                scan_input_axes=[in_axis],
                scan_output_axes=[out_axis],
                scan_input_directions=[directions[0]],
                scan_output_directions=[directions[1]],
            )
        ],
        [tensor("s0", FLOAT, ["k"]), tensor("x", FLOAT, ["a", "b"])],
        [tensor("last"), tensor("y")],
    )
    feeds = [
        {"s0": np.ones(shape[1 if in_axis == 0 else 0], np.float32), "x": arange(*shape)}
        for shape in ((3, 4), (1, 5), (4, 1))
    ]
    against_ort(made, *feeds)


def recurrence() -> bytes:
    """H = decay * h + gain * x, as a state-space layer does it, with an output for each step."""
    inner = body(
        [
            node("Mul", ["h", "decay"], ["kept"]),
            node("Mul", ["u", "gain"], ["added"]),
            node("Add", ["kept", "added"], ["g"]),
            node("Mul", ["g", "c"], ["weighted"]),
            node("ReduceSum", ["weighted", "axis"], ["y"], keepdims=0),
        ],
        [tensor("h", FLOAT, [4, 8]), tensor("u", FLOAT, [8])],
        [tensor("g", FLOAT, [4, 8]), tensor("y", FLOAT, [8])],
    )
    return model(
        [node("Scan", ["h0", "u"], ["h", "y"], body=inner, num_scan_inputs=1)],
        [tensor("h0", FLOAT, [4, 8]), tensor("u", FLOAT, ["t", 8])],
        [tensor("h"), tensor("y")],
        {
            "decay": np.linspace(0.5, 0.99, 32, dtype=np.float32).reshape(4, 8),
            "gain": np.linspace(1, 2, 8, dtype=np.float32),
            "c": arange(4, 8),
            "axis": np.array([0]),
        },
    )


def test_a_recurrence_of_a_thousand_steps_is_one_plan() -> None:
    feed = {"h0": arange(4, 8), "u": arange(1000, 8) / 100}
    session = against_ort(recurrence(), feed)
    assert ort_mlx.report(session).partitions == 1
    assert counts(session)["traces"] == 1
    with no_python():
        run(session, feed)


def test_a_recurrence_of_any_length_is_one_closure() -> None:
    feed = {"h0": arange(4, 8), "u": arange(5000, 8) / 1000}
    session = against_ort(recurrence(), feed)
    assert counts(session)["traces"] == 1
    assert counts(session)["eager_runs"] == 0


# --- stopping -------------------------------------------------------------------------------------

LONG = {"n": np.array(10**6), "x": np.ones((1, 2), np.float32)}


def while_true() -> bytes:
    """Ends when its data says so, which takes more than a million iterations."""
    nodes = [
        node("Add", ["s", "x"], ["t"]),
        node("ReduceMax", ["t"], ["m"], keepdims=0),
        node("Less", ["m", "limit"], ["more"]),
    ]
    inner = loop(nodes, [tensor("s", FLOAT, ["a", "b"])], [tensor("t", FLOAT, ["a", "b"])], "more")
    return model(
        [node("Loop", ["n", "", "x"], ["y"], body=inner)],
        [tensor("n", INT64, []), tensor("x", FLOAT, ["a", "b"])],
        [tensor("y")],
        {"limit": np.array(1e7, np.float32)},
    )


@pytest.mark.parametrize("routes", [("general", "decode"), ()], ids=["compiled", "eager"])
@pytest.mark.parametrize("made", [repeated, while_true])
@pytest.mark.parametrize("after", [0.0, 0.05, 0.4])
def test_cancel_stops_a_million_iterations(
    made: Callable[[], bytes], after: float, routes: tuple[str, ...]
) -> None:
    session = compiled(made(), routes=routes)
    small = {**LONG, "n": np.array(3)}
    wanted = run(session, small)
    ended = threading.Event()
    asked = 0.0

    def stop() -> None:
        nonlocal asked
        time.sleep(after)
        asked = time.monotonic()
        while not ended.is_set():  # the Run may not have begun when it is first asked
            ort_mlx.cancel(session)
            ended.wait(0.05)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Exception, match=r"this Run was stopped by ort_mlx\.cancel"):
        run(session, LONG)
    ended.set()
    assert time.monotonic() - asked < 1
    thread.join()
    for _ in range(3):
        assert_same(run(session, small), wanted)
    assert counts(session)["failures"] == 0


def test_a_run_that_was_not_in_progress_is_not_stopped() -> None:
    session = compiled(repeated())
    ort_mlx.cancel(session)
    feed = {**LONG, "n": np.array(3)}
    np.testing.assert_array_equal(run(session, feed)[0], LONG["x"] * 4)


def test_cancel_of_one_session_leaves_others_alone() -> None:
    first, second = compiled(repeated()), compiled(repeated())
    feed = {**LONG, "n": np.array(20_000)}
    done = threading.Event()

    def cancel_the_other() -> None:
        while not done.is_set():
            ort_mlx.cancel(second)
            time.sleep(0.01)

    thread = threading.Thread(target=cancel_the_other)
    thread.start()
    np.testing.assert_array_equal(run(first, feed)[0], LONG["x"] * 20_001)
    done.set()
    thread.join()


@pytest.mark.parametrize("after", [0.02, 0.5])
@pytest.mark.parametrize("made", ["repeated", "while_true"])
def test_ctrl_c_stops_a_million_iterations(child: Child, made: str, after: float) -> None:
    """In a process of its own: the signal arrives while the main thread is in Run."""
    child(
        f"""
        import os, signal, threading, time
        # A job in the background of a shell is started with it ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from core.routes import compiled, counts
        from core.test_stretches import LONG, {made}
        session = compiled({made}())
        small = {{**LONG, "n": np.array(3)}}
        wanted = session.run(None, small)
        sent = []
        def interrupt():
            time.sleep({after})
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            session.run(None, LONG)
        except Exception as error:
            assert "interrupted from the keyboard" in str(error), error
            assert time.monotonic() - sent[0] < 1
        else:
            raise SystemExit("the Run ended by itself")
        np.testing.assert_array_equal(session.run(None, small)[0], wanted[0])
        assert counts(session)["failures"] == 0
        """
    )


# --- the pieces -----------------------------------------------------------------------------------

KINDS = ("compute", "data", "host", "branch")


@st.composite
def mixtures(draw: Any) -> bytes:
    """Steps that a closure can serve and steps that none can, in any order, on a vector."""
    nodes: list[Any] = []
    constants: dict[str, Any] = {"zero": np.array(0, np.float32), "axis": np.array([0])}
    last = "x"
    for i in range(draw(st.integers(1, 7))):
        out = f"v{i}"
        kind = draw(st.sampled_from(KINDS))
        if kind == "compute":
            op = draw(st.sampled_from(["Neg", "Abs", "Sin"]))
            nodes += [node(op, [last], [f"{out}a"]), node("Add", [f"{out}a", last], [out])]
        elif kind == "data":
            nodes += [
                node("Greater", [last, "zero"], [f"{out}p"]),
                node("Compress", [last, f"{out}p"], [out], axis=0),
            ]
        elif kind == "host":
            nodes += [
                node("Shape", [last], [f"{out}s"]),
                node("ConstantOfShape", [f"{out}s"], [f"{out}z"]),
                node("Concat", [last, f"{out}z"], [out], axis=0),
            ]
        else:
            nodes += [
                node("ReduceSum", [last], [f"{out}t"], keepdims=0),
                node("Greater", [f"{out}t", "zero"], [f"{out}c"]),
                node(
                    "If",
                    [f"{out}c"],
                    [out],
                    then_branch=body([node("Neg", [last], [f"{out}n"])], [], [tensor(f"{out}n")]),
                    else_branch=body([node("Exp", ["zero"], [f"{out}e"]),
                                      node("Sub", [last, f"{out}e"], [f"{out}u"])], [],
                                     [tensor(f"{out}u")]),
                ),
            ]  # fmt: skip
        last = out
    return model(nodes, [tensor("x", FLOAT, ["n"])], [tensor(last)], constants)


@given(mixtures(), st.lists(st.integers(0, 6), min_size=2, max_size=5), st.integers(0, 99))
def test_random_mixtures(made: bytes, sizes: list[int], seed: int) -> None:
    """As eagerly, also where sizes known before come back with other data."""
    both = Both(made)
    rng = np.random.default_rng(seed)
    for n in [*sizes, *sizes]:
        both.run({"x": rng.standard_normal(n).astype(np.float32)})
    assert counts(both.compiled)["failures"] == 0


@given(mixtures())
def test_the_pieces_are_the_steps_in_order(made: bytes) -> None:
    for plan in ort_mlx.report(compiled(made)).plans:
        steps = [
            step
            for piece in split(plan.block)
            for step in (piece.steps if isinstance(piece, Stretch) else (piece,))
        ]
        assert steps == plan.block.steps


def test_values_from_outside_that_a_stretch_captures() -> None:
    """A body's stretch reads constants, values of the model and values computed around it."""
    then = body(
        [
            node("MatMul", ["x", "w"], ["m"]),
            node("Add", ["m", "n"], ["a"]),
            node("Mul", ["a", "k"], ["t"]),
        ],
        [],
        [tensor("t")],
    )  # fmt: skip
    otherwise = body([node("Neg", ["n"], ["e"]), node("Abs", ["e"], ["u"])], [], [tensor("u")])
    made = model(
        [
            node("Exp", ["x"], ["n"]),
            node("ReduceSum", ["x"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], ["c"]),
            node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise),
        ],
        [tensor("x", FLOAT, ["a", 3])],
        [tensor("y")],
        {"zero": np.array(0, np.float32), "w": arange(3, 3), "k": np.array(3, np.float32)},
    )
    against_ort(made, {"x": X}, {"x": -X}, {"x": X[:1]}, turns=3)


def test_an_error_inside_a_stretch_names_the_node() -> None:
    made = model(
        [
            node("NonZero", ["x"], ["i"]),
            node("Transpose", ["i"], ["t"]),
            node("Cast", ["t"], ["f"], to=FLOAT),
            node("MatMul", ["f", "w"], ["y"], name="product"),
        ],
        [tensor("x", FLOAT, [None, None]), tensor("w", FLOAT, [None, None])],
        [tensor("y")],
    )
    session = compiled(made)
    good = {"x": X, "w": np.ones((2, 2), np.float32)}
    wanted = run(session, good)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="product"):
        run(session, {**good, "w": np.ones((3, 2), np.float32)})
    assert_same(run(session, good), wanted)
