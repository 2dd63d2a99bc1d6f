"""A loop of many iterations over a small state, against ORT's CPU provider.

A state-space scan, a Loop with the same body, one that cuts its rows out with Slice, which is
unrolled, and one whose end its data decides.

    python bench/loops.py
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx.numpy_helper
import onnx.parser
import onnxruntime as ort
from overhead import in_turns

import ort_mlx

STEPS = 1000
BODY = """
    kept = Mul (h, decay)
    added = Mul (u, gain)
    g = Add (kept, added)
    weighted = Mul (g, c)
    y = ReduceSum <keepdims = 0> (weighted, axis)
"""
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
LOOP = f"""agraph (float[8, 16] h0, float[1000, 16] us) => (float[8, 16] h, float[s, 16] ys) {{
    h, ys = Loop <body = step (int64 i, bool go, float[8, 16] h) =>
        (bool on, float[8, 16] g, float[16] y) {{
    on = Identity (go)
    u = Gather <axis = 0> (us, i) {BODY} }}> (steps, , h0)
}}"""
SCAN = f"""agraph (float[8, 16] h0, float[1000, 16] us) => (float[8, 16] h, float[s, 16] ys) {{
    h, ys = Scan <num_scan_inputs = 1, body = step (float[8, 16] h, float[16] u) =>
        (float[8, 16] g, float[16] y) {{ {BODY} }}> (h0, us)
}}"""
SLICED = """agraph (float[8, 16] h0, float[1000, 16] us) => (float[8, 16] h) {
    h = Loop <body = step (int64 i, bool go, float[8, 16] h) => (bool on, float[8, 16] g) {
        on = Identity (go)
        start = Unsqueeze (i, axis)
        end = Add (start, whole)
        u = Slice (us, start, end, axis)
        kept = Mul (h, decay)
        g = Add (kept, u)
    }> (steps, , h0)
}"""
UNTIL = """agraph (float[8, 16] h0, float[1000, 16] us) => (float[8, 16] h) {
    h = Loop <body = step (int64 i, bool go, float[8, 16] h) => (bool on, float[8, 16] g) {
        g = Add (h, one)
        top = ReduceMax <keepdims = 0> (g)
        on = Less (top, limit)
    }> (, , h0)
}"""


def model(text: str) -> bytes:
    made = onnx.parser.parse_model(f"{HEAD} {text}")
    draw = np.random.default_rng(0)
    shapes = {"decay": (1, 16), "gain": (1, 16), "c": (8, 16)}
    constants = {name: draw.uniform(0.1, 0.9, s).astype(np.float32) for name, s in shapes.items()}
    constants |= {"axis": np.array([0]), "whole": np.array([1]), "steps": np.array(STEPS)}
    constants |= {"limit": np.array(STEPS, np.float32), "one": np.array(1, np.float32)}
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    return bytes(made.SerializeToString())


def session(source: bytes, on_mlx: bool) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if on_mlx:
        return ort.InferenceSession(source, ort_mlx.enable(options, strict=True))
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def main() -> None:
    draw = np.random.default_rng(1)
    feed = {
        "h0": np.zeros((8, 16), np.float32),
        "us": draw.standard_normal((STEPS, 16)).astype(np.float32),
    }
    print(f"{'us an iteration':<18}{'MLX':>8}{'ORT CPU':>10}{'ratio':>8}{'first Run s':>14}")
    for title, text in (
        ("Scan", SCAN),
        ("Loop", LOOP),
        ("Loop, Slice", SLICED),
        ("Loop until", UNTIL),
    ):
        source = model(text)
        ours, theirs = session(source, True), session(source, False)
        start = time.perf_counter()
        got = ours.run(None, feed)
        first = time.perf_counter() - start
        for a, b in zip(got, theirs.run(None, feed), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        mlx, cpu = in_turns(
            [lambda s=ours: s.run(None, feed), lambda s=theirs: s.run(None, feed)], 50
        )
        line = f"{mlx / STEPS * 1e6:>8.2f}{cpu / STEPS * 1e6:>10.2f}{cpu / mlx:>8.2f}"
        print(f"{title:<18}{line}{first:>14.3f}")


if __name__ == "__main__":
    main()
