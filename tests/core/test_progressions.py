"""Progressions: one closure for keys at equal distances, only where it is right at each of them."""

# longer than 400 lines: one property, over the many ways that a graph computes with a length

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from onnx import TensorProto

import ort_mlx
from core.graphs import BOOL, FLOAT, INT64, body, cpu_session, model, node, tensor
from core.routes import assert_same, compiled, counts, eager, no_python, run

MS = "com.microsoft"
INT32 = TensorProto.INT32


def ramp(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def follow(
    made: bytes, feeds: Iterable[dict[str, Any]], every: int = 1, reference: Any = None
) -> Any:
    """Run the feeds in order; compare every so many with the eager result, or ORT's."""
    session = compiled(made)
    reference = eager(made) if reference is None else reference
    for i, feed in enumerate(feeds):
        got = run(session, feed)
        if i % every == 0:
            assert_same(got, run(reference, feed), rtol=1e-4)
    return session


def assert_served(session: Any, runs: int, at_most: int = 6) -> None:
    made = counts(session)
    assert made["traces"] <= at_most, ort_mlx.report(session)
    assert made["hits"] + made["traces"] >= runs
    assert made["failures"] == made["eager_runs"] == 0


# --- decoders -------------------------------------------------------------------------------------


def attention_of_plain_ops() -> bytes:
    """A cache that grows by a row, positions from its length, and a mask made of them."""
    return model(
        [
            node("Concat", ["past", "x"], ["present"], axis=1),
            node("Transpose", ["present"], ["turned"], perm=[0, 2, 1]),
            node("MatMul", ["x", "turned"], ["scores"]),
            node("Shape", ["present"], ["shape"]),
            node("Gather", ["shape", "one"], ["length"]),
            node("Range", ["zero", "length", "one"], ["positions"]),
            node("Cast", ["positions"], ["places"], to=FLOAT),
            node("Mul", ["places", "tenth"], ["bias"]),
            node("Add", ["scores", "bias"], ["biased"]),
            node("Sub", ["length", "one"], ["last"]),
            node("LessOrEqual", ["positions", "last"], ["seen"]),
            node("Where", ["seen", "biased", "least"], ["masked"]),
            node("Softmax", ["masked"], ["weights"], axis=-1),
            node("MatMul", ["weights", "present"], ["y"]),
        ],
        [tensor("x", FLOAT, ["b", 1, 8]), tensor("past", FLOAT, ["b", "p", 8])],
        [tensor("y"), tensor("present")],
        {
            "zero": np.array(0),
            "one": np.array(1),
            "tenth": np.array(0.1, np.float32),
            "least": np.array(-1e9, np.float32),
        },
    )


def test_a_thousand_steps_with_a_growing_cache() -> None:
    feeds = ({"x": ramp(1, 1, 8), "past": ramp(1, p, 8)} for p in range(1000))
    session = follow(attention_of_plain_ops(), feeds, every=37)
    assert_served(session, 1000)


def test_steady_decoding_does_not_enter_python() -> None:
    session = compiled(attention_of_plain_ops())
    for p in range(4):
        run(session, {"x": ramp(1, 1, 8), "past": ramp(1, p, 8)})
    with no_python():
        for p in range(4, 60):
            run(session, {"x": ramp(1, 1, 8), "past": ramp(1, p, 8)})


def test_prompts_of_several_lengths_then_their_tokens() -> None:
    """A decoder meets the lengths of one prompt and its answer, then of the next."""
    made = attention_of_plain_ops()
    lengths = [*range(5, 40), *range(2, 30), *range(17, 60), *range(5, 40)]
    feeds = ({"x": ramp(1, 1, 8), "past": ramp(1, p, 8)} for p in lengths)
    session = follow(made, feeds, every=3)
    assert counts(session)["traces"] <= 8


def group_query(capacity: str | int) -> bytes:
    """GroupQueryAttention; the mask's sum gives the lengths, as exporters write it."""
    heads, kv_heads, size = 4, 2, 16
    cache = ["b", kv_heads, capacity, size]
    return model(
        [
            node("ReduceSum", ["mask", "axis"], ["sums"], keepdims=0),
            node("Sub", ["sums", "one"], ["seqlens"]),
            node("Cast", ["seqlens"], ["seqlens32"], to=INT32),
            node("Shape", ["mask"], ["mask_shape"]),
            node("Gather", ["mask_shape", "last"], ["total"]),
            node("Cast", ["total"], ["total32"], to=INT32),
            node(
                "GroupQueryAttention",
                ["q", "k", "v", "past_k", "past_v", "seqlens32", "total32"],
                ["y", "present_k", "present_v"],
                domain=MS,
                num_heads=heads,
                kv_num_heads=kv_heads,
            ),
        ],
        [
            tensor("q", FLOAT, ["b", 1, heads * size]),
            tensor("k", FLOAT, ["b", 1, kv_heads * size]),
            tensor("v", FLOAT, ["b", 1, kv_heads * size]),
            tensor("past_k", FLOAT, cache),
            tensor("past_v", FLOAT, cache),
            tensor("mask", INT64, ["b", "t"]),
        ],
        [tensor("y"), tensor("present_k"), tensor("present_v")],
        {"axis": np.array([1]), "one": np.array([[1]])[0], "last": np.array(1)},
        domains=[MS],
    )


def group_query_feed(past: int, capacity: int) -> dict[str, Any]:
    return {
        "q": ramp(1, 1, 64),
        "k": ramp(1, 1, 32),
        "v": ramp(1, 1, 32) * 2,
        "past_k": ramp(1, 2, capacity, 16),
        "past_v": ramp(1, 2, capacity, 16) * 3,
        "mask": np.ones((1, past + 1), np.int64),
    }


def test_group_query_attention_with_a_growing_cache() -> None:
    made = group_query("p")
    feeds = (group_query_feed(p, p) for p in range(1, 300))
    session = follow(made, feeds, every=29, reference=cpu_session(made))
    assert_served(session, 299)


def test_group_query_attention_with_a_shared_buffer_and_a_growing_mask() -> None:
    made = group_query(320)
    feeds = (group_query_feed(p, 320) for p in range(1, 320))  # until it is full
    session = follow(made, feeds, every=29)
    assert_served(session, 319)


# --- thresholds -----------------------------------------------------------------------------------


def window(size: int) -> bytes:
    """Attention to the last `size` rows of a cache that grows without end."""
    return model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"]),
            node("Sub", ["n", "size"], ["first"]),
            node("Max", ["first", "zero"], ["start"]),
            node("Unsqueeze", ["start", "axis"], ["starts"]),
            node("Slice", ["x", "starts", "end"], ["kept"]),
            node("ReduceSum", ["kept", "axis"], ["y"], keepdims=0),
        ],
        [tensor("x", FLOAT, ["n", 4])],
        [tensor("y"), tensor("kept")],
        {
            "zero": np.array(0),
            "size": np.array(size),
            "axis": np.array([0]),
            "end": np.array([2**31]),
        },
    )


