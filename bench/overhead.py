"""What a Run costs beside the arithmetic: chains of small nodes, three ways, in turns.

`session.run` on MLX, the same function through `mx.compile` from Python, and `session.run` on ORT's
CPU provider. Graph optimisation is off on both sides, so that the chains stay what they are.

    python bench/overhead.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime as ort

import ort_mlx

LENGTHS = (1, 10, 100, 1000)
SIDE = 4
KINDS: dict[str, tuple[str, Callable[[mx.array, mx.array], mx.array]]] = {
    "products and transposes": ("MatMul", lambda x, w: x @ w),
    "elementwise": ("Add", mx.add),
}


def model(op: str, length: int) -> bytes:
    """A chain of `length` nodes; every second one of the products is a transpose."""
    nodes, before = [], "x"
    for i in range(length):
        after = "y" if i == length - 1 else f"t{i}"
        turns = op == "MatMul" and i % 2 == 1
        nodes.append(
            onnx.helper.make_node("Transpose", [before], [after], perm=[1, 0])
            if turns
            else onnx.helper.make_node(op, [before, "w"], [after])
        )
        before = after
    floats = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "chain",
        [onnx.helper.make_tensor_value_info("x", floats, [SIDE, SIDE])],
        [onnx.helper.make_tensor_value_info("y", floats, [SIDE, SIDE])],
        [onnx.numpy_helper.from_array(np.eye(SIDE, dtype=np.float32), "w")],
    )
    opset = onnx.helper.make_opsetid("", 17)
    made = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return bytes(made.SerializeToString())


def session(source: bytes, on_mlx: bool) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if on_mlx:
        return ort.InferenceSession(source, ort_mlx.enable(options, keep_islands=True))
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def in_turns(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """The median seconds of each call."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds + 5):
        for call, seen in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if turn >= 5:
                seen.append(time.perf_counter() - start)
    return [statistics.median(seen) for seen in times]


def compare(op: str, step: Callable[[mx.array, mx.array], mx.array], length: int) -> list[float]:
    x = np.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(np.float32)
    source = model(op, length)
    ours, theirs = session(source, True), session(source, False)
    weight, array = mx.eye(SIDE), mx.array(x)

    @mx.compile
    def chain(a: mx.array) -> mx.array:
        for i in range(length):
            a = a.T if op == "MatMul" and i % 2 == 1 else step(a, weight)
        return a

    mx.eval(weight, array)
    calls = [
        lambda: ours.run(None, {"x": x}),
        lambda: mx.eval(chain(array)),
        lambda: theirs.run(None, {"x": x}),
    ]
    return in_turns(calls, 100 if length >= 1000 else 400)


def main() -> None:
    for title, (op, step) in KINDS.items():
        print(f"{title}\n{'nodes':>6}{'MLX us':>10}{'mx.compile':>12}{'ORT CPU':>10}{'ratio':>8}")
        for length in LENGTHS:
            ours, compiled, theirs = (t * 1e6 for t in compare(op, step, length))
            print(
                f"{length:>6}{ours:>10.1f}{compiled:>12.1f}{theirs:>10.1f}{ours / compiled:>8.2f}"
            )


if __name__ == "__main__":
    main()
