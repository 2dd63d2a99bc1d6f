"""Opening a session and its first Run for a long model, against ORT's CPU provider.

python bench/startup.py --nodes 2000
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime as ort

import ort_mlx

KINDS = ("MatMul", "Add", "Relu", "Sigmoid", "Mul")


def model(count: int) -> bytes:
    """Layers of a product and elementwise operations, `count` nodes in all."""
    nodes, before = [], "x"
    for i in range(count):
        after = "y" if i == count - 1 else f"t{i}"
        op = KINDS[i % len(KINDS)]
        second = {"MatMul": ["w"], "Add": ["b"], "Mul": ["b"]}.get(op, [])
        nodes.append(onnx.helper.make_node(op, [before, *second], [after]))
        before = after
    draw = np.random.default_rng(0)
    floats = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "layers",
        [onnx.helper.make_tensor_value_info("x", floats, ["n", 16])],
        [onnx.helper.make_tensor_value_info("y", floats, ["n", 16])],
        [
            onnx.numpy_helper.from_array(draw.standard_normal((16, 16)).astype(np.float32), "w"),
            onnx.numpy_helper.from_array(draw.standard_normal(16).astype(np.float32), "b"),
        ],
    )
    opset = onnx.helper.make_opsetid("", 17)
    made = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return bytes(made.SerializeToString())


def timed(call: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2000)
    source = model(parser.parse_args().nodes)
    feed = {"x": np.ones((4, 16), np.float32)}
    options = ort.SessionOptions()
    options.log_severity_level = 4
    ort_mlx.enable(options)
    plain = ort.SessionOptions()
    plain.log_severity_level = 4

    cpu_open, cpu = timed(
        lambda: ort.InferenceSession(source, plain, providers=["CPUExecutionProvider"])
    )
    mlx_open, mlx = timed(lambda: ort.InferenceSession(source, options))
    cpu_first, _ = timed(lambda: cpu.run(None, feed))
    mlx_first, _ = timed(lambda: mlx.run(None, feed))
    print(f"{'':<14}{'open s':>10}{'first Run s':>14}")
    print(f"{'ORT CPU':<14}{cpu_open:>10.3f}{cpu_first:>14.4f}")
    print(f"{'MLX':<14}{mlx_open:>10.3f}{mlx_first:>14.4f}")
    bound = 3 * cpu_open + 1
    print(f"together {mlx_open + mlx_first:.3f} s; 3 x ORT's opening + 1 s is {bound:.3f} s")
    print(ort_mlx.report(mlx).timings)


if __name__ == "__main__":
    main()
