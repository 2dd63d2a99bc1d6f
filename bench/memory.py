"""Memory over many input lengths: 1,000 distinct ones, then the same again.

python bench/memory.py
"""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime as ort
import psutil

import ort_mlx

LENGTHS = 1000
SHOWN = (1, 200, 500, 1000, 1200, 1500, 2000)
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
lengths (float[n, 64] x) => (float[n, 64] y) {
    t = Transpose <perm = [1, 0]> (x)
    g = MatMul (x, t)
    p = Softmax (g)
    m = MatMul (p, x)
    y = Tanh (m)
}"""


def main() -> None:
    source = onnx.parser.parse_model(MODEL).SerializeToString()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(source, ort_mlx.enable(options))
    order = np.random.default_rng(0).permutation(np.arange(1, LENGTHS + 1))
    process = psutil.Process()
    print(f"{'Runs':>6}{'RSS MB':>10}{'closures':>10}{'traces':>8}")
    for run in range(1, 2 * LENGTHS + 1):
        length = int(order[(run - 1) % LENGTHS])
        session.run(None, {"x": np.ones((length, 64), np.float32)})
        if run in SHOWN:
            report = ort_mlx.report(session)
            rss = process.memory_info().rss / 2**20
            held, traces = len(report.closures), report.counts["traces"]
            print(f"{run:>6}{rss:>10.1f}{held:>10}{traces:>8}")


if __name__ == "__main__":
    main()
