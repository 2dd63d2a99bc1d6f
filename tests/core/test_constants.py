"""Constants: wrapped where ORT keeps them, prepared and folded once, external ones included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import external_data_helper, helper

import ort_mlx
from core.graphs import (
    INT64,
    MLX,
    NOTHING,
    assert_equal_to_cpu,
    cpu_session,
    mlx_session,
    model,
    node,
    placed,
    tensor,
)
from ort_mlx import _native

LARGE = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)  # 1 MiB


class Counters:
    """What was wrapped and copied since the last look."""

    def __init__(self) -> None:
        self._last = _native.counters()

    def since(self) -> dict[str, int]:
        now = _native.counters()
        made = {k: now[k] - self._last[k] for k in ("bytes_wrapped", "bytes_copied_in")}
        self._last = now
        return made


def unoptimized(made: bytes | str, **options: Any) -> Any:
    session_options = ort.SessionOptions()
    session_options.graph_optimization_level = NOTHING
    return mlx_session(made, session_options, **options)


def test_a_weight_is_wrapped_once_and_never_copied() -> None:
    made = model(
        [node("Add", ["x", "w"], ["y"])],
        [tensor("x", shape=["n", 512])],
        [tensor("y")],
        {"w": LARGE},
    )
    x = np.ones((1, 512), np.float32)
    counters = Counters()
    session = mlx_session(made)
    assert set(placed(session)) == {MLX}
    assert counters.since()["bytes_copied_in"] < LARGE.nbytes
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + LARGE)
    first = counters.since()
    assert first == {"bytes_wrapped": LARGE.nbytes + x.nbytes, "bytes_copied_in": 0}
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + LARGE)
        assert counters.since() == {"bytes_wrapped": x.nbytes, "bytes_copied_in": 0}


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_a_weight_of_a_branch_is_not_copied_for_a_run(where: str) -> None:
    weight = {"w": LARGE}
    uses = helper.make_graph(
        [node("Add", ["x", "w"], ["t"])],
        "then",
        [],
        [tensor("t")],
        [onnx.numpy_helper.from_array(LARGE, "w")] if where == "inside" else [],
    )
    other = helper.make_graph([node("Neg", ["x"], ["u"])], "else", [], [tensor("u")])
    made = model(
        [node("If", ["c"], ["y"], then_branch=uses, else_branch=other)],
        [tensor("c", onnx.TensorProto.BOOL, []), tensor("x", shape=["n", 512])],
        [tensor("y")],
        weight if where == "outside" else None,
    )
    counters = Counters()
    session = mlx_session(made)
    x = np.ones((1, 512), np.float32)
    feed = {"c": np.array(True), "x": x}
    np.testing.assert_array_equal(session.run(None, feed)[0], x + LARGE)
    start = counters.since()
    assert start["bytes_copied_in"] <= LARGE.nbytes + 64  # one that is inside is copied once
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, feed)[0], x + LARGE)
        run = counters.since()
        assert run["bytes_copied_in"] <= 1
        assert run["bytes_wrapped"] <= x.nbytes + 1


def test_a_weight_used_twice_is_wrapped_once() -> None:
    made = model(
        [node("Add", ["x", "w"], ["t"]), node("Mul", ["t", "w"], ["y"])],
        [tensor("x", shape=[512, 512])],
        [tensor("y")],
        {"w": LARGE},
    )
    counters = Counters()
    session = mlx_session(made)
    session.run(None, {"x": LARGE})
    assert counters.since()["bytes_wrapped"] == 2 * LARGE.nbytes


def prepared_model() -> bytes:
    kernel = LARGE.reshape(64, 64, 8, 8)
    return model(
        [node("Conv", ["x", "w"], ["y"])],
        [tensor("x", shape=["n", 64, "h", "v"])],
        [tensor("y")],
        {"w": kernel},
    )


def test_a_prepared_weight_is_made_once_and_ort_lets_go_of_its_own() -> None:
    counters = Counters()
    session = mlx_session(prepared_model())
    x = np.random.default_rng(1).standard_normal((1, 64, 9, 9)).astype(np.float32)
    wanted = cpu_session(prepared_model()).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-3, atol=1e-3)
    # Copied once for the new layout, and then no kernel input any more.
    assert counters.since() == {"bytes_wrapped": x.nbytes, "bytes_copied_in": LARGE.nbytes}
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-3, atol=1e-3)
    assert counters.since() == {"bytes_wrapped": x.nbytes, "bytes_copied_in": 0}


def test_what_only_constants_decide_is_folded_in_the_first_run(x: np.ndarray) -> None:
    made = model(
        [
            node("Exp", ["k"], ["e"], name="exp"),
            node("Transpose", ["e"], ["t"], name="transpose"),
            node("MatMul", ["x", "t"], ["y"], name="matmul"),
        ],
        [tensor("x", shape=["a", "b"])],
        [tensor("y")],
        {"k": x},
    )
    session = unoptimized(made)
    plan = ort_mlx.report(session).plans[0]
    assert len([s for s in plan.block.steps if "preparing" not in s.label]) == 3
    wanted = x @ np.exp(x).T
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5)
        assert [s.label for s in plan.block.steps] == ["MatMul 'matmul'"]


def test_random_numbers_are_not_folded() -> None:
    made = model(
        [
            node("RandomNormal", [], ["r"], name="random", shape=[8]),
            node("Add", ["r", "k"], ["y"], name="add"),
        ],
        [],
        [tensor("y")],
        {"k": np.zeros(8, np.float32)},
    )
    session = unoptimized(made)
    if MLX not in placed(session):
        pytest.skip("random ops are not translated")
    assert not np.array_equal(session.run(None, {})[0], session.run(None, {})[0])


def test_every_output_is_a_constant(x: np.ndarray) -> None:
    made = model(
        [node("Add", ["k", "k"], ["y"]), node("Shape", ["k"], ["s"])],
        [],
        [tensor("y"), tensor("s", INT64)],
        {"k": x},
    )
    assert_equal_to_cpu(made, {}, unoptimized=True, keep_islands=True)
    large = model([node("Add", ["k", "k"], ["y"])], [], [tensor("y")], {"k": LARGE})
    assert_equal_to_cpu(large, {}, unoptimized=True)


def test_a_constant_output_beside_a_computed_one(x: np.ndarray) -> None:
    made = model(
        [node("Add", ["k", "k"], ["p"]), node("Add", ["x", "p"], ["y"])],
        [tensor("x", shape=["a", "b"])],
        [tensor("p"), tensor("y")],
        {"k": x},
    )
    assert_equal_to_cpu(made, {"x": x}, unoptimized=True)


def test_one_initializer_as_a_host_parameter_and_as_an_array(x: np.ndarray) -> None:
    made = model(
        [
            node("Reshape", ["x", "s"], ["r"]),
            node("Cast", ["s"], ["f"], to=1),
            node("Mul", ["s", "s"], ["q"]),
            node("Gather", ["r", "i"], ["g"]),
            node("Add", ["r", "f"], ["y"]),
        ],
        [tensor("x", shape=["a", "b"]), tensor("i", INT64, [])],
        [tensor("y"), tensor("q", INT64), tensor("g")],
        {"s": np.array([3, 2])},
    )
    for plain in (False, True):
        assert_equal_to_cpu(made, {"x": x, "i": np.array(1)}, unoptimized=plain, keep_islands=True)


def test_an_initializer_that_a_feed_may_replace(x: np.ndarray) -> None:
    made = model(
        [node("Add", ["x", "k"], ["y"])],
        [tensor("x", shape=[2, 3]), tensor("k", shape=[2, 3])],
        [tensor("y")],
        {"k": x},
    )
    assert_equal_to_cpu(made, {"x": x}, {"x": x, "k": 3 * x}, {"x": x})


@pytest.fixture
def external(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    proto = onnx.load_from_string(request.param)
    external_data_helper.convert_model_to_external_data(
        proto, all_tensors_to_one_file=True, location="weights.bin", size_threshold=16
    )
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    assert (tmp_path / "weights.bin").stat().st_size >= LARGE.nbytes
    return str(path)


ADDED = model(
    [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "v"], ["y"])],
    [tensor("x", shape=["n", 512])],
    [tensor("y")],
    {"w": LARGE, "v": LARGE[:1]},
)


@pytest.mark.parametrize(
    "external", [ADDED, prepared_model()], indirect=True, ids=["wrapped", "made"]
)
def test_external_data(external: str) -> None:
    session = mlx_session(external)
    assert set(placed(session)) == {MLX}
    (shape,) = [[d if isinstance(d, int) else 9 for d in i.shape] for i in session.get_inputs()]
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    wanted = cpu_session(external).run(None, {"x": x})[0]
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-3, atol=1e-3)


def test_initializers_of_types_that_mlx_has_not(x: np.ndarray) -> None:
    packed = helper.make_tensor("p", onnx.TensorProto.INT4, [4], [1, -2, 3, -4])
    made = model(
        [
            node("DequantizeLinear", ["p", "scale"], ["d"], name="dequantize"),
            node("Add", ["x", "d"], ["y"], name="add"),
        ],
        [tensor("x", shape=["n", 4])],
        [tensor("y")],
        {"p": packed, "scale": np.array(0.5, np.float32)},
    )
    x = np.ones((1, 4), np.float32)
    session = unoptimized(made)
    assert placed(session)[MLX]["Add"] == 1
    np.testing.assert_allclose(session.run(None, {"x": x})[0], [[1.5, 0, 2.5, -1]])


def test_int8_weights() -> None:
    rng = np.random.default_rng(3)
    weight = rng.integers(-128, 128, (64, 32), dtype=np.int8)
    made = model(
        [
            node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1, name="dequantize"),
            node("MatMul", ["x", "d"], ["y"], name="matmul"),
        ],
        [tensor("x", shape=["n", 64])],
        [tensor("y")],
        {"w": weight, "s": np.full(32, 0.1, np.float32), "z": np.zeros(32, np.int8)},
    )
    x = rng.standard_normal((3, 64)).astype(np.float32)
    session = unoptimized(made)
    assert set(placed(session)) == {MLX}
    wanted = x @ (weight * np.float32(0.1))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-4)


def test_a_small_initializer_that_the_application_replaces_is_an_error() -> None:
    graph = model(
        [node("Mul", ["x", "w"], ["y"])],
        [tensor("x", shape=["N"])],
        [tensor("y", shape=["N"])],
        {"w": np.array([2.0], np.float32)},
    )
    so = ort_mlx.enable(ort.SessionOptions(), keep_islands=True)
    replaced = ort.OrtValue.ortvalue_from_numpy(np.array([3.0], np.float32))
    so.add_initializer("w", replaced)
    session = ort.InferenceSession(graph, so, enable_fallback=0)
    with pytest.raises(Exception, match="initializer 'w' was replaced"):
        session.run(None, {"x": np.ones(2, np.float32)})
