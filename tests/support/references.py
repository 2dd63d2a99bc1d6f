"""What the right answer is: ONNX Runtime's CPU provider, the ONNX reference, or a case's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

from support.case import HALVES, MS, Array, Case
from support.edges import run_session

Feed = Mapping[str, Array]
Answers = dict[str, list[Array]]

# (rtol, atol) by dtype; the integers and bool have to be equal.
TOLERANCES: Final = {
    "float64": (1e-9, 1e-11),
    "float32": (1e-4, 1e-5),
    "float16": (4e-3, 2e-3),
    "bfloat16": (2e-2, 1e-2),
}


def feed_of(arrays: Sequence[Array | None], c: Case) -> dict[str, Array]:
    """The inputs of a model made by `Case.model`, by name."""
    return {
        name: value
        for i, (x, a) in enumerate(zip(c.inputs, arrays, strict=True))
        if a is not None and not x.constant
        for name, value in [_at_edge(f"x{i}", a)]
    }


def _at_edge(name: str, a: Array) -> tuple[str, Array]:
    if a.dtype == ml_dtypes.bfloat16:
        return f"{name}_edge", a.astype(np.float32)
    return name, a


def ort_cpu(model: onnx.ModelProto, feed: Feed) -> list[Array]:
    """The answer of ORT's CPU provider, without its graph optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(y) for y in run_session(session, feed)]


def onnx_reference(model: onnx.ModelProto, feed: Feed) -> list[Array]:
    """The answer of the reference implementation in the onnx package."""
    return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, dict(feed))]


def answers(c: Case, version: int, dtype: str, turn: int) -> Answers:
    """Every reference's outputs; halves are also computed in float32, on the rounded inputs.

    A reference that cannot run the model is left out.
    """
    arrays = c.arrays(dtype, turn)
    if c.reference is not None:
        wide = [a if a is None or dtype not in HALVES else _widened(a) for a in arrays]
        made = c.reference(*wide, **c.attributes)
        made = made if isinstance(made, (list, tuple)) else [made]
        return {"the case's own reference": [np.asarray(y) for y in made]}
    found: Answers = {}
    if dtype != "bfloat16":
        _try(found, "ONNX Runtime", ort_cpu, c, version, arrays)
    wide = [a if a is None else _widened(a) for a in arrays] if dtype in HALVES else arrays
    if "ONNX Runtime" not in found and dtype in HALVES:
        _try(found, "ONNX Runtime", ort_cpu, c, version, wide)
    if c.domain != MS:
        _try(found, "the ONNX reference", onnx_reference, c, version, wide)
    return found


def _widened(a: Array) -> Array:
    return a.astype(np.float32) if a.dtype in (np.float16, ml_dtypes.bfloat16) else a


def _try(
    found: Answers,
    name: str,
    run: Callable[[onnx.ModelProto, Feed], list[Array]],
    c: Case,
    version: int,
    arrays: Sequence[Array | None],
) -> None:
    try:
        with np.errstate(all="ignore"):
            found[name] = run(c.model(arrays, version), feed_of(arrays, c))
    except Exception:  # any failure means that this reference has no answer
        return


def assert_close(
    got: Array, want: Array, c: Case | None = None, dtype: str = "", exact_dtype: bool = True
) -> None:
    """Compare one output: shape, dtype, NaNs, and values within the dtype's tolerance.

    Args:
        got: ours.
        want: a reference's.
        c: the case, for its tolerance.
        dtype: the dtype under test.
        exact_dtype: False for a reference whose numpy arithmetic may have promoted the dtype.
    """
    assert got.shape == want.shape, f"shape {got.shape}, not {want.shape}"
    if dtype in HALVES and want.dtype == np.float32:  # the reference was computed in float32
        with np.errstate(over="ignore"):
            want = want.astype(got.dtype if dtype == "float16" else ml_dtypes.bfloat16)
        if dtype == "bfloat16":
            want = want.astype(np.float32)
    if not exact_dtype and "b" not in (got.dtype.kind, want.dtype.kind):
        want = want.astype(got.dtype)
    assert got.dtype == want.dtype, f"dtype {got.dtype}, not {want.dtype}"
    own = None if c is None else c.tolerance
    if own is not None and own.dtypes and dtype not in own.dtypes:
        own = None
    if got.dtype.kind not in "fV" and own is None:
        np.testing.assert_array_equal(got, want)
        return
    rtol, atol = TOLERANCES.get(dtype if dtype in HALVES else got.dtype.name, (0, 0))
    if own is not None:
        rtol, atol = max(rtol, own.rtol), max(atol, own.atol)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol, atol)


def comparable(outputs: Sequence[Any], c: Case) -> list[Array]:
    """The part of the outputs that the operator defines."""
    arrays = [np.asarray(y) for y in outputs]
    return arrays if c.view is None else [np.asarray(y) for y in c.view(arrays)]


def run_op(
    op_type: str, *arrays: Array, domain: str = "", opset: int = 21, **attributes: Any
) -> Any:
    """One operator on ORT's CPU provider, for references made of others; one output."""
    names = [f"x{i}" for i in range(len(arrays))]
    node = oh.make_node(op_type, names, ["y"], domain=domain, **attributes)
    inputs = [
        oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
    ]
    graph = oh.make_graph([node], "reference", inputs, [onnx.ValueInfoProto(name="y")])
    imports = [oh.make_opsetid("", opset), oh.make_opsetid(MS, 1)]
    model = oh.make_model(graph, opset_imports=imports, ir_version=10)
    return ort_cpu(model, dict(zip(names, arrays, strict=True)))[0]
