"""Claims: every general reason against a node is a sentence, and silence means claimed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ort_mlx import registry
from ort_mlx.claim import Rules, reasons_against, reasons_against_body
from ort_mlx.node import Constant, Graph, Node, Value


def value(name: str, dtype: str = "float32", shape: Any = (2, 3)) -> Value:
    return Value(name, dtype, shape)


def call(
    op_type: str,
    version: int,
    inputs: Any,
    outputs: Any = None,
    domain: str = "",
    **attributes: Any,
) -> Node:
    return Node(
        index=0,
        name="n",
        domain=domain,
        op_type=op_type,
        since_version=version,
        inputs=tuple(inputs),
        outputs=tuple([value("y")] if outputs is None else outputs),
        attributes={k: v for k, v in attributes.items() if not isinstance(v, Graph)},
        bodies={k: v for k, v in attributes.items() if isinstance(v, Graph)},
    )


RELU = call("Relu", 14, [value("x")])


@pytest.fixture(autouse=True)
def own_op() -> Iterator[None]:
    """An op of a domain of our own, so that nothing depends on what a real op declines."""
    ops = registry._load()
    before = dict(ops)

    def declines(node: Node) -> Iterator[str]:
        if node.attr("mode") == "odd":
            yield "the mode is odd"
            yield "and so is the input"
        if node.attr("mode") == "broken":
            raise KeyError("oops")

    @registry.op("Made", since=(1, 3), domain="t", claim=declines, fixed={"beta": (1, 2)})
    def made(x: mx.array, y: mx.array | None = None, *, alpha: int, mode: str = "even") -> mx.array:
        return x

    yield
    ops.clear()
    ops.update(before)


def made(*inputs: Any, **attributes: Any) -> Node:
    return call("Made", 1, inputs or [value("x")], domain="t", **{"alpha": 1, **attributes})


def test_no_reason_means_claimed() -> None:
    assert reasons_against(RELU, Rules()) == ()
    assert reasons_against(made(), Rules()) == ()
    assert reasons_against(made(value("x"), None, mode="even", beta=(1, 2)), Rules()) == ()


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (call("Nothing", 1, []), "ai.onnx::Nothing is not translated"),
        (call("Made", 1, [], domain="u"), "u::Made is not translated"),
        (
            call("Made", 2, [value("x")], domain="t", alpha=1),
            "t::Made version 2 is not translated (versions 1, 3 are)",
        ),
        (made(value("x"), None, value("z")), "input 2 is not translated"),
        (made(None), "input 'x' is missing"),
        (made(value("x", "int4")), "input 'x' of type int4 is not translated"),
        (made(value("x", "string")), "'x' is of type string, which MLX has no array for"),
        (made(value("x", "undefined", None)), "'x' is not a tensor"),
        (made(gamma=2.5), "`gamma`=2.5 is not translated"),
        (made(beta=(1, 3)), "`beta`=(1, 3) is not translated"),
        (made(beta=np.zeros(2)), "`beta`=array([0., 0.]) is not translated"),
        (call("Made", 1, [value("x")], domain="t"), "attribute `alpha` is missing"),
        (
            call("Made", 1, [value("x")], [value("y", "complex64")], domain="t", alpha=1),
            "'y' is of type complex64, which MLX has no array for",
        ),
        (
            call("BitwiseNot", 18, [value("x", "float32")]),
            "input 'x' of type float32 is not translated",
        ),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_general_reasons(node: Node, reason: str) -> None:
    assert reasons_against(node, Rules()) == (reason,)


def test_a_missing_trailing_input_is_seen() -> None:
    assert reasons_against(call("Made", 1, [], domain="t", alpha=1), Rules()) == (
        "input 'x' is missing",
    )


def test_every_reason_is_given() -> None:
    node = call("Made", 1, [value("x", "string"), None, value("z")], domain="t", gamma=1)
    assert set(reasons_against(node, Rules())) == {
        "input 2 is not translated",
        "`gamma`=1 is not translated",
        "attribute `alpha` is missing",
        "'x' is of type string, which MLX has no array for",
    }


def test_the_ops_own_reasons_come_through() -> None:
    assert reasons_against(made(mode="odd"), Rules()) == ("the mode is odd", "and so is the input")


def test_the_ops_own_claim_is_not_asked_about_what_is_already_wrong() -> None:
    assert reasons_against(made(value("x", "string"), mode="odd"), Rules()) == (
        "'x' is of type string, which MLX has no array for",
    )


def test_a_claim_that_fails_declines_its_node_only() -> None:
    (reason,) = reasons_against(made(mode="broken"), Rules())
    assert reason.startswith("its claim failed with KeyError: 'oops'")


def test_options_of_the_session_decline() -> None:
    rules = Rules(excluded_ops=frozenset({"Relu"}))
    assert reasons_against(RELU, rules) == ("excluded by the option exclude_ops",)
    assert reasons_against(made(), rules) == ()


def test_float64_stays_off_a_gpu() -> None:
    double = call("Relu", 14, [value("x", "float64")], [value("y", "float64")])
    assert reasons_against(double, Rules("cpu")) == ()
    assert reasons_against(double, Rules("gpu")) == (
        "'x' is float64, which MLX computes on the CPU only",
        "'y' is float64, which MLX computes on the CPU only",
    )


def branch(*nodes: Node, outputs: Any = ()) -> Graph:
    return Graph((), tuple(outputs), nodes)


def test_bodies_are_asked_at_every_depth() -> None:
    bad = replace(RELU, op_type="Nothing", name="deep")
    inner = call(
        "If", 21, [value("c", "bool", ())], then_branch=branch(bad), else_branch=branch(RELU)
    )
    outer = replace(inner, bodies={"then_branch": branch(RELU), "else_branch": branch(inner)})
    (reason,) = reasons_against(outer, Rules())
    assert reason == (
        "in else_branch: If 'n': in then_branch: Nothing 'deep': ai.onnx::Nothing is not translated"
    )
    good = replace(inner, bodies={"then_branch": branch(RELU), "else_branch": branch(RELU)})
    assert reasons_against(good, Rules()) == ()


def test_the_values_of_a_body_count_too() -> None:
    body = Graph((value("s", "string"),), (value("q", "undefined", None),), ())
    assert list(reasons_against_body(body, Rules())) == [
        "'s' is of type string, which MLX has no array for",
        "'q' is not a tensor",
    ]


def test_a_partition_inside_a_body_is_not_taken_twice() -> None:
    fused = replace(RELU, op_type="MLXExecutionProvider_1_0", domain="MLXExecutionProvider")
    assert reasons_against(fused, Rules()) == ("it is a partition already",)


class TestBeforeOrt127:
    """Those runtimes do not hand a fused node what its bodies read from outside."""

    RULES = Rules(passes_captured=False)

    def choice(self, *read: Value) -> Node:
        reads = call("Sum", 13, read, [value("t")])
        then = branch(reads, outputs=[value("t")])
        otherwise = Graph((value("x"),), (value("y"),), (RELU,))
        condition = value("c", "bool", ())
        return call("If", 21, [condition], then_branch=then, else_branch=otherwise)

    def test_a_captured_value_declines(self) -> None:
        node = self.choice(value("p"), value("q"))
        assert reasons_against(node, Rules()) == ()
        assert reasons_against(node, self.RULES) == (
            "ONNX Runtime before 1.27 does not pass on 'p', 'q', read in a body",
        )

    def test_a_constant_does_not(self) -> None:
        known = Constant("float32", (2, 3), 24, lambda: np.zeros(()), lambda: mx.zeros(()))
        assert reasons_against(self.choice(replace(value("k"), constant=known)), self.RULES) == ()

    def test_an_input_of_the_node_itself_does_not(self) -> None:
        shared = replace(self.choice(value("p")), inputs=(value("c", "bool", ()), value("p")))
        assert not [r for r in reasons_against(shared, self.RULES) if "1.27" in r]

    def test_what_an_inner_body_takes_from_the_outer_one_does_not(self) -> None:
        made = call("Relu", 14, [value("k")], [value("p")])
        inner = self.choice(value("p"))
        outer = replace(inner, bodies={"then_branch": branch(made, inner), "else_branch": branch()})
        (reason,) = reasons_against(outer, self.RULES)
        assert reason == "ONNX Runtime before 1.27 does not pass on 'k', read in a body"
