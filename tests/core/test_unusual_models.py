"""Legal models that are rarely seen: names, ranks, empty dimensions, odd outputs, long chains."""

# longer than 400 lines: one short test for each oddity

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import ort_mlx
from core.graphs import (
    BOOL,
    CPU,
    FLOAT,
    INT64,
    MLX,
    assert_close,
    assert_equal_to_cpu,
    body,
    cpu_session,
    mlx_session,
    model,
    node,
    placed,
    relu,
    tensor,
)


def test_no_nodes(x: np.ndarray) -> None:
    made = model([], [tensor("x", shape=["a", "b"])], [tensor("x", shape=["a", "b"])])
    session = mlx_session(made)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
    assert ort_mlx.report(session).nodes == 0
    mlx_session(made, strict=True)


def test_an_output_that_is_an_input_or_an_initializer(x: np.ndarray) -> None:
    made = model(
        [node("Relu", ["x"], ["y"])],
        [tensor("x", shape=["a", "b"])],
        [tensor("y"), tensor("x"), tensor("k")],
        {"k": x},
    )
    assert_equal_to_cpu(made, {"x": x})


def test_one_input_several_times(x: np.ndarray) -> None:
    made = model(
        [node("Add", ["x", "x"], ["t"]), node("Concat", ["t", "x", "t"], ["y"], axis=0)],
        [tensor("x", shape=["a", "b"])],
        [tensor("y")],
    )
    assert_equal_to_cpu(made, {"x": x})


def test_one_value_as_several_outputs(x: np.ndarray) -> None:
    made = model(
        [
            node("Relu", ["x"], ["y"]),
            node("Identity", ["y"], ["z"]),
            node("Identity", ["x"], ["w"]),
            node("Reshape", ["y", "s"], ["v"]),
        ],
        [tensor("x", shape=["a", "b"])],
        [tensor("y"), tensor("z"), tensor("w"), tensor("v")],
        {"s": np.array([-1])},
    )
    for plain in (False, True):
        assert_equal_to_cpu(made, {"x": x}, unoptimized=plain)


def test_an_unused_input_and_an_unused_output(x: np.ndarray) -> None:
    made = model(
        [node("TopK", ["x", "k"], ["y", "i"], axis=1)],
        [tensor("x", shape=["a", "b"]), tensor("unused", shape=["c"])],
        [tensor("y")],
        {"k": np.array([2])},
    )
    assert_equal_to_cpu(made, {"x": x, "unused": x[0]})


def test_omitted_inputs_and_outputs(x: np.ndarray) -> None:
    made = model(
        [
            node("Clip", ["x", "", "most"], ["a"]),
            node("MaxPool", ["p"], ["b", ""], kernel_shape=[2]),
            node("Dropout", ["x"], ["d", "m"]),
        ],
        [tensor("x", shape=["a", "b"]), tensor("p", shape=[1, 1, 4]), tensor("most", shape=[])],
        [tensor("a"), tensor("b"), tensor("d"), tensor("m", BOOL)],
    )
    feed = {"x": x, "p": np.ones((1, 1, 4), np.float32), "most": np.array(1, np.float32)}
    assert_equal_to_cpu(made, feed)


def test_names_of_any_kind(x: np.ndarray) -> None:
    name, other = "größe/日本.文:0", ' a name\twith "blanks" '
    made = model(
        [node("Relu", [name], [other], name="nœud"), node("Neg", [other], ["-"], name="")],
        [tensor(name, shape=["höhe", "b"])],
        [tensor("-"), tensor(other)],
    )
    session = assert_equal_to_cpu(made, {name: x})
    assert ort_mlx.report(session).taken == 2


def test_nodes_without_a_name(x: np.ndarray) -> None:
    made = model(
        [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["z"])],
        [tensor("x", shape=["a", "b"])],
        [tensor("y"), tensor("z")],
    )
    assert_equal_to_cpu(made, {"x": x})


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), (3, 0, 2), ()], ids=str)
def test_no_elements_and_rank_0(shape: tuple[int, ...]) -> None:
    x = np.full(shape, -1.5, np.float32)
    made = model(
        [
            node("Relu", ["x"], ["y"]),
            node("Shape", ["x"], ["s"]),
            node("ReduceSum", ["x"], ["t"], keepdims=0),
            node("Reshape", ["y", "s"], ["r"], allowzero=1),
            node("Flatten", ["x"], ["f"], axis=0),
            node("Concat", ["f", "f"], ["c"], axis=0),
        ],
        [tensor("x")],
        [tensor("y"), tensor("s", INT64), tensor("t"), tensor("r"), tensor("c")],
    )
    session = assert_equal_to_cpu(made, {"x": x})
    # The same session takes another rank and size, and the first one again.
    other = np.ones((2, 2), np.float32)
    for feed in (other, x):
        assert_close(session.run(None, {"x": feed}), cpu_session(made).run(None, {"x": feed}))


