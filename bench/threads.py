"""Independent sessions on several threads, alone and while another Python thread burns the GIL.

ORT's CPU provider is the baseline: after each Run the Python binding takes the GIL back, and waits
up to `sys.getswitchinterval()` for a thread that burns it, whatever ran below.

python bench/threads.py --threads 2
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort

import ort_mlx
from ort_mlx import _native

SECONDS = 3.0
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
work (float[256, 256] x) => (float[256, 256] y) {
    a = MatMul (x, x)
    b = Tanh (a)
    c = MatMul (b, x)
    y = Tanh (c)
}"""


def session(source: bytes, on_mlx: bool) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if on_mlx:
        return ort.InferenceSession(source, ort_mlx.enable(options))
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def runs_a_second(sessions: list[Any], burns: bool) -> float:
    """Runs of all sessions together, each on a thread of its own."""
    x = np.eye(256, dtype=np.float32)
    counts = [0] * len(sessions)
    over = threading.Event()

    def work(index: int) -> None:
        while not over.is_set():
            sessions[index].run(None, {"x": x})
            counts[index] += 1

    def burn() -> None:
        while not over.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(sessions))]
    threads += [threading.Thread(target=burn)] if burns else []
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    over.set()
    for thread in threads:
        thread.join()
    return sum(counts) / SECONDS


def compare(title: str, count: int, burns: bool, single: dict[str, float], both: Any) -> None:
    """One line: the rate of each provider, and how it scales from one thread that is alone."""
    line = f"{title:<24}"
    for name, sessions in both.items():
        rate = runs_a_second(sessions[:count], burns)
        single.setdefault(name, rate)
        line += f"{rate:>10.0f}{rate / single[name]:>8.2f}"
    print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    count = parser.parse_args().threads
    source = onnx.parser.parse_model(MODEL).SerializeToString()
    both = {
        name: [session(source, name == "MLX") for _ in range(count)] for name in ("MLX", "ORT CPU")
    }
    for one in (*both["MLX"], *both["ORT CPU"]):
        one.run(None, {"x": np.eye(256, dtype=np.float32)})
    before = _native.counters()["python_entries"]
    print(f"{'Runs/s, of one alone':<24}" + "".join(f"{name:>18}" for name in both))
    single: dict[str, float] = {}
    for burns in (False, True):
        for threads in dict.fromkeys((1, count)):
            title = f"{threads} thread{'s' if threads > 1 else ''}{' + GIL burner' * burns}"
            compare(title, threads, burns, single, both)
    print(f"entries into Python: {_native.counters()['python_entries'] - before}")


if __name__ == "__main__":
    main()
