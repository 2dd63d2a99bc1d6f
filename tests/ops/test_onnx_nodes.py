"""The node tests of the onnx package, for every operator that is translated, through real sessions.

A test is claimed, and then its outputs have to be the expected ones, or declined with a reason.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.backend.test.case.node import collect_testcases

import ort_mlx
from ort_mlx import registry
from support.edges import run_session
from support.ep import Ep
from support.placement import assert_placed, mlx_session, placement
from support.references import TOLERANCES

_CORNERS: Final = (
    "as ONNX Runtime: the output's corner is the input's, which needs the rounded output size "
    "rather than size * scale"
)
# Tests whose expected outputs are not what we return, each with the reason.
DISPUTED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            f"test_training_dropout{kind}{mask}"
            for kind in ("", "_default")
            for mask in ("", "_mask")
        ),
        "every generator drops other elements",
    ),
    "test_maxunpool_export_with_output_shape": "ONNX Runtime counts the indices in output_shape",
    "test_resize_downsample_scales_linear_align_corners": _CORNERS,
    "test_resize_downsample_scales_cubic_align_corners": _CORNERS,
}

OPS = sorted({(d.domain, d.name) for d in registry.all_ops() if d.domain != registry.MS})


@functools.cache
def node_tests() -> Mapping[tuple[str, str], list[Any]]:
    """The node tests of onnx by domain and operator; collecting them takes some seconds."""
    grouped = defaultdict(list)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for test in collect_testcases(None):
            if len(test.model.graph.node) == 1:
                node = test.model.graph.node[0]
                grouped[node.domain, node.op_type].append(test)
    return grouped


@pytest.mark.parametrize(("domain", "op_type"), OPS, ids=lambda part: part or "onnx")
def test_node_tests(domain: str, op_type: str, ep: Ep, record_property: Any) -> None:
    counts: Counter[str] = Counter()
    wrong = []
    for test in node_tests().get((domain, op_type), ()):
        try:
            outcome = "disputed" if test.name in DISPUTED else _outcome(test, domain, op_type)
        except Exception as error:
            outcome = "failed"
            wrong.append(f"{test.name}: {error}")
        counts[outcome] += 1
    record_property("onnx node tests", dict(counts))
    assert not wrong, "\n\n".join([f"{len(wrong)} of {counts.total()} failed", *wrong[:6]])


def _outcome(test: Any, domain: str, op_type: str) -> str:
    try:
        session = mlx_session(test.model)
    except Exception as error:
        assert not _cpu_takes(test.model), f"only with MLX: {error}"
        return "not for ORT"
    if not placement(session):
        return "folded by ORT"
    left = ort_mlx.report(session).left
    if (op_type, ort_mlx.get_ep_name()) not in placement(session):
        if left:
            return "declined"
        # A function that is declined is inlined, and then its nodes may all be on MLX.
        assert _is_function(test.model, domain, op_type), "declined without a reason"
        _check(session, test, compares=True)
        return "inlined"
    assert_placed(session)
    opdef = registry.find(domain, op_type, _since(test.model, domain, op_type))
    _check(session, test, compares=opdef is None or opdef.deterministic)
    return "claimed"


def _check(session: Any, test: Any, compares: bool) -> None:
    for inputs, expected in test.data_sets:
        got = _run(session, inputs)
        for g, want in zip(got, map(_array, expected), strict=True):
            assert g.shape == want.shape, f"shape {g.shape}, not {want.shape}"
            assert g.dtype == want.dtype, f"dtype {g.dtype}, not {want.dtype}"
            if compares:
                rtol, atol = TOLERANCES.get(want.dtype.name, (0, 0))
                _compare(g, want, max(rtol, test.rtol), max(atol, test.atol))


def _is_function(model: onnx.ModelProto, domain: str, op_type: str) -> bool:
    schema = onnx.defs.get_schema(op_type, _since(model, domain, op_type), domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _since(model: onnx.ModelProto, domain: str, op_type: str) -> int:
    opset = next(i.version for i in model.opset_import if i.domain in (domain, domain or "ai.onnx"))
    return onnx.defs.get_schema(op_type, opset, domain).since_version


def _cpu_takes(model: onnx.ModelProto) -> bool:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def _run(session: Any, inputs: Any) -> list[Any]:
    return run_session(
        session,
        {entry.name: _array(x) for entry, x in zip(session.get_inputs(), inputs, strict=False)},
    )


def _array(x: Any) -> Any:
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)


def _compare(got: Any, want: Any, rtol: float, atol: float) -> None:
    if want.dtype.kind in "fV":
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol, atol)
    else:
        np.testing.assert_array_equal(got, want)
