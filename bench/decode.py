"""Time per token of a decoder at several context lengths: `python bench/decode.py [--shape NAME]`.

A stack of grouped-query attention layers with random weights, in the shapes of a real model. ONNX
Runtime's CPU provider and ours decode in turns, with a cache that grows and with one of fixed
capacity that past and present share. A second model that has the attention nodes alone gives what
attention itself costs at that length; *rest* is what is left. It should not depend on the context.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import ort_mlx

MS = "com.microsoft"
LENGTHS = (128, 1024, 4096)
CAPACITY = 8192
BLOCKS, UNCOUNTED = 5, 5
FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
Array = NDArray[Any]


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder."""

    layers: int
    heads: int
    kv_heads: int
    size: int
    inner: int
    vocabulary: int

    @property
    def hidden(self) -> int:
        return self.heads * self.size


SHAPES = {
    "tiny": Shape(2, 4, 2, 32, 256, 512),
    "smollm2": Shape(30, 9, 3, 64, 1536, 49152),  # SmolLM2-135M
}


def decoder(shape: Shape, *, only_attention: bool) -> bytes:
    """One step of the decoder, without its embedding: x [1, 1, hidden] to logits.

    Args:
        shape: its sizes.
        only_attention: leave out all but the attention nodes, which then read x directly.
    """
    draw = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def linear(x: str, rows: int, columns: int) -> str:
        name = f"w{len(weights)}"
        value = (draw.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        weights.append(numpy_helper.from_array(value, name))
        return add("MatMul", x, name)

    def add(op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], domain=domain, **attributes))
        return name

    rows = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
    weights.append(numpy_helper.from_array(np.ones(shape.hidden, np.float32), "scale"))
    x = "x"
    for i in range(shape.layers):
        parts = list(rows)
        if not only_attention:
            normed = add("SimplifiedLayerNormalization", x, "scale", epsilon=1e-5)
            parts = [linear(normed, shape.hidden, n * shape.size) for n in rows.values()]
        nodes.append(
            helper.make_node(
                "GroupQueryAttention",
                [*parts, f"past.{i}.k", f"past.{i}.v", "last", "total"],
                [f"y{i}", f"present.{i}.k", f"present.{i}.v"],
                domain=MS,
                num_heads=shape.heads,
                kv_num_heads=shape.kv_heads,
            )
        )
        if only_attention:
            continue
        x = add("Add", x, linear(f"y{i}", shape.hidden, shape.hidden))
        normed = add("SimplifiedLayerNormalization", x, "scale", epsilon=1e-5)
        gate, up = (linear(normed, shape.hidden, shape.inner) for _ in range(2))
        silu = add("Mul", gate, add("Sigmoid", gate))
        x = add("Add", x, linear(add("Mul", silu, up), shape.inner, shape.hidden))
    # Every attention node has a reader, or it need not be computed.
    results = [f"y{i}" for i in range(shape.layers)]
    if not only_attention:
        results = [linear(x, shape.hidden, shape.vocabulary)]

    def value(name: str, kind: int, *dims: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, dims)

    def caches(name: str) -> list[onnx.ValueInfoProto]:
        dims = (1, shape.kv_heads, f"{name}_rows", shape.size)
        return [
            value(f"{name}.{i}.{part}", FLOAT, *dims)
            for i in range(shape.layers)
            for part in ("k", "v")
        ]

    width = {name: n * shape.size for name, n in rows.items()}
    tokens = width if only_attention else {"x": shape.hidden}
    inputs = [value(name, FLOAT, 1, 1, size) for name, size in tokens.items()]
    inputs += [value("last", INT32, 1, 1), value("total", INT32), *caches("past")]
    outputs = [*(value(name, FLOAT, 1, 1, None) for name in results), *caches("present")]
    graph = helper.make_graph(nodes, "decode", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return made


def open_on(model: bytes, device: str) -> Any:
    """A session on MLX, or on ORT's CPU provider for the device "ort"."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if device == "ort":
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session = ort.InferenceSession(model, ort_mlx.enable(options, device=device))
    assert not ort_mlx.report(session).left, ort_mlx.report(session)
    return session


class Decode:
    """A generation that has reached a context length, one step of which can be timed."""

    def __init__(self, session: Any, shape: Shape, length: int, capacity: int) -> None:
        self._session, self._capacity, self._length = session, capacity, length
        draw = np.random.default_rng(1)
        self._past = {
            entry.name: ort.OrtValue.ortvalue_from_numpy(
                draw.standard_normal(
                    (1, shape.kv_heads, capacity or length, shape.size), np.float32
                )
            )
            for entry in session.get_inputs()
            if entry.name.startswith("past")
        }
        self._tokens = {
            entry.name: ort.OrtValue.ortvalue_from_numpy(
                draw.standard_normal(entry.shape, np.float32)
            )
            for entry in session.get_inputs()
            if entry.type == "tensor(float)" and not entry.name.startswith("past")
        }

    def step(self) -> float:
        """Decode one token; seconds."""
        self._length += 1
        feed = {
            "last": np.array([[self._length - 1]], np.int32),
            "total": np.array(self._length, np.int32),
        }
        binding = self._session.io_binding()
        for name, value in {**self._tokens, **self._past}.items():
            binding.bind_ortvalue_input(name, value)
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        for output in self._session.get_outputs():
            past = output.name.replace("present", "past")
            if self._capacity and past in self._past:
                binding.bind_ortvalue_output(output.name, self._past[past])
            else:
                binding.bind_output(output.name)
        start = time.perf_counter()
        self._session.run_with_iobinding(binding)
        spent = time.perf_counter() - start
        if not self._capacity:
            names = [output.name for output in self._session.get_outputs()]
            results = dict(zip(names, binding.get_outputs(), strict=True))
            self._past = {n: results[n.replace("past", "present")] for n in self._past}
        return spent


def in_turns(decodes: dict[str, Callable[[], float]], steps: int) -> dict[str, float]:
    """The median of each in milliseconds.

    In blocks, since ONNX Runtime's threads go on spinning for a while after a Run of its own; the
    first steps of a block, in which they may, and closures are traced, do not count.
    """
    times: dict[str, list[float]] = {name: [] for name in decodes}
    for _ in range(BLOCKS):
        for name, step in decodes.items():
            spent = [step() for _ in range(UNCOUNTED + steps)]
            times[name] += spent[UNCOUNTED:]
    return {name: 1e3 * statistics.median(seconds) for name, seconds in times.items()}


def measure(shape: Shape, capacity: int, device: str, steps: int) -> dict[str, list[float]]:
    """For each provider, by context length: milliseconds a token, of all of it and of attention."""
    models = {
        part: decoder(shape, only_attention=part == "attention") for part in ("all", "attention")
    }
    sessions = {
        f"{provider} {part}": open_on(model, device if provider == "MLX" else "ort")
        for provider in ("MLX", "ORT")
        for part, model in models.items()
    }
    table: dict[str, list[float]] = {name: [] for name in sessions}
    for length in LENGTHS:
        steppers = {
            name: Decode(session, shape, length, capacity).step
            for name, session in sessions.items()
        }
        for name, median in in_turns(steppers, steps).items():
            table[name].append(median)
    return table


def main() -> int:
    """Print a table for each shape and cache."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "gpu"))
    parser.add_argument("--steps", type=int, default=10, help="of each block")
    given = parser.parse_args()
    heading = "".join(f"{length:>10}" for length in LENGTHS)
    for name in given.shape or SHAPES:
        for capacity in (0, CAPACITY):
            cache = f"shared cache of {capacity} rows" if capacity else "growing cache"
            print(f"{name}, {cache}; ms a token at context {heading}  rest 1024/128")
            table = measure(SHAPES[name], capacity, given.device, given.steps)
            for provider in ("MLX", "ORT"):
                whole, attention = table[f"{provider} all"], table[f"{provider} attention"]
                rest = [a - b for a, b in zip(whole, attention, strict=True)]
                for label, row in (("all", whole), ("attention", attention), ("rest", rest)):
                    figures = "".join(f"{ms:>10.3f}" for ms in row)
                    flat = f"{rest[1] / rest[0]:>10.2f}" if label == "rest" else ""
                    print(f"  {provider} {label:<40}{figures}{flat}")
            ratios = (m / o for m, o in zip(table["MLX all"], table["ORT all"], strict=True))
            print(f"  {'MLX / ORT':<44}" + "".join(f"{ratio:>10.2f}" for ratio in ratios))
    return 0


if __name__ == "__main__":
    sys.exit(main())
