"""Where nodes ended up, from ORT's own record of it."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime as ort

import ort_mlx

RECORD = "session.record_ep_graph_assignment_info"


def mlx_session(model: onnx.ModelProto, optimize: bool = False, **options: Any) -> Any:
    """A session on MLX that says where its nodes went; nothing is rewritten unless `optimize`."""
    made = ort.SessionOptions()
    made.add_session_config_entry(RECORD, "1")
    made.log_severity_level = 4
    if not optimize:
        made.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    ort_mlx.enable(made, **{"keep_islands": True, **options})
    return ort.InferenceSession(model.SerializeToString(), made, enable_fallback=0)


def placement(session: Any) -> list[tuple[str, str]]:
    """Operator type and provider of every node that ORT assigned."""
    return [
        (node.op_type, part.ep_name)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]


def assert_placed(session: Any) -> None:
    """Every node is on MLX."""
    elsewhere = [op for op, ep in placement(session) if ep != ort_mlx.get_ep_name()]
    assert not elsewhere, f"{', '.join(elsewhere)} not on MLX: {ort_mlx.report(session)}"
    assert placement(session), "ORT assigned no node at all"


def assert_not_placed(session: Any, op_type: str) -> None:
    """No node of this type is on MLX."""
    assert (op_type, ort_mlx.get_ep_name()) not in placement(session), f"{op_type} is on MLX"


def left_for_its_type(session: Any) -> bool:
    """Whether float64, which no GPU computes in MLX, is why nodes are not on MLX, and for each."""
    left = ort_mlx.report(session).left
    return bool(left) and all(
        any("float64, which MLX computes on the CPU only" in r for r in node.reasons)
        for node in left
    )


def reasons(session: Any, op_type: str) -> list[str]:
    """Why nodes of this type were left to another provider."""
    return [
        r for left in ort_mlx.report(session).left if left.op_type == op_type for r in left.reasons
    ]