@pytest.mark.parametrize("rank", [8, 9, 12, 41])
def test_large_ranks(rank: int) -> None:
    x = np.arange(4, dtype=np.float32).reshape([2, 2] + [1] * (rank - 2)) - 1
    order = list(reversed(range(rank)))
    made = model(
        [node("Relu", ["x"], ["r"]), node("Transpose", ["r"], ["y"], perm=order)],
        [tensor("x", shape=[None] * rank)],
        [tensor("y")],
    )
    assert_equal_to_cpu(made, {"x": x})


DTYPES = [
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_crosses_unchanged(dtype: str) -> None:
    code = TensorProto.DataType.Value(
        {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())
    )
    kind = np.dtype(dtype)
    if kind.kind == "f":
        values = [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            1 / 3,
            np.finfo(kind).max,
            np.finfo(kind).tiny,
        ]
    elif kind.kind == "b":
        values = [True, False] * 4
    else:
        limits = np.iinfo(kind)
        values = [limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1, 7, 100]
    x = np.array(values, kind).reshape(2, 4)
    made = model(
        [node("Transpose", ["x"], ["t"], perm=[1, 0]), node("Concat", ["t", "k"], ["y"], axis=0)],
        [tensor("x", code, ["a", "b"])],
        [tensor("y", code), tensor("t", code)],
        {"k": np.zeros((1, 2), kind)},
    )
    session = mlx_session(made)
    assert set(placed(session)) == {MLX}
    y, t = session.run(None, {"x": x})
    assert (t.dtype, y.dtype) == (kind, kind)
    assert t.tobytes() == np.ascontiguousarray(x.T).tobytes()
    assert y[:4].tobytes() == t.tobytes()


def test_bfloat16_inside(x: np.ndarray) -> None:
    bf16 = TensorProto.BFLOAT16
    made = model(
        [
            node("Cast", ["x"], ["b"], to=bf16),
            node("Add", ["b", "k"], ["c"]),
            node("Cast", ["c"], ["y"], to=FLOAT),
        ],
        [tensor("x", shape=["a", "b"])],
        [tensor("y")],
        {"k": _bfloat16("k", 0.5)},
    )
    session = mlx_session(made)
    assert set(placed(session)) == {MLX}
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x + 0.5, rtol=1e-2)


def _bfloat16(name: str, value: float) -> Any:
    return helper.make_tensor(name, TensorProto.BFLOAT16, [], [value])


@pytest.mark.parametrize("route", ["value", "input"])
def test_a_small_bfloat16_constant_keeps_its_type(route: str, x: np.ndarray) -> None:
    """Host values have no bfloat16, so one must not leave as float32."""
    bf16 = TensorProto.BFLOAT16
    constant = {"k": _bfloat16("k", 2.0)}
    if route == "value":  # the constant is an output
        nodes = [node("Identity", ["k"], ["c"]), node("Add", ["c", "k"], ["d"])]
    else:  # the constant, computed with, also becomes a host parameter
        nodes = [
            node("Add", ["k", "k"], ["d"]),
            node("Cast", ["d"], ["n"], to=INT64),
            node("Reshape", ["n", "one"], ["m"]),
            node("ConstantOfShape", ["m"], ["z"]),
        ]
    outputs = ["d"] if route == "value" else ["d", "z"]
    casts = [node("Cast", ["d"], ["df"], to=FLOAT), node("Add", ["df", "x"], ["y"])]
    made = model(
        [*nodes, *casts],
        [tensor("x", shape=["a", "b"])],
        [tensor("y"), *(tensor(o, bf16 if o == "d" else FLOAT) for o in outputs)],
        {**constant, "one": np.array([1])},
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = mlx_session(made, options, keep_islands=True)
    assert set(placed(session)) == {MLX}
    wanted = ["y"] + (["z"] if route == "input" else [])
    y, *rest = session.run(wanted, {"x": x})
    np.testing.assert_allclose(y, x + 4)
    if rest:
        assert rest[0].shape == (4,)


def test_a_long_chain_and_a_wide_fan(x: np.ndarray) -> None:
    size = 2000
    chain = [node("Add", [f"v{i}", "k"], [f"v{i + 1}"]) for i in range(size)]
    made = model(
        chain,
        [tensor("v0", shape=["a", "b"])],
        [tensor(f"v{size}")],
        {"k": np.array(0.25, np.float32)},
    )
    session = assert_equal_to_cpu(made, {"v0": x})
    assert ort_mlx.report(session).taken == size
    fan = [node("Mul", ["x", f"k{i}"], [f"p{i}"]) for i in range(size)]
    made = model(
        [*fan, node("Sum", [f"p{i}" for i in range(size)], ["y"])],
        [tensor("x", shape=["a", "b"])],
        [tensor("y")],
        {f"k{i}": np.array(1 / (i + 1), np.float32) for i in range(size)},
    )
    session = mlx_session(made)
    assert set(placed(session)) == {MLX}
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], cpu_session(made).run(None, {"x": x})[0], rtol=1e-4
    )