@pytest.mark.parametrize("size", [5, 60, 500])
def test_a_sliding_window_is_right_on_both_sides_of_its_size(size: int) -> None:
    lengths = range(3, 1003)
    session = follow(window(size), ({"x": ramp(n, 4)} for n in lengths), every=1)
    assert_served(session, len(lengths), at_most=60)


def test_after_the_window_one_closure_serves_what_follows() -> None:
    session = compiled(window(10))
    for n in range(3, 60):
        run(session, {"x": ramp(n, 4)})
    before = counts(session)["traces"]
    for n in range(60, 1060):
        run(session, {"x": ramp(n, 4)})
    assert counts(session)["traces"] - before <= 6, ort_mlx.report(session)


def special_size(at: int, test: str = "Equal") -> bytes:
    """Another graph at one size only, which no sample needs to meet."""
    then = body([node("Neg", ["x"], ["t"])], [], [tensor("t")])
    otherwise = body([node("Abs", ["x"], ["u"])], [], [tensor("u")])
    return model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"]),
            node(test, ["n", "at"], ["special"]),
            node("If", ["special"], ["y"], then_branch=then, else_branch=otherwise),
        ],
        [tensor("x", FLOAT, ["n", 2])],
        [tensor("y")],
        {"zero": np.array(0), "at": np.array(at)},
    )


