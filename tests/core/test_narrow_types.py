"""Types that MLX has no arrays of: bits kept at every edge of a partition, and computed with."""

from __future__ import annotations

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given

import ort_mlx
from core.graphs import (
    BOOL,
    CPU,
    FLOAT,
    INT64,
    MLX,
    NOTHING,
    body,
    mlx_session,
    model,
    node,
    placed,
    tensor,
)
from core.graphs import cpu_session as cpu
from ort_mlx.dtypes import FLOAT8, NARROW, NARROW_FLOATS, NARROW_INTS, ONNX_CODES
from support.edges import numpy_dtype, run_session

ORDERED = sorted(NARROW)
WITH_KERNELS = sorted(FLOAT8 | NARROW_INTS)  # of ORT's CPU provider
BITS = {"float4e2m1": 4, **{t: int(t[-1]) for t in NARROW_INTS}}


def every(name: str) -> np.ndarray:
    """Each code of a type once."""
    codes = np.arange(1 << BITS.get(name, 8), dtype=np.uint8)
    if name not in NARROW_INTS:
        return codes.view(numpy_dtype(name))
    values = codes.astype(np.int8)
    if name[0] == "i":
        values[codes.size // 2 :] -= np.int8(codes.size)
    return values.astype(numpy_dtype(name))


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


def unoptimized():
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = NOTHING
    return options


def session_of(made: bytes, **options: object):
    return mlx_session(made, unoptimized(), keep_islands=True, **options)


@pytest.mark.parametrize("count", [None, 0, 1, 5])
@pytest.mark.parametrize("name", ORDERED)
def test_every_code_crosses_both_edges(name, count) -> None:
    code, x = ONNX_CODES[name], every(name)[:count]
    made = model(
        [node("Identity", ["x"], ["y"])], [tensor("x", code, ["n"])], [tensor("y", code)], opset=25
    )
    session = session_of(made)
    assert set(placed(session)) == {MLX}
    for given_x in (x, x[::-1].copy(), x):
        same_bits(run_session(session, {"x": given_x})[0], given_x)


@pytest.mark.parametrize("size", [1, 77, 9001])
@pytest.mark.parametrize("name", ORDERED)
def test_constants_keep_every_bit(name, size) -> None:
    x = np.resize(every(name), size)
    nodes = [node("Reshape", ["w", "shape"], ["y"])]
    made = model(
        nodes,
        [tensor("shape", INT64, [1])],
        [tensor("y", ONNX_CODES[name])],
        {"w": onnx.numpy_helper.from_array(x, "w")},
        opset=25,
    )
    session = session_of(made)
    assert set(placed(session)) == {MLX}
    same_bits(run_session(session, {"shape": np.array([-1])})[0], x)


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_partitions_hand_values_on(name) -> None:
    """ORT's own Transpose between two partitions."""
    code = ONNX_CODES[name]
    nodes = [
        node("Cast", ["x"], ["a"], to=code),
        node("Transpose", ["a"], ["b"]),
        node("Cast", ["b"], ["y"], to=FLOAT),
    ]
    made = model(nodes, [tensor("x", FLOAT, ["n", 3])], [tensor("y")], opset=25)
    session = session_of(made, exclude_ops=["Transpose"])
    assert placed(session) == {MLX: {"Cast": 2}, CPU: {"Transpose": 1}}
    x = np.resize(every(name).astype(np.float32), (5, 3))
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.T)


@pytest.mark.parametrize("name", ["int4", "uint2", "float8e4m3fn", "float8e8m0"])
def test_bodies_capture_carry_and_stack(name) -> None:
    code, x = ONNX_CODES[name], np.resize(every(name), 5)
    then = body([node("Identity", ["x"], ["t"])], [], [tensor("t", code)])
    other = body([node("Identity", ["w"], ["e"])], [], [tensor("e", code)])
    loop = body(
        [
            node("Identity", ["going"], ["still"]),
            node("Identity", ["state"], ["next"]),
            node("Transpose", ["state"], ["row"]),
        ],
        [tensor("i", INT64, []), tensor("going", BOOL, []), tensor("state", code, [5])],
        [tensor("still", BOOL, []), tensor("next", code, [5]), tensor("row", code, [5])],
    )
    nodes = [
        node("If", ["c"], ["a"], then_branch=then, else_branch=other),
        node("Loop", ["m", "", "a"], ["b", "y"], body=loop),
    ]
    made = model(
        nodes,
        [tensor("c", BOOL, []), tensor("m", INT64, []), tensor("x", code, [5])],
        [tensor("b", code), tensor("y", code)],
        {"w": onnx.numpy_helper.from_array(x[::-1].copy(), "w")},
        opset=25,
    )
    session = session_of(made)
    assert set(placed(session)) == {MLX}
    for c, want in ((True, x), (False, x[::-1].copy())):
        for m in (2, 0):
            feed = {"c": np.array(c), "m": np.array(m), "x": x}
            last, rows = run_session(session, feed)
            same_bits(last, want)
            same_bits(rows, np.stack([want] * m) if m else np.empty((0, 5), want.dtype))


def test_a_narrow_input_may_steer_the_graph() -> None:
    nodes = [node("Cast", ["s"], ["shape"], to=INT64), node("Reshape", ["x", "shape"], ["y"])]
    inputs = [tensor("s", ONNX_CODES["uint4"], [2]), tensor("x", FLOAT, [6])]
    session = session_of(model(nodes, inputs, [tensor("y")]))
    assert set(placed(session)) == {MLX}
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [6, 1], [2, 3]):
        s = np.array(shape, np.uint8).astype(ml_dtypes.uint4)
        np.testing.assert_array_equal(run_session(session, {"s": s, "x": x})[0], x.reshape(shape))


