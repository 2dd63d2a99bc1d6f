"""Keys: all that a trace assumed is in them, and nothing else is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from onnx import TensorProto

import ort_mlx
from core.graphs import (
    BOOL,
    FLOAT,
    INT64,
    body,
    cpu_session,
    mlx_session,
    model,
    node,
    tensor,
)
from core.routes import Both, Feed, counted, run

I32 = TensorProto.INT32


@dataclass(frozen=True)
class Steered:
    """A model whose graph depends on the values of some inputs, with feeds that differ in those."""

    name: str
    made: bytes
    feeds: list[dict[str, Any]]  # equal shapes, different steering values

    def __str__(self) -> str:
        return self.name


def arrays(**values: Any) -> dict[str, np.ndarray]:
    return {k: np.asarray(v) for k, v in values.items()}


X = np.arange(24, dtype=np.float32).reshape(4, 6) - 7


def steered(name: str, op: str, inputs: dict[str, Any], feeds: list[dict[str, Any]], **attributes:
Any) -> Steered:  # fmt: skip
    """One op on `x` and steering inputs, between two that only see its data."""
    dims = {k: [f"{k}{i}" for i in range(np.ndim(v))] for k, v in feeds[0].items()}
    declared = [tensor(k, inputs.get(k, INT64), dims[k]) for k in feeds[0]]
    nodes = [
        node("Mul", ["x", "two"], ["doubled"]),
        node(op, ["doubled", *feeds[0]], ["made"], **attributes),
        node("Neg", ["made"], ["y"]),
    ]
    made = model(
        nodes,
        [tensor("x", FLOAT, ["a", "b"]), *declared],
        [tensor("y")],
        {"two": np.array(2, np.float32)},
    )
    return Steered(name, made, [arrays(**f) for f in feeds])


STEERED = [
    steered("Slice", "Slice", {}, [
        {"starts": [0], "ends": [3]}, {"starts": [1], "ends": [3]}, {"starts": [0], "ends": [2]},
        {"starts": [-2], "ends": [3]},
    ]),
    steered("Slice with axes and steps", "Slice", {}, [
        {"starts": [0], "ends": [3], "axes": [0], "steps": [1]},
        {"starts": [0], "ends": [3], "axes": [1], "steps": [1]},
        {"starts": [0], "ends": [3], "axes": [1], "steps": [2]},
        {"starts": [3], "ends": [0], "axes": [1], "steps": [-1]},
    ]),
    steered("Reshape", "Reshape", {}, [
        {"shape": [24, 1]}, {"shape": [-1, 2]}, {"shape": [12, 2]}, {"shape": [0, -1]},
        {"shape": [2, 12]},
    ]),
    steered("Expand", "Expand", {}, [
        {"shape": [1, 4, 6]}, {"shape": [2, 4, 6]}, {"shape": [3, 1, 1]},
    ]),
    steered("Tile", "Tile", {}, [{"repeats": [1, 2]}, {"repeats": [2, 1]}, {"repeats": [0, 2]}]),
    steered("Pad", "Pad", {}, [
        {"pads": [0, 0, 1, 1]}, {"pads": [1, 1, 0, 0]}, {"pads": [1, -1, 0, 0]},
    ]),
    steered("Unsqueeze", "Unsqueeze", {}, [{"axes": [0]}, {"axes": [1]}, {"axes": [-1]}]),
    steered("ReduceSum", "ReduceSum", {}, [{"axes": [0]}, {"axes": [1]}, {"axes": [-2]}]),
    steered("CumSum", "CumSum", {}, [{"axis": 0}, {"axis": 1}, {"axis": -2}]),
    steered("Trilu", "Trilu", {}, [{"k": 0}, {"k": 1}, {"k": -2}]),
]  # fmt: skip


def squeeze() -> Steered:
    made = model(
        [node("Squeeze", ["x", "axes"], ["t"]), node("Neg", ["t"], ["y"])],
        [tensor("x", FLOAT, ["a", "b", "c"]), tensor("axes", INT64, ["n"])],
        [tensor("y")],
    )
    x = np.ones((1, 3, 1), np.float32)
    return Steered("Squeeze", made, [{"axes": np.array(a), "x": x} for a in ([0], [2], [-3])])


def top_k() -> Steered:
    made = model(
        [node("TopK", ["x", "k"], ["v", "i"]), node("Neg", ["v"], ["y"])],
        [tensor("x", FLOAT, ["a", "b"]), tensor("k", INT64, [1])],
        [tensor("y"), tensor("i", INT64)],
    )
    return Steered("TopK", made, [{"k": np.array([k])} for k in (1, 2, 5)])


def range_() -> Steered:
    made = model(
        [
            node("Range", ["start", "stop", "by"], ["r"]),
            node("Cast", ["r"], ["f"], to=FLOAT),
            node("ReduceSum", ["x"], ["total"], keepdims=0),
            node("Mul", ["f", "total"], ["y"]),
        ],
        [tensor("x", FLOAT, ["a", "b"]), *(tensor(n, INT64, []) for n in ("start", "stop", "by"))],
        [tensor("y")],
    )
    bounds = [(0, 5, 1), (1, 5, 1), (0, 6, 1), (0, 5, 2), (5, 0, -1)]
    return Steered("Range", made, [arrays(start=a, stop=b, by=c) for a, b, c in bounds])


def branch() -> Steered:
    def side(op: str) -> Any:
        return body([node(op, ["x"], ["t"])], [], [tensor("t")])

    made = model(
        [node("If", ["c"], ["y"], then_branch=side("Neg"), else_branch=side("Abs"))],
        [tensor("x", FLOAT, ["a", "b"]), tensor("c", BOOL, [])],
        [tensor("y")],
    )
    return Steered("If", made, [arrays(c=True), arrays(c=False)])


def loop() -> Steered:
    inner = body(
        [node("Add", ["s", "x"], ["t"]), node("Identity", ["going"], ["still"])],
        [tensor("i", INT64, []), tensor("going", BOOL, []), tensor("s")],
        [tensor("still", BOOL), tensor("t")],
    )
    made = model(
        [node("Loop", ["n", "c", "x"], ["y"], body=inner)],
        [tensor("x", FLOAT, ["a", "b"]), tensor("n", INT64, []), tensor("c", BOOL, [])],
        [tensor("y")],
    )
    feeds = [arrays(n=n, c=c) for n, c in ((3, True), (4, True), (0, True), (3, False))]
    return Steered("Loop", made, feeds)


def computed() -> Steered:
    """The steering value goes through arithmetic first."""
    made = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["rows"]),
            node("Sub", ["rows", "drop"], ["end"]),
            node("Unsqueeze", ["end", "first"], ["ends"]),
            node("Slice", ["x", "first", "ends"], ["t"]),
            node("Neg", ["t"], ["y"]),
        ],
        [tensor("x", FLOAT, ["a", "b"]), tensor("drop", INT64, [])],
        [tensor("y")],
        {"zero": np.array(0), "first": np.array([0])},
    )
    return Steered("a computed bound", made, [arrays(drop=d) for d in (0, 1, 3)])


ALL = [*STEERED, squeeze(), top_k(), range_(), branch(), loop(), computed()]


@pytest.mark.parametrize("s", ALL, ids=str)
def test_every_steering_value_is_guarded(s: Steered) -> None:
    both = Both(s.made)
    for feed in s.feeds:
        with counted(both.compiled) as added:
            both.run({"x": X, **feed})
        assert (added["misses"], added["traces"], added["failures"]) == (1, 1, 0), added
    for feed in s.feeds:  # other data and known guards: nothing is traced
        x = feed.get("x", X) * -0.5
        with counted(both.compiled) as added:
            both.run({**feed, "x": x.astype(np.float32)})
        assert (added["hits"], added["misses"], added["eager_runs"]) == (1, 0, 0), added


@pytest.mark.parametrize("s", ALL, ids=str)
def test_a_miss_names_the_value_that_differs(s: Steered) -> None:
    both = Both(s.made)
    for feed in s.feeds:
        both.run({"x": X, **feed})
    first, *others = ort_mlx.report(both.compiled).misses
    assert first == "first Run"
    for text, before, after in zip(others, s.feeds, s.feeds[1:], strict=False):
        differ = [k for k in after if not np.array_equal(before[k], after[k])]
        assert any(text.startswith(f"'{name}' is {after[name].tolist()} after") for name in differ)
    text = str(ort_mlx.report(both.compiled))
    assert all(f"traced: {why}" in text for why in others)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_dimension_is_guarded(axis: int) -> None:
    made = model(
        [node("Softmax", ["x"], ["s"], axis=1), node("MatMul", ["s", "w"], ["y"])],
        [tensor("x", FLOAT, ["a", "b", "c"]), tensor("w", FLOAT, ["c", "d"])],
        [tensor("y")],
    )
    both = Both(made)
    shape = [2, 3, 4]
    for size in (2, 3, 7, 4, 1, 0):
        dims = shape.copy()
        dims[axis] = size
        x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
        w = np.ones((dims[2], 5), np.float32)
        for turn in (0, 1):
            with counted(both.compiled) as added:
                both.run({"x": x + turn, "w": w})
            assert (added["traces"], added["hits"]) == (1 - turn, turn)


def test_a_miss_names_the_dimension() -> None:
    made = model([node("Neg", ["x"], ["y"])], [tensor("x", FLOAT, ["a", "b"])], [tensor("y")])
    both = Both(made)
    for shape in ((2, 3), (2, 4), (5, 4)):
        both.run({"x": np.ones(shape, np.float32)})
    assert ort_mlx.report(both.compiled).misses == [
        "first Run",
        "'x' has shape [2, 4] after [2, 3]",
        "'x' has shape [5, 4] after [2, 4]",
    ]


def test_rank_is_guarded() -> None:
    """[2, 3] and [6] have the same bytes, and so have [2] then [3] and [2, 3]."""
    made = model(
        [
            node("Shape", ["x"], ["s"]),
            node("ConstantOfShape", ["s"], ["c"]),
            node("Sub", ["c", "x"], ["y"]),
        ],
        [tensor("x", FLOAT, None)],
        [tensor("y")],
    )
    both = Both(made)
    for shape in ((2, 3), (6,), (), (1,), (1, 1), (0,), (0, 0), (3, 2)):
        with counted(both.compiled) as added:
            both.run({"x": np.ones(shape, np.float32)})
        assert added["traces"] == 1, shape


def test_data_of_a_large_input_is_no_guard() -> None:
    """Indices that are data: they reach no host parameter."""
    made = model(
        [node("Gather", ["x", "i"], ["g"]), node("Neg", ["g"], ["y"])],
        [tensor("x", FLOAT, ["a", "b"]), tensor("i", INT64, ["n"])],
        [tensor("y")],
    )
    both = Both(made)
    rng = np.random.default_rng(0)
    for _ in range(5):
        both.run({"x": X, "i": rng.integers(-4, 4, 7)})
    assert ort_mlx.report(both.compiled).counts["traces"] == 1


# --- random graphs --------------------------------------------------------------------------------

SIZES = st.integers(0, 4)


@st.composite
def chains(draw: Any) -> tuple[bytes, list[dict[str, np.ndarray]]]:
    """Shape arithmetic and steering inputs in a row, with feeds that fit."""
    nodes = [node("Abs", ["x"], ["v0"])]
    steering: dict[str, Any] = {}
    constants = {"zero": np.array([0]), "one": np.array([1]), "minus": np.array([-1])}
    last = "v0"
    for i in range(draw(st.integers(1, 4))):
        out = f"v{i + 1}"
        kind = draw(st.sampled_from(["flat", "slice", "expand", "scale", "range", "pad", "like"]))
        if kind == "flat":
            nodes += [node("Reshape", [last, "minus"], [out])]
        elif kind == "slice":
            steering[f"n{i}"] = st.integers(-3, 4)
            nodes += [node("Slice", [last, "zero", f"n{i}"], [out])]
        elif kind == "expand":
            steering[f"n{i}"] = st.integers(0, 3)
            nodes += [
                node("Shape", [last], [f"s{i}"]),
                node("Concat", [f"n{i}", f"s{i}"], [f"t{i}"], axis=0),
                node("Expand", [last, f"t{i}"], [f"e{i}"]),
                node("ReduceSum", [f"e{i}", "zero"], [out], keepdims=0),
            ]
        elif kind == "scale":
            nodes += [
                node("Shape", [last], [f"s{i}"]),
                node("ReduceProd", [f"s{i}"], [f"p{i}"], keepdims=0),
                node("Cast", [f"p{i}"], [f"f{i}"], to=FLOAT),
                node("Add", [last, f"f{i}"], [out]),
            ]
        elif kind == "range":
            nodes += [
                node("Reshape", [last, "minus"], [f"r{i}"]),
                node("Size", [f"r{i}"], [f"z{i}"]),
                node("Range", ["zero0", f"z{i}", "one0"], [f"g{i}"]),
                node("Cast", [f"g{i}"], [f"f{i}"], to=FLOAT),
                node("Mul", [f"r{i}", f"f{i}"], [out]),
            ]
            constants |= {"zero0": np.array(0), "one0": np.array(1)}
        elif kind == "pad":
            steering[f"n{i}"] = st.integers(0, 2)
            nodes += [
                node("Concat", [f"n{i}", f"n{i}"], [f"b{i}"], axis=0),
                node("Reshape", [last, "minus"], [f"r{i}"]),
                node("Pad", [f"r{i}", f"b{i}"], [out]),
            ]
        else:
            nodes += [
                node("Shape", [last], [f"s{i}"]),
                node("ConstantOfShape", [f"s{i}"], [f"c{i}"]),
                node("Sub", [f"c{i}", last], [out]),
            ]
        last = out
    made = model(
        nodes,
        [tensor("x", FLOAT, ["a", "b"]), *(tensor(n, INT64, [1]) for n in steering)],
        [tensor(last)],
        constants,
    )
    feeds = []
    for _ in range(draw(st.integers(2, 4))):
        shape = draw(st.tuples(SIZES, SIZES))
        values = {k: np.array([draw(v)]) for k, v in steering.items()}
        feeds.append({"x": np.ones(shape, np.float32), **values})
    return made, feeds


def key_of(feed: Feed) -> tuple[Any, ...]:
    return tuple((k, v.shape, () if k == "x" else v.tobytes()) for k, v in feed.items())


@given(chains(), st.randoms(use_true_random=False))
def test_equal_keys_give_equal_results(made: Any, random: Any) -> None:
    """Over random graphs and feeds: as eagerly, and a trace for every key that is new."""
    both = Both(made[0], routes=["general"])
    seen: set[Any] = set()
    for feed in [*made[1], *made[1]]:
        x = np.random.default_rng(random.getrandbits(32)).standard_normal(feed["x"].shape)
        feed = {**feed, "x": x.astype(np.float32)}
        with counted(both.compiled) as added:
            both.run(feed)
        is_new = key_of(feed) not in seen
        seen.add(key_of(feed))
        assert added["traces"] == int(is_new), (added, feed)
        assert added["failures"] == added["eager_runs"] == 0


def test_two_partitions_with_equal_inputs_have_keys_of_their_own() -> None:
    """Their inputs are alike, and they share the session's cache."""
    made = model(
        [
            node("Exp", ["x"], ["a"]),
            node("Neg", ["a"], ["b"]),
            node("Sin", ["b"], ["c"]),
            node("Abs", ["c"], ["d"]),
            node("Cos", ["d"], ["y"]),
        ],
        [tensor("x", FLOAT, ["n", "m"])],
        [tensor("y")],
    )
    import onnxruntime as ort

    session = mlx_session(made, ort.SessionOptions(), exclude_ops=["Sin"])
    assert ort_mlx.report(session).partitions == 2
    reference = cpu_session(made)
    for _ in range(2):
        np.testing.assert_allclose(
            run(session, {"x": X / 8})[0], run(reference, {"x": X / 8})[0], rtol=1e-5
        )
    assert ort_mlx.report(session).counts["traces"] == 2
