"""An operator of your own, as a Python function on MLX arrays, in a model made in five lines."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import onnx.parser
import onnxruntime as ort

import ort_mlx


@ort_mlx.custom_op("my.domain", "SoftCap")
def soft_cap(x: mx.array, *, limit: float = 30.0) -> mx.array:
    return limit * mx.tanh(x / limit)


model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17, "my.domain" : 1]>
    capped (float[N] x) => (float[N] y) {
        y = my.domain.SoftCap <limit = 5.0> (x)
    }""")

session = ort.InferenceSession(model.SerializeToString(), ort_mlx.enable(ort.SessionOptions()))
print(session.run(None, {"x": np.array([1, 10, 100], np.float32)})[0])
print(ort_mlx.report(session))