@pytest.mark.parametrize(("source", "target"), [("int4", "float32"), ("float32", "int4")])
def test_only_results_are_padded(source, target) -> None:
    """Packed elements of an input are left alone; those of an output are cut off before packing."""
    codes = {"int4": ONNX_CODES["int4"], "float32": FLOAT}
    nodes = [node("Cast", ["x"], ["y"], to=codes[target])]
    made = model(nodes, [tensor("x", codes[source], ["n", 3])], [tensor("y", codes[target])])
    session = mlx_session(made, unoptimized(), keep_islands=True, shape_buckets={"n": [4]})
    for rows in (1, 3, 4, 5):
        x = np.resize(np.arange(-8, 8, dtype=np.int8).astype(numpy_dtype(source)), (rows, 3))
        same_bits(run_session(session, {"x": x})[0], x.astype(numpy_dtype(target)))
    report = ort_mlx.report(session)
    said = ["dimension 'n': input 'x' has elements that may be packed"]
    assert report.unpadded == (said if source == "int4" else [])
    assert report.closures.counts()["traces"] == (4 if source == "int4" else 2)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_weights_in_blocks_are_dequantized_once(name, zero) -> None:
    """What ONNX Runtime's 4-bit quantizer writes as QDQ."""
    rng = np.random.default_rng(0)
    kind = numpy_dtype(name)
    constants = {
        "w": onnx.numpy_helper.from_array(rng.integers(-2, 3, (70, 24)).astype(kind), "w"),
        "s": rng.uniform(0.1, 1, (3, 24)).astype(np.float32),
    }
    if zero:
        z = rng.integers(0, 3, (3, 24)).astype(kind)
        constants["z"] = onnx.numpy_helper.from_array(z, "z")
    nodes = [
        node("DequantizeLinear", list(constants), ["d"], axis=0, block_size=32),
        node("MatMul", ["x", "d"], ["y"]),
    ]
    made = model(nodes, [tensor("x", FLOAT, ["n", 70])], [tensor("y")], constants)
    session = mlx_session(made)
    assert placed(session) == {MLX: {"DequantizeLinear": 1, "MatMul": 1}}
    x = rng.standard_normal((3, 70)).astype(np.float32)
    want = cpu(made, unoptimized()).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, 1e-4, 1e-4)
    (plan,) = ort_mlx.report(session).plans
    assert [step.label.partition(" ")[0] for step in plan.block.steps] == ["MatMul"]


def floats() -> st.SearchStrategy[float]:
    """Of any size, and more of those that the types have."""
    return st.one_of(
        st.floats(width=32), st.floats(-600, 600, width=32), st.floats(-1, 1, width=32)
    )


@given(x=st.lists(floats(), min_size=1, max_size=64), saturate=st.booleans())
@pytest.mark.parametrize("name", sorted(FLOAT8))
def test_casts_of_any_float_are_those_of_ort(name, x, saturate, casts) -> None:
    x = np.array(x, np.float32)
    ours, theirs = casts(name, int(saturate))
    want = run_session(theirs, {"x": x})[0]
    if name == "float8e4m3fn" and not saturate:  # ORT has 448 there, see disputes.py
        beyond = (np.abs(x) >= 480) & (np.abs(x) < 496)
        want = np.where(beyond, np.copysign(np.nan, x), want).astype(want.dtype)
    if name == "float8e5m2":
        payload = np.isnan(x)  # which NaN, and that ORT overflows to NaN, are in disputes.py
        beyond = (np.abs(x) >= 61440) & ~payload & (not saturate)
        want = np.where(beyond, np.copysign(np.inf, x), want).astype(want.dtype)
        x, want = (np.where(payload, 0, a).astype(a.dtype) for a in (x, want))
    same_bits(run_session(ours, {"x": x})[0], want)


@pytest.fixture(scope="module")
def casts():
    """Sessions that cast float32, ours and ORT's, by type and saturation."""
    made = {}
    for name in FLOAT8:
        for saturate in (0, 1):
            nodes = [node("Cast", ["x"], ["y"], to=ONNX_CODES[name], saturate=saturate)]
            text = model(nodes, [tensor("x", FLOAT, ["n"])], [tensor("y", ONNX_CODES[name])])
            made[name, saturate] = session_of(text), cpu(text)
            assert set(placed(made[name, saturate][0])) == {MLX}
    return lambda name, saturate: made[name, saturate]


@pytest.mark.parametrize("name", sorted(NARROW_FLOATS))
def test_values_of_a_type_stay_as_they_are(name) -> None:
    """A cast through float32, which has them all."""
    x, code = every(name), ONNX_CODES[name]
    nodes = [node("Cast", ["x"], ["f"], to=FLOAT), node("Cast", ["f"], ["y"], to=code)]
    made = model(nodes, [tensor("x", code, ["n"])], [tensor("y", code), tensor("f")], opset=25)
    y, f = run_session(session_of(made), {"x": x})
    np.testing.assert_array_equal(f, x.astype(np.float32))
    finite = np.isfinite(f)  # an infinity saturates
    same_bits(y[finite], x[finite])