@pytest.mark.parametrize("at", [1, 7, 13, 40, 90, 91])
def test_one_special_size_in_the_middle(at: int) -> None:
    follow(special_size(at), ({"x": ramp(n, 2)} for n in range(3, 100)))


def hat(at: int, on_host: bool) -> bytes:
    """max(0, 2 - |n - at|), zero at both ends and nearly everywhere: rows to add, or a number."""
    used = [
        node("Concat", ["bump", "two"], ["shape"], axis=0),
        node("ConstantOfShape", ["shape"], ["rows"]),
        node("Concat", ["x", "rows"], ["y"], axis=0),
    ]
    shifted = [node("Cast", ["bump"], ["shift"], to=FLOAT), node("Add", ["x", "shift"], ["y"])]
    return model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"]),
            node("Sub", ["n", "at"], ["off"]),
            node("Abs", ["off"], ["away"]),
            node("Sub", ["two", "away"], ["rest"]),
            node("Max", ["rest", "zero"], ["bump"]),
            *(used if on_host else shifted),
        ],
        [tensor("x", FLOAT, ["n", 2])],
        [tensor("y")],
        {"zero": np.array([0]), "two": np.array([2]), "at": np.array([at])},
    )


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("at", [4, 40, 90])
def test_a_bump_in_the_middle(at: int, on_host: bool) -> None:
    follow(hat(at, on_host), ({"x": ramp(n, 2)} for n in range(3, 100)))


@pytest.mark.parametrize("divisor", [2, 3, 64, 97])
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_rounded_quotients_and_remainders(op: str, divisor: int) -> None:
    """Padding up to a multiple, as a number of rows to add."""
    made = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "axis"], ["n"]),
            node(op, ["n", "divisor"], ["more"]),
            node("Concat", ["more", "two"], ["shape"], axis=0),
            node("ConstantOfShape", ["shape"], ["rows"]),
            node("Concat", ["x", "rows"], ["y"], axis=0),
        ],
        [tensor("x", FLOAT, ["n", 2])],
        [tensor("y")],
        {"axis": np.array([0]), "two": np.array([2]), "divisor": np.array([divisor])},
    )
    follow(made, ({"x": ramp(n, 2)} for n in range(3, 160)))


@pytest.mark.parametrize("change", [1, -1, 2, -3])
def test_a_dimension_that_becomes_one_or_zero(change: int) -> None:
    """Broadcasting starts at 1, and a size of 0 empties everything."""
    made = model(
        [
            node("Mul", ["x", "z"], ["p"]),
            node("ReduceSum", ["p", "axis"], ["r"]),
            node("Add", ["r", "p"], ["y"]),
        ],
        [tensor("x", FLOAT, ["n", 3]), tensor("z", FLOAT, ["n", 3])],
        [tensor("y")],
        {"axis": np.array([0])},
    )
    sizes = range(0, 40, change) if change > 0 else range(40, -1, change)
    follow(made, ({"x": ramp(n, 3), "z": ramp(n, 3)} for n in sizes))


def test_two_dimensions_that_meet() -> None:
    """One grows towards the other, which is fixed at 1 and then at 20."""
    made = model(
        [node("Transpose", ["z"], ["t"]), node("MatMul", ["x", "t"], ["y"])],
        [tensor("x", FLOAT, ["n", 3]), tensor("z", FLOAT, ["m", 3])],
        [tensor("y")],
    )
    for fixed in (1, 20):
        follow(made, ({"x": ramp(n, 3), "z": ramp(fixed, 3)} for n in range(15, 40)))


