"""The six lines: any model, any input. `python examples/basic.py MODEL.onnx`."""

import sys

import numpy as np
import onnxruntime as ort

import ort_mlx

session = ort.InferenceSession(sys.argv[1], ort_mlx.enable(ort.SessionOptions()))
entry = session.get_inputs()[0]
shape = [n if isinstance(n, int) and n > 0 else 1 for n in entry.shape]
outputs = session.run(None, {entry.name: np.ones(shape, np.float32)})
print([o.shape for o in outputs])
print(ort_mlx.report(session))