def test_an_output_of_every_step_of_a_chain(x: np.ndarray) -> None:
    nodes = [node("Sin", [f"v{i}"], [f"v{i + 1}"]) for i in range(100)]
    made = model(nodes, [tensor("v0", shape=["a", "b"])], [tensor(f"v{i + 1}") for i in range(100)])
    session = assert_equal_to_cpu(made, {"v0": x})
    (part,) = session.run(["v50"], {"v0": x})
    np.testing.assert_array_equal(part, session.run(None, {"v0": x})[49])


def test_an_alternation_of_providers(x: np.ndarray) -> None:
    """Every other node is left to ORT: fifty partitions of one node, and values that cross."""
    nodes = [node("Sin" if i % 2 else "Cos", [f"v{i}"], [f"v{i + 1}"]) for i in range(100)]
    made = model(nodes, [tensor("v0", shape=["a", "b"])], [tensor("v100")])
    session = mlx_session(made, exclude_ops=["Cos"])
    assert placed(session) == {MLX: {"Sin": 50}, CPU: {"Cos": 50}}
    assert ort_mlx.report(session).partitions == 50
    np.testing.assert_allclose(
        session.run(None, {"v0": x})[0], cpu_session(made).run(None, {"v0": x})[0], rtol=1e-5
    )


def test_a_run_does_not_write_to_its_inputs() -> None:
    x = np.full((64, 64), -1, np.float32)
    x.flags.writeable = False
    made = model(
        [node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("Neg", ["b"], ["y"])],
        [tensor("x", shape=["a", "b"])],
        [tensor("y")],
    )
    assert_equal_to_cpu(made, {"x": x})
    assert (x == -1).all()


def test_inputs_at_any_address(tmp_path: Any) -> None:
    """The CPU backend looks at the word before its own buffers: there is none at a page's start."""
    path = tmp_path / "x.bin"
    np.full(4096, -2, np.float32).tofile(path)
    session = mlx_session(relu(["n"]))
    for offset in (0, 4, 8, 12, 20):
        mapped = np.memmap(path, np.float32, "r", offset=offset)
        np.testing.assert_array_equal(session.run(None, {"x": mapped})[0], 0)
    strided = np.arange(20, dtype=np.float32)[::2]
    np.testing.assert_array_equal(session.run(None, {"x": strided})[0], strided)


def test_io_binding_and_given_outputs(x: np.ndarray) -> None:
    session = mlx_session(relu())
    binding = session.io_binding()
    given = np.zeros_like(x)
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, np.float32, x.shape, given.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(given, np.maximum(x, 0))
    value = ort.OrtValue.ortvalue_from_numpy(x)
    (made,) = session.run_with_ort_values(None, {"x": value})
    np.testing.assert_array_equal(made.numpy(), np.maximum(x, 0))


def test_boolean_outputs(x: np.ndarray) -> None:
    made = model(
        [node("Greater", ["x", "k"], ["y"]), node("Not", ["y"], ["z"])],
        [tensor("x", shape=["a", "b"])],
        [tensor("y", BOOL), tensor("z", BOOL)],
        {"k": np.array(0, np.float32)},
    )
    session = mlx_session(made)
    assert set(placed(session)) == {MLX}
    y, z = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, x > 0)
    np.testing.assert_array_equal(z, x <= 0)


def test_a_dimension_that_mlx_cannot_index(x: np.ndarray) -> None:
    session = mlx_session(relu())
    with pytest.raises(Exception, match="a dimension of 3000000000 is more than MLX can index"):
        session.run(None, {"x": np.zeros((0, 3_000_000_000), np.float32)})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