def test_shapes_that_fit_only_by_accident() -> None:
    """X and z grow at different rates; where they differ and neither is 1 a Run is an error."""
    made = model(
        [node("Add", ["x", "z"], ["y"], name="sum")],
        [tensor("x", FLOAT, ["n"]), tensor("z", FLOAT, ["m"])],
        [tensor("y")],
    )
    session = compiled(made)
    for n in (3, 4, 5, 6):
        run(session, {"x": ramp(n), "z": ramp(n)})
    with pytest.raises(Exception, match=r"\[Add 'sum'\]"):
        run(session, {"x": ramp(7), "z": ramp(8)})
    for n in (7, 8, 20):
        (got,) = run(session, {"x": ramp(n), "z": ramp(1)})
        np.testing.assert_allclose(got, ramp(n) + ramp(1))


# --- other progressions ---------------------------------------------------------------------------


def test_batches_of_sizes_in_arithmetic_progression() -> None:
    made = model(
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Reshape", ["h", "shape"], ["r"]),
            node("Softmax", ["r"], ["y"], axis=-1),
        ],
        [tensor("x", FLOAT, ["b", 4, 6])],
        [tensor("y")],
        {"w": ramp(6, 6), "shape": np.array([0, 2, -1])},
    )
    session = follow(made, ({"x": ramp(b, 4, 6)} for b in range(8, 400, 8)), every=5)
    assert_served(session, 49)


@pytest.mark.parametrize("op", ["Tanh", "Softmax"])
def test_rows_that_are_folded_as_they_are_made(op: str) -> None:
    """One kernel: nothing of the growing shape leaves it, and only its input tells the size."""
    made = model(
        [node(op, ["x"], ["t"]), node("ReduceSum", ["t", "last"], ["y"])],
        [tensor("x", FLOAT, ["n", 32])],
        [tensor("y")],
        {"last": np.array([-1])},
    )
    session = follow(made, ({"x": ramp(n, 32)} for n in range(2, 40, 2)))
    assert_served(session, 19)


def test_two_inputs_that_grow_at_different_rates() -> None:
    made = model(
        [node("Concat", ["x", "z"], ["c"], axis=0), node("Neg", ["c"], ["y"])],
        [tensor("x", FLOAT, ["n", 2]), tensor("z", FLOAT, ["m", 2])],
        [tensor("y")],
    )
    feeds = ({"x": ramp(3 + i, 2), "z": ramp(5 + 4 * i, 2)} for i in range(60))
    assert_served(follow(made, feeds), 60)


def test_a_steering_value_that_grows() -> None:
    """A position given to the model, which turns up as a bound and as data."""
    made = model(
        [
            node("Slice", ["x", "zero", "n"], ["t"]),
            node("Cast", ["n"], ["f"], to=FLOAT),
            node("Mul", ["t", "f"], ["y"]),
        ],
        [tensor("x", FLOAT, [200]), tensor("n", INT64, [1])],
        [tensor("y")],
        {"zero": np.array([0])},
    )
    session = follow(made, ({"x": ramp(200), "n": np.array([n])} for n in range(1, 190)))
    assert counts(session)["traces"] <= 12, ort_mlx.report(session)


def test_a_constant_that_is_not_linear() -> None:
    """1 / sqrt(n): refused, and traced for every size."""
    made = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Cast", ["s"], ["f"], to=FLOAT),
            node("Sqrt", ["f"], ["r"]),
            node("Div", ["x", "r"], ["y"]),
        ],
        [tensor("x", FLOAT, ["n"])],
        [tensor("y")],
    )
    follow(made, ({"x": ramp(n)} for n in range(2, 60)))


@pytest.mark.parametrize("change", [1, 3])
def test_strided_and_reversed_slices(change: int) -> None:
    made = model(
        [
            node("Slice", ["x", "start", "end", "axis", "by"], ["t"]),
            node("Slice", ["x", "one", "far", "axis", "two"], ["u"]),
            node("Neg", ["t"], ["y"]),
            node("Neg", ["u"], ["z"]),
        ],
        [tensor("x", FLOAT, ["n", 2])],
        [tensor("y"), tensor("z")],
        {
            "start": np.array([-1]),
            "end": np.array([-(2**31)]),
            "far": np.array([2**31]),
            "axis": np.array([0]),
            "by": np.array([-1]),
            "one": np.array([1]),
            "two": np.array([2]),
        },
    )
    follow(made, ({"x": ramp(n, 2)} for n in range(2, 90, change)))


