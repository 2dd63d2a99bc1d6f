"""If, Loop and Scan taken whole: captured values, scopes, constants, host values, empty loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from core.graphs import BOOL, FLOAT, INT64, assert_equal_to_cpu, body, model, node, tensor

TRUE, FALSE = np.array(True), np.array(False)


def conditional(
    then: Any,
    otherwise: Any,
    before: Any = (),
    after: Any = (),
    outputs: Any = None,
    constants: Any = None,
) -> bytes:
    branches = {"then_branch": then, "else_branch": otherwise}
    return model(
        [*before, node("If", ["c"], ["y"], name="if", **branches), *after],
        [tensor("c", BOOL, []), tensor("x", shape=["a", "b"])],
        outputs or [tensor("y")],
        constants,
    )


def check(made: bytes, x: np.ndarray, unoptimized: bool = False) -> None:
    feeds = [{"c": c, "x": x} for c in (TRUE, FALSE)] + [{"c": TRUE, "x": x[:1]}]
    assert_equal_to_cpu(made, *feeds, unoptimized=unoptimized)


def branch(op: str, *inputs: str, constants: Any = None) -> Any:
    return body([node(op, inputs, ["t"])], [], [tensor("t")], constants)


def test_branches_with_equal_names(x: np.ndarray) -> None:
    check(conditional(branch("Relu", "x"), branch("Neg", "x")), x)


def test_captured_values_computed_outside_and_used_after(x: np.ndarray) -> None:
    made = conditional(
        branch("Add", "p", "x"),
        branch("Identity", "p"),
        [node("Exp", ["x"], ["p"])],
        [node("Sub", ["y", "p"], ["z"])],
        [tensor("z"), tensor("p")],
    )
    check(made, x)


def test_a_branch_returns_a_value_from_outside(x: np.ndarray) -> None:
    check(
        conditional(branch("Identity", "x"), branch("Identity", "k"), constants={"k": x}), x, True
    )


@pytest.mark.parametrize("size", [3, 3000], ids=["small", "large"])
def test_constants_from_outside_and_own_ones(x: np.ndarray, size: int) -> None:
    """Beyond 4 KiB a constant is not copied to the host but wrapped."""
    outside = np.linspace(0, 1, size, dtype=np.float32)
    made = model(
        [
            node(
                "If",
                ["c"],
                ["y"],
                then_branch=branch("Mul", "outside", "own", constants={"own": outside + 1}),
                else_branch=branch("Sub", "outside", "own", constants={"own": outside * 3}),
            ),
            node("Add", ["y", "outside"], ["z"]),
        ],
        [tensor("c", BOOL, [])],
        [tensor("z")],
        {"outside": outside},
    )
    for unoptimized in (False, True):
        assert_equal_to_cpu(made, {"c": TRUE}, {"c": FALSE}, unoptimized=unoptimized)


def test_a_branch_returns_its_own_initializer(x: np.ndarray) -> None:
    own = body([], [], [tensor("k", FLOAT, [4])], {"k": np.ones(4, np.float32)})
    check(conditional(own, branch("Neg", "x")), x)


def test_outputs_of_rank_0_and_of_no_elements(x: np.ndarray) -> None:
    total = body([node("ReduceSum", ["x"], ["t"], keepdims=0)], [], [tensor("t")])
    empty = body([], [], [tensor("e", FLOAT, [0, 2])], {"e": np.zeros((0, 2), np.float32)})
    check(conditional(total, empty), x)


def test_two_outputs_one_of_them_known_on_the_host(x: np.ndarray) -> None:
    def side(op: str) -> Any:
        nodes = [node(op, ["x"], ["t"]), node("Shape", ["x"], ["s"])]
        return body(nodes, [], [tensor("t"), tensor("s", INT64)])

    made = model(
        [
            node("If", ["c"], ["y", "s"], then_branch=side("Sin"), else_branch=side("Cos")),
            node("ConstantOfShape", ["s"], ["z"]),
        ],
        [tensor("c", BOOL, []), tensor("x", shape=["a", "b"])],
        [tensor("y"), tensor("s", INT64), tensor("z")],
    )
    check(made, x)


def test_a_condition_computed_from_data(x: np.ndarray) -> None:
    made = model(
        [
            node("ReduceSum", ["x"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], ["c"]),
            node(
                "If", ["c"], ["y"], then_branch=branch("Neg", "x"), else_branch=branch("Exp", "x")
            ),
        ],
        [tensor("x", shape=["a", "b"])],
        [tensor("y"), tensor("c", BOOL)],
        {"zero": np.array(0, np.float32)},
    )
    assert_equal_to_cpu(made, {"x": x}, {"x": -x})


def nested(depth: int) -> tuple[Any, Any]:
    """Alternating branches, each reading the input of the model through every level."""
    if depth == 0:
        return branch("Sin", "x"), branch("Cos", "x")
    then, otherwise = nested(depth - 1)
    inner = node("If", ["c"], [f"i{depth}"], then_branch=then, else_branch=otherwise)
    add = node("Add", [f"i{depth}", "k"], [f"o{depth}"])
    return (
        body([node("Exp", ["x"], [f"e{depth}"])], [], [tensor(f"e{depth}")]),
        body([inner, add], [], [tensor(f"o{depth}")]),
    )


@pytest.mark.parametrize("depth", [1, 3, 20])
def test_deep_nesting(x: np.ndarray, depth: int) -> None:
    made = conditional(*nested(depth), constants={"k": np.array(0.5, np.float32)})
    check(made, x)


def test_host_parameters_inside_a_body(x: np.ndarray) -> None:
    """Axes from outside, a shape computed outside, a bound given to the model."""
    then = body(
        [
            node("Reshape", ["x", "flat"], ["r"]),
            node("Slice", ["r", "zero", "n"], ["t"]),
        ],
        [],
        [tensor("t")],
    )
    otherwise = body([node("Expand", ["n32", "doubled"], ["t"])], [], [tensor("t")])
    made = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Add", ["s", "s"], ["doubled"]),
            node("Cast", ["n"], ["n32"], to=FLOAT),
            node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise),
        ],
        [tensor("c", BOOL, []), tensor("x", shape=["a", "b"]), tensor("n", INT64, [1])],
        [tensor("y")],
        {"flat": np.array([-1]), "zero": np.array([0])},
    )
    feeds = [{"c": c, "x": x, "n": np.array([n])} for c in (TRUE, FALSE) for n in (2, 4)]
    assert_equal_to_cpu(made, *feeds)


LOOP_INPUTS = [tensor("i", INT64, []), tensor("going", BOOL, [])]


def loop(nodes: Any, carried: Any, outputs: Any, prefix: str = "") -> Any:
    """A body that never ends by itself; nested ones need names of their own."""
    trip, going, still = f"{prefix}i", f"{prefix}going", f"{prefix}still"
    inputs = [tensor(trip, INT64, []), tensor(going, BOOL, []), *carried]
    keep = node("Identity", [going], [still])
    return body([*nodes, keep], inputs, [tensor(still, BOOL), *outputs])


@pytest.mark.parametrize("trips", [0, 1, 5, 200])
def test_a_loop_carries_a_value(x: np.ndarray, trips: int) -> None:
    inner = loop([node("Add", ["s", "x"], ["t"])], [tensor("s")], [tensor("t")])
    made = model(
        [node("Loop", ["n", "", "x"], ["y"], body=inner)],
        [tensor("n", INT64, []), tensor("x", shape=["a", "b"])],
        [tensor("y")],
    )
    assert_equal_to_cpu(made, {"n": np.array(trips), "x": x})


@pytest.mark.parametrize("trips", [0, 1, 70])
def test_a_loop_stacks_what_it_makes(x: np.ndarray, trips: int) -> None:
    nodes = [
        node("Cast", ["i"], ["f"], to=FLOAT),
        node("Mul", ["f", "x"], ["row"]),
        node("Identity", ["i"], ["count"]),
    ]
    inner = loop(nodes, [], [tensor("row", FLOAT, [2, 3]), tensor("count", INT64, [])])
    made = model(
        [node("Loop", ["n", ""], ["rows", "counts"], body=inner)],
        [tensor("n", INT64, []), tensor("x", shape=[2, 3])],
        [tensor("rows"), tensor("counts", INT64)],
    )
    assert_equal_to_cpu(made, {"n": np.array(trips), "x": x})


def test_a_while_loop_ends_by_its_condition() -> None:
    inner = body(
        [node("Add", ["s", "one"], ["t"]), node("Less", ["t", "limit"], ["still"])],
        [*LOOP_INPUTS, tensor("s", FLOAT, [])],
        [tensor("still", BOOL), tensor("t")],
    )
    made = model(
        [node("Loop", ["", "c", "s0"], ["y"], body=inner)],
        [tensor("c", BOOL, []), tensor("s0", FLOAT, []), tensor("limit", FLOAT, [])],
        [tensor("y")],
        {"one": np.array(1, np.float32)},
    )
    start, limit = np.array(0, np.float32), np.array(7.5, np.float32)
    assert_equal_to_cpu(made, *({"c": c, "s0": start, "limit": limit} for c in (TRUE, FALSE)))


def test_a_loop_around_an_if_around_a_loop(x: np.ndarray) -> None:
    innermost = loop([node("Mul", ["v", "half"], ["w"])], [tensor("v")], [tensor("w")], "inner_")
    then = body([node("Loop", ["two", "", "s"], ["t"], body=innermost)], [], [tensor("t")])
    nodes = [
        node("Equal", ["i", "two"], ["is_two"]),
        node("If", ["is_two"], ["z"], then_branch=then, else_branch=branch("Add", "s", "x")),
    ]
    made = model(
        [node("Loop", ["n", "", "x"], ["y"], body=loop(nodes, [tensor("s")], [tensor("z")]))],
        [tensor("n", INT64, []), tensor("x", shape=["a", "b"])],
        [tensor("y")],
        {"two": np.array(2), "half": np.array(0.5, np.float32)},
    )
    assert_equal_to_cpu(made, {"n": np.array(4), "x": x}, {"n": np.array(1), "x": x})


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan(x: np.ndarray, backwards: int) -> None:
    inner = body(
        [node("Add", ["s", "e"], ["t"]), node("Mul", ["t", "k"], ["o"])],
        [tensor("s"), tensor("e")],
        [tensor("t"), tensor("o")],
    )
    made = model(
        [
            node(
                "Scan",
                ["s0", "x"],
                ["y", "rows"],
                body=inner,
                num_scan_inputs=1,
                scan_input_directions=[backwards],
                scan_output_directions=[backwards],
            )
        ],
        [tensor("s0", FLOAT, [3]), tensor("x", FLOAT, ["t", 3])],
        [tensor("y"), tensor("rows")],
        {"k": np.array(2, np.float32)},
    )
    start = np.zeros(3, np.float32)
    assert_equal_to_cpu(made, {"s0": start, "x": x}, {"s0": start + 1, "x": np.vstack([x, x])})
