"""One session: what is taken and left, strict, the report, the log line, what the snapshot sees."""

# longer than 400 lines: one session seen from each side

from __future__ import annotations

import gc
import weakref
from typing import Any

import mlx.core as mx
import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import ort_mlx
from core.graphs import (
    BOOL,
    CPU,
    FLOAT,
    INT64,
    MLX,
    STRING,
    assert_equal_to_cpu,
    body,
    cpu_session,
    mlx_session,
    model,
    node,
    placed,
    recorded,
    relu,
    tensor,
)
from ort_mlx import session as session_module

WORDS = np.array(["b", "a"], dtype=object)


def with_text() -> bytes:
    """Two nodes of ours around nothing, and one that is not: strings have no MLX array."""
    return model(
        [
            node("Relu", ["x"], ["r"], name="relu"),
            node("StringNormalizer", ["s"], ["t"], name="text"),
            node("Neg", ["r"], ["y"], name="neg"),
        ],
        [tensor("x", shape=["a", "b"]), tensor("s", STRING, ["n"])],
        [tensor("y"), tensor("t", STRING)],
    )


def test_strings_beside_numbers(x: np.ndarray) -> None:
    session = mlx_session(with_text())
    assert placed(session) == {MLX: {"Relu": 1, "Neg": 1}, CPU: {"StringNormalizer": 1}}
    y, t = session.run(None, {"x": x, "s": WORDS})
    np.testing.assert_array_equal(y, -np.maximum(x, 0))
    assert list(t) == list(WORDS)


def test_report_is_data_and_text() -> None:
    report = ort_mlx.report(mlx_session(with_text()))
    assert isinstance(report, ort_mlx.Report)
    assert (report.taken, report.partitions, report.nodes, report.device) == (2, 1, 3, "cpu")
    (left,) = report.left
    assert (left.name, left.op_type, left.domain, left.nested) == (
        "text",
        "StringNormalizer",
        "",
        False,
    )
    assert left.reasons == ("ai.onnx::StringNormalizer is not translated",)
    assert str(report).splitlines()[:2] == [
        "ort_mlx: 2/3 nodes on MLX (cpu) in 1 partition; left to other providers: "
        "StringNormalizerx1 (ai.onnx::StringNormalizer is not translated)",
        "  StringNormalizer 'text': ai.onnx::StringNormalizer is not translated",
    ]


def test_reports_of_several_sessions_are_their_own() -> None:
    both = mlx_session(with_text()), mlx_session(relu())
    assert [ort_mlx.report(s).nodes for s in both] == [3, 1]
    assert ort_mlx.report(both[0]).nodes == 3


def test_a_session_is_gone_with_its_last_reference() -> None:
    session = mlx_session(relu())
    plan = weakref.ref(ort_mlx.report(session).plans[0])
    assert plan() is not None
    del session
    gc.collect()
    assert plan() is None


def test_the_log_line(capfd: pytest.CaptureFixture[str]) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 1
    mlx_session(with_text(), options)
    logged = capfd.readouterr().err
    assert logged.count("nodes on MLX") == 1
    assert "ort_mlx: 2/3 nodes on MLX (cpu) in 1 partition; left to other providers: Str" in logged
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 3
    mlx_session(with_text(), quiet)
    assert capfd.readouterr().err == ""


