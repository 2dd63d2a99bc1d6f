"""Operators that users write: schema, inference, placement, closures and errors."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import ort_mlx
from ort_mlx.hosts import HostInts
from ort_mlx.node import Node
from support.placement import assert_placed

DOMAIN = "tests.custom"


def _no_negative_scale(node: Node) -> Iterator[str]:
    if node.attr("scale", 1.0) < 0:
        yield "a negative scale"


@ort_mlx.custom_op(DOMAIN, "ScaledAdd", claim=_no_negative_scale, types={"a": {"float32"}})
def scaled_add(a: mx.array, b: mx.array | None = None, *, scale: float = 1.0) -> mx.array:
    return a if b is None else a + scale * b


@ort_mlx.custom_op(DOMAIN, "SumAndCount", outputs=2)
def sum_and_count(*parts: mx.array) -> tuple[mx.array, mx.array]:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total, mx.array(len(parts), dtype=mx.int64)


def _reshaped(x: tuple[str, object], shape: tuple[str, object]) -> list[tuple[str, None]]:
    return [(x[0], None)]


@ort_mlx.custom_op(DOMAIN, "Shaped", infer=_reshaped)
def shaped(x: mx.array, shape: HostInts) -> mx.array:
    return x.reshape(shape)


@ort_mlx.custom_op(DOMAIN, "Untraceable")
def untraceable(x: mx.array, n: HostInts) -> mx.array:
    return x


def session_of(graph: str, **options: object) -> ort.InferenceSession:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17, "{DOMAIN}" : 1]> {graph}'
    )
    so = ort_mlx.enable(ort.SessionOptions(), keep_islands=True, **options)
    so.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return ort.InferenceSession(model.SerializeToString(), so, enable_fallback=0)


SCALED = f"""g (float[N, 3] x, float[3] y) => (float[M, 3] z) {{
    h = {DOMAIN}.ScaledAdd <scale = 2.0> (x, y)
    z = Relu (h)
}}"""


def test_it_is_placed_compiled_and_right(x: np.ndarray) -> None:
    session = session_of(SCALED)
    assert_placed(session)
    y = np.array([1, -1, 0.5], np.float32)
    for rows in (x, x[:1], x):
        got = session.run(None, {"x": rows, "y": y})[0]
        np.testing.assert_allclose(got, np.maximum(rows + 2 * y, 0), rtol=1e-6)
    report = ort_mlx.report(session)
    assert report.partitions == 1
    assert report.counts["hits"] == 1
    assert report.counts["traces"] == 2


def test_an_optional_input_may_be_left_out(x: np.ndarray) -> None:
    session = session_of(f"g (float[N, 3] x) => (float[N, 3] z) {{ z = {DOMAIN}.ScaledAdd (x) }}")
    assert_placed(session)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)


def test_types_and_symbols_are_inferred_by_tracing() -> None:
    session = session_of(
        f"g (float16[N, 3] x) => (s, n) {{ s, n = {DOMAIN}.SumAndCount (x, x, x) }}"
    )
    assert_placed(session)
    s, n = session.get_outputs()
    assert (s.type, s.shape) == ("tensor(float16)", ["N", 3])
    assert (n.type, n.shape) == ("tensor(int64)", [])
    got = session.run(None, {"x": np.ones((2, 3), np.float16)})
    np.testing.assert_array_equal(got[0], np.full((2, 3), 3, np.float16))
    assert got[1] == 3


def test_a_host_parameter_and_a_declared_output(x: np.ndarray) -> None:
    session = session_of(
        f"g (float[N, 3] x, int64[K] s) => (float y) {{ y = {DOMAIN}.Shaped (x, s) }}"
    )
    assert_placed(session)
    for shape in ([3, 2], [6], [3, 2]):
        got = session.run(None, {"x": x, "s": np.array(shape)})[0]
        np.testing.assert_array_equal(got, x.reshape(shape))


def test_a_declined_node_says_what_is_missing() -> None:
    graph = SCALED.replace("2.0", "-2.0")
    with pytest.raises(Exception, match="ScaledAdd runs on MLXExecutionProvider only"):
        session_of(graph)
    with pytest.raises(Exception, match="a negative scale"):
        session_of(graph, strict=True)


def test_what_cannot_be_inferred_is_declined_with_advice() -> None:
    graph = f"g (float[N, 3] x, int64[1] n) => (y) {{ y = {DOMAIN}.Untraceable (x, n) }}"
    with pytest.raises(Exception, match="Untraceable runs on MLXExecutionProvider only"):
        session_of(graph)
    with pytest.raises(Exception, match="give custom_op an `infer` function"):
        session_of(graph, strict=True)


def test_without_the_provider_ort_names_the_operator() -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17, "{DOMAIN}" : 1]> {SCALED}'
    )
    with pytest.raises(Exception, match=f"{DOMAIN}:ScaledAdd"):
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("domain", "name", "message"),
    [
        ("", "Relu", "cannot be the domain"),
        ("com.microsoft", "Mine", "cannot be the domain"),
        ("two words", "Mine", "cannot be the domain"),
        (DOMAIN, "", "cannot be the name"),
        (DOMAIN, "ScaledAdd", "registered twice"),
    ],
)
def test_bad_registrations_are_refused(domain: str, name: str, message: str) -> None:
    with pytest.raises(ort_mlx.OrtMlxError, match=message):
        ort_mlx.custom_op(domain, name)(lambda x: x)