def test_partitions_that_ort_runs_in_parallel(x: np.ndarray) -> None:
    options = ort.SessionOptions()
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 4
    rows = [
        [
            node("Mul", ["x", f"k{i}"], [f"a{i}"]),
            node("Cos", [f"a{i}"], [f"b{i}"]),
            node("Exp", [f"b{i}"], [f"c{i}"]),
        ]
        for i in range(8)
    ]
    made = model(
        [n for row in rows for n in row],
        [tensor("x")],
        [tensor(f"c{i}") for i in range(8)],
        {f"k{i}": np.array(i, np.float32) for i in range(8)},
    )
    session = mlx_session(made, options, exclude_ops=["Cos"])
    assert placed(session) == {MLX: {"Mul": 8, "Exp": 8}, CPU: {"Cos": 8}}
    wanted = cpu_session(made).run(None, {"x": x})
    for _ in range(20):
        assert_close(session.run(None, {"x": x}), wanted)


def test_a_shape_that_a_feed_may_replace(x: np.ndarray) -> None:
    made = model(
        [node("Reshape", ["x", "s"], ["y"])],
        [tensor("x"), tensor("s", INT64, [2])],
        [tensor("y")],
        {"s": np.array([3, 2])},
    )
    assert_equal_to_cpu(made, {"x": x}, {"x": x, "s": np.array([1, 6])}, {"x": x})


def test_an_old_model_whose_initializers_are_inputs(x: np.ndarray) -> None:
    made = model(
        [node("Reshape", ["x", "s"], ["y"]), node("Add", ["y", "w"], ["z"])],
        [tensor("x"), tensor("s", INT64, [2]), tensor("w", shape=[2])],
        [tensor("z")],
        {"s": np.array([3, 2]), "w": np.ones(2, np.float32)},
        opset=9,
    )
    proto = onnx.load_from_string(made)
    proto.ir_version = 3
    assert_equal_to_cpu(proto.SerializeToString(), {"x": x})


def test_a_sparse_initializer(x: np.ndarray) -> None:
    made = model([node("Add", ["x", "w"], ["y"])], [tensor("x", shape=[2, 3])], [tensor("y")])
    proto = onnx.load_from_string(made)
    sparse = proto.graph.sparse_initializer.add()
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.array([5], np.float32), "w"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array([[0, 1]]), "w_index"))
    sparse.dims.extend([2, 3])
    assert_equal_to_cpu(proto.SerializeToString(), {"x": x})


def test_constant_nodes_at_every_level(x: np.ndarray) -> None:
    value = onnx.numpy_helper.from_array(x, "v")
    then = body(
        [node("Constant", [], ["inner"], value=value), node("Add", ["x", "inner"], ["t"])],
        [],
        [tensor("t")],
    )
    otherwise = body([node("Mul", ["x", "float"], ["u"])], [], [tensor("u")])
    made = model(
        [
            node("Constant", [], ["k"], value=value),
            node("Constant", [], ["axes"], value_ints=[0]),
            node("Constant", [], ["float"], value_float=2.5),
            node("Add", ["x", "k"], ["a"]),
            node("Unsqueeze", ["a", "axes"], ["y"]),
            node("If", ["c"], ["z"], then_branch=then, else_branch=otherwise),
        ],
        [tensor("x", shape=["a", "b"]), tensor("c", BOOL, [])],
        [tensor("y"), tensor("z")],
    )
    for plain in (False, True):
        feeds = ({"x": x, "c": np.array(c)} for c in (True, False))
        assert_equal_to_cpu(made, *feeds, unoptimized=plain)


def test_control_flow_in_a_function(x: np.ndarray) -> None:
    pick = helper.make_function(
        "own",
        "Pick",
        ["c", "a"],
        ["b"],
        [
            node(
                "If",
                ["c"],
                ["b"],
                then_branch=body([node("Neg", ["a"], ["t"])], [], [tensor("t")]),
                else_branch=body([node("Exp", ["a"], ["u"])], [], [tensor("u")]),
            )
        ],
        [helper.make_opsetid("", 21)],
    )
    made = model(
        [
            node("Pick", ["c", "x"], ["y"], domain="own"),
            node("Pick", ["c", "y"], ["z"], domain="own"),
        ],
        [tensor("c", BOOL, []), tensor("x", shape=["a", "b"])],
        [tensor("z")],
        domains=["own"],
        functions=[pick],
    )
    feeds = ({"x": x, "c": np.array(c)} for c in (True, False))
    session = assert_equal_to_cpu(made, *feeds, strict=True)
    assert ort_mlx.report(session).taken == 2


def test_hundreds_of_inputs_and_outputs(x: np.ndarray) -> None:
    count = 300
    made = model(
        [node("Add", [f"x{i}", f"x{(i + 1) % count}"], [f"y{i}"]) for i in range(count)],
        [tensor(f"x{i}") for i in range(count)],
        [tensor(f"y{i}") for i in range(count)],
    )
    assert_equal_to_cpu(made, {f"x{i}": x + i for i in range(count)})