def test_the_log_line_of_a_model_that_is_all_ours_is_information(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for severity, wanted in ((1, 1), (2, 0)):
        options = ort.SessionOptions()
        options.log_severity_level = severity
        mlx_session(relu(), options)
        assert capfd.readouterr().err.count("1/1 nodes on MLX (cpu) in 1 partition") == wanted


class TestStrict:
    def test_a_model_that_is_all_ours_opens(self) -> None:
        assert placed(mlx_session(relu(), strict=True)) == {MLX: {"Relu": 1}}

    @pytest.mark.parametrize("fallback", [0, 1])
    def test_names_the_nodes_and_why(
        self, fallback: int, capfd: pytest.CaptureFixture[str]
    ) -> None:
        options = ort_mlx.enable(recorded(), device="cpu", strict=True)
        with pytest.raises(Exception, match=r"strict=True, but 1 of 3 nodes") as caught:
            ort.InferenceSession(with_text(), options, enable_fallback=fallback)
        assert "StringNormalizer 'text': ai.onnx::StringNormalizer is not translated" in str(
            caught.value
        )
        assert "strict=False" in str(caught.value)
        assert "Falling back" not in capfd.readouterr().out

    def test_when_nothing_is_ours(self) -> None:
        made = model(
            [node("StringNormalizer", ["s"], ["t"], name="text")],
            [tensor("s", STRING, ["n"])],
            [tensor("t", STRING)],
        )
        with pytest.raises(Exception, match=r"strict=True, but 1 of 1 nodes"):
            mlx_session(made, strict=True)

    def test_islands_are_taken(self) -> None:
        made = model(
            [
                node("Shape", ["s"], ["n"], name="shape"),
                node("Add", ["m", "m"], ["k"], name="add"),
                node("Relu", ["x"], ["y"], name="relu"),
            ],
            [tensor("s", STRING, ["n"]), tensor("m", INT64, [2]), tensor("x", shape=[2])],
            [tensor("n", INT64), tensor("k", INT64), tensor("y")],
        )
        with pytest.raises(Exception, match=r"1 of 3 nodes.*\n.*Shape 'shape'"):
            mlx_session(made, strict=True)

    def test_a_body_counts(self) -> None:
        with pytest.raises(Exception, match=r"in then_branch: StringNormalizer 'text'"):
            mlx_session(choice(text=True), strict=True)
        mlx_session(choice(text=False), strict=True)


def choice(text: bool) -> bytes:
    """An If; with `text`, its first branch needs strings."""
    words = [node("StringNormalizer", ["s"], ["t"], name="text")] if text else []
    counted = [node("Shape", ["t" if text else "x"], ["n"], name="shape")]
    first = body(
        [*words, *counted, node("Cast", ["n"], ["first"], to=FLOAT)], [], [tensor("first")]
    )
    second = body(
        [
            node("Sin", ["x"], ["v"]),
            node("ReduceSum", ["v"], ["w"], keepdims=0),
            node("Reshape", ["w", "one"], ["second"]),
        ],
        [],
        [tensor("second")],
        {"one": np.array([1])},
    )
    return model(
        [
            node("Exp", ["x"], ["e"], name="exp"),
            node("If", ["c"], ["y"], then_branch=first, else_branch=second, name="if"),
            node("Neg", ["y"], ["z"], name="neg"),
        ],
        [tensor("c", BOOL, []), tensor("x", shape=["a", "b"]), tensor("s", STRING, ["n"])],
        [tensor("z"), tensor("e")],
    )


def test_nodes_inside_a_branch_that_stays(x: np.ndarray) -> None:
    made = choice(text=True)
    session = mlx_session(made)
    assert placed(session)[CPU]["StringNormalizer"] == 1
    assert placed(session)[MLX]["Sin"] == 1
    report = ort_mlx.report(session)
    assert {(n.op_type, n.nested) for n in report.left} >= {
        ("If", False),
        ("StringNormalizer", True),
    }
    assert report.taken == sum(placed(session)[MLX].values())
    for c in (True, False):
        feed = {"c": np.array(c), "x": x, "s": WORDS}
        for got, want in zip(
            session.run(None, feed), cpu_session(made).run(None, feed), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-5)


def test_excluded_ops_inside_nested_branches(x: np.ndarray) -> None:
    """A branch two deep whose own node is not ours: ORT asks about every depth."""
    inner = node(
        "If",
        ["c"],
        ["i"],
        then_branch=body(
            [node("Relu", ["x"], ["p"]), node("Neg", ["p"], ["q"])], [], [tensor("q")]
        ),
        else_branch=body([node("Cos", ["x"], ["r"])], [], [tensor("r")]),
        name="inner",
    )
    made = model(
        [
            node(
                "If",
                ["d"],
                ["y"],
                then_branch=body([inner, node("Exp", ["i"], ["t"])], [], [tensor("t")]),
                else_branch=body([node("Sin", ["x"], ["u"])], [], [tensor("u")]),
                name="outer",
            )
        ],
        [tensor("c", BOOL, []), tensor("d", BOOL, []), tensor("x", shape=["a", "b"])],
        [tensor("y")],
    )
    session = mlx_session(made, exclude_ops=["Relu"])
    found = placed(session)
    assert found[MLX] == {"Neg": 1, "Cos": 1, "Exp": 1, "Sin": 1}
    assert set(found[CPU]) <= {"Relu", "If"}
    for c in (True, False):
        for d in (True, False):
            feed = {"c": np.array(c), "d": np.array(d), "x": x}
            np.testing.assert_allclose(
                session.run(None, feed)[0], cpu_session(made).run(None, feed)[0], rtol=1e-5
            )


TWICE = helper.make_function(
    "own",
    "Twice",
    ["a"],
    ["b"],
    [node("Add", ["a", "a"], ["b"])],
    [helper.make_opsetid("", 21)],
)


def with_functions(only: bool = False) -> bytes:
    nodes = [node("Twice", ["x"], ["p"], domain="own"), node("Twice", ["p"], ["y"], domain="own")]
    if not only:
        nodes.insert(1, node("Neg", ["p"], ["q"]))
        nodes[2].input[0] = "q"
    return model(
        nodes, [tensor("x", shape=["a", "b"])], [tensor("y")], domains=["own"], functions=[TWICE]
    )


def test_functions_of_a_model_are_counted_once(x: np.ndarray) -> None:
    session = assert_equal_to_cpu(with_functions(), {"x": x})
    report = ort_mlx.report(session)
    assert (report.taken, report.partitions, report.left) == (3, 1, [])


@pytest.mark.parametrize("only", [False, True])
def test_functions_under_strict(only: bool, x: np.ndarray) -> None:
    assert_equal_to_cpu(with_functions(only), {"x": x}, strict=True)


def test_a_domain_that_nobody_knows_is_refused_by_ort() -> None:
    made = model(
        [node("Foo", ["x"], ["y"], domain="nobody")],
        [tensor("x")],
        [tensor("y")],
        domains=["nobody"],
    )
    with pytest.raises(Exception, match="nobody:Foo"):
        mlx_session(made)


def test_a_domain_that_ort_knows_and_we_do_not(x: np.ndarray) -> None:
    made = model(
        [
            node("Normalizer", ["x"], ["n"], domain="ai.onnx.ml", name="known", norm="MAX"),
            node("CDist", ["n", "n"], ["d"], domain="com.microsoft", name="cdist"),
            node("Relu", ["d"], ["y"], name="relu"),
        ],
        [tensor("x", shape=["a", "b"])],
        [tensor("y")],
        domains=["ai.onnx.ml", "com.microsoft"],
    )
    session = mlx_session(made, exclude_ops=["CDist"])
    assert placed(session)[CPU]["CDist"] == 1
    assert placed(session)[MLX]["Relu"] == 1
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], cpu_session(made).run(None, {"x": x})[0], atol=1e-5
    )


