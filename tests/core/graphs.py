"""Small models for the tests of the core, and sessions of them with their placement recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import ort_mlx

FLOAT, INT64, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
)
MLX, CPU = "MLXExecutionProvider", "CPUExecutionProvider"
NOTHING = ort.GraphOptimizationLevel.ORT_DISABLE_ALL

Arrays = Mapping[str, np.ndarray]


def tensor(name: str, dtype: int = FLOAT, shape: Sequence[Any] | None = None) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attributes)


def body(nodes: Sequence[Any], inputs: Any, outputs: Any, constants: Arrays | None = None) -> Any:
    return helper.make_graph(nodes, "body", inputs, outputs, _initializers(constants))


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Arrays | None = None,
    *,
    opset: int = 21,
    domains: Mapping[str, int] | Sequence[str] = (),
    functions: Sequence[Any] = (),
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    graph = helper.make_graph(nodes, "main", inputs, outputs, _initializers(constants))
    versions = domains if isinstance(domains, Mapping) else dict.fromkeys(domains, 1)
    imports = [helper.make_opsetid(d, v) for d, v in {"": opset, **versions}.items()]
    made = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    made.ir_version = max(10, min(helper.find_min_ir_version_for(imports[:1]), 13))
    helper.set_model_props(made, dict(metadata or {}))
    return made.SerializeToString()


def _initializers(constants: Arrays | None) -> list[Any]:
    return [
        v if isinstance(v, onnx.TensorProto) else numpy_helper.from_array(np.asarray(v), k)
        for k, v in (constants or {}).items()
    ]


def relu(shape: Sequence[Any] | None = ("rows", "columns"), dtype: int = FLOAT) -> bytes:
    return model(
        [node("Relu", ["x"], ["y"], name="relu")],
        [tensor("x", dtype, shape)],
        [tensor("y", dtype)],
    )


def recorded(options: Any = None) -> Any:
    options = ort.SessionOptions() if options is None else options
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def mlx_session(made: bytes | str, session_options: Any = None, **options: Any) -> Any:
    options = {"device": "cpu", **options}
    session_options = ort_mlx.enable(recorded(session_options), **options)
    return ort.InferenceSession(made, session_options, enable_fallback=0)


def cpu_session(made: bytes | str, session_options: Any = None) -> Any:
    return ort.InferenceSession(made, session_options, providers=[CPU])


def placed(session: Any) -> dict[str, Counter[str]]:
    """Provider to the op types that ORT's own record says it got."""
    found: dict[str, Counter[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        ops = found.setdefault(part.ep_name, Counter())
        ops.update(n.op_type for n in part.get_nodes())
    return found


def assert_equal_to_cpu(
    made: bytes | str, *feeds: Arrays, unoptimized: bool = False, **options: Any
) -> Any:
    """Run a model that must be ours entirely, and compare with ORT CPU; each feed runs twice."""
    session_options = ort.SessionOptions()
    if unoptimized:
        session_options.graph_optimization_level = NOTHING
    session = mlx_session(made, session_options, **options)
    assert set(placed(session)) == {MLX}, placed(session)
    reference = cpu_session(made)
    for feed in feeds:
        wanted = reference.run(None, dict(feed))
        for _ in range(2):
            assert_close(session.run(None, dict(feed)), wanted)
    return session


def assert_close(got: Sequence[Any], wanted: Sequence[Any]) -> None:
    for g, w in zip(got, wanted, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
