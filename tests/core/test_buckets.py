"""The option `shape_buckets`: one closure for several sizes, where nothing mixes positions."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import ort_mlx
from core.graphs import FLOAT, INT64, cpu_session, mlx_session, model, node, tensor
from core.routes import assert_same, compiled, counted, counts, no_python, run
from ort_mlx import settings
from ort_mlx.buckets import Buckets, parse, written
from ort_mlx.errors import OptionError

WIDTH = 4


def ramp(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def layers() -> bytes:
    """A network over a batch of rows, with every kind of op that keeps them apart."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["a", "b"], ["c"]),
        node("Relu", ["c"], ["d"]),
        node("LayerNormalization", ["d", "scale"], ["e"], axis=-1),
        node("Reshape", ["e", "heads"], ["f"]),
        node("Transpose", ["f"], ["g"], perm=[1, 0, 2]),
        node("Softmax", ["g"], ["h"], axis=-1),
        node("ReduceMean", ["h", "two"], ["i"], keepdims=0),
        node("Transpose", ["i"], ["j"], perm=[1, 0]),
        node("Concat", ["j", "c"], ["y"], axis=1),
    ]
    constants = {
        "w": ramp(WIDTH, WIDTH),
        "b": ramp(WIDTH),
        "scale": ramp(WIDTH) + 2,
        "heads": np.array([0, 2, 2]),
        "two": np.array([2]),
    }
    return model(nodes, [tensor("x", FLOAT, ["batch", WIDTH])], [tensor("y")], constants)


def test_sizes_share_the_closure_of_their_bucket() -> None:
    session = compiled(layers(), shape_buckets={"batch": [4, 8]})
    reference = cpu_session(layers())
    for n in (3, 1, 4, 2, 7, 5, 8):
        feed = {"x": ramp(n, WIDTH)}
        assert_same(run(session, feed), run(reference, feed), rtol=1e-4)
    assert counts(session)["traces"] == 2
    assert counts(session)["eager_runs"] == 0
    assert ort_mlx.report(session).unpadded == []


def test_a_size_above_the_last_bucket_and_an_empty_one_are_not_padded() -> None:
    session = compiled(layers(), shape_buckets={"batch": [4]}, routes=["general"])
    reference = cpu_session(layers())
    for n in (5, 6, 0):
        feed = {"x": ramp(n, WIDTH)}
        assert_same(run(session, feed), run(reference, feed), rtol=1e-4)
    assert counts(session)["traces"] == 3


def test_multiples() -> None:
    session = compiled(layers(), shape_buckets={"batch": 16})
    for n in range(1, 33):
        run(session, {"x": ramp(n, WIDTH)})
    assert counts(session)["traces"] == 2


def test_steady_runs_do_not_enter_python() -> None:
    session = compiled(layers(), shape_buckets={"batch": [8]})
    run(session, {"x": ramp(3, WIDTH)})
    with no_python():
        for n in (1, 5, 8):
            run(session, {"x": ramp(n, WIDTH)})


