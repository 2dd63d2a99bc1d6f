"""Memory over many input lengths: 1,000 distinct ones, then the same again; and over growing ones.

python bench/memory.py
"""

from __future__ import annotations

import mlx.core as mx
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


def measure(title: str, lengths: list[int]) -> None:
    """Run the lengths in a session of their own, and print what is held on the way."""
    source = onnx.parser.parse_model(MODEL).SerializeToString()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(source, ort_mlx.enable(options))
    process = psutil.Process()
    print(f"{title}\n{'Runs':>6}{'RSS MB':>10}{'MLX MB':>10}{'closures':>10}{'traces':>8}")
    for run, length in enumerate(lengths, 1):
        session.run(None, {"x": np.ones((length, 64), np.float32)})
        if run in SHOWN:
            report = ort_mlx.report(session)
            rss = process.memory_info().rss / 2**20
            own = (mx.get_active_memory() + mx.get_cache_memory()) / 2**20
            held, traces = len(report.closures), report.counts["traces"]
            print(f"{run:>6}{rss:>10.1f}{own:>10.1f}{held:>10}{traces:>8}")


def main() -> None:
    order = np.random.default_rng(0).permutation(np.arange(1, LENGTHS + 1)).tolist()
    measure("in random order, twice", order * 2)
    measure("growing by one, twice", list(range(1, LENGTHS + 1)) * 2)


if __name__ == "__main__":
    main()