def test_a_range_that_is_refused_is_tried_again() -> None:
    """The sizes around a threshold are refused, those beyond it are served."""
    session = follow(window(40), ({"x": ramp(n, 4)} for n in range(36, 60)))
    before = counts(session)["traces"]
    for n in range(60, 400):
        run(session, {"x": ramp(n, 4)})
    assert counts(session)["traces"] == before


def test_reports_say_why_not() -> None:
    session = compiled(hat(5, on_host=True))
    for n in range(3, 12):
        run(session, {"x": ramp(n, 2)})
    plans = ort_mlx.report(session).plans
    assert "not a progression: [Max ''] is not linear in the step" in [
        r for p in plans for r in p.progressions.reasons
    ]


# --- random graphs --------------------------------------------------------------------------------

Piece = Callable[[str, str, int], tuple[list[Any], dict[str, np.ndarray]]]


def _scalar(value: int) -> np.ndarray:
    return np.array([value])


def pieces() -> dict[str, Piece]:
    """Shape arithmetic that takes `n` (int64[1]) to `out` (int64[1])."""

    def binary(op: str) -> Piece:
        return lambda n, out, k: ([node(op, [n, f"{out}k"], [out])], {f"{out}k": _scalar(k)})

    def where(op: str) -> Piece:
        def make(n: str, out: str, k: int) -> tuple[list[Any], dict[str, np.ndarray]]:
            nodes = [
                node(op, [n, f"{out}k"], [f"{out}c"]),
                node("Where", [f"{out}c", f"{out}k", n], [out]),
            ]
            return nodes, {f"{out}k": _scalar(k)}

        return make

    return {
        **{op: binary(op) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod")},
        **{f"Where {op}": where(op) for op in ("Equal", "Less", "Greater")},
        "Abs": lambda n, out, k: ([node("Abs", [n], [out])], {}),
    }


@st.composite
def arithmetic(draw: Any) -> bytes:
    nodes = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "axis"], ["n0"])]
    constants: dict[str, np.ndarray] = {"axis": np.array([0]), "most": np.array([60]),
                                        "least": np.array([0]), "two": np.array([2])}  # fmt: skip
    made = pieces()
    count = draw(st.integers(1, 4))
    for i in range(count):
        kind = draw(st.sampled_from(sorted(made)))
        more, own = made[kind](f"n{i}", f"n{i + 1}", draw(st.integers(1, 45)))
        nodes += more
        constants |= own
    nodes += [
        node("Max", [f"n{count}", "least"], ["low"]),
        node("Min", ["low", "most"], ["rows"]),
        node("Cast", [f"n{count}"], ["f"], to=FLOAT),
        node("Concat", ["rows", "two"], ["shape"], axis=0),
        node("Expand", ["f", "shape"], ["more"]),
        node("Concat", ["x", "more"], ["y"], axis=0),
    ]
    return model(nodes, [tensor("x", FLOAT, ["n", 2])], [tensor("y")], constants)


@given(arithmetic(), st.integers(0, 20), st.sampled_from([1, 1, 2, 5]))
def test_random_shape_arithmetic(made: bytes, start: int, change: int) -> None:
    """Whatever the graph, every step is what eager gives."""
    follow(made, ({"x": ramp(n, 2)} for n in range(start, start + 24 * change, change)))


def test_conditions_given_to_the_model_are_no_progression() -> None:
    then = body([node("Neg", ["x"], ["t"])], [], [tensor("t")])
    otherwise = body([node("Abs", ["x"], ["u"])], [], [tensor("u")])
    made = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)],
        [tensor("c", BOOL, []), tensor("x", FLOAT, ["n"])],
        [tensor("y")],
    )
    feeds = ({"c": np.array(n % 3 == 0), "x": ramp(n)} for n in range(1, 40))
    follow(made, feeds)