def test_sequences_stay_and_their_tensors_cross(x: np.ndarray) -> None:
    made = model(
        [
            node("Relu", ["x"], ["r"], name="relu"),
            node("SequenceConstruct", ["r", "x"], ["q"], name="made"),
            node("SequenceAt", ["q", "i"], ["t"], name="at"),
            node("Neg", ["t"], ["y"], name="neg"),
        ],
        [tensor("x", shape=["a", "b"]), tensor("i", INT64, [])],
        [tensor("y"), helper.make_tensor_sequence_value_info("q", FLOAT, None)],
    )
    session = mlx_session(made)
    assert placed(session) == {
        MLX: {"Relu": 1, "Neg": 1},
        CPU: {"SequenceConstruct": 1, "SequenceAt": 1},
    }
    y, q = session.run(None, {"x": x, "i": np.array(0)})
    np.testing.assert_array_equal(y, -np.maximum(x, 0))
    assert [item.shape for item in q] == [x.shape, x.shape]


def test_a_sequence_is_named_in_the_reasons() -> None:
    made = model(
        [node("SequenceLength", ["q"], ["n"], name="len"), node("Relu", ["x"], ["y"])],
        [helper.make_tensor_sequence_value_info("q", FLOAT, None), tensor("x")],
        [tensor("n", INT64), tensor("y")],
    )
    (left,) = ort_mlx.report(mlx_session(made)).left
    assert left.op_type == "SequenceLength"
    assert left.reasons


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every graph that is offered in GetCapability, as Python sees it."""
    graphs: list[Any] = []
    original = session_module.partition

    def spy(graph: Any, *args: Any, **kwargs: Any) -> Any:
        graphs.append(graph)
        return original(graph, *args, **kwargs)

    monkeypatch.setattr(session_module, "partition", spy)
    return graphs


def test_model_metadata_arrives(seen: list[Any]) -> None:
    metadata = {"key": "value", "größe": "日本", "empty": ""}
    made = model([node("Relu", ["x"], ["y"])], [tensor("x")], [tensor("y")], metadata=metadata)
    mlx_session(made)
    assert dict(seen[-1].metadata) == metadata
    mlx_session(relu())
    assert dict(seen[-1].metadata) == {}


def test_every_kind_of_attribute_arrives(seen: list[Any]) -> None:
    made = model(
        [
            node("Elu", ["x"], ["a"], alpha=0.5),
            node("LpNormalization", ["a"], ["b"], axis=-1, p=1),
            node("Transpose", ["b"], ["c"], perm=[1, 0]),
            node("Resize", ["c", "", "s"], ["y"], mode="nearest", nearest_mode="floor"),
            node(
                "LabelEncoder",
                ["w"],
                ["v"],
                domain="ai.onnx.ml",
                keys_strings=["", "ü", "a"],
                values_floats=[0.5, 1.5, 2.5],
            ),
            node(
                "ConstantOfShape",
                ["n"],
                ["z"],
                value=helper.make_tensor("v", FLOAT, [1], [2.5]),
            ),
        ],
        [tensor("x", shape=[2, 3]), tensor("w", STRING, ["n"]), tensor("n", INT64, [1])],
        [tensor("y"), tensor("v"), tensor("z")],
        {"s": np.array([1, 2], np.float32)},
        domains={"ai.onnx.ml": 3},
    )
    mlx_session(made)
    found = {n.op_type: n.attributes for n in seen[-1].nodes}
    assert found["Elu"]["alpha"] == 0.5
    assert (found["LpNormalization"]["axis"], found["LpNormalization"]["p"]) == (-1, 1)
    assert found["Transpose"]["perm"] == (1, 0)
    assert found["Resize"]["nearest_mode"] == "floor"
    assert found["LabelEncoder"]["keys_strings"] == ("", "ü", "a")
    assert found["LabelEncoder"]["values_floats"] == (0.5, 1.5, 2.5)
    np.testing.assert_array_equal(found["ConstantOfShape"]["value"], np.array([2.5], np.float32))


def test_dimensions_arrive_as_sizes_symbols_or_unknown(seen: list[Any]) -> None:
    made = model(
        [node("Relu", ["x"], ["y"]), node("Relu", ["u"], ["v"]), node("Relu", ["w"], ["z"])],
        [tensor("x", shape=[2, "n", None]), tensor("u"), tensor("w", shape=[])],
        [tensor("y"), tensor("v"), tensor("z")],
    )
    mlx_session(made)
    shapes = {v.name: v.shape for n in seen[-1].nodes for v in n.inputs}
    assert shapes == {"x": (2, "n", None), "u": None, "w": ()}


def test_nodes_of_ours_in_a_branch_that_stays_are_not_listed_as_left() -> None:
    session = mlx_session(choice(text=True), keep_islands=True)
    left = {n.op_type for n in ort_mlx.report(session).left}
    assert left == {"If", "StringNormalizer", "Shape"}
    with pytest.raises(Exception, match=r"strict=True, but 3 of \d+ nodes"):
        mlx_session(choice(text=True), strict=True)


@pytest.mark.skipif(mx.metal.is_available(), reason="fusing is allowed on Metal")
def test_fusing_is_refused_where_it_is_not_safe() -> None:
    with pytest.raises(Exception, match="fuse='on' works on Metal only"):
        mlx_session(model([node("Relu", ["x"], ["y"])], [tensor("x")], [tensor("y")]), fuse="on")
