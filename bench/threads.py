"""Independent sessions on several threads, alone and while another Python thread burns the GIL.

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


def session(source: bytes) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(source, ort_mlx.enable(options))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    count = parser.parse_args().threads
    source = onnx.parser.parse_model(MODEL).SerializeToString()
    sessions = [session(source) for _ in range(count)]
    for one in sessions:
        one.run(None, {"x": np.eye(256, dtype=np.float32)})
    before = _native.counters()["python_entries"]
    single = runs_a_second(sessions[:1], burns=False)
    print(f"1 thread              {single:10.0f} Runs/s")
    for burns in (False, True):
        rate = runs_a_second(sessions, burns)
        title = f"{count} threads" + (" + GIL burner" if burns else "")
        print(f"{title:<22}{rate:10.0f} Runs/s, {rate / single:.2f} of one")
    print(f"entries into Python: {_native.counters()['python_entries'] - before}")


if __name__ == "__main__":
    main()
