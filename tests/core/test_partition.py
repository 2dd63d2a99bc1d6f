"""Partitions: disjoint, complete, convex, free of cycles on any graph; shape islands are left."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.graphs import (
    CPU,
    INT64,
    MLX,
    NOTHING,
    cpu_session,
    mlx_session,
    model,
    node,
    placed,
    tensor,
)
from ort_mlx.partition import convex_groups, join

Graph = tuple[list[list[int]], list[bool]]


def random_graph(size: int, seed: int, fan_in: float, reach: int, claimed_share: float) -> Graph:
    """A DAG in topological order: node n reads a few of the `reach` nodes before it."""
    rng = random.Random(seed)
    before = []
    for n in range(size):
        count = min(n, int(rng.expovariate(1 / fan_in)) if fan_in else 0)
        before.append(sorted({rng.randrange(max(0, n - reach), n) for _ in range(count)}))
    return before, [rng.random() < claimed_share for _ in range(size)]


def check(before: Sequence[Sequence[int]], claimed: Sequence[bool]) -> list[tuple[int, ...]]:
    groups = convex_groups(before, claimed)
    flat = [n for group in groups for n in group]
    assert len(flat) == len(set(flat)), "a node is in two groups"
    assert set(flat) == {n for n, c in enumerate(claimed) if c}
    assert all(list(g) == sorted(g) for g in groups)
    check_quotient_has_no_cycle(before, groups)
    check_convex(before, groups)
    for kept in (groups, groups[::2]):  # some may have been left out as islands
        joined = join(before, kept, len(before))
        assert sorted(n for g in joined for n in g) == sorted(n for g in kept for n in g)
        assert len(joined) <= len(kept)
        check_quotient_has_no_cycle(before, joined)
        check_convex(before, joined)
    return groups


def check_quotient_has_no_cycle(
    before: Sequence[Sequence[int]], groups: Sequence[tuple[int, ...]]
) -> None:
    """Depth-first search over the graph in which each group is one vertex."""
    home = list(range(len(before)))
    for group in groups:
        for n in group:
            home[n] = group[0]
    edges: dict[int, set[int]] = {h: set() for h in home}
    for n, sources in enumerate(before):
        edges[home[n]] |= {home[p] for p in sources} - {home[n]}
    state: dict[int, int] = {}
    for start in edges:
        stack = [(start, iter(edges[start]))]
        if state.setdefault(start, 1) == 2:
            continue
        while stack:
            vertex, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[vertex] = 2
                stack.pop()
            elif state.get(following) is None:
                state[following] = 1
                stack.append((following, iter(edges[following])))
            else:
                assert state[following] == 2, f"groups {vertex} and {following} are in a cycle"


def check_convex(before: Sequence[Sequence[int]], groups: Sequence[tuple[int, ...]]) -> None:
    """No path leaves a group and comes back, by reachability in bit sets of many groups a time."""
    group_of = {n: g for g, group in enumerate(groups) for n in group}
    for first in range(0, len(groups), 512):
        window = range(first, min(first + 512, len(groups)))
        inside = [0] * len(before)  # groups with a member that reaches this node, itself included
        left = [0] * len(before)  # groups with a member that reaches it through a node outside
        for n, sources in enumerate(before):
            own = group_of.get(n, -1)
            bit = 1 << (own - first) if own in window else 0
            reached = escaped = 0
            for p in sources:
                reached |= inside[p]
                escaped |= left[p]
            assert not escaped & bit, f"group {own} is not convex: a path comes back to node {n}"
            left[n] = escaped | (reached & ~bit)
            inside[n] = reached | bit


graphs = st.builds(
    random_graph,
    size=st.integers(0, 60),
    seed=st.integers(0, 2**32),
    fan_in=st.sampled_from([0.5, 1.5, 3.0]),
    reach=st.sampled_from([1, 3, 10, 60]),
    claimed_share=st.sampled_from([0.0, 0.3, 0.7, 0.95, 1.0]),
)
big_graphs = st.builds(
    random_graph,
    size=st.integers(2_000, 10_000),
    seed=st.integers(0, 2**32),
    fan_in=st.sampled_from([0.5, 1.5]),
    reach=st.sampled_from([5, 100, 10_000]),
    claimed_share=st.sampled_from([0.5, 0.9, 0.99]),
)


@given(graphs)
@settings(max_examples=300)
@example(([[], [0], [0, 1]], [True, False, True]))  # a triangle over an unclaimed node
@example(([[], [], [0], [1], [2, 3]], [True, True, False, True, True]))
@example(([[], [0], [], [2], [1, 3], [0, 2]], [True, False, True, True, True, True]))
def test_groups_are_convex_and_acyclic(graph: Graph) -> None:
    check(*graph)


@given(big_graphs)
@settings(max_examples=6)
def test_groups_of_big_graphs(graph: Graph) -> None:
    check(*graph)


def test_ten_thousand_nodes_in_a_row_and_in_a_fan() -> None:
    size = 10_000
    row = [[n - 1] if n else [] for n in range(size)]
    assert check(row, [True] * size) == [tuple(range(size))]
    fan = [[], *([0] for _ in range(size - 2)), list(range(1, size - 1))]
    assert check(fan, [True] * size) == [tuple(range(size))]
    assert len(check(row, [n % 2 == 0 for n in range(size)])) == size // 2


def test_the_checkers_see_what_is_wrong() -> None:
    triangle = [[], [0], [0, 1]]
    with pytest.raises(AssertionError, match="not convex"):
        check_convex(triangle, [(0, 2)])
    crossed = [[], [], [0], [1], [2, 3]]
    with pytest.raises(AssertionError, match="cycle"):
        check_quotient_has_no_cycle([[], [], [0], [1]], [(0, 3), (1, 2)])
    check_convex(crossed, [(0, 2, 4, 1, 3)])


def test_groups_are_as_large_as_possible_in_common_shapes() -> None:
    # One unclaimed node in a row: one group on each side.
    assert check([[], [0], [1], [2], [3]], [True, True, False, True, True]) == [(0, 1), (3, 4)]
    # A side branch joins the group that reads it: 2 is ready early, and only 4 reads it.
    assert check([[], [0], [], [1], [2, 3]], [True, False, True, True, True]) == [(0,), (2, 3, 4)]
    # Two unclaimed nodes beside each other do not split what is around them twice.
    assert check([[], [0], [0], [1, 2], [3]], [True, False, False, True, True]) == [(0,), (3, 4)]
    # Unrelated rows stay apart, and a node that nothing claims makes no group.
    assert check([[], [], [0], [1]], [True] * 4) == [(0, 2), (1, 3)]
    assert check([[], [0]], [False, False]) == []


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def around_a_text(*shape_nodes: object) -> bytes:
    """A model with shape arithmetic that reads and feeds nodes which are not ours."""
    return model(
        [
            node("StringNormalizer", ["s"], ["t"], name="text"),
            node("Shape", ["t"], ["n"], name="shape"),  # of strings: not ours
            *shape_nodes,
            node("ConstantOfShape", ["m"], ["z"], name="filled"),
            node("StringConcat", ["t", "t"], ["u"], name="joined"),
            node("Relu", ["x"], ["y"], name="relu"),
        ],
        [tensor("s", ort_string, ["n"]), tensor("x", shape=[2, 3])],
        [tensor("z"), tensor("u", ort_string), tensor("y")],
        {"two": np.array([2])},
    )


ort_string = 8
ISLAND = [
    node("Mul", ["n", "two"], ["m2"], name="mul"),
    node("Add", ["m2", "two"], ["m"], name="add"),
]
FEEDS = {"s": np.array(["a", "b"], dtype=object), "x": X}


def session_of(made: bytes, **options: object) -> ort.InferenceSession:
    session_options = ort.SessionOptions()
    session_options.graph_optimization_level = NOTHING
    return mlx_session(made, session_options, exclude_ops=["ConstantOfShape"], **options)


def test_shape_arithmetic_alone_is_left_to_ort() -> None:
    made = around_a_text(*ISLAND)
    session = session_of(made)
    assert placed(session)[MLX] == Counter(["Relu"])
    kept = session_of(made, keep_islands=True)
    assert placed(kept)[MLX] == Counter(["Relu", "Mul", "Add"])
    wanted = cpu_session(made).run(None, FEEDS)
    for s in (session, kept):
        for got, want in zip(s.run(None, FEEDS), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_a_model_of_shape_arithmetic_only_is_taken() -> None:
    made = model([node("Add", ["n", "n"], ["m"])], [tensor("n", INT64, [2])], [tensor("m", INT64)])
    assert placed(mlx_session(made)) == {MLX: Counter(["Add"])}


def test_shape_arithmetic_stays_with_the_data_it_steers() -> None:
    made = model(
        [
            node("Shape", ["x"], ["s"], name="shape"),
            node("Mul", ["s", "one"], ["t"], name="mul"),
            node("Reshape", ["x", "t"], ["r"], name="reshape"),
            node("StringNormalizer", ["w"], ["v"], name="text"),
        ],
        [tensor("x", shape=["a", "b"]), tensor("w", ort_string, ["n"])],
        [tensor("r"), tensor("v", ort_string)],
        {"one": np.array([1, 1])},
    )
    found = placed(mlx_session(made))
    assert found[CPU] == Counter(["StringNormalizer"])
    assert found[MLX] == Counter(["Shape", "Mul", "Reshape"])