REFUSED: dict[str, tuple[list[Any], str]] = {
    "Softmax": ([node("Softmax", ["x"], ["y"], axis=0)], "[Softmax ''] it mixes positions"),
    "ReduceMean": ([node("ReduceMean", ["x"], ["y"])], "[ReduceMean ''] it reduces this axis"),
    "Shape": ([node("Shape", ["x"], ["y"])], "output 'y' has the size itself in it"),
    "MatMul": (
        [node("Transpose", ["x"], ["t"]), node("MatMul", ["t", "x"], ["y"])],
        "[MatMul ''] it sums over it",
    ),
    "Add": ([node("Add", ["x", "three"], ["y"])], "[Add ''] 'three' is not padded along it"),
    "Reshape": (
        [node("Reshape", ["x", "flat"], ["y"])],
        "[Reshape ''] it joins or parts positions",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mixes_positions_is_reported_and_runs_as_without(name: str) -> None:
    nodes, why = REFUSED[name]
    constants = {"three": ramp(3, 1), "flat": np.array([-1])}
    kind = INT64 if name == "Shape" else FLOAT
    made = model(nodes, [tensor("x", FLOAT, ["batch", WIDTH])], [tensor("y", kind)], constants)
    session = compiled(made, shape_buckets={"batch": [8]})
    feed = {"x": ramp(3, WIDTH)}
    assert_same(run(session, feed), run(cpu_session(made), feed), rtol=1e-4)
    assert [text for text in ort_mlx.report(session).unpadded if why in text]
    assert "not padded: dimension 'batch'" in str(ort_mlx.report(session))


def test_an_input_that_steers_and_one_that_has_the_dimension_twice() -> None:
    made = model(
        [node("Expand", ["one", "sizes"], ["y"])],
        [tensor("sizes", INT64, ["batch"])],
        [tensor("y")],
        {"one": np.array(1, np.float32)},
    )
    session = compiled(made, shape_buckets={"batch": [4]})
    assert run(session, {"sizes": np.array([2, 3])})[0].shape == (2, 3)
    assert "an input with it steers the graph" in ort_mlx.report(session).unpadded[0]
    made = model([node("Neg", ["x"], ["y"])], [tensor("x", FLOAT, ["n", "n"])], [tensor("y")])
    session = compiled(made, shape_buckets={"n": [4]})
    run(session, {"x": ramp(2, 2)})
    assert "input 'x' has it twice" in ort_mlx.report(session).unpadded[0]


def test_a_dimension_that_no_input_has() -> None:
    session = compiled(layers(), shape_buckets={"bach": [8]})
    run(session, {"x": ramp(3, WIDTH)})
    wanted = "dimension 'bach': no input of the partition has it"
    assert ort_mlx.report(session).unpadded == [wanted]


def test_inputs_that_are_broadcast_although_their_symbol_is_one() -> None:
    made = model(
        [node("Add", ["a", "b"], ["y"])],
        [tensor("a", FLOAT, ["batch", WIDTH]), tensor("b", FLOAT, ["batch", WIDTH])],
        [tensor("y")],
    )
    session = compiled(made, shape_buckets={"batch": [8]})
    for m, n in ((3, 3), (1, 5), (5, 1)):
        feed = {"a": ramp(m, WIDTH), "b": ramp(n, WIDTH)}
        assert_same(run(session, feed), [feed["a"] + feed["b"]])


def test_a_failure_goes_on_with_the_real_sizes() -> None:
    session = mlx_session(layers(), shape_buckets={"batch": [8]}, routes=())
    feed = {"x": ramp(3, WIDTH)}
    assert_same(run(session, feed), run(cpu_session(layers()), feed), rtol=1e-4)


# --- random graphs --------------------------------------------------------------------------------


@st.composite
def graphs(draw: Any) -> bytes:
    """Steps over values of [batch, 4], [4, batch] and [batch, 2, 2], some of which mix."""
    shapes = {"x": ("n", 4), "u": ("n", 4)}
    nodes: list[Any] = []

    def add(op: str, inputs: list[str], shape: tuple[Any, ...], **attributes: Any) -> None:
        out = f"v{len(nodes)}"
        nodes.append(node(op, inputs, [out], **attributes))
        shapes[out] = shape

    for _ in range(draw(st.integers(1, 8))):
        a = draw(st.sampled_from(sorted(shapes)))
        shape = shapes[a]
        kind = draw(st.sampled_from(["unary", "binary", "turn", "part", "mix", "product", "join"]))
        if kind == "unary":
            add(draw(st.sampled_from(["Neg", "Tanh", "Sigmoid"])), [a], shape)
        elif kind == "binary":
            same = [v for v, s in shapes.items() if s == shape]
            add("Sub", [a, draw(st.sampled_from(same))], shape)
        elif kind == "turn":
            order = list(draw(st.permutations(range(len(shape)))))
            add("Transpose", [a], tuple(shape[i] for i in order), perm=order)
        elif kind == "part" and shape == ("n", 4):
            add("Reshape", [a, "parts"], ("n", 2, 2))
        elif kind == "part" and shape[0] == "n":
            # By numbers that are computed from the shape, as exporters write it.
            k = len(nodes)
            nodes.append(node("Shape", [a], [f"s{k}"]))
            nodes.append(node("Gather", [f"s{k}", "first"], [f"g{k}"]))
            nodes.append(node("Concat", [f"g{k}", "rest"], [f"t{k}"], axis=0))
            add("Reshape", [a, f"t{k}"], ("n", 4))
        elif kind == "mix":
            axis = draw(st.integers(0, len(shape) - 1))
            add("Softmax", [a], shape, axis=axis)
        elif kind == "product" and shape[-1] == 4:
            add("MatMul", [a, "w"], shape)
        elif kind == "join":
            axis = draw(st.integers(0, len(shape) - 1))
            if shape[axis] != "n":
                add(
                    "Concat",
                    [a, a],
                    (*shape[:axis], shape[axis] * 2, *shape[axis + 1 :]),
                    axis=axis,
                )
    if not nodes:
        add("Neg", ["x"], shapes["x"])
    outputs = sorted({f"v{len(nodes) - 1}", draw(st.sampled_from(sorted(shapes)[: len(nodes)]))})
    outputs = [o for o in outputs if o.startswith("v")]
    return model(
        nodes,
        [tensor("x", FLOAT, ["n", 4]), tensor("u", FLOAT, ["n", 4])],
        [tensor(o) for o in outputs],
        {
            "w": ramp(4, 4),
            "parts": np.array([0, 2, 2]),
            "first": np.array([0]),
            "rest": np.array([4]),
        },
    )


@given(graphs(), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 9))
def test_random_graphs(made: bytes, sizes: list[int], seed: int) -> None:
    """As without the option, whether the graph may be padded or not."""
    session = mlx_session(made, shape_buckets={"n": [3, 8]})
    reference = cpu_session(made)
    rng = np.random.default_rng(seed)
    for n in sizes:
        feed = {name: rng.standard_normal((n, 4)).astype(np.float32) for name in ("x", "u")}
        feed = {i.name: feed[i.name] for i in session.get_inputs()}
        with counted(session) as added:
            assert_same(run(session, feed), run(reference, feed), rtol=1e-4)
        assert added["failures"] == added["eager_runs"] == 0


# --- the option -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "text", "wanted"),
    [
        ({"batch": [4, 1, 2]}, "batch=4/1/2", Buckets("batch", (1, 2, 4))),
        ({"tokens": 64}, "tokens=64/...", Buckets("tokens", multiple=64)),
        ("n=8", "n=8", Buckets("n", (8,))),
        ({"a=b": [3]}, "a=b=3", Buckets("a=b", (3,))),
    ],
)
def test_the_option_in_both_forms(given_: Any, text: str, wanted: Buckets) -> None:
    assert written(given_) == text
    assert parse(text) == wanted
    assert settings.parse({"shape_buckets": given_}).shape_buckets == (text,)
    assert settings.as_strings({"shape_buckets": given_})["shape_buckets"] == text


@pytest.mark.parametrize(
    "text",
    ["batch", "=4", "n=", "n=0", "n=x", "n=4/...8", "n=.../4", "n=-1", "n=2/2147483648"],
)
def test_what_the_option_does_not_take(text: str) -> None:
    with pytest.raises(OptionError, match="shape_buckets"):
        settings.parse({"shape_buckets": text})
