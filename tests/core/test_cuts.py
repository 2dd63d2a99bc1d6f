"""A large partition is cut between layers, by an option or by the model itself."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

import ort_mlx
from core.graphs import FLOAT, MLX, NOTHING, cpu_session, mlx_session, model, node, placed, tensor
from core.routes import assert_same
from ort_mlx import cuts
from ort_mlx.node import Graph, Node, Value

LAYERS = 8
X = np.linspace(-1, 1, 3 * 8, dtype=np.float32).reshape(3, 8)


def layers(metadata: dict[str, str] | None = None) -> bytes:
    """Residual layers: two branches of several nodes, added to the stream."""
    nodes = []
    for i in range(LAYERS):
        nodes += [
            node("MatMul", [f"x{i}", "w"], [f"a{i}"]),
            node("Sigmoid", [f"a{i}"], [f"b{i}"]),
            node("MatMul", [f"x{i}", "w"], [f"c{i}"]),
            node("Mul", [f"b{i}", f"c{i}"], [f"d{i}"]),
            node("Add", [f"x{i}", f"d{i}"], [f"x{i + 1}"]),
        ]
    weight = np.eye(8, dtype=np.float32)[::-1].copy()
    return model(
        nodes, [tensor("x0", FLOAT, ["n", 8])], [tensor(f"x{LAYERS}")], {"w": weight},
        metadata=metadata,
    )  # fmt: skip


def opened(made: bytes, **options: object) -> ort.InferenceSession:
    session_options = ort.SessionOptions()
    session_options.graph_optimization_level = NOTHING
    return mlx_session(made, session_options, **options)


@pytest.mark.parametrize("count", [0, 1, 3, 7, 1000, 2**31 - 1])
def test_by_option(count: int) -> None:
    made = layers()
    session = opened(made, layer_cuts=count)
    assert set(placed(session)) == {MLX}
    assert ort_mlx.report(session).partitions == min(count + 1, 5 * LAYERS)
    assert_same(session.run(None, {"x0": X}), cpu_session(made).run(None, {"x0": X}))


def test_by_the_model() -> None:
    made = layers({cuts.METADATA: "3"})
    assert ort_mlx.report(opened(made)).partitions == 4
    assert ort_mlx.report(opened(made, layer_cuts=0)).partitions == 1
    assert ort_mlx.report(opened(made, layer_cuts=1)).partitions == 2


def test_what_a_model_may_not_say(capfd: pytest.CaptureFixture[str]) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 2
    session = mlx_session(layers({cuts.METADATA: "few"}), options)
    assert ort_mlx.report(session).partitions == 1
    text = "the model's metadata 'ort_mlx.layer_cuts' is a number of cuts, not 'few'; it is not cut"
    assert text in capfd.readouterr().err


def test_cuts_are_between_layers() -> None:
    """Where one value crosses; the middle of the group would cut a layer in two."""

    def value(name: str) -> Value:
        return Value(name, "float32", (8,))

    nodes, stream = [], "x"
    for i in range(6):
        for name, reads in (
            (f"a{i}", [stream]),
            (f"b{i}", [f"a{i}", stream]),
            (f"y{i}", [f"b{i}", stream]),
        ):
            read = tuple(map(value, reads))
            nodes.append(Node(len(nodes), "", "", "Op", 1, read, (value(name),), {}))
        stream = f"y{i}"
    graph = Graph((value("x"),), (value(stream),), tuple(nodes))
    parts = cuts.cut_largest(graph, [tuple(range(len(nodes)))], 3)
    assert [len(part) for part in parts] == [3, 6, 3, 6]
